"""Store events and the rows that follow from them in one transaction, and notify listeners after the commit.

 1. before the transaction: create the periods (partitions) and tools that are missing;
 2. lock the sessions (advisory locks), because the meaning of an event depends on those before it;
 3. leave out duplicates;
 4. for each step, call and run that an event is about, fold all of its events again (projection.py) and pass the records
    to `ingest`: rows first, session rows last;
 5. move rows whose position in the run has changed;
 6. assign the numbers from the session rows, and insert the events after the contexts that they refer to (contexts.py).

So the rows are those of all events in the order of their numbers, or else of their times, whenever each arrives. Messages
that are sent without events (POST /ingest/) write no event and take none of these locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, Literal
from uuid import UUID

import msgspec
import psycopg
from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import connection, transaction
from access_app.db.statements import prepared_cursor
from access_app.encryption.keys import key_of
from access_app.errors import Conflict
from messages_app import ids
from messages_app.interruptions import PROCESS_ENDED, metadata_of, text_of
from messages_app.models import Message, message_key
from messages_app.sql.periods import Period
from traces_app.ingest import context_rows
from traces_app.ingest.batch import Refusal, SessionCreatedConcurrently, SessionGone, SessionOutcome, WriteScope
from traces_app.ingest.id_cache import find_named_sessions, find_or_make_tools, forget_named_sessions
from traces_app.ingest.partitions import ensure_periods, forget
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.ingest.sql import add_receipts, exchange, insert_rows, lock_messages
from traces_app.ingest.tables import CONTEXTS, EVENTS, Row
from traces_app.normalize.records import hyphenated_uuid
from traces_app.normalize.redaction import RedactedEvent, receipts_as_json
from traces_app.schema import losses, pg_text, records
from traces_app.schema.event_types import EVENT_TYPES, EventType
from traces_app.schema.health_flags import INTERRUPTED, ORPHAN_RESULT, TIME_OUT_OF_RANGE, TRUNCATED

from . import projection, scores
from .clocks import CLOCK, is_in_range, moved, shift_into_range
from .contexts import apart, without_refs
from .feed import CHANNEL
from .ids import made_id
from .projection import RUN, CallFlags, EventFact
from .run_cache import RunSoFar, recall, remember, run_id
from .step_order import Change, Layout
from .stored_values import with_stored_values
from .unnamed_calls import Unnamed

State = Literal["stored", "duplicate", "refused"]

_LOCK = 0x65766E74  # "evnt"
_NOTICES = 100
"""Sessions in one notification, whose payload is limited to 8,000 bytes."""
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
            )))::text
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
_TAKE_TURNS = "SELECT pg_advisory_xact_lock(%s, key) FROM unnest(%s::int[]) AS key"
_FACTS = f"""
    SELECT event.* FROM unnest(%s::text[]) AS wanted (name) CROSS JOIN LATERAL (
        SELECT message_id, {_PLACE}, external_id, type, agent, subject, timestamp, data::text
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
_FACTS_OF_OTHERS = f"""
    SELECT message_id, {_PLACE}, external_id, type, agent, subject, timestamp, (data - %s::text[])::text
    FROM traces_app_event
    WHERE session_id = %s AND subject BETWEEN 'run' AND 'run' AND message_id <> ALL(%s::uuid[]) ORDER BY subject
    """  # noqa: S608 - constants

# Needed only for runs that are reported as interrupted.
_STATE_OF_RUN = """
    SELECT session.said_status = 'paused', (
        SELECT max(timestamp) FROM traces_app_event
        WHERE session_id = session.id AND message_id = %s AND id >= %s AND id < %s AND NOT data ? 'interrupted'
    ) FROM messages_app_session AS session WHERE session.id = %s
    """


@dataclass(frozen=True, kw_only=True)
class EventOutcome:
    """The outcome of one event."""

    session_id: UUID | None
    external_id: str
    state: State
    seq: int | None = None
    refused: Refusal | None = None


@dataclass(kw_only=True, eq=False)
class _New:
    """An event of the batch that has no row yet."""

    record: records.Event
    external_id: str
    timestamp: datetime
    data: dict[str, Any]
    outcome: EventOutcome | None = None
    order: int = 0
    tie: int = 0
    seq: int = 0
    is_unnamed: bool = False
    """Whether it is about a call whose only id was assigned here."""

    @property
    def run(self) -> str:
        return self.record.message_id or RUN

    @cached_property
    def subject(self) -> str:
        """Cached; it changes once when a call without an id gets its label."""
        return projection.subject_of(self.record.type, self.record.agent or "", self.external_id, self.data)

    def fact(self) -> EventFact:
        return EventFact(
            order=self.order,
            tie=self.tie,
            external_id=self.external_id,
            type=self.record.type,
            agent=self.record.agent or "",
            subject=self.subject,
            timestamp=self.timestamp,
            data=self.data,
        )


@dataclass(kw_only=True)
class _Run:
    """A message to which events of the batch belong."""

    name: str
    events: list[_New]
    id: UUID | None = None
    """None if it does not exist yet."""
    so_far: RunSoFar = field(default_factory=RunSoFar)
    after: Layout = field(default_factory=Layout)
    call_flags: CallFlags = field(default_factory=CallFlags)
    """The problems with its calls, after the batch."""
    touched: WriteScope | None = None
    """The rows that the batch changes; None if it also moves other rows."""
    is_in_place: bool = False
    """Whether all rows are written at their final position."""
    unnamed: Unnamed = field(default_factory=Unnamed)
    """The calls without an id, after the batch."""
    tools: dict[str, str] = field(default_factory=dict)
    """The tools of the calls in the batch."""
    place: int = 0
    """Index of its message in the session record."""
    is_interrupted: bool = False
    """Whether the batch reports that no process works on it any more, and that is true."""
    has_question: bool = False
    """Whether the message of the user comes before it in the record."""
    question: UUID | None = None


@dataclass(kw_only=True)
class _Session:
    """A session to which events of the batch belong."""

    name: str
    turn: str
    """The name that senders lock, whether the session exists or not."""
    events: list[_New]
    id: UUID | None = None
    last_event: int = 0
    runs: list[_Run] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """The numbers of duplicates, by external id."""
    read_subjects: set[str] = field(default_factory=set)
    """The subjects that `facts` covers."""
    facts: list[tuple[UUID, EventFact]] = field(default_factory=list)
    """The stored events about these subjects, with their run; for the subject RUN, only of runs of the batch."""
    last_of_runs: int | None = None
    """The order of the last stored event about any of its runs as a whole."""

    @property
    def run_ids(self) -> list[UUID]:
        return [run.id for run in self.runs if run.id is not None]

    @property
    def runs_and_bounds(self) -> tuple[list[UUID], UUID, UUID]:
        """The runs that exist, and the range of ids of everything below them."""
        runs = self.run_ids
        bounds = [ids.range_below(run_id) for run_id in runs]
        first, last = (min(bounds)[0], max(bounds)[1]) if bounds else (UUID(int=0), UUID(int=0))
        return runs, first, last


def record_events(project_id: int, events: Sequence[RedactedEvent]) -> list[EventOutcome]:
    """Store events and the rows that follow from them in one transaction; return outcomes in the order of `events`.

    An event whose id exists is a duplicate and changes nothing. Events for deleted or purged sessions and messages are
    refused one by one; the rest is stored. Times out of range are all shifted by the same amount, and the message is
    flagged `time_out_of_range`: see clocks.py.
    """
    now = timezone.now()
    shift = shift_into_range((one.event.timestamp for one in events), now)
    batch = [_new(one, now, shift) for one in events]
    tools = {projection.tool_name(one.data) for one in batch if EVENT_TYPES[one.record.type].subject == "call"}
    # A result need not name its tool, because the event of its call does.
    tools.discard("")
    if tools:
        find_or_make_tools(project_id, sorted(pg_text.text(name) for name in tools))
    for attempts_left in reversed(range(5)):
        sessions = _by_session(project_id, batch)
        periods = _periods_of(sessions, batch)
        ensure_periods(periods)
        try:
            with transaction.atomic():
                numbered = _record(project_id, sessions, batch, now)
                transaction.on_commit(partial(_notify, numbered))
            return [one.outcome for one in batch if one.outcome is not None]
        except SessionGone:
            # Deleted or purged during the write, or earlier while it was in the cache: nothing was stored, and the next
            # attempt refuses it.
            forget_named_sessions(project_id, [session.turn for session in sessions])
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
        for one in batch:
            one.outcome = None
    raise Conflict(_("The session is being deleted. Try again."), code="session_busy")


def take_turns(project_id: int, turns: Iterable[str]) -> None:
    """Lock these sessions against other writers of events until the end of the transaction.

    A session is named by its external id, or by its id if it has none.
    """
    with prepared_cursor() as cursor:
        cursor.execute(_TAKE_TURNS, _turns(project_id, turns))


def _turns(project_id: int, turns: Iterable[str]) -> list[Any]:
    return [_LOCK, sorted({ids.key("events", project_id, turn).int >> 97 for turn in turns})]


# --- The steps of a store ---------------------------------------------------------------------------------------------


def _new(one: RedactedEvent, now: datetime, shift: timedelta | None) -> _New:
    event = one.event
    data = dict(event.data or {})
    if receipts := dict.fromkeys([*losses.receipts_of(data), *one.receipts]):
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
    return _New(record=event, external_id=external_id, timestamp=timestamp, data=data)


def _by_session(project_id: int, batch: Sequence[_New]) -> list[_Session]:
    """Return the sessions of the batch and their runs, with the ids of those that exist; in one order for all senders."""
    names = {one.record.session_id for one in batch}
    found: dict[str, UUID] = {}
    turns: dict[UUID, str] = {}
    uuids = [uuid for name in names if (uuid := hyphenated_uuid(name)) is not None]
    for session_id, external_id, _deleted, owner in find_named_sessions(project_id, uuids, sorted(names)):
        if owner == project_id:
            found[str(session_id)] = session_id
            turns[session_id] = external_id or str(session_id)
            if external_id:
                found[external_id] = session_id
    sessions: dict[str, _Session] = {}
    for one in batch:
        name = one.record.session_id
        known = found.get(name)
        session = sessions.setdefault(
            str(known or name), _Session(name=name, turn=turns[known] if known else name, events=[], id=known)
        )
        session.events.append(one)
    for session in sessions.values():
        _find_runs(session)
    return [session for _key, session in sorted(sessions.items())]


def _list_scores(session: _Session) -> None:
    """Let the last run of a session list the scores of the session itself."""
    unplaced = [one for one in session.events if scores.names_no_message(one.record)]
    if unplaced and session.id is not None:
        answers = Message.objects.filter(session_id=session.id, role=Message.Role.ASSISTANT)
        last = answers.order_by("-pk").values_list("pk", flat=True).first()
        for one in unplaced if last is not None else ():
            one.record = msgspec.structs.replace(one.record, message_id=str(last))


def _find_runs(session: _Session) -> None:
    _list_scores(session)
    by_name: dict[str, UUID] = {}
    own_names: dict[str, str] = {}
    """The external ids of runs that are addressed by id, because the message of the user is named after them."""
    names = {one.run for one in session.events}
    if session.id is not None:
        uuids = [uuid for name in names if (uuid := hyphenated_uuid(name)) is not None]
        remembered = {name: run_id(session.id, name) for name in names if hyphenated_uuid(name) is None}
        by_name = {name: message_id for name, message_id in remembered.items() if message_id is not None}
        keys = {message_key(session.id, name): name for name in names if name not in by_name}
        with prepared_cursor() as cursor:
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
    runs: dict[str, _Run] = {}
    for one in session.events:
        # A run may be addressed by its id and by its name in one batch.
        known = by_name.get(one.run)
        name = own_names.get(one.run) or one.run
        runs.setdefault(str(known or one.run), _Run(name=name, events=[], id=known)).events.append(one)
    session.runs = [run for _name, run in sorted(runs.items())]


def _periods_of(sessions: Sequence[_Session], batch: Sequence[_New]) -> set[Period]:
    periods = {Period.of(one.timestamp) for one in batch}
    for session in sessions:
        for run in session.runs:
            periods.add(Period.of(_created_at(run)))
    return periods


def _record(
    project_id: int, sessions: list[_Session], batch: Sequence[_New], now: datetime
) -> list[tuple[UUID, int, int]]:
    """Return the numbers that were assigned: (session, first, last)."""
    turns = _turns(project_id, [session.turn for session in sessions])
    if any(run.id is None for session in sessions for run in session.runs):
        take_turns(project_id, [session.turn for session in sessions])
        # The previous holder of the locks may have created what was missing.
        sessions = _by_session(project_id, batch)
    _read(sessions, turns)
    for session in sessions:
        _leave_out_duplicates(session)
        _pair_calls(session)
    sessions = [session for session in sessions if session.runs]
    if not sessions:
        return []
    session_records = [_session_record(session, now) for session in sessions]
    touched = {run.id: run.touched for session in sessions for run in session.runs if run.id and run.touched}
    latest_event_at = {run.id: _latest_event_at(run, now) for session in sessions for run in session.runs if run.id}
    outcomes = ingest(project_id, session_records, source="events", touched=touched, latest_event_at=latest_event_at)
    lines: list[Row] = []
    contexts: list[Row] = []
    found: list[PlacedScore] = []
    numbered: list[tuple[UUID, int, int]] = []
    for session, outcome in zip(sessions, outcomes, strict=True):
        kept = _apply_outcome(project_id, session, outcome)
        if kept:
            assert outcome.id is not None, "it was not refused"
            numbered.append((outcome.id, *_give_numbers(outcome.id, kept)))
            # If some were refused, the numbers of the others are not those that the layout assumes.
            if not any(one.outcome is not None and one.outcome.state == "refused" for one in session.events):
                transaction.on_commit(partial(_remember, session, *numbered[-1]))
            _keep_receipts(outcome.id, session)
            for run in session.runs:
                lines += [
                    _row(project_id, outcome.id, run.id, one, contexts) for one in run.events if one.seq and run.id
                ]
            found += [
                scores.placed_score(
                    outcome.id,
                    run.id,
                    msgspec.structs.replace(one.record, id=one.external_id, data=one.data, timestamp=one.timestamp),
                )
                for run in session.runs
                for one in run.events
                if one.seq and run.id and one.record.type == scores.SCORE
            ]
    key = key_of(project_id)
    context_rows.add(CONTEXTS.encrypted(contexts, key))
    insert_rows([(EVENTS, EVENTS.encrypted(lines, key))])
    if found:
        store_scores(project_id, found)
    return numbered


def _read(sessions: Sequence[_Session], turns: Sequence[Any]) -> None:
    """Read the state of each session in one pipeline, whose first statement takes the lock: the numbers of duplicates, the
    number of the last event, the events of each run since the one in the cache, and the events of the known steps and
    calls that the batch is about."""
    with exchange() as ask:
        ask(_TAKE_TURNS, *turns)
        queries = [(session, _send_queries(session, session.id, ask)) for session in sessions if session.id is not None]
        answers = [(session, [cursor.fetchall() for cursor in cursors]) for session, cursors in queries]
    for session, (numbers, last, last_of_runs, fact, *since) in answers:
        session.numbers = dict(numbers)
        session.last_event = last[0][0] if last else 0
        session.last_of_runs = last_of_runs[0][0]
        session.facts = _facts_of(fact)
        for run, events in zip([run for run in session.runs if run.id is not None], since, strict=True):
            run.so_far = _with_more(run, session, [_fact(*row) for row in events])
            run.unnamed = run.so_far.unnamed


def _send_queries(session: _Session, session_id: UUID, ask: Callable[..., CursorWrapper]) -> list[CursorWrapper]:
    since: list[tuple[Any, ...]] = []
    subjects = {one.subject for one in session.events}
    known = {RUN}
    for run in session.runs:
        if run.id is None:
            continue
        run.so_far = recall(session_id, run.id)
        known |= subjects & run.so_far.layout.subjects.keys()
        if run.so_far.seq:
            since.append((_SINCE, session_id, run.id, *ids.range_below(run.id), run.so_far.seq))
        else:
            since.append((_FROM_THE_BEGINNING, session_id, run.id, *ids.range_below(run.id)))
    session.read_subjects = known & subjects
    return [
        ask(_NUMBERS, [one.external_id for one in session.events], session_id),
        ask(_LAST, session_id),
        ask(_LAST_OF_RUNS, [RUN] if RUN in subjects else [], session_id),
        ask(_FACTS, sorted(session.read_subjects), session_id, *session.runs_and_bounds),
        *(ask(*one) for one in since),
    ]


def _leave_out_duplicates(session: _Session) -> None:
    """Remove duplicates from the runs, and set the order of the new events."""
    seen: dict[str, _New] = {}
    for one in session.events:
        name = one.external_id
        if name in session.numbers or name in seen:
            one.outcome = EventOutcome(
                session_id=session.id, external_id=one.external_id, state="duplicate", seq=session.numbers.get(name)
            )
        else:
            seen[name] = one
            if one.record.number is not None:
                one.order = one.record.number
            else:
                one.order, one.tie = projection.nanoseconds(one.timestamp), session.last_event + len(seen)
    for run in session.runs:
        run.events = [one for one in run.events if one.outcome is None]
    session.runs = [run for run in session.runs if run.events]


def _with_more(run: _Run, session: _Session, events: Sequence[EventFact]) -> RunSoFar:
    """Return the cached state of a run updated with later events, in the order of their arrival."""
    known = run.so_far
    unnamed = known.unnamed.with_events(events)
    if unnamed.disordered and known.seq:
        # Events may belong to other calls than in the cached state.
        known, events = RunSoFar(), _all_of(run, session)
    placed = [unnamed.placed(fact) for fact in events]
    return RunSoFar(
        seq=session.last_event,
        layout=known.layout.with_events(placed).layout,
        unnamed=unnamed,
        call_flags=known.call_flags.with_events(placed),
    )


def _all_of(run: _Run, session: _Session) -> list[EventFact]:
    """Read the fields that determine the positions of a run's steps and calls, of all stored events."""
    if run.id is None:
        return []
    with prepared_cursor() as cursor:
        cursor.execute(_FROM_THE_BEGINNING, [session.id, run.id, *ids.range_below(run.id)])
        return [_fact(*row) for row in cursor.fetchall()]


def _pair_calls(session: _Session) -> None:
    """Assign labels to calls without an id; see unnamed_calls.py."""
    for run in session.runs:
        for one in run.events:
            one.is_unnamed = one.is_unnamed or projection.is_unnamed_call(one.record.type, one.data)
            if one.is_unnamed:
                name = pg_text.text(projection.tool_name(one.data) or projection.UNKNOWN)
                is_start = EVENT_TYPES[one.record.type].stage == "start"
                one.data["call_id"] = run.unnamed.label(one.record.agent or "", name, is_start=is_start)
                vars(one).pop("subject", None)
                run.unnamed = run.unnamed.with_events([one.fact()])


def _session_record(session: _Session, now: datetime) -> records.Session:
    messages: list[records.Message] = []
    own = _run_events(session)
    for run in session.runs:
        of_run = _messages(session, run, own)
        run.has_question = len(of_run) > 1
        messages += of_run
        run.place = len(messages) - 1
    state = projection.run_state(_session_facts(session, own))
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
        created_at=min((one.timestamp for run in session.runs for one in run.events), default=now),
        messages=messages,
    )


