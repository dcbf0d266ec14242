"""/eko/callbacks/: callback messages of Eko become agents, calls, results and tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messages_app.models import Message, Session
from sdk.tests.length import FACTOR
from sdk.tests.paths import SHARED
from tests.traces_app.views.conftest import Caller
from traces_app.models import AgentStep, Context, Event, ToolCall, ToolResult

EKO = SHARED / "eko"
FILES = ("eko_callback_messages.jsonl", "eko4_callback_messages.jsonl")
DONE_ONLY = ("eko_callback_messages_done_only.json", "eko4_callback_messages_done_only.json")
SCRIPTED = ("eko_3.1.5_callbacks.jsonl", "eko_3.1.5_parallel_callbacks.jsonl", "eko_4x_callbacks.jsonl")


def messages_of(name: str) -> list[dict[str, Any]]:
    path = EKO / name
    if not path.exists():
        pytest.skip("the shared data is not here")
    text = path.read_text()
    actual = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    return list(actual)


def rows(task: str) -> dict[str, Any]:
    """Return the rows of a task without ids and times."""
    session = Session.objects.get(external_id=task)
    run = Message.objects.get(session=session, role="assistant")
    calls = ToolCall.objects.filter(message=run).select_related("tool", "step", "result")
    return {
        "session": (session.title, session.status, session.current_phase, session.input_tokens, session.output_tokens,
                    session.call_count, session.failure_count, session.last_event),
        "run": (run.content, run.is_completed, run.error, run.health, sorted(run.metadata["agents"])),
        "steps": sorted(
            AgentStep.objects.filter(message=run).values_list("iteration", "ordinal", "agent_name", "thought", "reasoning")
        ),
        "calls": sorted(
            (c.step.ordinal, c.position, c.call_id, c.tool.name, str(c.args), c.status, c.result.output, c.result.error)
            for c in calls
        ),
        "events": sorted(Event.objects.filter(session=session).values_list("seq", "external_id", "type")),
    }  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, *DONE_ONLY])
def test_task_of_two_agents_gives_steps_calls_and_results(owner: Caller, name: str) -> None:
    sent = owner.post("eko/callbacks/", {"messages": messages_of(name)})
    assert (sent.status, sent.json["refused"]) == (200, [])
    stored = rows("task-eko-1")
    # No message marks the end of the task.
    assert stored["session"][1:7] == ("running", "execute", 500, 100, 5, 2)
    assert stored["run"][:2] == ("已保存到 plan.md ✅", False)
    assert [(step[0], step[2]) for step in stored["steps"]] == [
        (0, "Research"), (1, "Research"), (2, "Research"), (3, "File"), (4, "File"),
    ]  # fmt: skip
    # The last text of the agent that ended last is the answer and no thought; that of the other one is.
    assert [step[3] for step in stored["steps"]] == [
        "我来查询。",
        "",
        "上海晴 26℃；推荐：上海博物馆、世纪公园。",
        "",
        "",
    ]
    assert [(call[0], call[3], call[5]) for call in stored["calls"]] == [
        (0, "get_weather", "success"), (0, "get_weather", "error"), (0, "screenshot", "success"),
        (1, "search_poi", "success"), (3, "write_file", "error"),
    ]  # fmt: skip
    assert len(ToolResult.objects.get(call__tool__name="screenshot").attachments) == 1
    assert Session.objects.get().workflow["name"] == Session.objects.get().title


def of_agent(number: int, type_: str, **fields: Any) -> dict[str, Any]:
    return {"taskId": "t", "agentName": f"A{number}", "nodeId": f"t-0{number}", "type": type_, **fields}


def answering(number: int, text: str, *calls: str, result: str | None = None) -> list[dict[str, Any]]:
    """Return the messages of an agent that says a text, with these calls, and gives it or another one as its result."""
    return [
        of_agent(number, "text", streamId=f"s{number}", streamDone=True, text=text),
        *(of_agent(number, "tool_use", toolCallId=call, toolName="look", params={}) for call in calls),
        of_agent(number, "finish", finishReason="stop", usage={"promptTokens": 1, "completionTokens": 1}),
        of_agent(number, "agent_result", result=text if result is None else result),
    ]


@pytest.mark.parametrize(
    ("messages", "content", "thoughts"),
    [
        (answering(0, "Oslo."), "Oslo.", [""]),
        (answering(0, "Oslo.")[:-1], "", ["Oslo."]),
        (answering(0, "Oslo.", result="In Oslo."), "In Oslo.", ["Oslo."]),
        (answering(0, "Oslo.", "c"), "Oslo.", ["Oslo."]),
        ([*answering(0, "Oslo."), *answering(1, "Bergen.")[:-1]], "Oslo.", ["", "Bergen."]),
        ([*answering(0, "Oslo."), *answering(1, "Bergen.")], "Bergen.", ["Oslo.", ""]),
        ([*answering(0, "Oslo.")[:-1], *answering(1, "Bergen."), answering(0, "Oslo.")[-1]], "Oslo.", ["", "Bergen."]),
    ],
    ids=["one", "not over", "another result", "with a call", "second goes on", "two", "first ends last"],
)
@pytest.mark.parametrize("at_once", [1, 100])
def test_text_of_the_answer_is_no_thought(
    owner: Caller, messages: list[Any], content: str, thoughts: list[str], at_once: int
) -> None:
    for _again in range(2):
        for at in range(0, len(messages), at_once):
            assert owner.post("eko/callbacks/", messages[at : at + at_once]).status == 200
        run = Message.objects.get(role="assistant")
        steps = AgentStep.objects.filter(message=run).order_by("ordinal")
        assert (run.content, [*steps.values_list("thought", flat=True)]) == (content, thoughts)


@pytest.mark.parametrize("name", SCRIPTED)
def test_agents_with_equal_call_ids_stay_apart(owner: Caller, name: str) -> None:
    messages = messages_of(name)
    owner.post("eko/callbacks/", {"messages": messages})
    stored = rows(messages[0]["taskId"])
    uses = {(m["nodeId"], m.get("toolId") or m.get("toolCallId")) for m in messages if m["type"] == "tool_use"}
    finishes = [m for m in messages if m["type"] == "finish"]
    failures = [m for m in messages if m["type"] == "tool_result" and m["toolResult"].get("isError")]
    assert len(stored["calls"]) == len(uses)
    assert len(stored["steps"]) == len(finishes)
    assert stored["session"][3:5] == (
        sum(m["usage"]["promptTokens"] for m in finishes), sum(m["usage"]["completionTokens"] for m in finishes)
    )  # fmt: skip
    assert stored["session"][5:7] == (len(uses), len(failures))
    assert {call[5] for call in stored["calls"]} == {"success", "error"}


@pytest.mark.parametrize(
    ("at_once", "name"),
    # One by one is a thousand requests, which `make fuzz` sends of all files.
    [
        (at_once, name)
        for name in [*FILES, *SCRIPTED]
        for at_once in (1, 7, 1000)
        if at_once > 1 or name == FILES[0] or FACTOR > 1
    ],
)
def test_any_batches_and_repeats_give_the_same_rows(owner: Caller, name: str, at_once: int) -> None:
    messages = messages_of(name)
    task = messages[0]["taskId"]
    owner.post("eko/callbacks/", {"messages": messages})
    wanted = {kind: stored for kind, stored in rows(task).items() if kind != "events"}
    again = owner.post("eko/callbacks/", {"messages": messages})
    assert {item["state"] for item in again.json["results"]} == {"duplicate"}
    mixed = []
    for message in messages:
        mixed += [{**message, "taskId": "third"}, {**message, "taskId": "second"}]
    for at in range(0, len(mixed), at_once):
        assert owner.post("eko/callbacks/", mixed[at : at + at_once]).status == 200
    if at_once > 1:
        # A batch whose response was lost is sent again before the next one.
        owner.post("eko/callbacks/", mixed[:at_once])
    for other in ("second", "third"):
        assert {kind: stored for kind, stored in rows(other).items() if kind != "events"} == wanted
    assert {kind: stored for kind, stored in rows(task).items() if kind != "events"} == wanted


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([{"type": "text"}], "messages[0]"),
        ([1], "messages[0]"),
        ({"messages": 1}, "messages"),
        (
            [{"taskId": "t", "agentName": "A", "nodeId": "n", "type": "error", "timestamp": "late"}],
            "messages[0].timestamp",
        ),
    ],
)
def test_other_messages_are_rejected_with_their_field(owner: Caller, body: Any, field: str) -> None:
    sent = owner.post("eko/callbacks/", body)
    assert (sent.status, sent.json["error"]["field"]) == (400, field)
    assert not Session.objects.exists()


def test_debugger_message_ends_the_task(owner: Caller) -> None:
    common = {"taskId": "t", "agentName": "A", "nodeId": "t-00", "timestamp": 1772366400000}
    owner.post(
        "eko/callbacks/",
        [
            {**common, "type": "debug_task_start", "taskPrompt": "Go."},
            {**common, "type": "tool_use", "toolId": "c", "toolName": "x", "params": {}},
            {**common, "type": "debug_tool_call_finished", "toolId": "c", "toolName": "x", "duration": 7},
            {**common, "type": "debug_task_finished", "success": True, "stopReason": "done", "result": "Done."},
        ],
    )
    assert Session.objects.get().status == "completed"
    prompt, run = Message.objects.order_by("pk")
    assert (prompt.content, run.content, run.is_completed) == ("Go.", "Done.", True)
    assert ToolCall.objects.get().duration_ms == 7


def test_files_progress_and_debugger_facts_are_kept(owner: Caller) -> None:
    planner = {"taskId": "t", "agentName": "Planer", "timestamp": 1772366400000}
    agent = {"taskId": "t", "agentName": "Draw", "nodeId": "t-00", "timestamp": 1772366401000}
    call = {**agent, "toolCallId": "c", "toolName": "render"}
    picture = "iVBORw0KGgo" + "A" * 5000
    first = [{"role": "system", "content": "You draw."}, {"role": "user", "content": "A house."}]
    then = [*first, {"role": "assistant", "content": "Rendering."}]
    prompts = {"systemPrompt": "You plan.", "userPrompt": "A house."}
    known = [
        {**planner, "type": "debug_task_start", "taskPrompt": "A house."},
        {**planner, "type": "debug_plan_start", "taskPrompt": "A house.", "plannerPrompt": prompts, "availableAgents": ["Draw"]},
        {**planner, "type": "debug_llm_request_start", "modelName": "gpt", "request": {"messages": first[1:]}, "streamId": "p"},
        {**planner, "type": "debug_plan_process", "streamDone": False, "partialWorkflow": {"name": "Ho"}},
        {**planner, "type": "debug_plan_finished", "workflow": {"name": "House"}},
        {**planner, "type": "debug_workflow_start", "workflow": {"name": "House"}, "agentTree": {"type": "normal"}},
        {**agent, "type": "agent_start"},
        {**agent, "type": "debug_agent_process", "loopNum": 0, "maxReactNum": 500, "currentMessages": first},
        {**agent, "type": "debug_llm_request_start", "modelName": "gpt", "request": {"messages": first, "tools": []}, "streamId": "1",
         "context": {"messageCount": 2, "toolCount": 0}},
        {**agent, "type": "raw", "rawValue": {"delta": "Ren"}},
        {**agent, "type": "text", "streamId": "1", "streamDone": True, "text": "Rendering."},
        {**agent, "type": "file", "mimeType": "image/png", "data": picture},
        {**call, "type": "tool_use", "params": {"what": "house"}},
        {**agent, "type": "finish", "finishReason": "tool-calls", "usage": {"promptTokens": 9, "completionTokens": 4}},
        {**call, "type": "tool_running", "text": "half", "streamId": "r", "streamDone": False},
        {**call, "type": "tool_running", "text": "half done", "streamId": "r", "streamDone": True},
        {**call, "type": "tool_result", "params": {"what": "house"}, "toolResult": {"content": [{"type": "text", "text": "ok"}]}},
        {**agent, "type": "debug_llm_request_start", "modelName": "gpt", "request": {"messages": then}, "streamId": "2"},
        {**agent, "type": "text", "streamId": "2", "streamDone": True, "text": "Done."},
        {**agent, "type": "finish", "finishReason": "stop", "usage": {"promptTokens": 12, "completionTokens": 2}},
        {**agent, "type": "debug_agent_finished", "executionStats": {"loopCount": 2, "duration": 40}},
        {**agent, "type": "agent_result", "result": "A house."},
        {**planner, "type": "debug_task_finished", "success": True, "stopReason": "done", "result": "A house."},
    ]  # fmt: skip
    sent = owner.post("eko/callbacks/", known)
    assert (sent.status, sent.json["ignored"]) == (200, 2)
    again = owner.post("eko/callbacks/", known[5:])
    assert {item["state"] for item in again.json["results"]} == {"duplicate"}

    def data(type_: str, name: str) -> list[Any]:
        values = owner.get(f"sessions/t/events/?type={type_}&limit=1000").results
        return [item["data"][name] for item in values if name in item["data"]]

    def whole(ref: str) -> dict[str, Any]:
        values: dict[str, Any] = owner.get(f"sessions/t/contexts/{ref}/").json
        return values

    assert [whole(ref)["text"] for ref in data("prompt_build", "contextRef")] == ["You plan.", "A house."]
    assert [whole(ref)["conversation"] for ref in data("llm_request_start", "contextRef")] == [first[1:], first, then]
    assert [whole(ref)["conversation"] for ref in data("agent_start", "contextRef")] == [first]
    assert Context.objects.filter(kind="entry").count() == 3
    assert data("llm_request_start", "raw") == [{"delta": "Ren"}]
    assert data("tool_call_start", "progress") == ["half done"]
    assert data("agent_complete", "executionStats") == [{"loopCount": 2, "duration": 40}]
    assert data("workflow_execute_start", "agentTree") == [{"type": "normal"}]
    assert data("workflow_plan_start", "availableAgents") == [["Draw"]]
    assert data("llm_request_complete", "file") == []
    (file,) = data("llm_request_complete", "contextRefs")
    assert (whole(file["file"]["contextRef"])["value"], file["file"]["bytes"]) == (picture, len(picture) + 2)
    assert list(AgentStep.objects.order_by("ordinal").values_list("thought", "model", "agent_name")) == [
        ("Rendering.", "gpt", "Draw"), ("Done.", "gpt", "Draw"),
    ]  # fmt: skip
    assert ToolCall.objects.get().status == "success"
    session = Session.objects.get()
    assert (session.status, session.title, session.input_tokens) == ("completed", "House", 21)
    assert Message.objects.get(role="assistant").content == "A house."
