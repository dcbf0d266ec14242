"""The page of errors: failed calls of a period grouped by equal errors, and beside them one group, which leads to its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.masked_reading import mask_of
from access_app.readable import Readable, ReadableRows
from access_app.readable_pages import readable_on_page
from access_app.visibility import ProjectScope, visible_to
from messages_app.admin.filters import readable_projects, scope_of_page
from messages_app.admin.keyset import VALUE_CHARACTERS
from messages_app.safe_text import is_plain, one_line
from messages_app.sql.pagination import IdRange, ListRows
from traces_app.models import Tool
from traces_app.queries.error_groups import (
    CountedGroups,
    Group,
    end_users,
    error_groups,
    facets,
    first_calls,
    newest_calls,
)
from traces_app.queries.filters import ErrorFilterSet
from traces_app.queries.questions import near_good_run
from traces_app.queries.schemas.errors import ErrorSort
from tracesite_sdk.records import ids

from .charts import Amount, Chart, Slot, chart_of, name_of, number_label, round_number
from .error_states import SHOWN, Decisions, editable, notes_of
from .home_charts import parameter_of
from .labels import url_of_user
from .periods import Period, page_filters, warn_of_order, warn_of_project
from .run_page import read_call
from .similar_page import CALLS_READ, SimilarCall, calls_shown
from .sparklines import Sparkline, sparkline

FILTERS = ("tool", "agent", "end_user")
"""Those that the list of failed calls has, too."""
PARAMETERS = ("project", *FILTERS, "q", "state", "o", "group")
"""The parameters of the page beside the range of times."""
GROUPS_LISTED = 50
MOST_FREQUENT = 10
RUNS_LISTED = 5
_CHOICES = 200
"""Tools and agents that are offered."""
_WORDS = 10
_HEADLINE_CHARACTERS = 300
_COLUMNS: tuple[tuple[ErrorSort, Any], ...] = (
    ("count", gettext_lazy("Calls")),
    ("last_seen", gettext_lazy("Last")),
    ("first_seen", gettext_lazy("First")),
)


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group with its chart, and the list of its calls."""

    group: Group
    chart: Sparkline
    calls_url: str
    first_at: datetime
    """The time of the first call, also before the period."""
    status: str = ""
    """Empty where nobody decides."""

    @property
    def tools(self) -> list[tuple[str, int]]:
        """The names of tools with their calls: tools of several projects may have the same."""
        calls: Counter[str] = Counter()
        for tool, count in self.group.tools:
            calls[tool.name] += count
        return calls.most_common()

    @property
    def headline(self) -> str:
        """The beginning of the error of the newest call, with its values; its group names only what all calls share."""
        return one_line(self.group.error, _HEADLINE_CHARACTERS)

    @property
    def is_cut(self) -> bool:
        """Whether the headline lacks a part of that error."""
        return self.headline != self.group.error.strip()

    @property
    def is_pattern(self) -> bool:
        """Whether the calls of the group have errors that differ in their values."""
        return one_line(self.group.pattern, _HEADLINE_CHARACTERS) != self.headline

    @property
    def status_label(self) -> Any:
        return SHOWN[self.status][0]

    @property
    def other_tools(self) -> int:
        return self.group.tool_count - len(self.group.tools)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A filter of the page: its values with the number of calls under the other filters."""

    name: str
    label: Any
    any: Any
    value: str
    values: list[tuple[str, int]]
    """Without names that have characters that browsers hide."""

    @property
    def is_offered(self) -> bool:
        """Whether the chosen value is one of the values."""
        return not self.value or self.value in dict(self.values)


def errors_context(request: HttpRequest, period: Period) -> dict[str, Any]:
    """Return the context of the page."""
    projects = readable_projects(request)
    slug = request.GET.get("project", "")
    warn_of_project(request, projects)
    warn_of_order(request, get_args(ErrorSort))
    order = request.GET.get("o", "count")
    sort: ErrorSort = next((name for name in get_args(ErrorSort) if name == order), "count")
    shown = next((name for name in SHOWN if name == request.GET.get("state")), "open")
    scope = scope_of_page(request, projects.get(slug))
    readable = readable_on_page(request, scope)
    # PostgreSQL has no texts with null characters, so nothing has such a name.
    chosen = {name: request.GET[name].replace("\x00", "\ufffd") for name in FILTERS if request.GET.get(name)}
    if "tool" in chosen and not _has_tool(readable, chosen["tool"]):
        text = _("Tool “%(name)s” is not in the projects of this page. The errors of all tools are shown.")
        messages.warning(request, text % {"name": one_line(chosen.pop("tool"), VALUE_CHARACTERS)})
    of_calls = {**({"project": slug} if slug in projects else {}), **chosen, **period.given}
    words = _words(request)
    kept = {**of_calls, **({"q": " ".join(words)} if words else {}), **({"state": shown} if shown != "open" else {})}
    others = {name: value for name, value in of_calls.items() if name not in period.given}
    decisions = Decisions(scope)

    def is_shown(group: str, last_calls: Mapping[int, UUID]) -> bool:
        return decisions.status(group, last_calls) in SHOWN[shown][1]

    rows = _failed(readable, chosen, period.ids)
    try:
        found = error_groups(rows, sort, GROUPS_LISTED, words=words, keep=is_shown)
        of_user = {name: value for name, value in chosen.items() if name == "end_user"}
        calls = facets(_failed(readable, of_user, period.ids), words)
    except InvalidInput:  # it took too long
        found, calls = None, Counter()
    groups: list[GroupRow] = []
    first_since = None
    if found is not None:
        firsts, first_since = _first_calls(rows, found)
        groups = [
            _row(group, found, of_calls, first=firsts[group.id], status=decisions.status(group.id, group.last_calls))
            for group in found.groups
        ]
        if sort == "first_seen":
            groups.sort(key=lambda row: row.first_at, reverse=True)
    selected = next((row for row in groups if row.group.id == request.GET.get("group")), next(iter(groups), None))
    return {
        **page_filters(period, kept, projects, slug, sort),
        "rows": None if found is None else groups,
        "found": found,
        "first_since": first_since,
        "left_out": 0 if found is None else found.group_count - len(found.groups),
        "order": sort,
        "columns": [(name, label, f"?{urlencode({**kept, 'o': name})}") for name, label in _COLUMNS],
        "by_tool": f"?{urlencode({**kept, 'o': 'tool'})}",
        "query": " ".join(words),
        "choices": _choices(calls, chosen),
        "states": [(name, label) for name, (label, _statuses) in SHOWN.items()],
        "state": shown,
        "end_user": chosen.get("end_user", ""),
        "period_values": {
            name: value for name, value in {**of_calls, "o": sort}.items() if name not in ("tool", "agent")
        },
        "selected": selected,
        **(
            {}
            if selected is None or found is None
            else {
                **_selected_context(request, rows, selected.group),
                "chart": _chart(selected.group, found, others, is_open=not period.ids.upper),
            }
        ),
    }


def _first_calls(rows: ReadableRows[ListRows], found: CountedGroups) -> tuple[dict[str, UUID], datetime | None]:
    """Return the first calls of the groups, and since when all failed calls were read for them; those of the period if it takes too long."""
    try:
        return first_calls(rows, found)
    except InvalidInput:
        since = found.counted_from or found.beginnings[0]
        return {group.id: group.first for group in found.groups}, since


def _chart(group: Group, found: CountedGroups, kept: Mapping[str, str], *, is_open: bool) -> Chart:
    """Draw the calls of a group, each bar with a link to its own."""
    slots = []
    for begin in found.beginnings:
        calls = group.steps[begin]
        words = ngettext("%(number)s call", "%(number)s calls", calls) % {"number": intcomma(calls)}
        times = {"created_after": parameter_of(begin), "created_before": parameter_of(begin + found.step)}
        url = _url_of_calls(group, {**kept, **times}) if calls else ""
        amounts = [Amount(value=calls, kind="top")]
        slots.append(Slot(begin=begin, words=f"{name_of(begin, found.step)} · {words}", url=url, amounts=amounts))
    return chart_of(slots, label=number_label, scale=round_number, is_open=is_open)


def _selected_context(request: HttpRequest, rows: ReadableRows[ListRows], group: Group) -> dict[str, Any]:
    try:
        people = end_users(rows, group)
        calls = newest_calls(rows, group, CALLS_READ)
    except InvalidInput:
        people, calls = [], []
    runs: dict[UUID, tuple[Database, UUID]] = {}
    for db, call, message in calls:
        runs.setdefault(message, (db, call))
    newest = list(runs.values())[:RUNS_LISTED]
    shown: dict[UUID, SimilarCall] = {}
    for db in {db for db, _call in newest}:
        shown |= calls_shown(db, [call for other, call in newest if other == db])
    db, example = Database.of_row(group.example), shown.get(group.example.pk)
    good = None if example is None else near_good_run(db, example.listed.run)
    return {
        "call": read_call(db, group.example.pk),
        "runs": [shown[call] for _db, call in newest if call in shown],
        "compare_url": ""
        if good is None
        else reverse("admin:messages_app_message_compare", args=[group.example.message_id], query={"other": str(good)}),
        "people": [(name, calls, url_of_user(name)) for name, calls in people],
        "decisions": notes_of(group.id, group.last_calls),
        "editable": editable(request, group.last_calls),
    }


def _words(request: HttpRequest) -> list[str]:
    """Return the words that a pattern must have. None for a reader of masked values, who could guess these letter by letter."""
    words = request.GET.get("q", "").replace("\x00", "").split()[:_WORDS]
    if words and mask_of(request) is not None:
        messages.warning(request, _("Your role reads errors masked, so they cannot be searched."))
        return []
    return words


def _choices(calls: Counter[tuple[str, str]], chosen: Mapping[str, str]) -> list[Choice]:
    tools, agents = Counter[str](), Counter[str]()
    tool, agent = chosen.get("tool"), chosen.get("agent")
    for (name, of_agent), count in calls.items():
        if agent in (None, of_agent):
            tools[name] += count
        if tool in (None, name) and of_agent:
            agents[of_agent] += count
    named = (("tool", _("Tool"), _("All tools"), tools), ("agent", _("Agent"), _("All agents"), agents))
    return [
        Choice(
            name=name,
            label=label,
            any=any_,
            value=chosen.get(name, ""),
            # A chosen one without calls is offered, too, so that the form says what is shown.
            values=[
                one
                for one in {chosen.get(name, ""): 0, **dict(counts.most_common(_CHOICES))}.items()
                if is_plain(one[0])
            ],
        )
        for name, label, any_, counts in named
    ]


def _has_tool(readable: Readable, name: str) -> bool:
    def has_tool(db: Database, scope: ProjectScope) -> bool:
        return visible_to(db.rows(Tool.objects).filter(name=name), scope).exists()

    return any(readable.each(has_tool))


def frequent_errors(
    readable: Readable, chosen: Mapping[str, str], id_range: IdRange, kept: Mapping[str, str]
) -> tuple[list[GroupRow] | None, datetime | None]:
    """Return the most frequent errors of a tool or an end user, and since when they were counted if there are too many; no list if
    reading took too long.

    `kept` are the parameters of a list of the calls.
    """
    try:
        found = error_groups(_failed(readable, chosen, id_range), "count", MOST_FREQUENT, marks_new=False)
    except InvalidInput:
        return None, None
    return [_row(group, found, kept, first=group.first) for group in found.groups], found.counted_from


def _failed(readable: Readable, chosen: Mapping[str, str], id_range: IdRange) -> ReadableRows[ListRows]:
    filters = ErrorFilterSet(QueryDict(), mask=None)
    # Not as parameters, in which the tool "" would be no tool.
    filters.given |= {name: [value] if name == "tool" else value for name, value in chosen.items()}
    return readable.rows(lambda db, scope: filters.found(db, scope, None).within(id_range))


def _row(group: Group, found: CountedGroups, kept: Mapping[str, str], *, first: UUID, status: str = "") -> GroupRow:
    return GroupRow(
        group=group,
        chart=sparkline([group.steps[begin] or None for begin in found.beginnings], "top"),
        calls_url=_url_of_calls(group, kept),
        first_at=ids.created_at_of(first),
        status=status,
    )


def _url_of_calls(group: Group, kept: Mapping[str, str]) -> str:
    query = {**kept, "status": "error", "error_group": group.id}
    return f"{reverse('admin:traces_app_toolcall_changelist')}?{urlencode(query)}"
