"""The records that follow from the events of a batch and those stored before; `ingest` writes their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from messages_app.interruptions import PROCESS_ENDED, metadata_of, text_of
from traces_app.ingest.batch import WriteScope
from traces_app.ingest.sql import lock_messages
from tracesite_sdk import records
from tracesite_sdk.events import projection
from tracesite_sdk.events.deltas import Span, names_no_step, span_of, spans_changed
from tracesite_sdk.events.projection import RUN, CallFlags, EventFact
from tracesite_sdk.events.step_order import Change, Layout
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.records.health_flags import INTERRUPTED, TIME_OUT_OF_RANGE, TRUNCATED

from . import scores
from .batch import BatchRun, BatchSession, created_at_of, new_of_run, row_id
from .clocks import CLOCK
from .reading import FACTS_OF_OTHERS, all_of, facts_from, stored_deltas, stored_facts
from .run_rows import make_room_for_references, move_rows, take_back_flags, take_back_thoughts

# Needed only for runs that are reported as interrupted.
_STATE_OF_RUN = """
    SELECT session.said_status = 'paused', (
        SELECT max(timestamp) FROM traces_app_event
        WHERE session_id = session.id AND message_id = %s AND id >= %s AND id < %s AND NOT data ? 'interrupted'
    ) FROM messages_app_session AS session WHERE session.id = %s
    """


def session_record(db: Database, session: BatchSession, now: datetime) -> records.Session:
    """Return the record of a session with the messages of its runs in the batch, and note in each run where it is in it."""
    messages: list[records.Message] = []
    own = _run_events(db, session)
    for run in session.runs:
        of_run = _messages(db, session, run, own)
        run.has_question = len(of_run) > 1
        messages += of_run
        run.place = len(messages) - 1
    state = projection.run_state(_session_facts(db, session, own))
    # The default phase of a new session (004-42).
    phase = state.phase or ("execute" if not session.last_event else "")
    return records.Session(
        # By its name, because the id cache is keyed by names.
        id=str(session.id) if session.turn == str(session.id) else None,
        external_id=None if session.turn == str(session.id) else session.turn,
        title=state.title or None,
        description=state.description or None,
        end_user=state.end_user or None,
        tags=state.tags or None,
        metadata=state.session_metadata or None,
        # A status that the producer stated before ("planning") no longer holds.
        status="running" if any(run.is_interrupted for run in session.runs) else state.status_of_session,
        current_phase=phase or None,
        workflow=state.workflow,
        created_at=min((new_event.timestamp for run in session.runs for new_event in run.events), default=now),
        messages=messages,
    )


def _run_events(db: Database, session: BatchSession) -> list[tuple[object, EventFact]]:
    """Return all events about the runs of the batch as a whole, with the run; nothing if the batch has no new ones."""
    new = [(run.id or run.name, fact) for run in session.runs for fact in new_of_run(run)]
    return sorted([*stored_facts(db, session, {RUN}), *new], key=_place) if new else []


def _session_facts(db: Database, session: BatchSession, own: Sequence[tuple[object, EventFact]]) -> list[EventFact]:
    """Return the events from which the session record is built: the new ones, because the row holds the rest already; or
    all, if a stored event comes later in the order."""
    new = [fact for run in session.runs for fact in new_of_run(run)]
    if session.id is None or session.last_of_runs is None or not new:
        return sorted(new, key=EventFact.place)
    if min(fact.order for fact in new) > session.last_of_runs:
        return sorted(new, key=EventFact.place)
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(FACTS_OF_OTHERS, [list(projection.OF_A_MESSAGE), session.id, session.run_ids])
        others = facts_from(db, cursor.fetchall(), projection.OF_A_MESSAGE)
    return [fact for _run, fact in sorted([*own, *others], key=_place)]


def _place(keyed: tuple[object, EventFact]) -> tuple[int, int, str]:
    return keyed[1].place()


def _messages(
    db: Database, session: BatchSession, run: BatchRun, run_events: Sequence[tuple[object, EventFact]]
) -> list[records.Message]:
    """Return the message of a run with the steps and calls in the batch, after the message of the user if there is one."""
    new = [run.unnamed.placed(new_event.fact()) for new_event in run.events]
    facts_of = _facts_of_touched(db, session, run, new)
    changed = _add_deltas(db, session, run, facts_of, new)
    steps = _steps(run, facts_of)
    silent = [step.id for step in steps if step.id and not step.thought]
    lost = changed & run.so_far.layout.subjects.keys()
    take_back_thoughts(
        db, run, [step for step in silent if step in lost or projection.may_have_answered(facts_of.get(step, ()))]
    )
    message = records.Message(
        role="assistant",
        id=str(run.id or run.name),
        created_at=created_at_of(run),
        is_completed=False,
        agent_steps=steps,
        health=sorted(_flags(run, facts_of, new)) or None,
    )
    if not any(fact.subject == RUN for fact in new):
        if any(map(projection.deltas_in, facts_of.values())):
            state = projection.run_state(_stored_of(db, session, run, RUN))
            message = _with_last_text(db, session, run, message, state, facts_of)
        return [message]
    facts_of_run = [fact for owner, fact in run_events if owner in (run.id, run.name)]
    if any("references" in fact.data for fact in new if fact.subject == RUN):
        make_room_for_references(db, run, facts_of_run)
    state = projection.run_state(facts_of_run)
    message = _with_state(db, session, run, message, state, new)
    message = _with_last_text(db, session, run, message, state, facts_of)
    return [_prompt(run, state), message] if state.has_prompt else [message]


def _facts_of_touched(
    db: Database, session: BatchSession, run: BatchRun, new: Sequence[EventFact]
) -> dict[str, list[EventFact]]:
    """Return all events, stored and new, about each step and call that the new ones change, in their order.

    Note in the run which rows the batch changes, and move those that it moves.
    """
    before = run.so_far.layout
    change, moved = _changed(db, run, session, new)
    take_back_flags(db, run)
    # A call that exists now becomes the parent of calls that named it before.
    touched = {fact.subject for fact in new if projection.is_step(fact.subject) or projection.is_call(fact.subject)}
    touched |= change.adopted | moved | spans_changed(run.after, new).keys()
    if change.is_recomputed:
        touched |= {call for call, parent in run.after.parents.items() if before.parents.get(call) != parent}
    facts_of: dict[str, list[EventFact]] = {subject: [] for subject in touched}
    for fact in [*_stored_facts_of(db, session, run, touched), *new]:
        if fact.subject in facts_of:
            facts_of[fact.subject].append(fact)
    for events in facts_of.values():
        events.sort(key=EventFact.place)
    if change.is_recomputed:
        move_rows(db, run)
    elif run.id is not None:
        run.touched = _touched(run, run.id, touched)
        # New rows are written at their position; only the tool of a call can change.
        run.is_in_place = not any(_is_renamed(subject, facts_of[subject], new) for subject in touched)
    return facts_of


def _add_deltas(
    db: Database, session: BatchSession, run: BatchRun, facts_of: dict[str, list[EventFact]], new: Sequence[EventFact]
) -> set[str]:
    """Add the deltas to the events of the steps that they are the text of. Return the steps whose deltas changed."""
    changed = set()
    for step, span in spans_changed(run.after, new).items():
        if all(map(names_no_step, facts_of[step])):
            changed.add(step)
            facts_of[step] += _deltas(db, session, run, span, new)
            facts_of[step].sort(key=EventFact.place)
    return changed


def _deltas(
    db: Database, session: BatchSession, run: BatchRun, span: Span, new: Sequence[EventFact]
) -> list[EventFact]:
    return [*stored_deltas(db, session, run, span), *filter(span.holds, new)]


def _with_last_text(
    db: Database,
    session: BatchSession,
    run: BatchRun,
    message: records.Message,
    state: projection.RunState,
    facts_of: Mapping[str, list[EventFact]],
) -> records.Message:
    """Return the message of a run that has ended without an answer with the text of its last step, if that came as deltas and
    the step calls nothing."""
    if state.completed_at is None or state.content or not run.after.steps:
        return message
    last = max(run.after.steps, key=lambda step: run.after.steps[step][1])
    if run.after.calls_of.get(last) or last not in run.after.subjects:
        return message
    events = facts_of.get(last)
    if events is None:
        events = _stored_of(db, session, run, last)
        if all(map(names_no_step, events)):
            deltas = _deltas(db, session, run, span_of(run.after, last), ())
            events = sorted([*events, *deltas], key=EventFact.place)
    if not projection.deltas_in(events):
        return message
    return msgspec.structs.replace(message, content=projection.step_record(last, events, 0, []).thought)


def _stored_of(db: Database, session: BatchSession, run: BatchRun, subject: str) -> list[EventFact]:
    """Return the stored events of a run about one subject, in their order."""
    facts = [fact for message_id, fact in stored_facts(db, session, {subject}) if message_id == run.id]
    return sorted(facts, key=EventFact.place)


def _stored_facts_of(db: Database, session: BatchSession, run: BatchRun, subjects: Set[str]) -> list[EventFact]:
    """Return the stored events of a run about these subjects, and perhaps about others."""
    stored = subjects & run.so_far.layout.subjects.keys()
    for group in run.unnamed.disordered:
        # The events of a call may be stored under any label of its group.
        calls = run.unnamed.subjects_of(group)
        stored |= calls if calls & subjects else set()
    if not stored:
        return []
    return [run.unnamed.placed(fact) for message_id, fact in stored_facts(db, session, stored) if message_id == run.id]


def _flags(run: BatchRun, facts_of: Mapping[str, Sequence[EventFact]], new: Sequence[EventFact]) -> set[str]:
    """Return the health flags that follow from the steps and calls of a run and from the times of new events."""
    flags = set(run.call_flags.flags)
    if any(projection.is_cut(subject, events) for subject, events in facts_of.items()):
        flags.add(TRUNCATED)
    if any(CLOCK in fact.data for fact in new):
        flags.add(TIME_OUT_OF_RANGE)
    return flags


def _with_state(
    db: Database,
    session: BatchSession,
    run: BatchRun,
    message: records.Message,
    state: projection.RunState,
    new: Sequence[EventFact],
) -> records.Message:
    """Return the message with the values that the events about its run have, and note in the run if it is interrupted."""
    completed_at, interruption = state.completed_at, state.interruption
    if interruption is not None and completed_at is None:
        run.is_interrupted = _is_left(db, session, run, state, interruption, new)
    if completed_at is not None and state.duration is not None:
        # A duration comes from a monotonic clock, a timestamp from a clock that can be set.
        completed_at = created_at_of(run) + timedelta(milliseconds=state.duration)
    error, metadata, health = state.error, state.metadata, [*(message.health or ()), *state.flags]
    if interruption is not None and run.is_interrupted:
        error = error or text_of(interruption.reason)
        metadata = {**(metadata or {}), **metadata_of(interruption.reason, interruption.at)}
        health.append(INTERRUPTED)
    return msgspec.structs.replace(
        message,
        request_id=state.request_id or None,
        content=state.content or None,
        content_parts=state.content_parts,
        knowledge_references=state.references or None,
        usage=state.usage,
        error=error or None,
        is_completed=completed_at is not None or run.is_interrupted,
        completed_at=completed_at,
        health=health,
        metadata=metadata,
    )


def _prompt(run: BatchRun, state: projection.RunState) -> records.Message:
    """Return the message of the user that a run answers."""
    return records.Message(
        role="user",
        external_id=f"{run.name}:prompt",
        request_id=state.request_id or None,
        content=state.prompt or None,
        content_parts=state.prompt_parts,
        health=state.prompt_flags,
        metadata=state.prompt_metadata,
        created_at=created_at_of(run),
    )


def time_of_latest_event(run: BatchRun, now: datetime) -> datetime:
    """Return the time of the latest event of a run. A new attempt counts as now, because it is news whenever it arrives."""
    begun = any(
        new_event.record.type == "workflow_execute_start" and new_event.data.get("attempt") for new_event in run.events
    )
    times = (new_event.timestamp for new_event in run.events if new_event.record.type != scores.SCORE)
    return now if begun else max(times, default=created_at_of(run))


def _is_left(
    db: Database,
    session: BatchSession,
    run: BatchRun,
    state: projection.RunState,
    interruption: projection.Interruption,
    new: Sequence[EventFact],
) -> bool:
    """Return whether a reported interruption is true: it is new, no other attempt is open, nothing has happened in the run
    since, and the run is not paused for a person."""
    others = [fact for fact in new if projection.interruption_of(fact) is None]
    if interruption.event not in {fact.external_id for fact in new} or state.open_attempts:
        return False
    if interruption.reason != PROCESS_ENDED and others:
        return False
    times = [fact.timestamp for fact in others]
    if session.id is not None and run.id is not None:
        with prepared_cursor(db.connection) as cursor:
            cursor.execute(_STATE_OF_RUN, [run.id, *ids.range_below(run.id), session.id])
            for is_paused, last in cursor.fetchall():
                if is_paused:
                    return False
                times += [last] if last is not None else []
    return interruption.reason != PROCESS_ENDED or all(time <= interruption.at for time in times)


def _changed(db: Database, run: BatchRun, session: BatchSession, new: Sequence[EventFact]) -> tuple[Change, set[str]]:
    """Return the change of positions that the batch causes, and the calls whose events now belong to other calls, so that
    their rows are created again."""
    known = run.so_far
    if not run.unnamed.disordered:
        change = known.layout.with_events(new)
        run.after, run.call_flags = change.layout, known.call_flags.with_events(new)
        return change, set()
    everything = [*map(run.unnamed.placed, all_of(db, run, session)), *new]
    run.after, run.call_flags = Layout().with_events(everything).layout, CallFlags().with_events(everything)
    moved = {call for group in run.unnamed.moved_since(known.unnamed) for call in run.unnamed.subjects_of(group)}
    row = lock_messages(db, [run.id]).get(run.id) if run.id is not None and moved else None
    if run.id is not None and row is not None and row.deleted_at is None:
        row_ids = [UUID(row_id(run.id, call)) for call in moved]
        with db.cursor() as cursor:
            cursor.execute("DELETE FROM traces_app_toolresult WHERE id = ANY(%s)", [row_ids])
            cursor.execute("DELETE FROM traces_app_toolcall WHERE id = ANY(%s) AND message_id = %s", [row_ids, run.id])
    return Change(run.after, True, frozenset()), moved


def _touched(run: BatchRun, message_id: UUID, subjects: Iterable[str]) -> WriteScope:
    before, after = run.so_far.layout, run.after
    steps = {subject for subject in subjects if projection.is_step(subject)}
    calls = {subject for subject in subjects if projection.is_call(subject)}
    parents = {after.parents[call] for call in calls if call in after.parents}
    # The duration of a step is the sum of its calls until it has its own.
    calls_of_steps = {call for step in steps for call in after.calls_of.get(step, ())}
    hosts = {after.calls[call][0] for call in calls}
    return WriteScope(
        step_count=len(before.steps),
        call_count=len(before.calls),
        step_ids=[UUID(row_id(message_id, step)) for step in steps | hosts],
        call_ids=[UUID(row_id(message_id, call)) for call in calls | parents | calls_of_steps],
        ordinals={row_id(message_id, step): after.steps[step][1] for step in steps | hosts},
        positions={row_id(message_id, call): after.calls[call][1] for call in calls},
    )


def _is_renamed(subject: str, events: Sequence[EventFact], new: Sequence[EventFact]) -> bool:
    """Return whether the tool of an existing call changes."""
    if not projection.is_call(subject):
        return False
    added = {new_event.external_id for new_event in new}
    before = [projection.tool_name(event.data) for event in events if event.external_id not in added]
    named = [name for name in before if name]
    after = [name for event in events if (name := projection.tool_name(event.data))]
    return bool(before) and named[-1:] != after[-1:]


def _steps(run: BatchRun, facts_of: Mapping[str, list[EventFact]]) -> list[records.AgentStep]:
    """Return the steps that the batch is about, and those of its calls, in their order."""
    calls: dict[str, list[tuple[int, records.ToolCall]]] = {}
    for subject, events in facts_of.items():
        if not projection.is_call(subject):
            continue
        parent = run.after.parents.get(subject)
        if parent and parent not in facts_of and run.id is not None:
            parent = str(UUID(row_id(run.id, parent)))
        call = projection.call_record(subject, events, parent)
        run.tools[subject] = pg_text.text(call.name)
        step, position = run.after.calls[subject]
        calls.setdefault(step, []).append((position, call))
    wanted = {*calls, *(subject for subject in facts_of if projection.is_step(subject))}
    return [
        projection.step_record(
            step,
            facts_of.get(step, []),
            run.after.steps[step][0],
            [call for _position, call in sorted(calls.get(step, []), key=lambda placed: placed[0])],
        )
        for step in sorted(wanted, key=lambda step: run.after.steps[step][1])
    ]
