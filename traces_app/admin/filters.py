"""The filters of the lists of sessions, messages and calls that read runs; their kinds are in messages_app.admin.filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.models import Role
from access_app.readable_pages import shown_on_page
from access_app.request_database import database
from access_app.roles import access
from access_app.visibility import ProjectScope, visible_to
from messages_app.admin.filters import (
    MANY,
    Chip,
    InvalidFilter,
    NameFilter,
    RangeListFilter,
    SessionNameFilter,
    TextListFilter,
    WordListFilter,
    YesNoListFilter,
    ids_of_page,
)
from messages_app.models import Message
from messages_app.queries import as_uuid
from messages_app.safe_text import is_plain
from messages_app.sql.pagination import IdRange, ids_below
from traces_app.models import Tool, ToolCall
from traces_app.queries.error_groups import pattern_of_call
from traces_app.queries.filters import CallFilterSet, MessageFilterSet, SessionFilterSet
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.step_names import StepNames, newest_names

from .flag_labels import FLAG_LABELS
from .list_filters import DurationFilter, MessageUserFilter

RUNS_SEARCHED = 1_000
"""The list of a session's calls has those of its newest runs."""


def tool_numbers(db: Database, name: str) -> list[int]:
    """Return the ids of the tools with a name, for constants instead of a join, so that the planner can estimate: see
    traces_app.queries.filters."""
    return list(db.rows(Tool.objects).filter(name=name).values_list("pk", flat=True))


class ToolFilter(NameFilter):
    """Filter by the exact name of a tool; base class for the lists of messages, sessions and calls."""

    title = gettext_lazy("tool")
    parameter_name = "tool"

    def suggestions(self) -> Sequence[str]:
        def names(db: Database, scope: ProjectScope) -> list[str]:
            return list(
                visible_to(db.rows(Tool.objects).order_by("name"), scope)
                .values_list("name", flat=True)
                .distinct()[:MANY]
            )

        return _suggested(shown_on_page(self.request, access(self.request).scope(Role.VIEWER)).each(names))


class MessageToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        db = Database.of(queryset)
        found: QuerySet[Any] = MessageFilterSet.narrow(queryset, {"tool": tool_numbers(db, name)}, ids_of_page(request))
        return found


class MessageToolStatusFilter(WordListFilter):
    """Filter by the status of a call; together with a tool: of a call of this tool."""

    title = gettext_lazy("status of a call")
    parameter_name = "tool_status"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = dict(ToolCall.Status.choices)

    def beside(self, request: HttpRequest) -> Mapping[str, Any]:
        db = database(request)
        name = request.GET.get(ToolFilter.parameter_name, "").strip()
        return {"tool": tool_numbers(db, name)} if name else {}

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class SessionToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        db = Database.of(queryset)
        found: QuerySet[Any] = SessionFilterSet.narrow(queryset, {"tool": tool_numbers(db, name)})
        return found


class CallToolFilter(ToolFilter):
    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        db = Database.of(queryset)
        found: QuerySet[Any] = CallFilterSet.narrow(queryset, {"tool": tool_numbers(db, name)})
        return found


class SessionOutcomeFilter(WordListFilter):
    title = gettext_lazy("outcome")
    parameter_name = "outcome"
    filter_set = SessionFilterSet
    words: ClassVar[Any] = dict(Outcome.choices)

    def linked_values(self) -> Sequence[tuple[str, Any]]:
        return [*self.options(), ("", gettext_lazy("Any outcome"))]


class OutcomeFilter(SessionOutcomeFilter):
    filter_set = MessageFilterSet


class HealthFilter(WordListFilter):
    title = gettext_lazy("health")
    parameter_name = "health"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = FLAG_LABELS

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


def suggested_names(request: HttpRequest) -> StepNames:
    """Return the names that the filters of a page suggest, of projects that the reader may see. They are read once a page."""
    found: StepNames | None = getattr(request, "suggested_names", None)
    if found is None:
        names = shown_on_page(request, access(request).scope(Role.VIEWER)).each(newest_names)
        found = StepNames(
            models=_suggested(each.models for each in names), agents=_suggested(each.agents for each in names)
        )
        request.suggested_names = found  # type: ignore[attr-defined]  # read only here
    return found


