"""The examples: each as a program against a server, and the comparison of what the time machine replays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from access_app.keys import create_key
from access_app.models import Project, Scope
from examples import eko_replay, langgraph_replay, time_machine
from examples.langgraph_agent import QUESTION
from messages_app.models import Message, Session
from sdk.tests.paths import ROOT
from sdk.tests.recorder.conftest import local_store
from tests.traces_app.views.conftest import Caller
from traces_app.models import Snapshot, ToolCall
from tracesite_sdk.recorder.snapshots.stores import MemoryStore, SnapshotStore
from tracesite_sdk.recorder.time_machine.recorded import Recorded
from tracesite_sdk.testing import RecorderForTests, tree

from .conftest import TestConnection, send

FOUND: tuple[str, str, dict[str, Any]] = (
    "changed",
    "call find_order",
    {
        "args.number": ("2014", "2041"),
        "status": ("error", "success"),
        "error": ("LookupError: There is no order 2014.", None),
        "data": (None, '{"status":"in transit","arrives":"Monday"}'),
    },
)
"""The call that the replay repeats with another number."""


@pytest.fixture(params=["memory", "sqlite", "server"])
def store(request: pytest.FixtureRequest, store: SnapshotStore, tmp_path: Path) -> Iterator[SnapshotStore]:
    """Each store in turn."""
    if request.param == "server":
        yield store
        return
    made = local_store(request.param, tmp_path)
    yield made
    made.close()


def shown(comparison: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the change of each pair, what it is, and its differences by field."""

    def text(pieces: list[dict[str, Any]] | None) -> str | None:
        return None if pieces is None else "".join(piece["text"] for piece in pieces)

    found = []
    for pair in comparison["pairs"]:
        node = pair["left"] or pair["right"]
        differences = {one["field"]: (text(one["left"]), text(one["right"])) for one in pair.get("differences", ())}
        found.append((pair["change"], f"{node['kind']} {node['name']}", differences))
    return found


def run(name: str, server: LiveServer, spool: Path) -> list[str]:
    """Run an example as its docstring says, and return the lines that it prints."""
    project = Project.objects.create(slug="demo")
    _, key = create_key(project, name="agent", scopes=list(Scope))
    about = {"TRACESITE_URL": server.url, "TRACESITE_KEY": key, "TRACESITE_SPOOL": str(spool)}
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | about, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_langgraph_agent_arrives_at_a_server(live_server: LiveServer, tmp_path: Path) -> None:
    printed = run("langgraph_agent", live_server, tmp_path)

    session = Session.objects.get()
    answer = Message.objects.get(session=session, role="assistant")
    place = f"{live_server.url}/admin/messages_app/session/?q={session.external_id}"
    assert printed == [QUESTION, answer.content, "", f"Recorded as session {session.external_id}: {place}"]
    assert (session.status, ToolCall.objects.filter(message_id=answer.pk).count()) == ("completed", 6)


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["time_machine", "langgraph_replay", "eko_replay"])
def test_replay_arrives_at_a_server(live_server: LiveServer, tmp_path: Path, name: str) -> None:
    [printed] = run(name, live_server, tmp_path)

    failed, fork = Session.objects.order_by("pk")
    assert printed == f"{failed.external_id} failed; {fork.external_id} replayed it."
    assert Snapshot.objects.filter(session_id=failed.pk).count() >= 2
    assert fork.metadata["forked_from"]["session"] == failed.external_id


def test_docs_lead_to_every_example() -> None:
    docs = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    names = [path.stem for path in (ROOT / "examples").glob("*.py")]
    assert [name for name in names if f"`python -m examples.{name}`" not in docs] == []


