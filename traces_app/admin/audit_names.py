"""The names of what entries of the audit log are about: titles of sessions, names of tools, users, projects and prices.

Entries have ids, because they hold no content of traces. The names are read for a page, by one query for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Manager, Q
from django.http import HttpRequest

from access_app.db import Database
from access_app.models import ActorKind, ApiKey, AuditEntry, Project
from access_app.readable_pages import readable_on_page
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Message, Session
from messages_app.queries import as_uuid
from traces_app.models import ModelPrice, ToolCall

Names = Mapping[tuple[str, str], str]
"""By type and id of the object."""
_SETTINGS: Mapping[str, Manager[Any]] = {
    "project": Project.objects,
    "apikey": ApiKey._default_manager,
    "user": get_user_model()._default_manager,
    "group": Group.objects,
    "modelprice": ModelPrice.objects,
}
MOST_NAMED = 20
_NAMED: Mapping[str, Callable[[str], Q]] = {
    "project": lambda name: Q(slug__icontains=name) | Q(name__icontains=name),
    "apikey": lambda name: Q(name__icontains=name) | Q(prefix=name),
    "user": lambda name: Q(**{f"{get_user_model().USERNAME_FIELD}__icontains": name}),
    "group": lambda name: Q(name__icontains=name),
}
_ACTORS: Mapping[str, ActorKind] = {"apikey": ActorKind.KEY, "user": ActorKind.USER}


def names_of(request: HttpRequest, scope: ProjectScope, entries: Iterable[AuditEntry]) -> Names:
    """Return the names of the objects of entries that have none, of those that are still there and in these projects."""
    wanted: dict[str, set[str]] = {}
    for entry in entries:
        if entry.object_id and not entry.object_name:
            wanted.setdefault(entry.object_type, set()).add(entry.object_id)
    found: dict[tuple[str, str], str] = {}
    for kind, rows in _SETTINGS.items():
        numbers = [int(key) for key in wanted.get(kind, ()) if key.isdecimal()]
        if numbers:
            found |= {(kind, str(key)): str(row) for key, row in rows.in_bulk(numbers).items()}
    keys = {kind: {key for key in wanted.get(kind, ()) if as_uuid(key)} for kind in ("session", "message", "toolcall")}
    if any(keys.values()):
        for part in readable_on_page(request, scope).each(lambda db, own: _of_traces(db, own, keys)):
            found |= part
    return found


def objects_named(name: str) -> Q:
    """Return what finds the entries about users, groups, projects and keys with this in their name, and of what users and keys did.

    Of each kind the first MOST_NAMED are looked for. Entries of traces are found by their ids, because titles are content.
    """
    found = Q(pk__in=())
    for kind, named in _NAMED.items():
        rows = _SETTINGS[kind].filter(named(name))[:MOST_NAMED]
        if keys := {str(row.pk): str(row) for row in rows}:
            found |= Q(object_type=kind, object_id__in=keys)
            if actor_kind := _ACTORS.get(kind):
                found |= Q(actor_name__in=keys.values(), actor_kind=actor_kind)
    return found


def _of_traces(db: Database, scope: ProjectScope, keys: Mapping[str, Collection[str]]) -> Names:
    """Return the names of traces in a database: a message is called by its session, a call by its tool."""
    found: dict[tuple[str, str], str] = {}
    messages: dict[Any, Any] = {}
    if keys["message"]:
        rows = visible_to(db.rows(Message.with_deleted).all(), scope).filter(pk__in=keys["message"])
        messages = dict(rows.values_list("pk", "session_id"))
    sessions: dict[Any, Session] = {}
    if wanted := {*keys["session"], *map(str, messages.values())}:
        sessions = visible_to(db.rows(Session.with_deleted).all(), scope).only("title", "external_id").in_bulk(wanted)
    found |= {("session", str(key)): str(session) for key, session in sessions.items()}
    found |= {("message", str(key)): str(sessions[above]) for key, above in messages.items() if above in sessions}
    if keys["toolcall"]:
        calls = visible_to(db.rows(ToolCall.with_deleted).all(), scope).filter(pk__in=keys["toolcall"])
        found |= {("toolcall", str(key)): name for key, name in calls.values_list("pk", "tool__name")}
    return found