def _suggested(of_each: Iterable[Sequence[str]]) -> list[str]:
    """Return the names of all databases, from those of each."""
    return [name for name in sorted(set().union(*of_each)) if is_plain(name)][:MANY]


class SessionModelFilter(TextListFilter):
    title = gettext_lazy("model")
    parameter_name = "model"
    filter_set = SessionFilterSet

    def suggestions(self) -> Sequence[str]:
        return suggested_names(self.request).models


class SessionAgentFilter(TextListFilter):
    title = gettext_lazy("agent")
    parameter_name = "agent"
    filter_set = SessionFilterSet

    def suggestions(self) -> Sequence[str]:
        return suggested_names(self.request).agents


class MessageModelFilter(SessionModelFilter):
    filter_set = MessageFilterSet

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class MessageAgentFilter(SessionAgentFilter):
    filter_set = MessageFilterSet

    def bounds(self, request: HttpRequest) -> IdRange:
        return ids_of_page(request)


class CallModelFilter(MessageModelFilter):
    filter_set = CallFilterSet


class CallAgentFilter(MessageAgentFilter):
    filter_set = CallFilterSet


class CallUserFilter(MessageUserFilter):
    filter_set = CallFilterSet


class SessionScoreFilter(RangeListFilter):
    """Filter by the scores of a session, its messages and calls: their name, and the range of their numbers."""

    title = gettext_lazy("score")
    template = "admin/score_filter.html"
    parameter_names = ("score", "min_score", "max_score")
    filter_set = SessionFilterSet

    def shown_value(self) -> str:
        name, least, most = (self.given.get(name, "") for name in self.parameter_names)
        if least and most:
            return f"{name} {least} – {most}".strip()
        return f"{name} {f'≥ {least}' if least else f'≤ {most}' if most else ''}".strip()

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        values = {name: self.given.get(name, "") for name in self.parameter_names}
        yield {**values, "contradiction": self.contradiction}


class MessageScoreFilter(SessionScoreFilter):
    filter_set = MessageFilterSet


class CallScoreFilter(SessionScoreFilter):
    filter_set = CallFilterSet


class CallStatusFilter(WordListFilter):
    title = gettext_lazy("status")
    parameter_name = "status"
    filter_set = CallFilterSet
    words: ClassVar[Any] = dict(ToolCall.Status.choices)


class CallReflectionFilter(YesNoListFilter):
    title = gettext_lazy("reflection")
    parameter_name = "has_reflection"
    filter_set = CallFilterSet


class CallDurationFilter(DurationFilter):
    filter_set = CallFilterSet


class CallSessionFilter(SessionNameFilter):
    """Filter by session. Its runs are looked up first, because calls only have the id of their message."""

    def of_session(self, request: HttpRequest, queryset: QuerySet[Any], session: UUID) -> QuerySet[Any]:
        db = Database.of(queryset)
        runs = db.rows(Message.with_deleted).filter(session_id=session, call_count__gt=0)
        if request.GET.get(CallStatusFilter.parameter_name) == ToolCall.Status.ERROR:
            runs = runs.filter(failure_count__gt=0)
        found = list(runs.order_by("-pk").values_list("pk", flat=True)[:RUNS_SEARCHED])
        return queryset.filter(message_id__in=found, **ids_below(found)) if found else queryset.none()


class CallErrorGroupFilter(NameFilter):
    title = gettext_lazy("error group")
    parameter_name = "error_group"

    def shown_value(self) -> str:
        """Return enough of the hash to tell groups apart, for a list without a row."""
        return f"{self.value[:8]}…"

    def chips(self, changelist: ChangeList) -> Iterator[Chip]:
        """Yield the chip with the error of the group, which is that of each row. One query."""
        for chip in super().chips(changelist):
            row = next(iter(changelist.result_list), None)
            pattern = row and pattern_of_call(Database.of_row(row), row.pk)
            yield replace(chip, text=pattern or chip.text)

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        found: QuerySet[Any] = CallFilterSet.narrow(queryset, {"error_group": name})
        return found


class MessageIdFilter(NameFilter):
    """Filter rows of a message by its id."""

    title = gettext_lazy("message ID")
    parameter_name = "message"

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        message = as_uuid(name)
        if message is None:
            raise InvalidFilter(self.title, name, _("Use the ID of the message."))
        return queryset.filter(message_id=message)
