"""The pages of tools: which one fails, which got slower or costs most, when and with which arguments, and examples of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.db.conflicts import was_stopped
from access_app.errors import Conflict, InvalidInput, NotFound
from access_app.masked_reading import mask_of
from access_app.readable import Parts, Readable, first_of
from access_app.readable_pages import readable_on_page
from access_app.request_database import database
from access_app.visibility import ProjectScope, visible_to
from messages_app.admin.filters import readable_projects, scope_of_page
from messages_app.admin.row_pages import time_limit
from messages_app.queries import find_session_in
from messages_app.sql.pagination import QuerySetKeys
from traces_app.models import Tool
from traces_app.queries import tool_examples
from traces_app.queries.tool_filters import ToolStatisticsFilterSet
from traces_app.queries.tool_statistics import ALL_CALLS, CallFilter, Figures, Statistics, ToolFigures, statistics_in
from traces_app.queries.tools import tool_statistics
from traces_app.views.tools import statistics_csv
from tracesite_sdk.records import ids

from .error_pages import groups_of_tool
from .filters import suggested_names
from .periods import Period, page_filters, warn_of_order, warn_of_project

T = TypeVar("T")

MOST_TOOLS = 200
SECTION_MS = 3000
"""Milliseconds that a part of the page may take."""
CHANGE = 0.2
"""Relative change of a quantile from which the page says that a tool got slower or faster."""
FILTERS: Mapping[str, Any] = {
    "agent": gettext_lazy("Agent"),
    "model": gettext_lazy("Model"),
    "session": gettext_lazy("Session (ID or external ID)"),
    "end_user": gettext_lazy("End user"),
    "tag": gettext_lazy("Tag"),
}
"""The filters of the calls that count, by their parameters, which are those of the API."""
PARAMETERS = ("project", "o", "format", *FILTERS)
"""The parameters of the pages beside the range of times."""
_FILTERS_OF_LIST = ("agent", "model", "session")
"""Those that the list of calls has, too."""
SLOWEST_TIMES = 5
_HEIGHT = 100


class Filters(NamedTuple):
    """The filters that the parameters of a page choose."""

    readable: Readable
    """The projects of the page, by the aliases of their databases; those of the database of the session, if one is chosen."""
    given: dict[str, str]
    which: CallFilter
    error: str
    """Says what is wrong with a value; empty if nothing is."""

    def links_of(self, tool: Tool, times: Mapping[str, str]) -> tuple[str, str] | None:
        """Return the lists of the calls that were counted and of the failed ones; None if the list has not all filters."""
        if any(name not in _FILTERS_OF_LIST for name in self.given):
            return None
        query = {"project": tool.project.slug, "tool": tool.name, **self.given, **times}
        calls = reverse("admin:traces_app_toolcall_changelist")
        return f"{calls}?{urlencode(query)}", f"{calls}?{urlencode({**query, 'status': 'error'})}"


def filters_of(request: HttpRequest, readable: Readable) -> Filters:
    """Return the filters of a page; `readable` are the projects in which the session is looked up."""
    given = {name: request.GET[name].strip() for name in FILTERS if request.GET.get(name, "").strip()}
    query = QueryDict(mutable=True)
    query.update(given)
    try:
        session = None
        if "session" in given:
            session, readable = find_session_in(readable, given["session"], field="session")
        return Filters(readable, given, ToolStatisticsFilterSet(query, mask=mask_of(request)).which(session), "")
    except (InvalidInput, NotFound, Conflict) as error:
        return Filters(readable, given, ALL_CALLS, str(error.message))


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar of a chart in the units of its view box: finished calls at the bottom, failed ones on top."""

    x: int
    bottom_y: float
    bottom_height: float
    top_y: float
    top_height: float
    begin: datetime
    figures: Figures


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
        return {begin + later: figures for begin, figures in self.before.by_tool[tool.pk].steps.items()}


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """A line over time in the units of the view box of the bars; steps without a value are gaps."""

    parts: list[str]
    """The points of each part between two gaps."""

    @property
    def areas(self) -> list[str]:
        """The corners of what is below each part."""
        ends = [(points.partition(",")[0], points.rpartition(" ")[2].partition(",")[0]) for points in self.parts]
        return [
            f"{first},{_HEIGHT} {points} {last},{_HEIGHT}"
            for points, (first, last) in zip(self.parts, ends, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class ToolRow:
    """A tool with its figures, and those of the period before if there is one."""

    tool: Tool
    figures: Figures
    before: Figures | None
    bars: list[Bar]
    average_line: ChartLine
    links: tuple[str, str] | None
    """The lists of its calls and of the failed ones."""
    takes_most_time: bool = False

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
    def width(self) -> int:
        """Width of the view box of the chart."""
        return 10 * len(self.bars)

    @property
    def finished(self) -> int:
        return self.figures.calls - self.figures.pending

    @property
    def p50(self) -> float | None:
        return self.figures.quantile(0.5)

    @property
    def p95(self) -> float | None:
        return self.figures.quantile(0.95)

    @property
    def p99(self) -> float | None:
        return self.figures.quantile(0.99)

    @property
    def was_called_before(self) -> bool:
        return bool(self.before and self.before.calls)

    @property
    def rate_before(self) -> float | None:
        return self.before.error_rate if self.before else None

    @property
    def is_cost_partial(self) -> bool:
        """Return whether some calls have a known cost and others have not."""
        return 0 < self.figures.priced_calls < self.figures.calls

    @property
    def p95_before(self) -> float | None:
        return self.before.quantile(0.95) if self.before else None

    @property
    def finished_before(self) -> int:
        return self.before.calls - self.before.pending if self.before else 0

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
    def is_faster(self) -> bool:
        return bool(self.p95_before and self.p95 is not None and self.p95 < (1 - CHANGE) * self.p95_before)

    @property
    def fails_more(self) -> bool:
        now, then = self.figures.error_rate, self.before.error_rate if self.before else None
        return now is not None and then is not None and now > then

    @property
    def fails_less(self) -> bool:
        now, then = self.figures.error_rate, self.before.error_rate if self.before else None
        return now is not None and then is not None and now < then


COLUMNS: Mapping[str, tuple[Any, Callable[[ToolRow], Any]]] = {
    "tool": (gettext_lazy("Tool"), lambda row: row.tool.name),
    "calls": (gettext_lazy("Calls"), lambda row: row.figures.calls),
    "rate": (gettext_lazy("Failed"), lambda row: row.figures.error_rate),
    "rate_before": (gettext_lazy("Failed before"), lambda row: row.rate_before),
    "average": (gettext_lazy("Average"), lambda row: row.figures.average_ms),
    "p50": ("p50", lambda row: row.p50),
    "p95": ("p95", lambda row: row.p95),
    "p95_change": (gettext_lazy("p95 change"), lambda row: row.p95_change),
    "p99": ("p99", lambda row: row.p99),
    "total": (gettext_lazy("Total time"), lambda row: row.figures.total_ms),
    "cost": (gettext_lazy("Cost"), lambda row: row.figures.cost),
}
"""The columns by the name that `o` has for them, with their heading and what they are sorted by."""
DEFAULT_ORDER = "failed"


class Heading(NamedTuple):
    name: str
    label: Any
    url: str
    sort: str
    """`ascending` or `descending` if the table is sorted by this column, otherwise empty."""


def list_context(request: HttpRequest, period: Period) -> dict[str, Any]:
    """Return the context of the page of all tools."""
    projects = readable_projects(request)
    slug = request.GET.get("project", "")
    warn_of_project(request, projects)
    warn_of_order(request, (DEFAULT_ORDER, *COLUMNS, *(f"-{name}" for name in COLUMNS)))
    filters = filters_of(request, readable_on_page(request, scope_of_page(request, projects.get(slug))))
    of_each = filters.readable.map(lambda db, scope: list(_newest(db, scope)[: MOST_TOOLS + 1]))
    found = first_of(of_each.values, MOST_TOOLS + 1, key=lambda tool: -tool.pk)
    shown = {tool.pk for tool in found[:MOST_TOOLS]}
    tools: Parts[Sequence[Tool]] = of_each.map(lambda _db, own: [tool for tool in own if tool.pk in shown])
    kept = {**({"project": slug} if slug in projects else {}), **filters.given, **period.given}
    order = request.GET.get("o", DEFAULT_ORDER)
    order = order if order.removeprefix("-") in COLUMNS else DEFAULT_ORDER
    rows = None if filters.error else _rows(tools, period, filters)
    # Only if the calls of all tools were counted.
    is_whole = rows is not None and len(found) <= MOST_TOOLS and not filters.given
    declared = _declared(filters.readable, period) if is_whole else None
    called = {row.tool.name for row in rows or ()}
    return {
        **page_filters(period, kept, projects, slug, order),
        **_filter_form(request, filters, kept, order),
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(_without_filters(kept))}",
        "csv_url": f"?{urlencode({**kept, 'format': 'csv'})}",
        "tool_query": urlencode({**filters.given, **period.given}),
        "rows": None if rows is None else _sorted(rows, order),
        "nothing_before": bool(rows and period.before and not any(row.was_called_before for row in rows)),
        "headings": {heading.name: heading for heading in _headings(order, kept)},
        "never_called": sorted(declared - called)[:MOST_TOOLS] if declared else [],
        "inputs_read": tool_examples.INPUTS_READ,
        "left_out": len(found) > MOST_TOOLS,
        "most": MOST_TOOLS,
    }


def _headings(order: str, kept: Mapping[str, str]) -> list[Heading]:
    headings = []
    for name, (label, _key) in COLUMNS.items():
        is_chosen = order.removeprefix("-") == name
        sort = ("ascending" if _is_ascending(order) else "descending") if is_chosen else ""
        other = f"-{name}" if order == name else name
        headings.append(Heading(name, label, f"?{urlencode({**kept, 'o': other})}", sort))
    return headings


def _is_ascending(order: str) -> bool:
    """Return whether an order begins with the smallest: names do, figures do not, and `-` is the opposite."""
    return order.startswith("-") != (order.removeprefix("-") == "tool")


def _sorted(rows: Sequence[ToolRow], order: str) -> list[ToolRow]:
    """Return the rows in an order. Those without a value come last either way."""
    by_name = sorted(rows, key=lambda row: (row.tool.name, row.tool.pk))
    if order == DEFAULT_ORDER:
        return sorted(by_name, key=lambda row: row.figures.errors, reverse=True)
    _label, key = COLUMNS[order.removeprefix("-")]
    known = [row for row in by_name if key(row) is not None]
    unknown = [row for row in by_name if key(row) is None]
    return [*sorted(known, key=key, reverse=not _is_ascending(order)), *unknown]


def list_csv(request: HttpRequest, period: Period) -> HttpResponse:
    """Return the tools of the page as the CSV of the API. Raise InvalidInput."""
    projects = readable_projects(request)
    slug = request.GET.get("project", "")
    scope = scope_of_page(request, projects.get(slug))
    filters = filters_of(request, readable_on_page(request, scope, needs_all=True))
    if filters.error:
        raise InvalidInput(filters.error)
    tools = filters.readable.rows(lambda db, scope: QuerySetKeys(_newest(db, scope)))
    keys = tools.keys(newest_first=True, limit=MOST_TOOLS)
    found = tools.read(keys, lambda db, own: tool_statistics(db, own, period.ids, filters.which))
    return statistics_csv(one for one in found if one.call_count)


def _newest(db: Database, scope: ProjectScope) -> QuerySet[Tool]:
    """Return the tools of a page, the newest first, with their projects."""
    return visible_to(db.rows(Tool.objects).select_related("project").exclude(name=""), scope).order_by("-pk")


def _declared(readable: Readable, period: Period) -> set[str] | None:
    """Return the names of the tools that models were offered; None if reading them took too long."""

    def limited(db: Database, scope: ProjectScope) -> set[str]:
        with time_limit(db, SECTION_MS):
            return tool_examples.declared(db, scope.project_ids, period.ids)

    return _if_in_time(lambda: set().union(*readable.each(limited)))


def _without_filters(kept: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in kept.items() if name not in FILTERS}


def _filter_form(request: HttpRequest, filters: Filters, kept: Mapping[str, str], order: str) -> dict[str, Any]:
    """Return the context of `tool_filters.html`."""
    names = suggested_names(request)
    suggestions = {"agent": names.agents, "model": names.models}
    others = _without_filters(kept)
    if order != DEFAULT_ORDER:
        others["o"] = order
    return {
        "filter_fields": [
            (name, label, filters.given.get(name, ""), suggestions.get(name)) for name, label in FILTERS.items()
        ],
        "filter_others": others,
        "filter_count": len(filters.given),
        "filter_error": filters.error,
        "without_filters": f"?{urlencode(others)}",
    }


class SlowTime(NamedTuple):
    """A step of the range in which a tool is slow."""

    begin: datetime
    end: datetime
    figures: Figures
    p95: float
    url: str


def tool_context(request: HttpRequest, tool: Tool, period: Period) -> dict[str, Any]:
    """Return the context of the page of one tool."""
    db = database(request)
    filters = filters_of(request, Parts({db: ProjectScope(frozenset([tool.project_id]))}))
    found = None if filters.error else _compared(Parts({db: [tool]}), period, filters, with_steps=True)
    rows = None if found is None else _rows_of(found, [tool], period, filters, with_unused=True)
    kept = {**filters.given, **period.given}
    of_tool = {"project": tool.project.slug, "tool": tool.name, **period.given}
    read = (tool.pk, period.ids, filters.which)
    errors, failed_read = groups_of_tool(db, tool, period.ids, period.given)
    return {
        **page_filters(period, kept, {}, "", ""),
        **_filter_form(request, filters, kept, DEFAULT_ORDER),
        "row": rows[0] if rows else None,
        **({} if found is None else _over_time(found, tool, period, filters)),
        "errors": errors,
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(of_tool)}",
        "failed_read": failed_read,
        "slowest": _within_limit(
            db, lambda: [(call, ids.created_at_of(call.pk)) for call in tool_examples.slowest(db, *read)]
        ),
        "slow_arguments": _within_limit(db, lambda: tool_examples.slow_arguments(db, *read)),
        "slow_runs": _within_limit(db, lambda: tool_examples.slow_runs(db, *read)),
        "repeated": _within_limit(db, lambda: tool_examples.repeated(db, *read)),
        "calls_read": tool_examples.CALLS_READ,
    }


