"""The words everything is said in: one immutable record for each thing an agent run is made of.

Recorder, importers and wire decoders make these; normalise and redact pass them on; writes stores them. A record is
also the JSON of the REST API (the field names are those of the wire), so decoding and validating are one step.
Plain Python on msgspec: an agent process imports this without Django.

Times are aware datetimes (RFC 3339 on the wire), durations are milliseconds. None and "" mean "not said": a record that
is merged into a stored row never empties a field. Of a field that a record does not have, see unknown_fields.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

Role = Literal["user", "assistant", "system"]
CallStatus = Literal["pending", "success", "error"]
SessionStatus = Literal["planning", "running", "paused", "completed", "error", "aborted"]
EventType = Literal[
    "workflow_plan_start",
    "workflow_plan_complete",
    "workflow_execute_start",
    "workflow_execute_complete",
    "agent_start",
    "agent_complete",
    "agent_error",
    "prompt_build",
    "llm_request_start",
    "llm_request_complete",
    "tool_call_start",
    "tool_call_complete",
    "tool_call_error",
]
Level = Literal["trace", "debug", "info", "warn", "error"]
Category = Literal["execution", "prompt", "tool", "performance", "system"]

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

ROOT_TOOL = "root_tool_id"
"""Key in the metadata of a message: the tool at the root of its call chain, if the producer names it apart from the calls."""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all records: immutable, keyword fields, and no others: see unknown_fields.py."""


class ToolResult(Record, frozen=True, kw_only=True):
    """What a call came to."""

    status: CallStatus | None = None
    """Wins over `success`; where neither is said, a non-empty `error` means error."""
    success: bool | None = None
    """false is the status error, true success."""
    output: Any = ""
    """For people. What is no plain text is read where `data` and `raw` do not say it apart: see results.py."""
    data: Any = None
    """For machines: any JSON."""
    error: Any = None
    """Why it failed. Text; anything else is kept as JSON text."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say; also where fields go that a record does not have."""
    attachments: list[Any] | None = None
    """Files and images that came with it: any JSON."""
    raw: str | None = None
    """The text as received, where it differs from `output`."""


class ToolCall(Record, frozen=True, kw_only=True):
    """One call of a tool."""

    id: Name | None = None
    """The call id as the model gave it; it may repeat, even within a session."""
    uuid: Name | None = None
    """The producer's own, unique id of this call, or ours when a call comes back to us."""
    name: Name | None = None
    """The tool. "" or left out where the model gave none."""
    args: Any = None
    """A JSON object, or the JSON text of one; anything else is kept as {"_raw": ...}."""
    result: ToolResult | str | list[Any] | None = None
    """null while the call is open. A text, a number, a list of content blocks, or an object that is no result
    (docs/normalisation.md, section 1) is the `output` of one."""
    reflection: str | None = None
    """What the agent thought of the result."""
    duration: Milliseconds | None = None
    """Milliseconds. Omitted: from `started_at` to `completed_at`."""
    started_at: Instant | None = None
    """When the call began, with its zone."""
    completed_at: Instant | None = None
    """When its result was there, with its zone."""
    status: CallStatus | None = None
    """Omitted: that of the result; `pending` while there is none."""
    parent: Name | None = None
    """The call that started this one: its `uuid`, or its `id` when no other call of this id in the message has no `uuid`."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say."""


class AgentStep(Record, frozen=True, kw_only=True):
    """One think-act iteration."""

    id: Name | None = None
    """The producer's own id of this step, or ours when a step comes back to us."""
    iteration: Count | None = None
    """From 0. Data, not a key: agents repeat and skip iterations. Omitted: the next one."""
    thought: str | None = None
    """What the agent said it was about to do."""
    reasoning_content: str | None = None
    """What the provider returned as reasoning, apart from the thought."""
    tool_calls: list[ToolCall] | None = None
    """In the order in which the model asked for them."""
    agent_name: Name | None = None
    """Which agent, where there are several."""
    model: Name | None = None
    """The language model that was asked."""
    usage: dict[str, Any] | None = None
    """Tokens: `input_tokens` and `output_tokens`, or the names that the provider gives them."""
    timestamp: Instant | None = None
    """When the step began."""
    duration: Milliseconds | None = None
    """Milliseconds."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say."""


