"""The conversation: sessions, messages, their references and soft delete. Knows nothing of traces."""