@pytest.mark.django_db
def test_failed_run_is_replayed_and_goes_on(store: SnapshotStore, project: Project) -> None:
    recorder = RecorderForTests()
    session_id, replay = time_machine.failed_and_replayed(recorder, store)
    recorder.close()
    assert tree(recorder.events) == [
        "message",
        "  step parcel desk scripted-chat-1",
        "  step parcel desk scripted-chat-1",
        "    find_order",
        "message",
        "  step parcel desk scripted-chat-1",
        "    find_order",
        "message",
        "  step parcel desk scripted-chat-1",
    ]
    assert [call.error for call in Recorded.of(recorder.events).calls] == ["LookupError: There is no order 2014.", None]
    assert [snapshot.node_ids for snapshot in store.snapshots(session_id)] == [("plan",), ("look_up",)]
    send(project, recorder)
    owner = Caller(TestConnection(project).token)
    (fork,) = owner.get(f"sessions/{session_id}/forks/").results
    assert (fork["external_id"], fork["forked_from"]["node"]) == (replay.session_id, "look_up")
    found = owner.get("compare/", left=session_id, right=replay.session_id).json
    assert shown(found) == [
        ("changed", "step parcel desk", {"thought": ("Look up order 2014.", "Look up order 2041.")}),
        FOUND,
        ("right", "step parcel desk", {}),
        (
            "changed",
            "message assistant",
            {
                "content": ("", "Your parcel arrives on Monday."),
                "error": ("LookupError: There is no order 2014.", ""),
            },
        ),
    ]


@pytest.mark.django_db
def test_langgraph_is_replayed_from_the_state_of_its_node(project: Project) -> None:
    recorder, store = RecorderForTests(), MemoryStore()
    session_id, replay = langgraph_replay.failed_and_replayed(recorder, store)
    recorder.close()
    snapshots = store.snapshots(session_id)
    assert [(snapshot.node_ids, snapshot.notes) for snapshot in snapshots] == [(("plan",), ()), (("look_up",), ())]
    assert [type(message).__name__ for message in replay.context["messages"]] == ["HumanMessage", "AIMessage"]
    assert replay.context["found"] == {"status": "in transit", "arrives": "Monday"}
    calls = Recorded.of(recorder.events).calls
    assert [(call.args, call.error) for call in calls] == [
        ({"number": 2014}, "LookupError: There is no order 2014."),
        ({"number": 2041}, None),
    ]
    assert store.forks(session_id) == [replay.forked_from]
    send(project, recorder)
    owner = Caller(TestConnection(project).token)
    found = owner.get("compare/", left=session_id, right=replay.session_id).json
    assert shown(found) == [
        FOUND,
        (
            "changed",
            "message assistant",
            {
                "content": ("I look up the order.", "Your parcel arrives on Monday."),
                "error": ("LookupError: There is no order 2014.", ""),
            },
        ),
    ]


@pytest.mark.django_db
def test_eko_task_is_replayed_from_the_agent_that_failed(store: SnapshotStore, project: Project) -> None:
    recorder = RecorderForTests()
    session_id, replay = eko_replay.failed_and_replayed(recorder, store)
    recorder.close()
    reader, clerk, writer = (f"{session_id}-0{number}" for number in range(3))
    assert [snapshot.node_ids for snapshot in store.snapshots(session_id)] == [
        (reader,),
        (clerk,),
        (f"{clerk}/call_1",),
    ]
    assert replay.context["results"] == {reader: 2041, clerk: {"status": "in transit", "arrives": "Monday"}}
    send(project, recorder)
    owner = Caller(TestConnection(project).token)
    found = owner.get("compare/", left=session_id, right=replay.session_id).json
    assert shown(found) == [
        ("changed", "step Clerk", {"thought": ("Look up order 2014.", "Look up order 2041.")}),
        # Eko's tool says what failed in its output.
        (*FOUND[:2], {**FOUND[2], "output": ("LookupError: There is no order 2014.", None)}),
        ("right", "step Writer", {}),
        (
            "changed",
            "message assistant",
            {
                "content": ("2014", "Your parcel arrives on Monday."),
                "error": ("LookupError: There is no order 2014.", ""),
            },
        ),
    ]
