"""Test ToolCallChainTracker: names, errors, open calls per task and thread, stored chains, and the events it sends."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.recorder.chains import CHAIN_KEYS, START, finished, ticking
from tracesite_sdk import MemorySink, Privacy, Recorder
from tracesite_sdk.normalize.tool_results import NO_REASON
from tracesite_sdk.recorder.tracking.chains import ToolCallChain, ToolCallChainContext, ToolCallNode
from tracesite_sdk.recorder.tracking.tracker import ToolCallChainTracker
from tracesite_sdk.testing import RecorderForTests, recording, tree


def parents(chain: ToolCallChain) -> dict[str, str | None]:
    """Return the tool of each call with that of its parent; all tools must differ."""
    tools = {call.call_id: call.tool_id for call in chain.calls.values()}
    return {call.tool_id: tools.get(call.parent_id or "") for call in chain.calls.values()}


# --- Objects ------------------------------------------------------------------------------------------------------------


def test_new_chain_has_default_values() -> None:
    chain = ToolCallChain("chain-1", "planner")
    assert abs(chain.created_at - datetime.now(UTC)) < timedelta(seconds=60)
    expected = ("chain-1", "planner", "", {}, None, 0.0, True, None, {})
    assert expected == (
        chain.chain_id,
        chain.root_tool_id,
        chain.root_call_id,
        chain.calls,
        chain.completed_at,
        chain.duration,
        chain.success,
        chain.error_message,
        chain.metadata,
    )


def test_new_call_has_default_values() -> None:
    node = ToolCallNode("search", "chain-1-1")
    assert abs(node.started_at - datetime.now(UTC)) < timedelta(seconds=60)
    expected = ("chain-1-1", "search", None, [], {}, None, 0.0, True, None, None, {})
    assert expected == (
        node.call_id,
        node.tool_id,
        node.parent_id,
        node.child_calls,
        node.parameters,
        node.result,
        node.duration,
        node.success,
        node.error_message,
        node.completed_at,
        node.metadata,
    )


# --- Chains and calls -----------------------------------------------------------------------------------------------------


def test_chain_starts_and_ends() -> None:
    tracker = ticking()
    chain_id = tracker.start_tool_chain("planner", {"user": "ada"})
    call_id = tracker.start_tool_call("search", {"q": "x"}, {"try": 1})
    chain = tracker.get_call_chain_by_id(chain_id)
    assert chain is not None
    assert chain is tracker.chain_context.current_chain
    assert call_id == tracker.end_tool_call(["found"])
    assert chain_id == tracker.end_tool_chain()
    assert (chain.root_tool_id, chain.metadata) == ("planner", {"user": "ada"})
    assert chain.completed_at is not None
    assert chain.duration == (chain.completed_at - chain.created_at).total_seconds() > 0
    node = chain.calls[call_id]
    assert node.completed_at is not None
    assert (node.parameters, node.result, node.metadata) == ({"q": "x"}, ["found"], {"try": 1})
    assert node.duration == (node.completed_at - node.started_at).total_seconds() == 1
    assert tracker.chain_context.current_chain is None
    assert tracker.chain_context.current_call_stack == []


def test_context_returns_the_objects() -> None:
    context = ToolCallChainContext()
    chain = context.start_chain("chain-7", "planner")
    outer = context.start_call("plan", {})
    inner = context.start_call("search", {"q": "x"})
    assert [outer, inner] == context.current_call_stack
    assert inner is context.end_call("found")
    assert outer is context.end_call(None, False, "no plan")
    assert chain is context.end_chain()
    assert (chain.success, chain.error_message) == (False, "no plan")
    assert None is context.end_chain()


def test_chain_ids_are_unique_microseconds() -> None:
    now = time.time_ns()
    tracker = ToolCallChainTracker(clock=lambda: now)
    ids = {tracker.start_tool_chain("tool") for _one in range(10_000)}
    assert len(ids) == 10_000
    assert f"chain-{now // 1000}" in ids
    assert all(one.removeprefix("chain-").isdecimal() for one in ids)


def test_chain_ids_of_threads_are_unique() -> None:
    tracker = ToolCallChainTracker(clock=lambda: START)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _n: tracker.start_tool_chain("tool"), range(4000)))
    assert len(set(ids)) == 4000


def test_ending_without_an_open_chain_or_call_raises() -> None:
    tracker = ticking()
    assert None is tracker.end_tool_chain()
    with pytest.raises(RuntimeError, match="^No active call chain$"):
        tracker.start_tool_call("search", {})
    with pytest.raises(RuntimeError, match="^No active call to end$"):
        tracker.end_tool_call()
    tracker.start_tool_chain("planner")
    with pytest.raises(RuntimeError, match="^No active call to end$"):
        tracker.end_tool_call()
    tracker.start_tool_call("search")
    tracker.end_tool_call()
    with pytest.raises(RuntimeError, match="^No active call to end$"):
        tracker.end_tool_call()


def test_calls_of_every_chain_count_from_one() -> None:
    tracker = ticking()
    for _round in range(2):
        chain_id = tracker.start_tool_chain("planner")
        ids = []
        for _call in range(3):
            ids.append(tracker.start_tool_call("search"))
            tracker.end_tool_call()
        tracker.end_tool_chain()
        assert [f"{chain_id}-1", f"{chain_id}-2", f"{chain_id}-3"] == ids


def test_call_is_inside_the_innermost_open_one() -> None:
    tracker = ticking()
    chain = tracker.get_call_chain_by_id(tracker.start_tool_chain("a"))
    assert chain is not None
    a = tracker.start_tool_call("a")
    assert a in chain.calls
    b = tracker.start_tool_call("b")
    c = tracker.start_tool_call("c")
    tracker.end_tool_call()
    tracker.end_tool_call()
    d = tracker.start_tool_call("d")
    tracker.end_tool_call()
    tracker.end_tool_call()
    tracker.end_tool_chain()
    assert parents(chain) == {"a": None, "b": "a", "c": "b", "d": "a"}
    assert ([b, d], [c], []) == tuple(chain.calls[one].child_calls for one in (a, b, c))
    assert a == chain.root_call_id


def test_first_of_several_roots_is_the_root() -> None:
    tracker = ticking()
    tracker.start_tool_chain("a")
    roots = []
    for tool in "abc":
        roots.append(tracker.start_tool_call(tool))
        tracker.end_tool_call()
    chain = finished(tracker)
    assert (roots[0], roots) == (chain.root_call_id, chain.root_calls)
    assert roots == chain.to_dict()["root_calls"]


def test_innermost_call_ends() -> None:
    tracker = ticking()
    tracker.start_tool_chain("a")
    outer, inner = tracker.start_tool_call("outer"), tracker.start_tool_call("inner")
    assert inner == tracker.end_tool_call("in", False, "bad")
    assert outer == tracker.end_tool_call("out")
    chain = finished(tracker)
    assert (
        chain.calls[inner].result,
        chain.calls[inner].success,
        chain.calls[inner].error_message,
    ) == ("in", False, "bad")
    assert (
        chain.calls[outer].result,
        chain.calls[outer].success,
        chain.calls[outer].error_message,
    ) == ("out", True, None)


def test_chain_fails_with_any_call_and_keeps_the_first_error() -> None:
    tracker = ticking()
    tracker.start_tool_chain("a")
    for error in (None, "first", "second"):
        tracker.start_tool_call("search")
        tracker.end_tool_call(None, False, error)
    tracker.start_tool_call("search")
    tracker.end_tool_call("fine")
    chain = finished(tracker)
    assert (chain.success, chain.error_message) == (False, "first")


def test_calls_open_at_the_end_are_unfinished() -> None:
    tracker = ticking()
    tracker.start_tool_chain("a")
    call_id = tracker.start_tool_call("a")
    chain = finished(tracker)
    node = chain.calls[call_id]
    assert (node.completed_at, node.success, node.status) == (None, False, "pending")
    assert (chain.success, chain.error_message) == (False, None)
    with pytest.raises(RuntimeError, match="No active call to end"):
        tracker.end_tool_call()


def test_chain_inside_a_chain_takes_and_loses_no_calls() -> None:
    tracker = ticking()
    first = tracker.start_tool_chain("first")
    tracker.start_tool_call("outer")
    second = tracker.start_tool_chain("second")
    inner = tracker.start_tool_call("inner")
    tracker.end_tool_call()
    assert second == tracker.end_tool_chain()
    tracker.start_tool_call("after")
    tracker.end_tool_call()
    tracker.end_tool_call()
    assert first == tracker.end_tool_chain()
    one, two = (tracker.get_call_chain_by_id(name) for name in (first, second))
    assert one is not None
    assert two is not None
    assert parents(one) == {"outer": None, "after": "outer"}
    assert parents(two) == {"inner": None}
    assert inner == two.root_call_id
    assert one.success
    assert two.success


def test_chains_never_ended_do_not_pile_up() -> None:
    tracker = ticking(most_chains=5)
    for _one in range(1000):
        tracker.start_tool_chain("leak")
    assert len(tracker._known()) == 5
    place, depth = tracker.chain_context.place(), 0
    while place is not None:
        place, depth = place.outer, depth + 1
    assert depth <= 101


# --- Threads and tasks -------------------------------------------------------------------------------------------------------


def test_tasks_share_their_parent_and_adopt_nothing() -> None:
    tracker = ToolCallChainTracker()

    async def work(name: str, depth: int) -> None:
        tracker.start_tool_call(name)
        await asyncio.sleep(0)
        if depth:
            await asyncio.gather(*(work(f"{name}{one}", depth - 1) for one in range(3)))
        tracker.end_tool_call(name)

    async def run() -> None:
        tracker.start_tool_chain("root")
        tracker.start_tool_call("r")
        await asyncio.gather(*(work(f"r{one}", 2) for one in range(3)))
        tracker.end_tool_call()

    async def main() -> ToolCallChain:
        await run()
        return finished(tracker)

    chain = asyncio.run(main())
    found = parents(chain)
    assert len(found) == 40
    assert {name: name[:-1] or None for name in found} == found
    assert all(call.result == call.tool_id for call in chain.calls.values() if call.tool_id != "r")
    assert chain.success


def test_each_thread_has_its_own_chain() -> None:
    tracker = ToolCallChainTracker()
    together = threading.Barrier(8)

    def work(number: int) -> str:
        chain_id = tracker.start_tool_chain(str(number))
        tracker.start_tool_call(f"{number}")
        together.wait()
        tracker.start_tool_call(f"{number}-in")
        together.wait()
        tracker.end_tool_call()
        tracker.end_tool_call()
        tracker.end_tool_chain()
        return chain_id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(work, range(8)))
    for number, chain_id in enumerate(ids):
        chain = tracker.get_call_chain_by_id(chain_id)
        assert chain is not None
        assert {str(number): None, f"{number}-in": str(number)} == parents(chain)


def test_thread_pool_works_in_the_carried_chain() -> None:
    tracker = ToolCallChainTracker()
    tracker.start_tool_chain("root")
    tracker.start_tool_call("root")

    def work(number: int) -> None:
        tracker.start_tool_call(f"t{number}")
        time.sleep(0.001)
        tracker.start_tool_call(f"t{number}-in")
        tracker.end_tool_call()
        tracker.end_tool_call()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tracker.carry(work), range(20)))
        with pytest.raises(RuntimeError, match="No active call chain"):
            pool.submit(tracker.start_tool_call, "elsewhere").result()
    tracker.end_tool_call()
    chain = finished(tracker)
    assert {
        "root": None,
        **{f"t{number}": "root" for number in range(20)},
        **{f"t{number}-in": f"t{number}" for number in range(20)},
    } == parents(chain)
    assert len(chain.calls[chain.root_call_id].child_calls) == 20


def test_task_that_outlives_its_chain_has_none() -> None:
    tracker = ToolCallChainTracker()

    async def late(go: asyncio.Event) -> str:
        await go.wait()
        with pytest.raises(RuntimeError, match="No active call to end"):
            tracker.end_tool_call()
        with pytest.raises(RuntimeError, match="No active call chain"):
            tracker.start_tool_call("late")
        return "done"

    async def main() -> None:
        go = asyncio.Event()
        tracker.start_tool_chain("a")
        tracker.start_tool_call("a")
        task = asyncio.create_task(late(go))
        tracker.end_tool_chain()
        go.set()
        assert await task == "done"

    asyncio.run(main())


Trees = st.recursive(st.just(()), lambda below: st.lists(below, max_size=4).map(tuple), max_leaves=15)


@given(tree=Trees, parallel=st.lists(st.booleans(), min_size=1, max_size=10))
def test_parents_are_right_in_any_tree_of_tasks(tree: Any, parallel: list[bool]) -> None:
    tracker = ToolCallChainTracker()
    choices = iter(parallel * 200)
    expected: dict[str, str | None] = {}

    async def call(node: Any, name: str, parent: str | None) -> None:
        expected[name] = parent
        tracker.start_tool_call(name)
        await asyncio.sleep(0)
        below = [call(child, f"{name}.{place}", name) for place, child in enumerate(node)]
        if next(choices):
            await asyncio.gather(*below)
        else:
            for one in below:
                await one
        tracker.end_tool_call(name)

    async def main() -> ToolCallChain:
        tracker.start_tool_chain("root")
        await call(tree, "0", None)
        return finished(tracker)

    chain = asyncio.run(main())
    assert expected == parents(chain)
    for node in chain.calls.values():
        assert {call.call_id for call in chain.calls.values() if call.parent_id == node.call_id} == set(
            node.child_calls
        )


@dataclass
class Model:
    """The simplest model of a chain."""

    calls: list[tuple[int, int | None]] = field(default_factory=list)
    """The number of each call with that of its parent."""
    open: list[int] = field(default_factory=list)
    failed: bool = False
    error: str | None = None


OPERATIONS = st.one_of(
    st.sampled_from(["start chain", "end chain", "start call"]),
    st.tuples(st.booleans(), st.one_of(st.none(), st.sampled_from(["", "first", "second"]))),
)


@given(operations=st.lists(OPERATIONS, max_size=60))
def test_tracker_agrees_with_a_simple_model(operations: list[Any]) -> None:
    tracker = ticking()
    models: dict[str, Model] = {}
    stack: list[str] = []
    for operation in operations:
        model = models[stack[-1]] if stack else None
        if operation == "start chain":
            stack.append(tracker.start_tool_chain("root"))
            models[stack[-1]] = Model()
        elif operation == "end chain":
            assert tracker.end_tool_chain() == (stack.pop() if stack else None)
            if model is not None:
                model.failed |= bool(model.open)
        elif operation == "start call":
            if model is None:
                with pytest.raises(RuntimeError, match="^No active call chain$"):
                    tracker.start_tool_call("tool")
                continue
            number = len(model.calls) + 1
            model.calls.append((number, model.open[-1] if model.open else None))
            model.open.append(number)
            assert tracker.start_tool_call("tool") == f"{stack[-1]}-{number}"
        elif model is None or not model.open:
            with pytest.raises(RuntimeError, match="^No active call to end$"):
                tracker.end_tool_call()
        else:
            success, error = operation
            assert tracker.end_tool_call("x", success, error) == f"{stack[-1]}-{model.open.pop()}"
            if not success:
                model.failed = True
                model.error = model.error or error
    for chain_id, model in models.items():
        chain = tracker.get_call_chain_by_id(chain_id)
        assert chain is not None
        assert [(call.call_id, call.parent_id) for call in chain.calls.values()] == [
            (f"{chain_id}-{number}", parent and f"{chain_id}-{parent}") for number, parent in model.calls
        ]
        assert (chain.success, chain.error_message) == (not model.failed, model.error or None)
        assert [call.call_id for call in chain.calls.values() if call.status == "pending"] == [
            f"{chain_id}-{number}" for number in sorted(model.open)
        ]


# --- Documents --------------------------------------------------------------------------------------------------------------


def test_chain_document_has_these_fields() -> None:
    tracker = ticking()
    chain_id = tracker.start_tool_chain("search", {"user": "ada"})
    tracker.start_tool_call("search", {"q": "x"})
    tracker.end_tool_call({"found": 1})
    document = finished(tracker).to_dict()
    assert list(document) == CHAIN_KEYS
    assert {
        "chain_id": chain_id,
        "root_tool_id": "search",
        "root_call_id": f"{chain_id}-1",
        "created_at": "2026-01-01T00:00:01.000000Z",
        "completed_at": "2026-01-01T00:00:04.000000Z",
        "duration": 3.0,
        "success": True,
        "error_message": None,
        "metadata": {"user": "ada"},
        "type": "tool_call_chain",
        "root_calls": [f"{chain_id}-1"],
        "calls": {
            f"{chain_id}-1": {
                "call_id": f"{chain_id}-1",
                "tool_id": "search",
                "parent_id": None,
                "child_calls": [],
                "parameters": {"q": "x"},
                "result": "{'found': 1}",
                "status": "success",
                "success": True,
                "error_message": None,
                "duration": 1.0,
                "started_at": "2026-01-01T00:00:02.000000Z",
                "completed_at": "2026-01-01T00:00:03.000000Z",
                "metadata": {},
            }
        },
    } == document
    assert document == json.loads(json.dumps(document))


def test_missing_times_are_null() -> None:
    tracker = ticking()
    chain = tracker.get_call_chain_by_id(tracker.start_tool_chain("search"))
    assert chain is not None
    tracker.start_tool_call("search")
    document = chain.to_dict()
    assert (document["completed_at"], document["duration"]) == (None, 0.0)
    assert [call["completed_at"] for call in document["calls"].values()] == [None]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("x" * 5000, "x" * 1000),
        ("short", "short"),
        (None, None),
        (0, "0"),
        ("", ""),
        ([], "[]"),
        ({}, "{}"),
        (False, "False"),
        ({"a": "é"}, "{'a': 'é'}"),
        (list(range(2000)), str(list(range(2000)))[:1000]),
        (object, None),
    ],
)
def test_results_are_cut_and_falsy_ones_kept(result: Any, text: str | None) -> None:
    tracker = ticking()
    tracker.start_tool_chain("search")
    call_id = tracker.start_tool_call("search")
    tracker.end_tool_call(result)
    chain = finished(tracker)
    if result is not object:
        assert result == chain.calls[call_id].result
        assert text == chain.to_dict()["calls"][call_id]["result"]
    else:
        assert chain.calls[call_id].result == "<class 'object'>"


def test_later_changes_of_values_change_nothing() -> None:
    tracker = ticking()
    parameters, result, metadata = {"q": ["x"]}, {"found": [1]}, {"tags": ["a"]}
    tracker.start_tool_chain("search", metadata)
    tracker.start_tool_call("search", parameters, metadata)
    tracker.end_tool_call(result)
    parameters["q"].append("y")
    result["found"].clear()
    metadata["tags"].clear()
    chain = finished(tracker)
    (node,) = chain.calls.values()
    assert (
        node.parameters,
        node.result,
        node.metadata,
        chain.metadata,
    ) == ({"q": ["x"]}, {"found": [1]}, {"tags": ["a"]}, {"tags": ["a"]})


class Hostile:
    """An object on which every operation raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("hostile")

    def __repr__(self) -> str:
        raise RuntimeError("hostile")


