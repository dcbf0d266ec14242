"""Event protocols of other systems, mapped to our events. Django-free."""
