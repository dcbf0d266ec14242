"""The sessions of a batch: look them up or create them at the start of a write, and update them at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from messages_app.models import session_key
from messages_app.writes import COUNTERS, Counts
from tracesite_sdk import records
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.normalize.redacted import Redacted, receipts_as_json
from tracesite_sdk.normalize.rollup import completion
from tracesite_sdk.records import ids, pg_text

from .batch import BatchSession, Context, KnownSession, SessionCreatedConcurrently, SessionGone
from .sql import LOG_RETITLED, SESSION_FIELDS, add_to_session, add_to_sessions, lock_sessions
from .tables import SESSIONS, Row

_JSON = frozenset(name for name, type_ in SESSION_FIELDS.items() if type_ == "jsonb")
_READ_AS = {name: f"{name}::text" if name in _JSON else name for name in SESSION_FIELDS}
"""How the columns that a batch can change are read."""
_INSERT = f"{SESSIONS.insert} ON CONFLICT DO NOTHING RETURNING id"


def find_sessions(context: Context, batch: Sequence[Redacted]) -> tuple[list[BatchSession], list[Row]]:
    """Return the session of each item, and the rows of new ones. Two items of one session share its state."""
    known = _by_name(context, context.sessions)
    fresh: dict[str, tuple[UUID, Redacted]] = {}
    brought: dict[str, str] = {}
    """The ids that new sessions of this batch supply, with their names in `fresh`."""
    states: dict[str, BatchSession] = {}
    result = []
    for index, item in enumerate(batch):
        record = item.session
        given = str(hyphenated_uuid(record.id) or "")
        row = known.get(given) or known.get(session_name(record))
        # A session without any id is always a new one.
        name = str(row.id) if row else brought.get(given) or session_name(record) or f"\0{index}"
        state = states.get(name)
        if state is None:
            state = states[name] = BatchSession(id=None, external_id="")
            if row:
                state.id, state.external_id = row.id, row.external_id
                state.refused = "session_deleted" if row.is_deleted else None
            else:
                state.external_id = session_name(record)
                session_id = _new_session_id(context, record, is_taken=given in known)
                fresh[name] = (session_id, item)
                brought[str(session_id)] = name
        state.items.append(item)
        result.append(state)
    _refuse_purged(context, states, fresh)
    # Sorted, like everything that two senders may both insert: they meet in the same order.
    new = [_new_session(context, states[name], session_id, item) for name, (session_id, item) in sorted(fresh.items())]
    return result, new


def make_sessions(db: Database, new: Sequence[Row]) -> None:
    """Insert sessions. Raise SessionCreatedConcurrently if another sender created one since the lookup."""
    if not new:
        return
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_INSERT, [pg_text.array(column) for column in zip(*new, strict=True)])
        if cursor.rowcount < len(new):
            # The insert has waited for that sender's commit.
            raise SessionCreatedConcurrently


def finish_sessions(db: Database, context: Context, sessions: Sequence[BatchSession]) -> None:
    """Update the session rows, which is the last step: their counters, and the fields that the batch gives."""
    states = {session.id: session for session in sessions if session.id is not None and not session.refused}
    if not states:
        return
    # Of each session once: `sessions` names it as often as the batch has items of it.
    columns = given_columns(context, list(states.values()))
    for session_id, row in _count(db, states, list(columns.values())).items():
        apply_to_session(db, context, session_id, states[session_id], columns, row)


def _count(db: Database, states: Mapping[UUID, BatchSession], columns: Sequence[str]) -> dict[UUID, tuple[Any, ...]]:
    """Lock the sessions and add to their counters; return some of their columns. Raise SessionGone."""
    counts = {session_id: state.counts for session_id, state in states.items()}
    if len(counts) == 1 and all(counts.values()):
        ((session_id, count),) = counts.items()
        row = add_to_session(db, session_id, count, columns)
        stored = {} if row is None else {session_id: row}
    else:
        # Locked in the order of ids, which an UPDATE of several rows does not guarantee.
        stored = lock_sessions(db, counts, columns)
        add_to_sessions(db, counts)
    if len(stored) < len(counts):
        raise SessionGone
    return stored


def names_of(batch: Sequence[Redacted]) -> tuple[list[UUID], list[str]]:
    """Return the ids, which may be ours, and the names of the sessions of a batch."""
    uuids = [uuid for item in batch if (uuid := hyphenated_uuid(item.session.id)) is not None]
    return uuids, [name for item in batch if (name := session_name(item.session))]


def session_name(record: records.Session) -> str:
    """Return the external id of a session. An id that is not ours counts as one."""
    return pg_text.text(record.external_id or record.id)


def _by_name(context: Context, sessions: Sequence[KnownSession]) -> dict[str, KnownSession | None]:
    """Return the sessions that exist, by id and by external id.

    The id of another project's session maps to None: it can neither be found here nor given to a new session.
    """
    by_name: dict[str, KnownSession | None] = {}
    for session in sessions:
        own = session if session.project_id == context.project_id else None
        by_name[str(session.id)] = own
        if session.external_id and own:
            by_name[session.external_id] = own
    return by_name


def _new_session_id(context: Context, record: records.Session, *, is_taken: bool) -> UUID:
    """Return the producer's id if it is free and one that we could have generated for its created_at, else a new id."""
    created_at = record.created_at or context.now
    given = hyphenated_uuid(record.id)
    if (
        given is not None
        and not is_taken
        and record.created_at is not None
        and ids.created_at_of(given) == created_at
        and given.version == 7
    ):
        return given
    return ids.session_id(created_at)


