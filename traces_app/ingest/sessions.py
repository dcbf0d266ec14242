"""The sessions of a batch: found or made at the beginning of a write, brought up to date at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection

from access_app.db.statements import prepared_cursor
from messages_app import ids
from messages_app.models import session_key
from messages_app.writes import COUNTERS, Counts
from traces_app.normalize.records import as_uuid
from traces_app.normalize.redaction import Redacted
from traces_app.schema import records

from . import rows
from .batch import BatchSession, Context, SessionGone, SessionMet
from .sql import SAID, add_to_session, add_to_sessions, lock_sessions

_JSON = frozenset(["workflow", "metadata", "redactions"])
_SAID = {name: f"{name}::text" if name in _JSON else name for name in SAID}
"""The columns that a batch can change, and how they are read."""
_COLUMNS = {
    "id": "uuid",
    "project_id": "bigint",
    "external_id": "text",
    "said_status": "text",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
    "title": "text",
    "description": "text",
    "end_user": "text",
    "current_phase": "text",
    "workflow": "jsonb",
    "tags": "text[]",
    "metadata": "jsonb",
    "redactions": "jsonb",
    "deleted_by": "text",
    **dict.fromkeys(COUNTERS, "bigint"),
    "last_run_id": "uuid",
    "last_run_failed": "boolean",
    "active_at": "timestamptz",
}
_COUNTED = len(COUNTERS) + 3
"""So many columns at the end say what a session holds."""
COLUMNS = ", ".join(_COLUMNS)
"""Of the row of a new session, in their order."""
_INSERT = (
    f"INSERT INTO messages_app_session ({COLUMNS}) "  # noqa: S608 - constants
    f"SELECT {', '.join(f'{name}::{type_}' for name, type_ in _COLUMNS.items())} "
    f"FROM unnest({', '.join('%s::text[]' for _name in _COLUMNS)}) AS new ({COLUMNS}) "
    "ON CONFLICT DO NOTHING RETURNING id"
)


def find_sessions(context: Context, batch: Sequence[Redacted]) -> tuple[list[BatchSession], list[rows.Row]]:
    """The session of each item, and the rows of those that are to be made. Two items that name one session share its state."""
    found = _by_name(context, context.sessions)
    fresh: dict[str, tuple[UUID, Redacted]] = {}
    brought: dict[str, str] = {}
    """The ids that new sessions of this batch bring along, and their names in `fresh`."""
    states: dict[str, BatchSession] = {}
    result = []
    for index, item in enumerate(batch):
        said = item.session
        given = str(as_uuid(said.id) or "")
        row = found.get(given) or found.get(session_name(said))
        # A session without any id is always a new one.
        name = str(row[0]) if row else brought.get(given) or session_name(said) or f"\0{index}"
        state = states.get(name)
        if state is None:
            state = states[name] = BatchSession(id=None, external_id="")
            if row:
                state.id, state.external_id = row[0], row[1]
                state.refused = "session_deleted" if row[2] else None
            else:
                state.external_id = session_name(said)
                session_id = _new_session_id(context, said, is_taken=given in found)
                fresh[name] = (session_id, item)
                brought[str(session_id)] = name
        state.said.append(item)
        result.append(state)
    _refuse_purged(context, states, fresh)
    # Sorted, like everything that two senders may both insert: they meet in the same order.
    new = [_new_session(context, states[name], session_id, item) for name, (session_id, item) in sorted(fresh.items())]
    return result, new


def make_sessions(new: Sequence[rows.Row]) -> None:
    """Raises SessionMet where another sender made one of them between our look and our insert."""
    if not new:
        return
    with prepared_cursor() as cursor:
        cursor.execute(_INSERT, [rows.array(column) for column in zip(*new, strict=True)])
        if cursor.rowcount < len(new):
            # Ours waited until it had committed.
            raise SessionMet


def finish_sessions(context: Context, sessions: Sequence[BatchSession]) -> None:
    """The session rows, last: their counters, and what the batch says of the sessions themselves."""
    states = {session.id: session for session in sessions if session.id is not None and not session.refused}
    if not states:
        return
    columns = columns_said(context, sessions)
    for session_id, row in _count(states, list(columns.values())).items():
        apply_to_session(context, session_id, states[session_id], columns, row)


def _count(states: Mapping[UUID, BatchSession], columns: Sequence[str]) -> dict[UUID, tuple[Any, ...]]:
    """Locks the sessions and adds to their counters; returns some of their columns. Raises SessionGone."""
    counts = {session_id: state.counts for session_id, state in states.items()}
    if len(counts) == 1 and all(counts.values()):
        ((session_id, count),) = counts.items()
        row = add_to_session(session_id, count, columns)
        stored = {} if row is None else {session_id: row}
    else:
        # In the order of ids, which one UPDATE of several rows does not keep.
        stored = lock_sessions(counts, columns)
        add_to_sessions(counts)
    if len(stored) < len(counts):
        raise SessionGone
    return stored


def names_of(batch: Sequence[Redacted]) -> tuple[list[UUID], list[str]]:
    """What the batch calls its sessions: ids that may be ours, and names."""
    uuids = [uuid for item in batch if (uuid := as_uuid(item.session.id)) is not None]
    return uuids, [name for item in batch if (name := session_name(item.session))]


def session_name(said: records.Session) -> str:
    """The external id of a session; an id that is none of ours is one too."""
    return rows.text(said.external_id or said.id)


def _by_name(
    context: Context, rows_: Sequence[tuple[UUID, str, bool, int]]
) -> dict[str, tuple[UUID, str, bool] | None]:
    """(id, external id, whether deleted) of the sessions that are there, by id and by external id.

    An id that another project has stands for None: it can neither be found here nor given to a new session.
    """
    found: dict[str, tuple[UUID, str, bool] | None] = {}
    for session_id, external_id, is_deleted, project_id in rows_:
        row = (session_id, external_id, is_deleted) if project_id == context.project_id else None
        found[str(session_id)] = row
        if external_id and row:
            found[external_id] = row
    return found


def _new_session_id(context: Context, said: records.Session, *, is_taken: bool) -> UUID:
    """A producer's id is kept when it is free and one that we could have made for its created_at."""
    created_at = said.created_at or context.now
    given = as_uuid(said.id)
    if (
        given is not None
        and not is_taken
        and said.created_at is not None
        and ids.created_at_of(given) == created_at
        and given.version == 7
    ):
        return given
    return ids.session_id(created_at)


