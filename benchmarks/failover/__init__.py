"""Kill the primary of a Patroni cluster under load, and count what is lost."""
