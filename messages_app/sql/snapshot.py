"""Transactions whose statements all read one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from access_app.db import Database


@contextmanager
def one_snapshot(db: Database, *, read_only: bool = False) -> Iterator[None]:
    """Open a transaction at the isolation level REPEATABLE READ: where writes go, or `read_only` where reads go.

    It fails with psycopg's SerializationFailure if it changes a row that another transaction has changed since its
    snapshot; retry it then. Inside a caller's transaction the isolation level is that of the caller.
    """
    connection = db.read_connection if read_only else db.connection
    is_outermost = not connection.in_atomic_block
    with db.read_transaction() if read_only else db.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{', READ ONLY' if read_only else ''}")
        yield