def _run_events(session: _Session) -> list[tuple[object, EventFact]]:
    """Return all events about the runs of the batch as a whole, with the run; nothing if the batch has no new ones."""
    new = [(run.id or run.name, fact) for run in session.runs for fact in _new_of_run(run)]
    return sorted([*_stored(session, {RUN}), *new], key=_place) if new else []


def _session_facts(session: _Session, own: Sequence[tuple[object, EventFact]]) -> list[EventFact]:
    """Return the events from which the session record is built: the new ones, because the row holds the rest already; or
    all, if a stored event comes later in the order."""
    new = [fact for run in session.runs for fact in _new_of_run(run)]
    if session.id is None or session.last_of_runs is None or not new:
        return sorted(new, key=EventFact.place)
    if min(fact.order for fact in new) > session.last_of_runs:
        return sorted(new, key=EventFact.place)
    with prepared_cursor() as cursor:
        cursor.execute(_FACTS_OF_OTHERS, [list(projection.OF_A_MESSAGE), session.id, session.run_ids])
        others = _facts_of(cursor.fetchall(), projection.OF_A_MESSAGE)
    return [fact for _run, fact in sorted([*own, *others], key=_place)]


def _new_of_run(run: _Run) -> list[EventFact]:
    """Return the new events about a run as a whole."""
    return [one.fact() for one in run.events if one.subject == RUN]


