"""The only way into the tables: decode, normalize, redact, write."""
