"""Tools with their figures in a range of times and in the one before, and which of them changed most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from django.db.models import QuerySet

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.readable import Parts, Readable, first_of
from access_app.visibility import ProjectScope, visible_to
from messages_app.sql.batch import LIST_MS
from traces_app.models import Tool
from traces_app.queries.change_point import LEAST_CALLS, ChangePoint, Point, change_point
from traces_app.queries.first_changed import Between, Found, Measure, first_changed
from traces_app.queries.tool_statistics import ALL_CALLS, CallFilter, Figures, Statistics, ToolFigures, statistics_in

from .periods import Period
from .sparklines import Sparkline, stacks

CHANGE = 0.2
"""Relative change of a quantile from which the pages say that a tool got slower or faster."""
MOST_TOOLS = 200
MOST_DATED = 20
"""Changes of which the first call is looked up; of others a page says the step."""
DATING_MS = 1000
"""Milliseconds that this may take."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The statistics of a range, and of the one before it if there is one."""

    now: ToolFigures
    before: ToolFigures | None

    def steps_before(self, tool: Tool) -> dict[datetime, Figures]:
        """Return the figures of a tool in the steps of the range before, by the times of this range that they compare with."""
        if self.before is None or tool.pk not in self.before.by_tool:
            return {}
        later = self.now.begin - self.before.begin
        first = self.now.beginnings()[0]
        shifted = {
            first + (begin + later - first) // self.now.step * self.now.step: figures
            for begin, figures in self.before.by_tool[tool.pk].steps.items()
        }
        return shifted

    def steps(self, tool: Tool) -> dict[datetime, Figures]:
        """Return the figures of a tool in the steps of both ranges, in the order of time; of a step that is in both, those of now."""
        both = [
            range_.by_tool[tool.pk].steps for range_ in (self.before, self.now) if range_ and tool.pk in range_.by_tool
        ]
        return {begin: steps[begin] for steps in both for begin in sorted(steps)}


class Failed(NamedTuple):
    """How many of the finished calls failed."""

    errors: int
    finished: int

    @classmethod
    def of(cls, figures: Iterable[Figures]) -> Failed:
        some = list(figures)
        return cls(sum(one.errors for one in some), sum(one.calls - one.pending for one in some))

    def plus(self, other: Failed) -> Failed:
        return Failed(self.errors + other.errors, self.finished + other.finished)

    def minus(self, other: Failed) -> Failed:
        """Return the rest, which is not below 0 if calls ended between the reading of both."""
        return Failed(max(self.errors - other.errors, 0), max(self.finished - other.finished, 0))


