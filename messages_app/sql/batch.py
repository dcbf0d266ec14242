"""Several statements in one exchange with PostgreSQL, if need be with a limit to the time that they may take.

A process that has slept is slow to answer: of the 0.2 ms that a small statement takes, half is for waking up twice. So
what can be asked at once is asked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError, ProgrammingError, connection, connections
from django.utils.translation import gettext as _
from msgspec import Struct
from psycopg.errors import QueryCanceled, UndefinedTable

from access_app.db.statements import read_prepared
from access_app.errors import InvalidInput

from .partitions import Month

Row = tuple[Any, ...]

REQUEST_MS = 60_000
"""What any statement of a request may take: longer than that no client and no proxy waits."""
LIST_MS = 10_000
"""What a statement may take that searches or counts rows for a list of the API. Those that an index serves take 10 ms."""


class Query(Struct, frozen=True, kw_only=True):
    """A statement that answers rows, with a %s for each of its values."""

    sql: str
    parameters: Sequence[Any]
    prepared: bool = False
    """Whether one plan fits all values, and the text is the same every time. See access_app.db.statements."""
    month: Month | None = None
    """The month that all of its rows lie in, where it is one."""
    in_month: str = ""
    """The same statement, asked of the leaves of that month: a plan for any month locks and looks into all of them. Measured
    over 13 months, with PostgreSQL asleep in between: 1.9 ms instead of 2.1. For rows below messages: those that go when
    their month is dropped; what hides a month from readers is the table of messages."""


def fetch(queries: Sequence[Query], *, at_most_ms: int | None = None) -> list[list[Row]]:
    """The rows of each statement.

    With `at_most_ms` raises InvalidInput, `too_slow`, where one of them takes longer; where all are prepared, longer than
    REQUEST_MS. It is the request that is refused: answered 503 it would be sent again as it is, and would take as long.
    """
    here = connections[DEFAULT_DB_ALIAS]  # once: `connection` asks for it seven times over
    if here.in_atomic_block:
        # Where an error would end the transaction.
        return _fetch(queries, [query.sql for query in queries], at_most_ms)
    database: str = here.settings_dict["NAME"]
    statements = [query.in_month if (database, query.month) in _months else query.sql for query in queries]
    try:
        found = _fetch(queries, statements, at_most_ms)
    except ProgrammingError as error:
        if not isinstance(error.__cause__, UndefinedTable):
            raise
        # Dropped since, by another process.
        _months.clear()
        return _fetch(queries, [query.sql for query in queries], at_most_ms)
    _months.update((database, query.month) for query, rows in zip(queries, found, strict=True) if rows and query.month)
    return found


# Those in which this process has found rows, with their database.
_months: set[tuple[str, Month]] = set()


def _fetch(queries: Sequence[Query], statements: Sequence[str], at_most_ms: int | None) -> list[list[Row]]:
    if all(query.prepared for query in queries):
        try:
            # One by one: with nothing to plan that is quicker than a pipeline.
            return [
                read_prepared(statement, query.parameters) for query, statement in zip(queries, statements, strict=True)
            ]
        except OperationalError as error:
            if at_most_ms is None or not was_stopped(error):
                raise
            raise _too_slow(REQUEST_MS) from error
    settings: list[str] = []
    if at_most_ms is not None:
        # PostgreSQL makes one transaction of what is sent at once, and they end with it. Within a longer one the limit is
        # taken back. What is planned for the tables as they are now may read them from end to end.
        settings = [f"SET LOCAL statement_timeout TO {at_most_ms}", "SET LOCAL enable_seqscan TO on"]
        statements = [*settings, *statements, "SET LOCAL statement_timeout TO DEFAULT"]
    with connection.cursor() as cursor:
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


def was_stopped(error: OperationalError) -> bool:
    """Whether a statement failed because its time was up."""
    return isinstance(error.__cause__, QueryCanceled)


def _too_slow(milliseconds: int) -> InvalidInput:
    return InvalidInput(
        _("This search was stopped after %(seconds)d seconds. Narrow it: give created_after and created_before.")
        % {"seconds": milliseconds // 1000},
        code="too_slow",
    )
