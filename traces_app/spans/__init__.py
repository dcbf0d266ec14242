"""Store the spans of traces as they arrive, and make the messages of the traces of them."""
