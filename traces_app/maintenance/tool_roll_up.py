"""Add up the calls of tools in hours and days that have passed, so that statistics need not read them (`roll_up`).

Hours become stored periods in the order of time, all projects at once, one transaction an hour; with the last hour of a day
goes the day. Stored hours of which messages change are computed again, some changes of the log (messages_app.change_log) in one
transaction. Each transaction leaves the tables right, so it may be killed at any moment; the next run continues.

No change is missed: one that had not committed when its hour was stored is read from the log later. Until then statistics take
the hour from the rows.
"""

# ruff: noqa: S608 - SQL is built of the texts in this file

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min
from django.utils import timezone

from access_app.db import Database
from access_app.db.transactions import in_transaction
from messages_app.change_log import Reader, move, next_changes, place_of, turn_of
from messages_app.sql.partitions import periods_of
from messages_app.sql.periods import Period, period_at
from traces_app.models import ToolCall, ToolPeriod, ToolRollUp
from traces_app.queries.tool_statistics import DAY, HOUR, Ids, added_up, calls_with_cost, hour_of
from tracesite_sdk.records import ids

STORED_AFTER = timedelta(hours=3)
"""The age, from its end, at which an hour is stored: fewer hours change after that."""
CHANGES_AT_A_TIME = 5_000
_COLUMNS = "project_id, tool_id, status, calls, timed_calls, total_ms, longest_ms, cost, priced_calls, buckets, counts"
_INSERT = f"INSERT INTO traces_app_toolperiod (unit, begin, {_COLUMNS}) SELECT %(unit)s, %(begin)s, {_COLUMNS} FROM"
_OF_PROJECT = "(%(project)s::bigint IS NULL OR {table}.project_id = %(project)s)"
_OF_HOUR = Ids("%(first)s", "%(after)s", " AND {table}.id >= %(period)s AND {table}.id < %(next_period)s")
_ADD_HOUR = f"""{_INSERT} ({
    added_up(
        "project_id, tool_id, status",
        f"({calls_with_cost(_OF_HOUR, _OF_PROJECT.format(table='call'))}) AS call",
    )
}) AS hour"""
_ADD_DAY = f"""{_INSERT} (
    WITH hour AS (
        SELECT {_COLUMNS} FROM traces_app_toolperiod AS period
        WHERE unit = 'hour' AND begin >= %(begin)s AND begin < %(end)s AND {_OF_PROJECT.format(table="period")}
    ), histogram AS (
        SELECT project_id, tool_id, status, array_agg(bucket ORDER BY bucket) AS buckets,
            array_agg(number ORDER BY bucket) AS counts
        FROM (
            SELECT project_id, tool_id, status, bucket, sum(number)::bigint AS number
            FROM hour CROSS JOIN LATERAL unnest(buckets, counts) AS b (bucket, number)
            GROUP BY project_id, tool_id, status, bucket
        ) AS bucketed GROUP BY project_id, tool_id, status
    ), figures AS (
        SELECT project_id, tool_id, status, sum(calls)::bigint AS calls, sum(timed_calls)::bigint AS timed_calls,
            sum(total_ms) AS total_ms, max(longest_ms) AS longest_ms, sum(cost) AS cost,
            sum(priced_calls)::bigint AS priced_calls
        FROM hour GROUP BY project_id, tool_id, status
    )
    SELECT project_id, tool_id, status, calls, timed_calls, total_ms, longest_ms, cost, priced_calls,
        coalesce(buckets, '{{}}') AS buckets, coalesce(counts, '{{}}') AS counts
    FROM figures LEFT JOIN histogram USING (project_id, tool_id, status)
) AS day"""


@dataclass(kw_only=True)
class RollUpReport:
    """The work of one run."""

    hours: int = 0
    """Hours with calls that were stored for the first time."""
    changed: int = 0
    """Hours of projects that were computed again."""


def roll_up(
    db: Database, *, now: datetime | None = None, is_stopped: Callable[[], bool] = lambda: False
) -> RollUpReport:
    """Store all hours that have passed, and compute changed ones again; end early if `is_stopped`, or if another process
    does the same."""
    report = RollUpReport()
    with turn_of(db, Reader.STATISTICS) as is_mine:
        if is_mine:
            forget_dropped_periods(db)
        while is_mine and not is_stopped() and _recompute_next(db, report):
            pass
        limit = hour_of((now or timezone.now()) - STORED_AFTER)
        while is_mine and not is_stopped() and _store_next(db, limit, report):
            pass
    return report


