"""Deliver entries to a server or a file: sampled, redacted, and kept on the disk until a server has them."""
