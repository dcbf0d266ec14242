"""Finding a session or a message by its name, and the resources of a page of sessions.

What every request does first is plain SQL: Django takes 1 ms to put such a query together, and PostgreSQL 0.1 to answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.db.statements import prepared_cursor
from access_app.errors import Conflict, NotFound
from access_app.visibility import ProjectScope, in_sql

from .http import schemas
from .sql.json_rows import Column, Source, as_text, as_they_are, instant, json

SESSION_FIELDS = frozenset(schemas.Session.__struct_fields__)

Among = Literal["alive", "deleted", "any"]
_AMONG: dict[Among, str] = {"alive": "deleted_at IS NULL", "deleted": "deleted_at IS NOT NULL", "any": "TRUE"}


class FoundSession(NamedTuple):
    """Which session a name stands for."""

    pk: UUID
    project_id: int


class FoundMessage(NamedTuple):
    """Which message an id stands for."""

    pk: UUID
    project_id: int
    session_id: UUID


def find_session(scope: ProjectScope, name: str, *, among: Among = "alive", field: str | None = None) -> FoundSession:
    """The session whose id, or else external id, is `name`.

    Raises NotFound, and Conflict where projects that are open to the same reader use the same external id; `field` is the
    parameter that they name.
    """
    session_id = as_uuid(name)
    found = [] if session_id is None else _find_sessions("id = %s", session_id, among, scope)
    # PostgreSQL holds no U+0000, and refuses to compare with it.
    if not found and name and "\x00" not in name:
        found = _find_sessions("external_id = %s", name, among, scope)
    if len(found) > 1:
        raise Conflict(
            _("Several projects have a session of this external id: use the id of the session."),
            code="ambiguous_session",
            field=field,
        )
    if not found:
        raise NotFound(_("There is no session of this id."), code="session_not_found", field=field)
    return found[0]


def find_message(
    scope: ProjectScope, name: str, session: FoundSession | None, *, deleted: bool = False
) -> FoundMessage:
    """The message whose id is `name`, of a session that is alive, in `session` if that is given.

    With `deleted` it is one that was deleted by itself, else one that is alive. Raises NotFound.
    """
    message_id = as_uuid(name)
    row = None
    if message_id is not None:
        visible, parameters = in_sql(scope, "message.project_id")
        statement = (
            "SELECT message.id, message.project_id, message.session_id FROM messages_app_message AS message "  # noqa: S608 - constants
            "JOIN messages_app_session AS session ON session.id = message.session_id "
            f"WHERE message.id = %s AND {visible} AND session.deleted_at IS NULL AND message.deleted_at IS "
        )
        with prepared_cursor() as cursor:
            cursor.execute(statement + ("NOT NULL" if deleted else "NULL"), [message_id, *parameters])
            row = cursor.fetchone()
    if row is None or (session is not None and row[2] != session.pk):
        raise NotFound(
            _("There is no deleted message of this id.") if deleted else _("There is no message of this id."),
            code="message_not_found",
        )
    return FoundMessage(*row)


def _find_sessions(condition: str, value: UUID | str, among: Among, scope: ProjectScope) -> list[FoundSession]:
    visible, parameters = in_sql(scope)
    statement = (
        f"SELECT id, project_id FROM messages_app_session WHERE {condition} AND {visible} AND {_AMONG[among]} LIMIT 2"  # noqa: S608 - constants
    )
    with prepared_cursor() as cursor:
        cursor.execute(statement, [value, *parameters])
        return [FoundSession(*row) for row in cursor.fetchall()]


def as_uuid(text: str) -> UUID | None:
    """The UUID that `text` is in some form, else None."""
    try:
        return UUID(text)
    except ValueError:
        return None


def sessions(ids: Collection[str], fields: frozenset[str] = SESSION_FIELDS) -> list[schemas.Session]:
    """The sessions of `ids`, in this order, with the fields that are asked for; at most one query."""
    rows = SESSIONS.read(ids, fields)
    used = [_used(row[1], row[2], row[3]) for row in rows] if "resources" in fields else UNSET
    found = dict(zip((row[0] for row in rows), SESSIONS.make(rows, fields, resources=used), strict=True))
    return [found[session_id] for session_id in ids if session_id in found]


def _used(input_tokens: int, output_tokens: int, duration_ms: int) -> schemas.Resources:
    return schemas.Resources(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        duration=duration_ms,
    )


SESSIONS = Source(
    resource=schemas.Session,
    table="messages_app_session",
    key="id",
    partitioned=False,
    beside=("input_tokens", "output_tokens", "duration_ms"),
    columns={
        **as_text("id"),
        **as_they_are("external_id", "title", "description", "end_user", "status", "current_phase", "tags"),
        **as_they_are("message_count", "call_count", "failure_count", "problem_count", "last_event"),
        "project": Column(sql="(SELECT slug FROM access_app_project WHERE access_app_project.id = project_id)"),
        "status_is_explicit": Column(sql="said_status <> ''"),
        "workflow": json("workflow"),
        "metadata": json("metadata"),
        "redactions": json("redactions"),
        "created_at": instant("created_at"),
        "updated_at": instant("updated_at"),
        "active_at": instant("active_at"),
        "deleted_at": instant("deleted_at"),
    },
)
