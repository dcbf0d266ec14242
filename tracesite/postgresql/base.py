"""The database backend of the settings: Django's own for PostgreSQL, but for how a kept connection is looked after.

Django asks PostgreSQL `SELECT 1` on a connection before it is used for the next request. Where the process behind it
sleeps, that takes 0.2 ms: a tenth of a small answer. A connection whose server has gone says so by itself, for then its
socket has something to read. The rest, a machine that vanished without a word, `SELECT 1` would wait for, too.
"""

from __future__ import annotations

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def is_usable(self) -> bool:
        # What failed in the last request is closed by now, and has no socket to look at.
        if self.connection is None or self.connection.closed:
            return False
        if _has_something_to_read(self.connection.pgconn.socket):
            # The end of the connection, or a notice: PostgreSQL is asked which.
            return bool(super().is_usable())
        return True


def _has_something_to_read(socket: int) -> bool:
    # poll, for select() knows no descriptors beyond 1,023.
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
