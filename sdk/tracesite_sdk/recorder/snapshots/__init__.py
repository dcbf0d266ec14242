"""Contexts of nodes in parts, and where they are kept."""
