"""Django's backend for PostgreSQL, with a health check that costs nothing."""
