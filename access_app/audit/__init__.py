"""The audit log: who did or read what, in chains that show tampering. See docs/audit.md."""
