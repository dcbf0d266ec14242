"""The records that every way in produces: one immutable structure for each thing that a trace is made of.

The recorder, importers and decoders create records; normalisation and redaction return changed copies; ingest stores
them. The field names are those of the REST API, so decoding a request and validating it are one step.

Times are aware datetimes (RFC 3339 on the wire), durations are milliseconds. None and "" mean "not given": a record that
is merged into a stored row never empties a field. For fields that a record does not have, see normalize/extra_fields.py.

Every field that can hold text is declared either `Searched`, which redaction looks through, or `NotSearched`. A field that
is neither fails at import, with its name (normalize/redacted.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from .event_types import Category, EventType, Level

T = TypeVar("T")
_SEARCHED = Meta(extra={"searched": True})
Searched = Annotated[T, _SEARCHED]
"""Free text, URLs and free JSON, in which redaction looks for secrets."""
NotSearched = Annotated[T, Meta(extra={"searched": False})]
"""Names and ids by which traces are found."""

Role = Literal["user", "assistant", "system"]
CallStatus = Literal["pending", "success", "error"]
SessionStatus = Literal["planning", "running", "paused", "completed", "error", "aborted"]
Instant = Annotated[datetime, Meta(tz=True)]
# At most 31 years: a larger number is in another unit, and sums of it would overflow the column.
Milliseconds = Annotated[int, Meta(ge=0, le=10**12)] | Annotated[float, Meta(ge=0, le=10**12)]
# Integers for columns of 32 and 64 bits.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_AMOUNT = Meta(gt=-(10**10), lt=10**10)
Amount = Annotated[int, _AMOUNT] | Annotated[float, _AMOUNT]
"""For a DecimalField(max_digits=20, decimal_places=10). The bounds also exclude NaN and infinity. No Decimal, because msgspec
checks no bounds of one and accepts the text "NaN"; the digits of a float are those that its sender wrote."""
Cost = Annotated[int, Meta(ge=0, lt=10**10)] | Annotated[float, Meta(ge=0, lt=10**10)]
"""An Amount of USD."""
# Names and ids that are indexed: PostgreSQL refuses index rows above 2,704 bytes, and 512 characters are at most 2,048.
Name = Annotated[str, Meta(max_length=512, extra={"searched": False})]
Tag = Annotated[str, Meta(max_length=200)]
ScoreKind = Literal["numeric", "boolean", "categorical"]
ScoreSource = Literal["person", "program", "evaluator"]
ScoreNumber = Annotated[float, Meta(ge=-1e300, le=1e300)]
ScoreLabel = Annotated[str, Meta(max_length=1_000)]

ROOT_TOOL = "root_tool_id"
"""Key in the metadata of a message: the tool at the root of its call chain, if the producer names it separately."""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all records: immutable, keyword-only, and without unknown fields (see normalize/extra_fields.py)."""


