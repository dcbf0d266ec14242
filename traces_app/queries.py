"""The nested read: messages with references, steps, calls and results, in one query a table however many there are.

Steps are read in the order of their iterations, calls in the order of their step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec import UNSET

from messages_app.columns import (
    Column,
    Source,
    as_text,
    as_they_are,
    if_known,
    instant,
    json,
    json_if_any,
    json_if_known,
    look_up,
    text_if_any,
)
from messages_app.ids import created_at_of
from messages_app.instants import instant_text

from . import resources

EXPANDABLE = ("references", "steps", "calls", "results")
"""What can be nested in a message; calls lie in steps, and results in calls."""
MESSAGE_FIELDS = frozenset(resources.Message.__struct_fields__)
CALL_FIELDS = frozenset(resources.Call.__struct_fields__)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which parts of messages are read and answered; what is not named costs nothing."""

    fields: frozenset[str] = MESSAGE_FIELDS
    expand: frozenset[str] = frozenset(EXPANDABLE)

    @property
    def references(self) -> bool:
        return "knowledge_references" in self.fields and "references" in self.expand

    @property
    def steps(self) -> bool:
        return "agent_steps" in self.fields and not self.expand.isdisjoint({"steps", "calls", "results"})

    @property
    def calls(self) -> bool:
        return self.steps and not self.expand.isdisjoint({"calls", "results"})

    @property
    def results(self) -> bool:
        return self.steps and "results" in self.expand


EVERYTHING = Selection()


def messages(ids: Sequence[str], selection: Selection = EVERYTHING) -> list[resources.Message]:
    """The messages of `ids`, in this order, with all below that is selected. At most five queries.

    `ids` that are gone meanwhile are passed over.
    """
    rows = {message_id: values for message_id, *values in MESSAGES.read(ids, selection.fields)}
    references = _references(ids) if selection.references else {}
    steps = _steps(ids, selection) if selection.steps else {}
    make = MESSAGES.maker(selection.fields)
    return [
        make(
            rows[message_id],
            knowledge_references=references.get(message_id, []) if selection.references else UNSET,
            agent_steps=steps.get(message_id, []) if selection.steps else UNSET,
        )
        for message_id in ids
        if message_id in rows
    ]


def calls(ids: Sequence[str], fields: frozenset[str] = CALL_FIELDS) -> list[resources.Call]:
    """The calls of `ids`, in this order, with their results and what they belong to. At most four queries."""
    rows = {call_id: values for call_id, *values in CALLS.read(ids, fields)}
    results = call_results({call_id: values[0] for call_id, values in rows.items()}) if "result" in fields else {}
    # Not joined: over many months the plan of the join takes ten times as long as these two reads.
    sessions = look_up("session_id::text", MESSAGES.table, {values[1] for values in rows.values()})
    iterations = look_up("iteration", STEPS.table, {values[2] for values in rows.values()})
    make = CALLS.maker(fields)
    found = []
    for call_id in ids:
        # A call whose message or step was purged since the page was found is passed over like a call that was.
        if call_id in rows and rows[call_id][1] in sessions and rows[call_id][2] in iterations:
            _status, message_id, step_id, *values = rows[call_id]
            beside = {
                "session_id": sessions[message_id],
                "created_at": instant_text(created_at_of(UUID(call_id))),
                "iteration": iterations[step_id],
                "result": results.get(call_id),
            }
            found.append(make(values, **{name: value for name, value in beside.items() if name in fields}))
    return found


def call_results(statuses: Mapping[str, str]) -> dict[str, resources.ToolResult]:
    """The results of calls, by call; given are the statuses of the calls. At most one query."""
    make = RESULTS.maker()
    return {
        call_id: make(values, status=statuses[call_id], success=statuses[call_id] == "success")
        for call_id, *values in RESULTS.read(statuses)
    }


# --- What lies below a page --------------------------------------------------------------------------------------


def _references(page: Collection[str]) -> dict[str, list[resources.Reference]]:
    make = REFERENCES.maker()
    found: defaultdict[str, list[resources.Reference]] = defaultdict(list)
    for message_id, *values in REFERENCES.read(page):
        found[message_id].append(make(values))
    return found


