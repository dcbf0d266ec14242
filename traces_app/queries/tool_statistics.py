"""Statistics of the calls of tools in a range of times, added up from stored hours and days, and from rows where these lack.

ToolPeriod has what calls of hours that have passed add up to. The rows of the calls themselves are read for

 - hours after the last stored one: the last 3 hours, and everything if no roll-up runs;
 - hours of which messages have changed since (messages_app.change_log), until the roll-up has computed them again;
 - the parts of hours at both ends of a range, and ranges whose trend has steps below an hour.

Which is which and all numbers are read in one snapshot, so the result is exact at any moment; only durations below which a
share of the calls stays (quantiles) are within 1 %, and exact for tools with at most FEW calls. With a filter other than the
status, all calls are read from rows, because periods are not stored by agent, model or session.

The cost of a call is its share of the cost of its step: the request to a model that asked for it, divided equally among the
calls that it asked for. Calls that another call of the same step started have none.
"""

# ruff: noqa: S608 - SQL is built of the texts in this file

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from django.utils import timezone

from access_app.db import Database
from access_app.readable import Parts
from messages_app.change_log import Reader, unread
from messages_app.sql.batch import LIST_MS, Query, Row, fetch
from messages_app.sql.pagination import IdRange
from messages_app.sql.periods import Period
from messages_app.sql.snapshot import one_snapshot
from traces_app.models import Tool, ToolCall, ToolPeriod, ToolRollUp
from tracesite_sdk.records import ids

from .histograms import bucket_in_sql, quantile

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
STEPS = (timedelta(minutes=5), HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 360 * DAY)
"""The possible distances of the points of a trend."""
MOST_POINTS = 62
FEW = 100
"""Calls of a tool up to which its durations are read one by one."""
_LAST_ID = UUID(int=2**128 - 1)
_MICROSECOND = timedelta(microseconds=1)


class Ids(NamedTuple):
    """SQL for the bounds of a range of ids, which steps, calls and messages of the same time are in."""

    first: str
    after: str
    period: str = ""
    """Conditions with constants for `{table}.id`, so that the planner leaves out other periods."""

    def of(self, table: str) -> str:
        """Return the condition that the rows of a table are in the range."""
        return f"{table}.id >= {self.first} AND {table}.id < {self.after}{self.period.format(table=table)}"

    def of_step(self, column: str) -> str:
        """Return a column of the step of `call`, read by its primary key.

        As a subquery, because a join scanned the range for each call, or the whole month, where the planner misestimated it.
        """
        period = self.period.format(table="step")
        return f"(SELECT step.{column} FROM traces_app_agentstep AS step WHERE step.id = call.step_id{period})"


def is_alive_within(within: Ids) -> str:
    """Return the condition that a call counts. Two anti-joins use the small indexes of the trash."""
    return f"""
        NOT EXISTS (
            SELECT FROM messages_app_message AS message
            WHERE message.id = call.message_id AND {within.of("message")} AND message.deleted_at IS NOT NULL
        )
        AND NOT EXISTS (
            SELECT FROM messages_app_message AS message
            JOIN messages_app_session AS session ON session.id = message.session_id
            WHERE message.id = call.message_id AND {within.of("message")} AND session.deleted_at IS NOT NULL
        )"""


def steps_between(begin: datetime, end: datetime) -> tuple[timedelta, list[datetime]]:
    """Return the length of a step, and the beginnings of the steps of a range of times, at least one."""
    begin = min(begin, end - timedelta(microseconds=1))
    step = next((step for step in STEPS if (end - begin) / step <= MOST_POINTS), STEPS[-1])
    first, last = (begin - ids.EPOCH) // step, (end - timedelta(microseconds=1) - ids.EPOCH) // step
    return step, [ids.EPOCH + number * step for number in range(first, last + 1)]


@dataclass(frozen=True, kw_only=True)
class CallFilter:
    """Conditions for the calls that count; None and no tags are no condition."""

    status: str | None = None
    agent: str | None = None
    """The agent of the step."""
    model: str | None = None
    """The model of the step, as recorded."""
    session_id: UUID | None = None
    end_user: str | None = None
    tags: Sequence[str] = ()
    """The session has all of them."""

    @property
    def is_stored(self) -> bool:
        """Return whether stored periods know which calls count."""
        return self == CallFilter(status=self.status)