def _refuse_purged(context: Context, states: Mapping[str, BatchSession], fresh: dict[str, Any]) -> None:
    keys = {session_key(context.project_id, name): name for name in fresh}
    for name in fresh:
        given = hyphenated_uuid(states[name].items[0].session.id)
        if given is not None:
            keys[session_key(context.project_id, str(given))] = name
    for key in context.purged & keys.keys():
        states[keys[key]].refused = "session_purged"
        fresh.pop(keys[key], None)


def _new_session(context: Context, state: BatchSession, session_id: UUID, item: Redacted) -> Row:
    """Return the row of a new session, with the fields of its first item."""
    record = item.session
    state.id, state.created = session_id, True
    state.items.remove(item)
    began = min(record.created_at or context.now, context.now)
    return SESSIONS.row(
        record,
        id=session_id.hex,
        project_id=str(context.project_id),
        external_id=state.external_id,
        said_status=_stated_status(context, record) or "",
        created_at=pg_text.timestamp(record.created_at or context.now),
        updated_at=pg_text.timestamp(context.now),
        redactions=pg_text.json(receipts_as_json(item.receipts)),
        deleted_by="",
        **dict.fromkeys(COUNTERS, "0"),
        last_run_id=None,
        last_run_failed="f",
        last_interruption=None,
        is_abandoned=None,
        # The latest of all its messages, because its index entry need not change then when they are counted.
        active_at=pg_text.timestamp(
            max((active_at(message, context.now) for message in record.messages or ()), default=began)
        ),
    )


def counted_row(row: Row, counts: Counts | None) -> Row:
    """Return the row of a new session with its counters, if they are known."""
    if counts is None:
        return row
    run = counts.last_run
    return row._replace(
        **{name: str(getattr(counts, name)) for name in COUNTERS},
        last_run_id=run and run.message_id.hex,
        last_run_failed=pg_text.boolean(run and run.failed),
        last_interruption=run and run.interruption,
        active_at=pg_text.timestamp(counts.active_at) or row.active_at,
    )


def active_at(message: records.Message, now: datetime) -> datetime:
    """Return the time of the last activity in a message, at most `now`."""
    began = message.created_at or now
    return min(max(began, completion(message, began) or began), now)


def _stated_status(context: Context, record: records.Session) -> str | None:
    """Return the status that a record states: None leaves it unchanged, "" lets it follow the messages.

    Events and transcripts state "running" for an open run, whose end need not state a status. Only the "running" that a
    client sends itself is kept.
    """
    return "" if record.status == "running" and context.source != "live" else record.status


def _value_of(context: Context, item: Redacted, name: str) -> Any:
    """Return the value of a record for a column of its session; None or empty if it gives none."""
    if name == "redactions":
        return receipts_as_json(item.receipts)
    return _stated_status(context, item.session) if name == "said_status" else getattr(item.session, name)


