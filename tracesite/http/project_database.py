"""Each request writes in one database, and most read in one: that of its project. See docs/scaling.md.

Authentication finds the project of a key. For a login it is the project in the address, else that of the ids in it. Without
either lists and figures are merged of all databases (access_app.readable); other pages show the projects of one, and say which
are not shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.db import OperationalError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.functional import SimpleLazyObject

from access_app.db import PRIMARY, Database, all_aliases
from access_app.models import Project, Role
from access_app.places import alias_of, aliases_of, id_of, places
from access_app.readable_pages import databases_shown
from access_app.request_database import use_alias
from access_app.roles import access
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Message, Session
from traces_app.models import AgentStep, Score, Snapshot, Tool, ToolCall

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MOST_IDS = 4
_WITH_ID = (Session, Message, ToolCall, AgentStep, Score, Snapshot)
_TOOL_PAGES = "traces_app_tool_"


class ProjectDatabaseMiddleware:
    """In the settings only if there are several databases; inside of those that find out who is logged in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.user.is_authenticated:
            use_alias(request, _alias_for_login(request))
        request.projects_elsewhere = SimpleLazyObject(partial(_elsewhere, request))  # type: ignore[attr-defined]
        return self.get_response(request)


def _alias_for_login(request: HttpRequest) -> str:
    if slug := request.GET.get("project"):
        project_id = id_of(slug)
        return PRIMARY if project_id is None else alias_of(project_id)
    readable = aliases_of(access(request).scope(Role.VIEWER))
    if len(readable) == 1:
        return readable.pop()
    found = _alias_with_rows(request)
    request.is_in_one_database = found is not None  # type: ignore[attr-defined]
    return found or PRIMARY


def _alias_with_rows(request: HttpRequest) -> str | None:
    """Return the alias of the database that has a row with an id in the path; None without one."""
    ids = [UUID(found) for found in _UUID.findall(request.path)[:_MOST_IDS]]
    tool = _tool_in(request)
    away: OperationalError | None = None
    for alias in all_aliases() if ids or tool else ():
        named: list[Any] = [(model, {"pk__in": ids}) for model in _WITH_ID if ids]
        if tool:
            named.append((Tool, {"pk": tool}))
        try:
            if any(Database(alias).rows(model._base_manager).filter(**which).exists() for model, which in named):
                return alias
        except OperationalError as error:
            # What another has is shown.
            away = error
    if away is not None:
        raise away
    return None


def _tool_in(request: HttpRequest) -> int | None:
    try:
        match = resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None
    if not (match.url_name or "").startswith(_TOOL_PAGES):
        return None
    found = next((value for value in (*match.kwargs.values(), *match.args) if str(value).isdecimal()), None)
    return None if found is None else min(int(found), Tool._meta.get_field("id").MAX_BIGINT)


def _elsewhere(request: HttpRequest) -> list[Project]:
    """Return the projects that the login may read, and that are not in the database of this response."""
    where, shown = places(), {db.alias for db in databases_shown(request)}
    scope: ProjectScope = access(request).scope(Role.VIEWER)
    return [one for one in visible_to(Project.objects.all(), scope, "pk") if where.get(one.pk, PRIMARY) not in shown]
