"""The nested read: messages with references, steps, calls and results, in four queries for a page of any size.

Steps are in the order of their iterations, calls in the order of their step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from access_app.db import Database
from access_app.encryption.reading import ROW_ID
from messages_app.display_text import without_tool_json
from messages_app.models import Message, Reference
from messages_app.sql.batch import Row, fetch
from messages_app.sql.json_rows import Column, Source, as_column, if_known, instant, text_if_any
from traces_app.models import AgentStep, ToolCall, ToolResult

from .contexts import InputKey, inputs
from .schemas import calls as call_schemas
from .schemas import contexts as context_schemas
from .schemas import messages as message_schemas

EXPANDABLE = ("references", "steps", "calls", "results")
"""The parts that can be nested in a message; calls lie in steps, and results in calls."""
INPUTS = "inputs"
"""Can be nested in the steps of a single message. Each input repeats the whole conversation."""
MESSAGE_FIELDS = frozenset(message_schemas.Message.__struct_fields__)
CALL_FIELDS = frozenset(call_schemas.Call.__struct_fields__)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The parts of messages that are read; other parts are not queried."""

    fields: frozenset[str] = MESSAGE_FIELDS
    expand: frozenset[str] = frozenset(EXPANDABLE)

    @property
    def references(self) -> bool:
        return "knowledge_references" in self.fields and "references" in self.expand

    @property
    def steps(self) -> bool:
        return "agent_steps" in self.fields and not self.expand.isdisjoint({"steps", "calls", "results", INPUTS})

    @property
    def calls(self) -> bool:
        return self.steps and not self.expand.isdisjoint({"calls", "results"})

    @property
    def results(self) -> bool:
        return self.steps and "results" in self.expand

    @property
    def inputs(self) -> bool:
        return self.steps and INPUTS in self.expand


EVERYTHING = Selection()


def messages(db: Database, ids: Sequence[str], selection: Selection = EVERYTHING) -> list[message_schemas.Message]:
    """Return the messages of `ids`, in this order, with the selected parts. At most four queries in one round trip.

    Ids that do not exist any more are skipped.
    """
    if not ids:
        return []
    has_display = "display_content" in selection.fields
    read = selection.fields | {"role", "content"} if has_display else selection.fields
    queries = {"messages": MESSAGES.query(ids, read)}
    if selection.references:
        queries["references"] = REFERENCES.query(ids)
    if selection.steps:
        queries["steps"] = STEPS.query(ids)
    if selection.calls:
        queries["calls"] = TOOL_CALLS.query(ids, joined=RESULTS if selection.results else None)
    below = dict(zip(queries, fetch(db, list(queries.values())), strict=True))
    rows = below["messages"]
    references = _references(below["references"]) if selection.references else {}
    steps = _steps(db, below, selection) if selection.steps else {}
    made = MESSAGES.make(
        rows,
        selection.fields,
        knowledge_references=[references.get(row[0], []) for row in rows] if selection.references else UNSET,
        agent_steps=[steps.get(row[0], []) for row in rows] if selection.steps else UNSET,
        display_content=[_display_content(row[_ROLE], row[_CONTENT]) for row in rows] if has_display else UNSET,
    )
    by_id = dict(zip((row[0] for row in rows), made, strict=True))
    return [by_id[message_id] for message_id in ids if message_id in by_id]


def calls(db: Database, ids: Sequence[str], fields: frozenset[str] = CALL_FIELDS) -> list[call_schemas.Call]:
    """Return the calls of `ids`, in this order, with their results and the ids of session, message and step. One query.

    Calls that were purged since the page was found are skipped.
    """
    (rows,) = fetch(db, [CALLS.query(ids, fields, joined=RESULTS)]) if ids else [[]]
    if not rows:
        return []
    columns, results = _split(rows)
    beside = {"session_id": [row[2] for row in rows], "iteration": [row[3] for row in rows], "result": results}
    made = CALLS.make_of(columns, fields, **{name: values for name, values in beside.items() if name in fields})
    by_id = dict(zip((row[0] for row in rows), made, strict=True))
    return [by_id[call_id] for call_id in ids if call_id in by_id]


def call_results(db: Database, statuses: Mapping[str, str]) -> dict[str, call_schemas.ToolResult]:
    """Return the results of calls by call id; `statuses` has the status of each call. At most one query."""
    return _results(RESULTS.read(db, statuses), statuses)


def _display_content(role: str, content: str) -> str | UnsetType:
    shown = without_tool_json(content) if role == Message.Role.ASSISTANT else content
    return UNSET if shown == content else shown


# --- The rows below a page ----------------------------------------------------------------------------------------------


def _references(rows: Sequence[Row]) -> dict[str, list[message_schemas.Reference]]:
    by_message: defaultdict[str, list[message_schemas.Reference]] = defaultdict(list)
    for row, reference in zip(rows, REFERENCES.make(rows), strict=True):
        by_message[row[0]].append(reference)
    return by_message


def _steps(
    db: Database, below: Mapping[str, Sequence[Row]], selection: Selection
) -> dict[str, list[message_schemas.AgentStep]]:
    rows = below["steps"]
    calls_of = _calls(below, selection) if selection.calls else {}
    made = STEPS.make(
        rows, tool_calls=[calls_of.get(row[1], []) for row in rows] if selection.calls else UNSET, input=UNSET
    )
    if selection.inputs:
        made = with_inputs([(row[0], step) for row, step in zip(rows, made, strict=True)], partial(inputs, db))
    by_message: defaultdict[str, list[message_schemas.AgentStep]] = defaultdict(list)
    for row, step in zip(rows, made, strict=True):
        by_message[row[0]].append(step)
    return by_message


