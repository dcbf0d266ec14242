"""Replays of nodes: the rules of mapping, overrides, side effects and errors, on each store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sdk.tests.recorder.walk import Walk
from sdk.tests.secret import SECRET
from tracesite_sdk import Privacy
from tracesite_sdk.recorder.snapshots.snapshotting import SnapshotPurged
from tracesite_sdk.recorder.snapshots.stores import Fork, SnapshotStore
from tracesite_sdk.recorder.time_machine.machine import NodeNotFound, Overrides, TimeMachine, Workflow, idempotent
from tracesite_sdk.recorder.time_machine.recorded import Recorded, RecordedError, Unrecorded
from tracesite_sdk.testing import RecorderForTests, tree

Make = Callable[..., RecorderForTests]


@pytest.mark.parametrize(
    ("graph", "node", "mapped", "pruned"),
    [
        ({"a": "b", "b": "c", "c": "d", "d": "e", "e": ""}, "b", "c", "de"),
        ({"a": "bc", "b": "de", "c": "f", "d": "g", "e": "h", "f": "", "g": "", "h": ""}, "b", "de", "gh"),
        ({"a": "bc", "b": "d", "c": "d", "d": "e", "e": ""}, "b", "d", "e"),
        ({"a": "bc", "b": "x", "x": "d", "c": "d", "d": ""}, "b", "x", ""),
        ({"a": "b", "b": "cb", "c": "ad"}, "b", "cb", "ad"),
    ],
    ids=["chain", "tree", "diamond", "diamond whose other side is longer", "circle"],
)
def test_children_use_new_context_and_later_nodes_none(
    store: SnapshotStore, make: Make, graph: Mapping[str, str], node: str, mapped: str, pruned: str
) -> None:
    walk = Walk(store, make(), {name: list(children) for name, children in graph.items()})
    before = walk.mapped("s")
    replay = walk.machine.replay(session_id="s", node_id=node)
    new = [f"before {node}", node]
    assert (walk.ran, replay.context) == ([node], {"path": new})
    expected = {name: path for name, path in before.items() if name not in pruned} | dict.fromkeys(mapped, new)
    assert walk.mapped(replay.session_id) == expected
    assert walk.mapped("s") == before
    assert store.forks("s") == [replay.forked_from]
    snapshot = store.latest("s", node)
    assert snapshot is not None
    assert replay.forked_from.as_json() == {
        "session": "s",
        "node": node,
        "snapshot": snapshot.id,
        "ts": snapshot.ts,
        "overrides": {},
    }


DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}


def use_diamond(recorder: RecorderForTests, **settings: Any) -> TimeMachine:
    """Return a time machine for a session in which `b` and `c` have each added a field, and `d` uses both."""
    for nodes, context in ((["a"], {}), (["b", "c"], {"a": 1}), (["d"], {"a": 1, "b": 1, "c": 1})):
        recorder.snapshot(context, nodes=nodes, session="s")

    def run(node: str, context: dict[str, Any], _overrides: Overrides) -> dict[str, Any]:
        return {**context, node: 2}

    return TimeMachine(recorder.snapshots.store, Workflow(run, DIAMOND), recorder=recorder, **settings)


def test_join_gets_what_merge_makes_of_its_parents(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Any] = []

    def merge(node: str, recorded: Any, after: Mapping[str, Any]) -> dict[str, Any]:
        asked.append((node, recorded, dict(after)))
        return {**recorded, **{name: value for context in after.values() for name, value in context.items()}}

    machine = use_diamond(make(), merge=merge)
    replay = machine.replay(session_id="s", node_id="b")
    assert machine.go_on(replay) == {"d": {"a": 1, "b": 2, "c": 1, "d": 2}}
    assert asked == [("d", {"a": 1, "b": 1, "c": 1}, {"b": {"a": 1, "b": 2}})]
    everything = machine.go_on(machine.replay(session_id="s", node_id="a"))
    assert everything["d"] == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert machine.replay(session_id=replay.session_id, node_id="d").context == {"a": 1, "b": 2, "c": 1, "d": 2}
    assert warnings_in(caplog) == []


def test_join_that_lacks_what_a_parent_added_is_reported(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    machine = use_diamond(make())
    assert machine.go_on(machine.replay(session_id="s", node_id="b")) == {"d": {"a": 1, "b": 2, "d": 2}}
    (message,) = warnings_in(caplog)
    assert message.startswith("Node 'd' of a replay lacks values that it had in session 's'")
    caplog.clear()
    keeps = {"context": {"c": 1}}
    assert machine.go_on(machine.replay(session_id="s", node_id="b", overrides=keeps))["d"]["c"] == 1
    assert warnings_in(caplog) == []


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tracesite_sdk"]


def test_nodes_run_inside_what_isolates_them(make: Make) -> None:
    around: list[Any] = []

    @contextmanager
    def isolate(fork: Fork, node: str) -> Iterator[None]:
        around.append((fork.source, fork.ts, node))
        yield
        around.append(f"after {node}")

    machine = use_diamond(make(), isolate=isolate)
    replay = machine.replay(session_id="s", node_id="b")
    machine.go_on(replay)
    ts = replay.forked_from.ts
    assert around == [("s", ts, "b"), "after b", ("s", ts, "d"), "after d"]


def test_latest_snapshot_is_restored_and_overridden(store: SnapshotStore, make: Make) -> None:
    recorder = make(privacy=Privacy(keys=["iban"]))
    got: list[Any] = []

    def run(node: str, context: Any, overrides: Overrides) -> Any:
        got.append((node, context, overrides.model, overrides.prompt))
        return context

    machine = TimeMachine(store, Workflow.chain(run, ["a", "b"]), recorder=recorder)
    for number in range(3):
        recorder.snapshot({"number": number, "city": "Oslo"}, nodes=["a"], session="s")
    replay = machine.replay(
        session_id="s",
        node_id="a",
        overrides={"context": {"city": "Bergen", "iban": "DE89"}, "model": "m2", "prompt": "Be exact. " * 1000},
    )
    assert got == [("a", {"number": 2, "city": "Bergen", "iban": "DE89"}, "m2", "Be exact. " * 1000)]
    assert replay.forked_from.overrides["context"] == {"city": "Bergen", "iban": "[redacted]"}
    assert replay.forked_from.overrides["model"] == "m2"
    assert replay.forked_from.overrides["prompt"].endswith("… [cut, of 10000 characters]")
    machine.replay(session_id="s", node_id="a", overrides={"context": [1]})
    assert got[1][1] == [1]
    # A fork is replayed from its own context.
    machine.replay(session_id=replay.session_id, node_id="a")
    assert got[2][1]["city"] == "Bergen"
    sessions = [event["data"]["session"] for event in recorder.events if "session" in event["data"]]
    assert sessions[0] == {
        "title": "Replay of a in s",
        "metadata": {"forked_from": replay.forked_from.as_json()},
    }
    assert tree(recorder.events) == ["message"] * 3


def test_node_that_cannot_be_replayed_is_an_error(store: SnapshotStore, make: Make) -> None:
    recorder = make(every=2)
    machine = TimeMachine(store, Workflow.chain(lambda _node, context, _overrides: context, ["a", "b"]))
    with pytest.raises(NodeNotFound, match="'s' holds node 'a'. The session has no snapshots in this store"):
        machine.replay(session_id="s", node_id="a")
    for node in ("a", "b"):
        recorder.snapshot({}, nodes=[node], session="s")
    with pytest.raises(NodeNotFound, match="holds node 'b'. It has snapshots of: a. Left out: 1 by every."):
        machine.replay(session_id="s", node_id="b")
    store.purge("s")
    with pytest.raises(SnapshotPurged, match="was purged: session 's' cannot be replayed from 'a'"):
        machine.replay(session_id="s", node_id="a")
    assert store.forks("s") == []
    for wrong, text in (
        ({"mode": "dry"}, "mode: expected 'live', 'virtual' or 'mixed', not 'dry'"),
        ({"live": ["search"]}, "live: expected no tools in the mode 'virtual'"),
        ({"overrides": {"contxt": 1}}, "overrides: expected context, tools, model, prompt, not 'contxt'"),
        ({"overrides": {"tools": {"a": 1}}}, "overrides: expected functions by name for 'tools'"),
        ({"overrides": {"model": 1}}, "overrides: expected a text for 'model', not 1"),
    ):
        with pytest.raises(ValueError, match=text):
            machine.replay(session_id="s", node_id="a", **wrong)  # type: ignore[arg-type]


def test_recorded_results_answer_tools(store: SnapshotStore, make: Make) -> None:
    recorder = make()
    ran: list[str] = []

    @recorder.tool_call
    def search(q: str) -> str:
        ran.append(q)
        return f"{q} {len(ran)}"

    @recorder.tool_call
    def fail(text: str) -> None:
        raise ValueError(text)

    @recorder.tool_call
    async def wait(q: str) -> list[str]:
        ran.append(q)
        return [q, q]

    @recorder.tool_call
    def values(q: str) -> Iterator[list[str]]:
        yield from ([q], ["2"])

    @recorder.tool_call
    async def async_values(q: str) -> AsyncIterator[list[str]]:
        for value in ([q], ["2"]):
            yield value

    @idempotent
    @recorder.tool_call
    def now(zone: str) -> str:
        return f"now in {zone}"

    @recorder.tool_call
    def key(token: str) -> str:
        return f"{len(token)} characters"

    def use(node: str, context: dict[str, Any], _overrides: Overrides) -> Any:
        found: list[Any] = [search(context["q"]), search("x"), search(q="x"), now("Oslo")]
        with pytest.raises(ValueError, match="no such city"):
            fail("no such city")

        async def work() -> list[Any]:
            return [await wait("w"), [value async for value in async_values("a")]]

        return [*found, *asyncio.run(work()), list(values("v")), key(SECRET)]

    search("x")
    recorder.snapshot({"q": "x"}, nodes=["a"], session="s")
    with recorder.session("s"), recorder.message("Hello"):
        before = use("a", {"q": "x"}, Overrides())
    recorded = Recorded.of(recorder.events)
    ran.clear()
    machine = TimeMachine(store, Workflow.chain(use, ["a"]), recorder=recorder, recorded=recorded)
    assert machine.replay(session_id="s", node_id="a").context == before
    assert ran == []
    with pytest.raises(Unrecorded, match=r'search\({"q": "other"}\) was not recorded. The recorded run called: search'):
        machine.replay(session_id="s", node_id="a", overrides={"context": {"q": "other"}})
    less = TimeMachine(store, Workflow.chain(lambda *_: [search("x") for _ in range(4)], ["a"]), recorded=recorded)
    with pytest.raises(Unrecorded, match="was recorded, but less often than it is called now"):
        less.replay(session_id="s", node_id="a")
    with pytest.raises(Unrecorded, match=r"the recorded run did not call 'search'"):
        TimeMachine(store, Workflow.chain(use, ["a"])).replay(session_id="s", node_id="a")
    assert ran == []
    mixed = machine.replay(session_id="s", node_id="a", mode="mixed", live=["search"])
    assert mixed.context[:3] == ["x 1", "x 2", "x 3"]
    assert ran == ["x", "x", "x"]
    assert machine.replay(session_id="s", node_id="a", mode="live").context[4] == ["w", "w"]
    replaced = machine.replay(
        session_id="s",
        node_id="a",
        overrides={"tools": {"search": lambda q: "stub", "wait": wait.__wrapped__, "values": lambda q: ["1"]}},  # type: ignore[attr-defined]
    )
    assert replaced.context[:3] + replaced.context[4:7:2] == ["stub", "stub", "stub", ["w", "w"], ["1"]]
    assert replaced.forked_from.overrides == {"tools": ["search", "values", "wait"]}
    last = [event["data"] for event in recorder.events if event["type"] == "tool_call_complete"][-8]
    assert (last["name"], last["result"]) == ("search", "stub")


def test_recorded_error_of_other_type_is_raised(store: SnapshotStore, make: Make) -> None:
    recorder = make()
    with recorder.tool_call("work", {"a": 1}) as call:
        call.error = "sqlite3.OperationalError: locked"
    recorded = Recorded.of(recorder.events)
    with pytest.raises(RecordedError, match="sqlite3.OperationalError: locked"):
        recorded.calls[0].answer()
    assert Recorded.of(recorder.events, "other").calls == []


def test_async_generator_that_runs_gets_what_is_sent_and_thrown(store: SnapshotStore, make: Make) -> None:
    recorder = make()

    @recorder.tool_call
    async def echo() -> AsyncGenerator[str, str]:
        sent = yield "first"
        while True:
            try:
                sent = yield sent
            except KeyError:
                sent = "caught"

    def use(node: str, context: Any, _overrides: Overrides) -> list[str]:
        async def work() -> list[str]:
            values = echo()
            found = [await anext(values), await values.asend("second"), await values.athrow(KeyError("x"))]
            await values.aclose()
            return found

        return asyncio.run(work())

    recorder.snapshot({}, nodes=["a"], session="s")
    machine = TimeMachine(store, Workflow.chain(use, ["a"]), recorder=recorder)
    assert machine.replay(session_id="s", node_id="a", mode="live").context == ["first", "second", "caught"]
