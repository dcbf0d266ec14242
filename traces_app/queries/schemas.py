"""Response schemas of the API for messages and their traces; see messages_app.http.schemas."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from messages_app.http.schemas import (
    Count,
    Id,
    Json,
    JsonArray,
    JsonObject,
    Milliseconds,
    Redactions,
    Resource,
    Seconds,
    Session,
    Time,
)
from traces_app.schema.event_types import Category, EventType, Level
from traces_app.schema.records import CallStatus, Role

ModelCallId = Annotated[
    str, Meta(description="The call id that the model gave, which may repeat. Derived from `uuid` if it gave none.")
]
ParentCall = Annotated[Id, Meta(description="The `uuid` of the call that started this one.")]
ContextKind = Literal["prompt", "conversation", "variables", "context", "value"]


class Reference(Resource, frozen=True):
    """One retrieved passage behind an answer."""

    id: str
    content: str
    knowledge_id: str
    chunk_index: int
    knowledge_title: str
    start_at: int
    end_at: int
    seq: int
    score: float
    match_type: int
    sub_chunk_id: JsonArray | None
    metadata: JsonObject
    chunk_type: str
    parent_chunk_id: str
    image_info: str
    knowledge_filename: str
    knowledge_source: str


class ToolResult(Resource, frozen=True):
    """The outcome of a call. `success` is `status == "success"`; a failed call always has an `error`."""

    status: CallStatus
    success: bool
    output: Annotated[str, Meta(description="For people.")]
    data: Annotated[Json | UnsetType, Meta(description="For machines: any JSON.")] = UNSET
    error: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    attachments: JsonArray | UnsetType = UNSET
    raw: Annotated[str | UnsetType, Meta(description="The text as received, where it is not `output`.")] = UNSET


class CallFields(Resource, frozen=True):
    """The fields of a call, wherever it is returned."""

    id: ModelCallId
    uuid: Annotated[Id, Meta(description="Our unique id.")]
    name: Annotated[str, Meta(description="The tool.")]
    args: JsonObject
    result: Annotated[ToolResult | None, Meta(description="null while the call is open.")]
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    status: CallStatus
    started_at: Time | None
    completed_at: Time | None


class ToolCall(CallFields, frozen=True):
    """One call of a tool."""

    reflection: str | UnsetType = UNSET
    parent: ParentCall | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class AgentStep(Resource, frozen=True):
    """One think-act iteration."""

    id: Id
    iteration: Annotated[int, Meta(description="From 0, as the agent said it; may repeat.")]
    thought: str
    tool_calls: list[ToolCall]
    timestamp: Time | None
    duration: Milliseconds | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: JsonObject | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class Message(Resource, frozen=True):
    """One message of a conversation; an assistant message is one agent run."""

    id: Id
    session_id: Id
    external_id: str
    request_id: str
    """The request of the application that this message belongs to."""
    role: Role
    content: str
    knowledge_references: list[Reference]
    agent_steps: list[AgentStep]
    is_completed: bool
    """false until the answer is complete."""
    created_at: Time
    updated_at: Time
    completed_at: Time | None
    """null until the answer is complete."""
    deleted_at: Time | None
    """Not null if the message is in the trash."""
    version: Annotated[int, Meta(description="Goes up with every change; also the ETag.")]
    usage: JsonObject | None
    error: str
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    step_count: Count
    call_count: Count
    failure_count: Count
    model_error_count: Count
    """Steps whose model request failed, also if the agent recovered from it."""
    input_tokens: Count
    output_tokens: Count
    health: Annotated[list[str], Meta(description="What was odd about this message as it came.")]
    redactions: Redactions
    metadata: JsonObject
    content_parts: JsonArray | UnsetType = UNSET


class Call(CallFields, frozen=True):
    """One call of a tool by itself, with the ids of its message and step."""

    session_id: Id
    message_id: Annotated[Id, Meta(description="Also the id of the chain.")]
    step_id: Id
    created_at: Annotated[Time, Meta(description="The time of its message, by which lists are ordered.")]
    iteration: Annotated[int, Meta(description="Of its step.")]
    position: Annotated[int, Meta(description="In its step, from 0.")]
    reflection: str | UnsetType = UNSET
    parent: ParentCall | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET


class ChainSummary(Resource, frozen=True):
    """A call chain without its calls: an assistant message with at least one call, read as a tree."""

    chain_id: Annotated[Id, Meta(description="The id of the message.")]
    external_id: str
    session_id: Id
    root_tool_id: Annotated[
        str | None,
        Meta(
            description="What a tracker named the root, else the tool of the root call: the first that no other started."
        ),
    ]
    root_call_id: Id | None
    created_at: Time
    completed_at: Time | None
    duration: Seconds | None
    """Seconds, unlike other durations, which are in milliseconds; null if unknown."""
    success: Annotated[
        bool, Meta(description="No failed call, no error of the message, and no call left open by a completed message.")
    ]
    error_message: Annotated[str | None, Meta(description="The first error.")]
    call_count: Count
    failure_count: Count
    metadata: JsonObject
    type: Literal["tool_call_chain"]


class ChainCall(Resource, frozen=True):
    """A call as a node of its chain."""

    call_id: Id
    id: ModelCallId
    tool_id: Annotated[str, Meta(description="The name of the tool.")]
    parent_id: Id | None
    child_calls: Annotated[list[Id], Meta(description="The calls that this one started, in order.")]
    iteration: Annotated[int, Meta(description="Of its step.")]
    parameters: JsonObject
    result: ToolResult | None
    status: CallStatus
    success: bool
    error_message: str | None
    duration: Seconds | None
    """Seconds, unlike other durations, which are in milliseconds; null if unknown."""
    started_at: Time | None
    completed_at: Time | None
    metadata: JsonObject


class Chain(ChainSummary, frozen=True):
    """A call chain with all its calls."""

    root_calls: Annotated[list[Id], Meta(description="All calls that no other call started, in order.")]
    calls: Annotated[dict[str, ChainCall], Meta(description="Every call by its `call_id`, in reading order.")]


class Tool(Resource, frozen=True):
    """A tool with statistics of its calls."""

    name: str
    description: str
    category: str
    project: str
    call_count: Count
    success_count: Count
    failure_count: Count
    pending_count: Count
    average_duration: Annotated[float | None, Meta(description="Milliseconds; of the calls whose duration is known.")]
    longest_duration: Milliseconds | None
    """Milliseconds."""
    last_called_at: Annotated[Time | None, Meta(description="The time of the last message that called it.")]


class MessagePage(Resource, frozen=True):
    """A page of messages. `next` and `previous` are cursors, or page numbers if the request gave one; null at either end."""

    results: list[Message]
    next: str | int | None
    previous: str | int | None


class CallPage(Resource, frozen=True):
    """A page of calls, with the cursors of the next and previous pages; null at either end."""

    results: list[Call]
    next: str | None
    previous: str | None


class ChainPage(Resource, frozen=True):
    """A page of chains, with the cursors of the next and previous pages; null at either end."""

    results: list[ChainSummary]
    next: str | None
    previous: str | None


class ToolPage(Resource, frozen=True):
    """A page of tools, with the cursors of the next and previous pages; null at either end."""

    results: list[Tool]
    next: str | None
    previous: str | None


class SentMessage(Resource, frozen=True):
    """The outcome of one message."""

    id: Annotated[Id | None, Meta(description="null where it was refused and never stored.")]
    external_id: str
    state: Annotated[
        Literal["created", "updated", "unchanged", "refused"],
        Meta(description="`unchanged`: it was already there, just so."),
    ]


class Refusal(Resource, frozen=True):
    """Valid data that was not stored, because its target is deleted, purged or completed."""

    path: Annotated[
        str, Meta(description="Where it was in the body, such as `sessions[0].messages[2]` or `events[3]`.")
    ]
    code: Literal["session_deleted", "session_purged", "message_deleted", "message_purged", "message_completed"]
    message: str


class SentMessages(Resource, frozen=True):
    """The outcomes of a list of messages, in the order of the request."""

    results: list[SentMessage]
    refused: list[Refusal]


class SentSession(Resource, frozen=True):
    """The outcome of one session, and of its messages in order."""

    id: Annotated[Id | None, Meta(description="null where it was purged.")]
    external_id: str
    created: Annotated[bool, Meta(description="false: it was already there.")]
    messages: list[SentMessage]


class SentSessions(Resource, frozen=True):
    """The outcomes of a batch of sessions, in the order of the request."""

    sessions: list[SentSession]
    refused: list[Refusal]


class SessionWithContexts(Session, frozen=True):
    """A session with the references of its contexts."""

    context_refs: Annotated[
        list[str], Meta(description="The newest, newest first; `contexts/` lists them all, and says what each is.")
    ]


class SessionWithSent(SessionWithContexts, frozen=True):
    """A session, and the outcomes of the messages in the request."""

    sent: SentMessages


class SessionExport(Session, frozen=True):
    """A session with all its messages, oldest first."""

    messages: list[Message]


class ImportCounts(Resource, frozen=True):
    """Totals of the imported records."""

    sessions: int
    messages: Annotated[dict[str, int], Meta(description="By role.")]
    steps: int
    tool_calls: Annotated[dict[str, int], Meta(description="By the name of the tool.")]
    tool_results: int
    errors: Annotated[dict[str, int], Meta(description="Failed calls, by the name of the tool.")]
    calls_without_result: int
    orphan_results: Annotated[int, Meta(description="Results that answer no call; they are kept.")]
    broken_arguments: Annotated[int, Meta(description="Calls whose arguments are no JSON; they are kept as that text.")]
    health: Annotated[dict[str, int], Meta(description="Messages about which something is odd, by flag.")]


class ImportedFile(Resource, frozen=True):
    """The outcome of one file, or of one file of an archive."""

    path: str
    status: Annotated[Literal["read", "skipped", "failed"], Meta(description="`skipped`: it is no transcript.")]
    reason: Annotated[str, Meta(description="Why it was skipped or failed.")]
    format: str
    counts: ImportCounts
    left_out: Annotated[
        list[tuple[str, str]],
        Meta(description="The first entries that were not taken over: where in the file, and why."),
    ]
    left_out_count: int
    renamed: Annotated[
        list[tuple[str, str]],
        Meta(
            description="Ids of transcripts whose session holds another conversation, and the ids that they are stored "
            "under instead."
        ),
    ]
    stored: Annotated[
        dict[str, int],
        Meta(description="Messages that were created, updated, unchanged, or refused and why. Empty for a dry run."),
    ]


class Imported(Resource, frozen=True):
    """The outcome of an upload."""

    project: str
    dry_run: bool
    files: list[ImportedFile]
    totals: ImportCounts


class Event(Resource, frozen=True):
    """An event. Its JSON is the same, byte for byte, in lists and on live connections."""

    id: Annotated[Id, Meta(description="Ours, unique.")]
    session_id: Annotated[Id, Meta(description="Our id of the session.")]
    session_name: Annotated[
        str, Meta(description="The producer's id of the session (task id); our id where it has none.")
    ] = field(name="sessionId")
    message_id: Annotated[Id, Meta(description="The run that it belongs to.")]
    seq: Annotated[int, Meta(description="Its number in the session, from 1 without gaps.", ge=1)]
    external_id: Annotated[str, Meta(description="The producer's id, or one made of what the event says.")]
    type: EventType
    level: Level
    category: Category
    timestamp: Time
    data: JsonObject
    number: Annotated[int | UnsetType, Meta(description="The producer's own number.")] = UNSET
    agent: Annotated[str | UnsetType, Meta(description="The agent, or the node of the workflow, that did it.")] = UNSET


class RecorderSampling(Resource, frozen=True):
    """Sampling by a recorder. It reports the number of omitted calls in the trace."""

    rate: Annotated[float | None, Meta(description="The share of the sessions; null: as the recorder says itself.")]
    tools: Annotated[dict[str, float], Meta(description="The share of the calls of a tool, by its name.")]
    keep_errors: Annotated[bool, Meta(description="What failed is kept, whatever the shares.")]
    keep_slower_than_ms: Annotated[
        int | None,
        Meta(description="What took longer is kept, whatever the shares; null: as the recorder says itself."),
    ]


class RecorderSettings(Resource, frozen=True):
    """Settings of a project for its recorders."""

    sampling: Annotated[RecorderSampling | None, Meta(description="null: the project asks for nothing.")]


class EventPage(Resource, frozen=True):
    """Events of a session in the order of their numbers."""

    results: list[Event]
    next: Annotated[
        int | None,
        Meta(
            description="The `after` that leads on; null where nothing more has happened, so far, that was asked for."
        ),
    ]


class Context(Resource, frozen=True):
    """A context without its content. The same content has the same reference everywhere."""

    ref: Annotated[str, Meta(description="What events say as `contextRef`.")]
    message_id: Annotated[Id, Meta(description="The run whose events refer to it.")]
    kind: Annotated[
        ContextKind,
        Meta(
            description="`context`: a conversation with variables or with a prompt; `value`: a field that was too large for "
            "its event."
        ),
    ]
    length: Annotated[
        int,
        Meta(description="Characters of a prompt, entries of a conversation, variables, bytes of a value.", ge=0),
    ]
    bytes: Annotated[int, Meta(description="As JSON.", ge=0)]
    created_at: Annotated[Time, Meta(description="The time of the event that it came with first.")]


class WholeContext(Context, frozen=True):
    """A context with its content."""

    text: Annotated[Json | UnsetType, Meta(description="Of a prompt.")] = UNSET
    conversation: Annotated[list[Json] | UnsetType, Meta(description="As the model was given it, in order.")] = UNSET
    variables: JsonObject | UnsetType = UNSET
    value: Annotated[Json | UnsetType, Meta(description="What the field of the event held.")] = UNSET


class ContextPage(Resource, frozen=True):
    """A page of contexts, with the cursors of the next and previous pages; null at either end."""

    results: list[Context]
    next: str | None
    previous: str | None


class Conversation(Resource, frozen=True):
    """A conversation, or its last entries."""

    ref: str
    length: Annotated[int, Meta(description="How many entries there are in all.", ge=0)]
    entries: Annotated[list[Json], Meta(description="The last ones, oldest first.")]


class Variables(Resource, frozen=True):
    """Variables: all of them, or those named in the request that exist."""

    ref: str
    variables: JsonObject


class SentEvent(Resource, frozen=True):
    """The outcome of an event."""

    session_id: Id | None
    external_id: Annotated[str, Meta(description="The producer's id, or the one that was made.")]
    state: Literal["stored", "duplicate", "refused"]
    seq: Annotated[int | None, Meta(description="Its number in the session; null where it was refused.")]


class SentEvents(Resource, frozen=True):
    """The outcomes of a batch of events, in the order of the request."""

    results: list[SentEvent]
    refused: list[Refusal]


class SentCallbacks(SentEvents, frozen=True):
    """The outcomes of callback messages, event by event."""

    ignored: Annotated[int, Meta(description="How many messages are no events: those that a later one repeats.", ge=0)]
