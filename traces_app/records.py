"""The words everything is said in: one immutable record for each thing an agent run is made of.

Recorder, importers and wire decoders make these; normalise and redact pass them on; writes stores them. A record is
also the JSON of the REST API (the field names are those of the wire), so decoding and validating are one step.
Plain Python on msgspec: an agent process imports this without Django.

Times are aware datetimes (RFC 3339 on the wire), durations are milliseconds. None and "" mean "not said": a record that
is merged into a stored row never empties a field. Of a field that a record does not have, see `decode.keep_unknown`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Role = Literal["user", "assistant", "system"]
CallStatus = Literal["pending", "success", "error"]
SessionStatus = Literal["planning", "running", "paused", "completed", "error", "aborted"]

Instant = Annotated[datetime, Meta(tz=True)]
# Up to 31 years: more is another unit, and sums of it would not fit into a column.
Milliseconds = Annotated[int, Meta(ge=0, le=10**12)] | Annotated[float, Meta(ge=0, le=10**12)]
# Whole numbers that land in columns of 32 and 64 bits.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Names and ids that are indexed: PostgreSQL refuses index rows above 2,704 bytes, and 512 characters are at most 2,048.
Name = Annotated[str, Meta(max_length=512)]
Tag = Annotated[str, Meta(max_length=200)]


class Record(Struct, frozen=True, kw_only=True):
    """The base of all records: immutable, keyword fields."""


class ToolResult(Record, frozen=True, kw_only=True):
    """What a call came to."""

    status: CallStatus | None = None
    """Wins over `success`; where neither is said, a non-empty `error` means error."""
    success: bool | None = None
    output: Any = ""
    """For people. Text; anything else is kept as JSON text, and as `data` where there is none."""
    data: Any = None
    """For machines: any JSON."""
    error: Any = None
    """Why it failed. Text; anything else is kept as JSON text."""
    metadata: dict[str, Any] | None = None
    attachments: list[Any] | None = None
    raw: str | None = None
    """The text as received, where it differs from `output`."""


class ToolCall(Record, frozen=True, kw_only=True):
    """One call of a tool."""

    id: Name | None = None
    """The call id as the model gave it; it may repeat, even within a session."""
    uuid: Name | None = None
    """The producer's own, unique id of this call, or ours when a call comes back to us."""
    name: Name | None = None
    args: Any = None
    """A JSON object, or the JSON text of one; anything else is kept as {"_raw": ...}."""
    result: ToolResult | str | None = None
    reflection: str | None = None
    duration: Milliseconds | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    status: CallStatus | None = None
    parent: Name | None = None
    """The call that started this one: its `uuid`, or its `id` when that is the only call of this id in the message."""
    metadata: dict[str, Any] | None = None


class AgentStep(Record, frozen=True, kw_only=True):
    """One think-act iteration."""

    id: Name | None = None
    """The producer's own id of this step, or ours when a step comes back to us."""
    iteration: Count | None = None
    """From 0. Data, not a key: agents repeat and skip iterations. Omitted: the next one."""
    thought: str | None = None
    reasoning_content: str | None = None
    """What the provider returned as reasoning, apart from the thought."""
    tool_calls: list[ToolCall] | None = None
    agent_name: Name | None = None
    model: Name | None = None
    usage: dict[str, Any] | None = None
    timestamp: Instant | None = None
    """When the step began."""
    duration: Milliseconds | None = None
    metadata: dict[str, Any] | None = None


class Reference(Record, frozen=True, kw_only=True):
    """One retrieved passage behind an answer; the fields of WeKnora's SearchResult."""

    id: str | None = None
    content: str | None = None
    knowledge_id: str | None = None
    chunk_index: Int64 | None = None
    knowledge_title: str | None = None
    start_at: Int64 | None = None
    end_at: Int64 | None = None
    seq: Int64 | None = None
    score: float | None = None
    match_type: Int32 | None = None
    sub_chunk_id: list[str] | None = None
    metadata: dict[str, Any] | None = None
    chunk_type: str | None = None
    parent_chunk_id: str | None = None
    image_info: str | None = None
    knowledge_filename: str | None = None
    knowledge_source: str | None = None


class Message(Record, frozen=True, kw_only=True):
    """One message of the conversation; an assistant message is one agent run."""

    role: Role
    id: Name | None = None
    """Kept when it is an id of ours (messages_app.ids) that says `created_at` and `role`; else it is the external id."""
    external_id: Name | None = None
    """The producer's id, unique in the session: what makes sending a message twice the same as sending it once."""
    request_id: Name | None = None
    content: str | list[Any] | None = None
    """The text; a list of content parts is kept in `content_parts` and its text joined."""
    content_parts: list[Any] | None = None
    knowledge_references: list[Reference] | None = None
    agent_steps: list[AgentStep] | None = None
    """Only on an assistant message."""
    is_completed: bool | None = None
    """False while the answer is being made. Omitted: true."""
    created_at: Instant | None = None
    completed_at: Instant | None = None
    duration: Milliseconds | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    health: list[Name] | None = None
    """Flags of what was odd about this message as it came, e.g. `orphan_result`."""
    metadata: dict[str, Any] | None = None


class Session(Record, frozen=True, kw_only=True):
    """One conversation or task, with the messages that are said of it now."""

    id: Name | None = None
    """The id of a session that is there, or an external id."""
    external_id: Name | None = None
    """The producer's id, unique in the project: an agent's task id, a thread id."""
    title: str | None = None
    description: str | None = None
    end_user: Name | None = None
    """Who talks to the agent, as the producer names them."""
    status: SessionStatus | None = None
    current_phase: str | None = None
    workflow: Any = None
    tags: list[Tag] | None = None
    metadata: dict[str, Any] | None = None
    created_at: Instant | None = None
    messages: list[Message] | None = None


class MessagePatch(Record, frozen=True, kw_only=True):
    """A change of a stored message. A field that is left out stays; null empties it; steps and references are merged."""

    version: Count | UnsetType = UNSET
    """The version that was read; a stale one is refused."""
    content: str | list[Any] | None | UnsetType = UNSET
    content_parts: list[Any] | None | UnsetType = UNSET
    knowledge_references: list[Reference] = []
    agent_steps: list[AgentStep] = []
    is_completed: bool | UnsetType = UNSET
    completed_at: Instant | None | UnsetType = UNSET
    duration: Milliseconds | None | UnsetType = UNSET
    usage: dict[str, Any] | None | UnsetType = UNSET
    error: str | None | UnsetType = UNSET
    metadata: dict[str, Any] | None | UnsetType = UNSET


class SessionPatch(Record, frozen=True, kw_only=True):
    """A change of a stored session. A field that is left out stays; null empties it."""

    title: str | None | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    end_user: Name | None | UnsetType = UNSET
    status: SessionStatus | UnsetType = UNSET
    current_phase: str | None | UnsetType = UNSET
    workflow: Any | UnsetType = UNSET
    tags: list[Tag] | None | UnsetType = UNSET
    metadata: dict[str, Any] | None | UnsetType = UNSET
