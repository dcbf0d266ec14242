"""Build the rows of a message from its record: ids, parents and totals. Pure functions; store.py writes the rows.

Every value of a row is text that PostgreSQL parses, or None (see pg_text.py). Ids are 32 hexadecimal digits. They are
derived, so that sending a message again gives the same rows:

* a step is identified by its producer's id, else by its iteration and its index among the steps of that iteration;
* a call is identified by its producer's `uuid`, else by the model's call id within its step and its index among the calls
  of that id, else by its position;
* one of our own ids that is sent back finds the row it belongs to.

So a later snapshot adds to an earlier one, and a call id that a model uses twice, in one step or in two, stays two calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import PriceTable, stated_cost
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.normalize.redacted import receipts_as_json
from tracesite_sdk.normalize.rollup import Rollup, completion, duration_between, rollup
from tracesite_sdk.normalize.trees import cycles
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.records.health_flags import PARENT_UNKNOWN
from tracesite_sdk.records.shared_values import Context, input_of
from tracesite_sdk.redaction.engine import Receipt

from .tables import CALLS, MESSAGES, REFERENCES, RESULTS, STEPS, Row


@dataclass(kw_only=True)
class StoredBelow:
    """The rows that exist below a message; empty for a new one."""

    step_ids: set[str] = field(default_factory=set)
    next_iteration: int = 0
    call_ids: dict[str, str] = field(default_factory=dict)
    """The model's call ids, by row id."""
    open_calls: set[str] = field(default_factory=set)
    totals: Rollup | None = None
    """The totals of these rows, if they were read too."""


@dataclass(kw_only=True)
class Rows:
    """The rows below one message, each list in the order of the record, and the health flags found on the way."""

    references: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    inputs: list[Context] = field(default_factory=list)
    """The inputs of the models."""
    flags: set[str] = field(default_factory=set)
    costs: list[Decimal | None] = field(default_factory=list)
    """The costs of the steps."""
    to_price: list[UUID] = field(default_factory=list)
    """The steps of which the record has only the model or only the tokens: their cost needs the stored row, too."""

    def assign_positions(self, ordinals: Mapping[str, int], positions: Mapping[str, int]) -> None:
        """Replace the places that follow from the record by these, given by row id."""
        self.steps = [row._replace(ordinal=str(ordinals[row.id])) for row in self.steps]
        self.calls = [row._replace(position=str(positions[row.id])) for row in self.calls]


def message_row(
    message_id: UUID,
    project_id: int,
    session_id: UUID,
    message: records.Message,
    below: Rows,
    receipts: list[Receipt],
    now: datetime,
) -> tuple[Row, Rollup]:
    """Return the row of a new message, and the totals that it holds."""
    steps = message.agent_steps or ()
    totals = rollup(
        message.usage,
        (
            (row.id, step.duration, step.usage, (step.metadata or {}).get("error"), step.model, cost)
            for row, step, cost in zip(below.steps, steps, below.costs, strict=True)
        ),
        (
            (row.step_id, row.parent_id, call.status or "", call.duration)
            for row, call in zip(below.calls, (call for step in steps for call in step.tool_calls or ()), strict=True)
        ),
        is_answer=message.role == "assistant" and bool(message.is_completed) and not message.error,
    )
    assert message.created_at is not None, "normalisation gives every message its time"
    completed_at = completion(message, message.created_at)
    totals = totals._replace(duration_ms=duration_between(message.created_at, completed_at, totals.duration_ms))
    row = MESSAGES.row(
        message,
        id=message_id.hex,
        project_id=str(project_id),
        session_id=session_id.hex,
        content=pg_text.text(message.content if isinstance(message.content, str) else ""),
        health=pg_text.array(sorted({*map(pg_text.text, message.health or ()), *below.flags})),
        redactions=pg_text.json(receipts_as_json(receipts)),
        version="1",
        updated_at=pg_text.timestamp(now),
        completed_at=pg_text.timestamp(completed_at),
        deleted_by="",
        **{column: pg_text.number(total) for column, total in totals._asdict().items()},
    )
    return row, totals