def _place(found: tuple[object, EventFact]) -> tuple[int, int, str]:
    return found[1].place()


def _messages(session: _Session, run: _Run, run_events: Sequence[tuple[object, EventFact]]) -> list[records.Message]:
    """Return the message of a run with the steps and calls in the batch, after the message of the user if there is one."""
    new = [run.unnamed.placed(one.fact()) for one in run.events]
    before = run.so_far.layout
    change, moved = _changed(run, session, new)
    _take_back_flags(run)
    # A call that exists now becomes the parent of calls that named it before.
    touched = {fact.subject for fact in new if fact.subject not in ("", RUN)} | change.adopted | moved
    if change.is_recomputed:
        touched |= {call for call, parent in run.after.parents.items() if before.parents.get(call) != parent}
    facts_of: dict[str, list[EventFact]] = {subject: [] for subject in touched}
    stored = touched & before.subjects.keys()
    for group in run.unnamed.disordered:
        # The events of a call may be stored under any label of its group.
        calls = run.unnamed.subjects_of(group)
        stored |= calls if calls & touched else set()
    if stored:
        for message_id, fact in _stored(session, stored):
            fact = run.unnamed.placed(fact)
            if message_id == run.id and fact.subject in facts_of:
                facts_of[fact.subject].append(fact)
    for fact in new:
        if fact.subject in facts_of:
            facts_of[fact.subject].append(fact)
    for events in facts_of.values():
        events.sort(key=EventFact.place)
    if change.is_recomputed:
        _move_rows(run)
    elif run.id is not None:
        run.touched = _touched(run, run.id, touched)
        # New rows are written at their position; only the tool of a call can change.
        run.is_in_place = not any(_is_renamed(subject, facts_of[subject], new) for subject in touched)
    created_at = _created_at(run)
    message = records.Message(
        role="assistant",
        id=str(run.id or run.name),
        created_at=created_at,
        is_completed=False,
        agent_steps=_steps(run, facts_of),
    )
    flags = run.call_flags.flags
    if any(projection.is_cut(subject, events) for subject, events in facts_of.items()):
        flags.add(TRUNCATED)
    if any(CLOCK in fact.data for fact in new):
        flags.add(TIME_OUT_OF_RANGE)
    if flags:
        message = msgspec.structs.replace(message, health=sorted(flags))
    if not any(fact.subject == RUN for fact in new):
        return [message]
    facts_of_run = [fact for owner, fact in run_events if owner in (run.id, run.name)]
    state = projection.run_state(facts_of_run)
    if any("references" in fact.data for fact in new if fact.subject == RUN):
        _make_room_for_references(run, facts_of_run)
    completed_at = state.completed_at
    if (interruption := state.interruption) is not None and completed_at is None:
        run.is_interrupted = _is_left(session, run, state, interruption, new)
    if completed_at is not None and state.duration is not None:
        # A duration comes from a monotonic clock, a timestamp from a clock that can be set.
        completed_at = created_at + timedelta(milliseconds=state.duration)
    message = msgspec.structs.replace(
        message,
        request_id=state.request_id or None,
        content=state.content or None,
        content_parts=state.content_parts,
        knowledge_references=state.references or None,
        usage=state.usage,
        error=state.error or (text_of(interruption.reason) if interruption and run.is_interrupted else None),
        is_completed=completed_at is not None or run.is_interrupted,
        completed_at=completed_at,
        health=[*(message.health or ()), *state.flags],
        metadata=state.metadata,
    )
    if interruption and run.is_interrupted:
        interrupted = metadata_of(interruption.reason, interruption.at)
        message = msgspec.structs.replace(
            message, health=[*(message.health or ()), INTERRUPTED], metadata={**(message.metadata or {}), **interrupted}
        )
    if not state.has_prompt:
        return [message]
    prompt = records.Message(
        role="user",
        external_id=f"{run.name}:prompt",
        request_id=state.request_id or None,
        content=state.prompt or None,
        content_parts=state.prompt_parts,
        health=state.prompt_flags,
        metadata=state.prompt_metadata,
        created_at=created_at,
    )
    return [prompt, message]


