"""Keep the contexts of nodes, in parts that are stored once."""
