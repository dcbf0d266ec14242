"""The state of one write, and its outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from access_app.encryption.envelope import DataKey
from messages_app.writes import Counts
from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import PriceTable
from tracesite_sdk.normalize.redacted import Redacted
from tracesite_sdk.redaction.engine import Receipt

from .tables import Row

Source = Literal["live", "import", "events"]
State = Literal["created", "updated", "unchanged", "refused"]
Refusal = Literal["session_deleted", "session_purged", "message_deleted", "message_purged", "message_completed"]


@dataclass(frozen=True, kw_only=True)
class MessageOutcome:
    """The outcome of one message; `id` is None if it was refused and never stored."""

    id: UUID | None
    external_id: str
    state: State
    refused: Refusal | None = None
    digests: bytes = b""
    """Of its rows, if the write was asked for them: see overwriting.py."""


@dataclass(frozen=True, kw_only=True)
class SessionOutcome:
    """The outcome of one session; if it is refused, so are all its messages."""

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
    """A session that existed when the transaction started is deleted or purged at its end."""


class SessionCreatedConcurrently(Exception):
    """Another sender created a session that did not exist when the transaction started."""


@dataclass(frozen=True, kw_only=True)
class WriteScope:
    """The rows that a write changes below a message. Only these are read, and added up before and after."""

    step_count: int
    """The steps of the message before the write. If its row has another number, all rows are read and added up."""
    call_count: int
    step_ids: Sequence[UUID]
    """Steps that are written or receive calls; some may not exist yet."""
    call_ids: Sequence[UUID]
    """Calls that are written or named as parents, and all calls of the steps that are written."""
    ordinals: Mapping[str, int]
    """The positions of steps in the message, by row id."""
    positions: Mapping[str, int]
    """The positions of calls in their steps, by row id."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parameters of one write."""

    project_id: int
    source: Source
    tool_ids: Mapping[str, int]
    prices: PriceTable
    sessions: Sequence[KnownSession]
    """The sessions of the batch that existed before."""
    purged: Set[UUID] = frozenset()
    """The keys of sessions of the batch that were purged."""
    optimistic: bool = False
    """Insert optimistically: skip the existence check for messages that look new."""
    now: datetime
    touched: Mapping[UUID, WriteScope] = field(default_factory=dict)
    """Scopes by the id of the message."""
    latest_event_at: Mapping[UUID, datetime] = field(default_factory=dict)
    """The time of the latest event of a message, for messages that grow by events."""
    digests: Mapping[UUID, bytes] = field(default_factory=dict)
    """Of the stored rows of messages, b"" for new ones: those whose outcomes are to have them."""
    data_key: DataKey | None = None
    """Encrypts what is written, in a project that is encrypted."""
    inputs: dict[str, Row] = field(default_factory=dict)
    """The rows of contexts by id, which are inserted last."""


@dataclass(kw_only=True)
class BatchSession:
    """A session of the batch: its row, and the additions of the batch."""

    id: UUID | None
    external_id: str
    created: bool = False
    refused: Refusal | None = None
    counts: Counts = field(default_factory=Counts)
    items: list[Redacted] = field(default_factory=list)
    """The records of the session that are not merged into its row yet."""


@dataclass(kw_only=True, eq=False)
class PendingMessage:
    """A message of the batch that is not written yet."""

    record: records.Message
    receipts: list[Receipt]
    place: int
    session: BatchSession
    id: UUID | None = None
    known: bool = False
    first: PendingMessage | None = None
    """The first message of the batch with the same key, if it is another one."""
    state: State = "created"
    refused: Refusal | None = None
    digests: bytes = b""
    was_completed: bool = False
    """Whether an existing message was completed before the write, so that it may have a seal."""

    def repeats(self, first: PendingMessage) -> None:
        if first is not self:  # a reference cycle would keep the batch in memory
            self.first = first

    def refuse(self, reason: Refusal) -> None:
        self.state, self.refused = "refused", reason

    def outcome(self) -> MessageOutcome:
        external_id = self.record.external_id or ""
        return MessageOutcome(
            id=self.id, external_id=external_id, state=self.state, refused=self.refused, digests=self.digests
        )
