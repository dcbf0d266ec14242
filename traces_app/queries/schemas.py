"""Response schemas of the API for messages and their traces; see messages_app.http.schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from messages_app.http.schemas import (
    Amount,
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
from messages_app.models import Session as SessionRow
from tracesite_sdk.records import CallStatus, Role, ScoreKind, ScoreSource
from tracesite_sdk.records.event_types import Category, EventType, Level

ModelCallId = Annotated[
    str, Meta(description="The call id given by the model; may repeat. Derived from `uuid` if the model gave none.")
]
ParentCall = Annotated[Id, Meta(description="The `uuid` of the call that started this one.")]
ErrorSort = Literal["count", "last_seen", "first_seen"]
ErrorChange = Literal["new", "rising", "steady"]
SimilarBy = Literal["everything", "errors"]
Likeness = Annotated[float, Meta(ge=0, le=1)]
UsageBy = Literal["model", "end_user", "day"]
ContextKind = Literal["prompt", "conversation", "variables", "context", "value", "input"]


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
    raw: Annotated[str | UnsetType, Meta(description="The text as received, if it differs from `output`.")] = UNSET


class CallFields(Resource, frozen=True):
    """The fields of a call, wherever it is returned."""

    id: ModelCallId
    uuid: Annotated[Id, Meta(description="The unique id of the call.")]
    name: Annotated[str, Meta(description="The name of the tool.")]
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


class ModelInput(Resource, frozen=True):
    """The input of a model: what it was asked."""

    messages: Annotated[list[Json], Meta(description="The conversation as it was sent, in its order.")]
    system: Annotated[Json | UnsetType, Meta(description="The system prompt, if it is not one of the messages.")] = (
        UNSET
    )
    tools: Annotated[list[Json] | UnsetType, Meta(description="The schemas of the tools.")] = UNSET
    parameters: Annotated[JsonObject | UnsetType, Meta(description="The other parameters, such as temperature.")] = (
        UNSET
    )


class AgentStep(Resource, frozen=True):
    """One think-act iteration."""

    id: Id
    iteration: Annotated[int, Meta(description="The iteration as reported by the agent, from 0; may repeat.")]
    thought: str
    tool_calls: list[ToolCall]
    timestamp: Time | None
    duration: Milliseconds | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: JsonObject | UnsetType = UNSET
    cost: Annotated[
        Amount | UnsetType,
        Meta(description="USD; left out if the tokens or the price of the model are unknown."),
    ] = UNSET
    cost_is_explicit: Annotated[
        bool | UnsetType,
        Meta(description="true: its producer stated the cost; false: it follows from the tokens and a price."),
    ] = UNSET
    reasoning_content: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    time_to_first_token: Milliseconds | UnsetType = UNSET
    input_ref: Annotated[
        str | UnsetType, Meta(description="What the model was asked: `sessions/{id}/contexts/{input_ref}/` has it.")
    ] = UNSET
    input: Annotated[ModelInput | UnsetType, Meta(description="Only with `expand=inputs`.")] = UNSET


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
    version: Annotated[int, Meta(description="Increases with every change; also the ETag.")]
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
    cost: Amount | None
    """USD, the sum over the steps whose cost is known; null if there are none."""
    unpriced_count: Count
    """Steps with a model or tokens whose cost is unknown."""
    health: Annotated[list[str], Meta(description="Health flags: problems of the data as it arrived.")]
    redactions: Redactions
    metadata: JsonObject
    content_parts: JsonArray | UnsetType = UNSET


class Call(CallFields, frozen=True):
    """One call of a tool by itself, with the ids of its message and step."""

    session_id: Id
    message_id: Annotated[Id, Meta(description="Also the id of the chain.")]
    step_id: Id
    created_at: Annotated[Time, Meta(description="The time of its message, by which lists are ordered.")]
    iteration: Annotated[int, Meta(description="The iteration of its step.")]
    position: Annotated[int, Meta(description="The position in its step, from 0.")]
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
            description=(
                "The root as named by a tracker, otherwise the tool of the root call, which is "
                "the first call without a parent."
            )
        ),
    ]
    root_call_id: Id | None
    created_at: Time
    completed_at: Time | None
    duration: Seconds | None
    """Seconds, unlike other durations, which are in milliseconds; null if unknown."""
    success: Annotated[
        bool,
        Meta(
            description=(
                "true if no call failed, the message has no error, and no call of a completed message is open."
            )
        ),
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
    child_calls: Annotated[list[Id], Meta(description="The calls started by this call, in order.")]
    iteration: Annotated[int, Meta(description="The iteration of its step.")]
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

    root_calls: Annotated[list[Id], Meta(description="The calls without a parent, in order.")]
    calls: Annotated[dict[str, ChainCall], Meta(description="All calls by `call_id`, in reading order.")]


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
    average_duration: Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration.")]
    longest_duration: Milliseconds | None
    """Milliseconds."""
    last_called_at: Annotated[Time | None, Meta(description="The time of the last message with a call of this tool.")]


class UsageTotal(Resource, frozen=True):
    """Requests to models, with their tokens and cost."""

    step_count: Annotated[Count, Meta(description="Requests: steps with a model, tokens or a cost.")]
    input_tokens: Count
    output_tokens: Count
    cost: Amount | None
    """USD, the sum over the requests whose cost is known; null if there are none."""
    unpriced_count: Count
    """Requests whose cost is unknown."""


class UsageGroup(UsageTotal, frozen=True):
    """The requests of one model, user or day."""

    key: Annotated[
        str,
        Meta(description="The model or end user, as recorded and empty if unknown; or the day (UTC), as 2026-01-31."),
    ]


class Usage(Resource, frozen=True):
    """Requests to models, added up."""

    group_by: UsageBy
    results: Annotated[list[UsageGroup], Meta(description="The dearest groups first; days: the newest first.")]
    group_count: Annotated[
        Count, Meta(description="All groups; more than `results` has if there are more than `limit`.")
    ]
    total: Annotated[UsageTotal, Meta(description="Of all groups.")]


Duration = Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration; within 1 %.")]


class ToolStep(Resource, frozen=True):
    """The calls of a tool in one step of a range of times."""

    begin: Time
    call_count: Count
    failure_count: Count
    error_rate: Annotated[float | None, Meta(description="The failed calls as a share of the finished ones.")]
    average_duration: Annotated[float | None, Meta(description="Milliseconds.")]
    p95_duration: Annotated[float | None, Meta(description="Milliseconds; null unless `tool` names one tool.")]
    cost: Amount | None
    """USD."""


class ToolStatistics(Resource, frozen=True):
    """Statistics of a tool in a range of times."""

    name: str
    category: str
    project: str
    call_count: Count
    success_count: Count
    failure_count: Count
    pending_count: Count
    error_rate: Annotated[float | None, Meta(description="`failure_count` / (`success_count` + `failure_count`).")]
    average_duration: Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration.")]
    longest_duration: Milliseconds | None
    p50_duration: Duration
    p95_duration: Duration
    p99_duration: Duration
    total_duration: Annotated[float, Meta(description="Milliseconds: the sum, also of calls that overlap.")]
    cost: Annotated[
        Amount | None,
        Meta(
            description=(
                "USD: the cost of each step, divided equally among the calls that it asked for. Calls whose cost is "
                "unknown are left out; null if it is of all."
            )
        ),
    ]
    unpriced_count: Annotated[Count, Meta(description="Calls whose cost is unknown.")]
    trend_step: Annotated[
        int, Meta(description="Seconds from one item of `trend` to the next; it depends on the range.")
    ]
    trend: Annotated[list[ToolStep], Meta(description="The steps of the range with calls, oldest first.")]


class ToolStatisticsPage(Resource, frozen=True):
    """A page of statistics, with the cursors of the next and previous pages; null at either end."""

    results: list[ToolStatistics]
    next: str | None
    previous: str | None


class ToolExample(Resource, frozen=True):
    """A call of a tool, or several that are alike."""

    call: Annotated[Id, Meta(description="The `uuid` of the call, of several the newest one.")]
    created_at: Annotated[Time, Meta(description="The time of its message.")]
    message_id: Annotated[Id | None, Meta(description="null for arguments, which several messages may share.")]
    arguments: Annotated[
        str | None, Meta(description="The first 200 characters of the arguments as JSON; null for runs.")
    ]
    call_count: Count
    total_duration: float | None
    """Milliseconds; null if unknown."""
    longest_duration: Milliseconds | None
    """Milliseconds; null if unknown."""


class ToolExamples(Resource, frozen=True):
    """The slowest calls of a tool, and its repeated calls; at most 10 of each."""

    slowest: Annotated[list[ToolExample], Meta(description="The slowest calls of the range.")]
    arguments: Annotated[list[ToolExample], Meta(description="The arguments with which it took most time.")]
    runs: Annotated[list[ToolExample], Meta(description="The messages that waited longest for it.")]
    repeated: Annotated[
        list[ToolExample], Meta(description="The messages that called it most often with the same arguments.")
    ]
    calls_read: Annotated[
        Count, Meta(description="`arguments`, `runs` and `repeated` are those of the newest calls, at most so many.")
    ]


class UnusedTools(Resource, frozen=True):
    """Tools that models were offered and did not call."""

    results: Annotated[list[str], Meta(description="The names, in order.")]
    inputs_read: Annotated[
        Count, Meta(description="The tools are those of the newest requests whose input is known, at most so many.")
    ]


class ErrorTool(Resource, frozen=True):
    """The calls of a group that are of one tool."""

    name: str
    project: Annotated[str, Meta(description="The slug of its project.")]
    call_count: Count


class ErrorStep(Resource, frozen=True):
    """The calls of a group in one step of a range of times."""

    begin: Time
    call_count: Count


class ErrorExample(Resource, frozen=True):
    """One call of a group."""

    call: Annotated[Id, Meta(description="The `uuid` of the call.")]
    message_id: Id
    session_id: Id
    tool: str
    project: Annotated[str, Meta(description="The slug of its project.")]
    error: Annotated[str, Meta(description="As it was; its first 1,000 characters.")]
    created_at: Annotated[Time, Meta(description="The time of its message.")]


class ErrorGroup(Resource, frozen=True):
    """Failed calls whose errors are equal but for ids, numbers, quoted values and variable parts of paths."""

    id: Annotated[str, Meta(description="Finds its calls: `/tool-calls/?error_group=`.")]
    pattern: Annotated[str, Meta(description="The error, with `#` for what differs.")]
    call_count: Count
    first_seen_at: Annotated[Time, Meta(description="The time of its first call in the range.")]
    last_seen_at: Time
    tools: Annotated[list[ErrorTool], Meta(description="The ten tools with most of its calls.")]
    tool_count: Annotated[Count, Meta(description="All of its tools.")]
    last_example: Annotated[ErrorExample, Meta(description="Its newest call.")]
    trend: Annotated[list[ErrorStep], Meta(description="The steps of the range with calls, oldest first.")]
    change: Annotated[
        ErrorChange,
        Meta(
            description=(
                "`new`: none of the failed calls before the range has it, of which the newest 2,000 are read; `rising`: at "
                "least five calls in the second half of the range, and twice as many as in the first; otherwise `steady`."
            )
        ),
    ]
    score: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | UnsetType,
        Meta(description="Only in groups like an error: 1 for its own group."),
    ] = UNSET


class ErrorGroups(Resource, frozen=True):
    """Failed calls, grouped by their errors."""

    results: list[ErrorGroup]
    group_count: Annotated[
        Count, Meta(description="All groups; more than `results` has if there are more than `limit`.")
    ]
    call_count: Annotated[Count, Meta(description="The calls of all groups.")]
    counted_from: Annotated[
        Time | None,
        Meta(
            description=(
                "The time of the oldest call that was read, if the range has more failed calls than are read; otherwise null."
            )
        ),
    ]
    trend_step: Annotated[
        int, Meta(description="Seconds from one item of `trend` to the next; it depends on the range.")
    ]


class SimilarRun(Resource, frozen=True):
    """A run that is like another one."""

    id: Annotated[Id, Meta(description="The id of the message.")]
    session_id: Id
    created_at: Time
    score: Annotated[Likeness, Meta(description="1: the same question, tools and errors; 0: nothing in common.")]
    question_score: Annotated[Likeness, Meta(description="The same for the questions alone.")]
    tools_score: Likeness
    errors_score: Likeness
    question: Annotated[str, Meta(description="The user's message before it; its first 300 characters.")]
    tools: Annotated[list[str], Meta(description="The names of the tools that it called, each once, in order.")]
    call_count: Count
    failure_count: Count


class SimilarRuns(Resource, frozen=True):
    """Runs that are like one."""

    results: Annotated[list[SimilarRun], Meta(description="The most similar ones first.")]
    compared_count: Annotated[Count, Meta(description="The runs that were compared.")]
    searched_to: Annotated[
        Time | None,
        Meta(description="The time of the oldest run that was compared, if the range has more; otherwise null."),
    ]


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

    id: Annotated[Id | None, Meta(description="null if the message was refused and never stored.")]
    external_id: str
    state: Annotated[
        Literal["created", "updated", "unchanged", "refused"],
        Meta(description="`unchanged`: the same message was already stored."),
    ]


class Refusal(Resource, frozen=True):
    """Valid data that was not stored, because its target is deleted, purged or completed."""

    path: Annotated[str, Meta(description="Its path in the body, such as `sessions[0].messages[2]` or `events[3]`.")]
    code: Literal["session_deleted", "session_purged", "message_deleted", "message_purged", "message_completed"]
    message: str


class SentMessages(Resource, frozen=True):
    """The outcomes of a list of messages, in the order of the request."""

    results: list[SentMessage]
    refused: list[Refusal]


class SentSession(Resource, frozen=True):
    """The outcome of one session, and of its messages in order."""

    id: Annotated[Id | None, Meta(description="null if the session was purged.")]
    external_id: str
    created: Annotated[bool, Meta(description="false: the session already existed.")]
    messages: list[SentMessage]


class SentSessions(Resource, frozen=True):
    """The outcomes of a batch of sessions, in the order of the request."""

    sessions: list[SentSession]
    refused: list[Refusal]


class ForkedFrom(Resource, frozen=True):
    """The session that a fork has replayed, and where."""

    session: Annotated[str, Meta(description="Its external id.")]
    node: str
    snapshot: Annotated[str, Meta(description="The external id of the snapshot.")]
    ts: Annotated[int | None, Meta(description="Its time: nanoseconds since 1970.")]
    overrides: Annotated[JsonObject, Meta(description="What was different.")]
    nodes: Annotated[JsonObject, Meta(description="Snapshots that the fork takes from the session, by node.")]
    pruned: Annotated[list[str], Meta(description="Nodes whose context the replay made invalid.")]


class SnapshotSums(Resource, frozen=True):
    """The sums of the snapshots of a session."""

    count: Count
    bytes: Annotated[int, Meta(description="Of their contents, each part once.", ge=0)]
    left_out: Annotated[JsonObject, Meta(description="Snapshots that were not kept, by reason.")]
    generation: Annotated[int, Meta(description="How often their contents were removed.", ge=0)]


class Snapshot(Resource, frozen=True):
    """The context of an agent before nodes of its run."""

    id: Id
    session_id: Id
    external_id: Annotated[str, Meta(description="The id that the recorder gave it.")]
    ts: Annotated[int, Meta(description="Nanoseconds since 1970, UTC.")]
    node_ids: list[str]
    context_ref: Annotated[str, Meta(description="The part with which the context begins.")]
    notes: Annotated[JsonArray, Meta(description="Values that it does not hold as they were: paths and reasons.")]
    redactions: Redactions
    is_purged: Annotated[bool, Meta(description="true: its content was removed.")]
    created_at: Time


class SnapshotPage(Resource, frozen=True):
    """A page of snapshots, with the cursors of the next and previous pages; null at either end."""

    results: list[Snapshot]
    next: str | None
    previous: str | None


class WholeSnapshot(Snapshot, frozen=True):
    """A snapshot with its content."""

    context: Annotated[
        Json | UnsetType,
        Meta(
            description=(
                'The content; types that JSON does not have are {"$type": name, "value": ...}. Left out if it was removed.'
            )
        ),
    ] = UNSET


class SnapshotParts(Resource, frozen=True):
    """Parts of contexts by name, with those that they name."""

    parts: JsonObject


class StoredSnapshot(Resource, frozen=True):
    """The ids of a stored snapshot and its session."""

    session_id: Id
    snapshot_id: Annotated[Id | None, Meta(description="null if no snapshot was sent.")]


class Fork(Resource, frozen=True):
    """A session that has replayed a node of another one."""

    id: Id
    external_id: str
    title: str
    status: Annotated[str, Meta(extra_json_schema={"enum": SessionRow.Status.values})]
    created_at: Time
    forked_from: ForkedFrom


class ForkPage(Resource, frozen=True):
    """A page of forks, with the cursors of the next and previous pages; null at either end."""

    results: list[Fork]
    next: str | None
    previous: str | None


class ArchivedPart(Resource, frozen=True, kw_only=True):
    """A period (a day, week or month) of a session that was archived and dropped from the database; `restore_archive` brings it back."""

    period: Annotated[str, Meta(description="Such as 2026-01.")]
    url: Annotated[str | UnsetType, Meta(description="The folder of the archive; only for logins of owners.")] = UNSET


class SessionWithContexts(Session, frozen=True, kw_only=True):
    """A session with the references of its contexts."""

    context_refs: Annotated[
        list[str], Meta(description="The newest references, newest first; `contexts/` lists all, with their kinds.")
    ]
    snapshot_sums: Annotated[SnapshotSums | UnsetType, Meta(description="Of its snapshots: see `snapshots/`.")] = UNSET
    forked_from: Annotated[ForkedFrom | UnsetType, Meta(description="Of a replay: what it has replayed.")] = UNSET
    archived_parts: Annotated[
        list[ArchivedPart] | UnsetType,
        Meta(description="Periods whose messages are in an archive, and no longer here."),
    ] = UNSET


class SessionWithSent(SessionWithContexts, frozen=True, kw_only=True):
    """A session, and the outcomes of the messages in the request."""

    sent: SentMessages


class Score(Resource, frozen=True):
    """The judgement of a person, a program or an evaluator about a session, a message or a call."""

    id: Id
    project: Annotated[str, Meta(description="The slug of its project.")]
    session_id: Id | None
    """null while the trace or the session that it names has not arrived."""
    message_id: Id | None
    call_id: Annotated[Id | None, Meta(description="The `uuid` of the call.")]
    trace_id: Annotated[str | None, Meta(description="32 hexadecimal digits.")]
    span_id: str
    name: str
    kind: ScoreKind
    value: bool | float | str | None
    """A number, true or false, or the category, by `kind`; null for a note."""
    label: str
    """The category, or a word beside a number."""
    comment: str
    source: ScoreSource
    author: str
    external_id: Annotated[str | None, Meta(description="The producer's id, unique in the project.")]
    metadata: JsonObject
    redactions: Redactions
    created_at: Time
    updated_at: Time


class SessionExport(Session, frozen=True):
    """A session with all its messages, oldest first, and its scores.

    In the inputs of steps, {"contextRef": ...} stands for a value in `contexts`, so that each is there once.
    """

    messages: list[Message]
    contexts: Annotated[dict[str, Json], Meta(description="Messages, tools and system prompts, by reference.")]
    scores: list[Score]


class SpanExport(Resource, frozen=True, rename="camel"):
    """The spans of a session as an OTLP request (ExportTraceServiceRequest in JSON)."""

    resource_spans: list[dict[str, Any]]


class ImportCounts(Resource, frozen=True):
    """Totals of the imported records."""

    sessions: int
    messages: Annotated[dict[str, int], Meta(description="Number of messages by role.")]
    steps: int
    tool_calls: Annotated[dict[str, int], Meta(description="Number of calls by tool name.")]
    tool_results: int
    errors: Annotated[dict[str, int], Meta(description="Number of failed calls by tool name.")]
    calls_without_result: int
    orphan_results: Annotated[int, Meta(description="Results without a call; they are stored.")]
    broken_arguments: Annotated[
        int, Meta(description="Calls whose arguments are not valid JSON; they are stored as text.")
    ]
    health: Annotated[dict[str, int], Meta(description="Number of messages by health flag.")]


class ImportedFile(Resource, frozen=True):
    """The outcome of one file, or of one file of an archive."""

    path: str
    status: Annotated[Literal["read", "skipped", "failed"], Meta(description="`skipped`: not a transcript.")]
    reason: Annotated[str, Meta(description="The reason if skipped or failed.")]
    format: str
    counts: ImportCounts
    left_out: Annotated[
        list[tuple[str, str]],
        Meta(description="The first entries that were not imported: their place in the file and the reason."),
    ]
    left_out_count: int
    renamed: Annotated[
        list[tuple[str, str]],
        Meta(
            description=(
                "Transcripts whose id belongs to another conversation: their id, and the id "
                "under which they are stored."
            )
        ),
    ]
    stored: Annotated[
        dict[str, int],
        Meta(
            description=(
                "Number of messages created, updated, unchanged and refused, with the reason of "
                "the refusal. Empty for a dry run."
            )
        ),
    ]


class Imported(Resource, frozen=True):
    """The outcome of an upload."""

    project: str
    dry_run: bool
    files: list[ImportedFile]
    totals: ImportCounts


class Event(Resource, frozen=True):
    """An event. Its JSON is the same, byte for byte, in lists and on live connections."""

    id: Annotated[Id, Meta(description="The unique id of the event.")]
    session_id: Annotated[Id, Meta(description="The id of the session.")]
    session_name: Annotated[
        str, Meta(description="The external id of the session (task id); its id if it has none.")
    ] = field(name="sessionId")
    message_id: Annotated[Id, Meta(description="The run of the event.")]
    seq: Annotated[int, Meta(description="The number in the session, from 1 without gaps.", ge=1)]
    external_id: Annotated[str, Meta(description="The id given by the producer, or derived from the event.")]
    type: EventType
    level: Level
    category: Category
    timestamp: Time
    data: JsonObject
    number: Annotated[int | UnsetType, Meta(description="The number given by the producer.")] = UNSET
    agent: Annotated[str | UnsetType, Meta(description="The agent, or the node of the workflow.")] = UNSET


class RecorderSampling(Resource, frozen=True):
    """Sampling by a recorder. It reports the number of omitted calls in the trace."""

    rate: Annotated[
        float | None, Meta(description="The share of sessions to record; null: the recorder's own setting.")
    ]
    tools: Annotated[dict[str, float], Meta(description="The share of calls to record, by tool name.")]
    keep_errors: Annotated[bool, Meta(description="Record failures, whatever the rates.")]
    keep_slower_than_ms: Annotated[
        int | None,
        Meta(description="Record everything slower than this, whatever the rates; null: the recorder's own setting."),
    ]


class RecorderSettings(Resource, frozen=True):
    """Settings of a project for its recorders."""

    sampling: Annotated[RecorderSampling | None, Meta(description="null: the project has no settings.")]


class EventPage(Resource, frozen=True):
    """Events of a session in the order of their numbers."""

    results: list[Event]
    next: Annotated[
        int | None,
        Meta(description="The `after` of the next page; null if there are no more matching events yet."),
    ]


class Context(Resource, frozen=True):
    """A context without its content. The same content has the same reference everywhere."""

    ref: Annotated[str, Meta(description="The `contextRef` of events.")]
    message_id: Annotated[Id, Meta(description="The run whose events or steps refer to the context.")]
    kind: Annotated[
        ContextKind,
        Meta(
            description=(
                "`context`: a conversation with variables or a prompt; `value`: a field that was "
                "too large for its event; `input`: what the model of a step was asked."
            )
        ),
    ]
    length: Annotated[
        int,
        Meta(
            description=(
                "Number of characters of a prompt, entries of a conversation, messages of an input, variables, or bytes "
                "of a value."
            ),
            ge=0,
        ),
    ]
    bytes: Annotated[int, Meta(description="Bytes as JSON.", ge=0)]
    created_at: Annotated[Time, Meta(description="The time of the first event with this context.")]


class WholeContext(Context, frozen=True):
    """A context with its content."""

    text: Annotated[Json | UnsetType, Meta(description="The text of a prompt.")] = UNSET
    conversation: Annotated[list[Json] | UnsetType, Meta(description="The entries as sent to the model, in order.")] = (
        UNSET
    )
    variables: JsonObject | UnsetType = UNSET
    value: Annotated[Json | UnsetType, Meta(description="The value of the event's field.")] = UNSET
    input: Annotated[ModelInput | UnsetType, Meta(description="What the model was asked.")] = UNSET


class ContextPage(Resource, frozen=True):
    """A page of contexts, with the cursors of the next and previous pages; null at either end."""

    results: list[Context]
    next: str | None
    previous: str | None


class Conversation(Resource, frozen=True):
    """A conversation, or its last entries."""

    ref: str
    length: Annotated[int, Meta(description="The total number of entries.", ge=0)]
    entries: Annotated[list[Json], Meta(description="The last entries, oldest first.")]


class Variables(Resource, frozen=True):
    """Variables: all of them, or those named in the request that exist."""

    ref: str
    variables: JsonObject


class SentEvent(Resource, frozen=True):
    """The outcome of an event."""

    session_id: Id | None
    external_id: Annotated[str, Meta(description="The id given by the producer, or the derived id.")]
    state: Literal["stored", "duplicate", "refused"]
    seq: Annotated[int | None, Meta(description="The number in the session; null if the event was refused.")]


class SentEvents(Resource, frozen=True):
    """The outcomes of a batch of events, in the order of the request."""

    results: list[SentEvent]
    refused: list[Refusal]


class SentCallbacks(SentEvents, frozen=True):
    """The outcomes of callback messages, event by event."""

    ignored: Annotated[
        int,
        Meta(
            description="Number of messages that are not stored as events, because a later message repeats them.",
            ge=0,
        ),
    ]


class ScorePage(Resource, frozen=True):
    """A page of scores, with the cursors of the next and previous pages; null at either end."""

    results: list[Score]
    next: str | None
    previous: str | None


class SearchHit(Resource, frozen=True):
    """A place where a term of the search was found."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": ["message", "step", "call", "reference", "event"]})]
    id: Annotated[Id, Meta(description="The id of the message, step, call, reference or event.")]
    message_id: Id
    url: Annotated[str, Meta(description="The call, or the message that has the rest, in this API.")]
    page: Annotated[str, Meta(description="The page of the admin that opens at this place.")]
    field: str
    before: Annotated[str, Meta(description="The text before it, at most 60 characters and an ellipsis.")]
    match: Annotated[str, Meta(description="The text itself, as it was stored.")]
    after: str


