"""/events/ over HTTP: accepted and refused events, and reading them."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
import pytest

from access_app.db import primary
from messages_app.models import Message, Session
from messages_app.writes import delete_session
from traces_app.models import Event, ToolCall
from tracesite_sdk import records
from tracesite_sdk.events import monitor_messages

from .conftest import Caller

AT = "2026-03-01T12:00:00Z"
MS = 1772366400000


def event(type_: str = "agent_start", **fields: Any) -> dict[str, Any]:
    return {"session_id": "task-1", "type": type_, "timestamp": AT, **fields}


def monitor(type_: str, payload: dict[str, Any], ts: Any = MS) -> dict[str, Any]:
    return {"taskId": "task-1", "type": type_, "ts": ts, "payload": payload}


def read(owner: Caller, query: str = "", session: str = "task-1") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.get(f"sessions/{session}/events/{query}").json["results"]
    return found


def test_event_is_stored_once_and_returned_as_sent(owner: Caller) -> None:
    one = event("tool_call_start", id="mine", number=7, agent="n1", data={"name": "search", "call_id": "c1"}, extra=1)
    sent = owner.post("events/", {"events": [one]})
    session = Session.objects.get()
    assert (session.external_id, session.status, session.current_phase) == ("task-1", "running", "execute")
    assert (sent.status, sent.json) == (
        200,
        {
            "results": [{"session_id": str(session.pk), "external_id": "mine", "state": "stored", "seq": 1}],
            "refused": [],
        },
    )
    (found,) = read(owner)
    assert found == {
        "id": str(Event.objects.get().pk),
        "session_id": str(session.pk),
        "sessionId": "task-1",
        "message_id": str(Message.objects.get().pk),
        "seq": 1,
        "external_id": "mine",
        "type": "tool_call_start",
        "level": "info",
        "category": "tool",
        "timestamp": "2026-03-01T12:00:00.000000Z",
        "data": {"name": "search", "call_id": "c1", "extra": 1},
        "number": 7,
        "agent": "n1",
    }
    again = owner.post("events/", {"events": [one]})
    assert [(one["state"], one["seq"]) for one in again.json["results"]] == [("duplicate", 1)]
    back = owner.post("events/", [found])
    assert [one["state"] for one in back.json["results"]] == ["duplicate"]
    assert Event.objects.count() == 1


def test_event_without_id_gets_one_derived_from_content(owner: Caller) -> None:
    sent = [owner.post("events/", event(agent="n1")) for _time in range(2)]
    first, second = (one.json["results"][0] for one in sent)
    assert (first["state"], second["state"]) == ("stored", "duplicate")
    task, milliseconds, digits = first["external_id"].rsplit("_", 2)
    assert (task, milliseconds, len(digits)) == ("task-1", str(MS), 6)


def test_events_are_accepted_as_ndjson_list_and_object(owner: Caller) -> None:
    lines = b"\n".join(msgspec.json.encode(event(id=name)) for name in ("a", "b"))
    owner.post("events/", lines, content_type="application/x-ndjson")
    owner.post("events/", [event(id="c")])
    owner.post("events/", event(id="d"))
    assert [(one["seq"], one["external_id"]) for one in read(owner)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_after_continues_behind_the_last_number(owner: Caller) -> None:
    owner.post("events/", [event(id=str(n), level="warn" if n == 3 else None) for n in range(5)])
    page = owner.get("sessions/task-1/events/?limit=2").json
    assert ([one["seq"] for one in page["results"]], page["next"]) == ([1, 2], 2)
    page = owner.get("sessions/task-1/events/?limit=3&after=2").json
    assert ([one["seq"] for one in page["results"]], page["next"]) == ([3, 4, 5], 5)
    assert owner.get("sessions/task-1/events/?after=5").json == {"results": [], "next": None}
    assert [one["seq"] for one in read(owner, "?level=warn&type=agent_start&type=agent_error")] == [4]
    assert read(owner, "?category=tool") == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (event("tool_use"), "events[0].type"),
        (event(level="fatal"), "events[0].level"),
        (event(category="other"), "events[0].category"),
        (event(timestamp="2026-03-01T12:00:00"), "events[0].timestamp"),
        (event(number=1.5), "events[0].number"),
        (event(data=[1]), "events[0].data"),
        ({"type": "agent_start"}, "events[0].session_id"),
        (event(session_id=""), "events[0].session_id"),
        ([1], "events[0]"),
        ({"events": 1}, "events"),
        (event("score", data={"value": 1}), "events[0].data.name"),
        (event("score", data={"name": "n"}), "events[0].data.value"),
        (event("score", data={"name": "n", "value": [1]}), "events[0].data.value"),
        (event("score", data={"name": "n", "value": 1, "source": "me"}), "events[0].data.source"),
        (event("score"), "events[0].data.name"),
        (monitor("other", {}), "events[0].type"),
        (monitor("agent", {"status": "late"}), "events[0].payload.status"),
        (monitor("session", {"status": "gone"}), "events[0].payload.status"),
        (monitor("llm", {}), "events[0].payload.phase"),
        ({**monitor("tool", {}), "payload": 5}, "events[0].payload.phase"),
        (monitor("agent", {"status": "start"}, ts="now"), "events[0].ts"),
        (monitor("agent", {"status": "start"}, ts=10**20), "events[0].ts"),
    ],
)
def test_invalid_event_is_refused_with_its_path_and_none_stored(owner: Caller, body: Any, field: str) -> None:
    sent = owner.post("events/", body)
    assert (sent.status, sent.json["error"]["field"]) == (400, field)
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "limit=0", "limit=1001", "type=other", "level=x", "category=x", "cursor=1"]
)
def test_bad_parameters_are_refused_by_name(owner: Caller, query: str) -> None:
    owner.post("events/", event())
    answer = owner.get(f"sessions/task-1/events/?{query}")
    assert (answer.status, answer.json["error"]["field"]) == (400, query.partition("=")[0])


def test_event_for_deleted_session_is_refused_others_stored(owner: Caller) -> None:
    owner.post("events/", event(id="a"))
    delete_session(primary, Session.objects.get().pk, by="test")
    sent = owner.post("events/", [event(id="b"), event(id="c", session_id="task-2")])
    assert [one["state"] for one in sent.json["results"]] == ["refused", "stored"]
    assert [(one["path"], one["code"]) for one in sent.json["refused"]] == [("events[0]", "session_deleted")]
    assert Session.objects.get().external_id == "task-2"
    assert Event.objects.count() == 2


def test_monitor_messages_are_events(owner: Caller) -> None:
    owner.post(
        "events/",
        [
            monitor("session", {"status": "planning"}, MS),
            monitor("workflow", {"agentTree": {"type": "normal"}, "parallel": False}, MS + 1),
            monitor("session", {"status": "running"}, MS + 2),
            monitor("agent", {"agentId": "n1", "status": "start"}, MS + 3),
            monitor("prompt", {"agentId": "n1", "role": "system", "text": "Be kind. "}, MS + 4),
            monitor("llm", {"agentId": "n1", "phase": "start"}, MS + 5),
            monitor("llm", {"agentId": "n1", "phase": "delta", "token": "Lo"}, MS + 6),
            monitor("llm", {"agentId": "n1", "phase": "complete", "usage": {"promptTokens": 3}}, MS + 7),
            monitor("tool", {"agentId": "n1", "name": "search", "args": {"q": 1}, "phase": "start"}, MS + 8),
            monitor("tool", {"agentId": "n1", "name": "search", "args": {"q": 2}, "phase": "start"}, MS + 9),
            monitor("tool", {"agentId": "n1", "name": "search", "result": "one", "phase": "complete"}, MS + 10),
            monitor("tool", {"agentId": "n1", "name": "search", "error": "two", "phase": "error"}, MS + 11),
            monitor("agent", {"agentId": "n1", "status": "error", "error": "no"}, MS + 12),
            monitor("agent", {"agentId": "n1", "status": "complete"}, MS + 13),
            monitor("session", {"status": "completed"}, MS + 14),
        ],
    )
    assert [(one["type"], one["level"], one["category"]) for one in read(owner)] == [
        ("workflow_plan_start", "info", "execution"),
        ("workflow_plan_complete", "info", "execution"),
        ("workflow_execute_start", "info", "execution"),
        ("agent_start", "info", "execution"),
        ("prompt_build", "info", "prompt"),
        ("llm_request_start", "info", "prompt"),
        ("llm_request_start", "trace", "prompt"),
        ("llm_request_complete", "info", "prompt"),
        ("tool_call_start", "info", "tool"),
        ("tool_call_start", "info", "tool"),
        ("tool_call_complete", "info", "tool"),
        ("tool_call_error", "error", "tool"),
        ("agent_error", "error", "execution"),
        ("agent_complete", "info", "execution"),
        ("workflow_execute_complete", "info", "execution"),
    ]
    (prompt,) = read(owner, "?type=prompt_build")
    ref = prompt["data"].pop("contextRef")
    assert prompt["data"] == {"agentId": "n1", "kind": "system", "length": 9}
    assert owner.get(f"sessions/task-1/contexts/{ref}/").json["text"] == "Be kind. "
    session = Session.objects.get()
    assert (session.status, session.input_tokens) == ("completed", 3)
    calls = ToolCall.objects.select_related("result").order_by("position")
    assert [(c.args, c.status, c.result.output, c.result.error) for c in calls] == [
        ({"q": 1}, "success", "one", ""),
        ({"q": 2}, "error", "", "two"),
    ]


def test_monitor_messages_name_their_run_and_workflow(owner: Caller) -> None:
    workflow = {"name": "Weather", "agents": [{"id": "n1", "name": "Lookup", "dependsOn": []}]}
    messages = [
        monitor("session", {"status": "planning", "prompt": "Weather in Oslo?"}, MS),
        monitor("workflow", {"workflow": workflow}, MS + 1),
        monitor("session", {"status": "completed", "result": "31 degrees."}, MS + 2),
    ]
    later = [monitor("session", {"status": "completed", "result": "20 degrees."}, MS + 3)]
    sent = [{**one, "messageId": "run-1"} for one in messages] + [{**one, "messageId": "run-2"} for one in later]
    for _again in range(2):
        owner.post("events/", [{**one, "id": f"id-{at}"} for at, one in enumerate(sent)])
    session = Session.objects.get()
    assert (session.title, session.workflow, session.last_event) == ("Weather", workflow, 4)
    answers = Message.objects.filter(role="assistant").order_by("pk").values_list("external_id", "content")
    assert list(answers) == [("run-1", "31 degrees."), ("run-2", "20 degrees.")]


def run_of_monitor_messages() -> list[dict[str, Any]]:
    """Messages of a monitor for a task of two agents, one of which fails."""
    tree = {"type": "normal", "agent": {"id": "n1"}, "nextAgent": {"type": "normal", "agent": {"id": "n2"}}}
    told = [
        ("workflow", {"agentTree": {"type": "normal"}, "partial": True}),
        ("workflow", {"agentTree": tree, "parallel": False}),
        ("session", {"status": "running"}),
        ("agent", {"agentId": "n1", "status": "start"}),
        ("prompt", {"agentId": "n1", "role": "system", "text": "You look things up."}),
        ("prompt", {"agentId": "n1", "role": "user", "text": "Weather in Shanghai?"}),
        ("llm", {"agentId": "n1", "phase": "start"}),
        ("llm", {"agentId": "n1", "phase": "delta", "token": "Look"}),
        ("llm", {"agentId": "n1", "phase": "complete", "usage": {"promptTokens": 30, "completionTokens": 5}}),
        ("tool", {"agentId": "n1", "name": "weather", "args": {"city": "Shanghai"}, "phase": "start"}),
        ("tool", {"agentId": "n1", "name": "weather", "result": "21 °C", "phase": "complete"}),
        ("agent", {"agentId": "n1", "status": "complete", "result": "21 °C"}),
        ("agent", {"agentId": "n2", "status": "start"}),
        ("tool", {"agentId": "n2", "name": "write", "args": {}, "phase": "start"}),
        ("tool", {"agentId": "n2", "name": "write", "error": "The disk is full.", "phase": "error"}),
        ("agent", {"agentId": "n2", "status": "error", "error": "Could not write."}),
        ("session", {"status": "completed"}),
    ]
    return [monitor(type_, payload, MS + at) for at, (type_, payload) in enumerate(told)]


def told_in_deltas() -> list[dict[str, Any]]:
    """Monitor messages of two agents that work at once and tell what they write in deltas only."""
    told = [
        ("session", {"status": "running"}),
        ("llm", {"agentId": "n1", "phase": "start"}),
        ("llm", {"agentId": "n1", "phase": "delta", "token": "I look "}),
        ("llm", {"agentId": "n2", "phase": "delta", "token": "Other"}),
        ("llm", {"agentId": "n1", "phase": "delta", "token": "it up."}),
        ("llm", {"agentId": "n1", "phase": "complete", "usage": {"promptTokens": 3}}),
        ("tool", {"agentId": "n1", "name": "search", "args": {"q": 1}, "phase": "start"}),
        ("tool", {"agentId": "n1", "name": "search", "result": "21", "phase": "complete"}),
        ("llm", {"agentId": "n2", "phase": "complete", "text": "What it says itself."}),
        ("llm", {"agentId": "n1", "phase": "delta", "token": "21 "}),
        ("llm", {"agentId": "n1", "phase": "delta", "token": "°C."}),
        ("llm", {"agentId": "n1", "phase": "complete", "usage": {"promptTokens": 4}}),
        ("session", {"status": "completed"}),
    ]
    return [monitor(type_, payload, MS + at) for at, (type_, payload) in enumerate(told)]


def texts(caller: Caller, session: str = "task-1") -> tuple[str, list[tuple[str, str]]]:
    (run,) = caller.get(f"sessions/{session}/messages/").results
    return run["content"], [(step["agent_name"], step["thought"]) for step in run["agent_steps"]]


TOLD = ("21 °C.", [("n1", "I look it up."), ("n2", "What it says itself."), ("n1", "21 °C.")])


@pytest.mark.parametrize("size", [1, 4, 100])
def test_deltas_become_the_text_of_steps_and_answer(owner: Caller, size: int) -> None:
    told = told_in_deltas()
    for at in range(0, len(told), size):
        owner.post("events/", told[at : at + size])
    assert texts(owner) == TOLD
    owner.post("events/", told)
    assert texts(owner) == TOLD
    # A text that comes otherwise takes precedence.
    owner.post("events/", monitor("session", {"status": "completed", "result": "It is warm."}, MS + 99))
    assert texts(owner)[0] == "It is warm."


@pytest.mark.parametrize("seed", range(8))
def test_deltas_may_arrive_in_any_order(owner: Caller, seed: int) -> None:
    told = told_in_deltas()
    random.Random(seed).shuffle(told)
    for at in range(0, len(told), 3):
        owner.post("events/", told[at : at + 3])
    assert texts(owner) == TOLD


def test_deltas_of_a_named_step_are_its_text(owner: Caller) -> None:
    for at, token in enumerate(("Hel", "lo")):
        owner.post(
            "events/", event("llm_request_start", number=at + 1, agent="n1", data={"step": "s1", "token": token})
        )
    owner.post("events/", event("llm_request_complete", number=3, agent="n1", data={"step": "s1"}))
    owner.post("events/", event("workflow_execute_complete", number=4))
    assert texts(owner) == ("Hello", [("n1", "Hello")])


def test_text_before_a_call_is_no_answer(owner: Caller) -> None:
    owner.post("events/", [*told_in_deltas()[:8], told_in_deltas()[-1]])
    assert texts(owner) == ("", [("n1", "I look it up.")])


def test_monitor_messages_produce_the_types_of_the_adapter(owner: Caller) -> None:
    for message in run_of_monitor_messages():
        sent = owner.post("events/", message).json
        assert [one["state"] for one in sent["results"]] == ["stored"]
    found = read(owner, "?limit=1000")
    assert {one["type"] for one in found} == monitor_messages.EVENTS
    assert set(get_args(records.EventType)) >= monitor_messages.EVENTS

    def data(type_: str) -> list[dict[str, Any]]:
        return [one["data"] for one in found if one["type"] == type_]

    assert data("llm_request_complete")[0]["usage"] == {"promptTokens": 30, "completionTokens": 5}
    assert [(one["name"], one["error"]) for one in data("tool_call_error")] == [("write", "The disk is full.")]
    prompts = [owner.get(f"sessions/task-1/contexts/{one['contextRef']}/").json["text"] for one in data("prompt_build")]
    assert prompts == ["You look things up.", "Weather in Shanghai?"]
    session = owner.get("sessions/task-1/").json
    assert (session["status"], session["last_event"], session["call_count"], session["failure_count"]) == (
        "completed", len(found), 2, 1,
    )  # fmt: skip
    assert session["workflow"]["agentTree"]["nextAgent"]["agent"] == {"id": "n2"}
    assert session["resources"]["total_tokens"] == 35
    assert sorted(session["context_refs"]) == sorted(one["contextRef"] for one in data("prompt_build"))


@pytest.mark.parametrize(
    ("status", "phase", "is_completed"),
    [
        ("planning", "plan", False),
        ("running", "execute", False),
        ("paused", "execute", False),
        ("completed", "complete", True),
        ("error", "complete", True),
        ("aborted", "complete", True),
    ],
)
def test_session_message_sets_the_status_of_the_session(
    owner: Caller, status: str, phase: str, is_completed: bool
) -> None:
    owner.post(
        "events/",
        [monitor("agent", {"agentId": "n1", "status": "start"}), monitor("session", {"status": status}, MS + 1)],
    )
    session = owner.get("sessions/task-1/").json
    assert (session["status"], session["current_phase"]) == (status, phase)
    assert [one["is_completed"] for one in owner.get("sessions/task-1/messages/").results] == [is_completed]


def test_events_are_readable_as_a_message_at_once(owner: Caller) -> None:
    """The run in the message API after each event: the call, then its result, then the answer."""

    def after(type_: str, **data: Any) -> dict[str, Any]:
        assert owner.post("events/", event(type_, agent="n1", message_id="run-1", data=data)).status == 200
        (run,) = owner.get("sessions/task-1/messages/").results
        found: dict[str, Any] = owner.get(f"messages/{run['id']}/").json
        assert found == run
        return found

    draft = after("tool_call_start", step="s1", call_id="c1", name="weather", args={"city": "Shanghai"})
    (call,) = draft["agent_steps"][0]["tool_calls"]
    assert (draft["role"], draft["content"], draft["is_completed"]) == ("assistant", "", False)
    assert (call["name"], call["args"], call["status"], call["result"]) == (
        "weather",
        {"city": "Shanghai"},
        "pending",
        None,
    )
    updated = after("tool_call_complete", call_id="c1", result="21 °C")
    (call,) = updated["agent_steps"][0]["tool_calls"]
    assert (updated["id"], updated["is_completed"], updated["version"] > draft["version"]) == (draft["id"], False, True)
    assert (call["status"], call["result"]["output"]) == ("success", "21 °C")
    final = after("workflow_execute_complete", result="21 °C in Shanghai.")
    assert (final["content"], final["is_completed"], final["completed_at"]) == (
        "21 °C in Shanghai.", True, "2026-03-01T12:00:00.000000Z",
    )  # fmt: skip
    assert final["agent_steps"] == updated["agent_steps"]
