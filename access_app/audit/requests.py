"""The one entry of each request: what it read or changed, for whom, and with which result.

Every route is recorded unless NOT_RECORDED names it, so that a new one is. Views and writes note what they found and wrote
(`trail`); everything else follows from the route and the method.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from django.db import Error
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch
from psycopg.errors import DiskFull

from access_app.models import ActorKind, AuditAction, AuditResult
from access_app.mounting import route_below_base, view_of
from tracesite_sdk.redaction.engine import redact

from .record import origin_of, record
from .trail import Actor, Origin, Trail, place_of

logger = logging.getLogger(__name__)

NOT_RECORDED = frozenset(
    [
        *("home", "set_language", "api", "schema", "docs", "healthz", "readyz", "metrics", "security_txt"),
        # Logins have entries of their own; see `logins`.
        *("admin:login", "admin:login_code", "admin:logout"),
        *("oidc_authentication_init", "oidc_authentication_callback", "oidc_logout"),
        *("admin:jsi18n", "admin:time_zone", "admin:app_list", "admin:settings"),
        "admin:messages_app_session_arrived",
        # By the route, because these have no name.
        *("info", "api/info", "langsmith/info", "api/public/health", r"admin/(?P<url>.*)$"),
    ]
)
"""Views by name, else by route, that show nothing of a project and change nothing."""

_TYPES = {
    "sessions": "session",
    "messages": "message",
    "tool-calls": "toolcall",
    "chains": "chain",
    "scores": "score",
    "tools": "tool",
    "audit": "auditentry",
}
"""The models whose lists these are; other routes are named by their last word."""
_PARAMETERS = {
    "score_id": "score",
    "call_id": "toolcall",
    "ref": "context",
    "chain_id": "chain",
    "message_id": "message",
    "session_id": "session",
    "run_id": "run",
    "feedback_id": "score",
    "media_id": "media",
    "entry_id": "auditentry",
}
"""Kinds of objects by the parameter that names them in routes, the innermost first."""
_OF_ADMIN = re.compile(r"admin:(?:[a-z]+_app|auth)_([a-z]+)_(\w+)")
_BY_METHOD = {
    "POST": AuditAction.CREATE,
    "PUT": AuditAction.CHANGE,
    "PATCH": AuditAction.CHANGE,
    "DELETE": AuditAction.DELETE,
}
_BY_WORD = {
    "export": AuditAction.EXPORT,
    "value": AuditAction.EXPORT,
    "search": AuditAction.SEARCH,
    "everything": AuditAction.SEARCH,
    "restore": AuditAction.RESTORE,
    "import": AuditAction.IMPORT,
}
OF_PAGES = {
    **_BY_WORD,
    "add": AuditAction.CREATE,
    "judge": AuditAction.CREATE,
    "connect": AuditAction.CREATE,
    "delete": AuditAction.DELETE,
    "purge": AuditAction.PURGE,
    **dict.fromkeys(
        ("change", "changelist", "columns", "mark", "project", "save_view", "saved_view", "trash", "undo"),
        AuditAction.CHANGE,
    ),
    **dict.fromkeys(
        (
            "compare",
            "detail",
            "errors",
            "history",
            "input",
            "live",
            "outline",
            "similar",
            "snapshot",
            "snapshots",
            "try",
        ),
        AuditAction.READ,
    ),
    **dict.fromkeys(
        ("arrived", "facets", "peek", "similar_calls", "spans", "statistics", "user", "words"), AuditAction.READ
    ),
}
"""Actions of our pages of the admin by the words of their names, if they do not say it themselves; all others change something. A GET
reads, unless its word is export, value or search."""
_OWN_PAGES = frozenset(["admin:two_factor", "admin:password_change", "admin:password_change_done"])
"""Pages of users about themselves."""
_SITE_WIDE = frozenset(["user", "group", "modelprice"])
"""Kinds of objects that belong to no project."""
_KEY_ONLY = frozenset(["recorder", "v3/auth/token", "api/public/projects"])
"""Views by name, else by route, that tell a key about itself and its project, and nothing of traces."""
_SOON = frozenset(
    [
        *(AuditAction.CREATE, AuditAction.CHANGE, AuditAction.KEY_USE),
        *(AuditAction.LIST, AuditAction.READ, AuditAction.SEARCH),
    ]
)
"""Frequent actions of programs, which do not wait for the disk: it would double the time of a small read."""
_PARAMETER_NAME = re.compile(r"[a-z_]{1,40}")
LISTED = 100
"""Most ids in one entry."""


class Subject(NamedTuple):
    """The kind of object that a route is about."""

    kind: str
    id: str
    word: str
    """The action of the page, as its name says."""


class AuditMiddleware:
    """Write the entry of the request before its answer leaves. Without the entry there is no answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        actor = request.actor = Actor(lambda: origin_of(request))  # type: ignore[attr-defined]  # read by actor_of
        response = self.get_response(request)
        match = request.resolver_match
        if match is not None and route_of(match) not in NOT_RECORDED:
            _record(request, match, response.status_code, actor.trail)
        return response


def route_of(match: ResolverMatch) -> str:
    """Return the name of a view, or the pattern of its URL if it has none."""
    return view_of(match) if match.url_name else route_below_base(match)