def _over_time(compared: Compared, tool: Tool, period: Period, filters: Filters) -> dict[str, Any]:
    """Return the charts of a tool, each with the line of the period before to the same scale, and the steps in which it is slowest."""
    found = compared.now
    of_tool = found.by_tool.get(tool.pk, Statistics())
    steps, before = of_tool.steps, compared.steps_before(tool)
    p95, p95_before = (
        {begin: value for begin, figures in either.items() if (value := figures.quantile(0.95)) is not None}
        for either in (steps, before)
    )
    longest = max([*p95.values(), *p95_before.values()], default=None)
    most_calls = max((figures.calls for either in (steps, before) for figures in either.values()), default=0)
    slow = []
    for begin, value in sorted(p95.items(), key=lambda item: item[1], reverse=True)[:SLOWEST_TIMES]:
        end = begin + found.step
        links = filters.links_of(tool, {"created_after": _parameter(begin), "created_before": _parameter(end)})
        slow.append(SlowTime(begin, end, steps[begin], value, links[0] if links else ""))
    return {
        "bars": _bars(found, of_tool, most_calls),
        "most_calls": most_calls,
        "calls_before": _line(found, {begin: figures.calls for begin, figures in before.items()}, most_calls),
        "rate_line": _line(found, {begin: figures.error_rate for begin, figures in steps.items()}, 1.0),
        "rate_before": _line(found, {begin: figures.error_rate for begin, figures in before.items()}, 1.0),
        "longest": longest,
        "p95_line": _line(found, p95, longest),
        "p95_before": _line(found, p95_before, longest),
        "average_line": _line(found, {begin: figures.average_ms for begin, figures in steps.items()}, longest),
        "slow_times": slow if len(p95) > 1 else [],
        "begin": found.begin,
        "end": found.end if period.ids.upper else None,
    }