@dataclass(frozen=True, kw_only=True)
class ToolRow:
    """A tool with its figures, and those of the period before if there is one."""

    tool: Tool
    figures: Figures
    before: Figures | None
    chart: Sparkline
    steps: Mapping[datetime, Figures]
    """Those of both periods, in the order of time."""
    links: tuple[str, str] | None
    """The lists of its calls and of the failed ones."""
    since: Mapping[Measure, datetime] = field(default_factory=dict)
    """When what changed began to, if `with_times` found it."""
    failed_since: tuple[Failed, Failed] | None = None
    """The failures of both periods before and after that time."""

    @property
    def calls_url(self) -> str:
        return self.links[0] if self.links else ""

    @property
    def failed_url(self) -> str:
        return self.links[1] if self.links else ""

    @property
    def pending_url(self) -> str:
        return f"{self.calls_url}&status=pending" if self.links else ""

    @property
    def finished(self) -> int:
        return self.figures.calls - self.figures.pending

    @cached_property
    def p50(self) -> float | None:
        return self.figures.quantile(0.5)

    @cached_property
    def p95(self) -> float | None:
        return self.figures.quantile(0.95)

    @cached_property
    def p95_before(self) -> float | None:
        return self.before.quantile(0.95) if self.before else None

    @property
    def p99(self) -> float | None:
        return self.figures.quantile(0.99)

    @property
    def was_called_before(self) -> bool:
        return bool(self.before and self.before.calls)

    @property
    def error_rate_before(self) -> float | None:
        """The part of the calls before that failed; None if there were too few calls to compare with."""
        return self.before.error_rate if self.before and self.finished_before >= LEAST_CALLS else None

    @property
    def is_cost_partial(self) -> bool:
        """Return whether some calls have a known cost and others have not."""
        return 0 < self.figures.priced_calls < self.figures.calls

    @property
    def finished_before(self) -> int:
        return self.before.calls - self.before.pending if self.before else 0

    @property
    def failed_around(self) -> tuple[Failed, Failed]:
        """Return the failures before and after the tool began to fail more; of the periods if that is at no known time."""
        return self.failed_since or (Failed.of([self.before] if self.before else []), Failed.of([self.figures]))

    @property
    def p95_change(self) -> float | None:
        """Return the part by which the 95th percentile grew since the period before; 1.0 is twice as slow."""
        return self.p95 / self.p95_before - 1 if self.p95 is not None and self.p95_before else None

    @property
    def p95_change_in_words(self) -> str:
        if self.p95_change is None:
            return ""
        # Without a sign if it rounds to nothing.
        return f"{self.p95_change:+,.0%}".replace("-", "−") if abs(self.p95_change) >= 0.005 else "0%"

    @property
    def is_slower(self) -> bool:
        return bool(self.p95 and self.p95_before is not None and self.p95 > (1 + CHANGE) * self.p95_before)

    @property
    def fails_less(self) -> bool:
        now, then = self.figures.error_rate, self.error_rate_before
        return now is not None and then is not None and now < then

    @property
    def failing_weight(self) -> float:
        """Return how much it matters that the tool fails more than before, from 0 to 1: its rate times the change of its rate.

        Two successes are added to the calls, so that one failure of one call does not outweigh six of eight.
        """
        rate = self.figures.errors / (self.finished + 2)
        return max(rate * (rate - (self.error_rate_before or 0)), 0)

    @property
    def slower_weight(self) -> float:
        """Return the same for its duration: half the square of the part of p95 that it had not before, because a late result is
        better than none."""
        if (
            not self.is_slower
            or min(self.figures.timed_calls, self.before.timed_calls if self.before else 0) < LEAST_CALLS
        ):
            return 0
        assert self.p95 and self.p95_before is not None, "it is slower"
        return (1 - self.p95_before / self.p95) ** 2 / 2

    @property
    def weight(self) -> tuple[float, float, int]:
        """By this the tools are in the order of their change; those without any by their rate of failures and number of calls."""
        return self.failing_weight + self.slower_weight, self.figures.error_rate or 0, self.figures.calls

    @cached_property
    def failing(self) -> ChangePoint | None:
        """The steps between which the tool began to fail more than before; None if that is at no time."""
        points = [
            Point(at=begin, value=figures.error_rate, calls=figures.calls - figures.pending)
            for begin, figures in self.steps.items()
            if figures.error_rate is not None
        ]
        return _growth(points) if not self.fails_less else None

    @cached_property
    def slowing(self) -> ChangePoint | None:
        """The steps between which the tool became slower, by the logarithm of its durations; None if that is at no time."""

        def typical(figures: Figures) -> float | None:
            """Return the median; the average where only sums are known of a step."""
            median = figures.quantile(0.5)
            return figures.average_ms if median is None else median

        # Logarithms, because durations change by factors.
        points = [
            Point(at=begin, value=math.log(max(value, 1)), calls=figures.timed_calls)
            for begin, figures in self.steps.items()
            if (value := typical(figures)) is not None
        ]
        return _growth(points) if self.is_slower else None

    def split_failures(self, step: timedelta, boundary: datetime, found: Found | None) -> tuple[Failed, Failed]:
        """Return the failures of both periods before and after the change of them, which `found` divides the calls in between of;
        without it the change is at its step. Both periods meet at `boundary`.
        """
        change = self.failing
        assert change, "it has a change"
        whole = Failed.of([self.figures, *([self.before] if self.before else [])])
        # Of a step of both periods `steps` has one part, so that side is what the other leaves.
        is_earlier = (found.at if found else change.at) < boundary
        if is_earlier:
            last = change.last if found else change.at
            side = Failed.of(figures for begin, figures in self.steps.items() if begin < last)
            between = Failed(round(found.sum_before), found.calls_before) if found else Failed(0, 0)
        else:
            first = change.at + step if found else change.at
            side = Failed.of(figures for begin, figures in self.steps.items() if begin >= first)
            between = (
                Failed(round(found.sum - found.sum_before), found.calls - found.calls_before) if found else Failed(0, 0)
            )
        side = side.plus(between)
        return (side, whole.minus(side)) if is_earlier else (whole.minus(side), side)

    @property
    def grown(self) -> Mapping[Measure, ChangePoint]:
        """Return the changes that the pages say the time of."""
        found = (
            (Measure.FAILURES, self.failing_weight, self.failing),
            (Measure.DURATION, self.slower_weight, self.slowing),
        )
        return {measure: change for measure, weight, change in found if weight and change}

    @property
    def fails_since(self) -> datetime | None:
        return self.since.get(Measure.FAILURES)

    @property
    def slower_since(self) -> datetime | None:
        return self.since.get(Measure.DURATION)


def _growth(points: Sequence[Point]) -> ChangePoint | None:
    found = change_point(points)
    return found if found and found.after > found.before else None


