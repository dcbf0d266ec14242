"""Records in one form whatever the producer sent, and redacted. Django-free."""