def _compared(
    tools: Parts[Sequence[Tool]], period: Period, filters: Filters, *, with_steps: bool = False
) -> Compared | None:
    """Return the statistics of a period and of the one before it; None if counting the calls took too long."""
    try:
        now, before = (
            statistics_in(tools, ids_, which=filters.which, with_histograms_of_steps=with_steps)
            if ids_ is not None
            else None
            for ids_ in (period.ids, period.before)
        )
    except InvalidInput:
        return None  # it took too long
    assert now is not None, "a period has a range of times"
    return Compared(now=now, before=before)


def _rows(tools: Parts[Sequence[Tool]], period: Period, filters: Filters) -> list[ToolRow] | None:
    """Return the tools that were called in the period; None if counting the calls took too long."""
    found = _compared(tools, period, filters)
    newest_first = sorted(chain.from_iterable(tools.values), key=lambda tool: -tool.pk)
    return None if found is None else _rows_of(found, newest_first, period, filters)


def _rows_of(
    compared: Compared,
    tools: Sequence[Tool],
    period: Period,
    filters: Filters,
    *,
    with_unused: bool = False,
) -> list[ToolRow]:
    found, before = compared.now, compared.before
    slowest = max((of_tool.whole.total_ms for of_tool in found.by_tool.values()), default=0)
    rows = []
    for tool in tools:
        if tool.pk not in found.by_tool and not with_unused:
            continue
        of_tool = found.by_tool.get(tool.pk, Statistics())
        rows.append(
            ToolRow(
                tool=tool,
                figures=of_tool.whole,
                before=None if before is None else before.by_tool.get(tool.pk, Statistics()).whole,
                bars=_bars(found, of_tool),
                average_line=_line(found, {begin: step.average_ms for begin, step in of_tool.steps.items()}),
                links=filters.links_of(tool, period.given),
                takes_most_time=len(found.by_tool) > 1 and 0 < slowest == of_tool.whole.total_ms,
            )
        )
    return rows


