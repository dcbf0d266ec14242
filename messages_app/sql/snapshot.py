"""Transactions whose statements all read one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Open a transaction at the isolation level REPEATABLE READ.

    It fails with psycopg's SerializationFailure if it changes a row that another transaction has changed since its
    snapshot; retry it then. Inside a caller's transaction the isolation level is that of the caller.
    """
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{', READ ONLY' if read_only else ''}")
        yield
