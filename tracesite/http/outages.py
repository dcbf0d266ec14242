"""Distinguish an unreachable database from one that failed: while it is away, one log line for each request is enough.

It imports nothing of the project, because Django sets up the log before any app.
"""

from __future__ import annotations

import logging

import psycopg
from django.db import InterfaceError, OperationalError

DATABASE_FAILED = (OperationalError, InterfaceError, psycopg.OperationalError)
"""The database is away, has no connection or no room to spare, or gave up a statement."""

# https://www.postgresql.org/docs/current/errcodes-appendix.html: connection exceptions, insufficient resources, operator
# intervention but for a statement that was cancelled. A connection that could not be made has no state.
_AWAY = ("08", "53", "57P")


def is_away(error: BaseException | None) -> bool:
    """Return whether `error`, of Django or psycopg, comes from a database that is away or has no room to spare."""
    if not isinstance(error, DATABASE_FAILED):
        return False
    state = getattr(error.__cause__ or error, "sqlstate", None)
    return state is None or state.startswith(_AWAY)


class OutageFilter(logging.Filter):
    """Drop Django's record of a request that failed because the database is away: its stack is 4 KB.

    `tracesite.http.errors` logs such a request in one line.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and is_away(record.exc_info[1]))