ALL_CALLS = CallFilter()


def calls_with_cost(within: Ids, condition: str = "TRUE", *, joins: str = "") -> str:
    """Return SQL for the calls that count in a range of ids, with the columns that `added_up` reads.

    The calls of a step are counted by a window over all calls of the range, whichever tools are asked for; steps and parents are
    read by their primary keys. So the time is linear, whatever the planner expects.
    """
    parent = f"""
        SELECT parent.step_id FROM traces_app_toolcall AS parent
        WHERE parent.id = call.parent_id{within.period.format(table="parent")}"""
    return f"""
        SELECT project_id, tool_id, status, duration_ms,
            CASE WHEN is_asked THEN step_cost / count(*) FILTER (WHERE is_asked) OVER (PARTITION BY step_id) END AS cost
        FROM (
            SELECT call.project_id, call.tool_id, call.status, call.duration_ms, call.step_id,
                {within.of_step("cost")} AS step_cost,
                CASE WHEN call.parent_id IS NULL THEN TRUE ELSE ({parent}) IS DISTINCT FROM call.step_id END AS is_asked
            FROM traces_app_toolcall AS call
            {joins}
            WHERE {within.of("call")} AND {condition} AND {is_alive_within(within)}
        ) AS call"""


def added_up(keys: str, calls: str) -> str:
    """Return SQL for the figures of ToolPeriod of each of `keys`, of the rows `calls` (a FROM clause that names them `call`)."""
    return f"""
        SELECT {keys}, sum(calls)::bigint AS calls, sum(timed_calls)::bigint AS timed_calls,
            coalesce(sum(total_ms), 0) AS total_ms, max(longest_ms) AS longest_ms, sum(cost) AS cost,
            sum(priced_calls)::bigint AS priced_calls,
            coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}') AS buckets,
            coalesce(array_agg(calls ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}') AS counts
        FROM (
            SELECT {keys}, {bucket_in_sql("call.duration_ms")} AS bucket, count(*) AS calls,
                count(call.duration_ms) AS timed_calls, sum(call.duration_ms::float8) AS total_ms,
                max(call.duration_ms) AS longest_ms, sum(call.cost) AS cost, count(call.cost) AS priced_calls
            FROM {calls} GROUP BY {keys}, bucket
        ) AS bucketed GROUP BY {keys}"""


_STORED = """
    SELECT span.slot, tool_id, status, calls, timed_calls, total_ms, longest_ms, cost, priced_calls, buckets, counts
    FROM unnest(%s::int[], %s::text[], %s::timestamptz[], %s::timestamptz[]) AS span (slot, unit, first, after)
    JOIN traces_app_toolperiod AS period ON period.tool_id = ANY(%s) AND period.unit = span.unit
        AND period.begin >= span.first AND period.begin < span.after AND (%s::text IS NULL OR period.status = %s)"""
_FIGURES = """
    WITH part AS MATERIALIZED ({parts})
    SELECT tool_id, slot, status, NULL::int AS bucket, sum(calls)::bigint, sum(timed_calls)::bigint, sum(total_ms),
        max(longest_ms), sum(cost), sum(priced_calls)::bigint
    FROM part GROUP BY tool_id, slot, status
    UNION ALL
    SELECT tool_id, CASE WHEN %s THEN slot END, NULL, bucket, sum(number)::bigint, NULL, NULL, NULL, NULL, NULL
    FROM part CROSS JOIN LATERAL unnest(buckets, counts) AS b (bucket, number)
    GROUP BY 1, 2, bucket"""
_IS_WANTED = "call.tool_id = ANY(%s) AND (%s::text IS NULL OR call.status = %s)"