def _line(found: ToolFigures, values: Mapping[datetime, float | None], most: float | None = None) -> ChartLine:
    """Return a line with a level for each step; `most` is the value at its top, by default the largest one.

    The steps of another range begin at any time, and what is outside of this one is cut off.
    """
    known = sorted((begin, value) for begin, value in values.items() if value is not None)
    top = most or max((value for _begin, value in known), default=0) or 1
    slots = found.beginnings()
    width = 10 * len(slots)
    parts: list[list[str]] = []
    end = None
    for begin, value in known:
        x = 10 * (begin - slots[0]) / found.step
        if not -5 < x < width - 5:
            continue
        if begin != end:  # a gap
            parts.append([])
        end = begin + found.step
        y = round(_HEIGHT - 1 - (_HEIGHT - 2) * min(value / top, 1), 2)
        parts[-1] += [f"{round(max(x + 1, 0), 2):g},{y}", f"{round(min(x + 9, width), 2):g},{y}"]
    return ChartLine(parts=[" ".join(points) for points in parts])


def _parameter(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _bars(found: ToolFigures, of_tool: Statistics, most: int = 0) -> list[Bar]:
    """Return a bar for each step; `most` are the calls at the top, by default the most of a step."""
    most = most or max((step.calls for step in of_tool.steps.values()), default=0) or 1
    bars = []
    for index, begin in enumerate(found.beginnings()):
        figures = of_tool.steps.get(begin, Figures())
        bottom, top = (_HEIGHT * part / most for part in (figures.calls - figures.errors, figures.errors))
        bars.append(
            Bar(
                x=10 * index,
                bottom_y=round(_HEIGHT - bottom, 2),
                bottom_height=round(bottom, 2),
                top_y=round(_HEIGHT - bottom - top, 2),
                top_height=round(top, 2),
                begin=begin,
                figures=figures,
            )
        )
    return bars


def _within_limit(db: Database, read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if one of its queries took too long."""

    def limited() -> T:
        with time_limit(db, SECTION_MS):
            return read()

    return _if_in_time(limited)


def _if_in_time(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OperationalError as error:
        if not was_stopped(error):
            raise
        return None