def _latest_event_at(run: _Run, now: datetime) -> datetime:
    """Return the time of the latest event of a run. A new attempt counts as now, because it is news whenever it arrives."""
    begun = any(one.record.type == "workflow_execute_start" and one.data.get("attempt") for one in run.events)
    times = (one.timestamp for one in run.events if one.record.type != scores.SCORE)
    return now if begun else max(times, default=_created_at(run))


def _is_left(
    session: _Session,
    run: _Run,
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
        with prepared_cursor() as cursor:
            cursor.execute(_STATE_OF_RUN, [run.id, *ids.range_below(run.id), session.id])
            for is_paused, last in cursor.fetchall():
                if is_paused:
                    return False
                times += [last] if last is not None else []
    return interruption.reason != PROCESS_ENDED or all(time <= interruption.at for time in times)


def _changed(run: _Run, session: _Session, new: Sequence[EventFact]) -> tuple[Change, set[str]]:
    """Return the change of positions that the batch causes, and the calls whose events now belong to other calls, so that
    their rows are created again."""
    known = run.so_far
    if not run.unnamed.disordered:
        change = known.layout.with_events(new)
        run.after, run.call_flags = change.layout, known.call_flags.with_events(new)
        return change, set()
    everything = [*map(run.unnamed.placed, _all_of(run, session)), *new]
    run.after, run.call_flags = Layout().with_events(everything).layout, CallFlags().with_events(everything)
    moved = {call for group in run.unnamed.moved_since(known.unnamed) for call in run.unnamed.subjects_of(group)}
    row = lock_messages([run.id]).get(run.id) if run.id is not None and moved else None
    if run.id is not None and row is not None and row.deleted_at is None:
        row_ids = [UUID(_row_id(run.id, call)) for call in moved]
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM traces_app_toolresult WHERE id = ANY(%s)", [row_ids])
            cursor.execute("DELETE FROM traces_app_toolcall WHERE id = ANY(%s) AND message_id = %s", [row_ids, run.id])
    return Change(run.after, True, frozenset()), moved


def _touched(run: _Run, message_id: UUID, subjects: Iterable[str]) -> WriteScope:
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
        step_ids=[UUID(_row_id(message_id, step)) for step in steps | hosts],
        call_ids=[UUID(_row_id(message_id, call)) for call in calls | parents | calls_of_steps],
        ordinals={_row_id(message_id, step): after.steps[step][1] for step in steps | hosts},
        positions={_row_id(message_id, call): after.calls[call][1] for call in calls},
    )


