"""Seals: keyed digests of completed messages and everything below them, which show changes by SQL. See docs/audit.md."""
