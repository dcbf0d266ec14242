"""The site: settings, URLs, the one API error shape, server entry points and the embedded PostgreSQL."""
