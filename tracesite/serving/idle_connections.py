"""The database connections of a worker's requests: whoever comes next gets the one that was used last.

Django keeps a connection for each thread, and the server gives requests to its threads in turns. Of eight PostgreSQL
processes each is then asked every eighth time, when the cores' caches hold what the others need. What that costs:
docs/benchmarks.md. And a worker has as many connections as it lately had requests at a time, not one for each thread.
"""

from __future__ import annotations

import threading
import time

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

# After so long one that nobody needed is closed. It does not read what PostgreSQL tells it of changed keys, which
# PostgreSQL has to keep until then, and a network may have forgotten it.
UNUSED_SECONDS = 600


class IdleConnections:
    """Those of a process that no request uses. Each is used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[float, BaseDatabaseWrapper]] = []
        """With the time since when, the newest last."""

    def take(self) -> BaseDatabaseWrapper:
        """One that is Django's connection of this thread from here on."""
        with self._lock:
            connection = self._idle.pop()[1] if self._idle else None
        if connection is None:
            connection = connections.create_connection(DEFAULT_DB_ALIAS)
            connection.inc_thread_sharing()  # Django asks who uses it, and cannot know that it is one after the other
        connections[DEFAULT_DB_ALIAS] = connection
        return connection

    def give_back(self, connection: BaseDatabaseWrapper) -> None:
        """In the thread that took it, which has none then. What was never opened, or was closed, is not kept."""
        del connections[DEFAULT_DB_ALIAS]
        now = time.monotonic()
        with self._lock:
            if connection.connection is not None:
                self._idle.append((now, connection))
            unused = self._idle.pop(0)[1] if self._idle and self._idle[0][0] < now - UNUSED_SECONDS else None
        if unused is not None:
            unused.close()
