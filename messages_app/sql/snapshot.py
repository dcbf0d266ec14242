"""Transactions whose statements all read one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from access_app.db import alias_in_use, transaction
from access_app.db.reading import reading_alias


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Open a transaction at the isolation level REPEATABLE READ: where writes go, or `read_only` where reads go.

    It fails with psycopg's SerializationFailure if it changes a row that another transaction has changed since its
    snapshot; retry it then. Inside a caller's transaction the isolation level is that of the caller.
    """
    alias = reading_alias() if read_only else alias_in_use()
    connection = connections[alias]
    is_outermost = not connection.in_atomic_block
    with transaction.atomic(using=alias):
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{', READ ONLY' if read_only else ''}")
        yield