def _is_renamed(subject: str, events: Sequence[EventFact], new: Sequence[EventFact]) -> bool:
    """Return whether the tool of an existing call changes."""
    if not projection.is_call(subject):
        return False
    added = {one.external_id for one in new}
    before = [projection.tool_name(one.data) for one in events if one.external_id not in added]
    named = [name for name in before if name]
    after = [name for one in events if (name := projection.tool_name(one.data))]
    return bool(before) and named[-1:] != after[-1:]


def _steps(run: _Run, facts_of: Mapping[str, list[EventFact]]) -> list[records.AgentStep]:
    """Return the steps that the batch is about, and those of its calls, in their order."""
    calls: dict[str, list[tuple[int, records.ToolCall]]] = {}
    for subject, events in facts_of.items():
        if not projection.is_call(subject):
            continue
        parent = run.after.parents.get(subject)
        if parent and parent not in facts_of and run.id is not None:
            parent = str(UUID(_row_id(run.id, parent)))
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


def _apply_outcome(project_id: int, session: _Session, outcome: SessionOutcome) -> list[_New]:
    """Mark the events that were refused, move the rows of the others, and return their events."""
    kept: list[_New] = []
    for run in session.runs:
        message = outcome.messages[run.place]
        refused = outcome.refused or message.refused
        if refused:
            for one in run.events:
                one.outcome = EventOutcome(
                    session_id=outcome.id, external_id=one.external_id, state="refused", refused=refused
                )
            run.events = []
            continue
        run.id = message.id
        run.question = outcome.messages[run.place - 1].id if run.has_question else None
        if not run.is_in_place and message.state != "created":
            _place_rows(project_id, run)
        kept += run.events
    # In the order of arrival, across runs.
    wanted = set(map(id, kept))
    return [one for one in session.events if id(one) in wanted]


