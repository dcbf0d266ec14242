"""Encrypt what is stored in a project (`encrypt_stored`): what was there before encryption was turned on, and what an earlier
data key encrypted; or decrypt it (`decrypt_stored`), after encryption was turned off.

Messages are read in batches, in the order of ids; each batch is locked and written in one short transaction with everything below
it, then sessions with what belongs to no message, spans and scores. So it runs beside agents, can be interrupted, and goes on
where it is run again. What the search index, the vectors of runs and the patterns of errors have of an encrypted project is removed;
of one that is decrypted they get it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.db import models
from psycopg.rows import tuple_row

from access_app.db import Database
from access_app.encryption.columns import ENCRYPTED, Column, Form
from access_app.encryption.envelope import DataKey
from access_app.encryption.errors import Damaged
from access_app.encryption.keys import MAX_AGE, key_of, lock_encryption
from access_app.encryption.reading import open_value
from access_app.models import Encryption
from messages_app.change_log import Kind, log_changes
from messages_app.models import Message, Reference, Session
from traces_app.ingest.tables import fields_of, type_of
from traces_app.models import AgentStep, Context, ErrorPattern, Event, RunVector, Score, Span, ToolCall, ToolResult
from tracesite_sdk.records import ids

from .search_index import forget_messages

AT_A_TIME = 200
"""Messages, sessions, spans or scores of a batch."""
_BELOW = "message_id = ANY(%(keys)s) AND id >= %(first)s AND id < %(after)s"
_OF_SESSIONS = "session_id = ANY(%(sessions)s) AND " + _BELOW
_OF_MESSAGES: tuple[tuple[type[models.Model], str], ...] = (
    (Reference, _BELOW),
    (AgentStep, _BELOW),
    (ToolCall, _BELOW),
    (
        ToolResult,
        f"id IN (SELECT id FROM traces_app_toolcall WHERE {_BELOW}) AND id >= %(first)s AND id < %(after)s",  # noqa: S608 - constants
    ),
    (Event, _OF_SESSIONS),
    (Context, _OF_SESSIONS),
)
_OF_ITS_OWN = "id = ANY(%(keys)s)"


@dataclass(kw_only=True)
class Rewritten:
    """The progress of a run."""

    messages: int = 0
    """Messages that were read."""
    rows: int = 0
    """Rows that were written, of all tables."""


@dataclass(frozen=True)
class _Job:
    project_id: int
    encrypts: bool

    def lock(self) -> DataKey | None:
        """Return the key that values get, None for none; lock whether the project is encrypted until the transaction ends.

        Raise Conflict if that changed since the run began.
        """
        if not self.encrypts:
            lock_encryption(self.project_id, {Encryption.ENDING, Encryption.OFF})
            return None
        lock_encryption(self.project_id, {Encryption.ON})
        key = key_of(self.project_id)
        assert key is not None, "the project is encrypted"
        return key


def encrypt_stored(db: Database, project_id: int) -> Iterator[Rewritten]:
    """Encrypt what is stored in a project with its newest data key; yield the state after each batch.

    Raise Locked without the master key, Conflict if encryption is turned off meanwhile, and Damaged with the place of a value
    that cannot be read. Changed messages are sealed again.
    """
    return _rewrite(db, _Job(project_id, encrypts=True))


def decrypt_stored(db: Database, project_id: int) -> Iterator[Rewritten]:
    """Decrypt what is stored in a project that encrypts nothing any more; see `encrypt_stored`."""
    return _rewrite(db, _Job(project_id, encrypts=False))


def wait_for_writers(db: Database) -> None:
    """Wait until everything is stored by what this process has changed about data keys before: new rows and those that run.

    Raise Django's database errors.
    """
    # Other processes look at the keys again after MAX_AGE seconds; then what they have begun before ends.
    time.sleep(MAX_AGE + 1)
    with db.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        (first_later,) = cursor.fetchone()
        while True:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %s", [first_later])
            if cursor.fetchone() == (True,):
                return
            time.sleep(0.2)


def _rewrite(db: Database, job: _Job) -> Iterator[Rewritten]:
    done = Rewritten()
    for page in _pages(db, Message, job.project_id):
        _rewrite_messages(db, job, page, done)
        done.messages += len(page)
        yield done
    for page in _pages(db, Session, job.project_id):
        _rewrite_sessions(db, job, page, done)
        yield done
    for model in (Span, Score):
        for page in _pages(db, model, job.project_id):
            with db.atomic():
                done.rows += len(_rewrite_rows(db, model, _OF_ITS_OWN, {"keys": page}, job.lock()))
            yield done


def _rewrite_messages(db: Database, job: _Job, keys: Sequence[UUID], done: Rewritten) -> None:
    bounds = [ids.range_below(key) for key in (keys[0], keys[-1])]
    values: dict[str, Any] = {"keys": list(keys), "first": bounds[0][0], "after": bounds[1][1]}
    with db.atomic():
        key = job.lock()
        locked = db.rows(Message.with_deleted).filter(pk__in=keys).order_by("pk").select_for_update()
        owner = dict(locked.values_list("pk", "session_id"))
        values["sessions"] = list(set(owner.values()))
        changed = set(_rewrite_rows(db, Message, _OF_ITS_OWN, values, key))
        done.rows += len(changed)
        for model, where in _OF_MESSAGES:
            written = _rewrite_rows(db, model, where, values, key)
            done.rows += len(written)
            changed |= set(written.values())
        log_changes(db, dict.fromkeys(changed, job.project_id), Kind.SEAL, sealed=changed)
        if key is None:
            log_changes(db, dict.fromkeys(owner, job.project_id))
        else:
            db.rows(RunVector.objects).filter(pk__in=changed).delete()
            db.rows(ErrorPattern.objects).filter(message__in=changed).delete()
    if key is not None:
        # Segments are removed in transactions of their own.
        forget_messages(db, changed)


def _rewrite_sessions(db: Database, job: _Job, keys: Sequence[UUID], done: Rewritten) -> None:
    with db.atomic():
        key = job.lock()
        list(db.rows(Session.with_deleted).filter(pk__in=keys).order_by("pk").select_for_update().values_list("pk"))
        done.rows += len(_rewrite_rows(db, Session, _OF_ITS_OWN, {"keys": list(keys)}, key))
        shared = _rewrite_rows(
            db, Context, "session_id = ANY(%(keys)s) AND message_id IS NULL", {"keys": list(keys)}, key
        )
        done.rows += len(shared)
        if shared:
            # Conversations are parts of the seals of all runs of a session.
            runs = db.rows(Message.with_deleted).filter(session__in=keys).values_list("pk", flat=True)
            again = dict.fromkeys(runs, job.project_id)
            log_changes(db, again, Kind.SEAL, sealed=again)


def _rewrite_rows(
    db: Database, model: type[models.Model], where: str, values: dict[str, Any], key: DataKey | None
) -> dict[UUID, UUID]:
    """Store the values of rows as they are stored now; return the rows that changed, with their message, else themselves."""
    table = model._meta.db_table
    columns = ENCRYPTED[table]
    types = fields_of(model)
    owner = "id"
    if model is ToolResult:
        owner = "(SELECT call.message_id FROM traces_app_toolcall AS call WHERE call.id = traces_app_toolresult.id)"
    elif "message_id" in types:
        owner = "coalesce(message_id, id)"
    read = ", ".join(f"{name}::text" for name in columns)
    # Not by a cursor of Django, which decrypts.
    with db.connection.wrap_database_errors, db.connection.connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(f"SELECT id, {owner}, {read} FROM {table} WHERE {where} ORDER BY id FOR UPDATE", values)  # noqa: S608 - constants
        owners, new = {}, []
        for row_id, of, *stored in cursor.fetchall():
            try:
                sealed = [
                    None if value is None else _as_stored_now(value, key, column, row_id)
                    for value, column in zip(stored, columns.values(), strict=True)
                ]
            except Damaged as error:
                raise Damaged(f"{table} {row_id}: {error}") from error
            if any(value is not None for value in sealed):
                owners[row_id] = of
                new.append([*sealed, row_id])
        changes = ", ".join(f"{name} = coalesce(%s::{type_of(types[name])}, {name})" for name in columns)
        if new:
            cursor.executemany(f"UPDATE {table} SET {changes} WHERE id = %s", new)  # noqa: S608 - constants
    return owners


def _as_stored_now(value: str, key: DataKey | None, column: Column, row_id: UUID) -> str | None:
    """Return the new form of a stored value, encrypted if there is a key; None if it has it already."""
    opened = open_value(value, [column.number], [row_id.bytes])
    new = opened if key is None else key.sealed(column, row_id.bytes, opened)
    if column.form is Form.FIELDS:
        # PostgreSQL writes JSON in another form.
        return None if msgspec.json.decode(new) == msgspec.json.decode(value) else new
    return None if new == value else new


def _pages(db: Database, model: type[models.Model], project_id: int) -> Iterator[list[UUID]]:
    """Yield the ids of the rows of a project, deleted ones too, in order."""
    rows: Any = (
        db.rows(getattr(model, "with_deleted", model._default_manager)).filter(project=project_id).order_by("pk")
    )
    last = UUID(int=0)
    while page := list(rows.filter(pk__gt=last).values_list("pk", flat=True)[:AT_A_TIME]):
        yield page
        last = page[-1]