def conditions(which: CallFilter, within: Ids) -> tuple[str, str, list[Any]]:
    """Return the joins and the condition that apply a filter to `call`, and the values of the condition."""
    given = {
        f"{within.of_step('agent_name')} = %s": which.agent,
        f"{within.of_step('model')} = %s": which.model,
        "session.id = %s": which.session_id,
        "session.end_user = %s": which.end_user,
        "session.tags @> %s::text[]": list(which.tags) or None,
    }
    given = {condition: value for condition, value in given.items() if value is not None}
    joins = ""
    if any(condition.startswith("session.") for condition in given):
        joins = f"""
            JOIN messages_app_message AS run ON run.id = call.message_id{within.period.format(table="run")}
            JOIN messages_app_session AS session ON session.id = run.session_id"""
    return joins, " AND ".join(["TRUE", *given]), list(given.values())


class Span(NamedTuple):
    """A part of a range, which belongs to one point of the trend."""

    slot: int
    unit: str
    """Read from stored `hour` or `day` periods, or from `rows`."""
    first: datetime
    after: datetime


@dataclass(kw_only=True)
class Figures:
    """The totals of the calls of a tool in a range of times, or in one step of it."""

    calls: int = 0
    errors: int = 0
    pending: int = 0
    timed_calls: int = 0
    total_ms: float = 0.0
    longest_ms: int | None = None
    cost: Decimal | None = None
    """USD, of the calls whose cost is known; None if it is of none."""
    priced_calls: int = 0
    """Calls whose cost is known."""
    histogram: Counter[int] = field(default_factory=Counter)
    durations: list[int] | None = None
    """All known durations in order, in milliseconds; None if there are more than FEW calls."""

    @property
    def successes(self) -> int:
        return self.calls - self.errors - self.pending

    @property
    def error_rate(self) -> float | None:
        """The share of the finished calls that failed; None if none has finished."""
        finished = self.calls - self.pending
        return self.errors / finished if finished else None

    @property
    def average_ms(self) -> float | None:
        return self.total_ms / self.timed_calls if self.timed_calls else None

    def quantile(self, share: float) -> float | None:
        """Return the duration in milliseconds that this share of the calls does not exceed; None if none is known."""
        if self.durations:
            return float(self.durations[max(0, math.ceil(share * len(self.durations)) - 1)])
        value = quantile(self.histogram, share)
        # The longest duration is exact, and its bucket may stand for a longer one.
        return value if value is None or self.longest_ms is None else min(value, float(self.longest_ms))

    def add(
        self,
        status: str,
        calls: int,
        timed_calls: int,
        total_ms: float,
        longest_ms: int | None,
        cost: Decimal | None,
        priced_calls: int,
    ) -> None:
        self.calls += calls
        self.errors += calls * (status == ToolCall.Status.ERROR)
        self.pending += calls * (status == ToolCall.Status.PENDING)
        self.timed_calls += timed_calls
        self.total_ms += total_ms
        if longest_ms is not None:
            self.longest_ms = max(longest_ms, self.longest_ms or 0)
        if cost is not None:
            self.cost = cost + (self.cost or 0)
        self.priced_calls += priced_calls


@dataclass(kw_only=True)
class Statistics:
    """The figures of a tool in a range, and of each step of the range with calls."""

    whole: Figures = field(default_factory=Figures)
    steps: dict[datetime, Figures] = field(default_factory=dict)
    """Figures by the beginning of the step."""


@dataclass(frozen=True, kw_only=True)
class ToolFigures:
    """The statistics of several tools."""

    begin: datetime
    end: datetime
    step: timedelta
    by_tool: Mapping[int, Statistics]

    def beginnings(self) -> list[datetime]:
        """Return the beginnings of all steps, also of those without calls."""
        first, last = _slot(self.begin, self.step), _slot(self.end - timedelta(microseconds=1), self.step)
        return [ids.EPOCH + slot * self.step for slot in range(first, last + 1)]


