"""The page of errors: failed calls of a period grouped by equal errors; each group leads to its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.readable import Parts, Readable
from access_app.readable_pages import readable_on_page
from access_app.visibility import ProjectScope, visible_to
from messages_app.admin.filters import readable_projects, scope_of_page
from messages_app.admin.keyset import VALUE_CHARACTERS
from messages_app.admin.time_zones import with_zone
from messages_app.safe_text import one_line
from messages_app.sql.pagination import IdRange
from traces_app.models import Tool
from traces_app.queries.error_groups import CountedGroups, Group, error_groups
from traces_app.queries.filters import ErrorFilterSet
from traces_app.queries.schemas.errors import ErrorSort

from .periods import Period, page_filters, warn_of_order, warn_of_project

PARAMETERS = ("project", "tool", "o")
"""The parameters of the page beside the range of times."""
GROUPS_LISTED = 50
OF_TOOL_LISTED = 10
_HEIGHT = 100
_COLUMNS: tuple[tuple[ErrorSort, Any], ...] = (
    ("count", gettext_lazy("Calls")),
    ("last_seen", with_zone(gettext_lazy("Last seen"))),
    ("first_seen", with_zone(gettext_lazy("First in this period"))),
)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar of a chart in the units of its view box."""

    x: int
    y: float
    height: float
    begin: datetime
    calls: int


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group with its chart, and the list of its calls."""

    group: Group
    bars: list[Bar]
    calls_url: str

    @property
    def width(self) -> int:
        """Width of the view box of the chart."""
        return 10 * len(self.bars)

    @property
    def tools(self) -> list[tuple[str, int]]:
        """The names of tools with their calls: tools of several projects may have the same."""
        calls: Counter[str] = Counter()
        for tool, count in self.group.tools:
            calls[tool.name] += count
        return calls.most_common()

    @property
    def other_tools(self) -> int:
        return self.group.tool_count - len(self.group.tools)


def errors_context(request: HttpRequest, period: Period) -> dict[str, Any]:
    """Return the context of the page."""
    projects = readable_projects(request)
    slug, tool = request.GET.get("project", ""), request.GET.get("tool", "")
    warn_of_project(request, projects)
    warn_of_order(request, get_args(ErrorSort))
    chosen = {"project": slug} if slug in projects else {}
    order = request.GET.get("o", "count")
    sort: ErrorSort = next((name for name in get_args(ErrorSort) if name == order), "count")
    readable = readable_on_page(request, scope_of_page(request, projects.get(slug)))
    if tool and _has_tool(readable, tool):
        chosen["tool"] = tool
    elif tool:
        text = _("Tool “%(name)s” is not in the projects of this page. The errors of all tools are shown.")
        messages.warning(request, text % {"name": one_line(tool, VALUE_CHARACTERS)})
    kept = {**chosen, **period.given}
    found = _found(readable, [tool] if "tool" in chosen else None, period.ids, sort, GROUPS_LISTED)
    return {
        **page_filters(period, kept, projects, slug, sort),
        "rows": None if found is None else [_row(group, found, kept) for group in found.groups],
        "found": found,
        "left_out": 0 if found is None else found.group_count - len(found.groups),
        "order": sort,
        "columns": [(name, label, f"?{urlencode({**kept, 'o': name})}") for name, label in _COLUMNS],
        "tool": chosen.get("tool", ""),
        "without_tool": f"?{urlencode({**{name: value for name, value in kept.items() if name != 'tool'}, 'o': sort})}",
    }


def _has_tool(readable: Readable, name: str) -> bool:
    if "\x00" in name:
        return False  # PostgreSQL has no such texts

    def has_tool(db: Database, scope: ProjectScope) -> bool:
        return visible_to(db.rows(Tool.objects).filter(name=name), scope).exists()

    return any(readable.each(has_tool))


def groups_of_tool(
    db: Database, tool: Tool, id_range: IdRange, given: Mapping[str, str]
) -> tuple[list[GroupRow] | None, int]:
    """Return the most frequent errors of a tool, and how many failed calls were read for them; None if reading took too long.

    `given` are the parameters of a list of calls for the range.
    """
    readable = Parts({db: ProjectScope(frozenset([tool.project_id]))})
    found = _found(readable, [tool.name], id_range, "count", OF_TOOL_LISTED, marks_new=False)
    kept = {"project": tool.project.slug, "tool": tool.name, **given}
    return (None, 0) if found is None else ([_row(group, found, kept) for group in found.groups], found.calls)


def _found(
    readable: Readable,
    tools: list[str] | None,
    id_range: IdRange,
    sort: ErrorSort,
    limit: int,
    *,
    marks_new: bool = True,
) -> CountedGroups | None:
    filters = ErrorFilterSet(QueryDict(), mask=None)
    if tools is not None:
        filters.given["tool"] = tools  # not as a parameter, in which the tool "" would be no tool
    try:
        rows = readable.rows(lambda db, scope: filters.found(db, scope, None).within(id_range))
        return error_groups(rows, sort, limit, marks_new=marks_new)
    except InvalidInput:
        return None  # it took too long


def _row(group: Group, found: CountedGroups, kept: Mapping[str, str]) -> GroupRow:
    most = max(group.steps.values(), default=0) or 1
    bars = []
    for index, begin in enumerate(found.beginnings):
        height = round(_HEIGHT * group.steps[begin] / most, 2)
        bars.append(Bar(x=10 * index, y=_HEIGHT - height, height=height, begin=begin, calls=group.steps[begin]))
    calls = reverse("admin:traces_app_toolcall_changelist")
    query = {**kept, "status": "error", "error_group": group.id}
    return GroupRow(group=group, bars=bars, calls_url=f"{calls}?{urlencode(query)}")
