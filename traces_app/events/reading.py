"""Read what is stored of the sessions and runs of a batch: their ids, the numbers of duplicates, and earlier events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.backends.utils import CursorWrapper

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from messages_app.models import Message, message_key
from traces_app.ingest.id_cache import find_named_sessions
from traces_app.ingest.sql import exchange
from tracesite_sdk.events.contexts import without_refs
from tracesite_sdk.events.deltas import Span
from tracesite_sdk.events.projection import RUN, EventFact, delta_subject
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.records import ids
from tracesite_sdk.records.event_types import EventType

from . import scores
from .batch import BatchRun, BatchSession, NewEvent
from .run_cache import RunSoFar, recall, run_id
from .stored_values import with_stored_values

# `order` and `tie` of projection.EventFact.
_ORDER = "coalesce(number, (extract(epoch FROM timestamp) * 1000000000)::bigint)"
_PLACE = f"{_ORDER}, CASE WHEN number IS NULL THEN seq ELSE 0 END"
# Only the fields that determine positions, and whether a call was announced and named.
_POSITIONS = f"""
    SELECT {_PLACE}, external_id, type, agent, subject, timestamp,
        jsonb_strip_nulls(jsonb_build_object('step', data -> 'step', 'step_id', data -> 'step_id',
            'stepId', data -> 'stepId', 'iteration', data -> 'iteration', 'parent', data -> 'parent',
            'parent_id', data -> 'parent_id', 'call_id', data -> 'call_id',
            'args', CASE WHEN coalesce(
                nullif(data -> 'args', 'null'), nullif(data -> 'params', 'null'), nullif(data -> 'arguments', 'null'),
                nullif(data -> 'input', 'null')
            ) IS NOT NULL OR data -> 'contextRefs' ?| array['args', 'params', 'arguments', 'input'] THEN true END,
            'name', data -> 'name', 'tool_name', data -> 'tool_name', 'toolName', data -> 'toolName',
            'tool', coalesce(
                nullif(data -> 'tool', 'null'),
                CASE WHEN data ?| array['name', 'tool_name', 'toolName', 'tool'] THEN to_jsonb(''::text) END
            )))::text, id
    FROM traces_app_event
    WHERE session_id = %s AND message_id = %s AND (subject LIKE 'step:%%' OR subject LIKE 'call:%%')
    """  # noqa: S608 - constants
# The ids of all rows of a run have its time, so other periods are pruned.
_OF_A_RUN = f"{_POSITIONS} AND id >= %s AND id < %s"
_FROM_THE_BEGINNING = f"{_OF_A_RUN} ORDER BY seq"
_SINCE = f"{_OF_A_RUN} AND seq > %s ORDER BY seq"
# One name at a time, as a range and in order, because only the index on both columns can serve that, whatever PostgreSQL's
# estimates are. With "=" a plan made while the table was small may read all events of a session for each name.
_NUMBERS = """
    SELECT event.* FROM unnest(%s::text[]) AS wanted (name) CROSS JOIN LATERAL (
        SELECT external_id, seq FROM traces_app_event
        WHERE session_id = %s AND external_id BETWEEN wanted.name AND wanted.name ORDER BY external_id
    ) AS event
    """
_LAST = "SELECT last_event FROM messages_app_session WHERE id = %s"
TAKE_TURNS = "SELECT pg_advisory_xact_lock(%s, key) FROM unnest(%s::int[]) AS key"
_FACTS = f"""
    SELECT event.* FROM unnest(%s::text[]) AS wanted (name) CROSS JOIN LATERAL (
        SELECT message_id, {_PLACE}, external_id, type, agent, subject, timestamp, data::text, id
        FROM traces_app_event
        WHERE session_id = %s AND subject BETWEEN wanted.name AND wanted.name
            AND message_id = ANY(%s::uuid[]) AND id >= %s AND id < %s
        ORDER BY subject
    ) AS event
    """  # noqa: S608 - constants
# A session can have thousands of runs, so the position of their last event is read before any of their events.
_LAST_OF_RUNS = f"""
    SELECT max(place) FROM unnest(%s::text[]) AS wanted (name) CROSS JOIN LATERAL (
        SELECT {_ORDER} AS place FROM traces_app_event
        WHERE session_id = %s AND subject BETWEEN wanted.name AND wanted.name ORDER BY subject
    ) AS event
    """  # noqa: S608 - constants
_DELTAS = f"""
    SELECT message_id, {_PLACE}, external_id, type, agent, subject, timestamp, data::text, id
    FROM traces_app_event
    WHERE session_id = %s AND subject BETWEEN %s AND %s AND message_id = %s AND id >= %s AND id < %s
        AND {_ORDER} BETWEEN %s AND %s
    ORDER BY subject
    """  # noqa: S608 - constants
FACTS_OF_OTHERS = f"""
    SELECT message_id, {_PLACE}, external_id, type, agent, subject, timestamp, (data - %s::text[])::text, id
    FROM traces_app_event
    WHERE session_id = %s AND subject BETWEEN 'run' AND 'run' AND message_id <> ALL(%s::uuid[]) ORDER BY subject
    """  # noqa: S608 - constants


def by_session(db: Database, project_id: int, batch: Sequence[NewEvent]) -> list[BatchSession]:
    """Return the sessions of the batch and their runs, with the ids of those that exist; in one order for all senders."""
    names = {new.record.session_id for new in batch}
    session_ids: dict[str, UUID] = {}
    turns: dict[UUID, str] = {}
    uuids = [uuid for name in names if (uuid := hyphenated_uuid(name)) is not None]
    for session_id, external_id, _deleted, owner in find_named_sessions(db, project_id, uuids, sorted(names)):
        if owner == project_id:
            session_ids[str(session_id)] = session_id
            turns[session_id] = external_id or str(session_id)
            if external_id:
                session_ids[external_id] = session_id
    sessions: dict[str, BatchSession] = {}
    for new in batch:
        name = new.record.session_id
        known = session_ids.get(name)
        session = sessions.setdefault(
            str(known or name), BatchSession(name=name, turn=turns[known] if known else name, events=[], id=known)
        )
        session.events.append(new)
    for session in sessions.values():
        _find_runs(db, session)
    return [session for _key, session in sorted(sessions.items())]


def _list_scores(db: Database, session: BatchSession) -> None:
    """Let the last run of a session list the scores of the session itself."""
    unplaced = [new for new in session.events if scores.names_no_message(new.record)]
    if unplaced and session.id is not None:
        answers = db.rows(Message.objects).filter(session_id=session.id, role=Message.Role.ASSISTANT)
        last = answers.order_by("-pk").values_list("pk", flat=True).first()
        for new in unplaced if last is not None else ():
            new.record = msgspec.structs.replace(new.record, message_id=str(last))


def _find_runs(db: Database, session: BatchSession) -> None:
    _list_scores(db, session)
    by_name: dict[str, UUID] = {}
    own_names: dict[str, str] = {}
    """The external ids of runs that are addressed by id, because the message of the user is named after them."""
    names = {new.run for new in session.events}
    if session.id is not None:
        uuids = [uuid for name in names if (uuid := hyphenated_uuid(name)) is not None]
        remembered = {name: run_id(db, session.id, name) for name in names if hyphenated_uuid(name) is None}
        by_name = {name: message_id for name, message_id in remembered.items() if message_id is not None}
        keys = {message_key(session.id, name): name for name in names if name not in by_name}
        with prepared_cursor(db.connection) as cursor:
            if keys:
                cursor.execute("SELECT key, message_id FROM messages_app_messagekey WHERE key = ANY(%s)", [list(keys)])
                by_name |= {keys[key]: message_id for key, message_id in cursor.fetchall()}
            if uuids:
                cursor.execute(
                    "SELECT id, external_id FROM messages_app_message WHERE id = ANY(%s) AND session_id = %s",
                    [uuids, session.id],
                )
                for pk, external_id in cursor.fetchall():
                    by_name[str(pk)], own_names[str(pk)] = pk, external_id
    runs: dict[str, BatchRun] = {}
    for new in session.events:
        # A run may be addressed by its id and by its name in one batch.
        known = by_name.get(new.run)
        name = own_names.get(new.run) or new.run
        runs.setdefault(str(known or new.run), BatchRun(name=name, events=[], id=known)).events.append(new)
    session.runs = [run for _name, run in sorted(runs.items())]


def read(db: Database, sessions: Sequence[BatchSession], turns: Sequence[Any]) -> None:
    """Read the state of each session in one pipeline, whose first statement takes the lock: the numbers of duplicates, the
    number of the last event, the events of each run since the one in the cache, and the events of the known steps and
    calls that the batch is about."""
    with exchange(db) as ask:
        ask(TAKE_TURNS, *turns)
        queries = [
            (session, _send_queries(db, session, session.id, ask)) for session in sessions if session.id is not None
        ]
    answers = [(session, [cursor.fetchall() for cursor in cursors]) for session, cursors in queries]
    for session, (numbers, last, last_of_runs, fact, *since) in answers:
        session.numbers = dict(numbers)
        session.last_event = last[0][0] if last else 0
        session.last_of_runs = last_of_runs[0][0]
        session.facts = facts_from(db, fact)
        for run, events in zip([run for run in session.runs if run.id is not None], since, strict=True):
            run.so_far = _with_more(db, run, session, [_fact(*row) for row in events])
            run.unnamed = run.so_far.unnamed


def _send_queries(
    db: Database, session: BatchSession, session_id: UUID, ask: Callable[..., CursorWrapper]
) -> list[CursorWrapper]:
    since: list[tuple[Any, ...]] = []
    subjects = {new.subject for new in session.events}
    known = {RUN}
    for run in session.runs:
        if run.id is None:
            continue
        run.so_far = recall(db, session_id, run.id)
        known |= subjects & run.so_far.layout.subjects.keys()
        if run.so_far.seq:
            since.append((_SINCE, session_id, run.id, *ids.range_below(run.id), run.so_far.seq))
        else:
            since.append((_FROM_THE_BEGINNING, session_id, run.id, *ids.range_below(run.id)))
    session.read_subjects = known & subjects
    return [
        ask(_NUMBERS, [new.external_id for new in session.events], session_id),
        ask(_LAST, session_id),
        ask(_LAST_OF_RUNS, [RUN] if RUN in subjects else [], session_id),
        ask(_FACTS, sorted(session.read_subjects), session_id, *session.runs_and_bounds),
        *(ask(*query) for query in since),
    ]


def _with_more(db: Database, run: BatchRun, session: BatchSession, events: Sequence[EventFact]) -> RunSoFar:
    """Return the cached state of a run updated with later events, in the order of their arrival."""
    known = run.so_far
    unnamed = known.unnamed.with_events(events)
    if unnamed.disordered and known.seq:
        # Events may belong to other calls than in the cached state.
        known, events = RunSoFar(), all_of(db, run, session)
    placed = [unnamed.placed(fact) for fact in events]
    return RunSoFar(
        seq=session.last_event,
        layout=known.layout.with_events(placed).layout,
        unnamed=unnamed,
        call_flags=known.call_flags.with_events(placed),
    )


def all_of(db: Database, run: BatchRun, session: BatchSession) -> list[EventFact]:
    """Read the fields that determine the positions of a run's steps and calls, of all stored events."""
    if run.id is None:
        return []
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_FROM_THE_BEGINNING, [session.id, run.id, *ids.range_below(run.id)])
        return [_fact(*row) for row in cursor.fetchall()]


