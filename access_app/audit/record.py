"""The one function that writes entries of the audit log, the actor that they name, and the base of commands that leave one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.utils import timezone

from access_app.command import TracesiteCommand
from access_app.db import primary
from access_app.db.statements import execute_at_once, prepared_cursor
from access_app.logins import client_address
from access_app.models import ActorKind, ApiKey, AuditAction, AuditEntry, AuditResult, Project

from .trail import Actor, Origin, note_entry, place_of

_COLUMNS = (
    *("project_id", "time", "actor_kind", "actor_name", "actor_id", "action", "object_type", "object_id"),
    *("object_name", "address", "request_id", "result", "detail"),
)
_TYPES = {"project_id": "bigint", "time": "timestamptz", "detail": "jsonb"}
_NAMES = ", ".join(_COLUMNS)
_INSERT = f"INSERT INTO access_app_auditentry ({_NAMES}) VALUES ({', '.join(['%s'] * len(_COLUMNS))})"  # noqa: S608 - constants
_INSERT_AT_ONCE = _INSERT % tuple(f"${number}" for number in range(1, len(_COLUMNS) + 1))
# Committed without waiting for the disk, in one round trip: https://www.postgresql.org/docs/current/wal-async-commit.html
_INSERT_SOON = f"""
    WITH soon AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
    INSERT INTO access_app_auditentry ({_NAMES})
    SELECT {", ".join(f"${number}::{_TYPES.get(name, 'text')}" for number, name in enumerate(_COLUMNS, start=1))} FROM soon
    """  # noqa: S608 - constants
_OF_DJANGO = {
    "verbosity",
    "settings",
    "pythonpath",
    "traceback",
    "no_color",
    "force_color",
    "skip_checks",
    "stdout",
    "stderr",
}
_LONGEST = {column.attname: column.max_length for column in AuditEntry._meta.concrete_fields}


_SYSTEM = Origin(kind=ActorKind.SYSTEM, name="tracesite")


class AuditedCommand(TracesiteCommand):
    """Command that entries name. It leaves one entry when it ends, unless it was a dry run or changes nothing."""

    action: ClassVar[AuditAction | None] = None
    """The action of the command; None if the functions that it calls record that."""
    object_type: ClassVar[str] = ""
    actor: Actor | None = None
    """The command itself, once it runs."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        name = type(self).__module__.rpartition(".")[2]
        self.actor = command_actor(name)
        if self.action is None or options.get("dry_run"):
            return super().execute(*args, **options)
        result = AuditResult.FAILED
        try:
            output = super().execute(*args, **options)
            result = AuditResult.ALLOWED
            return output
        finally:
            project_id, projects = place_of(self.actor.trail)
            record(
                self.action,
                self.actor,
                project_id=project_id,
                object_type=self.object_type,
                result=result,
                detail={**_said(options), **projects, **self.actor.trail.counts},
            )


def command_actor(name: str) -> Actor:
    """Return a management command as the one who acts."""
    origin = Origin(kind=ActorKind.COMMAND, name=name, id=f"uid {os.getuid()}")
    return Actor(lambda: origin)


def record(
    action: AuditAction,
    actor: Actor | None,
    *,
    project_id: int | None = None,
    object_type: str = "",
    object_id: object = "",
    object_name: str = "",
    result: AuditResult = AuditResult.ALLOWED,
    detail: Mapping[str, str | int | list[str] | Mapping[str, list[str]] | None] | None = None,
    origin: Origin | None = None,
    soon: bool = False,
) -> None:
    """Add an entry to the audit log, in the transaction of the caller if there is one. Without an actor or `origin` the system acts.

    `detail` must hold no content of traces. Long texts are cut, and characters that PostgreSQL cannot store are replaced.
    Chaining happens in the background, so that no writer waits for another. `soon`, outside of a transaction: do not wait
    until the disk has it; a crash of the database loses the entries of its last moments then.
    """
    who = origin or (_SYSTEM if actor is None else actor.origin)
    note_entry(actor, object_type)
    values = (
        *(None if project_id is None else str(project_id), timezone.now().isoformat()),
        *(who.kind.value, who.name, who.id, action.value, object_type, str(object_id), object_name),
        *(who.address, who.request_id, result.value, json.dumps(dict(detail or {}))),
    )
    texts = [_storable(name, value) for name, value in zip(_COLUMNS, values, strict=True)]
    if primary.connection.get_autocommit():
        # 0.09 ms of CPU where a cursor takes 0.15.
        execute_at_once(primary, [(_INSERT_SOON if soon else _INSERT_AT_ONCE, texts)])
        return
    with prepared_cursor(primary.connection) as cursor:
        cursor.execute(_INSERT, texts)


def record_key(action: AuditAction, actor: Actor | None, key: ApiKey) -> None:
    """Record what happened to a key."""
    record(
        action,
        actor,
        project_id=key.project_id,
        object_type="apikey",
        object_id=key.pk,
        object_name=str(key),
        detail={
            "scopes": list(key.scopes),
            **({} if key.expires_at is None else {"expires_at": key.expires_at.isoformat()}),
        },
    )


def record_project_change(
    actor: Actor | None, project: Project, detail: Mapping[str, str | int | list[str] | None]
) -> None:
    """Record what was changed of a project."""
    record(
        AuditAction.CHANGE,
        actor,
        project_id=project.pk,
        object_type="project",
        object_id=project.pk,
        object_name=project.slug,
        detail=detail,
    )


def origin_of(request: HttpRequest, key: ApiKey | None = None, user: AbstractBaseUser | None = None) -> Origin:
    """Return the key or login of a request, and the system without either. Call it late: the login is not known at first."""
    key = key or getattr(request, "auth", None)
    if isinstance(key, ApiKey):
        origin = Origin(kind=ActorKind.KEY, name=str(key), id=str(key.pk))
    else:
        origin = origin_of_user(user or getattr(request, "user", None))
    return replace(origin, address=client_address(request), request_id=getattr(request, "request_id", ""))


def origin_of_user(user: AbstractBaseUser | AnonymousUser | None) -> Origin:
    """Return a user as the one who acts, and the system for nobody."""
    if user is None or not user.is_authenticated:
        return _SYSTEM
    return Origin(kind=ActorKind.USER, name=user.get_username(), id=str(user.pk))


def _said(options: dict[str, Any]) -> dict[str, str | int | list[str]]:
    """Return the options that were given, without the values of texts other than the project."""
    found: dict[str, str | int | list[str]] = {}
    for name, value in options.items():
        if name in _OF_DJANGO or not value:
            continue
        if isinstance(value, int):
            found[f"--{name}"] = value
        elif name == "project":
            found["--project"] = [str(one)[:64] for one in value] if isinstance(value, list) else str(value)[:64]
        else:
            found[f"--{name}"] = "given"
    return found


def _storable(name: str, value: str | None) -> str | None:
    return value and value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[: _LONGEST[name]]