def forget_dropped_periods(db: Database) -> None:
    """Delete what is stored of periods that a purge has dropped, by one index lookup for each period that exists."""
    existing = periods_of(db, ToolCall._meta.db_table)
    begin = db.rows(ToolPeriod.objects).aggregate(first=Min("begin"))["first"]
    while begin is not None:
        period = period_at(existing, begin)
        if period is not None:
            begin = db.rows(ToolPeriod.objects).filter(begin__gte=period.ends_at).aggregate(first=Min("begin"))["first"]
            continue
        later = next((other.begins_at for other in existing if other.begins_at > begin), None)
        gone = db.rows(ToolPeriod.objects).filter(begin__gte=begin)
        (gone if later is None else gone.filter(begin__lt=later)).delete()
        begin = later and db.rows(ToolPeriod.objects).filter(begin__gte=later).aggregate(first=Min("begin"))["first"]


@in_transaction
def _store_next(db: Database, limit: datetime, report: RollUpReport) -> bool:
    """Store the next hour with calls; return whether there may be another."""
    state = db.rows(ToolRollUp.objects).first()
    hour = _hour_with_calls(db, state.rolled_until if state else ids.EPOCH, limit)
    begin = state.rolled_until if state else hour or limit
    if begin >= limit:
        return False
    if hour == begin:
        _compute_hour(db, hour, None)
        report.hours += 1
        end = _hour_with_calls(db, begin + HOUR, limit) or limit
    else:
        end = hour or limit
    day = begin.replace(hour=0)
    if day + DAY <= end:
        _compute_day(db, day, None)
    db.rows(ToolRollUp.objects).update_or_create(pk=ToolRollUp.ONLY, defaults={"rolled_until": end})
    return end < limit


@in_transaction
def _recompute_next(db: Database, report: RollUpReport) -> bool:
    """Compute stored hours of which messages have changed again; return whether there may be others."""
    place = place_of(db, Reader.STATISTICS)
    changes = next_changes(db, place, CHANGES_AT_A_TIME)
    state = db.rows(ToolRollUp.objects).first()
    # Later hours will be read when they are stored.
    stored = {
        (hour_of(ids.created_at_of(change.message_id)), change.project_id)
        for change in changes
        if state is not None
        and change.kind in Reader.STATISTICS.kinds
        and change.message_id < ids.first_id_at(state.rolled_until)
    }
    for hour, project_id in sorted(stored):
        _compute_hour(db, hour, project_id)
    for day, project_id in sorted({(hour.replace(hour=0), project_id) for hour, project_id in stored}):
        if state is not None and day + DAY <= state.rolled_until:
            _compute_day(db, day, project_id)
    if changes:
        move(db, place, changes)
    report.changed += len(stored)
    return len(changes) == CHANGES_AT_A_TIME


def _hour_with_calls(db: Database, begin: datetime, end: datetime) -> datetime | None:
    """Return the first hour of a range in which any call is stored."""
    calls = db.rows(ToolCall.with_deleted).filter(pk__gte=ids.first_id_at(begin), pk__lt=ids.first_id_at(end))
    first = calls.order_by("pk").values_list("pk", flat=True).first()
    return None if first is None else hour_of(ids.created_at_of(first))


def _compute_hour(db: Database, hour: datetime, project_id: int | None) -> None:
    """Compute an hour of a project, or of all."""
    _delete_periods(db, "hour", hour, project_id)
    values: dict[str, Any] = {
        "unit": "hour",
        "begin": hour,
        "project": project_id,
        "first": ids.first_id_at(hour),
        "after": ids.first_id_at(hour + HOUR),
        "period": Period.of(hour).first_id,
        "next_period": Period.of(hour).after_id,
    }
    with db.cursor() as cursor:
        cursor.execute(_ADD_HOUR, values)


def _compute_day(db: Database, day: datetime, project_id: int | None) -> None:
    """Add up the stored hours of a day."""
    _delete_periods(db, "day", day, project_id)
    with db.cursor() as cursor:
        cursor.execute(_ADD_DAY, {"unit": "day", "begin": day, "end": day + DAY, "project": project_id})


def _delete_periods(db: Database, unit: str, begin: datetime, project_id: int | None) -> None:
    periods = db.rows(ToolPeriod.objects).filter(unit=unit, begin=begin)
    (periods if project_id is None else periods.filter(project_id=project_id)).delete()
