"""Call chains: an assistant message with at least one call, read as a tree.

Chains have no table of their own. The id of a chain is that of its message. Its root call is the first call, in reading
order, without a parent; its root tool is the tool of that call, unless a tracker named another (`root_tool_id` in the
message's metadata). A chain succeeded if no call failed, the message has no error, and no call is open in a completed
message. Its error is the first one in reading order: steps by iteration, calls by position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, FilteredRelation, Q, QuerySet
from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.db import Database
from access_app.encryption.reading import ROW_ID
from access_app.errors import Conflict, NotFound
from access_app.visibility import ProjectScope
from messages_app.models import Message
from messages_app.queries import as_uuid
from messages_app.sql.batch import LIST_MS, Query, Row, fetch
from messages_app.sql.json_rows import Column, Source, as_column, json, look_up, periods_of
from traces_app.models import ToolCall
from tracesite_sdk.records import ROOT_TOOL

from .messages import RESULTS, STEPS, call_results
from .schemas.chains import Chain, ChainCall, ChainSummary

CHAIN_FIELDS = frozenset(ChainSummary.__struct_fields__)
_DERIVED = ("root_tool_id", "root_call_id", "success", "error_message", "type")


def chain_messages(db: Database, scope: ProjectScope) -> QuerySet[Message]:
    """Return the messages that are chains."""
    return db.rows(Message.objects).visible_to(scope).filter(role=Message.Role.ASSISTANT, call_count__gt=0)


def find_chain(db: Database, scope: ProjectScope, name: str) -> Message:
    """Return the chain whose id is `name`: the id of its message, or the external id that a tracker gave it.

    Raise NotFound, and Conflict if several sessions use the same external id.
    """
    message_id = as_uuid(name)
    messages = [] if message_id is None else list(chain_messages(db, scope).filter(pk=message_id))
    if not messages and name and "\x00" not in name:
        messages = list(chain_messages(db, scope).filter(external_id=name)[:2])
    if len(messages) > 1:
        raise Conflict(
            _("Several sessions have a chain with this external id. Use the id of its message."), code="ambiguous_chain"
        )
    if not messages:
        raise NotFound(_("There is no chain with this id."), code="chain_not_found")
    return messages[0]


def summaries(db: Database, ids: Sequence[str], fields: frozenset[str] = CHAIN_FIELDS) -> list[ChainSummary]:
    """Return the chains of `ids`, in this order, without their calls. Three queries in two round trips at most."""
    if not ids:
        return []
    rows, call_rows = fetch(db, [SUMMARIES.query(ids, fields), _query_of_first_calls(db, ids)], at_most_ms=LIST_MS)
    firsts = _first_calls(call_rows)
    failed = [call.id for calls in firsts.values() for call in calls if call.status == "error"]
    errors: dict[str, str] = dict(fetch(db, [look_up("error", RESULTS.table, failed)])[0]) if failed else {}
    derived: dict[str, list[Any]] = {name: [] for name in _DERIVED}
    for message_id, error, is_completed, named_root, *_values in rows:
        calls = firsts.get(message_id, [])
        root = next((call for call in calls if call.is_root), None)
        first_failed = next((call for call in calls if call.status == "error"), None)
        left_open = is_completed and any(call.status == "pending" for call in calls)
        derived["root_tool_id"].append(named_root or (root.tool if root else None))
        derived["root_call_id"].append(root.id if root else None)
        derived["success"].append(not (first_failed or error or left_open))
        derived["error_message"].append((errors.get(first_failed.id) if first_failed else "") or error or None)
        derived["type"].append("tool_call_chain")
    made = SUMMARIES.make(rows, fields, **{name: values for name, values in derived.items() if name in fields})
    by_id = dict(zip((row[0] for row in rows), made, strict=True))
    return [by_id[message_id] for message_id in ids if message_id in by_id]


def chain(db: Database, message_id: str) -> Chain | None:
    """Return a chain with all its calls; None if it does not exist any more. Four queries."""
    rows = CHAIN.read(db, [message_id])
    if not rows:
        return None
    _id, error, is_completed, named_root, *_values = rows[0]
    calls = _calls(db, message_id)
    roots = [call for call in calls.values() if call.parent_id is None]
    first_error = next((call.error_message for call in calls.values() if call.error_message), None)
    left_open = is_completed and any(call.status == "pending" for call in calls.values())
    failed = bool(error or left_open or any(call.status == "error" for call in calls.values()))
    (made,) = CHAIN.make(
        rows,
        root_tool_id=[named_root or (roots[0].tool_id if roots else None)],
        root_call_id=[roots[0].call_id if roots else None],
        success=[not failed],
        error_message=[first_error or error or None],
        type=["tool_call_chain"],
        root_calls=[[call.call_id for call in roots]],
        calls=[calls],
    )
    return made


def rooted_in(db: Database, ids: Collection[UUID], tools: Collection[str]) -> set[UUID]:
    """Return those of the chains whose root is one of these tools. Two queries in one round trip."""
    names = [str(message_id) for message_id in ids]
    call_rows, named = fetch(
        db, [_query_of_first_calls(db, names), look_up(NAMED_ROOT, CHAIN.table, names)], at_most_ms=LIST_MS
    )
    firsts = _first_calls(call_rows)
    roots = {
        message_id: next((call.tool for call in calls if call.is_root), None) for message_id, calls in firsts.items()
    }
    roots |= {message_id: root for message_id, root in named if root}
    return {UUID(message_id) for message_id, root in roots.items() if root in tools}


# --- The calls of a chain --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _FirstCall:
    """The first call of its message with this status, among root calls or among the others."""

    id: str
    tool: str
    status: str
    is_root: bool


def _query_of_first_calls(db: Database, messages: Collection[str]) -> Query:
    """Return the statement for the first call of each message, in reading order, of each status among root calls and among
    the others."""
    periods = periods_of(messages)
    calls: QuerySet[ToolCall, Any] = db.rows(ToolCall.with_deleted).filter(message_id__in=messages, **periods.of("pk"))
    # The separate relation `in_step` puts conditions on the primary key of steps: see `_calls` in filters.py.
    calls = calls.annotate(
        is_root=ExpressionWrapper(Q(parent_id__isnull=True), BooleanField()),
        in_step=FilteredRelation("step", condition=Q(step__ordinal__isnull=False)),
    )
    calls = calls.filter(**periods.of("in_step__id"))
    order = ("in_step__iteration", "in_step__ordinal", "position", "pk")
    return Query.of(
        calls.order_by("message_id", "status", "is_root", *order)
        .distinct("message_id", "status", "is_root")
        .values_list("message_id", "status", "is_root", *order[:3], "pk", "tool__name")
    )


def _first_calls(rows: Sequence[Row]) -> dict[str, list[_FirstCall]]:
    """Return at most six calls of each message, in reading order, among them its root and the first that failed."""
    first_calls: defaultdict[str, list[_FirstCall]] = defaultdict(list)
    for message_id, status, is_root, *_place, call_id, tool in sorted(rows, key=lambda row: row[3:7]):
        first_calls[str(message_id)].append(_FirstCall(id=str(call_id), tool=tool, status=status, is_root=is_root))
    return first_calls


def _calls(db: Database, message_id: str) -> dict[str, ChainCall]:
    """Return the calls of a message by their id, in reading order."""
    steps = {step_id: (index, values[1]) for index, (_id, step_id, *values) in enumerate(STEPS.read(db, [message_id]))}
    rows = [row for row in CHAIN_CALLS.read(db, [message_id]) if row[2] in steps]
    # Within a step the rows are ordered already.
    rows.sort(key=lambda row: steps[row[2]][0])
    results = call_results(db, {row[1]: row[3] for row in rows})
    children: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row[4] is not None:
            children[row[4]].append(row[1])
    of_rows = [results.get(row[1]) for row in rows]
    made = CHAIN_CALLS.make(
        rows,
        iteration=[steps[row[2]][1] for row in rows],
        child_calls=[children.get(row[1], []) for row in rows],
        result=of_rows,
        success=[row[3] == "success" for row in rows],
        error_message=[
            result.error if result is not None and result.error is not UNSET else None for result in of_rows
        ],
    )
    return dict(zip((row[1] for row in rows), made, strict=True))


# --- The tables ------------------------------------------------------------------------------------------------------

NAMED_ROOT = f"metadata ->> '{ROOT_TOOL}'"
"""The tool that a tracker named the root."""
_OF_A_CHAIN = {
    "chain_id": Column(sql="id::text", of="messages_app_message.id"),
    "duration": Column(sql="duration_ms / 1000.0::float8"),
    # Without our key, so that the tracker gets its own metadata back.
    "metadata": json(f"(metadata - '{ROOT_TOOL}')"),
}
SUMMARIES = Source(
    resource=ChainSummary,
    model=Message,
    table="messages_app_message",
    beside=("error", "is_completed", NAMED_ROOT),
    columns=_OF_A_CHAIN,
    made=_DERIVED,
)
CHAIN = Source(
    resource=Chain,
    model=Message,
    table="messages_app_message",
    beside=("error", "is_completed", NAMED_ROOT),
    columns=_OF_A_CHAIN,
    made=(*_DERIVED, "root_calls", "calls"),
)
CHAIN_CALLS = Source(
    resource=ChainCall,
    model=ToolCall,
    table="traces_app_toolcall",
    key="message_id",
    beside=(
        f"id::text AS {ROW_ID}",
        as_column("step_id::text", "traces_app_toolcall.step_id"),
        "status",
        as_column("parent_id::text", "traces_app_toolcall.parent_id"),
    ),
    order_by="position, id",
    columns={
        "call_id": Column(sql="id::text", of="traces_app_toolcall.id"),
        "id": Column(sql="call_id"),
        "tool_id": Column(
            sql="(SELECT name FROM traces_app_tool WHERE traces_app_tool.id = tool_id)", of="traces_app_tool.name"
        ),
        "parameters": json("args"),
        "duration": Column(sql="duration_ms / 1000.0::float8"),
    },
    made=("child_calls", "iteration", "result", "success", "error_message"),
)
