"""The one function that writes entries of the audit log, and the actor that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection
from django.utils import timezone
from psycopg.types.json import Jsonb

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
_current: ContextVar[Origin] = ContextVar("audit_origin", default=_SYSTEM)


@contextmanager
def acting(origin: Origin) -> Iterator[None]:
    """Name this actor in the entries that are recorded meanwhile in this thread or task."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


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
    who = origin or _current.get()
    values = (
        *(project_id, timezone.now(), who.kind.value, who.name, who.id, action.value, object_type, str(object_id)),
        *(object_name, who.address, who.request_id, result.value, Jsonb(dict(detail or {}))),
    )
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [_storable(name, value) for name, value in zip(_COLUMNS, values, strict=True)])


def record_key(action: AuditAction, key: ApiKey, *, address: str = "", by_key: bool = False) -> None:
    """Record what happened to a key; `by_key`: what the key itself did from an address."""
    origin = _current.get()
    if by_key:
        origin = replace(origin, kind=ActorKind.KEY, name=str(key), id=str(key.pk), address=address)
    record(
        action,
        project_id=key.project_id,
        object_type="apikey",
        object_id=key.pk,
        object_name=str(key),
        detail=None if by_key else {"scopes": list(key.scopes)},
        origin=origin,
    )


def _storable(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[: _LONGEST[name]]