def text_fields(type_: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields that are free text and nothing else."""
    hints = get_type_hints(type_, include_extras=True)
    return tuple(name for name, hint in hints.items() if get_args(hint) == (str | None, _SEARCHED))


class ToolResult(Record, frozen=True, kw_only=True):
    """The outcome of a call."""

    status: CallStatus | None = None
    """Takes precedence over `success`. If both are omitted, a non-empty `error` means error."""
    success: bool | None = None
    """false: the status is error; true: success."""
    output: Searched[Any] = ""
    """For people. Anything but plain text is parsed unless `data` and `raw` are given (docs/what_is_stored.md, "Result or data")."""
    data: Searched[Any] = None
    """For machines: any JSON."""
    error: Searched[Any] = None
    """Why it failed. Anything but text is kept as JSON text."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data. Fields that the API does not know are moved here."""
    attachments: Searched[list[Any] | None] = None
    """Files and images of the result: any JSON."""
    raw: Searched[str | None] = None
    """The text as received, if it differs from `output`."""


class ToolCall(Record, frozen=True, kw_only=True):
    """One call of a tool."""

    id: Name | None = None
    """The call id that the model gave; it may repeat, even within a session."""
    uuid: Name | None = None
    """The producer's own unique id of this call, or our id when a call is sent back."""
    name: Name | None = None
    """The tool. Empty or omitted if the model gave none."""
    args: Searched[Any] = None
    """A JSON object, or its JSON text; anything else is kept as {"_raw": ...}."""
    # Normalisation makes a ToolResult of it, which is searched by itself.
    result: NotSearched[ToolResult | str | list[Any] | None] = None
    """null while the call is open. A text, a number, a list of content blocks, or an object that is not a result
    (docs/what_is_stored.md, "Result or data") becomes the `output`."""
    reflection: Searched[str | None] = None
    """The agent's comment on the result."""
    duration: Milliseconds | None = None
    """Milliseconds. Default: from `started_at` to `completed_at`."""
    started_at: Instant | None = None
    """When the call started, with a time zone."""
    completed_at: Instant | None = None
    """When the result arrived, with a time zone."""
    status: CallStatus | None = None
    """Default: the status of the result, or `pending` without one."""
    parent: Name | None = None
    """The call that started this one: its `uuid`, or its `id` if only one call of this id in the message has no `uuid`."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data."""


class ModelInput(Record, frozen=True, kw_only=True):
    """The input of a model, in the form of its provider."""

    messages: Searched[list[Any] | None] = None
    """The conversation as it was sent, in its order. A message, a tool or the system prompt may be {"contextRef": ...}, a key of
    the session's `contexts`."""
    system: Searched[Any] = None
    """The system prompt, if it is not one of the messages: a text or content blocks."""
    tools: Searched[list[Any] | None] = None
    """The schemas of the tools that the model may call."""
    parameters: Searched[dict[str, Any] | None] = None
    """The other parameters of the request, such as `temperature`."""


class AgentStep(Record, frozen=True, kw_only=True):
    """One think-act iteration."""

    id: Name | None = None
    """The producer's own id of this step, or our id when a step is sent back."""
    iteration: Count | None = None
    """From 0. Not unique: agents repeat and skip iterations. Default: the next one."""
    thought: Searched[str | None] = None
    """The text in which the agent plans its next action."""
    reasoning_content: Searched[str | None] = None
    """The reasoning that the provider returned separately from the thought."""
    tool_calls: list[ToolCall] | None = None
    """In the order in which the model requested them."""
    agent_name: Name | None = None
    """The agent, if there are several."""
    model: Name | None = None
    """The language model."""
    usage: Searched[dict[str, Any] | None] = None
    """Tokens: `input_tokens` and `output_tokens`, or the provider's names for them."""
    cost: Cost | None = None
    """USD, if the producer knows it. Default: the tokens times the price of the model (docs/cost.md)."""
    cost_is_explicit: bool | None = None
    """Only in responses that are sent back. false: the cost was computed from prices, and will be computed again."""
    timestamp: Instant | None = None
    """When the step started."""
    duration: Milliseconds | None = None
    """Milliseconds."""
    time_to_first_token: Milliseconds | None = None
    """Milliseconds from the request to the first part of the response."""
    input: ModelInput | None = None
    """What the model was asked. Each message is stored once for a session."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data."""


class Reference(Record, frozen=True, kw_only=True):
    """One retrieved passage behind an answer; the fields of WeKnora's SearchResult."""

    id: NotSearched[str | None] = None
    """The id of the passage."""
    content: Searched[str | None] = None
    """The text of the passage."""
    knowledge_id: NotSearched[str | None] = None
    """The document that contains the passage."""
    chunk_index: Int64 | None = None
    """The index of the chunk in the document."""
    knowledge_title: Searched[str | None] = None
    """The title of the document."""
    start_at: Int64 | None = None
    """Start of the passage in the document, in characters."""
    end_at: Int64 | None = None
    """End of the passage."""
    seq: Int64 | None = None
    """Its position among the passages."""
    score: float | None = None
    """Relevance; higher is better."""
    match_type: Int32 | None = None
    """How the passage was found: 0 vector, 1 keyword, 2 nearby, 3 history, 4 parent, 5 relation, 6 graph, 7 web, 8 direct load, 9 data
    analysis."""
    sub_chunk_id: NotSearched[list[str] | None] = None
    """The smaller chunks that it was assembled from."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data."""
    chunk_type: NotSearched[str | None] = None
    """For example text, image or table."""
    parent_chunk_id: NotSearched[str | None] = None
    """The chunk that contains this one."""
    image_info: Searched[str | None] = None
    """JSON text about the images in the passage."""
    knowledge_filename: Searched[str | None] = None
    """The file name of the document."""
    knowledge_source: Searched[str | None] = None
    """The origin of the document: a URL, an upload."""


class Message(Record, frozen=True, kw_only=True):
    """One message of the conversation; an assistant message is one agent run."""

    role: Role
    """The role of the message."""
    id: Name | None = None
    """Kept if it is one of our ids and matches `created_at` and `role`; otherwise it becomes the external id."""
    external_id: Name | None = None
    """The producer's id, unique in the session. Sending a message again with the same id updates it."""
    request_id: Name | None = None
    """The id of the application's request that this message belongs to."""
    content: Searched[str | list[Any] | None] = None
    """The text. A list of content parts is kept in `content_parts`, and its text is joined."""
    content_parts: Searched[list[Any] | None] = None
    """The parts in the model's format: text, images, any JSON."""
    knowledge_references: list[Reference] | None = None
    """The passages behind the answer, in order."""
    agent_steps: list[AgentStep] | None = None
    """Only on an assistant message."""
    is_completed: bool | None = None
    """false while the answer is being generated. Default: true."""
    created_at: Instant | None = None
    """The time of the message, with a time zone. Default: now."""
    completed_at: Instant | None = None
    """When the answer was complete, with a time zone."""
    duration: Milliseconds | None = None
    """Milliseconds. Default: from `created_at` to `completed_at`, or else the sum of the steps."""
    usage: Searched[dict[str, Any] | None] = None
    """Tokens, with the names of a step. Default: the sum of the steps."""
    error: Searched[str | None] = None
    """Why the run as a whole failed."""
    health: list[Name] | None = None
    """Flags for problems in the data as received, such as `orphan_result`."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data. Fields that the API does not know are moved here."""


class Score(Record, frozen=True, kw_only=True):
    """The judgement of a person, a program or an evaluator about a session, a message or a call.

    A score is about the narrowest thing that it names.
    """

    name: Annotated[str, Meta(min_length=1, max_length=512, extra={"searched": False})]
    """What was judged: `helpfulness`, `thumbs`."""
    value: Searched[bool | ScoreNumber | ScoreLabel | None] = None
    """A number, true or false, or a category. null: a note, which has a comment only."""
    kind: ScoreKind | None = None
    """Default: the type of the value. For `boolean`, 1 and 0 are accepted, too."""
    label: Searched[ScoreLabel | None] = None
    """A word beside a number, such as `good`."""
    comment: Searched[Annotated[str, Meta(max_length=20_000)] | None] = None
    """The reason, for people."""
    source: ScoreSource | None = None
    """Who judged. Default: `person` for people who are signed in, else `program`."""
    author: Name | None = None
    """The name of the person or program."""
    id: Name | None = None
    """Our id when a score is sent back; otherwise it becomes the external id."""
    external_id: Name | None = None
    """The producer's id, unique in the project. Sending a score again with the same id replaces it."""
    session_id: Name | None = None
    """The id of the session, or its external id."""
    message_id: Name | None = None
    """The id of the message, or its external id."""
    call_id: Name | None = None
    """The `uuid` of the call, or the id that the model gave."""
    trace_id: Annotated[str, Meta(pattern="^([0-9a-fA-F]{32})?$", extra={"searched": False})] | None = None
    """The trace, in 32 hexadecimal digits; it may arrive later than the score."""
    span_id: Annotated[str, Meta(pattern="^([0-9a-fA-F]{16})?$", extra={"searched": False})] | None = None
    """The span of this trace, in 16 hexadecimal digits."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data."""
    created_at: Instant | None = None
    """When it was judged, with a time zone. Default: now."""


class Snapshot(Record, frozen=True, kw_only=True):
    """The context that nodes of an agent were about to use."""

    id: Annotated[str, Meta(min_length=1, max_length=512, extra={"searched": False})]
    """The id that its recorder gave it; sent again, it is not stored again."""
    ts: Annotated[int, Meta(ge=946_684_800 * 10**9, le=2**63 - 1)]
    """Nanoseconds since 1970, UTC; from 2000 on."""
    node_ids: NotSearched[Annotated[list[Annotated[str, Meta(max_length=512)]], Meta(min_length=1, max_length=10_000)]]
    """The nodes that were about to use the context."""
    context_ref: Annotated[str, Meta(pattern="^[0-9a-f]{32}$", extra={"searched": False})]
    """The part with which the context begins: see snapshot_parts.py."""
    notes: Searched[list[Any]] = []
    """Values that it does not hold as they were: paths and reasons."""
    redactions: NotSearched[list[dict[str, Any]]] = []
    """Receipts of the secrets that the producer has removed."""


class Fork(Record, frozen=True, kw_only=True):
    """The session that this one has replayed, and where."""

    session: Annotated[str, Meta(min_length=1, max_length=512, extra={"searched": False})]
    """Its external id."""
    node: Annotated[str, Meta(max_length=512, extra={"searched": False})]
    """The node that ran again."""
    snapshot: Annotated[str, Meta(max_length=512, extra={"searched": False})]
    """The id of the snapshot from which it ran."""
    ts: Int64 | None = None
    """The time of the snapshot: nanoseconds since 1970."""
    overrides: Searched[dict[str, Any]] = {}
    """What was different."""
    nodes: NotSearched[dict[str, str]] = {}
    """Snapshots of nodes that the fork takes from it, by node."""
    pruned: NotSearched[list[str]] = []
    """Nodes whose context the replay made invalid."""


class Snapshots(Record, frozen=True, kw_only=True):
    """The snapshots of a session, as a recorder sends them. All of them are stored, or none."""

    session_id: Annotated[str, Meta(min_length=1, max_length=512, extra={"searched": False})]
    """The external id of the session, which is made if it does not exist."""
    generation: Count = 0
    """How often the session was purged when its parts were made."""
    snapshot: Snapshot | None = None
    """A snapshot, whose parts are among `parts` or were sent before."""
    parts: Searched[dict[str, Raw]] = {}
    """New parts by name: any JSON."""
    left_out: NotSearched[dict[Annotated[str, Meta(max_length=100)], Count]] = {}
    """Snapshots that were not kept since the last request, by reason."""
    fork: Fork | None = None
    """Of a session that replays another one."""


class ScorePatch(Record, frozen=True, kw_only=True):
    """A change of a stored score. Omitted fields stay, null empties a field."""

    value: Searched[bool | ScoreNumber | ScoreLabel | UnsetType] = UNSET
    """A number, true or false, or a category; its type decides the kind."""
    label: Searched[ScoreLabel | None | UnsetType] = UNSET
    """A word beside a number."""
    comment: Searched[Annotated[str, Meta(max_length=20_000)] | None | UnsetType] = UNSET
    """The reason, for people."""
    metadata: Searched[dict[str, Any] | None | UnsetType] = UNSET
    """Replaces the existing object."""


class Session(Record, frozen=True, kw_only=True):
    """One conversation or task, with messages to store."""

    id: Name | None = None
    """The id of an existing session, or an external id."""
    external_id: Name | None = None
    """The producer's id, unique in the project: an agent's task id, a thread id."""
    title: Searched[str | None] = None
    """For people; shown in lists."""
    description: Searched[str | None] = None
    """For people."""
    end_user: Name | None = None
    """The producer's id of the person who uses the agent."""
    status: SessionStatus | None = None
    """Default: derived from the messages: running while one is open, else error or completed like the last run. A
    status that is given stays until another one is given."""
    current_phase: Searched[str | None] = None
    """The agent's current activity, as free text."""
    workflow: Searched[Any] = None
    """The plan of the task: any JSON."""
    tags: Searched[list[Tag] | None] = None
    """Labels for searching."""
    metadata: Searched[dict[str, Any] | None] = None
    """Any other data. Fields that the API does not know are moved here."""
    created_at: Instant | None = None
    """When the session started, with a time zone. Default: now."""
    messages: list[Message] | None = None
    """In the order of the conversation."""
    contexts: NotSearched[dict[str, Any] | None] = None
    """Values that the inputs of steps name as {"contextRef": ...} instead of repeating them, by that reference."""
    scores: list[Score] | None = None
    """Of the session, and of its messages and calls, which they name."""


class Event(Record, frozen=True, kw_only=True):
    """Something that happened in a run. Events create and update the run, its steps and its calls."""

    session_id: Name
    """The id of an existing session, or an external id such as a task id; the session is created if it does not exist."""
    type: EventType
    """The kind of event: see docs/events.md."""
    id: Name | None = None
    """The producer's own id, unique in the session; a second event with this id is a duplicate. Default: a digest of the event."""
    number: Int64 | None = None
    """The producer's own number, which orders events independently of arrival. Default: the order of arrival."""
    level: Level | None = None
    """Default: `error` for failures, else `info`."""
    category: Category | None = None
    """Default: `tool` for calls, `prompt` for prompts and model requests, else `execution`."""
    timestamp: Instant | None = None
    """When it happened, with a time zone. Default: now."""
    agent: Name | None = None
    """The agent, or the node of the workflow."""
    message_id: Name | None = None
    """The assistant message of the run: an id, or an external id. Default: `run`."""
    data: Searched[dict[str, Any] | None] = None
    """Depends on the type: see docs/events.md. Unknown fields of the event are moved here."""


class Events(Record, frozen=True, kw_only=True):
    """A batch of events, of one or several sessions. A list of events, or a single event, is accepted too."""

    events: list[Event]
    """In any order, if the producer numbers them; otherwise in the order of this list."""


class MessagePatch(Record, frozen=True, kw_only=True):
    """A change of a stored message. Omitted fields stay, null empties a field, steps and references are merged."""

    version: Count | UnsetType = UNSET
    """The version that was read; the change is rejected if it is outdated."""
    content: Searched[str | list[Any] | None | UnsetType] = UNSET
    """The text. A list of content parts is kept in `content_parts`, and its text is joined."""
    content_parts: Searched[list[Any] | None | UnsetType] = UNSET
    """The parts in the model's format: text, images, any JSON."""
    knowledge_references: list[Reference] = []
    """Added to the existing ones."""
    agent_steps: list[AgentStep] = []
    """Merged with the existing ones; a completed message accepts no new steps or calls."""
    is_completed: bool | UnsetType = UNSET
    """true: the answer is complete."""
    completed_at: Instant | None | UnsetType = UNSET
    """When the answer was complete, with a time zone."""
    duration: Milliseconds | None | UnsetType = UNSET
    """Milliseconds."""
    usage: Searched[dict[str, Any] | None | UnsetType] = UNSET
    """Tokens, with the names of a step."""
    error: Searched[str | None | UnsetType] = UNSET
    """Why the run as a whole failed."""
    metadata: Searched[dict[str, Any] | None | UnsetType] = UNSET
    """Replaces the existing object."""


class SessionPatch(Record, frozen=True, kw_only=True):
    """A change of a stored session. Omitted fields stay, null empties a field."""

    title: Searched[str | None | UnsetType] = UNSET
    """For people; shown in lists."""
    description: Searched[str | None | UnsetType] = UNSET
    """For people."""
    end_user: Name | None | UnsetType = UNSET
    """The producer's id of the person who uses the agent."""
    status: SessionStatus | None | UnsetType = UNSET
    """null: derive the status from the messages again."""
    current_phase: Searched[str | None | UnsetType] = UNSET
    """The agent's current activity, as free text."""
    workflow: Searched[Any | UnsetType] = UNSET
    """The plan of the task: any JSON."""
    tags: Searched[list[Tag] | None | UnsetType] = UNSET
    """Labels for searching; they replace the existing ones."""
    metadata: Searched[dict[str, Any] | None | UnsetType] = UNSET
    """Replaces the existing object."""


# msgspec (0.22) analyses a type at its first use, and crashes the process if two threads do that at once. At import there
# is one.
for _type in (Session, Events, MessagePatch, SessionPatch, ScorePatch):
    Decoder(_type)
