"""Test that events sent to the API are pushed to clients and stored as messages, against a running server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Viewers, hear

LARGE = "ok " * 20_000
RUN = [
    ("workflow_execute_start", {"prompt": "Weather in Shanghai?"}),
    ("prompt_build", {"kind": "system", "text": "You look things up."}),
    ("llm_request_complete", {"step": "s1", "reasoning": "It must be looked up.", "thought": "Look it up."}),
    ("tool_call_start", {"step": "s1", "call_id": "c1", "name": "weather", "args": {"city": "Shanghai"}}),
    ("tool_call_complete", {"call_id": "c1", "result": LARGE}),
    ("workflow_execute_complete", {"result": "21 °C"}),
]


@pytest.fixture
def ask(port: int, key: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Return a function that calls the server's REST API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(method: str, path: str, body: Any = None) -> Any:
        headers = key | {"Content-Type": "application/json"}
        connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return json.loads(content)

    yield ask
    connection.close()


@pytest.mark.system
def test_run_is_pushed_live_and_stored_as_message(
    key: dict[str, str], viewers: Viewers, ask: Callable[..., Any]
) -> None:
    session = "history-of-a-run"
    ask("POST", "events/", {"session_id": session, "type": "agent_start", "agent": "n1", "id": "first"})
    socket, stream = viewers.socket(key), viewers.stream(session, key)
    socket.subscribe(session)
    pushed: dict[str, list[dict[str, Any]]] = {"socket": [], "stream": []}

    def hear_both() -> None:
        pushed["socket"].append(hear(socket, "monitor_event")["event"])
        pushed["stream"].append(hear(stream, "monitor_event")["event"])

    hear_both()
    for number, (type_, data) in enumerate(RUN):
        ask("POST", "events/", {"session_id": session, "type": type_, "agent": "n1", "id": str(number), "data": data})
        hear_both()
    # Events are pushed as the API accepted them, with large values as references; the message holds the full values.
    events = ask("GET", f"sessions/{session}/events/")["results"]
    assert pushed == {"socket": events, "stream": events}
    assert [event["type"] for event in events] == ["agent_start", *(type_ for type_, _data in RUN)]
    assert events[5]["data"]["contextRefs"]["result"]["beginning"] == LARGE[:200]
    question, answer = ask("GET", f"sessions/{session}/messages/")["results"]
    assert (question["role"], question["content"]) == ("user", "Weather in Shanghai?")
    assert (answer["content"], answer["is_completed"]) == ("21 °C", True)
    (step,) = answer["agent_steps"]
    assert (step["reasoning_content"], step["thought"]) == ("It must be looked up.", "Look it up.")
    assert step["tool_calls"][0]["result"]["output"] == LARGE
    ref = events[2]["data"]["contextRef"]
    assert ask("GET", f"sessions/{session}/contexts/{ref}/")["text"] == "You look things up."
