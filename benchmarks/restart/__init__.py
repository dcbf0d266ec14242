"""Restarts under load: no client may see a failure, and no data may be lost."""