def _give_numbers(session_id: UUID, events: Sequence[_New]) -> tuple[int, int]:
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE messages_app_session SET last_event = last_event + %s::bigint, updated_at = now(), active_at = "
            "CASE WHEN latest.at >= active_at + interval '1 second' THEN latest.at ELSE active_at END "
            "FROM (SELECT least(%s::timestamptz, now()) AS at) AS latest "
            "WHERE id = %s AND deleted_at IS NULL RETURNING last_event",
            [str(len(events)), max(one.timestamp for one in events), session_id],
        )
        row = cursor.fetchone()
    if row is None:
        raise SessionGone
    last: int = row[0]
    first = last - len(events) + 1
    for seq, one in enumerate(events, first):
        one.seq = seq
        one.outcome = EventOutcome(session_id=session_id, external_id=one.external_id, state="stored", seq=seq)
    return first, last


def _notify(numbered: Sequence[tuple[UUID, int, int]]) -> None:
    notices = [f"{session_id} {first} {last}" for session_id, first, last in numbered]
    with connection.cursor() as cursor:
        for at in range(0, len(notices), _NOTICES):
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, ";".join(notices[at : at + _NOTICES])])


def _remember(session: _Session, session_id: UUID, _first: int, last: int) -> None:
    for run in session.runs:
        assert run.id is not None, "it was stored"
        remember(
            session_id,
            run.id,
            run.name,
            RunSoFar(seq=last, layout=run.after, unnamed=run.unnamed, call_flags=run.call_flags),
        )