def rows_below(
    message_id: UUID,
    project_id: int,
    references: Iterable[records.Reference],
    steps: Iterable[records.AgentStep],
    tool_ids: Mapping[str, int],
    stored: StoredBelow,
    *,
    first_iteration: int = 0,
    prices: PriceTable,
) -> Rows:
    """Return the rows below a message. Steps without an iteration are numbered from `first_iteration`."""
    children = ids.Children(message_id)
    message, project = message_id.hex, str(project_id)
    rows = Rows(
        references=[
            REFERENCES.row(
                reference,
                id=children.hex(f"'reference', {i}"),
                project_id=project,
                message_id=message,
                position=str(i),
            )
            for i, reference in enumerate(references)
        ]
    )
    seen: dict[str, int] = {}
    calls: list[tuple[str, records.ToolCall]] = []
    """The calls, with the ids of their rows."""
    iteration = first_iteration
    for ordinal, step in enumerate(steps, len(stored.step_ids)):
        if step.iteration is not None:
            iteration = step.iteration
        step_key = f"'step', 'id', {step.id!r}" if step.id else f"'step', {iteration}"
        step_id = _row_id(children, seen, step_key, step.id, stored.step_ids)
        asked = input_of(step.input) if step.input is not None else None
        if asked is not None:
            rows.inputs.append(asked)
        said_cost = stated_cost(step.cost, step.usage)
        cost = said_cost
        if cost is None and step.usage and step.model:
            day = (step.timestamp or ids.created_at_of(message_id)).astimezone(UTC).date()
            cost = prices.cost(project_id, step.model, step.usage, day)
        elif cost is None and (step.usage or step.model):
            rows.to_price.append(UUID(step_id))
        rows.costs.append(cost)
        rows.steps.append(
            STEPS.row(
                step,
                id=step_id,
                project_id=project,
                message_id=message,
                iteration=str(iteration),
                ordinal=str(ordinal),
                input_ref=asked.ref if asked is not None else "",
                said_cost=pg_text.number(said_cost),
                cost=pg_text.number(cost),
            )
        )
        iteration += 1
        if not step.tool_calls:
            continue
        in_step = f"'call', {int(step_id, 16)}"
        for position, call in enumerate(step.tool_calls):
            row_id = _row_id(children, seen, _call_key(in_step, position, call), call.uuid, stored.call_ids)
            calls.append((row_id, call))
            rows.calls.append(
                CALLS.row(
                    call,
                    id=row_id,
                    project_id=project,
                    message_id=message,
                    step_id=step_id,
                    tool_id=str(tool_ids[pg_text.text(call.name)]),
                    parent_id=None,
                    # Generated where the model gave none: the same each time the call is sent, and unique.
                    call_id=pg_text.text(call.id) or f"call_{row_id[-12:]}",
                    position=str(position),
                )
            )
            if isinstance(call.result, records.ToolResult):
                rows.results.append(RESULTS.row(call.result, id=row_id, project_id=project))
    if any(call.parent for _row_id, call in calls):
        _set_parents(rows, calls, stored)
    return rows


def _row_id(children: ids.Children, seen: dict[str, int], key: str, given: str | None, stored: Container[str]) -> str:
    """Return `given` if it is the id of a stored row, else an id derived from the key and how often it was used."""
    own = hyphenated_uuid(given) if given else None
    if own is not None and own.hex in stored and own.hex not in seen:
        seen[own.hex] = 1
        return own.hex
    repetition = seen.get(key, 0)
    seen[key] = repetition + 1
    return children.hex(f"{key}, {repetition}")


def _call_key(in_step: str, position: int, call: records.ToolCall) -> str:
    if call.uuid:
        return f"'call', 'uuid', {call.uuid!r}"
    return f"{in_step}, 'id', {call.id!r}" if call.id else f"{in_step}, 'at', {position}"


def _set_parents(rows: Rows, calls: list[tuple[str, records.ToolCall]], stored: StoredBelow) -> None:
    """Replace the names of parents by row ids. A name that matches no call or several, or closes a cycle, is flagged and
    kept in the call's metadata."""
    by_name = _rows_by_name(calls, stored)
    parents = {row_id: by_name.get(call.parent) if call.parent else None for row_id, call in calls}
    places = {row_id: index for index, (row_id, _call) in enumerate(calls)}
    # The last call of each cycle.
    closing = {max(cycle, key=places.__getitem__) for cycle in cycles(parents)}
    for index, (row_id, call) in enumerate(calls):
        if not call.parent:
            continue
        row = rows.calls[index]
        if parents[row_id] is None or row_id in closing:
            rows.flags.add(PARENT_UNKNOWN)
            metadata = {**msgspec.json.decode(row.metadata), "parent": call.parent}
            rows.calls[index] = row._replace(metadata=pg_text.json(metadata))
        else:
            rows.calls[index] = row._replace(parent_id=parents[row_id])


def _rows_by_name(calls: list[tuple[str, records.ToolCall]], stored: StoredBelow) -> dict[str, str | None]:
    """Return the row id, stored or new, by each name that a `parent` may use for it; None if the name matches several. Among
    calls with the same id, the one without a `uuid` is the parent, because the others can be named by their `uuid`."""
    by_name: dict[str, dict[str, None]] = defaultdict(dict)
    names = [(row_id, name) for row_id, call_id in stored.call_ids.items() for name in (str(UUID(row_id)), call_id)]
    names += [(row_id, name) for row_id, call in calls for name in (call.uuid, call.id) if name]
    for row_id, name in names:
        by_name[name][row_id] = None
    with_uuid = {row_id for row_id, call in calls if call.uuid}
    unique: dict[str, str | None] = {}
    for name, row_ids in by_name.items():
        named = [row_id for row_id in row_ids if len(row_ids) == 1 or row_id not in with_uuid]
        unique[name] = named[0] if len(named) == 1 else None
    return unique