def stored_facts(db: Database, session: BatchSession, subjects: Set[str]) -> list[tuple[UUID, EventFact]]:
    """Return the stored events about these subjects, with their run."""
    if session.id is None:
        return []
    facts = [fact for fact in session.facts if fact[1].subject in subjects]
    missing = subjects - session.read_subjects
    if missing:
        with prepared_cursor(db.connection) as cursor:
            cursor.execute(_FACTS, [sorted(missing), session.id, *session.runs_and_bounds])
            facts += facts_from(db, cursor.fetchall())
    return facts


def stored_deltas(db: Database, session: BatchSession, run: BatchRun, span: Span) -> list[EventFact]:
    """Return the stored deltas of a step that names none."""
    if run.id is None:
        return []
    subject = delta_subject(span.agent)
    where = [session.id, subject, subject, run.id, *ids.range_below(run.id), span.after[0], span.before[0]]
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_DELTAS, where)
        return [fact for _run, fact in facts_from(db, cursor.fetchall()) if span.holds(fact)]


def facts_from(
    db: Database, rows_of_events: Iterable[Sequence[Any]], without: Sequence[str] = ()
) -> list[tuple[UUID, EventFact]]:
    """Return rows of _FACTS as facts, with referenced contents put back except for the fields `without`."""
    facts = [(message_id, _fact(*row)) for message_id, *row in rows_of_events]
    if without:
        facts = [(message_id, replace(fact, data=without_refs(fact.data, without))) for message_id, fact in facts]
    whole = with_stored_values(db, [(message_id, fact.data) for message_id, fact in facts])
    return [
        (message_id, fact if data is fact.data else replace(fact, data=data))
        for (message_id, fact), data in zip(facts, whole, strict=True)
    ]


def _fact(
    order: int,
    tie: int,
    external_id: str,
    type_: EventType,
    agent: str,
    subject: str,
    timestamp: datetime,
    data: str,
    _id: UUID,
) -> EventFact:
    """Return the fact of a row. Its id is read because encrypted data is bound to it."""
    return EventFact(
        order=order,
        tie=tie,
        external_id=external_id,
        type=type_,
        agent=agent,
        subject=subject,
        timestamp=timestamp,
        data=msgspec.json.decode(data),
        is_stored=True,
    )
