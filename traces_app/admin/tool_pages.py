"""The pages of tools: which one fails, which got slower, and examples of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy

from access_app.errors import InvalidInput
from access_app.models import Project
from messages_app import ids
from messages_app.admin.filters import MANY
from messages_app.admin.keyset import time_limit
from messages_app.sql.batch import was_stopped
from traces_app.models import Tool
from traces_app.queries import tool_examples
from traces_app.queries.error_groups import MOST_READ
from traces_app.queries.tool_statistics import Figures, Found, Statistics, statistics

from .error_pages import groups_of_tool
from .periods import Period, page_filters

T = TypeVar("T")

MOST_TOOLS = 200
SECTION_MS = 3000
"""Milliseconds that a part of the page may take."""
CHANGE = 0.2
"""Relative change of a quantile from which the page says that a tool got slower or faster."""
_HEIGHT = 100


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
class Row:
    """A tool with its figures, and those of the period before if there is one."""

    tool: Tool
    figures: Figures
    before: Figures | None
    bars: list[Bar]
    calls_url: str
    failed_url: str
    takes_most_time: bool = False

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
    def p95_before(self) -> float | None:
        return self.before.quantile(0.95) if self.before else None

    @property
    def finished_before(self) -> int:
        return self.before.calls - self.before.pending if self.before else 0

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


ORDERS: Mapping[str, Callable[[Row], float]] = {
    "failed": lambda row: row.figures.errors,
    "rate": lambda row: row.figures.error_rate or 0,
    "calls": lambda row: row.figures.calls,
    "p50": lambda row: row.p50 or 0,
    "p95": lambda row: row.p95 or 0,
    "p99": lambda row: row.p99 or 0,
    "total": lambda row: row.figures.total_ms,
}


def list_context(request: HttpRequest, period: Period) -> dict[str, Any]:
    """Return the context of the page of all tools."""
    projects = dict(Project.objects.order_by("slug").values_list("slug", "pk")[:MANY])
    slug = request.GET.get("project", "")
    tools = Tool.objects.select_related("project").exclude(name="")
    if slug in projects:
        tools = tools.filter(project_id=projects[slug])
    found = list(tools.order_by("-pk")[: MOST_TOOLS + 1])
    kept = {**({"project": slug} if slug in projects else {}), **period.given}
    order = request.GET.get("o", "failed")
    order = order if order in ORDERS else "failed"
    rows = _rows(found[:MOST_TOOLS], period)
    # Only if the calls of all tools were counted.
    is_whole = rows is not None and len(found) <= MOST_TOOLS
    declared = _within_limit(lambda: tool_examples.declared(projects.get(slug), period.ids)) if is_whole else None
    called = {row.tool.name for row in rows or ()}
    return {
        **page_filters(period, kept, projects, slug, order),
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(kept)}",
        "rows": None if rows is None else sorted(rows, key=lambda row: (-ORDERS[order](row), row.tool.name)),
        "order": order,
        "columns": [(name, label, f"?{urlencode({**kept, 'o': name})}") for name, label in _COLUMNS],
        "never_called": sorted((declared or set()) - called)[:MOST_TOOLS],
        "inputs_read": tool_examples.INPUTS_READ,
        "left_out": len(found) > MOST_TOOLS,
        "most": MOST_TOOLS,
    }


def tool_context(request: HttpRequest, tool: Tool, period: Period) -> dict[str, Any]:
    """Return the context of the page of one tool."""
    rows = _rows([tool], period, with_unused=True)
    of_tool = {"project": tool.project.slug, "tool": tool.name, **period.given}
    return {
        **page_filters(period, period.given, {}, "", ""),
        "row": rows[0] if rows else None,
        "errors": groups_of_tool(tool, period.ids, period.given),
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(of_tool)}",
        "failed_read": MOST_READ,
        "slowest": _within_limit(
            lambda: [(call, ids.created_at_of(call.pk)) for call in tool_examples.slowest(tool.pk, period.ids)]
        ),
        "repeated": _within_limit(lambda: tool_examples.repeated(tool.pk, period.ids)),
        "calls_read": tool_examples.CALLS_READ,
    }


_COLUMNS = (
    ("calls", gettext_lazy("Calls")),
    ("rate", gettext_lazy("Failed")),
    ("p50", "p50"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("total", gettext_lazy("Total time")),
)


def _rows(tools: Sequence[Tool], period: Period, *, with_unused: bool = False) -> list[Row] | None:
    """Return the tools that were called in the period; None if counting the calls took too long."""
    keys = [tool.pk for tool in tools]
    projects = {tool.project_id for tool in tools}
    try:
        found = statistics(keys, projects, period.ids)
        before = statistics(keys, projects, period.before).by_tool if period.before else None
    except InvalidInput:
        return None  # it took too long
    slowest = max((of_tool.whole.total_ms for of_tool in found.by_tool.values()), default=0)
    calls = reverse("admin:traces_app_toolcall_changelist")
    rows = []
    for tool in tools:
        if tool.pk not in found.by_tool and not with_unused:
            continue
        of_tool = found.by_tool.get(tool.pk, Statistics())
        query = {"project": tool.project.slug, "tool": tool.name, **period.given}
        rows.append(
            Row(
                tool=tool,
                figures=of_tool.whole,
                before=None if before is None else before.get(tool.pk, Statistics()).whole,
                bars=_bars(found, of_tool),
                calls_url=f"{calls}?{urlencode(query)}",
                failed_url=f"{calls}?{urlencode({**query, 'status': 'error'})}",
                takes_most_time=len(found.by_tool) > 1 and 0 < slowest == of_tool.whole.total_ms,
            )
        )
    return rows


def _bars(found: Found, of_tool: Statistics) -> list[Bar]:
    most = max((step.calls for step in of_tool.steps.values()), default=0) or 1
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


def _within_limit(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if one of its queries took too long."""
    try:
        with time_limit(SECTION_MS):
            return read()
    except OperationalError as error:
        if not was_stopped(error):
            raise
        return None
