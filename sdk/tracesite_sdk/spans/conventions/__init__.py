"""The conventions for the attributes of spans, one module each; registry.py lists them."""