def _steps(page: Collection[str], selection: Selection) -> dict[str, list[resources.AgentStep]]:
    calls_of = _calls(page, selection) if selection.calls else {}
    make = STEPS.maker()
    found: defaultdict[str, list[resources.AgentStep]] = defaultdict(list)
    for message_id, step_id, *values in STEPS.read(page):
        found[message_id].append(make(values, tool_calls=calls_of.get(step_id, []) if selection.calls else UNSET))
    return found


def _calls(page: Collection[str], selection: Selection) -> dict[str, list[resources.ToolCall]]:
    rows = TOOL_CALLS.read(page)
    results = call_results({row[2]: row[3] for row in rows}) if selection.results else {}
    make = TOOL_CALLS.maker()
    found: defaultdict[str, list[resources.ToolCall]] = defaultdict(list)
    for _message_id, step_id, call_id, _status, *values in rows:
        found[step_id].append(make(values, result=results.get(call_id) if selection.results else UNSET))
    return found


# --- Where it is read from -------------------------------------------------------------------------------------------

MESSAGES = Source(
    resource=resources.Message,
    table="messages_app_message",
    key="id",
    columns={
        **as_text("id", "session_id"),
        **as_they_are("external_id", "request_id", "role", "content", "is_completed", "version"),
        **as_they_are("error", "step_count", "call_count", "failure_count", "input_tokens", "output_tokens", "health"),
        "content_parts": json_if_known("content_parts"),
        "created_at": instant("created_at"),
        "updated_at": instant("updated_at"),
        "completed_at": instant("completed_at"),
        "deleted_at": instant("deleted_at"),
        "usage": json("usage"),
        "duration": Column(sql="duration_ms"),
        "redactions": json("redactions"),
        "metadata": json("metadata"),
    },
)
REFERENCES = Source(
    resource=resources.Reference,
    table="messages_app_reference",
    key="message_id",
    order_by="position",
    columns={
        "id": Column(sql="reference_id"),
        **as_they_are(
            "content", "knowledge_id", "chunk_index", "knowledge_title", "start_at", "end_at", "seq", "score"
        ),
        **as_they_are("match_type", "chunk_type", "parent_chunk_id", "image_info", "knowledge_filename"),
        **as_they_are("knowledge_source"),
        "sub_chunk_id": json("sub_chunk_id"),
        "metadata": json("metadata"),
    },
)
STEPS = Source(
    resource=resources.AgentStep,
    table="traces_app_agentstep",
    key="message_id",
    beside=("id::text",),
    order_by="iteration, ordinal",
    columns={
        **as_text("id"),
        **as_they_are("iteration", "thought"),
        "timestamp": instant("timestamp"),
        "duration": if_known("duration_ms"),
        "agent_name": text_if_any("agent_name"),
        "model": text_if_any("model"),
        "usage": json_if_known("usage"),
        "reasoning_content": text_if_any("reasoning"),
        "metadata": json_if_any("metadata"),
    },
)
_OF_A_CALL = {
    "uuid": Column(sql="id::text"),
    "id": Column(sql="call_id"),
    "name": Column(sql="(SELECT name FROM traces_app_tool WHERE traces_app_tool.id = tool_id)"),
    "args": json("args"),
    "reflection": text_if_any("reflection"),
    "duration": Column(sql="duration_ms"),
    "status": Column(sql="status"),
    "started_at": instant("started_at"),
    "completed_at": instant("completed_at"),
    "parent": if_known("parent_id::text"),
    "metadata": json_if_any("metadata"),
}
TOOL_CALLS = Source(
    resource=resources.ToolCall,
    table="traces_app_toolcall",
    key="message_id",
    beside=("step_id::text", "id::text", "status"),
    order_by="position",
    columns=_OF_A_CALL,
)
CALLS = Source(
    resource=resources.Call,
    table="traces_app_toolcall",
    key="id",
    beside=("status", "message_id::text", "step_id::text"),
    columns={**_OF_A_CALL, **as_text("message_id", "step_id"), **as_they_are("position")},
)
RESULTS = Source(
    resource=resources.ToolResult,
    table="traces_app_toolresult",
    key="id",
    columns={
        "output": Column(sql="output"),
        "data": json_if_known("data"),
        "error": text_if_any("error"),
        "metadata": json_if_any("metadata"),
        "attachments": json_if_any("attachments"),
        "raw": if_known("raw"),
    },
)