def statistics(
    db: Database,
    tool_ids: Sequence[int],
    project_ids: Collection[int],
    id_range: IdRange,
    *,
    which: CallFilter = ALL_CALLS,
    with_histograms_of_steps: bool = False,
    at_most_ms: int = LIST_MS,
) -> ToolFigures:
    """Return the statistics of the tools, which belong to these projects, in a range of times.

    `with_histograms_of_steps` also fills in the histograms of the steps, which is meant for a single tool.
    Raise InvalidInput if reading the calls takes longer than `at_most_ms`.
    """
    reading = _Reading(db, tool_ids, project_ids, which, with_histograms_of_steps, at_most_ms)
    (found,) = reading.figures([id_range])
    return found


def statistics_in(
    tools: Parts[Sequence[Tool]],
    id_ranges: Sequence[IdRange],
    *,
    which: CallFilter = ALL_CALLS,
    with_histograms_of_steps: bool = False,
    at_most_ms: int = LIST_MS,
) -> list[ToolFigures]:
    """Return the statistics of tools by their databases, at least one, in each of several ranges, as `statistics` does.

    Each tool is in one database, so nothing is added up; but the steps have the same times in each.
    """
    if not tools.is_one:
        id_ranges = [_with_beginning(tools, id_range) for id_range in id_ranges]

    def of_each(db: Database, own: Sequence[Tool]) -> list[ToolFigures]:
        tool_ids = [tool.pk for tool in own]
        reading = _Reading(db, tool_ids, _projects_of(own), which, with_histograms_of_steps, at_most_ms)
        return reading.figures(id_ranges)

    return [_joined(parts) for parts in zip(*tools.each(of_each), strict=True)]


def _with_beginning(tools: Parts[Sequence[Tool]], id_range: IdRange) -> IdRange:
    if id_range.lower is not None:
        return id_range
    begins = tools.each(lambda db, own: _ends(db, _projects_of(own), id_range)[0])
    return IdRange(lower=ids.first_id_at(min(begins)), upper=id_range.upper)


def _joined(parts: Sequence[ToolFigures]) -> ToolFigures:
    by_tool = {tool_id: figures for part in parts for tool_id, figures in part.by_tool.items()}
    return replace(parts[0], end=max(part.end for part in parts), by_tool=by_tool)


class _Reading(NamedTuple):
    """The arguments of `statistics` without its range."""

    db: Database
    tool_ids: Sequence[int]
    project_ids: Collection[int]
    which: CallFilter
    with_histograms_of_steps: bool
    at_most_ms: int

    def figures(self, id_ranges: Sequence[IdRange]) -> list[ToolFigures]:
        """Return the statistics in each of several ranges, of one snapshot."""
        db = self.db
        with one_snapshot(db, read_only=True):
            ends = [_ends(db, self.project_ids, id_range) for id_range in id_ranges]
            rolled_until, changed = ids.EPOCH, []
            if self.which.is_stored:
                rolled_until = _rolled_until(db)
                begin, end = min(begin for begin, _end in ends), max(end for _begin, end in ends)
                changed = _changed_hours(db, self.project_ids, begin, end, rolled_until)
            return [
                self._figures_in(id_range, *both, rolled_until, changed)
                for id_range, both in zip(id_ranges, ends, strict=True)
            ]

    def _figures_in(
        self, id_range: IdRange, begin: datetime, end: datetime, rolled_until: datetime, changed: Sequence[datetime]
    ) -> ToolFigures:
        step = next((step for step in STEPS if (end - begin) / step <= MOST_POINTS), STEPS[-1])
        spans = list(cover(begin, end, step, rolled_until, changed))
        figures = _figures(self.tool_ids, spans, id_range, self.which, self.with_histograms_of_steps)
        (rows,) = fetch(self.db, [figures], at_most_ms=self.at_most_ms)
        by_tool = _by_tool(rows, step)
        if few := [tool_id for tool_id, of_tool in by_tool.items() if of_tool.whole.calls <= FEW]:
            durations = _durations(few, begin, end, id_range, self.which)
            (timed,) = fetch(self.db, [durations], at_most_ms=self.at_most_ms)
            _add_durations(by_tool, few, timed, step)
        return ToolFigures(begin=begin, end=end, step=step, by_tool=by_tool)


def _projects_of(tools: Sequence[Tool]) -> set[int]:
    return {tool.project_id for tool in tools}


