"""The one function that writes entries of the audit log, and the actor that they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from psycopg.types.json import Jsonb

from access_app.logins import client_address
from access_app.models import ActorKind, ApiKey, AuditAction, AuditEntry, AuditResult

_COLUMNS = (
    *("project_id", "time", "actor_kind", "actor_name", "actor_id", "action", "object_type", "object_id"),
    *("object_name", "address", "request_id", "result", "detail"),
)
_INSERT = f"""
    INSERT INTO access_app_auditentry ({", ".join(_COLUMNS)}) VALUES ({", ".join(["%s"] * len(_COLUMNS))})
    """  # noqa: S608 - built of constants
_LONGEST = {column.attname: column.max_length for column in AuditEntry._meta.concrete_fields}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who acts, and from where."""

    kind: ActorKind
    name: str
    id: str = ""
    address: str = ""
    request_id: str = ""


_SYSTEM = Origin(kind=ActorKind.SYSTEM, name="tracesite")
_request: ContextVar[HttpRequest | None] = ContextVar("audit_request", default=None)
_current: ContextVar[Origin] = ContextVar("audit_origin", default=_SYSTEM)


@contextmanager
def acting(origin: Origin) -> Iterator[None]:
    """Name this actor in the entries that are recorded meanwhile in this thread or task."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


class AuditMiddleware:
    """Name the login or key of the request, and its address, in the entries that are recorded meanwhile."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        token = _request.set(request)
        try:
            return self.get_response(request)
        finally:
            _request.reset(token)


class AuditedCommand(BaseCommand):
    """Management command that entries name, with the id of the user of the operating system."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        name = type(self).__module__.rpartition(".")[2]
        with acting(Origin(kind=ActorKind.COMMAND, name=name, id=f"uid {os.getuid()}")):
            return super().execute(*args, **options)


def record(
    action: AuditAction,
    *,
    project_id: int | None = None,
    object_type: str = "",
    object_id: object = "",
    object_name: str = "",
    result: AuditResult = AuditResult.ALLOWED,
    detail: Mapping[str, str | int | list[str] | None] | None = None,
    origin: Origin | None = None,
) -> None:
    """Add an entry to the audit log, in the transaction of the caller if there is one.

    `detail` must hold no content of traces. Long texts are cut, and characters that PostgreSQL cannot store are replaced.
    Chaining happens in the background, so that no writer waits for another.
    """
    who = origin or _origin()
    values = (
        *(project_id, timezone.now(), who.kind.value, who.name, who.id, action.value, object_type, str(object_id)),
        *(object_name, who.address, who.request_id, result.value, Jsonb(dict(detail or {}))),
    )
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [_storable(name, value) for name, value in zip(_COLUMNS, values, strict=True)])


def record_key(action: AuditAction, key: ApiKey, *, address: str = "", by_key: bool = False) -> None:
    """Record what happened to a key; `by_key`: what the key itself did from an address."""
    origin = None
    if by_key:
        # Without a look at the login, which would read the session of the request.
        request_id = getattr(_request.get(), "request_id", "")
        origin = Origin(kind=ActorKind.KEY, name=str(key), id=str(key.pk), address=address, request_id=request_id)
    record(
        action,
        project_id=key.project_id,
        object_type="apikey",
        object_id=key.pk,
        object_name=str(key),
        detail=None if by_key else {"scopes": list(key.scopes)},
        origin=origin,
    )


def _origin() -> Origin:
    request = _request.get()
    if request is None:
        return _current.get()
    # Read now, because the login is not known yet when the request begins.
    if isinstance(key := getattr(request, "auth", None), ApiKey):
        return Origin(
            kind=ActorKind.KEY,
            name=str(key),
            id=str(key.pk),
            address=client_address(request),
            request_id=getattr(request, "request_id", ""),
        )
    user = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    return Origin(
        kind=ActorKind.USER if known else ActorKind.SYSTEM,
        name=str(user) if known else _SYSTEM.name,
        id=str(getattr(user, "pk", "") or "") if known else "",
        address=client_address(request),
        request_id=getattr(request, "request_id", ""),
    )


def _storable(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[: _LONGEST[name]]
