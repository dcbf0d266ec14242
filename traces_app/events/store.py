"""Store events and the rows that follow from them in one transaction, and notify listeners after the commit.

 1. before the transaction: create the periods (partitions) and tools that are missing;
 2. lock the sessions (advisory locks), because the meaning of an event depends on those before it;
 3. read what is stored of their runs (reading.py), and leave out duplicates;
 4. for each step, call and run that an event is about, fold all of its events again (run_records.py, projection.py) and
    pass the records to `ingest`: rows first, session rows last;
 5. move rows whose position in the run has changed (run_rows.py);
 6. assign the numbers from the session rows, and insert the events after the contexts that they refer to (contexts.py).

So the rows are those of all events in the order of their numbers, or else of their times, whenever each arrives. Messages
that are sent without events (POST /ingest/) write no event and take none of these locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import IntegrityError
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from access_app.encryption.keys import key_of
from access_app.errors import Conflict
from messages_app.sql.periods import Period
from traces_app.ingest import context_rows
from traces_app.ingest.batch import SessionCreatedConcurrently, SessionGone, SessionOutcome
from traces_app.ingest.id_cache import forget_named_sessions
from traces_app.ingest.partitions import ensure_periods, forget
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.ingest.sql import insert_rows
from traces_app.ingest.tables import CONTEXTS, EVENTS, Row
from traces_app.ingest.tool_ids import find_or_make_tools
from tracesite_sdk.events import projection
from tracesite_sdk.events.contexts import without_senders_refs
from tracesite_sdk.events.ids import made_id
from tracesite_sdk.normalize.redacted import RedactedEvent, receipts_as_json
from tracesite_sdk.records import ids, losses, pg_text
from tracesite_sdk.records.event_types import EVENT_TYPES

from . import scores
from .batch import BatchSession, EventOutcome, NewEvent, created_at_of
from .clocks import CLOCK, is_in_range, moved, shift_into_range
from .feed import CHANNEL
from .reading import TAKE_TURNS, by_session, read
from .run_cache import RunSoFar, remember
from .run_records import session_record, time_of_latest_event
from .run_rows import event_row, keep_receipts, place_rows

_LOCK = 0x65766E74  # "evnt"
_NOTICES = 100
"""Sessions in one notification, whose payload is limited to 8,000 bytes."""


def record_events(db: Database, project_id: int, events: Sequence[RedactedEvent]) -> list[EventOutcome]:
    """Store events and the rows that follow from them in one transaction; return outcomes in the order of `events`.

    An event whose id exists is a duplicate and changes nothing. Events for deleted or purged sessions and messages are
    refused one by one; the rest is stored. Times out of range are all shifted by the same amount, and the message is
    flagged `time_out_of_range`: see clocks.py.
    """
    now = timezone.now()
    shift = shift_into_range((redacted.event.timestamp for redacted in events), now)
    batch = [_new(redacted, now, shift) for redacted in events]
    tools = {projection.tool_name(new.data) for new in batch if EVENT_TYPES[new.record.type].subject == "call"}
    # A result need not name its tool, because the event of its call does.
    tools.discard("")
    if tools:
        find_or_make_tools(db, project_id, sorted(pg_text.text(name) for name in tools))
    for attempts_left in reversed(range(5)):
        sessions = by_session(db, project_id, batch)
        periods = _periods_of(sessions, batch)
        ensure_periods(db, periods)
        try:
            with db.atomic():
                numbered = _record(db, project_id, sessions, batch, now)
                db.on_commit(partial(_notify, db, numbered))
            return [new.outcome for new in batch if new.outcome is not None]
        except SessionGone:
            # Deleted or purged during the write, or earlier while it was in the cache: nothing was stored, and the next
            # attempt refuses it.
            forget_named_sessions(db, project_id, [session.turn for session in sessions])
        except SessionCreatedConcurrently:
            # The next attempt will find it.
            pass
        except IntegrityError as error:
            if isinstance(error.__cause__, psycopg.errors.CheckViolation):
                # "No partition of relation": a purge dropped a month that is still in our cache.
                forget()
            elif not (isinstance(error.__cause__, psycopg.errors.UniqueViolation) and attempts_left):
                raise
            # Another sender has just used an id that one of our events supplies.
        for new in batch:
            new.outcome = None
    raise Conflict(_("The session is being deleted. Try again."), code="session_busy")


def take_turns(db: Database, project_id: int, turns: Iterable[str]) -> None:
    """Lock these sessions against other writers of events until the end of the transaction.

    A session is named by its external id, or by its id if it has none.
    """
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(TAKE_TURNS, _turns(project_id, turns))


def _turns(project_id: int, turns: Iterable[str]) -> list[Any]:
    return [_LOCK, sorted({ids.key("events", project_id, turn).int >> 97 for turn in turns})]


def _new(redacted: RedactedEvent, now: datetime, shift: timedelta | None) -> NewEvent:
    event = redacted.event
    data = without_senders_refs(dict(event.data or {}))
    if receipts := dict.fromkeys([*losses.receipts_of(data), *redacted.receipts]):
        # The receipts of the producer, which redacted the event before it was sent, and our own.
        data["redactions"] = receipts_as_json(receipts)
    external_id = pg_text.text(event.id) or pg_text.text(made_id(event))
    if scores.names_no_message(event):
        data = scores.of_session(data)
    # From here on with names as PostgreSQL stores them, because they are looked up in that form.
    names = {name: pg_text.text(getattr(event, name)) or None for name in ("message_id", "agent")}
    event = msgspec.structs.replace(event, session_id=pg_text.text(event.session_id), **names)
    timestamp = event.timestamp or now
    if shift is not None and not is_in_range(timestamp, now):
        data[CLOCK] = {"timestamp": timestamp.isoformat()}
        timestamp = moved(timestamp, shift, now)
    return NewEvent(record=event, external_id=external_id, timestamp=timestamp, data=data)


def _periods_of(sessions: Sequence[BatchSession], batch: Sequence[NewEvent]) -> set[Period]:
    periods = {Period.of(new.timestamp) for new in batch}
    for session in sessions:
        for run in session.runs:
            periods.add(Period.of(created_at_of(run)))
    return periods


def _record(
    db: Database, project_id: int, sessions: list[BatchSession], batch: Sequence[NewEvent], now: datetime
) -> list[tuple[UUID, int, int]]:
    """Return the numbers that were assigned: (session, first, last)."""
    turns = _turns(project_id, [session.turn for session in sessions])
    if any(run.id is None for session in sessions for run in session.runs):
        take_turns(db, project_id, [session.turn for session in sessions])
        # The previous holder of the locks may have created what was missing.
        sessions = by_session(db, project_id, batch)
    read(db, sessions, turns)
    for session in sessions:
        _leave_out_duplicates(session)
        _pair_calls(session)
    sessions = [session for session in sessions if session.runs]
    if not sessions:
        return []
    session_records = [session_record(db, session, now) for session in sessions]
    touched = {run.id: run.touched for session in sessions for run in session.runs if run.id and run.touched}
    latest_event_at = {run.id: time_of_latest_event(run, now) for session in sessions for run in session.runs if run.id}
    outcomes = ingest(
        db, project_id, session_records, source="events", touched=touched, latest_event_at=latest_event_at
    )
    lines: list[Row] = []
    contexts: list[Row] = []
    placed: list[PlacedScore] = []
    numbered: list[tuple[UUID, int, int]] = []
    for session, outcome in zip(sessions, outcomes, strict=True):
        kept = _apply_outcome(db, project_id, session, outcome)
        if kept:
            assert outcome.id is not None, "it was not refused"
            numbered.append((outcome.id, *_give_numbers(db, outcome.id, kept)))
            # If some were refused, the numbers of the others are not those that the layout assumes.
            if not any(new.outcome is not None and new.outcome.state == "refused" for new in session.events):
                db.on_commit(partial(_remember, db, session, *numbered[-1]))
            keep_receipts(db, outcome.id, session)
            for run in session.runs:
                lines += [
                    event_row(db, project_id, outcome.id, run.id, new, contexts)
                    for new in run.events
                    if new.seq and run.id
                ]
            placed += _scores(outcome.id, session)
    key = key_of(project_id)
    context_rows.add(db, CONTEXTS.encrypted(contexts, key))
    insert_rows(db, [(EVENTS, EVENTS.encrypted(lines, key))])
    if placed:
        store_scores(db, project_id, placed)
    return numbered


def _scores(session_id: UUID, session: BatchSession) -> Iterator[PlacedScore]:
    """Yield the scores among the events that were stored."""
    for run in session.runs:
        for new in run.events:
            if new.seq and run.id and new.record.type == scores.SCORE:
                record = msgspec.structs.replace(new.record, id=new.external_id, data=new.data, timestamp=new.timestamp)
                yield scores.placed_score(session_id, run.id, record)


def _leave_out_duplicates(session: BatchSession) -> None:
    """Remove duplicates from the runs, and set the order of the new events."""
    seen: dict[str, NewEvent] = {}
    for new in session.events:
        name = new.external_id
        if name in session.numbers or name in seen:
            new.outcome = EventOutcome(
                session_id=session.id, external_id=new.external_id, state="duplicate", seq=session.numbers.get(name)
            )
        else:
            seen[name] = new
            if new.record.number is not None:
                new.order = new.record.number
            else:
                new.order, new.tie = projection.nanoseconds(new.timestamp), session.last_event + len(seen)
    for run in session.runs:
        run.events = [new for new in run.events if new.outcome is None]
    session.runs = [run for run in session.runs if run.events]


def _pair_calls(session: BatchSession) -> None:
    """Assign labels to calls without an id; see unnamed_calls.py."""
    for run in session.runs:
        for new in run.events:
            new.is_unnamed = new.is_unnamed or projection.is_unnamed_call(new.record.type, new.data)
            if new.is_unnamed:
                name = pg_text.text(projection.tool_name(new.data) or projection.UNKNOWN)
                is_start = EVENT_TYPES[new.record.type].stage == "start"
                new.data["call_id"] = run.unnamed.label(new.record.agent or "", name, is_start=is_start)
                vars(new).pop("subject", None)
                run.unnamed = run.unnamed.with_events([new.fact()])


def _apply_outcome(db: Database, project_id: int, session: BatchSession, outcome: SessionOutcome) -> list[NewEvent]:
    """Mark the events that were refused, move the rows of the others, and return their events."""
    kept: list[NewEvent] = []
    for run in session.runs:
        message = outcome.messages[run.place]
        refused = outcome.refused or message.refused
        if refused:
            for new in run.events:
                new.outcome = EventOutcome(
                    session_id=outcome.id, external_id=new.external_id, state="refused", refused=refused
                )
            run.events = []
            continue
        run.id = message.id
        run.question = outcome.messages[run.place - 1].id if run.has_question else None
        if not run.is_in_place and message.state != "created":
            place_rows(db, project_id, run)
        kept += run.events
    # In the order of arrival, across runs.
    wanted = set(map(id, kept))
    return [new for new in session.events if id(new) in wanted]


def _give_numbers(db: Database, session_id: UUID, events: Sequence[NewEvent]) -> tuple[int, int]:
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(
            "UPDATE messages_app_session SET last_event = last_event + %s::bigint, updated_at = now(), active_at = "
            "CASE WHEN latest.at >= active_at + interval '1 second' THEN latest.at ELSE active_at END "
            "FROM (SELECT least(%s::timestamptz, now()) AS at) AS latest "
            "WHERE id = %s AND deleted_at IS NULL RETURNING last_event",
            [str(len(events)), max(new.timestamp for new in events), session_id],
        )
        row = cursor.fetchone()
    if row is None:
        raise SessionGone
    last: int = row[0]
    first = last - len(events) + 1
    for seq, new in enumerate(events, first):
        new.seq = seq
        new.outcome = EventOutcome(session_id=session_id, external_id=new.external_id, state="stored", seq=seq)
    return first, last


def _notify(db: Database, numbered: Sequence[tuple[UUID, int, int]]) -> None:
    notices = [f"{session_id} {first} {last}" for session_id, first, last in numbered]
    with db.cursor() as cursor:
        for at in range(0, len(notices), _NOTICES):
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, ";".join(notices[at : at + _NOTICES])])


def _remember(db: Database, session: BatchSession, session_id: UUID, _first: int, last: int) -> None:
    for run in session.runs:
        assert run.id is not None, "it was stored"
        remember(
            db,
            session_id,
            run.id,
            run.name,
            RunSoFar(seq=last, layout=run.after, unnamed=run.unnamed, call_flags=run.call_flags),
        )