def cover(
    begin: datetime, end: datetime, step: timedelta, rolled_until: datetime, changed: Sequence[datetime]
) -> Iterator[Span]:
    """Divide a range of times into spans of stored periods and of rows; `changed` are the hours, in order, to read from rows."""
    for slot in range(_slot(begin, step), _slot(end - timedelta(microseconds=1), step) + 1):
        first = max(begin, ids.EPOCH + slot * step)
        after = min(end, ids.EPOCH + (slot + 1) * step)
        stored_from, stored_to = _up(first, HOUR), min(_down(after, HOUR), rolled_until)
        if stored_from >= stored_to:
            yield Span(slot, "rows", first, after)
            continue
        if first < stored_from:
            yield Span(slot, "rows", first, stored_from)
        here = changed[bisect_left(changed, stored_from) : bisect_left(changed, stored_to)]
        for hour in here:
            yield from _stored(slot, stored_from, hour)
            yield Span(slot, "rows", hour, hour + HOUR)
            stored_from = hour + HOUR
        yield from _stored(slot, stored_from, stored_to)
        if stored_to < after:
            yield Span(slot, "rows", stored_to, after)


def _stored(slot: int, first: datetime, after: datetime) -> Iterator[Span]:
    """Cover whole hours by stored days where these fit, and hours at the ends."""
    first_day, after_day = _up(first, DAY), _down(after, DAY)
    if first_day < after_day:
        yield Span(slot, ToolPeriod.Unit.DAY, first_day, after_day)
        ends = ((first, first_day), (after_day, after))
    else:
        ends = ((first, after), (after, after))
    yield from (Span(slot, ToolPeriod.Unit.HOUR, *hours) for hours in ends if hours[0] < hours[1])


def _ends(db: Database, project_ids: Collection[int], id_range: IdRange) -> tuple[datetime, datetime]:
    """Return the times of a range; one without a beginning begins with the day of the first call, one without an end ends now."""
    # Calls of later times are not accepted, and steps and months until the end of the calendar would be too many.
    latest = timezone.now() + 2 * DAY
    end = timezone.now() if id_range.upper is None else min(ids.created_at_of(id_range.upper), latest)
    if id_range.lower is not None:
        begin = min(ids.created_at_of(id_range.lower), latest)
    else:
        calls = (
            db.rows(ToolCall.with_deleted)
            .filter(project_id__in=project_ids)
            .order_by("pk")
            .values_list("pk", flat=True)
        )
        oldest = calls.first()
        begin = end if oldest is None else _down(ids.created_at_of(oldest), DAY)
    end = max(end, ids.EPOCH + _MICROSECOND)
    return min(begin, end - _MICROSECOND), end


