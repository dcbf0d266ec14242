"""From a record to the rows below its message: the parents of calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from sdk.tests import steps
from traces_app.ingest.rows import Rows, StoredBelow, rows_below
from tracesite_sdk.normalize.pricing import PriceTable
from tracesite_sdk.records import AgentStep, ToolCall, ids

MESSAGE = ids.message_id(datetime(2026, 3, 1, 12, tzinfo=UTC), "assistant", 0, ("session", "message"))


def rows_of(calls: Sequence[ToolCall]) -> Rows:
    said = [
        ToolCall(id=call.id, uuid=call.uuid, name="a", args={}, status="pending", parent=call.parent) for call in calls
    ]
    return rows_below(
        MESSAGE, 1, (), [AgentStep(iteration=0, tool_calls=said)], {"a": 1}, StoredBelow(), prices=PriceTable(prices=[])
    )


def parents(*calls: ToolCall) -> tuple[list[int | None], set[str]]:
    """Return the index of each call's parent, and the flags."""
    rows = rows_of(calls)
    places = [UUID(row.id) for row in rows.calls]
    return [places.index(UUID(row.parent_id)) if row.parent_id else None for row in rows.calls], rows.flags


def test_parent_is_found_by_uuid_or_id() -> None:
    assert parents(ToolCall(id="c1"), ToolCall(id="c2", parent="c1")) == ([None, 0], set())
    assert parents(ToolCall(id="c1", uuid="u1"), ToolCall(id="c2", parent="u1")) == ([None, 0], set())
    assert parents(ToolCall(id="c1", uuid="u1"), ToolCall(id="c2", parent="c1")) == ([None, 0], set())


def test_parent_among_equal_ids_is_the_call_without_uuid() -> None:
    first, second = ToolCall(id="c1"), ToolCall(id="c1", uuid="c1#1")
    assert parents(first, second, ToolCall(id="c2", parent="c1"), ToolCall(id="c3", parent="c1#1")) == (
        [None, None, 0, 1],
        set(),
    )


def test_parent_that_matches_several_calls_is_flagged() -> None:
    assert parents(ToolCall(id="c1"), ToolCall(id="c1"), ToolCall(id="c2", parent="c1")) == (
        [None, None, None],
        {"parent_unknown"},
    )


def test_call_that_closes_a_cycle_of_parents_is_flagged() -> None:
    first, second = ToolCall(id="c1", parent="c3"), ToolCall(id="c2", parent="c1")
    assert parents(first, second, ToolCall(id="c3", parent="c2")) == ([2, 0, None], {"parent_unknown"})


@pytest.mark.parametrize("parent", ["c{before}", "same"])
def test_parents_of_many_calls_take_linear_time(parent: str) -> None:
    def calls(count: int) -> list[ToolCall]:
        below = [ToolCall(id=f"c{number}", parent=parent.format(before=number - 1)) for number in range(1, count)]
        return [ToolCall(id="c0"), *below, *(ToolCall(id="same", uuid=f"u{number}") for number in range(count))]

    few, many = calls(100), calls(400)
    with steps.at_most(math.inf) as count:
        rows_of(few)
    with steps.at_most(5 * count.lines):
        rows_of(many)
