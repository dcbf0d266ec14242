"""The contexts of Eko's agents, from a transcript of the callback messages of Eko 4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracesite_sdk.eko.contexts import EkoContexts, children_of
from tracesite_sdk.testing import RecorderForTests

MESSAGES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "callbacks_of_4x.jsonl").read_text().splitlines()
]


class Eko:
    """A program that gets Eko's callback messages."""

    def __init__(self) -> None:
        self.got = 0

    def callback(self, message: Mapping[str, Any]) -> None:
        self.got += 1


def test_callback_messages_keep_contexts_of_agents_and_calls() -> None:
    recorder = RecorderForTests()
    eko = recorder.enable(Eko(), snapshots=True)
    for message in MESSAGES:
        eko.callback(message)
    store = recorder.snapshots.store
    agents = [f"task1-0{number}" for number in range(4)]
    nodes = [node for snapshot in store.snapshots("task1") for node in snapshot.node_ids]
    assert nodes == [f"{agent}{call}" for agent in agents for call in ("", "/call_1", "/call_2")]
    (workflow,) = (one["workflow"] for one in MESSAGES if one["type"] == "workflow" and one["streamDone"])
    before_agent, before_call = store.latest("task1", agents[1]), store.latest("task1", f"{agents[1]}/call_2")
    assert before_agent is not None
    assert before_call is not None
    known = {"workflow": workflow, "agent": {"id": agents[1], "name": "Alpha"}, "results": {agents[0]: "all done"}}
    assert recorder.snapshots.context(before_agent) == {**known, "messages": []}
    called = recorder.snapshots.context(before_call)
    assert {**called, "messages": None} == {**known, "messages": None}
    assert [part for message in called["messages"] for part in message["content"]] == [
        {"type": "thinking", "text": "let me see"},
        {"type": "text", "text": "calling tool"},
        {"type": "tool-call", "toolCallId": "call_1", "toolName": "echo", "args": {"v": 1}},
    ]
    # A diamond.
    assert children_of(workflow) == {
        agents[0]: [agents[1], agents[2]],
        agents[1]: [agents[3]],
        agents[2]: [agents[3]],
        agents[3]: [],
    }
    recorder.close()


def test_request_of_debugger_replaces_messages_of_agent() -> None:
    contexts = EkoContexts()
    agent = {"taskId": "t", "nodeId": "t-00", "agentName": "A"}
    contexts.receive({**agent, "type": "agent_start"})
    contexts.receive({**agent, "type": "text", "text": "Look."})
    request = [{"role": "system", "content": "Be exact."}]
    contexts.receive({**agent, "type": "debug_agent_process", "currentMessages": request})
    call = {**agent, "type": "tool_use", "toolId": "c", "toolName": "look", "params": {}}
    found = contexts.receive(call)
    assert found is not None
    assert found.context["messages"] == request
    # A repeated delivery, and messages that belong to no agent.
    assert contexts.receive(call) is None
    assert contexts.receive({"taskId": "t", "type": "text", "text": "Plan."}) is None
