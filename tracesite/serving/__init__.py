"""Processes: the server, its workers, and the embedded PostgreSQL."""
