"""Transactions whose statements all see one state of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """A transaction that sees nothing of what others commit meanwhile.

    It fails with psycopg's SerializationFailure, to be done again, where it would change a row that others have changed
    since. Inside a caller's transaction it sees what that sees.
    """
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{', READ ONLY' if read_only else ''}")
        yield
