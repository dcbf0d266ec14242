"""Remove messages with everything below them, in batches."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.db.models import Model

from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from access_app.db.transactions import in_transaction
from messages_app.change_log import Kind, log_changes
from messages_app.models import Message, Reference
from messages_app.writes import COUNTED_AS, COUNTER_TYPES, COUNTERS, NO_RUN_LEFT, Counts
from traces_app.ingest.context_rows import remove_unused
from traces_app.ingest.sql import add_to_sessions
from traces_app.ingest.turns import hold_deliveries
from traces_app.maintenance.statements import fetch
from traces_app.models import (
    AgentStep,
    Context,
    DueTrace,
    ErrorPattern,
    Event,
    RunVector,
    Score,
    Span,
    ToolCall,
    ToolResult,
)
from tracesite_sdk.records import ids

from .reports import Progress, PurgeReport, Removed
from .scores import remove_scores
from .statements import ALL, LAST_ID, MESSAGES, OF_TRACE, SESSIONS, Condition, array_of, range_of, size_of

# A batch holds its locks for some 0.3 s; senders seldom write to what is so old, and the row of a session is locked last.
# Of small messages much of the time is that of the statements, not of the rows.
MESSAGES_AT_ONCE = 1000
# Of larger batches the rows of the first messages are measured, because measuring small rows takes longer than deleting them.
_MESSAGES_MEASURED = 100


def remove_messages(
    db: Database,
    lanes: Iterable[Condition],
    report: PurgeReport,
    progress: Progress,
    now: datetime,
    *,
    still: Condition = ALL,
    with_session: bool = False,
) -> None:
    """Remove the messages in `lanes`, unless `still` does not hold any more once they are locked."""
    for candidates in _candidates(db, lanes):
        progress(
            report.add_all(retry_aborted(partial(remove_batch, db, candidates, still, now, with_session=with_session)))
        )


def _candidates(db: Database, lanes: Iterable[Condition]) -> Iterator[list[UUID]]:
    """Yield the ids of the messages in `lanes`; a batch may span several lanes, so that it is full."""
    batch: list[UUID] = []
    for lane in lanes:
        last = UUID(int=0)
        while True:
            room = MESSAGES_AT_ONCE - len(batch)
            rows = fetch(
                db,
                f"SELECT id FROM {MESSAGES} WHERE {lane.sql} AND id > %s ORDER BY id LIMIT {room}",
                [*lane.values, last],
            )
            batch += [message_id for (message_id,) in rows]
            if len(rows) < room:
                break
            last = batch[-1]
            yield batch
            batch = []
    if batch:
        yield batch


@in_transaction
def remove_batch(
    db: Database,
    candidates: list[UUID],
    still: Condition,
    now: datetime,
    *,
    with_session: bool = False,
    touch: bool = True,
) -> Removed:
    """Remove messages and their children, locking in the order of traces_app.ingest.store.

    With `touch` their sessions have changed, otherwise they keep the time of their last change.
    """
    locked = _lock(db, candidates, still)
    if not locked:
        return []
    projects = {message.id: message.project_id for message in locked}
    log_changes(db, projects, Kind.FIGURES, sealed=projects)
    message_ids = [message.id for message in locked]
    these = array_of(message_ids)
    there = _with_rows(db, message_ids)
    removed = _remove_rows_below(db, locked, there)
    removed.append((Message, *_remove_message_rows(db, message_ids, touch=touch)))
    if Context in there:
        session_ids = list({message.session_id for message in locked})
        removed.append((Context, *remove_unused(db, session_ids, min(message_ids), max(message_ids))))
    if with_session:
        fetch(db, "DELETE FROM messages_app_messagekey WHERE message_id = ANY(%s) RETURNING 1", [these])
    else:
        fetch(
            db,
            "UPDATE messages_app_messagekey SET purged_at = %s WHERE message_id = ANY(%s) RETURNING 1",
            [now, these],
        )
    return removed


class _Locked(NamedTuple):
    """A message that is locked, to be removed."""

    id: UUID
    project_id: int
    session_id: UUID
    trace_id: str | None


def _lock(db: Database, candidates: list[UUID], still: Condition) -> list[_Locked]:
    """Lock the keys of the messages, then those messages for which `still` holds."""
    wanted = array_of(candidates)
    fetch(db, "SELECT 1 FROM messages_app_messagekey WHERE message_id = ANY(%s) ORDER BY key FOR UPDATE", [wanted])
    here = Condition("id = ANY(%s)", [wanted]) & range_of(candidates) & still
    # With all that is asked about them later: each more statement costs as much as ten messages.
    rows = fetch(
        db,
        f"SELECT id, project_id, session_id, CASE WHEN {OF_TRACE} THEN metadata ->> 'trace_id' END "
        f"FROM {MESSAGES} WHERE {here.sql} ORDER BY id FOR UPDATE",
        here.values,
    )
    return [_Locked(*row) for row in rows]


def _remove_rows_below(db: Database, locked: Sequence[_Locked], there: Set[type[Model]]) -> Removed:
    """Remove everything below messages, with the spans of their traces; `there` are the tables that have such rows."""
    message_ids = [message.id for message in locked]
    these, within = array_of(message_ids), range_of(message_ids)
    of_messages = Condition("message_id = ANY(%s)", [these]) & within
    of_calls = Condition(
        f"id IN (SELECT id FROM {ToolCall._meta.db_table} WHERE {of_messages.sql})", of_messages.values
    )
    measured = _last_measured(message_ids)
    removed: Removed = []
    if Score in there:
        removed.append((Score, *remove_scores(db, Condition("message_id = ANY(%s)", [these]))))
    # The spans of a trace go with the first of its messages that goes.
    if traces := sorted({(message.project_id, message.trace_id) for message in locked if message.trace_id}):
        of_traces = Condition(
            "(project_id, trace_id) IN (SELECT * FROM unnest(%s::bigint[], %s::uuid[]))",
            [[project_id for project_id, _trace_id in traces], [trace_id for _project_id, trace_id in traces]],
        )
        hold_deliveries(db, traces)
        removed.append((Span, *_delete(db, Span, of_traces, measured)))
        fetch(db, f"DELETE FROM {DueTrace._meta.db_table} WHERE {of_traces.sql} RETURNING 1", of_traces.values)
    referring_first: tuple[tuple[type[Model], Condition], ...] = (
        (Event, of_messages),
        (Context, of_messages),
        (ToolResult, of_calls & within),
        (ToolCall, of_messages),
        (AgentStep, of_messages),
        (Reference, of_messages),
        (ErrorPattern, of_messages),
        (RunVector, Condition("id = ANY(%s)", [these]) & within),
    )
    for model, condition in referring_first:
        if model in there:
            removed.append((model, *_delete(db, model, condition, measured)))
    return removed


_BELOW: Mapping[type[Model], str] = {
    **dict.fromkeys((Event, Context, ToolResult, ToolCall, AgentStep, Reference, ErrorPattern, RunVector), "id"),
    Score: "message_id",
}
"""Models of rows that may belong to a message, with the column that has the time."""


def _with_rows(db: Database, message_ids: Sequence[UUID]) -> set[type[Model]]:
    """Return the tables of _BELOW that have rows of the time of these messages.

    The others need not be asked for each message. Nothing is added while the messages are locked.
    """
    exists = (
        f"EXISTS (SELECT 1 FROM {model._meta.db_table} WHERE {column} >= %s AND {column} < %s)"
        for model, column in _BELOW.items()
    )
    ((*are_there,),) = fetch(db, f"SELECT {', '.join(exists)}", range_of(message_ids).values * len(_BELOW))
    return {model for model, is_there in zip(_BELOW, are_there, strict=True) if is_there}


def _delete(db: Database, model: type[Model], condition: Condition, measured: UUID) -> tuple[int, int]:
    """Delete rows below messages; return (rows, size), which is that of the rows up to the id `measured`."""
    ((rows, size),) = fetch(
        db,
        f"WITH gone AS (DELETE FROM {model._meta.db_table} WHERE {condition.sql} "
        f"RETURNING CASE WHEN id <= %s THEN {size_of(model)} END AS size) "
        "SELECT count(*), coalesce(round(avg(size) * count(*)), 0)::bigint FROM gone",
        [*condition.values, measured],
    )
    return rows, size


def _last_measured(message_ids: Sequence[UUID]) -> UUID:
    """Return the last id whose size is measured; what lies below a message has its time in its id, too."""
    if len(message_ids) <= _MESSAGES_MEASURED:
        return LAST_ID
    return ids.first_id_at(ids.created_at_of(sorted(message_ids)[_MESSAGES_MEASURED]))


def _remove_message_rows(db: Database, message_ids: list[UUID], *, touch: bool) -> tuple[int, int]:
    """Delete the rows and subtract the live ones from the counters of their sessions; return (rows, size)."""
    here = Condition("id = ANY(%s)", [array_of(message_ids)]) & range_of(message_ids)
    live = " FILTER (WHERE deleted_at IS NULL)"
    sums = ", ".join(f"coalesce(sum({name}){live}, 0)::{COUNTER_TYPES[name]}" for name in COUNTERS)
    columns = ", ".join(f"{COUNTED_AS[name]} AS {name}" for name in COUNTERS)
    removed = fetch(
        db,
        f"WITH gone AS (DELETE FROM {MESSAGES} WHERE {here.sql} "
        f"RETURNING session_id, deleted_at, {columns}, CASE WHEN id <= %s THEN {size_of(Message)} END AS size) "
        f"SELECT session_id, count(*), sum(size)::bigint, count(size), {sums} FROM gone GROUP BY session_id",
        [*here.values, _last_measured(message_ids)],
    )
    gone = {
        session_id: Counts(**dict(zip(COUNTERS, counts, strict=True)))
        for session_id, _rows_, _size, _measured, *counts in removed
    }
    fetch(db, f"SELECT 1 FROM {SESSIONS} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [list(gone)])
    add_to_sessions(db, {session_id: -counts for session_id, counts in gone.items()}, touch=touch)
    # Clear the id of the last run; whether it failed is kept.
    fetch(
        db,
        f"UPDATE {SESSIONS} SET last_run_id = %s WHERE id = ANY(%s) AND last_run_id = ANY(%s) RETURNING 1",
        [NO_RUN_LEFT, list(gone), array_of(message_ids)],
    )
    rows, size, measured = (sum(row[index] or 0 for row in removed) for index in (1, 2, 3))
    return rows, round(size * rows / measured) if measured else 0
