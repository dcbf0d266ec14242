"""Events in the form of the monitor's own document, {id, sessionId, timestamp, type, level, category, data}: with times but
without numbers, and with the agent in `data`."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from messages_app.models import Message, Session
from traces_app.models import AgentStep, Event, Tool, ToolCall

from .conftest import Caller

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEVELS = {"level": "info", "category": "tool"}


def event(second: float, type_: str, *, agent: str = "", **data: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=second)
    if agent:
        data["agentId"] = agent
    return {"sessionId": "task-1", "timestamp": at.isoformat(), "type": type_, **LEVELS, "data": data}


def monitor(second: float, type_: str, **payload: Any) -> dict[str, Any]:
    ts = (START + timedelta(seconds=second)).timestamp() * 1000
    return {"taskId": "task-1", "type": type_, "ts": ts, "payload": payload}


def calls() -> dict[str, str]:
    """Return the output of each call by its arguments."""
    found = ToolCall.objects.select_related("result")
    return {call.args["q"]: call.result.output for call in found}


TWO_AGENTS = [
    event(0, "workflow_execute_start"),
    event(1, "agent_start", agent="a"),
    event(2, "agent_start", agent="b"),
    event(3, "tool_call_start", agent="a", name="search", args={"q": "of a"}),
    event(4, "tool_call_start", agent="b", name="search", args={"q": "of b"}),
    event(5, "tool_call_complete", agent="b", name="search", result="for b"),
    event(6, "tool_call_complete", agent="a", name="search", result="for a"),
    event(7, "agent_complete", agent="a"),
    event(8, "agent_complete", agent="b"),
    event(9, "workflow_execute_complete", result="Done."),
]
MONITORED = [
    monitor(0, "session", status="running"),
    monitor(3, "tool", agentId="a", name="search", args={"q": "of a"}, phase="start"),
    monitor(4, "tool", agentId="b", name="search", args={"q": "of b"}, phase="start"),
    monitor(5, "tool", agentId="b", name="search", result="for b", phase="complete"),
    monitor(6, "tool", agentId="a", name="search", result="for a", phase="complete"),
    monitor(9, "session", status="completed"),
]


@pytest.mark.parametrize("trace", [TWO_AGENTS, MONITORED], ids=["events", "messages"])
def test_result_reaches_the_call_of_its_own_agent(owner: Caller, trace: list[dict[str, Any]]) -> None:
    assert owner.post("events/", trace).status == 200
    assert calls() == {"of a": "for a", "of b": "for b"}
    assert set(Event.objects.filter(type__startswith="tool").values_list("agent", flat=True)) == {"a", "b"}
    assert Message.objects.get().health == []


def test_agent_beside_data_wins_over_the_one_in_it(owner: Caller) -> None:
    said = event(1, "agent_start", agent="inner")
    owner.post(
        "events/", [{**said, "agentId": "outer"}, {**event(2, "agent_start"), "data": {"nodeId": "n1", "agentId": 7}}]
    )
    assert list(Event.objects.values_list("agent", flat=True)) == ["outer", "n1"]


@pytest.mark.parametrize("at_once", [1, 4, 100])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("trace", [TWO_AGENTS, MONITORED], ids=["events", "messages"])
def test_events_without_numbers_are_ordered_by_time(
    owner: Caller, trace: list[dict[str, Any]], seed: int, at_once: int
) -> None:
    searches = [
        event(20 + 2 * n + end, f"tool_call_{'complete' if end else 'start'}", agent="a", name="look",
              **({"result": f"found {n}"} if end else {"args": {"q": f"look {n}"}}))
        for n in range(3) for end in (0, 1)
    ]  # fmt: skip
    shuffled = [*trace, *searches]
    random.Random(seed).shuffle(shuffled)
    for at in range(0, len(shuffled), at_once):
        assert owner.post("events/", shuffled[at : at + at_once]).status == 200
    session = Session.objects.get()
    assert (session.status, session.current_phase) == ("completed", "complete")
    expected = {"of a": "for a", "of b": "for b", **{f"look {n}": f"found {n}" for n in range(3)}}
    assert calls() == expected
    message = Message.objects.get()
    assert (message.call_count, message.failure_count, message.health) == (5, 0, [])
    assert Session.objects.get().call_count == 5
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"success"}


def test_session_with_the_end_event_first_is_completed(owner: Caller) -> None:
    for one in reversed(TWO_AGENTS):
        owner.post("events/", one)
    assert Session.objects.get().status == "completed"
    assert Message.objects.get().is_completed


def test_events_of_one_time_stay_in_order_of_arrival(owner: Caller) -> None:
    events = [event(0, "workflow_execute_start"), event(0, "tool_call_start", name="b", call_id="1"),
              event(0, "tool_call_start", name="a", call_id="2"), event(0, "workflow_execute_complete")]  # fmt: skip
    for one in events:
        owner.post("events/", one)
    assert Session.objects.get().status == "completed"
    named = ToolCall.objects.order_by("position").values_list("tool__name", flat=True)
    assert list(named) == ["b", "a"]


def test_numbers_win_over_times(owner: Caller) -> None:
    start, end = event(5, "workflow_execute_start"), event(1, "workflow_execute_complete")
    owner.post("events/", [{**end, "number": 2}, {**start, "number": 1}])
    assert Session.objects.get().status == "completed"


def test_time_in_milliseconds_is_taken(owner: Caller) -> None:
    one = event(3, "agent_start", agent="a")
    milliseconds = (START + timedelta(seconds=3)).timestamp() * 1000
    del one["timestamp"]
    sent = [{**one, "id": "a", "timestamp": milliseconds}, {**one, "id": "b", "ts": int(milliseconds)}]
    assert owner.post("events/", sent).status == 200
    assert set(Event.objects.values_list("timestamp", flat=True)) == {START + timedelta(seconds=3)}
    refused = owner.post("events/", {**one, "timestamp": 1e300})
    assert refused.error == (400, "invalid_input", "events[0].timestamp") or refused.error[2] == "events[0].timestamp"


# --- Calls without a name -------------------------------------------------------------------------------------------

NAMELESS: list[dict[str, Any]] = [{"name": None}, {}, {"name": ""}, {"name": "  \n"}]


def by_ingest(owner: Caller, call: dict[str, Any]) -> None:
    message = {"role": "assistant", "agent_steps": [{"tool_calls": [{"id": "c1", **call, "result": "x"}]}]}
    assert owner.post("ingest/", {"sessions": [{"external_id": "task-1", "messages": [message]}]}).status == 200


def by_events(owner: Caller, call: dict[str, Any]) -> None:
    start = event(1, "tool_call_start", call_id="c1", **call)
    assert owner.post("events/", [start, event(2, "tool_call_complete", call_id="c1", result="x")]).status == 200


def by_monitor_messages(owner: Caller, call: dict[str, Any]) -> None:
    said = {"toolCallId": "c1", **call}
    messages = [monitor(1, "tool", phase="start", **said), monitor(2, "tool", phase="complete", result="x", **said)]
    assert owner.post("events/", messages).status == 200


def by_callbacks(owner: Caller, call: dict[str, Any]) -> None:
    said = {"taskId": "task-1", "agentName": "A", "nodeId": "n", "toolCallId": "c1"}
    said |= {"toolName": call["name"]} if "name" in call else {}
    messages = [{**said, "type": "tool_use"}, {**said, "type": "tool_result", "toolResult": "x"}]
    assert owner.post("eko/callbacks/", messages).status == 200


def by_import(owner: Caller, call: dict[str, Any]) -> None:
    message = {
        "role": "assistant",
        "external_id": "m",
        "agent_steps": [{"tool_calls": [{"id": "c1", **call, "result": "x"}]}],
    }
    export = {"external_id": "task-1", "messages": [message]}
    assert owner.post("import/", export, content_type="application/octet-stream").status in (200, 201)


def by_patch(owner: Caller, call: dict[str, Any]) -> None:
    message = {"role": "assistant", "external_id": "m", "is_completed": False}
    owner.post("ingest/", {"sessions": [{"external_id": "task-1", "messages": [message]}]})
    patch = {"version": 1, "agent_steps": [{"tool_calls": [{"id": "c1", **call, "result": "x"}]}]}
    assert owner.patch(f"messages/{Message.objects.get().pk}/", patch).status == 200


@pytest.mark.parametrize("call", NAMELESS, ids=["null", "missing", "empty", "blank"])
@pytest.mark.parametrize("way", [by_ingest, by_events, by_monitor_messages, by_callbacks, by_import, by_patch])
def test_call_without_a_name_is_kept_and_flagged(owner: Caller, way: Any, call: dict[str, Any]) -> None:
    way(owner, call)
    found = ToolCall.objects.select_related("tool").get()
    assert (found.tool.name, found.call_id, found.status) == ("", "c1", "success")
    assert Message.objects.get().health == ["empty_tool_name"]
    assert owner.get("tools/").results == []
    assert set(Tool.objects.values_list("name", flat=True)) == {""}


def test_flag_of_nameless_call_is_removed_by_its_name(owner: Caller) -> None:
    owner.post("events/", event(1, "tool_call_start", call_id="c1", args={}))
    assert Message.objects.get().health == ["empty_tool_name"]
    owner.post("events/", event(2, "tool_call_complete", call_id="c1", name="search", result="x"))
    assert (Message.objects.get().health, ToolCall.objects.get().tool.name) == ([], "search")


@pytest.mark.parametrize("way", ["ingest", "patch"])
def test_result_for_a_known_call_needs_no_name(owner: Caller, way: str) -> None:
    call = {"id": "c1", "name": "search"}
    message = {
        "role": "assistant",
        "external_id": "m",
        "is_completed": False,
        "agent_steps": [{"iteration": 0, "tool_calls": [call]}],
    }
    owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [message]}]})
    steps = [{"iteration": 0, "tool_calls": [{"id": "c1", "result": "x"}]}]
    if way == "ingest":
        owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [{**message, "agent_steps": steps}]}]})
    else:
        owner.patch(f"messages/{Message.objects.get().pk}/", {"version": 1, "agent_steps": steps})
    found = ToolCall.objects.get()
    assert (found.tool.name, found.status, Message.objects.get().health) == ("search", "success", [])


# --- Results without a call -----------------------------------------------------------------------------------------


def test_result_that_finds_no_call_is_flagged(owner: Caller) -> None:
    owner.post(
        "events/", [event(0, "workflow_execute_start"), event(1, "tool_call_complete", call_id="gone", result="x")]
    )
    owner.post("events/", event(2, "workflow_execute_complete", result="Done."))
    message, call = Message.objects.get(), ToolCall.objects.get()
    assert (message.is_completed, message.health) == (True, ["orphan_result"])
    assert (call.tool.name, call.metadata, call.result.output) == ("unknown", {"orphan_result": True}, "x")
    (found,) = owner.get("messages/", health="orphan_result").results
    assert found["id"] == str(message.pk)


@pytest.mark.parametrize("at_once", [True, False])
def test_result_that_came_before_its_call_is_no_orphan(owner: Caller, at_once: bool) -> None:
    end, start = (
        event(2, "tool_call_complete", call_id="c", result="x"),
        event(1, "tool_call_start", call_id="c", name="t"),
    )
    for batch in [[end, start]] if at_once else [[end], [start]]:
        owner.post("events/", batch)
    assert (Message.objects.get().health, ToolCall.objects.get().metadata) == ([], {})


def test_end_that_brings_its_arguments_is_a_call(owner: Caller) -> None:
    owner.post("events/", event(2, "tool_call_complete", call_id="c", name="t", args={"q": 1}, result="x"))
    assert Message.objects.get().health == []


# --- Outcomes beside the result -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        ({"result": "x", "success": False}, "error", "x"),
        ({"result": "Error: as asked", "success": True}, "success", ""),
        ({"output": "Error: it broke"}, "error", "Error: it broke"),
        ({"success": False}, "error", "The tool reported a failure and gave no reason."),
        ({"result": {"success": True, "output": "half"}, "error": "Cut short."}, "error", "Cut short."),
        ({"result": {"status": "success", "output": "x"}, "success": False}, "success", ""),
        ({"result": "x", "status": "error"}, "error", "x"),
    ],
)
def test_end_of_a_call_may_state_its_outcome(owner: Caller, said: dict[str, Any], status: str, error: str) -> None:
    owner.post(
        "events/",
        [event(1, "tool_call_start", name="t", call_id="c"), event(2, "tool_call_complete", call_id="c", **said)],
    )
    call = ToolCall.objects.select_related("result").get()
    assert (call.status, call.result.error) == (status, error)


def test_last_of_several_outcomes_decides(owner: Caller) -> None:
    said = [event(1, "tool_call_start", name="t", call_id="c"), event(2, "tool_call_complete", call_id="c", result="Error: no"),
            event(3, "tool_call_complete", call_id="c", result="yes")]  # fmt: skip
    for batch in (said, [{**one, "sessionId": "task-2"} for one in said]):
        for one in [batch] if batch is said else batch:
            owner.post("events/", one)
    assert set(ToolCall.objects.values_list("status", "result__output")) == {("success", "yes")}
    assert AgentStep.objects.count() == 2