HANDED_OVER: list[Callable[[], Any]] = [
    Hostile,
    lambda: {"x": Hostile()},
    lambda: [Hostile()],
    lambda: 7,
    lambda: "text",
    lambda: {1: 2},
    lambda: {"\ud800": "\ud800"},
]


@pytest.mark.parametrize("make", HANDED_OVER)
def test_no_argument_makes_the_tracker_raise(make: Callable[[], Any]) -> None:
    value = make()
    tracker = ToolCallChainTracker()
    tracker.start_tool_chain("search", value)
    tracker.start_tool_call("search", value, value)
    tracker.end_tool_call(value, False, value)
    document = finished(tracker).to_dict()
    assert document["type"] == "tool_call_chain"
    assert json.dumps(document)


def test_secrets_are_not_in_documents() -> None:
    tracker = ticking()
    tracker.start_tool_chain("login", {"api_key": "abcdefghijkl"})
    call_id = tracker.start_tool_call("login", {"user": "ada", "password": "hunter2hunter2"})
    tracker.end_tool_call({"token": "abcdefghijklmnop", "ok": True}, False, "password=hunter2hunter2 was refused")
    chain = finished(tracker)
    document = chain.to_dict()
    assert {"hunter2hunter2", "abcdefghijklmnop"} <= set(map(str, _leaves([vars(chain.calls[call_id])])))
    written = json.dumps(document)
    assert not any(secret in written for secret in ("hunter2", "abcdefghijkl"))
    assert "ada" in written
    assert {
        "metadata.api_key",
        f"calls.{call_id}.parameters.password",
        f"calls.{call_id}.result.token",
        f"calls.{call_id}.error_message",
        "error_message",
    } == {receipt["path"] for receipt in document["redactions"]}