# --- Rows -------------------------------------------------------------------------------------------------------------


def _stored(session: _Session, subjects: Set[str]) -> list[tuple[UUID, EventFact]]:
    """Return the stored events about these subjects, with their run."""
    if session.id is None:
        return []
    found = [one for one in session.facts if one[1].subject in subjects]
    missing = subjects - session.read_subjects
    if missing:
        with prepared_cursor() as cursor:
            cursor.execute(_FACTS, [sorted(missing), session.id, *session.runs_and_bounds])
            found += _facts_of(cursor.fetchall())
    return found


def _facts_of(rows_of_events: Iterable[Sequence[Any]], without: Sequence[str] = ()) -> list[tuple[UUID, EventFact]]:
    """Return rows of _FACTS as facts, with referenced contents put back except for the fields `without`."""
    found = [(message_id, _fact(*row)) for message_id, *row in rows_of_events]
    if without:
        found = [(message_id, replace(fact, data=without_refs(fact.data, without))) for message_id, fact in found]
    whole = with_stored_values([(message_id, fact.data) for message_id, fact in found])
    return [
        (message_id, fact if data is fact.data else replace(fact, data=data))
        for (message_id, fact), data in zip(found, whole, strict=True)
    ]


def _fact(
    order: int, tie: int, external_id: str, type_: EventType, agent: str, subject: str, timestamp: datetime, data: str
) -> EventFact:
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


