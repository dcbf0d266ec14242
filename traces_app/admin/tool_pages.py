"""The pages of tools: which one fails, which got slower or costs most, since when and with which arguments, and examples of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from django.contrib.humanize.templatetags.humanize import intcomma
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.db import Database
from access_app.db.conflicts import was_stopped
from access_app.errors import Conflict, InvalidInput, NotFound
from access_app.masked_reading import mask_of
from access_app.readable import Parts, Readable
from access_app.readable_pages import readable_on_page
from access_app.request_database import database
from access_app.visibility import ProjectScope
from messages_app.admin.filters import readable_projects, scope_of_page
from messages_app.queries import find_session_in
from messages_app.safe_text import duration, share
from messages_app.sql.batch import time_limit
from messages_app.sql.pagination import QuerySetKeys
from traces_app.models import Tool
from traces_app.queries import tool_examples
from traces_app.queries.session_names import read_names_around
from traces_app.queries.tool_filters import ToolStatisticsFilterSet
from traces_app.queries.tool_statistics import ALL_CALLS, CallFilter, Figures, Statistics
from traces_app.queries.tools import tool_statistics
from traces_app.views.tools import statistics_csv
from tracesite_sdk.records import ids

from .charts import Amount, Slot, chart_of, duration_label, name_of, number_label, round_duration, round_number
from .error_pages import frequent_errors
from .filters import suggested_names
from .home_charts import parameter_of
from .periods import Period, page_filters, warn_of_order, warn_of_project
from .tool_rows import (
    MOST_TOOLS,
    Compared,
    ToolRow,
    by_change,
    compared,
    newest,
    newest_tools,
    rows_of,
    slower_first,
    with_times,
)

T = TypeVar("T")

SECTION_MS = 3000
"""Milliseconds that a part of the page may take."""
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


COLUMNS: Mapping[str, tuple[Any, Callable[[ToolRow], Any]]] = {
    "tool": (gettext_lazy("Tool"), lambda row: row.tool.name),
    "calls": (gettext_lazy("Calls"), lambda row: row.figures.calls),
    "rate": (gettext_lazy("Failed"), lambda row: row.figures.error_rate),
    "p50": ("p50", lambda row: row.p50),
    "p95": ("p95", lambda row: row.p95),
    "total": (gettext_lazy("Total time"), lambda row: row.figures.total_ms if row.figures.timed_calls else None),
    "cost": (gettext_lazy("Cost"), lambda row: row.figures.cost),
}
"""The columns by the name that `o` has for them, with their heading and what they are sorted by."""
DEFAULT_ORDER = "change"
"""What got slower first, then what fails more."""
ORDERS: Mapping[str, Any] = {
    DEFAULT_ORDER: gettext_lazy("What got slower first"),
    "p95": gettext_lazy("Slowest first"),
    "rate": gettext_lazy("Most often failed first"),
    "calls": gettext_lazy("Most called first"),
    "cost": gettext_lazy("Most expensive first"),
}
"""The orders that are named above the table, in words; the headings have the others."""


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
    tools, left_out = newest_tools(filters.readable)
    kept = {**({"project": slug} if slug in projects else {}), **filters.given, **period.given}
    order = request.GET.get("o", DEFAULT_ORDER)
    order = order if order.removeprefix("-") in COLUMNS else DEFAULT_ORDER
    rows = None if filters.error else _rows(tools, period, filters)
    # Only if the calls of all tools were counted.
    is_whole = rows is not None and not left_out and not filters.given
    declared = _declared(filters.readable, period) if is_whole else None
    called = {row.tool.name for row in rows or ()}
    return {
        **page_filters(period, kept, projects, slug, order),
        **_filter_form(request, filters, kept, order),
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(_without_filters(kept))}",
        "csv_url": f"?{urlencode({**kept, 'format': 'csv'})}",
        "tool_query": urlencode({**filters.given, **period.given}),
        "rows": None if rows is None else _sorted(rows, order),
        "slowest": max((row for row in rows or () if row.p95 is not None), key=lambda row: row.p95 or 0, default=None),
        "compares": period.before is not None,
        "nothing_before": bool(rows and period.before and not any(row.was_called_before for row in rows)),
        "orders": [
            (label, f"?{urlencode(kept if name == DEFAULT_ORDER else {**kept, 'o': name})}", name == order)
            for name, label in ORDERS.items()
        ],
        # Phones have room for one of these columns.
        "on_phones": name if (name := order.removeprefix("-")) in ("p50", "total", "cost") else "p95",
        "is_by_change": order == DEFAULT_ORDER,
        "by_change_url": f"?{urlencode(kept)}",
        "headings": {heading.name: heading for heading in _headings(order, kept)},
        "never_called": sorted(declared - called)[:MOST_TOOLS] if declared else [],
        "inputs_read": tool_examples.INPUTS_READ,
        "left_out": left_out,
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
    if order == DEFAULT_ORDER:
        return slower_first(rows)
    by_name = sorted(rows, key=lambda row: (row.tool.name, row.tool.pk))
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
    tools = filters.readable.rows(lambda db, scope: QuerySetKeys(newest(db, scope)))
    keys = tools.keys(newest_first=True, limit=MOST_TOOLS)
    found = tools.read(keys, lambda db, own: tool_statistics(db, own, period.ids, filters.which))
    return statistics_csv(one for one in found if one.call_count)


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


def tool_context(request: HttpRequest, tool: Tool, period: Period) -> dict[str, Any]:
    """Return the context of the page of one tool."""
    db = database(request)
    in_project = Parts({db: ProjectScope(frozenset([tool.project_id]))})
    filters = filters_of(request, in_project)
    found = None if filters.error else compared(Parts({db: [tool]}), period, filters.which, with_steps=True)
    kept = {**filters.given, **period.given}
    of_tool = {"project": tool.project.slug, "tool": tool.name, **period.given}
    read = (tool.pk, period.ids, filters.which)
    links = filters.links_of(tool, period.given)
    errors, errors_from = frequent_errors(in_project, {"tool": tool.name}, period.ids, of_tool)
    return {
        **page_filters(period, kept, {}, "", ""),
        **_filter_form(request, filters, kept, DEFAULT_ORDER),
        **({"row": None} if found is None else _over_time(db, found, tool, period, filters)),
        "errors": errors,
        "errors_url": f"{reverse('admin:traces_app_toolcall_errors')}?{urlencode(of_tool)}",
        "errors_from": errors_from,
        "slowest": _within_limit(
            db, lambda: [(call, ids.created_at_of(call.pk)) for call in tool_examples.slowest(db, *read)]
        ),
        "slow_arguments": _within_limit(db, lambda: tool_examples.slow_arguments(db, *read)),
        "slow_runs": _within_limit(db, lambda: _named(db, tool_examples.slow_runs(db, *read))),
        "repeated": _within_limit(db, lambda: tool_examples.repeated(db, *read)),
        "reflections": _within_limit(db, lambda: tool_examples.reflections(db, *read)),
        "reflections_url": f"{links[0]}&has_reflection=true" if links else "",
        "calls_read": tool_examples.CALLS_READ,
    }


def _named(db: Database, runs: Sequence[tool_examples.Slow]) -> list[tuple[tool_examples.Slow, str]]:
    """Return the runs with the names of their sessions."""
    names = read_names_around(db, [run.message_id for run in runs if run.message_id is not None])
    return [(run, names[run.message_id]) for run in runs if run.message_id in names]


def _over_time(db: Database, found: Compared, tool: Tool, period: Period, filters: Filters) -> dict[str, Any]:
    """Return the figures and the charts of a tool, each with the line of the period before to the same scale."""
    rows = rows_of(found, [tool], lambda tool: filters.links_of(tool, period.given))
    (row,) = with_times(rows, Parts({db: [tool]}), found, filters.which)
    of_tool = found.now.by_tool.get(tool.pk, Statistics())
    before = found.steps_before(tool)
    step = found.now.step

    def p95(steps: Mapping[datetime, Figures]) -> dict[datetime, float]:
        return {begin: value for begin, figures in steps.items() if (value := figures.quantile(0.95)) is not None}

    calls, rates, durations = [], [], []
    for begin in found.now.beginnings():
        figures = of_tool.steps.get(begin, Figures())
        name, finished = name_of(begin, step), figures.calls - figures.pending
        times = {"created_after": parameter_of(begin), "created_before": parameter_of(begin + step)}
        url, failed_url = filters.links_of(tool, times) or ("", "")
        numbers = {"calls": intcomma(figures.calls), "failed": intcomma(figures.errors)}
        words = (
            ngettext("%(calls)s call, %(failed)s failed", "%(calls)s calls, %(failed)s failed", figures.calls) % numbers
        )
        calls.append(
            Slot(
                begin=begin,
                words=f"{name} · {words}",
                url=url,
                amounts=[
                    Amount(value=figures.calls - figures.errors, kind="bottom"),
                    Amount(value=figures.errors, kind="top", url=failed_url),
                ],
            )
        )
        words = f"{share(figures.errors, finished) or '—'} · {words}"
        failed = [Amount(value=figures.error_rate or 0, kind="top")]
        rates.append(Slot(begin=begin, words=f"{name} · {words}", url=failed_url, amounts=failed))
        average = duration(figures.average_ms) or "—"
        words = _("p95 %(p95)s, average %(average)s") % {
            "p95": duration(figures.quantile(0.95)) or "—",
            "average": average,
        }
        durations.append(Slot(begin=begin, words=f"{name} · {words}", url=url))
    is_open = not period.ids.upper
    lines = {
        "average": {begin: ms for begin, figures in of_tool.steps.items() if (ms := figures.average_ms) is not None}
    }
    return {
        "row": row,
        "calls_chart": chart_of(
            calls,
            label=number_label,
            scale=round_number,
            lines={"before": {begin: figures.calls for begin, figures in before.items()}},
            is_open=is_open,
        ),
        "rate_chart": chart_of(
            rates,
            label=lambda part: f"{part:.0%}",
            scale=lambda _most: 1,
            lines={
                "before": {begin: rate for begin, figures in before.items() if (rate := figures.error_rate) is not None}
            },
            since=row.fails_since,
            is_open=is_open,
        ),
        "duration_chart": chart_of(
            durations,
            label=duration_label,
            scale=round_duration,
            lines={"before": p95(before), **lines, "p95": p95(of_tool.steps)},
            since=row.slower_since,
            is_open=is_open,
        ),
    }


def _rows(tools: Parts[Sequence[Tool]], period: Period, filters: Filters) -> list[ToolRow] | None:
    """Return the tools that were called in the period; None if counting the calls took too long."""
    found = compared(tools, period, filters.which)
    if found is None:
        return None
    called = [tool for tool in chain.from_iterable(tools.values) if tool.pk in found.now.by_tool]
    rows = by_change(rows_of(found, called, lambda tool: filters.links_of(tool, period.given)))
    return with_times(rows, tools, found, filters.which)


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