class SearchResult(Resource, frozen=True):
    """A message that has all terms of a search, itself or below it."""

    message_id: Id
    session_id: Id
    project: str
    role: str
    created_at: Time
    hits: Annotated[list[SearchHit], Meta(description="One for each term, in the order of `q`.")]


class SearchPage(Resource, frozen=True):
    """A page of messages that were found, newest first, with the cursors of the next and previous pages."""

    results: list[SearchResult]
    next: str | int | None
    previous: str | int | None
    searched_to: Annotated[
        Time | None,
        Meta(
            description="Where the search stopped after 2 seconds; `next` goes on from there. null if nothing was left out."
        ),
    ]
    indexed_until: Annotated[
        Time | None,
        Meta(
            description="Messages that were written after this time are searched without the index; null if there are none."
        ),
    ]


class FoundSession(Session, frozen=True):
    """A session; if it was searched for, with the places where its newest message with all terms has them."""

    hits: Annotated[list[SearchHit] | UnsetType, Meta(description="With `q`: one for each term, in its order.")] = UNSET


class FoundSessionPage(Resource, frozen=True):
    """A page of sessions, with the cursors of the next and previous pages; null at either end."""

    results: list[FoundSession]
    next: str | int | None
    previous: str | int | None
    searched_to: Annotated[
        Time | None | UnsetType, Meta(description="With `q`: see `/search/`, but the time of a session.")
    ] = UNSET
    indexed_until: Annotated[Time | None | UnsetType, Meta(description="With `q`: see `/search/`.")] = UNSET


