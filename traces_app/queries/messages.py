"""The nested read: messages with references, steps, calls and results, in one query a table however many there are.

Steps are read in the order of their iterations, calls in the order of their step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct
from msgspec.structs import replace

from messages_app.sql.batch import LIST_MS, Row, fetch
from messages_app.sql.json_rows import (
    Column,
    Source,
    Through,
    as_text,
    as_they_are,
    if_known,
    instant,
    json,
    json_if_any,
    json_if_known,
    months_of,
    text_if_any,
)
from messages_app.sql.pagination import IdRange
from messages_app.sql.partitions import Month
from messages_app.sql.row_query import Rows
from traces_app.schema import records
from traces_app.schema.records import text_fields

from . import schemas

EXPANDABLE = ("references", "steps", "calls", "results")
"""What can be nested in a message; calls lie in steps, and results in calls."""
MESSAGE_FIELDS = frozenset(schemas.Message.__struct_fields__)
CALL_FIELDS = frozenset(schemas.Call.__struct_fields__)


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


def messages(ids: Sequence[str], selection: Selection = EVERYTHING) -> list[schemas.Message]:
    """The messages of `ids`, in this order, with all below that is selected. One exchange of at most five queries.

    `ids` that are gone meanwhile are passed over.
    """
    if not ids:
        return []
    queries = {"messages": MESSAGES.query(ids, selection.fields)}
    if selection.references:
        queries["references"] = REFERENCES.query(ids)
    if selection.steps:
        queries["steps"] = STEPS.query(ids)
    if selection.calls:
        queries["calls"] = TOOL_CALLS.query(ids)
    if selection.results:
        queries["results"] = RESULTS_OF_MESSAGES.query(ids)
    below = dict(zip(queries, fetch(list(queries.values())), strict=True))
    rows = below["messages"]
    references = _references(below["references"]) if selection.references else {}
    steps = _steps(below, selection) if selection.steps else {}
    made = MESSAGES.make(
        rows,
        selection.fields,
        knowledge_references=[references.get(row[0], []) for row in rows] if selection.references else UNSET,
        agent_steps=[steps.get(row[0], []) for row in rows] if selection.steps else UNSET,
    )
    found = dict(zip((row[0] for row in rows), made, strict=True))
    return [found[message_id] for message_id in ids if message_id in found]


def calls(ids: Sequence[str], fields: frozenset[str] = CALL_FIELDS) -> list[schemas.Call]:
    """The calls of `ids`, in this order, with their results and what they belong to. One query.

    A call whose message or step was purged since the page was found is passed over like a call that was.
    """
    if not ids:
        return []
    named = calls_with_all(months_of(ids)).where("call.id = ANY(%s::uuid[])", f"{{{','.join(ids)}}}")
    named = named.where("call.id BETWEEN %s AND %s", min(ids), max(ids))
    (found,) = fetch([named.query(_of_calls(fields), prepared=True)])
    by_id = _calls_by_id(found, fields)
    return [by_id[call_id] for call_id in ids if call_id in by_id]


class FoundCalls(Struct, frozen=True, kw_only=True):
    """Calls that are read whole where they are found: `Keys` of a page, and the resources of these keys.

    For `rows` of calls_with_all that an index of calls gives in the order of the page. To find the ids first and then read
    each call took twice as long: a page is two exchanges then, and the first is planned anew each time.
    """

    rows: Rows
    fields: frozenset[str] = CALL_FIELDS
    tool: str
    """The name of the tool whose calls they are."""
    _read: dict[str, schemas.Call] = {}

    def within(self, ids: IdRange) -> FoundCalls:
        return replace(self, rows=self.rows.within(ids))

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[str]:
        order = "DESC" if newest_first else "ASC"
        # Numbers as text: of a limit that it does not know the planner expects a tenth of the table.
        end = f"ORDER BY call.id {order} LIMIT {limit:d} OFFSET {offset:d}"
        query = self.rows.query(_of_calls(_nameless(self.fields)), end, prepared=True)
        (found,) = fetch([query], at_most_ms=LIST_MS)
        calls = _calls_by_id(found, self.fields, self.tool)
        self._read.update(calls)
        return list(calls)

    def read(self, ids: Sequence[str]) -> list[schemas.Call]:
        return [self._read.pop(call_id) for call_id in ids]


@lru_cache(maxsize=256)
def calls_with_all(months: IdRange) -> Rows:
    """All calls with their message, session, step and result, each found by its id; `months` are those of the calls.

    At once, for one exchange instead of four is a third of the time. OFFSET 0 has each of these found row by row: joined by
    a plan for any values, whole months were read.
    """
    lower, upper = str(months.lower or UUID(int=0)), str(months.upper or UUID(int=2**128 - 1))
    month = months.only_month
    return Rows(
        source=_CALLS_WITH_ALL,
        table="call",
        values=(lower, upper) * 3,
        month=month,
        in_month=_calls_with_all_in(month) if month else "",
    )


def call_results(statuses: Mapping[str, str]) -> dict[str, schemas.ToolResult]:
    """The results of calls, by call; given are the statuses of the calls. At most one query."""
    return _results(RESULTS.read(statuses), statuses)


# --- Calls by themselves ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _nameless(fields: frozenset[str]) -> frozenset[str]:
    # The same one each time: it knows its hash, by which what is remembered of it is found.
    return fields - {"name"}


def _of_calls(fields: frozenset[str]) -> str:
    return f"{CALLS.selected(fields)}, {RESULTS.selected()}"


def _calls_by_id(found: Sequence[Row], fields: frozenset[str], tool: str | None = None) -> dict[str, schemas.Call]:
    """The calls of rows of `_of_calls`, in their order; of that `tool`, where they were read without its name."""
    if not found:
        return {}
    width = len(found[0]) - len(RESULTS.resource.__struct_fields__) - 1
    columns: list[Sequence[Any]] = list(zip(*found, strict=True))
    ids, statuses, session_ids, iterations = columns[:4]
    made = RESULTS.make_of(columns[width:], status=statuses, success=[status == "success" for status in statuses])
    # A call without a result has NULL for the id of it.
    results = [result if key else None for key, result in zip(columns[width], made, strict=True)]
    beside = {"session_id": session_ids, "iteration": iterations, "result": results}
    if tool is not None:
        beside["name"] = [tool] * len(ids)
    beside = {name: values for name, values in beside.items() if name in fields}
    return dict(zip(ids, CALLS.make_of(columns[:width], fields, **beside), strict=True))


# --- What lies below a page --------------------------------------------------------------------------------------


def _references(rows: Sequence[Row]) -> dict[str, list[schemas.Reference]]:
    found: defaultdict[str, list[schemas.Reference]] = defaultdict(list)
    for row, reference in zip(rows, REFERENCES.make(rows), strict=True):
        found[row[0]].append(reference)
    return found


def _steps(below: Mapping[str, Sequence[Row]], selection: Selection) -> dict[str, list[schemas.AgentStep]]:
    rows = below["steps"]
    calls_of = _calls(below, selection) if selection.calls else {}
    made = STEPS.make(rows, tool_calls=[calls_of.get(row[1], []) for row in rows] if selection.calls else UNSET)
    found: defaultdict[str, list[schemas.AgentStep]] = defaultdict(list)
    for row, step in zip(rows, made, strict=True):
        found[row[0]].append(step)
    return found


def _calls(below: Mapping[str, Sequence[Row]], selection: Selection) -> dict[str, list[schemas.ToolCall]]:
    rows = below["calls"]
    results = _results(below["results"], {row[2]: row[3] for row in rows}) if selection.results else {}
    made = TOOL_CALLS.make(rows, result=[results.get(row[2]) for row in rows] if selection.results else UNSET)
    found: defaultdict[str, list[schemas.ToolCall]] = defaultdict(list)
    for row, call in zip(rows, made, strict=True):
        found[row[1]].append(call)
    return found


def _results(rows: Sequence[Row], statuses: Mapping[str, str]) -> dict[str, schemas.ToolResult]:
    # A result that came after its call was read is not answered: the call says that it is open.
    rows = [row for row in rows if row[0] in statuses]
    said = [statuses[row[0]] for row in rows]
    made = RESULTS.make(rows, status=said, success=[status == "success" for status in said])
    return dict(zip((row[0] for row in rows), made, strict=True))


# --- Where it is read from -------------------------------------------------------------------------------------------

MESSAGES = Source(
    resource=schemas.Message,
    table="messages_app_message",
    key="id",
    columns={
        **as_text("id", "session_id"),
        **as_they_are("external_id", "request_id", "role", "content", "is_completed", "version"),
        **as_they_are("error", "step_count", "call_count", "failure_count", "model_error_count"),
        **as_they_are("input_tokens", "output_tokens", "health"),
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
    resource=schemas.Reference,
    below=True,
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
    resource=schemas.AgentStep,
    below=True,
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
    "uuid": Column(sql="call.id::text"),
    "id": Column(sql="call.call_id"),
    "name": Column(sql="(SELECT name FROM traces_app_tool AS tool WHERE tool.id = call.tool_id)"),
    "args": json("call.args"),
    **{name: text_if_any(f"call.{name}") for name in text_fields(records.ToolCall)},
    "duration": Column(sql="call.duration_ms"),
    "status": Column(sql="call.status"),
    "started_at": instant("call.started_at"),
    "completed_at": instant("call.completed_at"),
    "parent": if_known("call.parent_id::text"),
    "metadata": json_if_any("call.metadata"),
}
TOOL_CALLS = Source(
    resource=schemas.ToolCall,
    below=True,
    table="traces_app_toolcall AS call",
    key="message_id",
    beside=("call.step_id::text", "call.id::text", "call.status"),
    order_by="call.position",
    columns=_OF_A_CALL,
)
CALLS = Source(
    resource=schemas.Call,
    table="traces_app_toolcall AS call",
    beside=("call.status", "message.session_id::text", "step.iteration"),
    columns={
        **_OF_A_CALL,
        "message_id": Column(sql="call.message_id::text"),
        "created_at": instant("message.created_at"),
        "step_id": Column(sql="call.step_id::text"),
        "position": Column(sql="call.position"),
    },
)
_OF_A_RESULT = {
    "output": Column(sql="result.output"),
    "data": json_if_known("result.data"),
    "error": text_if_any("result.error"),
    "metadata": json_if_any("result.metadata"),
    "attachments": json_if_any("result.attachments"),
    "raw": if_known("result.raw"),
}
RESULTS = Source(resource=schemas.ToolResult, table="traces_app_toolresult AS result", below=True, columns=_OF_A_RESULT)
RESULTS_OF_MESSAGES = Source(
    resource=schemas.ToolResult,
    table="traces_app_toolresult AS result",
    below=True,
    columns=_OF_A_RESULT,
    through=Through(table="traces_app_toolcall", key="message_id", gives="id"),
)


def _calls_with_all(calls: str, steps: str, results: str) -> str:
    return f"""{calls} AS call
    CROSS JOIN LATERAL (
        SELECT project_id, session_id, created_at, deleted_at FROM messages_app_message
        WHERE id = call.message_id AND id >= %s AND id < %s OFFSET 0
    ) AS message
    CROSS JOIN LATERAL (
        SELECT iteration FROM {steps} WHERE id = call.step_id AND id >= %s AND id < %s OFFSET 0
    ) AS step
    LEFT JOIN LATERAL (
        SELECT * FROM {results} WHERE id = call.id AND id >= %s AND id < %s OFFSET 0
    ) AS result ON TRUE"""  # noqa: S608 - names of tables


_BELOW = ("traces_app_toolcall", "traces_app_agentstep", "traces_app_toolresult")
_CALLS_WITH_ALL = _calls_with_all(*_BELOW)


def _calls_with_all_in(month: Month) -> str:
    return _calls_with_all(*map(month.leaf, _BELOW))