def test_privacy_decides_the_content_of_documents() -> None:
    tracker = ticking()
    tracker.start_tool_chain("pay", {"note": "x" * 500})
    call_id = tracker.start_tool_call("pay", {"iban": "DE1", "text": "x" * 500})
    tracker.end_tool_call({"sum": 7})
    chain = finished(tracker)
    document = chain.to_dict(Privacy(keys=["iban"], max_bytes=100))
    call = document["calls"][call_id]
    assert [f"calls.{call_id}.parameters", "metadata"] == [cut["path"] for cut in document["truncated"]]
    assert call["parameters"]["_raw"].startswith('{"iban":"[redacted]"')
    assert "bytes were cut" in call["parameters"]["_raw"]
    lean = chain.to_dict(Privacy(lean=True))
    assert (
        lean["metadata"],
        lean["calls"][call_id]["parameters"],
        lean["calls"][call_id]["result"],
    ) == ({}, {}, None)
    masked = chain.to_dict(Privacy(functions=[lambda _path, _value: 1 / 0]))
    assert masked["chain_id"] == chain.chain_id
    assert masked["calls"][call_id]["parameters"]["text"] == "[redacted]"


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


# --- Stores of chains ----------------------------------------------------------------------------------------------------------


class Contexts:
    """A store of the host."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, dict[str, Any]]] = []

    def create_context(self, context_type: Any, content: dict[str, Any]) -> str:
        self.made.append((context_type, content))
        return f"context-{len(self.made)}"


class BrokenContexts:
    def create_context(self, context_type: Any, content: dict[str, Any]) -> str:
        raise OSError("database is away")


def test_context_manager_gets_the_document_and_chain_stays() -> None:
    contexts = Contexts()
    tracker = ticking(context_manager=contexts)
    chain_id = tracker.start_tool_chain("search")
    assert tracker.stored_chains == {}
    tracker.end_tool_chain()
    chain = tracker.stored_chains[chain_id]
    assert [("tool", chain.to_dict())] == contexts.made


def test_failing_store_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    tracker = ticking(context_manager=BrokenContexts(), folder=tmp_path / "file" / "chains")
    chain_id = tracker.start_tool_chain("search")
    tracker.start_tool_call("search")
    tracker.end_tool_call("found")
    assert chain_id == tracker.end_tool_chain()
    assert tracker.close(60) == 0
    assert chain_id in tracker.stored_chains
    assert tracker.files is not None
    assert (tracker.guard.failures, tracker.files.dropped) == (2, 1)
    assert [
        record.args[0].split()[0]  # type: ignore[index, union-attr]
        for record in caplog.records
    ] == ["OSError", "NotADirectoryError"]


def test_least_recently_used_chain_is_removed_first() -> None:
    tracker = ticking(most_chains=3)
    ids = []
    for tool in "abc":
        ids.append(tracker.start_tool_chain(tool))
        tracker.end_tool_chain()
    assert tracker.get_call_chain_by_id(ids[0]) is not None
    tracker.start_tool_chain("d")
    assert [tracker.get_call_chain_by_id(one) is not None for one in ids] == [True, False, True]
    tracker.end_tool_chain()
    assert len(tracker._known()) == 3


def test_active_chain_is_found_and_grows() -> None:
    tracker = ticking(most_chains=1)
    chain_id = tracker.start_tool_chain("a")
    chain = tracker.get_call_chain_by_id(chain_id)
    assert chain is not None
    call_id = tracker.start_tool_call("a")
    assert call_id in chain.calls
    tracker.start_tool_chain("b")
    assert None is tracker.get_call_chain_by_id(chain_id)
    tracker.end_tool_chain()
    tracker.end_tool_call("goes on")
    assert chain_id == tracker.end_tool_chain()
    assert chain is tracker.get_call_chain_by_id(chain_id)


@pytest.mark.parametrize("options", [{"most_chains": 0}, {"folder": "x", "most_files": 0}])
def test_invalid_limits_raise(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected at least 1, not 0"):
        ToolCallChainTracker(**options)


def test_finished_chains_are_read_back_from_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "chains"
    tracker = ticking(folder=folder, most_files=3)
    files = tracker.files
    assert files is not None
    ids = []
    for number in range(5):
        ids.append(tracker.start_tool_chain("search"))
        tracker.start_tool_call("search", {"number": number, "password": "hunter2hunter2"})
        tracker.end_tool_call(number)
        tracker.end_tool_chain()
    assert tracker.flush(60) == 0
    assert [f"{one}.json" for one in ids[2:]] == sorted(os.listdir(folder))
    assert [tracker.stored_chains[one].to_dict() for one in ids[2:]] == list(files.read_all())
    assert tracker.stored_chains[ids[4]].to_dict() == files.read(ids[4])
    assert None is files.read(ids[0])
    assert None is files.read("../secrets")
    assert stat.S_IMODE((folder / f"{ids[4]}.json").stat().st_mode) == 0o600
    assert b"hunter2" not in (folder / f"{ids[4]}.json").read_bytes()
    assert tracker.close(60) == 0
    tracker.start_tool_chain("late")
    tracker.end_tool_chain()
    assert files.dropped == 1


def test_half_written_file_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    old, young = tmp_path / ".chain-1.7.new", tmp_path / ".chain-2.7.new"
    for path in (old, young):
        path.write_text("{")
    os.utime(old, (1, 1))
    tracker = ticking(folder=tmp_path)
    chain_id = tracker.start_tool_chain("a")
    tracker.end_tool_chain()
    tracker.close(60)
    assert {".chain-2.7.new", f"{chain_id}.json"} == set(os.listdir(tmp_path))
    assert tracker.files is not None
    assert [chain_id] == [document["chain_id"] for document in tracker.files.read_all()]


def test_worker_writes_the_disk(tmp_path: Path) -> None:
    tracker = ticking(folder=tmp_path)
    chain_id = tracker.start_tool_chain("a")
    tracker.end_tool_chain()
    deadline = time.monotonic() + 60
    while not (tmp_path / f"{chain_id}.json").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert (tmp_path / f"{chain_id}.json").exists()
    tracker.close(60)


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_tracker_works_in_a_forked_child(tmp_path: Path) -> None:
    tracker = ToolCallChainTracker(folder=tmp_path)
    with tracker._lock:
        child = os.fork()
        if not child:
            tracker.start_tool_chain("child")
            tracker.start_tool_call("child")
            tracker.end_tool_call()
            tracker.end_tool_chain()
            os._exit(tracker.close(60))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tracker.start_tool_chain("parent")
    tracker.end_tool_chain()
    tracker.close(60)
    assert tracker.files is not None
    assert [document["root_tool_id"] for document in tracker.files.read_all()] == ["child", "parent"]


# --- Queries ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked() -> tuple[ToolCallChainTracker, list[str]]:
    """Three finished chains: one of 4 s, a failed one of 2 s, and one without calls of 1 s."""
    tracker = ticking()
    ids = [tracker.start_tool_chain("plan")]
    tracker.start_tool_call("search")
    tracker.end_tool_call("found")
    tracker.end_tool_chain()
    ids.append(tracker.start_tool_chain("search"))
    tracker.start_tool_call("read")
    tracker.end_tool_call(None, False, "no file")
    tracker.end_tool_chain()
    ids.append(tracker.start_tool_chain("idle"))
    tracker.end_tool_chain()
    return tracker, ids


def test_chains_and_calls_are_found(asked: tuple[ToolCallChainTracker, list[str]]) -> None:
    tracker, ids = asked

    def places(chains: list[ToolCallChain]) -> list[int]:
        return [ids.index(chain.chain_id) for chain in chains]

    assert None is tracker.get_call_chain_by_id("chain-0")
    assert None is tracker.get_call_chain_by_id(None)
    node = tracker.get_call_node_by_id(f"{ids[0]}-1")
    assert node is not None
    assert node.tool_id == "search"
    assert None is tracker.get_call_node_by_id(f"{ids[0]}-9")
    assert None is tracker.get_call_node_by_id("nonsense")
    assert places(tracker.get_chains_by_tool_id("search")) == [0, 1]
    assert places(tracker.get_chains_by_tool_id("read")) == [1]
    assert tracker.get_chains_by_tool_id("unknown") == []
    assert [f"{ids[0]}-1"] == [call.call_id for call in tracker.get_calls_by_tool_id("search")]
    assert places(tracker.get_error_chains()) == [1]
    durations = [chain.duration for chain in tracker.stored_chains.values()]
    assert durations == [3.0, 3.0, 1.0]
    assert places(tracker.get_slow_chains(2.999)) == [0, 1]
    assert tracker.get_slow_chains(3.0) == []


def test_chains_are_found_by_time(asked: tuple[ToolCallChainTracker, list[str]]) -> None:
    tracker, ids = asked
    first, second, third = (chain.created_at for chain in tracker.stored_chains.values())
    assert ids[:2] == [chain.chain_id for chain in tracker.get_chains_in_time_range(first, third)]
    assert tracker.get_chains_in_time_range(second, second) == []
    local = second.astimezone().replace(tzinfo=None)
    assert ids[1:2] == [
        chain.chain_id for chain in tracker.get_chains_in_time_range(local, local + timedelta(seconds=1))
    ]


# --- Tools ---------------------------------------------------------------------------------------------------------------------


def test_tool_is_registered_once() -> None:
    tracker = ticking()
    assert tracker.register_tool_with_tracking("search", "Search", "Finds things", "web") is True
    assert tracker.register_tool_with_tracking("search", "Other") is False
    tool = tracker.tools["search"]
    assert (tool.name, tool.description, tool.category_id) == ("Search", "Finds things", "web")


def test_recorded_usage_is_a_call_with_its_duration() -> None:
    with recording() as recorder:
        tracker = ticking(recorder=recorder)
        tracker.register_tool_with_tracking("search", "Search")
        assert tracker.record_tool_usage_with_tracking("unknown", {}, None, 1.0, True) is False
        assert tracker.record_tool_usage_with_tracking("search", {"q": "x"}, ["found"], 1.5, True) is True
        tracker.start_tool_chain("planner")
        assert tracker.record_tool_usage_with_tracking("search", {"q": "y"}, None, 0.25, False) is True
        tracker.end_tool_chain()
    one, two = tracker.stored_chains.values()
    assert (one.root_tool_id, two.root_tool_id) == ("search", "planner")
    (first,), (second,) = one.calls.values(), two.calls.values()
    assert (first.parameters, first.result, first.duration, first.success) == ({"q": "x"}, ["found"], 1.5, True)
    assert (second.parameters, second.result, second.duration, second.success) == ({"q": "y"}, None, 0.25, False)
    assert first.completed_at is not None
    assert first.duration == (first.completed_at - first.started_at).total_seconds()
    assert (one.success, two.success) == (True, False)
    assert one.duration >= 1.5
    ends = [
        event["data"] for event in recorder.sink.events if event["type"] in ("tool_call_complete", "tool_call_error")
    ]
    assert [int(data["duration"]) for data in ends] == [1500, 250]


@pytest.mark.parametrize(
    ("result", "error_message", "expected"),
    [
        (None, "No such city.", "No such city."),
        ({"error": "No such table."}, None, "No such table."),
        ("timed out", None, "timed out"),
        (OSError("disk full"), None, "OSError: disk full"),
        ({"rows": []}, None, NO_REASON),
        (None, "", NO_REASON),
    ],
)
def test_failed_usage_has_an_error(result: Any, error_message: str | None, expected: str) -> None:
    tracker = ticking()
    tracker.register_tool_with_tracking("search", "Search")
    assert tracker.record_tool_usage_with_tracking("search", {}, result, 0.5, False, error_message)
    (chain,) = tracker.get_error_chains()
    (call,) = chain.to_dict()["calls"].values()
    assert (call["error_message"], chain.error_message, call["status"]) == (expected, expected, "error")


def test_unregistered_usage_is_logged() -> None:
    tracker = ticking()
    tracker.register_tool_with_tracking("search", "Search")
    assert tracker.record_tool_usage_with_tracking("search", {}, None, float("nan"), True) is False


def test_dispatched_call_returns_the_result_of_its_tool() -> None:
    tracker = ticking()
    answer = {"status": "success", "result": {"rows": [1]}}

    async def dispatch(tool_name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        assert (tool_name, parameters) == ("query", {"sql": "x"})
        assert parameters is given_parameters
        return answer

    given_parameters = {"sql": "x"}
    assert answer is asyncio.run(tracker.dispatch_tool_request_with_tracking("query", given_parameters, dispatch))
    (chain,) = tracker.stored_chains.values()
    (node,) = chain.calls.values()
    assert (
        chain.root_tool_id,
        node.success,
        node.parameters,
        node.result,
    ) == ("query", True, {"sql": "x"}, {"rows": [1]})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": "failure", "result": None, "error_message": "no table"}, (None, False, "no table")),
        ({"status": "error", "result": 7, "error": "broken"}, (7, False, "broken")),
        ({"status": "error"}, (None, False, None)),
        ({"rows": []}, ({"rows": []}, True, None)),
        ("text", ("text", True, None)),
        (None, (None, True, None)),
    ],
)
def test_answer_decides_the_outcome(answer: Any, expected: tuple[Any, bool, str | None]) -> None:
    tracker = ticking()

    async def dispatch(_tool: str, _parameters: dict[str, Any]) -> Any:
        return answer

    asyncio.run(tracker.dispatch_tool_request_with_tracking("query", {}, dispatch))
    (chain,) = tracker.stored_chains.values()
    (node,) = chain.calls.values()
    assert expected == (node.result, node.success, node.error_message)


def test_dispatched_call_records_and_raises_its_error() -> None:
    tracker = ticking()
    failure = ValueError("no such table")

    async def dispatch(_tool: str, _parameters: dict[str, Any]) -> None:
        tracker.start_tool_call("inside")  # never ended
        tracker.start_tool_chain("inside")
        raise failure

    async def main() -> None:
        tracker.start_tool_chain("planner")
        with pytest.raises(ValueError, match="no such table") as raised:
            await tracker.dispatch_tool_request_with_tracking("query", {}, dispatch)
        assert raised.value is failure
        tracker.end_tool_chain()

    asyncio.run(main())
    (chain,) = tracker.stored_chains.values()
    query, inside = chain.calls.values()
    assert (query.result, query.success, query.error_message) == (None, False, "no such table")
    assert (query.call_id, "pending") == (inside.parent_id, inside.status)
    assert (chain.success, chain.error_message) == (False, "no such table")


def test_concurrent_dispatched_calls_share_their_parent() -> None:
    tracker = ToolCallChainTracker()

    async def dispatch(tool: str, parameters: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(parameters["wait"])
        return {"status": "success", "result": tool}

    async def main() -> None:
        tracker.start_tool_chain("planner")
        tracker.start_tool_call("planner")
        await asyncio.gather(
            *(
                tracker.dispatch_tool_request_with_tracking(f"t{one}", {"wait": 0.003 - one / 1000}, dispatch)
                for one in range(3)
            )
        )
        tracker.end_tool_call()
        tracker.end_tool_chain()

    asyncio.run(main())
    (chain,) = tracker.stored_chains.values()
    assert parents(chain) == {"planner": None, "t0": "planner", "t1": "planner", "t2": "planner"}
    assert {"t0", "t1", "t2"} == {call.result for call in chain.calls.values()} - {None}


# --- On the recorder --------------------------------------------------------------------------------------------------------------


def test_chain_is_a_message_and_its_calls_are_calls() -> None:
    with recording() as recorder, recorder.session("weather"):
        tracker = ticking(recorder=recorder)
        chain_id = tracker.start_tool_chain("a", {"user": "ada"})
        tracker.start_tool_call("a", {"q": 1})
        with recorder.step(model="gpt"), recorder.tool_call("own"):
            tracker.start_tool_call("b")
            with recorder.tool_call("in b"):
                pass
            tracker.end_tool_call("done")
        tracker.end_tool_call(None, False, "no luck")
        tracker.end_tool_chain()
        assert recorder.current() is not None
        assert recorder.current().session.external_id == "weather"  # type: ignore[union-attr]
        assert recorder.current() is recorder.current().session  # type: ignore[union-attr]
    events = recorder.events
    assert {(chain_id, "weather")} == {(event["message_id"], event["session_id"]) for event in events}
    assert tree(events) == ["message", "  a", "    own", "      b", "        in b", "  step gpt"]
    calls = [event for event in events if event["type"] == "tool_call_error"]
    assert [("a", f"{chain_id}-1", "no luck")] == [
        (call["data"]["name"], call["data"]["call_id"], call["data"]["error"]) for call in calls
    ]
    assert events[0]["data"]["metadata"] == {"user": "ada"}


def test_calls_left_open_do_not_stay_current() -> None:
    with recording() as recorder:
        tracker = ticking(recorder=recorder)
        tracker.start_tool_chain("a")
        tracker.start_tool_call("a")
        tracker.start_tool_call("b")
        tracker.end_tool_chain()
        assert None is recorder.current()
    types = [event["type"] for event in recorder.events]
    assert types == ["workflow_execute_start", "tool_call_start", "tool_call_start", "workflow_execute_complete"]


def test_parents_of_tasks_are_right_on_the_recorder() -> None:
    with recording() as recorder:
        tracker = ToolCallChainTracker(recorder=recorder)

        async def work(name: str) -> None:
            tracker.start_tool_call(name)
            await asyncio.sleep(0)
            tracker.start_tool_call(f"{name} in")
            await asyncio.sleep(0)
            tracker.end_tool_call()
            tracker.end_tool_call()

        async def main() -> None:
            tracker.start_tool_chain("root")
            tracker.start_tool_call("root")
            await asyncio.gather(work("x"), work("y"))
            tracker.end_tool_call()
            tracker.end_tool_chain()

        asyncio.run(main())
    assert tree(recorder.events) == ["message", "  root", "    x", "      x in", "    y", "      y in"]


def test_disabled_or_failing_recorder_changes_nothing() -> None:
    class Failing(RecorderForTests):
        def message(self, *_args: Any, **_kwargs: Any) -> Any:
            raise OSError("broken")

    for recorder in (Recorder(sink=MemorySink(), enabled=False), Failing(strict=False)):
        tracker = ticking(recorder=recorder)
        tracker.start_tool_chain("a")
        call_id = tracker.start_tool_call("a")
        assert call_id == tracker.end_tool_call("done")
        assert finished(tracker).success
        recorder.close(60)