def _is_given(name: str, value: Any) -> bool:
    """Return whether a value is to be written: any that is not empty, and an empty status."""
    return bool(value) or (name == "said_status" and value is not None)


def merged_fields(context: Context, session_id: UUID, state: BatchSession) -> list[str | None]:
    """Merge the fields of an existing session from its records, in their order, for `sql.insert_at_once`."""
    fields: dict[str, Any] = {}
    receipts: dict[str, dict[str, Any]] = {}
    """Receipts by their JSON, so that each is kept once."""
    for item in state.items:
        for name in SESSION_FIELDS:
            value = _value_of(context, item, name)
            if name not in ("metadata", "redactions") and _is_given(name, value):
                fields[name] = value
        if item.session.metadata:
            fields.setdefault("metadata", {}).update(item.session.metadata)
        receipts |= {pg_text.sorted_json(receipt): receipt for receipt in receipts_as_json(item.receipts)}
    texts: dict[str, str] = {name: pg_text.json(value) for name, value in fields.items() if name in _JSON}
    texts |= {name: pg_text.text(value) for name, value in fields.items() if name not in _JSON and name != "tags"}
    if "tags" in fields:
        texts["tags"] = pg_text.array(map(pg_text.text, fields["tags"]))
    if receipts:
        texts["redactions"] = pg_text.json(list(receipts.values()))
    texts = {name: SESSIONS.encrypted_value(name, session_id, text, context.data_key) for name, text in texts.items()}
    return [texts.get(name) for name in SESSION_FIELDS]


def log_retitled(db: Database, session_id: UUID, title: str) -> None:
    """Have the messages of a session indexed again if the title, which is a text of each, is another one than what is stored.

    Locks the session."""
    with db.cursor() as cursor:
        cursor.execute(LOG_RETITLED, [session_id, title])


def given_columns(context: Context, sessions: Sequence[BatchSession]) -> dict[str, str]:
    """Return the columns of sessions for which the batch has values, and how they are read."""
    items = [item for session in sessions for item in session.items]
    return {
        name: sql
        for name, sql in _READ_AS.items()
        if any(_is_given(name, _value_of(context, item, name)) for item in items)
    }


def apply_to_session(
    db: Database,
    context: Context,
    session_id: UUID,
    state: BatchSession,
    columns: Iterable[str],
    values: tuple[Any, ...],
) -> None:
    """Write the fields of the session from its records, in their order; empty values overwrite nothing.

    `values` are the current values of `columns`.
    """
    row = dict(zip(columns, values, strict=True))
    for name in _JSON.intersection(row):
        row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    changed: dict[str, Any] = {}
    known = {pg_text.sorted_json(receipt) for receipt in row.get("redactions", ())}
    for item in state.items:
        for name in row:
            value = pg_text.storable(_value_of(context, item, name))
            # These two grow in place, because a batch may have many items of one session.
            if name == "metadata":
                for key, one in (value or {}).items():
                    if key not in row[name] or row[name][key] != one:
                        row[name][key] = one
                        changed[name] = row[name]
            elif name == "redactions":
                for receipt in value:
                    if (text := pg_text.sorted_json(receipt)) not in known:
                        known.add(text)
                        row[name].append(receipt)
                        changed[name] = row[name]
            elif _is_given(name, value) and value != row[name]:
                changed[name] = row[name] = value
    if changed:
        new = ", ".join(f"{name} = %s{'::jsonb' if name in _JSON else ''}" for name in changed)
        stored = {name: pg_text.json(value) if name in _JSON else value for name, value in changed.items()}
        stored = {
            name: SESSIONS.encrypted_value(name, session_id, value, context.data_key) for name, value in stored.items()
        }
        if "title" in stored:
            log_retitled(db, session_id, stored["title"])
        with db.cursor() as cursor:
            cursor.execute(
                f"UPDATE messages_app_session SET {new}, updated_at = %s WHERE id = %s",  # noqa: S608 - names in _READ_AS
                [*stored.values(), context.now, session_id],
            )
