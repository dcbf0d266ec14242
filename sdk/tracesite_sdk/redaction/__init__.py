"""Secret detection and redaction of text, JSON text and decoded values."""
