"""The database connections of a worker's requests: whoever comes next gets the one that was used last.

Django keeps a connection for each thread, and the server gives requests to its threads in turns. Of eight PostgreSQL
processes each is then asked every eighth time, when the cores' caches hold what the others need. Measured: docs/benchmarks.md.
And a worker opens as many connections as it has requests at a time, not one for each thread.
"""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper


class IdleConnections:
    """Those of a process that no request uses. Each is used by one thread at a time."""

    def __init__(self) -> None:
        self._idle: list[BaseDatabaseWrapper] = []

    def take(self) -> BaseDatabaseWrapper:
        """One that is Django's connection of this thread from here on."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connections.create_connection(DEFAULT_DB_ALIAS)
            connection.inc_thread_sharing()  # Django asks who uses it, and cannot know that it is one after the other
        connections[DEFAULT_DB_ALIAS] = connection
        return connection

    def give_back(self, connection: BaseDatabaseWrapper) -> None:
        """In the thread that took it, which has none then."""
        del connections[DEFAULT_DB_ALIAS]
        self._idle.append(connection)
