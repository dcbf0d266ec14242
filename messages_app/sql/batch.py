"""Run several statements in one round trip to PostgreSQL, each with a time limit.

A round trip wakes two processes, which is half of the 0.2 ms of a small statement. So statements that do not depend on each
other are sent together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from msgspec import Struct

from access_app.db import Database
from access_app.db.conflicts import was_stopped
from access_app.db.statements import read_prepared
from access_app.errors import InvalidInput

Row = tuple[Any, ...]

REQUEST_MS = 60_000
"""Time limit of any statement of a request, in milliseconds, because clients and proxies do not wait longer."""
LIST_MS = 10_000
"""Time limit of a statement that searches or counts rows for a list of the API. Statements with an index take 10 ms."""

# Of statements that are planned for the tables and values as they are now, unlike the plans of access_app.db.base for any.
_PLANS_FOR_NOW = ("SET LOCAL enable_seqscan TO on", "SET LOCAL max_parallel_workers_per_gather TO DEFAULT")
_COPY_HEADER, _COPY_TRAILER = 19, 2  # bytes


class Query(Struct, frozen=True, kw_only=True):
    """A statement that returns rows, with a %s for each of its values."""

    sql: str
    parameters: Sequence[Any]
    prepared: bool = False
    """Whether one plan fits all values, and the text is the same every time. See access_app.db.statements."""

    @classmethod
    def of(cls, rows: QuerySet[Any, Any]) -> Query:
        """Return the statement of a QuerySet. Its values come as psycopg loads them: JSON as text."""
        # `elide_empty`, so that a QuerySet which can have no rows is a statement, too, instead of an exception.
        sql, parameters = rows.query.get_compiler(rows.db, elide_empty=False).as_sql()
        return cls(sql=sql, parameters=parameters)


def fetch(db: Database, queries: Sequence[Query], *, at_most_ms: int | None = None) -> list[list[Row]]:
    """Return the rows of each statement.

    With `at_most_ms` raise InvalidInput, `too_slow`, if a statement takes longer (a prepared one: longer than REQUEST_MS).
    Not a 503, because clients would retry the same request, which would take as long.
    """
    if all(query.prepared for query in queries):
        try:
            # One by one, which is faster than a pipeline without planning.
            return [read_prepared(query.sql, query.parameters, db.read_connection) for query in queries]
        except OperationalError as error:
            if at_most_ms is None or not was_stopped(error):
                raise
            raise _too_slow(REQUEST_MS) from error
    statements = [query.sql for query in queries]
    settings: list[str] = []
    if at_most_ms is not None:
        # Statements that are sent together are one transaction, with which the settings end; within a longer transaction
        # the limit is reset.
        settings = [f"SET LOCAL statement_timeout TO {at_most_ms}", *_PLANS_FOR_NOW]
        statements = [*settings, *statements, "SET LOCAL statement_timeout TO DEFAULT"]
    with db.read_cursor() as cursor:
        try:
            cursor.execute("; ".join(statements), [value for query in queries for value in query.parameters])
        except OperationalError as error:
            if at_most_ms is None or not was_stopped(error):
                raise
            raise _too_slow(at_most_ms) from error
        for _setting in settings:
            cursor.nextset()
        found: list[list[Row]] = []
        for _query in queries:
            found.append(cursor.fetchall())
            cursor.nextset()
    return found


def copied(db: Database, query: Query, *, at_most_ms: int) -> bytes:
    """Return the rows of a statement in the binary format of COPY, in which thousands of small ones are read fastest.

    In a transaction only. Raise InvalidInput, `too_slow`, if it takes longer than `at_most_ms`.
    """
    connection = db.read_connection
    with connection.cursor() as cursor:
        cursor.execute("; ".join([f"SET LOCAL statement_timeout TO {at_most_ms}", *_PLANS_FOR_NOW]))
        try:
            # Django does not wrap copy(), so its errors would be psycopg's own.
            with (
                connection.wrap_database_errors,
                cursor.copy(f"COPY ({query.sql}) TO STDOUT (FORMAT BINARY)", query.parameters) as copy,
            ):
                rows = b"".join(copy)
        except OperationalError as error:
            if not was_stopped(error):
                raise
            raise _too_slow(at_most_ms) from error
        cursor.execute("SET LOCAL statement_timeout TO DEFAULT")
    return rows[_COPY_HEADER:-_COPY_TRAILER]


@contextmanager
def time_limit(db: Database, milliseconds: int) -> Iterator[None]:
    """Stop each query of the block that takes longer: it raises django.db.OperationalError, see `was_stopped`."""
    is_outermost = not db.read_connection.in_atomic_block
    with db.read_transaction(), db.read_cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
        yield
        if not is_outermost:
            # The limit would outlive the block.
            cursor.execute("SET LOCAL statement_timeout TO DEFAULT")


@contextmanager
def limited(db: Database, milliseconds: int) -> Iterator[None]:
    """Limit the time of each query of the block. Raise InvalidInput, `too_slow`, if one takes longer."""
    try:
        with time_limit(db, milliseconds):
            yield
    except OperationalError as error:
        if not was_stopped(error):
            raise
        raise _too_slow(milliseconds) from error


def _too_slow(milliseconds: int) -> InvalidInput:
    return InvalidInput(
        _("The search was stopped after %(seconds)d seconds. Narrow it with created_after and created_before.")
        % {"seconds": milliseconds // 1000},
        code="too_slow",
    )
