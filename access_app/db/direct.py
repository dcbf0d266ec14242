"""Sessions of PostgreSQL that no pooler shares: docs/scaling.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from access_app.conf import conf

from . import PRIMARY, Database


def connection_parameters(db: Database) -> dict[str, Any]:
    """Return what psycopg connects with: without Django's own cursors and adapters, to the primary past the pooler, if there is one."""
    past_pooler = conf.DIRECT_DATABASE if db.alias == PRIMARY else {}
    direct = type(db.connection)({**db.connection.settings_dict, **past_pooler}, alias="direct")
    parameters = direct.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in ("cursor_factory", "context")}


@contextmanager
def session_cursor(db: Database) -> Iterator[Any]:
    """Give a cursor for locks and settings that outlast a transaction: of Django's connection, or past the pooler of one made anew.

    Raises Django's database errors.
    """
    if not conf.DIRECT_DATABASE or db.alias != PRIMARY:
        with db.cursor() as cursor:
            yield cursor
        return
    with db.connection.wrap_database_errors, psycopg.connect(**connection_parameters(db), autocommit=True) as session:
        yield session.cursor()


def lock_key(name: str) -> int:
    """Return the key of the advisory lock of this name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


@contextmanager
def session_lock(db: Database, key: int) -> Iterator[bool]:
    """Yield whether this process has the advisory lock, and keep it meanwhile: also between transactions, unlike their own."""
    with session_cursor(db) as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        (is_held,) = cursor.fetchone()
        try:
            yield is_held
        finally:
            if is_held:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
