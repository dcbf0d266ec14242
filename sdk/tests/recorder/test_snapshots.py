"""Snapshots of contexts: those that need no store of their own, files and processes, and those of an enabled agent."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.ports import free_port
from sdk.tests.recorder.conftest import restored
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.delivery.sinks import MemorySink
from tracesite_sdk.recorder.snapshots.server_store import ServerStore, StoreFailed
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import MemoryStore, SqliteStore
from tracesite_sdk.recorder.time_machine.machine import Overrides, TimeMachine, Workflow
from tracesite_sdk.testing import RecorderForTests


def test_contexts_that_change_anywhere_come_back() -> None:
    # Each value differs from one beside it by its type or its place only.
    leaves = [
        True,
        1,
        1.0,
        None,
        "1",
        b"1",
        bytearray(b"1"),
        (1,),
        [1],
        {1},
        {"$type": "tuple", "value": [1]},
        {1: 1},
        "x" * 400,
        {},
    ]
    source = random.Random(5)
    recorder = Recorder(sink=MemorySink())
    messages: list[dict[str, Any]] = []
    for number in range(300):
        change = source.randrange(4)
        if change == 0 or not messages:
            text = source.choice(["short", "long " * 100])
            messages.insert(
                source.randrange(len(messages) + 1), {"role": "user", "content": text, "parts": [{"of": 1}]}
            )
        elif change == 1 and len(messages) > 20:
            del messages[source.randrange(len(messages))]
        else:
            message = source.choice(messages)
            place = message if change == 2 else message["parts"][0]
            place[source.choice(["a", "b"])] = source.choice(leaves)
        assert recorder.snapshot({"messages": messages}, nodes=[str(number)], session="s") is not None
        expected = repr({"messages": messages}).replace("bytearray(b'1')", "'MQ=='")
        assert repr(restored(recorder, str(number))) == expected


def test_item_that_was_harmless_elsewhere_is_searched_again() -> None:
    recorder = Recorder(sink=MemorySink())
    items = [{"value": "correct horse battery staple"}]
    for name in ("messages", "password", "messages"):
        recorder.snapshot({name: items}, nodes=[name], session="s")
    assert restored(recorder, "messages") == {"messages": items}
    assert "horse" not in repr(restored(recorder, "password"))


def test_snapshot_outside_of_session_is_in_that_of_process() -> None:
    recorder = Recorder(sink=MemorySink(), strict=True)
    snapshot = recorder.snapshot({"a": 1}, nodes=["plan"])
    recorder.close(60)
    assert snapshot is not None
    assert recorder.snapshots.store.latest(snapshot.session_id, "plan") == snapshot


def test_memory_store_purges_least_recently_used_session() -> None:
    recorder = RecorderForTests()
    recorder.snapshots = Snapshots(MemoryStore(max_bytes=10_000, max_sessions=5))
    for session in ("a", "b", "a", "c"):
        recorder.snapshot({"of": session * 4000}, nodes=["n"], session=session)
    assert restored(recorder, "n", "a")["of"] == "a" * 4000
    latest = recorder.snapshots.store.latest("b", "n")
    assert latest is not None
    assert latest.is_purged
    for number in range(5):
        recorder.snapshot({}, nodes=["n"], session=str(number))
    recorder.close()
    assert recorder.snapshots.store.snapshots("a") == []
    assert recorder.snapshots.store.snapshot(latest.id) is None


@pytest.mark.system
def test_sqlite_file_is_private_and_read_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "snapshots.db"
    recorder = Recorder(sink=MemorySink(), snapshots=Snapshots(SqliteStore(path)), strict=True)
    recorder.snapshot({"text": "x" * 1000}, nodes=["n"], session="s")
    child = os.fork()
    if child == 0:
        done = recorder.snapshot({"text": "y" * 1000}, nodes=["of-child"], session="s") is not None
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.snapshot({"text": "z" * 1000}, nodes=["m"], session="s")
    recorder.close(60)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other = Snapshots(SqliteStore(path))
    texts = [other.context(snapshot)["text"][0] for snapshot in other.store.snapshots("s")]
    other.store.close()
    assert texts == ["x", "y", "z"]


KILLED = """
import sys
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.delivery.sinks import MemorySink
from tracesite_sdk.recorder.snapshots.stores import SqliteStore
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots

store = ServerStore(*sys.argv[1:]) if len(sys.argv) > 2 else SqliteStore(sys.argv[1])
recorder = Recorder(sink=MemorySink(), snapshots=Snapshots(store), strict=True)
for number in range(100_000):
    recorder.snapshot({"texts": [f"{number} {place} " * 200 for place in range(20)]}, nodes=[str(number)], session="s")
    print(number, flush=True)
"""


def killed_after(moment: int, *arguments: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= moment:
            break
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()


def check_whole(snapshots: Snapshots, at_least: int) -> None:
    found = snapshots.store.snapshots("s")
    assert len(found) > at_least
    for snapshot in found:
        assert len(snapshots.context(snapshot)["texts"]) == 20
    snapshots.store.close()


@pytest.mark.system
def test_killed_process_leaves_whole_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "snapshots.db"
    for moment in (5, 23):
        killed_after(moment, str(path))
        check_whole(Snapshots(SqliteStore(path)), moment)


def test_server_that_does_not_respond_is_not_asked_again_at_once() -> None:
    store = ServerStore(f"http://127.0.0.1:{free_port()}", "ts_" + "a" * 43)
    for reason in ("The server did not respond: Connection refused", "did not respond a moment ago"):
        with pytest.raises(StoreFailed, match=reason):
            store.snapshots("s")
    with pytest.raises(ValueError, match="url: expected the address of a server"):
        ServerStore("", "k")


class Agent:
    """An agent that does not know the recorder."""

    def __init__(self) -> None:
        self.state: dict[str, list[str]] = {"messages": []}
        self.tools = [self.get_weather]

    def get_weather(self, city: str) -> str:
        return f"31 degrees in {city}"

    def call_llm(self, prompt: str) -> str:
        return f"asked: {prompt}"

    def run(self, prompt: str) -> str:
        self.state["messages"].append(self.call_llm(prompt))
        (tool,) = self.tools
        self.state["messages"].append(tool(city="Oslo"))
        return self.call_llm("go on")


@pytest.mark.parametrize("snapshots", ["state.messages", lambda agent: agent.state["messages"]])
def test_enabled_agent_keeps_context_before_requests_and_calls(snapshots: Any) -> None:
    recorder = RecorderForTests()
    agent = recorder.enable(Agent(), session="s", snapshots=snapshots)
    agent.run("Hello")
    agent.run("Again")
    store = recorder.snapshots.store
    nodes = ["call_llm:0", "get_weather:0", "call_llm:1", "call_llm:2", "get_weather:1", "call_llm:3"]
    assert [snapshot.node_ids for snapshot in store.snapshots("s")] == [(node,) for node in nodes]
    first = ["asked: Hello", "31 degrees in Oslo"]
    assert [restored(recorder, node) for node in nodes[:4]] == [[], first[:1], first, first]

    def run(node: str, context: list[str], _overrides: Overrides) -> str:
        agent.state = {"messages": context}
        return agent.call_llm(f"{len(context)} messages")

    # In a replay the machine keeps the contexts, and ids of nodes stay as they were.
    machine = TimeMachine(store, Workflow.chain(run, nodes), recorder=recorder)
    replay = machine.replay(session_id="s", node_id="call_llm:1")
    assert replay.context == "asked: 2 messages"
    assert [snapshot.node_ids for snapshot in store.snapshots(replay.session_id)] == [("call_llm:2",)]
    recorder.close()


def test_context_that_cannot_be_read_does_not_stop_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    recorder = RecorderForTests(strict=False)
    agent = recorder.enable(Agent(), snapshots=lambda agent: agent.nothing)
    assert agent.run("Hello") == "asked: go on"
    assert "The recorder failed: AttributeError" in caplog.text
    recorder.enable(Agent(), snapshots="memory")
    assert "Snapshots will hold None: Agent has no attribute memory." in caplog.text
    recorder.close()
