"""Normalise and redact records. Without Django."""
