"""The page of the audit log: search it, read one entry, export it. Nobody changes it, and only owners see it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from django.apps import apps
from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page
from access_app.models import ActorKind, AuditAction, AuditEntry, AuditResult, Role
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.exports import Export, text
from messages_app.admin.filters import CreatedFilter, ProjectFilter, TextListFilter, WordListFilter
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.time_zones import with_zone
from messages_app.audit_log import AuditFilterSet, entries_visible_to
from messages_app.safe_text import moment, one_line, visible

from .facets import send_facets

OBJECTS: Mapping[str, str | Promise] = {
    "home": gettext_lazy("home page"),
    "login": gettext_lazy("login"),
    "chain": gettext_lazy("run"),
    "run": gettext_lazy("run"),
    "month": gettext_lazy("period"),
    "archive": gettext_lazy("archive"),
    "database": gettext_lazy("database"),
    "erasure": gettext_lazy("erasure"),
    "data_key": gettext_lazy("data key"),
    "masking_rule": gettext_lazy("masking rule"),
    "media": gettext_lazy("file"),
    "search": gettext_lazy("search"),
}
"""The types of objects that are no models."""
PAGES: Mapping[str, str] = {
    "session": "messages_app_session",
    "message": "messages_app_message",
    "project": "access_app_project",
    "apikey": "access_app_apikey",
    "user": "auth_user",
}
"""The admins of types of objects with a page. One of an object that is gone leads to its list, which says so."""
_ID = re.compile("[0-9a-f-]+")
CHARACTERS = 80
"""The longest text in the list."""


class ActionFilter(WordListFilter):
    title = gettext_lazy("action")
    parameter_name = "action"
    filter_set = AuditFilterSet
    words: ClassVar[Any] = dict(AuditAction.choices)


class ActorKindFilter(WordListFilter):
    title = gettext_lazy("kind of actor")
    parameter_name = "actor_kind"
    filter_set = AuditFilterSet
    words: ClassVar[Any] = dict(ActorKind.choices)


class ResultFilter(WordListFilter):
    title = gettext_lazy("result")
    parameter_name = "result"
    filter_set = AuditFilterSet
    words: ClassVar[Any] = dict(AuditResult.choices)


class ActorFilter(TextListFilter):
    title = gettext_lazy("actor")
    parameter_name = "actor"
    filter_set = AuditFilterSet


class ObjectTypeFilter(TextListFilter):
    title = gettext_lazy("type of object")
    parameter_name = "object_type"
    filter_set = AuditFilterSet


class ObjectIdFilter(TextListFilter):
    title = gettext_lazy("id of the object")
    parameter_name = "object_id"
    filter_set = AuditFilterSet


class AddressFilter(TextListFilter):
    title = gettext_lazy("address")
    parameter_name = "address"
    filter_set = AuditFilterSet


class RecordedFilter(CreatedFilter):
    """Filter by time, which the ids of entries do not carry."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**self.times("time"))


@admin.register(AuditEntry)
class AuditEntryAdmin(KeysetAdmin):
    pages = (Page("facets/", send_facets, "facets"),)
    view_role = Role.OWNER
    api = ApiList(name="audit")
    list_filter = (
        *(ProjectFilter, ActionFilter, ResultFilter, ActorKindFilter, ActorFilter),
        *(ObjectTypeFilter, ObjectIdFilter, AddressFilter, RecordedFilter),
    )
    list_display = ("at", "actor", "done", "what", "where", "address", "outcome")
    columns = Columns(("at", "actor", "done", "what", "where", "address", "outcome", "request_id", "place"))
    fields = (
        *("at", "actor", "actor_id", "done", "what", "object_id", "where", "address", "request_id", "outcome"),
        *("details", "sequence", "previous_hash", "hash"),
    )
    search_help_text = gettext_lazy("Search by actor, ID of the object, ID of the request or address.")
    exports = Export(
        {
            **{name: F(name) for name in ("id", "time", "actor_kind", "actor_id", "action", "object_type", "result")},
            **{
                name: text(name)
                for name in ("actor_name", "object_id", "object_name", "address", "request_id", "detail")
            },
            "project": F("project__slug"),
            **{name: F(name) for name in ("sequence", "previous_hash", "hash")},
        }
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return entries_visible_to(self.scope(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term or "\x00" in term:
            return (queryset.none() if term else queryset), False
        found = [queryset.filter(**{name: term}) for name in ("actor_name", "object_id", "request_id", "address")]
        return found[0] | found[1] | found[2] | found[3], False

    @admin.display(description=with_zone(gettext_lazy("time")))
    def at(self, row: AuditEntry) -> SafeString:
        return moment(row.time)

    @admin.display(description=gettext_lazy("actor"))
    def actor(self, row: AuditEntry) -> SafeString:
        return format_html("{} {}", row.get_actor_kind_display(), visible(one_line(row.actor_name, CHARACTERS)))

    @admin.display(description=gettext_lazy("action"))
    def done(self, row: AuditEntry) -> str:
        return str(row.get_action_display())

    @admin.display(description=gettext_lazy("object"))
    def what(self, row: AuditEntry) -> SafeString:
        name = row.object_name or row.object_id
        # The filter takes the type as it is stored.
        shown = visible(one_line(name, CHARACTERS))
        shown = format_html('<span title="{}">{}</span> {}', row.object_type, _type_of(row), shown)
        if row.object_type not in PAGES or not _ID.fullmatch(row.object_id):
            return shown
        try:
            url = reverse(f"admin:{PAGES[row.object_type]}_change", args=[row.object_id])
        except NoReverseMatch:  # another Django project may have users of its own
            return shown
        return format_html('<a href="{}">{}</a>', url, shown)

    @admin.display(description=gettext_lazy("project"), empty_value="–")
    def where(self, row: AuditEntry) -> str | None:
        if row.project is not None:
            return row.project.slug
        several = row.detail.get("projects")
        return None if several is None else _("All projects") if several == "all" else _("several projects")

    @admin.display(description=gettext_lazy("result"))
    def outcome(self, row: AuditEntry) -> str:
        return str(row.get_result_display())

    @admin.display(description=gettext_lazy("number in the chain"), empty_value="–")
    def place(self, row: AuditEntry) -> int | None:
        return row.sequence

    @admin.display(description=gettext_lazy("detail"))
    def details(self, row: AuditEntry) -> SafeString:
        return format_html("<pre>{}</pre>", visible(json.dumps(row.detail, indent=1, ensure_ascii=False)))


def _type_of(entry: AuditEntry) -> str | Promise:
    """Return the type of the object for people; as it is stored, if we have no word for it."""
    return OBJECTS.get(entry.object_type) or _model_names().get(entry.object_type) or entry.object_type


@cache
def _model_names() -> dict[str | None, str | Promise | None]:
    return {model._meta.model_name: model._meta.verbose_name for model in apps.get_models()}