def hour_of(instant: datetime) -> datetime:
    """Return the beginning of the hour, UTC."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _rolled_until(db: Database) -> datetime:
    until = db.rows(ToolRollUp.objects).values_list("rolled_until", flat=True).first()
    return ids.EPOCH if until is None else until


def _changed_hours(
    db: Database, project_ids: Collection[int], begin: datetime, end: datetime, rolled_until: datetime
) -> list[datetime]:
    # Of any of the projects: hours that did not change in one of them are read from its rows, too.
    changed = unread(db, Reader.STATISTICS).filter(
        project_id__in=project_ids,
        message_id__gte=ids.first_id_at(begin - HOUR),
        message_id__lt=ids.first_id_at(min(end, rolled_until)),
    )
    message_ids = changed.values_list("message_id", flat=True).iterator()
    return sorted({hour_of(ids.created_at_of(message_id)) for message_id in message_ids})


def _figures(
    tool_ids: Sequence[int], spans: Sequence[Span], id_range: IdRange, which: CallFilter, by_slot: bool
) -> Query:
    stored = [span for span in spans if span.unit != "rows"]
    wanted = [list(tool_ids), which.status, which.status]
    parts = [_STORED]
    parameters: list[Any] = [*([span[column] for span in stored] for column in range(4)), *wanted]
    # By periods, because planning joins of the partitions of all takes longer than reading some hours of one.
    rows = [part for span in spans if span.unit == "rows" for part in _by_period(span)]
    for period, of_period in groupby(sorted(rows, key=_first), key=lambda span: Period.of(span.first)):
        here = list(of_period)
        afters = [ids.first_id_at(span.after) for span in here]
        is_last = here[-1].after == rows[-1].after and id_range.upper is None
        if is_last:
            afters[-1] = _LAST_ID  # the clocks of senders may be ahead of ours
        bounds = f" AND {{table}}.id >= '{period.first_id}'"
        bounds += "" if is_last else f" AND {{table}}.id < '{period.after_id}'"
        within = Ids("span.first", "span.after", bounds)
        joins, condition, values = conditions(which, within)
        calls = calls_with_cost(within, condition, joins=joins)
        spans_and_calls = (
            "unnest(%s::int[], %s::uuid[], %s::uuid[]) AS span (slot, first, after) "
            f"CROSS JOIN LATERAL ({calls}) AS call WHERE {_IS_WANTED}"
        )
        parts.append(added_up("slot, tool_id, status", spans_and_calls))
        parameters += [[span.slot for span in here], [ids.first_id_at(span.first) for span in here], afters]
        parameters += [*values, *wanted]
    return Query(sql=_FIGURES.format(parts=" UNION ALL ".join(parts)), parameters=[*parameters, by_slot])


def _by_period(span: Span) -> Iterator[Span]:
    first = max(span.first, ids.EPOCH)  # no id carries an earlier time
    while first < span.after:
        after = min(span.after, ids.created_at_of(Period.of(first).after_id))
        yield span._replace(first=first, after=after)
        first = after


def _first(span: Span) -> datetime:
    return span.first


def _durations(tool_ids: Sequence[int], begin: datetime, end: datetime, id_range: IdRange, which: CallFilter) -> Query:
    after = _LAST_ID if id_range.upper is None else ids.first_id_at(end)
    within = Ids(f"'{ids.first_id_at(begin)}'", f"'{after}'")
    joins, condition, values = conditions(which, within)
    sql = f"""
        SELECT call.tool_id, call.id, call.duration_ms FROM traces_app_toolcall AS call
        {joins}
        WHERE call.duration_ms IS NOT NULL AND {within.of("call")} AND {condition} AND {_IS_WANTED} AND {is_alive_within(within)}"""
    return Query(sql=sql, parameters=[*values, list(tool_ids), which.status, which.status])


def _add_durations(
    by_tool: Mapping[int, Statistics], tool_ids: Sequence[int], timed: Sequence[Row], step: timedelta
) -> None:
    for tool_id in tool_ids:
        for figures in (by_tool[tool_id].whole, *by_tool[tool_id].steps.values()):
            figures.durations = []
    for tool_id, call_id, duration in sorted(timed, key=lambda row: row[2]):
        of_tool = by_tool[tool_id]
        of_step = of_tool.steps[ids.EPOCH + _slot(ids.created_at_of(call_id), step) * step]
        for figures in (of_tool.whole, of_step):
            assert figures.durations is not None, "it was set above"
            figures.durations.append(duration)


def _by_tool(rows: Sequence[Row], step: timedelta) -> dict[int, Statistics]:
    by_tool: defaultdict[int, Statistics] = defaultdict(Statistics)
    for tool_id, slot, status, bucket, calls, *others in rows:
        of_tool = by_tool[tool_id]
        parts = [of_tool.whole]
        if slot is not None:
            parts.append(of_tool.steps.setdefault(ids.EPOCH + slot * step, Figures()))
        for figures in parts:
            if bucket is None:
                figures.add(status, calls, *others)
            else:
                figures.histogram[bucket] += calls
    return by_tool


def _slot(instant: datetime, step: timedelta) -> int:
    return (instant - ids.EPOCH) // step


def _down(instant: datetime, unit: timedelta) -> datetime:
    return instant - (instant - ids.EPOCH) % unit


def _up(instant: datetime, unit: timedelta) -> datetime:
    return instant + (ids.EPOCH - instant) % unit