def _move_rows(run: _Run) -> None:
    """Move rows to their new positions, before the totals of the message are computed."""
    if run.id is None:
        return
    before = run.so_far.layout
    steps = [name for name, place in before.steps.items() if run.after.steps.get(name) != place]
    calls = [name for name, place in before.calls.items() if run.after.calls.get(name) != place]
    if not steps and not calls:
        return
    row = lock_messages([run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    gone = [name for name in steps if name not in run.after.steps]
    _write_places(run, run.id, [name for name in steps if name in run.after.steps], calls, {})
    if gone:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM traces_app_agentstep WHERE id = ANY(%s) AND message_id = %s",
                [[UUID(_row_id(run.id, name)) for name in gone], run.id],
            )


def _take_back_flags(run: _Run) -> None:
    """Remove the flags of calls that looked wrong only because some of their events had not arrived."""
    before, after = run.so_far.call_flags, run.call_flags
    found = before.orphans - after.orphans
    gone = before.flags - after.flags
    if run.id is None or not (found or gone):
        return
    row = lock_messages([run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    with connection.cursor() as cursor:
        if gone:
            cursor.execute(
                "UPDATE messages_app_message SET health = "
                "(SELECT coalesce(array_agg(flag), '{}') FROM unnest(health) AS flag WHERE flag <> ALL(%s)) "
                "WHERE id = %s",
                [sorted(gone), run.id],
            )
        if found:
            cursor.execute(
                "UPDATE traces_app_toolcall SET metadata = metadata - %s WHERE id = ANY(%s) AND message_id = %s",
                [ORPHAN_RESULT, [UUID(_row_id(run.id, call)) for call in found], run.id],
            )


def _make_room_for_references(run: _Run, fact: Sequence[EventFact]) -> None:
    """Delete the references of this run, because the list that replaces them may be shorter."""
    if run.id is None:
        return
    row = lock_messages([run.id]).get(run.id)
    if row is None or row.deleted_at is not None:
        return
    most = max(len(projection.references_in(one.data)) for one in fact)
    made = [UUID(ids.child_hex(run.id.int, "reference", position)) for position in range(most)]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM messages_app_reference WHERE id = ANY(%s) AND message_id = %s", [made, run.id])


def _keep_receipts(session_id: UUID, session: _Session) -> None:
    """Copy the receipts of events to the rows that follow from them, so that readers need not look at events."""
    of_messages: dict[UUID, list[dict[str, Any]]] = {}
    of_session: list[dict[str, Any]] = []
    for run in session.runs:
        for one in run.events:
            if not (one.subject and "redactions" in one.data):
                continue
            assert run.id is not None, "its events were kept"
            for receipt in losses.receipts_of(one.data):
                place = losses.place_of(receipt.path, projection.about(one.subject))
                if place is None:
                    continue
                document = receipt.as_json() | {"path": place.path}
                if place.owner == "session":
                    of_session.append(document)
                    continue
                if place.owner in _BELOW:
                    document["path"] = f"{_BELOW[place.owner]}[{UUID(_row_id(run.id, one.subject))}].{place.path}"
                owner = (place.owner == "question" and run.question) or run.id
                of_messages.setdefault(owner, []).append(document)
    for message_id, receipts in sorted(of_messages.items()):
        add_receipts("messages_app_message", message_id, receipts)
    if of_session:
        add_receipts("messages_app_session", session_id, of_session)


def _place_rows(project_id: int, run: _Run) -> None:
    """Move the rows of the batch to their position, which the records do not have."""
    assert run.id is not None, "it was stored"
    calls = list(run.tools)
    steps = sorted({run.after.calls[call][0] for call in calls} | {
        one.subject for one in run.events if projection.is_step(one.subject)
    })  # fmt: skip
    if steps:
        tool_ids = find_or_make_tools(project_id, sorted(set(run.tools.values())))
        _write_places(run, run.id, steps, calls, {call: tool_ids[name] for call, name in run.tools.items()})


def _write_places(
    run: _Run, message_id: UUID, steps: Sequence[str], calls: Sequence[str], tool_ids: Mapping[str, int]
) -> None:
    bounds = [message_id, *ids.range_below(message_id)]
    with connection.cursor() as cursor:
        if steps:
            placed = [(_row_id(message_id, name), *map(str, run.after.steps[name])) for name in sorted(steps)]
            columns = list(map(list, zip(*placed, strict=True)))
            cursor.execute(_PLACE_STEPS, [*columns, columns[0], *bounds])
        if calls:
            hosted = [
                (
                    _row_id(message_id, name),
                    _row_id(message_id, step),
                    str(position),
                    pg_text.number(tool_ids.get(name)),
                )
                for name in sorted(calls)
                for step, position in [run.after.calls[name]]
            ]
            columns = list(map(list, zip(*hosted, strict=True)))
            cursor.execute(_PLACE_CALLS, [*columns, columns[0], *bounds])


def _row_id(message_id: UUID, subject: str) -> str:
    """Return the row id that rows.py derives from the id of a step or the `uuid` of a call."""
    key = ("call", "uuid", subject) if projection.is_call(subject) else ("step", "id", subject)
    return ids.child_hex(message_id.int, *key, 0)


def _row(project_id: int, session_id: UUID, message_id: UUID, one: _New, contexts: list[Row]) -> Row:
    """Return the row of an event, and add the rows of its contexts to `contexts`."""
    event = one.record
    data, aside = apart(event.type, one.data)
    for context in aside:
        contexts += context_rows.rows_of(session_id, message_id, context, one.timestamp)
    spec = EVENT_TYPES[event.type]
    return EVENTS.Row(
        id=ids.child_hex(message_id.int, "event", one.external_id),
        project_id=str(project_id),
        session_id=session_id.hex,
        message_id=message_id.hex,
        seq=str(one.seq),
        external_id=pg_text.text(one.external_id),
        number=pg_text.number(event.number),
        type=event.type,
        level=event.level or spec.level,
        category=event.category or spec.category,
        timestamp=one.timestamp.isoformat(),
        agent=pg_text.text(event.agent),
        subject=one.subject,
        data=data,
    )


def _created_at(run: _Run) -> datetime:
    """Return when the run started: the time in its id, or else of its first event."""
    id_ = run.id or hyphenated_uuid(run.name)
    if id_ is not None:
        created_at = ids.created_at_of(id_)
        if run.id is not None or (
            id_.version == 7 and created_at >= ids.EARLIEST and ids.is_ours(id_, created_at, "assistant")
        ):
            return created_at
    return min(one.timestamp for one in run.events)