def _record(request: HttpRequest, match: ResolverMatch, status: int, trail: Trail) -> None:
    origin = _origin(request, trail)
    if origin is None or status in (405, 429):
        return
    subject = _subject(match, origin)
    # A form of a user or project may have changed it besides a role or rule, which has an entry of its own.
    is_recorded = subject.kind in trail.recorded or (trail.is_saved and bool(trail.recorded) and status < 400)
    if is_recorded and not trail.changes:
        return
    action = _action(request, match, subject, status, trail)
    result = (
        AuditResult.ALLOWED if status < 400 else AuditResult.REFUSED if status in (401, 403) else AuditResult.FAILED
    )
    project_id, projects = _place(subject, trail)
    ids = list(trail.objects.get(subject.kind, ()))
    detail: dict[str, Any] = {"route": route_of(match), "status": status, **projects, **trail.counts}
    if trail.changes:
        detail["changes"] = trail.changes
    if len(ids) > 1:
        detail |= {"ids": ids[:LISTED], "count": len(ids)}
    if request.GET:
        detail["parameters"] = sorted(name for name in request.GET if _PARAMETER_NAME.fullmatch(name))[:LISTED]
    try:
        record(
            action,
            None,
            project_id=project_id,
            object_type=subject.kind,
            object_id=ids[0] if len(ids) == 1 else subject.id,
            object_name=trail.object_name,
            result=result,
            detail=detail,
            origin=origin,
            soon=origin.kind == ActorKind.KEY and action in _SOON,
        )
    except Error as error:
        # Of a request that failed because the database is away, nothing was read or changed. And on a full disk people have to
        # see what is there: the log has what they read instead.
        is_read_on_full_disk = request.method in ("GET", "HEAD") and isinstance(error.__cause__, DiskFull)
        if status < 500 and not is_read_on_full_disk:
            raise
        logger.warning(
            "an entry of the audit log could not be written",
            exc_info=not is_read_on_full_disk,
            extra={
                "actor": f"{origin.kind} {origin.name}",
                "action": str(action),
                "project_id": project_id,
                "object": f"{subject.kind} {ids[0] if len(ids) == 1 else subject.id}",
                "detail": detail,
            },
        )


def _origin(request: HttpRequest, trail: Trail) -> Origin | None:
    """Return who acts; None for nobody who is known, such as requests without a valid key."""
    origin = origin_of(request, key=trail.key)
    if origin.kind != ActorKind.SYSTEM:
        return origin
    if not trail.actor:
        return None
    return replace(origin, name=trail.actor)


def _subject(match: ResolverMatch, origin: Origin) -> Subject:
    name = view_of(match) if match.url_name else ""
    if found := _OF_ADMIN.fullmatch(name):
        kind, word = found.groups()
        given = (
            match.kwargs.get("object_id")
            or match.kwargs.get(f"{kind}_id")
            or match.kwargs.get("id")
            or match.kwargs.get("key")
        )
        return Subject(kind, _clean(given), word)
    last = name.rpartition(":")[2].rpartition("-")[2]
    for parameter, kind in _PARAMETERS.items():
        if parameter in match.kwargs:
            return Subject(kind, _clean(match.kwargs[parameter]), last)
    if name in _OWN_PAGES:
        return Subject("user", origin.id, last)
    if name.startswith("admin:"):
        return Subject({"index": "home"}.get(last, last), "", last)
    parts = [part for part in route_below_base(match).split("/") if part and "<" not in part]
    return Subject(_TYPES.get(parts[-1], parts[-1]) if parts else "home", "", last)


def _action(request: HttpRequest, match: ResolverMatch, subject: Subject, status: int, trail: Trail) -> AuditAction:
    method = request.method or ""
    if route_of(match) in _KEY_ONLY:
        return AuditAction.KEY_USE
    is_page = "admin" in match.app_names
    if method in ("GET", "HEAD", "OPTIONS") or (is_page and status == 200 and trail.action is None):
        # A page of the admin that is shown again asks for a confirmation, or says what is wrong.
        if subject.word in ("export", "value", "search"):
            return _BY_WORD[subject.word]
        if request.GET.get("q"):
            return AuditAction.SEARCH
        if is_page and status == 403 and subject.word in ("add", "delete", "purge"):
            return OF_PAGES[subject.word]  # its form was refused
        return AuditAction.READ if subject.id else AuditAction.LIST
    if is_page:
        return trail.action or OF_PAGES.get(subject.word, AuditAction.CHANGE)
    return _BY_WORD.get(subject.word) or _BY_METHOD.get(method, AuditAction.CHANGE)


def _place(subject: Subject, trail: Trail) -> tuple[int | None, dict[str, Any]]:
    if trail.key is not None:
        return trail.key.project_id, {}
    if subject.kind in _SITE_WIDE:
        return None, {}
    if subject.kind == "project" and subject.id.isdecimal():
        return int(subject.id), {}
    return place_of(trail)


def _clean(value: Any) -> str:
    """Return an id of a URL. It comes from outside, so that it may be anything, also a key by mistake."""
    if value is None:
        return ""
    if isinstance(value, UUID | int):
        return str(value)
    text = "".join(char if char.isprintable() else "?" for char in str(value)[:1000])
    return str(redact(text)[0])
