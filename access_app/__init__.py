"""Projects, API keys, permissions and redaction. Imports nothing of the other apps."""
