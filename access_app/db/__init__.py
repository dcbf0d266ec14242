"""Django's backend for PostgreSQL, made quicker."""
