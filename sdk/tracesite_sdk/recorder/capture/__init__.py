"""What is recorded of the host's values: entries, and hooks around its functions."""