class StoredScores(Resource, frozen=True):
    """The scores of a list, as stored, in its order."""

    results: list[Score]


class Piece(Resource, frozen=True):
    """A piece of a text."""

    text: str
    changed: Annotated[bool, Meta(description="true: only this side has it.")]


Pieces = Annotated[list[Piece] | None, Meta(description="The text in pieces; null if this side has no such field.")]


class Difference(Resource, frozen=True):
    """A field that differs."""

    field: Annotated[str, Meta(description="`args.city`, `output`, `thought` ...")]
    left: Pieces
    right: Pieces


class ComparedFact(Resource, frozen=True):
    """A figure of both sides."""

    field: str
    change: Literal["same", "changed"]
    left: Json
    right: Json


class ComparedNode(Resource, frozen=True):
    """A message, a step or a call."""

    id: Id
    message_id: Id
    kind: Literal["message", "step", "call"]
    name: Annotated[str, Meta(description="The role of a message, the agent of a step, the tool of a call.")]
    status: Annotated[str, Meta(description="Of a call; `error` of a message that failed.")]
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    usage: JsonObject | UnsetType = UNSET
    cost: Amount | UnsetType = UNSET


class ComparedPair(Resource, frozen=True):
    """Two steps or calls that correspond to each other."""

    change: Literal["same", "changed", "left", "right"]
    left: ComparedNode | None
    right: ComparedNode | None
    differences: Annotated[
        list[Difference] | UnsetType, Meta(description="Of changed pairs; left out beyond the first 500 of them.")
    ] = UNSET


class ComparedCounts(Resource, frozen=True):
    """The number of pairs of each kind."""

    same: Count
    changed: Count
    left: Annotated[int, Meta(description="Only on the left.", ge=0)]
    right: Annotated[int, Meta(description="Only on the right.", ge=0)]


class Comparison(Resource, frozen=True):
    """Two sessions or messages side by side."""

    kind: Literal["session", "message"]
    left: Id
    right: Id
    counts: ComparedCounts
    is_cut: Annotated[bool, Meta(description="true: only the first 12,000 messages, steps and calls were compared.")]
    facts: Annotated[list[ComparedFact], Meta(description="Durations, counters, tokens and cost of the whole.")]
    pairs: list[ComparedPair]
    replayed_since: Annotated[
        Time | UnsetType, Meta(description="Of a session and its replay: what was done before is left out.")
    ] = UNSET
