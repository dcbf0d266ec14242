"""The rows of events, and changes of rows that no record can express: other positions, and what no longer holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from access_app.db import Database
from traces_app.ingest import context_rows
from traces_app.ingest.sql import add_receipts, lock_messages
from traces_app.ingest.tables import EVENTS, Row
from traces_app.ingest.tool_ids import find_or_make_tools
from tracesite_sdk.events import projection
from tracesite_sdk.events.contexts import apart
from tracesite_sdk.events.projection import EventFact
from tracesite_sdk.records import ids, losses, pg_text
from tracesite_sdk.records.event_types import EVENT_TYPES
from tracesite_sdk.records.health_flags import ORPHAN_RESULT

from .batch import BatchRun, BatchSession, NewEvent, row_id

# The prefixes of receipt paths below a message; the id of the row follows in brackets.
_BELOW = {"call": "tool_calls", "step": "agent_steps"}
# Rows of other messages are never touched, and rows that do not change are not written. IS NOT DISTINCT FROM, because with
# "=" PostgreSQL may use the index on message_id and read all rows of the message.
_PLACE_STEPS = """
    UPDATE traces_app_agentstep AS step SET iteration = new.iteration, ordinal = new.ordinal
    FROM unnest(%s::uuid[], %s::int[], %s::int[]) AS new (id, iteration, ordinal)
    WHERE step.id = new.id AND step.id = ANY(%s::uuid[])
        AND step.message_id IS NOT DISTINCT FROM %s AND step.id >= %s AND step.id < %s
        AND (step.iteration, step.ordinal) IS DISTINCT FROM (new.iteration, new.ordinal)
    """
_PLACE_CALLS = """
    UPDATE traces_app_toolcall AS call SET step_id = new.step_id, position = new.position,
        tool_id = coalesce(new.tool_id, call.tool_id)
    FROM unnest(%s::uuid[], %s::uuid[], %s::int[], %s::bigint[]) AS new (id, step_id, position, tool_id)
    WHERE call.id = new.id AND call.id = ANY(%s::uuid[])
        AND call.message_id IS NOT DISTINCT FROM %s AND call.id >= %s AND call.id < %s
        AND (call.step_id, call.position, call.tool_id)
            IS DISTINCT FROM (new.step_id, new.position, coalesce(new.tool_id, call.tool_id))
    """


def move_rows(db: Database, run: BatchRun) -> None:
    """Move rows to their new positions, before the totals of the message are computed."""
    if run.id is None:
        return
    before = run.so_far.layout
    steps = [name for name, position in before.steps.items() if run.after.steps.get(name) != position]
    calls = [name for name, position in before.calls.items() if run.after.calls.get(name) != position]
    if not steps and not calls:
        return
    row = lock_messages(db, [run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    gone = [name for name in steps if name not in run.after.steps]
    _write_places(db, run, run.id, [name for name in steps if name in run.after.steps], calls, {})
    if gone:
        with db.cursor() as cursor:
            cursor.execute(
                "DELETE FROM traces_app_agentstep WHERE id = ANY(%s) AND message_id = %s",
                [[UUID(row_id(run.id, name)) for name in gone], run.id],
            )


def take_back_flags(db: Database, run: BatchRun) -> None:
    """Remove the flags of calls that looked wrong only because some of their events had not arrived."""
    before, after = run.so_far.call_flags, run.call_flags
    new_orphans = before.orphans - after.orphans
    gone = before.flags - after.flags
    if run.id is None or not (new_orphans or gone):
        return
    row = lock_messages(db, [run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    with db.cursor() as cursor:
        if gone:
            cursor.execute(
                "UPDATE messages_app_message SET health = "
                "(SELECT coalesce(array_agg(flag), '{}') FROM unnest(health) AS flag WHERE flag <> ALL(%s)) "
                "WHERE id = %s",
                [sorted(gone), run.id],
            )
        if new_orphans:
            cursor.execute(
                "UPDATE traces_app_toolcall SET metadata = metadata - %s WHERE id = ANY(%s) AND message_id = %s",
                [ORPHAN_RESULT, [UUID(row_id(run.id, call)) for call in new_orphans], run.id],
            )


def take_back_thoughts(db: Database, run: BatchRun, steps: Sequence[str]) -> None:
    """Empty the thoughts of steps whose text turned out to be the answer of the run."""
    if run.id is None or not steps:
        return
    row = lock_messages(db, [run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    with db.cursor() as cursor:
        cursor.execute(
            "UPDATE traces_app_agentstep SET thought = '' WHERE id = ANY(%s) AND message_id = %s",
            [[UUID(row_id(run.id, step)) for step in steps], run.id],
        )


def make_room_for_references(db: Database, run: BatchRun, fact: Sequence[EventFact]) -> None:
    """Delete the references of this run, because the list that replaces them may be shorter."""
    if run.id is None:
        return
    row = lock_messages(db, [run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    most = max(len(projection.references_in(new.data)) for new in fact)
    made = [UUID(ids.child_hex(run.id.int, "reference", position)) for position in range(most)]
    with db.cursor() as cursor:
        cursor.execute("DELETE FROM messages_app_reference WHERE id = ANY(%s) AND message_id = %s", [made, run.id])


def keep_receipts(db: Database, session_id: UUID, session: BatchSession) -> None:
    """Copy the receipts of events to the rows that follow from them, so that readers need not look at events."""
    of_messages: dict[UUID, list[dict[str, Any]]] = {}
    of_session: list[dict[str, Any]] = []
    for run in session.runs:
        for new in run.events:
            if not new.subject or projection.is_delta(new.subject) or "redactions" not in new.data:
                continue
            assert run.id is not None, "its events were kept"
            for receipt in losses.receipts_of(new.data):
                place = losses.place_of(receipt.path, projection.about(new.subject))
                if place is None:
                    continue
                document = receipt.as_json() | {"path": place.path}
                if place.owner == "session":
                    of_session.append(document)
                    continue
                if place.owner in _BELOW:
                    document["path"] = f"{_BELOW[place.owner]}[{UUID(row_id(run.id, new.subject))}].{place.path}"
                owner = (place.owner == "question" and run.question) or run.id
                of_messages.setdefault(owner, []).append(document)
    for message_id, receipts in sorted(of_messages.items()):
        add_receipts(db, "messages_app_message", message_id, receipts)
    if of_session:
        add_receipts(db, "messages_app_session", session_id, of_session)


def place_rows(db: Database, project_id: int, run: BatchRun) -> None:
    """Move the rows of the batch to their position, which the records do not have."""
    assert run.id is not None, "it was stored"
    calls = list(run.tools)
    steps = sorted({run.after.calls[call][0] for call in calls} | {
        new.subject for new in run.events if projection.is_step(new.subject)
    })  # fmt: skip
    if steps:
        tool_ids = find_or_make_tools(db, project_id, sorted(set(run.tools.values())))
        _write_places(db, run, run.id, steps, calls, {call: tool_ids[name] for call, name in run.tools.items()})


def _write_places(
    db: Database,
    run: BatchRun,
    message_id: UUID,
    steps: Sequence[str],
    calls: Sequence[str],
    tool_ids: Mapping[str, int],
) -> None:
    bounds = [message_id, *ids.range_below(message_id)]
    with db.cursor() as cursor:
        if steps:
            placed = [(row_id(message_id, name), *map(str, run.after.steps[name])) for name in sorted(steps)]
            columns = list(map(list, zip(*placed, strict=True)))
            cursor.execute(_PLACE_STEPS, [*columns, columns[0], *bounds])
        if calls:
            hosted = [
                (
                    row_id(message_id, name),
                    row_id(message_id, step),
                    str(position),
                    pg_text.number(tool_ids.get(name)),
                )
                for name in sorted(calls)
                for step, position in [run.after.calls[name]]
            ]
            columns = list(map(list, zip(*hosted, strict=True)))
            cursor.execute(_PLACE_CALLS, [*columns, columns[0], *bounds])


def event_row(
    db: Database, project_id: int, session_id: UUID, message_id: UUID, new: NewEvent, contexts: list[Row]
) -> Row:
    """Return the row of an event, and add the rows of its contexts to `contexts`."""
    event = new.record
    data, aside = apart(event.type, new.data)
    for context in aside:
        contexts += context_rows.rows_of(db, project_id, session_id, message_id, context, new.timestamp)
    spec = EVENT_TYPES[event.type]
    return EVENTS.Row(
        id=ids.child_hex(message_id.int, "event", new.external_id),
        project_id=str(project_id),
        session_id=session_id.hex,
        message_id=message_id.hex,
        seq=str(new.seq),
        external_id=pg_text.text(new.external_id),
        number=pg_text.number(event.number),
        type=event.type,
        level=event.level or spec.level,
        category=event.category or spec.category,
        timestamp=new.timestamp.isoformat(),
        agent=pg_text.text(event.agent),
        subject=new.subject,
        data=data,
    )
