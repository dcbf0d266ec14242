"""The page of the audit log: search it, read one entry, export it. Nobody changes it, and only owners see it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from django.apps import apps
from django.contrib import admin
from django.db.models import BooleanField, DateTimeField, F, Field, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import Page
from access_app.models import SETTINGS, ActorKind, AuditAction, AuditEntry, AuditResult, Membership, Role
from access_app.visibility import ProjectScope
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.exports import Export, text
from messages_app.admin.filters import (
    CreatedFilter,
    InvalidFilter,
    ProjectFilter,
    TextListFilter,
    WordListFilter,
    one_of,
)
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.time_zones import with_zone
from messages_app.audit_log import KINDS, AuditFilterSet, entries_visible_to
from messages_app.safe_text import moment, one_line, visible

from .audit_names import names_of, objects_named
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
    "toolcall": "traces_app_toolcall",
    "score": "traces_app_score",
    "project": "access_app_project",
    "apikey": "access_app_apikey",
    "modelprice": "traces_app_modelprice",
    "user": "auth_user",
    "group": "auth_group",
}
"""The admins of types of objects with a page. One of an object that is gone leads to its list, which says so."""
_OF_PASSWORDS = ("admin:password_change", "admin:auth_user_password_change")
_ID = re.compile("[0-9a-f-]+")
_COLON = re.compile("[:：]")
LABELS: Mapping[str, str | Promise] = {
    "role": gettext_lazy("role"),
    "rules": gettext_lazy("rules"),
    "masked": gettext_lazy("masked"),
    "is_staff": gettext_lazy("may use this site"),
    "is_superuser": gettext_lazy("administrator"),
}
"""The names of what is no field of its object, such as the number of rows that masking changed, or is called otherwise on its page."""
CHARACTERS = 80
"""The longest text in the list."""


class KindFilter(WordListFilter):
    """What was done in one word, changes of settings first: most entries are of reads."""

    title = gettext_lazy("kind")
    parameter_name = "kind"
    in_api = False
    words: ClassVar[Any] = {
        "settings": gettext_lazy("settings changed"),
        "traces": gettext_lazy("traces changed"),
        "reads": gettext_lazy("reads"),
        "logins": gettext_lazy("logins"),
    }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        if self.value not in KINDS:
            raise InvalidFilter(self.title, self.value, one_of(KINDS))
        return queryset.filter(KINDS[self.value])


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
    rows_name = gettext_lazy("entries")
    list_filter = (
        *(ProjectFilter, KindFilter, ActionFilter, ResultFilter, ActorKindFilter, ActorFilter),
        *(ObjectTypeFilter, ObjectIdFilter, AddressFilter, RecordedFilter),
    )
    list_display = ("at", "actor", "done", "what", "changed", "where", "address", "outcome")
    columns = Columns(("at", "actor", "done", "what", "changed", "where", "address", "outcome", "request_id", "place"))
    fieldsets = (
        (None, {"fields": ("at", "actor", "done", "what", "changed", "where", "address", "outcome")}),
        (
            gettext_lazy("Technical details"),
            {
                "classes": ("collapse",),
                "fields": (*("actor_id", "object_id", "request_id", "details", "sequence", "previous_hash", "hash"),),
            },
        ),
    )
    search_help_text = gettext_lazy(
        "Search by the name of an actor, a user, a group, a project, a rule or a key, by an ID or an address."
    )
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

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> AuditEntry | None:
        row: AuditEntry | None = super().get_object(request, object_id, from_field)
        if row is not None:
            _name_objects(request, self.scope(request), [row])
        return row

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show an entry, whose title says who did what to what."""
        answer = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data is not None:
            answer.context_data["subtitle"] = _sentence(answer.context_data["original"])
        return answer

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Return the columns; of the usual ones without those that say the same of each row."""
        _name_objects(request, self.scope(request), rows)
        if list(columns) != list(self.list_display):
            return list(columns)
        left_out = set() if any(map(_changes_of, rows)) or any(map(_is_of_password, rows)) else {"changed"}
        if all(row.result == AuditResult.ALLOWED for row in rows):
            left_out.add("outcome")
        return [name for name in columns if name not in left_out]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term or "\x00" in term:
            return (queryset.none() if term else queryset), False
        found = objects_named(term)
        for name in ("actor_name", "object_name", "object_id", "request_id", "address"):
            found |= Q(**{name: term})
        return queryset.filter(found), False

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
        # The filter takes the type as it is stored.
        shown = visible(one_line(_name_of(row), CHARACTERS))
        shown = format_html('<span title="{}">{}</span> <bdi>{}</bdi>', row.object_type, _type_of(row), shown)
        url = _url_of(row)
        return format_html('<a href="{}" title="{}">{}</a>', url, row.object_id, shown) if url else shown

    @admin.display(description=gettext_lazy("changes"))
    def changed(self, row: AuditEntry) -> SafeString:
        """Return what was there and what is there now, of each field that was changed; of what is new, its fields."""
        fields = _fields_of(row.object_type)
        lines = [
            format_html(
                '<span class="quiet">{}</span> {}',
                _label_of(fields.get(name), name),
                format_html_join(" → ", "<bdi>{}</bdi>", ((_value_of(fields.get(name), value),) for value in values)),
            )
            for name, values in _changes_of(row).items()
        ]
        if _is_of_password(row):
            lines.append(format_html('<span class="quiet">{}</span>', _("password, whose value is not recorded")))
        return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))

    @admin.display(description=gettext_lazy("project"))
    def where(self, row: AuditEntry) -> str:
        if row.project is not None:
            return row.project.slug
        several = row.detail.get("projects")
        return "" if several is None else _("All projects") if several == "all" else _("several projects")

    @admin.display(description=gettext_lazy("result"))
    def outcome(self, row: AuditEntry) -> str:
        return str(row.get_result_display())

    @admin.display(description=gettext_lazy("number in the chain"), empty_value="–")
    def place(self, row: AuditEntry) -> int | None:
        return row.sequence

    @admin.display(description=gettext_lazy("detail"))
    def details(self, row: AuditEntry) -> SafeString:
        return format_html("<pre>{}</pre>", visible(json.dumps(row.detail, indent=1, ensure_ascii=False)))


def _name_objects(request: HttpRequest, scope: ProjectScope, rows: Sequence[Any]) -> None:
    names = names_of(request, scope, rows)
    for row in rows:
        row.found_name = names.get((row.object_type, row.object_id), "")


def _name_of(entry: AuditEntry) -> str:
    return entry.object_name or getattr(entry, "found_name", "") or entry.object_id


def _sentence(entry: AuditEntry) -> str:
    """Return who did what to what, in the words of the list: "jonas: create · masking rule mail"."""
    name = one_line(_name_of(entry), CHARACTERS)
    words = {"actor": entry.actor_name, "action": entry.get_action_display()}
    return _("%(actor)s: %(action)s · %(object)s") % {**words, "object": f"{_type_of(entry)} {name}".strip()}


def _changes_of(entry: AuditEntry) -> Mapping[str, Sequence[Any]]:
    """Return what was changed, each before and after; of what somebody made, deleted or got, the one value that it has."""
    changes = entry.detail.get("changes")
    if isinstance(changes, dict):
        begins = 1 if entry.action == AuditAction.CREATE else 0
        return {name: pair[begins:] for name, pair in changes.items() if isinstance(pair, list) and len(pair) == 2}
    if entry.action == AuditAction.KEY_REVOKE:  # it has no scopes from then on
        return {}
    names = (*_fields_of(entry.object_type), "role", "rules", "masked")
    return {name: [entry.detail[name]] for name in names if entry.detail.get(name) not in (None, "")}


def _is_of_password(entry: AuditEntry) -> bool:
    return entry.action == AuditAction.CHANGE and entry.detail.get("route") in _OF_PASSWORDS


@cache
def _fields_of(object_type: str) -> Mapping[str, Field[Any, Any]]:
    """Return the fields of a setting by name; those of a member are the role."""
    if object_type not in SETTINGS:
        return {}
    models = [model for model in apps.get_models() if model._meta.model_name == object_type.replace("_", "")]
    fields = {field.name: field for model in models for field in model._meta.concrete_fields}
    return {**fields, "role": Membership._meta.get_field("role")} if object_type in ("user", "group") else fields


def _label_of(field: Field[Any, Any] | None, name: str) -> str | Promise:
    """Return the name of a field for people; as it is stored, if its model has no such field."""
    return LABELS.get(name) or (name if field is None else field.verbose_name)


def _value_of(field: Field[Any, Any] | None, value: Any) -> SafeString:
    """Return a value of the log for people: a choice in words, as far as its colon, and a time in their zone."""
    if value == "":
        return format_html("{}", _("empty"))
    base = getattr(field, "base_field", field)
    words = {str(choice): str(label) for choice, label in getattr(base, "flatchoices", ())}
    if isinstance(base, BooleanField):
        words = {"true": _("yes"), "false": _("no")}
        value = value if isinstance(value, str) else json.dumps(value)
    if isinstance(base, DateTimeField) and (time := parse_datetime(str(value))):
        return moment(time)
    parts = value if isinstance(value, list) else str(value).split(", ") if words else [value]
    said = ", ".join(_COLON.split(words.get(str(part), str(part)))[0] if words else str(part) for part in parts)
    return visible(one_line(said, CHARACTERS))


def _url_of(entry: AuditEntry) -> str:
    """Return the page of an object; a masking rule is on that of its project. "" if it has none."""
    try:
        if entry.object_type == "masking_rule" and entry.project_id is not None:
            return reverse("admin:access_app_project_change", args=[entry.project_id]) + "#masking_rules-heading"
        if entry.object_type == "maskingrun" and entry.project_id is not None:
            return reverse("admin:traces_app_maskingrun_project", args=[entry.project_id])
        if entry.object_type in PAGES and _ID.fullmatch(entry.object_id):
            return reverse(f"admin:{PAGES[entry.object_type]}_change", args=[entry.object_id])
    except NoReverseMatch:  # another Django project may have users of its own
        pass
    return ""


def _type_of(entry: AuditEntry) -> str | Promise:
    """Return the type of the object for people; as it is stored, if we have no word for it."""
    return OBJECTS.get(entry.object_type) or _model_names().get(entry.object_type) or entry.object_type


@cache
def _model_names() -> dict[str | None, str | Promise | None]:
    return {model._meta.model_name: model._meta.verbose_name for model in apps.get_models()}
