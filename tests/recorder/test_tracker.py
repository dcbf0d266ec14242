"""Test the chains of the tracker of tool calls on a server: the same keys, found alike."""

from __future__ import annotations

import json

import msgspec
import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS
from sdk.tests.recorder.chains import CHAIN_KEYS, finished, ticking
from traces_app.events.database_sink import DatabaseSink
from traces_app.queries.chains import chain as stored_chain
from traces_app.queries.chains import find_chain
from traces_app.queries.schemas.chains import Chain, ChainCall
from tracesite_sdk import Privacy, Recorder
from tracesite_sdk.recorder.tracking.tracker import ToolCallChainTracker

CALL_KEYS = [
    "call_id",
    "tool_id",
    "parent_id",
    "child_calls",
    "parameters",
    "result",
    "status",
    "success",
    "error_message",
    "duration",
    "started_at",
    "completed_at",
    "metadata",
]


def test_document_has_the_keys_of_the_server() -> None:
    """The server adds a chain's location and number of calls, and a call's step and the id that the model gave."""
    tracker = ticking()
    tracker.start_tool_chain("search")
    tracker.start_tool_call("search")
    document = tracker.chain_context.current_chain.to_dict()  # type: ignore[union-attr]
    (call,) = document["calls"].values()
    assert (list(document), list(call)) == (CHAIN_KEYS, CALL_KEYS)
    server = set(Chain.__struct_fields__)
    assert {"external_id", "session_id", "call_count", "failure_count"} == server - set(CHAIN_KEYS)
    assert set() == set(CHAIN_KEYS) - server
    of_call = set(ChainCall.__struct_fields__)
    assert {"id", "iteration"} == of_call - set(CALL_KEYS)
    assert set() == set(CALL_KEYS) - of_call


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lean", [False, True])
def test_server_finds_chain_by_its_root_tool(lean: bool) -> None:
    project = Project.objects.create(slug="owner")
    recorder = Recorder(sink=DatabaseSink("owner"), privacy=Privacy(lean=lean))
    tracker = ToolCallChainTracker(recorder=recorder)
    for root, called in (("planner", "search"), ("search", "search"), ("planner", "read")):
        tracker.start_tool_chain(root, {"user": "ada"})
        tracker.start_tool_call(called)
        tracker.end_tool_call("x")
        tracker.end_tool_chain()
    assert recorder.close(60) == 0
    client = Client(headers={"Authorization": f"Bearer {create_key(project, 'dashboard', ['read'])[1]}"})

    def found(query: str) -> list[str]:
        chains = client.get(f"/api/v1/chains/?{query}").json()["results"]
        return [f"{chain['root_tool_id']} {chain['call_count']}" for chain in chains]

    assert found("tool=planner") == found("root_tool=planner") == ["planner 1", "planner 1"]
    assert found("tool=search") == ["search 1", "planner 1"]
    assert found("root_tool=search") == ["search 1"]
    assert found("tool=read") == ["planner 1"]
    assert found("root_tool=read") == []
    chain_id = tracker.get_chains_by_tool_id("read")[0].chain_id
    document = client.get(f"/api/v1/chains/{chain_id}/").json()
    assert (document["root_tool_id"], document["metadata"]) == ("planner", {} if lean else {"user": "ada"})
    assert [call["tool_id"] for call in document["calls"].values()] == ["read"]


@pytest.mark.django_db(transaction=True)
def test_server_has_the_same_chain() -> None:
    Project.objects.create(slug="owner")
    recorder = Recorder(sink=DatabaseSink("owner"))
    tracker = ToolCallChainTracker(recorder=recorder)
    tracker.start_tool_chain("plan", {"user": "ada"})
    tracker.start_tool_call("plan", {"goal": "x"})
    tracker.start_tool_call("search", {"q": "x"})
    tracker.end_tool_call({"status": "error", "output": "of an exercise"}, success=True)
    tracker.start_tool_call("read", {"path": "y"})
    tracker.end_tool_call(None, False, "no file")
    tracker.end_tool_call("planned")
    for result in ("Error: this is what was looked for", None, {"rows": 2}):
        tracker.start_tool_call("look")
        tracker.end_tool_call(result)
    tracker.start_tool_call("left open")
    chain = finished(tracker)
    assert recorder.close(60) == 0
    found = json.loads(
        msgspec.json.encode(stored_chain(primary, str(find_chain(primary, ALL_PROJECTS, chain.chain_id).pk)))
    )
    document = chain.to_dict()
    same = ["root_tool_id", "success", "error_message", "metadata", "type"]
    assert [found["external_id"], *(found[name] for name in same)] == [
        chain.chain_id,
        *(document[name] for name in same),
    ]
    of_call = ["tool_id", "parameters", "status", "success", "metadata"]
    assert [[call["id"], *(call[name] for name in of_call)] for call in found["calls"].values()] == [
        [call["call_id"], *(call[name] for name in of_call)] for call in document["calls"].values()
    ]
    looked = [call["result"] for call in found["calls"].values() if call["tool_id"] == "look"]
    assert [(result["output"], result.get("data")) for result in looked] == [
        ("Error: this is what was looked for", None),
        ("", None),
        ('{"rows":2}', {"rows": 2}),
    ]
    # The server assigns its own ids.
    named = {call["call_id"]: call["id"] for call in found["calls"].values()}
    assert [named.get(call["parent_id"]) for call in found["calls"].values()] == [
        call["parent_id"] for call in document["calls"].values()
    ]
    assert [[named[child] for child in call["child_calls"]] for call in found["calls"].values()] == [
        call["child_calls"] for call in document["calls"].values()
    ]
    assert [named[call] for call in found["root_calls"]] == document["root_calls"]
    assert named[found["root_call_id"]] == document["root_call_id"]
