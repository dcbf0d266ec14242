"""Several statements in one round trip to PostgreSQL, with a limit to the time that each may take.

A round trip wakes two processes: half of the 0.2 ms that a small statement takes. So statements that do not depend on each
other are sent together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import OperationalError, connection
from django.utils.translation import gettext as _
from msgspec import Struct
from psycopg.errors import QueryCanceled

from access_app.db.statements import read_prepared
from access_app.errors import InvalidInput

Row = tuple[Any, ...]

REQUEST_MS = 60_000
"""The longest time for any statement of a request, in milliseconds: no client and no proxy waits longer."""
LIST_MS = 10_000
"""The longest time for a statement that searches or counts rows for a list of the API. Statements with an index take 10."""


class Query(Struct, frozen=True, kw_only=True):
    """A statement that returns rows, with a %s for each of its values."""

    sql: str
    parameters: Sequence[Any]
    prepared: bool = False
    """Whether one plan fits all values, and the text is the same every time. See access_app.db.statements."""


def fetch(queries: Sequence[Query], *, at_most_ms: int | None = None) -> list[list[Row]]:
    """Return the rows of each statement.

    With `at_most_ms` raises InvalidInput, `too_slow`, where a statement takes longer (prepared ones: longer than
    REQUEST_MS). The client's request is at fault: a 503 would make clients retry it unchanged, and it would take as long.
    """
    if all(query.prepared for query in queries):
        try:
            # One by one: without planning that is faster than a pipeline.
            return [read_prepared(query.sql, query.parameters) for query in queries]
        except OperationalError as error:
            if at_most_ms is None or not was_stopped(error):
                raise
            raise _too_slow(REQUEST_MS) from error
    statements = [query.sql for query in queries]
    settings: list[str] = []
    if at_most_ms is not None:
        # PostgreSQL runs statements that are sent together as one transaction, and the settings end with it; within a longer
        # transaction the limit is reset. A plan for the tables as they are now may use sequential scans.
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
    """Return whether a statement failed because its time was up."""
    return isinstance(error.__cause__, QueryCanceled)


def _too_slow(milliseconds: int) -> InvalidInput:
    return InvalidInput(
        _("This search was stopped after %(seconds)d seconds. Narrow it: give created_after and created_before.")
        % {"seconds": milliseconds // 1000},
        code="too_slow",
    )