def newest_tools(readable: Readable) -> tuple[Parts[Sequence[Tool]], bool]:
    """Return the newest tools of the projects, MOST_TOOLS at most in all, and whether there are more; one query a database."""
    of_each = readable.map(lambda db, scope: list(newest(db, scope)[: MOST_TOOLS + 1]))
    found = first_of(of_each.values, MOST_TOOLS + 1, key=lambda tool: -tool.pk)
    shown = {tool.pk for tool in found[:MOST_TOOLS]}
    return of_each.map(lambda _db, own: [tool for tool in own if tool.pk in shown]), len(found) > MOST_TOOLS


def newest(db: Database, scope: ProjectScope) -> QuerySet[Tool]:
    """Return the tools, the newest first, with their names and the slugs of their projects."""
    named = db.rows(Tool.objects).exclude(name="").select_related("project").only("name", "project__slug")
    return visible_to(named, scope).order_by("-pk")


def compared(
    tools: Parts[Sequence[Tool]],
    period: Period,
    which: CallFilter = ALL_CALLS,
    *,
    with_steps: bool = False,
    at_most_ms: int = LIST_MS,
) -> Compared | None:
    """Return the statistics of a period and of the one before it; None if counting the calls took too long."""
    ranges = [period.ids, before] if (before := period.before) is not None else [period.ids]
    try:
        now, *others = statistics_in(
            tools, ranges, which=which, with_histograms_of_steps=with_steps, at_most_ms=at_most_ms
        )
    except InvalidInput:
        return None  # it took too long
    return Compared(now=now, before=others[0] if others else None)


def rows_of(
    found: Compared, tools: Iterable[Tool], links_of: Callable[[Tool], tuple[str, str] | None]
) -> list[ToolRow]:
    rows = []
    for tool in tools:
        of_tool = found.now.by_tool.get(tool.pk, Statistics())
        before = None if found.before is None else found.before.by_tool.get(tool.pk, Statistics()).whole
        rows.append(
            ToolRow(
                tool=tool,
                figures=of_tool.whole,
                before=before,
                chart=_chart(found.now, of_tool),
                steps=found.steps(tool),
                links=links_of(tool),
            )
        )
    return rows


def with_times(
    rows: Sequence[ToolRow], tools: Parts[Sequence[Tool]], found: Compared, which: CallFilter = ALL_CALLS
) -> list[ToolRow]:
    """Return the rows with the times of their changes: of the first call after each, or of its step where too many calls are in
    between. One query in each database that has some.
    """
    step = found.now.step
    begin = (found.before or found.now).begin
    changes = [
        Between(row.tool.pk, measure, max(change.last, begin), min(change.at + step, found.now.end), change.middle)
        for row in rows
        for measure, change in row.grown.items()
    ]

    def firsts_of(db: Database, own: Sequence[Tool]) -> dict[tuple[int, Measure], Found]:
        keys = {tool.pk for tool in own}
        here = [change for change in changes if change.tool_id in keys][:MOST_DATED]
        try:
            firsts = first_changed(db, here, which, at_most_ms=DATING_MS)
        except InvalidInput:
            return {}  # it took too long, and the steps are known
        return {
            (change.tool_id, change.measure): one for change, one in zip(here, firsts, strict=True) if one is not None
        }

    known: dict[tuple[int, Measure], Found] = {}
    for part in tools.each(firsts_of):
        known |= part

    def timed(row: ToolRow) -> ToolRow:
        since: dict[Measure, datetime] = {}
        for measure, change in row.grown.items():
            first = known.get((row.tool.pk, measure))
            since[measure] = first.at if first else change.at
        failed = None
        if Measure.FAILURES in since:
            failed = row.split_failures(step, found.now.begin, known.get((row.tool.pk, Measure.FAILURES)))
        return replace(row, since=since, failed_since=failed)

    return [timed(row) for row in rows]


def by_change(rows: Iterable[ToolRow]) -> list[ToolRow]:
    """Return the tools that changed most first."""
    by_name = sorted(rows, key=lambda row: (row.tool.name, row.tool.pk))
    return sorted(by_name, key=lambda row: row.weight, reverse=True)


def slower_first(rows: Iterable[ToolRow]) -> list[ToolRow]:
    """Return the tools that got slower first, then the others that changed most."""
    return sorted(by_change(rows), key=lambda row: row.slower_weight, reverse=True)


def _chart(found: ToolFigures, of_tool: Statistics) -> Sparkline:
    """Return a bar for each step, its finished calls at the bottom and the failed ones on top."""
    most = max((step.calls for step in of_tool.steps.values()), default=0) or 1
    of_steps = (of_tool.steps.get(begin, Figures()) for begin in found.beginnings())
    return stacks([{"bottom": step.calls - step.errors, "top": step.errors} for step in of_steps], most)
