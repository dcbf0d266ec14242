"""What one write is made of while it is under way, and what it reports at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from access_app.redaction.engine import Receipt
from messages_app.writes import Counts
from traces_app.normalize.redaction import Redacted
from traces_app.schema import records

Source = Literal["live", "import", "events"]
State = Literal["created", "updated", "unchanged", "refused"]
Refusal = Literal["session_deleted", "session_purged", "message_deleted", "message_purged", "message_completed"]


@dataclass(frozen=True, kw_only=True)
class MessageOutcome:
    """What became of one message; `id` is None when it was refused and never stored."""

    id: UUID | None
    external_id: str
    state: State
    refused: Refusal | None = None


@dataclass(frozen=True, kw_only=True)
class SessionOutcome:
    """What became of one session; when `refused` is set so are all its messages."""

    id: UUID | None
    external_id: str
    created: bool
    messages: list[MessageOutcome]
    refused: Refusal | None = None


class KnownSession(NamedTuple):
    """A session that exists, of any project."""

    id: UUID
    external_id: str
    is_deleted: bool
    project_id: int


class SessionGone(Exception):
    """A session that was there when the transaction began is deleted or purged at its end."""


class SessionMet(Exception):
    """A session that was not there when the transaction began was made by another sender meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Touched:
    """What a write touches of a message of which its sender keeps account: only that is read, and counted before and after."""

    step_count: int
    """All steps of the message, before the write; where it has another number of them, all are counted."""
    call_count: int
    step_ids: Sequence[UUID]
    """Steps that are written or get calls; some of them may not be there yet."""
    call_ids: Sequence[UUID]
    """Calls that are written or named, and all calls of the steps that are written."""
    ordinals: Mapping[str, int]
    """Where steps stand that are new, by their row ids."""
    positions: Mapping[str, int]
    """Where calls stand in their steps."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all steps of one write need."""

    project_id: int
    source: Source
    tool_ids: Mapping[str, int]
    sessions: Sequence[KnownSession]
    """The sessions of the batch that existed before."""
    purged: Set[UUID] = frozenset()
    """The keys of sessions of the batch that were purged, see `statements.Known`."""
    is_hopeful: bool = False
    """Whether messages that look new are written at once, without asking first whether they are."""
    now: datetime
    touched: Mapping[UUID, Touched] = field(default_factory=dict)
    """By the id of the message."""
    heard_at: Mapping[UUID, datetime] = field(default_factory=dict)
    """Of messages of which events are told, when the latest of these happened."""


@dataclass(kw_only=True)
class BatchSession:
    """A session of the batch: which row it is, and what the batch adds to it."""

    id: UUID | None
    external_id: str
    created: bool = False
    refused: Refusal | None = None
    counts: Counts = field(default_factory=Counts)
    said: list[Redacted] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class Incoming:
    """One message of the batch on its way to a row."""

    record: records.Message
    receipts: list[Receipt]
    place: int
    session: BatchSession
    id: UUID | None = None
    known: bool = False
    first: Incoming | None = None
    """The first of the batch that says the same identity, where it is not itself."""
    state: State = "created"
    refused: Refusal | None = None

    def repeats(self, first: Incoming) -> None:
        if first is not self:  # a message that leads to itself would keep the batch in memory
            self.first = first

    def refuse(self, reason: Refusal) -> None:
        self.state, self.refused = "refused", reason

    def outcome(self) -> MessageOutcome:
        external_id = self.record.external_id or ""
        return MessageOutcome(id=self.id, external_id=external_id, state=self.state, refused=self.refused)