class Reference(Record, frozen=True, kw_only=True):
    """One retrieved passage behind an answer; the fields of WeKnora's SearchResult."""

    id: str | None = None
    """The id of the passage."""
    content: str | None = None
    """The text of the passage."""
    knowledge_id: str | None = None
    """The document that it is from."""
    chunk_index: Int64 | None = None
    """Which chunk of the document."""
    knowledge_title: str | None = None
    """The title of the document."""
    start_at: Int64 | None = None
    """Where the passage begins in the document, in characters."""
    end_at: Int64 | None = None
    """Where it ends."""
    seq: Int64 | None = None
    """Its place among the passages."""
    score: float | None = None
    """How well it fits the question; more is better."""
    match_type: Int32 | None = None
    """How it was found: 0 vector, 1 keyword, 2 nearby, 3 history, 4 parent, 5 relation, 6 graph, 7 web, 8 direct load, 9 data
    analysis."""
    sub_chunk_id: list[str] | None = None
    """The smaller chunks that it was put together from."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say."""
    chunk_type: str | None = None
    """text, image, table ..."""
    parent_chunk_id: str | None = None
    """The chunk that this one is a part of."""
    image_info: str | None = None
    """JSON text about images in it."""
    knowledge_filename: str | None = None
    """The file name of the document."""
    knowledge_source: str | None = None
    """Where the document came from: a URL, an upload."""


class Message(Record, frozen=True, kw_only=True):
    """One message of the conversation; an assistant message is one agent run."""

    role: Role
    """Who speaks."""
    id: Name | None = None
    """Kept when it is an id of ours (messages_app.ids) that says `created_at` and `role`; else it is the external id."""
    external_id: Name | None = None
    """The producer's id, unique in the session: what makes sending a message twice the same as sending it once."""
    request_id: Name | None = None
    """The request of the application that this message belongs to."""
    content: str | list[Any] | None = None
    """The text; a list of content parts is kept in `content_parts` and its text joined."""
    content_parts: list[Any] | None = None
    """The parts as the model takes or gives them: text, images, any JSON."""
    knowledge_references: list[Reference] | None = None
    """The passages that the answer rests on, in order."""
    agent_steps: list[AgentStep] | None = None
    """Only on an assistant message."""
    is_completed: bool | None = None
    """False while the answer is being made. Omitted: true."""
    created_at: Instant | None = None
    """When it was said, with its zone. Omitted: now."""
    completed_at: Instant | None = None
    """When the answer was done, with its zone."""
    duration: Milliseconds | None = None
    """Milliseconds. Omitted: from `created_at` to `completed_at`, else what the steps add up to."""
    usage: dict[str, Any] | None = None
    """Tokens, named as in a step. Omitted: those of the steps are counted."""
    error: str | None = None
    """Why the run as a whole failed."""
    health: list[Name] | None = None
    """Flags of what was odd about this message as it came, e.g. `orphan_result`."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say; also where fields go that a record does not have."""


class Session(Record, frozen=True, kw_only=True):
    """One conversation or task, with the messages that are said of it now."""

    id: Name | None = None
    """The id of a session that is there, or an external id."""
    external_id: Name | None = None
    """The producer's id, unique in the project: an agent's task id, a thread id."""
    title: str | None = None
    """For people; lists show it."""
    description: str | None = None
    """For people."""
    end_user: Name | None = None
    """Who talks to the agent, as the producer names them."""
    status: SessionStatus | None = None
    """Omitted: the status follows the messages: running while one is open, else error or completed like the last run. A
    status that is given stays until another one is given."""
    current_phase: str | None = None
    """What the agent is at, in its own words."""
    workflow: Any = None
    """The plan of the task: any JSON."""
    tags: list[Tag] | None = None
    """Words to find it by."""
    metadata: dict[str, Any] | None = None
    """Whatever else there is to say; also where fields go that a record does not have."""
    created_at: Instant | None = None
    """When it began, with its zone. Omitted: now."""
    messages: list[Message] | None = None
    """In the order in which they were said."""


