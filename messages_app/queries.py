"""Look up a session or a message by its name; read a page of sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.audit.trail import note_objects
from access_app.db import Database
from access_app.encryption.keys import encrypted_projects, refuse_encrypted
from access_app.errors import Conflict, NotFound
from access_app.models import Project
from access_app.readable import Readable
from access_app.visibility import ProjectScope
from tracesite_sdk.records.health_flags import STOPPED

from .http import schemas
from .models import NONE_DECIDED, Message, Session
from .sql.json_rows import Column, Source

SESSION_FIELDS = frozenset(schemas.Session.__struct_fields__)

Among = Literal["alive", "deleted", "any"]


class FoundSession(NamedTuple):
    """The ids of a session that was found by its name."""

    pk: UUID
    project_id: int


class FoundMessage(NamedTuple):
    """The ids of a message that was found by its id."""

    pk: UUID
    project_id: int
    session_id: UUID


def find_session(
    db: Database, scope: ProjectScope, name: str, *, among: Among = "alive", field: str | None = None
) -> FoundSession:
    """Return the session whose id, or otherwise external id, is `name`.

    Raise NotFound, and Conflict if several projects in the scope use the same external id; `field` is the parameter that
    the error names.
    """
    session_id = as_uuid(name)
    sessions_found = [] if session_id is None else _find_sessions(db, "id", session_id, among, scope)
    # PostgreSQL rejects U+0000, even in a comparison.
    if not sessions_found and name and "\x00" not in name:
        sessions_found = _find_sessions(db, "external_id", name, among, scope)
    if len(sessions_found) > 1:
        raise _ambiguous(field)
    if not sessions_found:
        raise NotFound(_("There is no session with this id."), code="session_not_found", field=field)
    note_objects(db.actor, "session", [sessions_found[0].pk], project_id=sessions_found[0].project_id)
    return sessions_found[0]


def find_session_in(
    readable: Readable, name: str, *, among: Among = "alive", field: str | None = None
) -> tuple[FoundSession, Readable]:
    """Return a session of projects in several databases, and the scope in its database. Otherwise as find_session."""
    found: dict[Database, FoundSession] = {}
    missing = NotFound()
    for db, scope in readable:
        try:
            found[db] = find_session(db, scope, name, among=among, field=field)
        except NotFound as error:
            missing = error
    if len(found) > 1:
        raise _ambiguous(field)
    for db, session in found.items():
        return session, readable.of(db)
    raise missing


def find_message(
    db: Database, scope: ProjectScope, name: str, session: FoundSession | None, *, deleted: bool = False
) -> FoundMessage:
    """Return the message whose id, or otherwise external id, is `name`, of a session that is not deleted, in `session` if given.

    With `deleted` return a message that was deleted individually, otherwise one that is not deleted. Raise NotFound, and
    Conflict if several sessions have a message of this external id.
    """
    message_id = as_uuid(name)
    rows = (
        db.rows(Message.with_deleted)
        .visible_to(scope)
        .order_by()
        .filter(deleted_at__isnull=not deleted, session__deleted_at__isnull=True)
        .values_list("id", "project_id", "session_id")
    )
    if session is not None:
        rows = rows.filter(session_id=session.pk)
    found = list(rows.filter(pk=message_id)) if message_id is not None else []
    if not found and name and "\x00" not in name:
        found = list(rows.filter(external_id=name)[:2])
    if len(found) > 1:
        raise Conflict(
            _(
                "Several sessions have a message with this external id. Name its session, too, or use the id of the message."
            ),
            code="ambiguous_message",
        )
    if not found:
        raise NotFound(
            _("There is no deleted message with this id.") if deleted else _("There is no message with this id."),
            code="message_not_found",
        )
    message = FoundMessage(*found[0])
    note_objects(db.actor, "message", [message.pk], project_id=message.project_id)
    return message


def session_of_page(
    db: Database, scope: ProjectScope, session_id: UUID, *, deleted_too: bool = False
) -> Session | None:
    """Return the row of a session, and note it for the audit log; None if there is none in the scope."""
    rows = db.rows(Session.with_deleted) if deleted_too else db.rows(Session.objects)
    session = rows.visible_to(scope).filter(pk=session_id).first()
    if session is not None:
        note_objects(db.actor, "session", [session.pk], project_id=session.project_id)
    return session


def message_of_page(db: Database, scope: ProjectScope, message_id: UUID, *, deleted_too: bool = True) -> Message | None:
    """Return the row of a message, with its session, and note it for the audit log; None if there is none in the scope."""
    rows = (db.rows(Message.with_deleted) if deleted_too else db.rows(Message.objects)).visible_to(scope)
    message = rows.select_related("session").filter(pk=message_id).first()
    if message is not None:
        note_objects(db.actor, "message", [message.pk], project_id=message.project_id)
    return message


def ids_of_message(db: Database, scope: ProjectScope, message_id: UUID) -> FoundMessage | None:
    """Return the ids of a message, deleted or not, and note it for the audit log; None if there is none in the scope."""
    rows = db.rows(Message.with_deleted).visible_to(scope).filter(pk=message_id)
    row = rows.values_list("id", "project_id", "session_id").first()
    if row is None:
        return None
    message = FoundMessage(*row)
    note_objects(db.actor, "message", [message.pk], project_id=message.project_id)
    return message


def _ambiguous(field: str | None) -> Conflict:
    return Conflict(
        _("Several projects have a session with this external id. Use the id of the session."),
        code="ambiguous_session",
        field=field,
    )


def _find_sessions(
    db: Database, column: str, value: UUID | str, among: Among, scope: ProjectScope
) -> list[FoundSession]:
    rows = db.rows(Session.with_deleted).visible_to(scope)
    if among != "any":
        rows = rows.alive() if among == "alive" else rows.deleted()
    if column == "external_id" and scope.project_ids is None:
        rows = rows.filter(project__in=Project.objects.order_by().values("pk"))  # the index begins with the project
    values = rows.order_by().filter(**{column: value}).values_list("id", "project_id")
    return [FoundSession(*row) for row in values[:2]]


def as_uuid(text: str) -> UUID | None:
    """Parse a UUID in any form; return None for any other text."""
    try:
        return UUID(text)
    except ValueError:
        return None


def sessions(db: Database, ids: Collection[str], fields: frozenset[str] = SESSION_FIELDS) -> list[schemas.Session]:
    """Return the sessions of `ids`, in this order, with the requested fields. At most one query."""
    rows = SESSIONS.read(db, ids, fields)
    used = [_used(row[1], row[2], row[3]) for row in rows] if "resources" in fields else UNSET
    by_id = dict(zip((row[0] for row in rows), SESSIONS.make(rows, fields, resources=used), strict=True))
    return [by_id[session_id] for session_id in ids if session_id in by_id]


def _used(input_tokens: int, output_tokens: int, duration_ms: int) -> schemas.Resources:
    return schemas.Resources(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        duration=duration_ms,
    )


_STATUS_REASON = """
    CASE WHEN is_abandoned THEN 'no_news' WHEN status = 'aborted' AND said_status = '' THEN last_interruption END
    """

# As traces_app.queries.filters.sessions_of, by which the list is filtered.
_OUTCOME = f"""
    coalesce(
        (
            SELECT CASE
                WHEN NOT run.is_completed THEN CASE status WHEN 'paused' THEN 'waiting' ELSE 'running' END
                WHEN '{STOPPED}' = ANY(run.health) THEN 'stopped'
                WHEN run.error <> '' OR run.failure_count > 0 AND run.decided_by IS DISTINCT FROM '{NONE_DECIDED}' THEN 'failed'
                ELSE 'done'
            END
            FROM messages_app_message AS run
            WHERE run.id = last_run_id AND run.deleted_at IS NULL AND messages_app_session.deleted_at IS NULL
        ),
        CASE status
            WHEN 'completed' THEN 'done' WHEN 'error' THEN 'failed' WHEN 'aborted' THEN 'stopped' WHEN 'paused' THEN 'waiting'
            ELSE 'running'
        END
    )
    """  # noqa: S608 - constants

SESSIONS = Source(
    resource=schemas.Session,
    model=Session,
    table="messages_app_session",
    key="id",
    partitioned=False,
    beside=("input_tokens", "output_tokens", "duration_ms", "project_id"),
    columns={
        "project": Column(
            sql="(SELECT slug FROM access_app_project WHERE access_app_project.id = project_id)",
            of="access_app_project.slug",
        ),
        "status_is_explicit": Column(sql="said_status <> '' AND is_abandoned IS NOT TRUE"),
        "status_reason": Column(sql=_STATUS_REASON),
        "outcome": Column(sql=_OUTCOME),
    },
    made=("resources",),
)


def refuse_encrypted_messages(db: Database, message_ids: Collection[UUID]) -> None:
    """Raise NotWhileEncrypted if the project of one of the messages is encrypted. One query if any project is, otherwise none."""
    if encrypted_projects():
        rows = db.rows(Message.with_deleted).filter(pk__in=message_ids).order_by()
        refuse_encrypted(*rows.values_list("project_id", flat=True).distinct())
