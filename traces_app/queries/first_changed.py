"""The call with which a tool began to be slower or to fail more, between the two steps of its trend that a change was found in.

It is the split of the calls in between that leaves the smallest sum of squared errors around both means of the change. For means
that are known, that is where the sum of the distances from their middle is smallest.
"""

# ruff: noqa: S608 - SQL is built of the texts in this file

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from access_app.db import Database
from messages_app.sql.batch import Query, fetch
from tracesite_sdk.records import ids

from .tool_statistics import CallFilter, Ids, conditions, is_alive_within

MOST_CALLS = 5000
"""Calls in between up to which they are read, for each change."""


class Measure(StrEnum):
    """What changed; both grow."""

    FAILURES = "failures"
    """0 or 1 for each call that ended."""
    DURATION = "duration"
    """The logarithm of the milliseconds, of each call that has them."""


class Between(NamedTuple):
    """A change of a tool that lies in a range of times."""

    tool_id: int
    measure: Measure
    begin: datetime
    end: datetime
    middle: float
    """Halfway between the means before and after it."""


class Found(NamedTuple):
    """The first call after a change, and the calls in between that have the measure."""

    at: datetime
    calls_before: int
    sum_before: float
    calls: int
    """Of all calls in between, with those before."""
    sum: float
    """Of their values; of failures it is how many failed."""


_VALUE = f"""
    CASE WHEN measure = '{Measure.DURATION}' THEN ln(greatest(duration_ms, 1))
        WHEN status <> 'pending' THEN (status = 'error')::int END"""


def first_changed(
    db: Database, changes: Sequence[Between], which: CallFilter, *, at_most_ms: int
) -> list[Found | None]:
    """Return the first call after each change; None for one with more than MOST_CALLS calls in between, or without any.

    One query. Raise InvalidInput if it takes longer than `at_most_ms`.
    """
    if not changes:
        return []
    within = Ids("change.first", "change.after")
    joins, condition, values = conditions(which, within)
    sql = f"""
        WITH call AS (
            SELECT change.number, change.middle, call.id, {_VALUE} AS value,
                count(*) OVER (PARTITION BY change.number) AS calls
            FROM unnest(%s::int[], %s::int[], %s::text[], %s::uuid[], %s::uuid[], %s::float8[])
                AS change (number, tool_id, measure, first, after, middle)
            CROSS JOIN LATERAL (
                SELECT call.id, call.status, call.duration_ms FROM traces_app_toolcall AS call
                {joins}
                WHERE call.tool_id = change.tool_id AND {within.of("call")} AND {condition} AND {is_alive_within(within)}
                ORDER BY call.id LIMIT {MOST_CALLS + 1}
            ) AS call
        ), distance AS (
            SELECT number, id, calls, middle, count(*) OVER earlier - 1 AS count_before, sum(value) OVER earlier - value AS sum_before,
                count(*) OVER whole AS count, sum(value) OVER whole AS sum
            FROM call WHERE value IS NOT NULL
            WINDOW whole AS (PARTITION BY number), earlier AS (PARTITION BY number ORDER BY id ROWS UNBOUNDED PRECEDING)
        )
        SELECT DISTINCT ON (number) number, id, count_before, sum_before, count, sum FROM distance WHERE calls <= {MOST_CALLS} ORDER BY number, sum_before - middle * count_before, id"""
    columns: list[Any] = [
        list(range(len(changes))),
        [change.tool_id for change in changes],
        [change.measure for change in changes],
        [ids.first_id_at(change.begin) for change in changes],
        [ids.first_id_at(change.end) for change in changes],
        [change.middle for change in changes],
    ]
    (rows,) = fetch(db, [Query(sql=sql, parameters=[*columns, *values])], at_most_ms=at_most_ms)
    found = {number: Found(ids.created_at_of(call_id), *figures) for number, call_id, *figures in rows}
    return [found.get(number) for number in range(len(changes))]
