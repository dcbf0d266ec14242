"""Two runs side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.queries import comparison
from traces_app.queries.alignment import matches
from traces_app.queries.comparison import Node, compare, compare_messages


def call(name: str, q: Any, output: str = "ok", **fields: Any) -> dict[str, Any]:
    return {"name": name, "args": {"q": q}, "result": {"output": output}, **fields}


def run(project: Project, name: str, *steps: tuple[str, list[dict[str, Any]]]) -> UUID:
    agent_steps = [
        {"iteration": n, "thought": thought, "tool_calls": calls} for n, (thought, calls) in enumerate(steps)
    ]
    message = {"role": "assistant", "external_id": name, "created_at": NOON, "agent_steps": agent_steps}
    made = store(project, message, external_id=name).messages[0].id
    assert isinstance(made, UUID)
    return made


def shown(left: UUID, right: UUID) -> list[tuple[str, str, str]]:
    """Return the change, and the name or thought of both sides, of each pair."""

    def name(node: Node | None) -> str:
        return "" if node is None else node.text if node.kind == "step" else f"{node.name} {node.text}"

    return [(pair.change, name(pair.left), name(pair.right)) for pair in compare(primary, left, right).pairs]


def test_pairs_are_same_changed_or_on_one_side(project: Project) -> None:
    good = run(
        project,
        "good",
        ("Look.", [call("search", "a"), call("fetch", "b"), call("sum", "c", "3")]),
        ("Write.", [call("write", "d")]),
    )
    bad = run(
        project,
        "bad",
        ("Look.", [call("search", "a"), call("fetch", "other"), call("sum", "c", "4")]),
        ("Retry.", [call("wait", 5)]),
        ("Write.", [call("write", "d")]),
    )
    assert shown(good, bad) == [
        ("same", "Look.", "Look."),
        ("same", 'search {"q": "a"}', 'search {"q": "a"}'),
        ("changed", 'fetch {"q": "b"}', 'fetch {"q": "other"}'),
        ("changed", 'sum {"q": "c"}', 'sum {"q": "c"}'),
        ("right", "", "Retry."),
        ("right", "", 'wait {"q": 5}'),
        ("same", "Write.", "Write."),
        ("same", 'write {"q": "d"}', 'write {"q": "d"}'),
    ]
    pairs = compare(primary, good, bad).pairs
    assert [pair.is_asked_alike for pair in pairs if pair.change == "changed"] == [False, True]


def test_run_compared_with_itself_is_the_same(project: Project) -> None:
    one = run(project, "one", ("Look.", [call("search", n % 2) for n in range(300)]))
    found = compare(primary, one, one)
    assert found.counts == {"same": 301, "changed": 0, "left": 0, "right": 0}
    assert not found.is_cut


def test_failed_call_differs_from_successful_one(project: Project) -> None:
    good = run(project, "good", ("Look.", [call("search", "a")]))
    bad = run(project, "bad", ("Look.", [call("search", "a") | {"result": {"error": "gone"}}]))
    pair = compare(primary, good, bad).pairs[1]
    assert (pair.change, pair.is_asked_alike) == ("changed", True)
    assert pair.right is not None
    assert (pair.right.status, pair.right.result) == ("error", "gone")


def test_difference_beyond_the_shown_beginning_is_found(project: Project) -> None:
    left, right = (run(project, name, ("T", [call("f", "x" * 5000 + name)])) for name in ("a", "b"))
    assert [pair.change for pair in compare(primary, left, right).pairs] == ["same", "changed"]


def test_long_runs_are_cut_and_say_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_NODES", 10)
    long = run(project, "long", ("T", [call("f", n) for n in range(30)]))
    found = compare(primary, long, long)
    assert (len(found.pairs), found.is_cut) == (10, True)
    monkeypatch.setattr(comparison, "MOST_COMPARED", 20)
    found = compare_messages(primary, [long], [long])
    assert (len(found.pairs), found.is_cut) == (20, True)


def nodes(names: list[str]) -> list[Node]:
    return [
        Node(
            kind="call",
            id=UUID(int=0),
            message_id=UUID(int=0),
            name=name[0],
            text="",
            result="",
            status="",
            duration_ms=None,
            asked=name,
            answered="",
        )
        for name in names
    ]


NAMES = st.lists(st.sampled_from(["a1", "a2", "b1", "b2", "c1"]), max_size=12)


@given(left=NAMES, right=NAMES)
@settings(max_examples=200, deadline=None)
def test_every_node_is_shown_once_and_in_order(left: list[str], right: list[str]) -> None:
    pairs = list(comparison._pairs(nodes(left), nodes(right)))
    assert [pair.left.asked for pair in pairs if pair.left] == left
    assert [pair.right.asked for pair in pairs if pair.right] == right
    assert all(
        pair.left and pair.right and pair.left.name == pair.right.name for pair in pairs if pair.change == "changed"
    )
    assert all(pair.left == pair.right for pair in pairs if pair.change == "same")


@given(left=NAMES, right=NAMES)
@settings(max_examples=200, deadline=None)
def test_matches_are_a_longest_common_subsequence(left: list[str], right: list[str]) -> None:
    found = matches(left, right)
    assert all(left[i] == right[j] for i, j in found)
    assert all(i < m and j < n for (i, j), (m, n) in pairwise(found))
    row = [0] * (len(right) + 1)
    for item in left:
        longest = [0]
        for j, other in enumerate(right):
            longest.append(row[j] + 1 if item == other else max(row[j + 1], longest[j]))
        row = longest
    assert len(found) == row[-1]