def _refuse_purged(context: Context, states: Mapping[str, BatchSession], fresh: dict[str, Any]) -> None:
    keys = {session_key(context.project_id, name): name for name in fresh}
    for name in fresh:
        given = as_uuid(states[name].said[0].session.id)
        if given is not None:
            keys[session_key(context.project_id, str(given))] = name
    for key in context.purged & keys.keys():
        states[keys[key]].refused = "session_purged"
        fresh.pop(keys[key], None)


def _new_session(context: Context, state: BatchSession, session_id: UUID, item: Redacted) -> rows.Row:
    """Its row holds what the first item says of it."""
    said = item.session
    state.id, state.created = session_id, True
    state.said.remove(item)
    return (
        session_id.hex,
        str(context.project_id),
        state.external_id,
        _said_status(context, said) or "",
        rows.instant(said.created_at or context.now),
        rows.instant(context.now),
        rows.text(said.title),
        rows.text(said.description),
        rows.text(said.end_user),
        rows.text(said.current_phase),
        rows.json_or_null(said.workflow),
        rows.array(map(rows.text, said.tags or ())),
        rows.json_or_empty(said.metadata),
        rows.json(rows.receipt_list(item.receipts)),
        "",
        *("0" for _name in COUNTERS),
        None,
        "f",
        # By all that comes with it: raised to the same time later, its index entry stays as it is.
        rows.instant(max((active_at(one, context.now) for one in said.messages or ()), default=_began(context, said))),
    )


