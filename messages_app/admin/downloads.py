"""Download stored values as files, because pages show only the beginning of long ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import F, JSONField, Manager
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern

from access_app.admin_roles import Page
from access_app.db import Database
from access_app.request_database import database
from access_app.visibility import ProjectScope, visible_to
from messages_app.sql.beginnings import JsonText

if TYPE_CHECKING:
    from .keyset import KeysetAdmin


@dataclass(frozen=True, kw_only=True)
class Downloadable:
    """A table and its columns that may be downloaded."""

    rows: Manager[Any]
    columns: frozenset[str]


@dataclass(frozen=True)
class Downloads:
    """The values that pages of an admin offer as files."""

    sources: Mapping[str, Downloadable] = field(default_factory=dict)
    """Keyed by the name of their table in the URL."""

    def urls(self, model_admin: KeysetAdmin) -> list[URLPattern]:
        return [Page("value/<slug:table>/<uuid:key>/<slug:column>/", self.send, "value").url(model_admin)]

    def send(self, model_admin: KeysetAdmin, request: HttpRequest, table: str, key: UUID, column: str) -> HttpResponse:
        """Send one stored value as a file."""
        db = database(request)
        found = value_file(db, self.sources, table, key, column, model_admin.scope(request))
        return found or model_admin.missing(request)


def value_file(
    db: Database, sources: Mapping[str, Downloadable], table: str, key: UUID, column: str, scope: ProjectScope
) -> HttpResponse | None:
    """Return a value as an attachment; None if table, column or row do not exist in `scope`, or the value is empty.

    PostgreSQL indents JSON, so that numbers stay exact and an editor does not get one line of 5 MB.
    """
    source = sources.get(table)
    if source is None or column not in source.columns:
        return None
    is_json = isinstance(source.rows.model._meta.get_field(column), JSONField)
    value = JsonText(column, is_pretty=True) if is_json else F(column)
    rows = visible_to(db.rows(source.rows).filter(pk=key), scope)
    _id, text = rows.annotate(value=value).values_list("pk", "value").first() or (None, "")
    if not text:
        return None
    kind, extension = ("application/json", "json") if is_json else ("text/plain; charset=utf-8", "txt")
    headers = {"Content-Disposition": f'attachment; filename="{table}-{key}-{column}.{extension}"'}
    return HttpResponse(text, content_type=kind, headers=headers)
