"""Who may see what: projects, API keys and redaction. Knows nothing of messages."""