def counted_row(row: rows.Row, counts: Counts | None) -> rows.Row:
    """The row of a new session with what it holds, where that is known."""
    if counts is None:
        return row
    run = counts.last_run
    return (
        *row[:-_COUNTED],
        *(str(getattr(counts, name)) for name in COUNTERS),
        run and run.message_id.hex,
        "t" if run and run.failed else "f",
        rows.instant(counts.active_at) or row[-1],
    )


def active_at(message: records.Message, now: datetime) -> datetime:
    """When a message was last active, as far as it says: not in the future, whatever its clock said."""
    began = message.created_at or now
    return min(max(began, rows.completion(message, began) or began), now)


def _began(context: Context, said: records.Session) -> datetime:
    return min(said.created_at or context.now, context.now)


def _said_status(context: Context, said: records.Session) -> str | None:
    """Return the status that a record states: None leaves it unchanged, "" lets it follow the messages.

    Events and transcripts say "running" of a run that is open, whose end need not state a status. Only a client that
    sends the word itself means it to stay.
    """
    return "" if said.status == "running" and context.source != "live" else said.status


def _value_of(context: Context, item: Redacted, name: str) -> Any:
    """What a record says for a column of its session; None or empty: nothing."""
    if name == "redactions":
        return rows.receipt_list(item.receipts)
    return _said_status(context, item.session) if name == "said_status" else getattr(item.session, name)


def _is_said(name: str, value: Any) -> bool:
    """Whether there is something to write: an empty status is, other values that are empty overwrite nothing."""
    return bool(value) or (name == "said_status" and value is not None)


def said_of(context: Context, state: BatchSession) -> list[str | None]:
    """What the records say of a session that is there, in their order, as one change for `statements.insert_at_once`."""
    said: dict[str, Any] = {}
    receipts: list[dict[str, Any]] = []
    for item in state.said:
        for name in SAID:
            value = _value_of(context, item, name)
            if name not in ("metadata", "redactions") and _is_said(name, value):
                said[name] = value
        if item.session.metadata:
            said["metadata"] = {**said.get("metadata", {}), **item.session.metadata}
        receipts += [receipt for receipt in rows.receipt_list(item.receipts) if receipt not in receipts]
    texts: dict[str, str] = {name: rows.json(value) for name, value in said.items() if name in _JSON}
    texts |= {name: rows.text(value) for name, value in said.items() if name not in _JSON and name != "tags"}
    if "tags" in said:
        texts["tags"] = rows.array(map(rows.text, said["tags"]))
    if receipts:
        texts["redactions"] = rows.json(receipts)
    return [texts.get(name) for name in SAID]


def columns_said(context: Context, sessions: Sequence[BatchSession]) -> dict[str, str]:
    """The columns of sessions of which the batch says something, and how they are read."""
    said = [item for session in sessions for item in session.said]
    return {
        name: sql for name, sql in _SAID.items() if any(_is_said(name, _value_of(context, item, name)) for item in said)
    }


def apply_to_session(
    context: Context, session_id: UUID, state: BatchSession, columns: Iterable[str], values: tuple[Any, ...]
) -> None:
    """Writes what the records say of the session itself, in their order; empty values overwrite nothing.

    `values` are what `columns` hold now.
    """
    row = dict(zip(columns, values, strict=True))
    for name in _JSON.intersection(row):
        row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    changed: dict[str, Any] = {}
    for item in state.said:
        for name in row:
            value = rows.holdable(_value_of(context, item, name))
            if name == "metadata":
                value = {**row[name], **(value or {})}
            elif name == "redactions":
                value = row[name] + [receipt for receipt in value if receipt not in row[name]]
            if _is_said(name, value) and value != row[name]:
                changed[name] = row[name] = value
    if changed:
        new = ", ".join(f"{name} = %s{'::jsonb' if name in _JSON else ''}" for name in changed)
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE messages_app_session SET {new}, updated_at = %s WHERE id = %s",  # noqa: S608 - names in _SAID
                [
                    *(rows.json(value) if name in _JSON else value for name, value in changed.items()),
                    context.now,
                    session_id,
                ],
            )
