"""The filters of the lists of sessions and messages. Each is a parameter of the REST API, except those with `in_api = False`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from access_app.models import Project
from messages_app.admin.filters import (
    RangeListFilter,
    Sort,
    TextListFilter,
    WordListFilter,
    YesNoListFilter,
)
from messages_app.http.filters import MessageFilterSet, SessionFilterSet
from messages_app.models import Message, Session

SORTS: Mapping[str, Sort] = {
    "duration": Sort(column="took", value="duration_ms", title=gettext_lazy("Slowest first")),
    "cost": Sort(column="spent", value="cost", title=gettext_lazy("Most expensive first")),
    "tokens": Sort(
        column="tokens", value=F("input_tokens") + F("output_tokens"), title=gettext_lazy("Most tokens first")
    ),
    "failures": Sort(column="failures", value="failure_count", title=gettext_lazy("Most failures first")),
}
"""The orders of sessions and runs."""


class SessionStatusFilter(WordListFilter):
    title = gettext_lazy("status")
    parameter_name = "status"
    filter_set = SessionFilterSet
    words: ClassVar[Any] = dict(Session.Status.choices)


class SessionErrorsFilter(YesNoListFilter):
    title = gettext_lazy("problems")
    parameter_name = "has_errors"
    filter_set = SessionFilterSet


class RoleFilter(WordListFilter):
    title = gettext_lazy("role")
    parameter_name = "role"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = dict(Message.Role.choices)


class MessageErrorsFilter(YesNoListFilter):
    title = gettext_lazy("errors")
    parameter_name = "has_errors"
    filter_set = MessageFilterSet


class CompletedFilter(YesNoListFilter):
    title = gettext_lazy("status")
    parameter_name = "is_completed"
    filter_set = MessageFilterSet
    words: ClassVar[Any] = {"true": gettext_lazy("completed"), "false": gettext_lazy("still running")}


class SessionDurationFilter(RangeListFilter):
    title = gettext_lazy("duration (ms)")
    parameter_names = ("min_duration", "max_duration")
    filter_set = SessionFilterSet
    input_type = "number"


class DurationFilter(SessionDurationFilter):
    filter_set = MessageFilterSet


class SessionCostFilter(RangeListFilter):
    title = gettext_lazy("cost (USD)")
    parameter_names = ("min_cost", "max_cost")
    filter_set = SessionFilterSet


class CostFilter(SessionCostFilter):
    filter_set = MessageFilterSet


class TagFilter(TextListFilter):
    title = gettext_lazy("tag")
    parameter_name = "tag"
    filter_set = SessionFilterSet


class EndUserFilter(TextListFilter):
    title = gettext_lazy("end user")
    parameter_name = "end_user"
    filter_set = SessionFilterSet

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        # With the projects, because the index of end users begins with them.
        of_projects = queryset.filter(project__in=Project.objects.values_list("pk", flat=True))
        return super().having(request, of_projects, name)


class MessageTagFilter(TextListFilter):
    title = gettext_lazy("tag of the session")
    parameter_name = "tag"
    filter_set = MessageFilterSet


class MessageUserFilter(TextListFilter):
    title = gettext_lazy("end user")
    parameter_name = "end_user"
    filter_set = MessageFilterSet
