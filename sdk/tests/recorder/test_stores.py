"""Snapshots of contexts in their stores: the same tests for each store, also for that of a server (tests/recorder/test_stores.py)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from sdk.tests.recorder.conftest import restored
from sdk.tests.secret import SECRET
from tracesite_sdk import Privacy
from tracesite_sdk.recorder.snapshots.parts import Codecs
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import Fork, SessionWasPurged, SnapshotStore
from tracesite_sdk.testing import RecorderForTests


def test_snapshot_is_a_deep_copy(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    context = {"messages": [{"role": "user", "content": "x" * 1000}], "variables": {"city": {"name": "Oslo"}}}
    before = json.loads(json.dumps(context))
    with recorder.session("s"), recorder.message("Hello"):
        assert recorder.snapshot(context, nodes=["plan"]) is not None
    context["messages"].append({"role": "assistant"})  # type: ignore[attr-defined]
    context["variables"]["city"]["name"] = "Bergen"  # type: ignore[call-overload, index]
    first = restored(recorder, "plan")
    assert first == before
    first["messages"].clear()
    assert restored(recorder, "plan") == before


def test_index_has_id_time_nodes_and_reference(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    for nodes in (["a"], ["b", "c", "b"]):
        assert recorder.snapshot({"of": nodes}, nodes=nodes, session="s") is not None
    index = [snapshot.as_json() for snapshot in recorder.snapshots.store.snapshots("s")]
    assert [entry["nodeIds"] for entry in index] == [["a"], ["b", "c"]]
    assert {"id", "ts", "nodeIds", "contextRef"} <= index[0].keys()
    assert index[0]["ts"] == "2026-01-01T00:00:00.000Z"
    assert set(recorder.snapshots.store.parts("s", [entry["contextRef"] for entry in index])) == {
        entry["contextRef"] for entry in index
    }
    again = recorder.snapshot({"of": ["a"]}, nodes=["d"], session="s")
    assert again is not None
    assert (again.context_ref, again.id) != (index[0]["contextRef"], index[0]["id"])
    assert again.context_ref == index[0]["contextRef"]


def test_latest_snapshot_of_node_is_found(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    for number in range(3):
        recorder.snapshot({"number": number}, nodes=["a", f"b{number}"], session="s")
    recorder.snapshot({"number": 9}, nodes=["a"], session="other")
    assert [restored(recorder, node)["number"] for node in ("a", "b0", "b2")] == [2, 0, 2]
    assert recorder.snapshots.store.latest("s", "unknown") is None


def test_growing_context_costs_only_its_growth(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    source = random.Random(1)
    messages: list[dict[str, Any]] = []
    distinct = 0
    for node in range(50):
        text = "".join(source.choices("abcdefgh ", k=4000))
        messages.append({"role": "user", "content": text})
        distinct += len(json.dumps(messages[-1]))
        recorder.snapshot({"messages": messages, "system": "You are exact. " * 100}, nodes=[f"n{node}"], session="s")
    assert restored(recorder, "n20")["messages"] == messages[:21]
    assert recorder.snapshots.store.state("s").size < 1.1 * distinct


def test_small_messages_cost_at_most_a_few_times_their_size(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    messages = [{"role": "user", "content": f"message {number}"} for number in range(200)]
    for node in range(160, 200):
        recorder.snapshot({"messages": messages[:node]}, nodes=[f"n{node}"], session="s")
    assert recorder.snapshots.store.state("s").size < 3 * len(json.dumps(messages))
    assert restored(recorder, "n199")["messages"] == messages[:199]


def test_types_besides_json_come_back(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    context = {
        "tuple": (1, "two", (None, True)),
        "sets": [{1, 2}, frozenset({"a"})],
        "bytes": b"\x00\xff",
        "times": [datetime(2026, 1, 1, 12, tzinfo=UTC), date(2026, 1, 1)],
        "numbers": [2**70, Decimal("1.10"), float("inf"), -1.5],
        "id": UUID(int=5),
        "keys": {1: "a", ("b", 2): "c", "$part": "no reference", "$list": ["x" * 600]},
        "text": "中文 " * 300,
    }
    snapshot = recorder.snapshot(context, nodes=["a"], session="s")
    assert snapshot is not None
    assert snapshot.notes == ()
    assert restored(recorder, "a") == context


@dataclass
class Place:
    name: str


class Opaque:
    def __repr__(self) -> str:
        return "<connection 7>"


def test_values_that_cannot_be_kept_are_noted(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    circle: list[Any] = []
    circle.append(circle)
    context = {"places": [Place("Oslo")], "connection": Opaque(), "circle": circle, "broken": "a\ud800"}
    snapshot = recorder.snapshot(context, nodes=["a"], session="s")
    assert snapshot is not None
    assert [tuple(note) for note in snapshot.notes] == [
        ("places[0]", "Place has no encoder; it was kept by its fields."),
        ("connection", "Opaque has no encoder; it was kept by its repr."),
        ("circle[0]", "It holds itself; it was replaced by None."),
        ("broken", "A text with characters that UTF-8 cannot hold; they were escaped."),
    ]
    assert restored(recorder, "a") == {
        "places": [{"name": "Oslo"}],
        "connection": "<connection 7>",
        "circle": [None],
        "broken": "a\\ud800",
    }


def test_registered_type_comes_back(make: Callable[..., RecorderForTests]) -> None:
    codecs = Codecs()
    codecs.register(Place, "place", lambda place: place.name, Place)
    recorder = make(codecs=codecs)
    recorder.snapshot({"places": [Place("Oslo")]}, nodes=["a"], session="s")
    assert restored(recorder, "a") == {"places": [Place("Oslo")]}
    with pytest.raises(ValueError, match="'place' is taken by Place"):
        codecs.register(Opaque, "place", repr, Opaque)
    other = Snapshots(recorder.snapshots.store)
    (snapshot,) = other.store.snapshots("s")
    with pytest.raises(LookupError, match="type 'place': register it"):
        other.context(snapshot)


def test_secrets_are_removed(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(privacy=Privacy(keys=["iban"], functions=[lambda _path, value: "X" if value == "Ada" else value]))
    long = "Use this token: " + SECRET + " " + "and be careful. " * 100
    context = {
        "messages": [{"content": long}, {"content": "x" * 500}],
        "iban": "DE89 3704 0044 0532 0130 00" + " " * 300,
        "settings": [["api_key", SECRET]],
        "user": "Ada",
        "raw": SECRET.encode(),
    }
    snapshot = recorder.snapshot(context, nodes=["a"], session="s")
    assert snapshot is not None
    found = restored(recorder, "a")
    assert SECRET not in json.dumps(found, default=repr)
    assert "DE89" not in json.dumps(found, default=repr)
    assert found["messages"][1] == context["messages"][1]  # type: ignore[index]
    assert found["user"] == "X"
    assert {receipt["path"] for receipt in snapshot.redactions} >= {"messages[0].content", "iban", "user"}
    recorder.privacy = Privacy(keys=["messages"])
    recorder.snapshot({"messages": "y" * 1000}, nodes=["b"], session="s")
    assert "yyy" not in restored(recorder, "b")["messages"]


def test_lean_privacy_keeps_no_context(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(privacy=Privacy(lean=True))
    assert recorder.snapshot({"a": 1}, nodes=["a"], session="s") is None
    assert recorder.snapshots.left_out("s") == {"lean": 1}


def test_every_nth_snapshot_is_kept_and_others_are_counted(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(every=3)
    kept = [recorder.snapshot({"n": node}, nodes=[f"n{node}"], session="s") is not None for node in range(8)]
    assert kept == [True, False, False, True, False, False, True, False]
    assert recorder.snapshots.left_out("s") == {"every": 5}


def test_only_errors_keeps_snapshots_before_an_error(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(only_errors=True)
    for session, fails in (("good", False), ("bad", True)):
        with recorder.session(session), recorder.message("Hello"):
            for node in range(30):
                recorder.snapshot({"node": node, "text": "x" * 1000}, nodes=[f"n{node}"])
                with recorder.tool_call("work") as call:
                    call.error = "It failed." if fails and node == 25 else None
    store = recorder.snapshots.store
    assert store.snapshots("good") == []
    assert recorder.snapshots.left_out("good") == {"only_errors": 30}
    assert [snapshot.node_ids[0] for snapshot in store.snapshots("bad")] == [f"n{node}" for node in range(6, 26)]
    assert recorder.snapshots.left_out("bad") == {"only_errors": 10}
    assert restored(recorder, "n25", "bad") == {"node": 25, "text": "x" * 1000}


def test_budget_of_session_limits_its_bytes(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(session_bytes=11_000)
    for node in range(10):
        recorder.snapshot({"text": str(node) * 3000}, nodes=[f"n{node}"], session="s")
    store = recorder.snapshots.store
    assert [snapshot.node_ids for snapshot in store.snapshots("s")] == [("n0",), ("n1",), ("n2",)]
    assert store.state("s").size < 11_000
    assert recorder.snapshots.left_out("s") == {"session_bytes": 7}
    waiting = make(session_bytes=11_000, only_errors=True)
    for node in range(10):
        waiting.snapshot({"text": str(node) * 3000}, nodes=[f"n{node}"], session="t")
    waiting.snapshots.failed("t")
    assert restored(waiting, "n9", "t") == {"text": "9" * 3000}


def test_purged_session_keeps_its_index_only(make: Callable[..., RecorderForTests]) -> None:
    recorder = make()
    store = recorder.snapshots.store
    context = {"text": "x" * 1000, "list": ["y" * 300] * 5}
    first = recorder.snapshot(context, nodes=["a"], session="s")
    assert first is not None
    store.purge("s")
    (purged,) = store.snapshots("s")
    assert purged == store.snapshot(first.id) == store.latest("s", "a") == replace(first, is_purged=True)
    assert store.parts("s", [first.context_ref]) == {}
    assert store.state("s").size == 0
    with pytest.raises(LookupError, match=f"{first.id}' was purged"):
        recorder.snapshots.context(purged)
    # A snapshot after that has all of its parts, although the recorder had them before.
    recorder.snapshot(context, nodes=["b"], session="s")
    assert restored(recorder, "b") == context
    with pytest.raises(SessionWasPurged):
        store.put(replace(first, id="late"), {}, 0)
    assert store.snapshot("late") is None


def test_forks_are_kept(store: SnapshotStore, make: Callable[..., RecorderForTests]) -> None:
    make().snapshot({}, nodes=["a"], session="s")
    fork = Fork(
        session_id="f",
        source="s",
        node_id="a",
        snapshot_id="1",
        ts=10**18 + 1,
        overrides={"x": 1},
        nodes={"a": "1"},
        pruned=("c",),
    )
    store.put_fork(fork)
    store.put_fork(replace(fork, session_id="g"))
    store.put_fork(replace(fork, pruned=("d",)))
    assert store.fork("f") == replace(fork, pruned=("d",))
    assert [found.session_id for found in store.forks("s")] == ["f", "g"]
    assert (store.fork("s"), store.forks("f")) == (None, [])


def test_invalid_snapshot_does_not_affect_agent(make: Callable[..., RecorderForTests]) -> None:
    recorder = make(strict=False)
    assert recorder.snapshot({"a": 1}, nodes="plan", session="s") is None
    assert recorder.guard.failures == 1
    recorder.enabled = False
    assert recorder.snapshot({"a": 1}, nodes=["plan"], session="s") is None
    for wrong in (0, True, 1.5):
        with pytest.raises(ValueError, match="every: expected a whole number above 0"):
            Snapshots(every=wrong)  # type: ignore[arg-type]