def with_inputs(
    steps: Sequence[tuple[str, message_schemas.AgentStep]],
    read: Callable[[Collection[InputKey]], Mapping[InputKey, context_schemas.ModelInput]],
) -> list[message_schemas.AgentStep]:
    """Return the steps, each given with the id of its message, with what their models were asked.

    `read` gets the key of each step, also those of steps that were asked the same.
    """
    keys = [(message_id, step.input_ref) for message_id, step in steps if isinstance(step.input_ref, str)]
    inputs: Mapping[tuple[str, Any], context_schemas.ModelInput] = read(keys)
    return [
        replace(step, input=inputs.get((message_id, step.input_ref), UNSET)) if step.input_ref else step
        for message_id, step in steps
    ]


def _calls(below: Mapping[str, Sequence[Row]], selection: Selection) -> dict[str, list[call_schemas.ToolCall]]:
    rows = below["calls"]
    by_step: defaultdict[str, list[call_schemas.ToolCall]] = defaultdict(list)
    if selection.results and rows:
        columns, results = _split(rows)
        made = TOOL_CALLS.make_of(columns, result=results)
    else:
        made = TOOL_CALLS.make(rows, result=UNSET)
    for row, call in zip(rows, made, strict=True):
        by_step[row[2]].append(call)
    return by_step


def _split(rows: Sequence[Row]) -> tuple[list[Sequence[Any]], list[call_schemas.ToolResult | None]]:
    """Return the columns of calls that are joined with RESULTS, and the results; `status` is the first column of `beside`."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    width = len(columns) - len(RESULTS.resource.__struct_fields__) - 1
    statuses = columns[1]
    made = RESULTS.make_of(columns[width:], status=statuses, success=[status == "success" for status in statuses])
    # A call without a result has NULL for its id.
    return columns[:width], [result if key else None for key, result in zip(columns[width], made, strict=True)]


def _results(rows: Sequence[Row], statuses: Mapping[str, str]) -> dict[str, call_schemas.ToolResult]:
    # Leave out a result that was stored after its call was read, because the call is still pending here.
    rows = [row for row in rows if row[0] in statuses]
    of_rows = [statuses[row[0]] for row in rows]
    made = RESULTS.make(rows, status=of_rows, success=[status == "success" for status in of_rows])
    return dict(zip((row[0] for row in rows), made, strict=True))


# --- The tables ------------------------------------------------------------------------------------------------------

MESSAGES = Source(
    resource=message_schemas.Message,
    model=Message,
    table="messages_app_message",
    key="id",
    beside=("project_id",),
    columns={"duration": Column(sql="duration_ms")},
    made=("knowledge_references", "agent_steps", "display_content"),
)
_ROLE, _CONTENT = (
    1 + len(MESSAGES.beside) + message_schemas.Message.__struct_fields__.index(name) for name in ("role", "content")
)
REFERENCES = Source(
    resource=message_schemas.Reference,
    model=Reference,
    table="messages_app_reference",
    key="message_id",
    beside=(f"id::text AS {ROW_ID}",),
    order_by="position",
    columns={"id": Column(sql="reference_id")},
)
STEPS = Source(
    resource=message_schemas.AgentStep,
    model=AgentStep,
    table="traces_app_agentstep",
    key="message_id",
    beside=(f"id::text AS {ROW_ID}",),
    order_by="iteration, ordinal",
    columns={
        "duration": if_known("duration_ms"),
        "reasoning_content": text_if_any("reasoning"),
        "time_to_first_token": if_known("time_to_first_token_ms"),
        "input_ref": text_if_any("input_ref"),
        "cost_is_explicit": if_known("CASE WHEN cost IS NOT NULL THEN said_cost IS NOT NULL END"),
    },
    made=("tool_calls", "input"),
)
_OF_A_CALL = {
    "uuid": Column(sql=f"call.id::text AS {ROW_ID}"),
    "id": Column(sql="call.call_id"),
    "name": Column(
        sql="(SELECT name FROM traces_app_tool AS tool WHERE tool.id = call.tool_id)", of="traces_app_tool.name"
    ),
    "duration": Column(sql="call.duration_ms"),
    "parent": if_known("call.parent_id::text", of="traces_app_toolcall.parent_id"),
}
TOOL_CALLS = Source(
    resource=call_schemas.ToolCall,
    model=ToolCall,
    table="traces_app_toolcall AS call",
    key="message_id",
    beside=("call.status", as_column("call.step_id::text", "traces_app_toolcall.step_id")),
    order_by="call.position",
    columns=_OF_A_CALL,
    made=("result",),
)
CALLS = Source(
    resource=call_schemas.Call,
    model=ToolCall,
    table="""traces_app_toolcall AS call
    CROSS JOIN LATERAL (
        SELECT session_id, created_at FROM messages_app_message
        WHERE id = call.message_id AND id >= %s AND id < %s OFFSET 0
    ) AS message
    CROSS JOIN LATERAL (
        SELECT iteration FROM traces_app_agentstep WHERE id = call.step_id AND id >= %s AND id < %s OFFSET 0
    ) AS step""",
    ranges=2,
    beside=(
        "call.status",
        as_column("message.session_id::text", "messages_app_message.session_id"),
        "step.iteration",
        "call.project_id",
    ),
    columns={**_OF_A_CALL, "created_at": instant("message.created_at")},
    made=("session_id", "iteration", "result"),
)
RESULTS = Source(
    resource=call_schemas.ToolResult,
    model=ToolResult,
    table="traces_app_toolresult AS result",
    made=("status", "success"),
    # OFFSET 0 prevents the planner from flattening the subquery: a generic plan of the flat join reads whole months.
    join="""LEFT JOIN LATERAL (
        SELECT * FROM traces_app_toolresult WHERE id = call.id AND id >= %s AND id < %s OFFSET 0
    ) AS result ON TRUE""",
)
