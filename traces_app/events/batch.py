"""The events of one batch, with the runs and sessions that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal
from uuid import UUID

from traces_app.ingest.batch import Refusal, WriteScope
from tracesite_sdk import records
from tracesite_sdk.events import projection
from tracesite_sdk.events.projection import RUN, CallFlags, EventFact
from tracesite_sdk.events.step_order import Layout
from tracesite_sdk.events.unnamed_calls import Unnamed
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.records import ids

from .run_cache import RunSoFar

State = Literal["stored", "duplicate", "refused"]


@dataclass(frozen=True, kw_only=True)
class EventOutcome:
    """The outcome of one event."""

    session_id: UUID | None
    external_id: str
    state: State
    seq: int | None = None
    refused: Refusal | None = None


@dataclass(kw_only=True, eq=False)
class NewEvent:
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
class BatchRun:
    """A message to which events of the batch belong."""

    name: str
    events: list[NewEvent]
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
class BatchSession:
    """A session to which events of the batch belong."""

    name: str
    turn: str
    """The name that senders lock, whether the session exists or not."""
    events: list[NewEvent]
    id: UUID | None = None
    last_event: int = 0
    runs: list[BatchRun] = field(default_factory=list)
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


def new_of_run(run: BatchRun) -> list[EventFact]:
    """Return the new events about a run as a whole."""
    return [new.fact() for new in run.events if new.subject == RUN]


def created_at_of(run: BatchRun) -> datetime:
    """Return when the run started: the time in its id, or else of its first event."""
    id_ = run.id or hyphenated_uuid(run.name)
    if id_ is not None:
        created_at = ids.created_at_of(id_)
        if run.id is not None or (
            id_.version == 7 and created_at >= ids.EARLIEST and ids.is_ours(id_, created_at, "assistant")
        ):
            return created_at
    return min(new.timestamp for new in run.events)


def row_id(message_id: UUID, subject: str) -> str:
    """Return the row id that traces_app/ingest/rows.py derives from the id of a step or the `uuid` of a call."""
    key = ("call", "uuid", subject) if projection.is_call(subject) else ("step", "id", subject)
    return ids.child_hex(message_id.int, *key, 0)