class Event(Record, frozen=True, kw_only=True):
    """What happened, once: events make and update the steps, the calls and the run that they speak of."""

    session_id: Name
    """The id of a session that is there, or an external id: an agent's task id. One that is not there is made."""
    type: EventType
    """What happened."""
    id: Name | None = None
    """The producer's own id, unique in the session: a second delivery is the same event. Omitted: made of the rest."""
    number: Int64 | None = None
    """The producer's own number, which orders events whenever they arrive. Omitted: the order of arrival."""
    level: Level | None = None
    """Omitted: `error` where something failed, else `info`."""
    category: Category | None = None
    """Omitted: `tool` of calls, `prompt` of prompts and of what the model was asked, else `execution`."""
    timestamp: Instant | None = None
    """When it happened, with its zone. Omitted: now."""
    agent: Name | None = None
    """The agent, or the node of the workflow, that did it."""
    message_id: Name | None = None
    """The assistant message that the run is: an id, or an external id. Omitted: `run`."""
    data: dict[str, Any] | None = None
    """What there is to say, by type: see docs/events.md. Also where fields go that an event does not have."""


class Events(Record, frozen=True, kw_only=True):
    """A batch of events, of one session or of several. A list of them, or one alone, is taken too."""

    events: list[Event]
    """In any order: they are numbered by their producer, or in the order in which they stand here."""


class MessagePatch(Record, frozen=True, kw_only=True):
    """A change of a stored message. A field that is left out stays; null empties it; steps and references are merged."""

    version: Count | UnsetType = UNSET
    """The version that was read; a stale one is refused."""
    content: str | list[Any] | None | UnsetType = UNSET
    """The text; a list of content parts is kept in `content_parts` and its text joined."""
    content_parts: list[Any] | None | UnsetType = UNSET
    """The parts as the model takes or gives them: text, images, any JSON."""
    knowledge_references: list[Reference] = []
    """Added to those that are there."""
    agent_steps: list[AgentStep] = []
    """Merged with those that are there; a completed message takes no new steps or calls."""
    is_completed: bool | UnsetType = UNSET
    """true: the answer is done."""
    completed_at: Instant | None | UnsetType = UNSET
    """When the answer was done, with its zone."""
    duration: Milliseconds | None | UnsetType = UNSET
    """Milliseconds."""
    usage: dict[str, Any] | None | UnsetType = UNSET
    """Tokens, named as in a step."""
    error: str | None | UnsetType = UNSET
    """Why the run as a whole failed."""
    metadata: dict[str, Any] | None | UnsetType = UNSET
    """Takes the place of what was there."""


class SessionPatch(Record, frozen=True, kw_only=True):
    """A change of a stored session. A field that is left out stays; null empties it."""

    title: str | None | UnsetType = UNSET
    """For people; lists show it."""
    description: str | None | UnsetType = UNSET
    """For people."""
    end_user: Name | None | UnsetType = UNSET
    """Who talks to the agent, as the producer names them."""
    status: SessionStatus | None | UnsetType = UNSET
    """How the session goes; null: the status follows the messages again."""
    current_phase: str | None | UnsetType = UNSET
    """What the agent is at, in its own words."""
    workflow: Any | UnsetType = UNSET
    """The plan of the task: any JSON."""
    tags: list[Tag] | None | UnsetType = UNSET
    """Words to find it by; they take the place of those that were there."""
    metadata: dict[str, Any] | None | UnsetType = UNSET
    """Takes the place of what was there."""


# msgspec (0.22) finds out at its first use of a type what it needs to know of it, and crashes the process if two threads
# do that at a time: here there is one.
for _type in (Session, Events, MessagePatch, SessionPatch):
    Decoder(_type)
