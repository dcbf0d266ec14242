"""OpenHands: the events of its generations, the wrappings they come in, and the counts of real files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import openhands
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_no_other,
    calls,
    counted,
    figures,
    lines,
    load,
    mangled,
    only,
    read,
    steps,
)

SYSTEM = {"id": 0, "source": "agent", "action": "system", "args": {"content": "You code.", "tools": [{"name": "x"}]}}
ASKED = {
    "id": 1,
    "timestamp": "2025-01-20T20:29:13.5",
    "source": "user",
    "message": "Fix it",
    "action": "message",
    "args": {"content": "Fix it", "image_urls": ["data:image/png;base64,AA=="], "wait_for_response": False},
}
STATE = {
    "id": 2,
    "source": "environment",
    "observation": "agent_state_changed",
    "content": "",
    "extras": {"agent_state": "running"},
}


def metadata(call_id: str, name: str, arguments: str = "{}", response: str = "r1", **fields: Any) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {
        "function_name": name,
        "tool_call_id": call_id,
        "total_calls_in_response": 1,
        "model_response": {
            "id": response,
            "model": "m-1",
            "choices": [{"message": {"role": "assistant", "content": "I look.", "tool_calls": [call]}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        },
        **fields,
    }


RUN = {
    "id": 3,
    "timestamp": "2025-01-20T20:29:15",
    "source": "agent",
    "action": "run",
    "tool_call_metadata": metadata("c1", "execute_bash", '{"command": "ls"}'),
    "args": {"command": "ls", "thought": "I look.", "confirmation_state": "confirmed"},
    "timeout": 120,
}
RAN = {
    "id": 4,
    "timestamp": "2025-01-20T20:29:16",
    "source": "agent",
    "cause": 3,
    "observation": "run",
    "tool_call_metadata": metadata("c1", "execute_bash"),
    "content": "no such file",
    "extras": {"command": "ls", "metadata": {"exit_code": 2}},
    "success": False,
}
SAID = {"id": 5, "source": "agent", "action": "message", "args": {"content": "Done.", "wait_for_response": True}}
EVENTS = [SYSTEM, ASKED, STATE, RUN, RAN, SAID]


def test_action_is_step_and_observation_its_result() -> None:
    session = only(openhands, EVENTS)
    system, question, answer = session.messages or []
    assert (system.role, system.content, system.metadata) == ("system", "You code.", {"tools": [{"name": "x"}]})
    assert question.content == [
        {"type": "text", "text": "Fix it"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    assert (question.created_at, question.health) == (
        datetime(2025, 1, 20, 20, 29, 13, 500000, tzinfo=UTC),
        ["naive_time"],
    )
    assert (answer.external_id, answer.content) == ("3", "Done.")
    (step,) = steps(answer)
    assert (step.thought, step.model, step.usage, step.metadata) == (
        "I look.",
        "m-1",
        {"prompt_tokens": 9, "completion_tokens": 2},
        {"timeout": 120, "response_id": "r1"},
    )
    (call,) = step.tool_calls or []
    assert (call.id, call.name, call.args, call.status) == ("c1", "execute_bash", '{"command": "ls"}', "error")
    assert call.metadata == {
        "action": "run",
        "action_args": {"command": "ls", "confirmation_state": "confirmed"},
    }
    assert isinstance(call.result, records.ToolResult)
    assert (call.result.output, call.result.data) == ("no such file", RAN["extras"])
    assert (session.metadata or {})["events"] == [STATE]


def test_tokens_of_one_response_are_counted_once() -> None:
    second = RUN | {"id": 6, "tool_call_metadata": metadata("c2", "execute_bash")}
    (_system, _question, answer) = only(openhands, [*EVENTS, second]).messages or []
    assert [step.usage for step in steps(answer) if step.tool_calls] == [
        {"prompt_tokens": 9, "completion_tokens": 2},
        None,
    ]


@pytest.mark.parametrize(
    ("observation", "failed"),
    [
        ({"observation": "run", "content": "ok", "extras": {"metadata": {"exit_code": 0}}}, False),
        ({"observation": "run", "content": "ok", "extras": {"exit_code": 1}}, True),
        ({"observation": "run", "content": "ok", "exit_code": 1}, True),
        ({"observation": "edit", "content": "Error: this is what the file says", "extras": {}}, False),
        ({"observation": "error", "content": "Bad path", "extras": {"error_id": "E"}}, True),
        ({"observation": "user_rejected", "content": "No", "extras": {}}, True),
        ({"observation": "browse", "content": "about:blank", "extras": {"error": True, "url": "about:blank"}}, True),
        ({"observation": "browse", "content": "a page", "extras": {"error": False}}, False),
    ],
)
def test_observation_type_or_exit_code_decides_status(observation: dict[str, Any], failed: bool) -> None:
    (call,) = calls(only(openhands, [ASKED, RUN, {"id": 4, "source": "environment", "cause": 3, **observation}]))
    assert (call.id, call.status) == ("c1", "error" if failed else "success")


def test_error_without_call_is_error_of_the_message() -> None:
    error = {"id": 9, "source": "environment", "observation": "error", "content": "LLM is gone", "extras": {}}
    stopped = {"id": 10, "observation": "agent_state_changed", "content": "", "extras": {"agent_state": "error"}}
    session = only(openhands, [ASKED, error, stopped])
    assert (session.status, (session.messages or [])[1].error) == ("error", "LLM is gone")


def test_delegate_steps_are_below_delegating_call() -> None:
    delegate = RUN | {
        "id": 10,
        "action": "delegate",
        "tool_call_metadata": metadata("d1", "delegate_to_browser"),
        "args": {"agent": "Browser", "inputs": {}},
    }
    below = RUN | {"id": 11, "tool_call_metadata": metadata("d2", "browse", response="r3")}
    ended = {"id": 12, "source": "agent", "cause": 10, "observation": "delegate", "content": "seen", "extras": {}}
    after = RUN | {"id": 13, "tool_call_metadata": metadata("d3", "execute_bash", response="r4")}
    (_question, answer) = only(openhands, [ASKED, delegate, below, ended, after]).messages or []
    actual = [(step.agent_name, call.id, call.parent) for step in steps(answer) for call in step.tool_calls or ()]
    assert sorted(actual, key=str) == sorted([(None, "d1", None), ("Browser", "d2", "d1"), (None, "d3", None)], key=str)


# --- Older and other wrappings ------------------------------------------------------------------------------------------

OLD_ASKED = {"content": "Fix it", "images_urls": None, "wait_for_response": False, "action": "message"}
OLD_RUN = {"command": "ls", "thought": "I look.", "action": "run", "is_confirmed": "confirmed"}
OLD_RAN = {"content": "a.py", "command_id": -1, "command": "ls", "exit_code": 0, "observation": "run"}
OLD_DONE = {"outputs": {}, "thought": "All is well.", "action": "finish"}


@pytest.mark.parametrize(
    "history", [[OLD_ASKED, OLD_RUN, OLD_RAN, OLD_DONE], [[OLD_ASKED], [OLD_RUN, OLD_RAN], [OLD_DONE]]]
)
def test_actions_without_function_calling_are_calls(history: list[Any]) -> None:
    document = {
        "instance_id": "x__x-1",
        "history": history,
        "metrics": {"cost": 1},
        "error": None,
        "issue": {"title": "Bug"},
    }
    session = only(openhands, document)
    assert (session.external_id, session.title) == ("x__x-1", "Bug")
    question, answer = session.messages or []
    assert (question.role, question.content, answer.content) == ("user", "Fix it", "All is well.")
    (call,) = calls(session)
    assert (call.id, call.name, call.args, call.status) == (
        None,
        "run",
        {"command": "ls", "is_confirmed": "confirmed"},
        "success",
    )
    assert [step.thought for step in steps(answer)] == ["I look."]
    assert (session.metadata or {})["metrics"] == {"cost": 1}


def test_lines_are_evaluations_or_events() -> None:
    evaluations = lines([{"instance_id": "a", "history": EVENTS}, {"instance_id": "b", "history": [], "error": "boom"}])
    sessions, left_out = read(openhands, evaluations)
    assert [session.external_id for session in sessions] == ["a"]
    assert left_out == [("line 2", "no messages or actions")]
    assert only(openhands, lines(EVENTS)).messages == only(openhands, EVENTS).messages
    assert only(openhands, {"trajectory": EVENTS}).messages == only(openhands, EVENTS).messages


def test_failed_evaluation_is_a_failed_session() -> None:
    assert only(openhands, {"history": EVENTS, "error": "RuntimeError"}).status == "error"


# --- The SDK ------------------------------------------------------------------------------------------------------------

SDK: list[dict[str, Any]] = [
    {"kind": "SystemPromptEvent", "id": "e0", "source": "agent", "system_prompt": {"type": "text", "text": "You code."}, "tools": [{"title": "terminal"}]},
    {"kind": "MessageEvent", "id": "e1", "timestamp": "2025-11-01T10:00:00", "source": "user", "llm_message": {"role": "user", "content": [{"type": "text", "text": "Fix it"}]}},
    {"kind": "ActionEvent", "id": "e2", "timestamp": "2025-11-01T10:00:02", "source": "agent", "thought": [{"type": "text", "text": "I look."}], "reasoning_content": None, "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}], "action": {"kind": "TerminalAction", "command": "ls"}, "tool_name": "terminal", "tool_call_id": "c1", "tool_call": {"id": "c1", "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}, "llm_response_id": "r1", "security_risk": "LOW"},
    {"kind": "ActionEvent", "id": "e3", "timestamp": "2025-11-01T10:00:02", "source": "agent", "thought": [], "action": None, "tool_name": "nope", "tool_call_id": "c2", "tool_call": {"id": "c2", "name": "nope", "arguments": "{"}, "llm_response_id": "r1"},
    {"kind": "ObservationEvent", "id": "e4", "timestamp": "2025-11-01T10:00:03", "source": "environment", "tool_name": "terminal", "tool_call_id": "c1", "action_id": "e2", "observation": {"kind": "TerminalObservation", "content": [{"type": "text", "text": "a.py"}, {"type": "image", "image_urls": ["data:image/png;base64,AA=="]}], "is_error": False, "exit_code": 0}},
    {"kind": "AgentErrorEvent", "id": "e5", "source": "agent", "tool_name": "nope", "tool_call_id": "c2", "error": "no such tool"},
    {"kind": "ConversationStateUpdateEvent", "id": "e6", "source": "environment", "key": "stats", "value": {"cost": 1}},
    {"kind": "MessageEvent", "id": "e7", "source": "agent", "llm_response_id": "r2", "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "reasoning_content": "Easy."}},
]  # fmt: skip


def test_sdk_events_give_expected_records() -> None:
    session = only(openhands, SDK)
    assert session.external_id == "e0"
    system, question, answer = session.messages or []
    assert (system.content, question.content, answer.content) == ("You code.", "Fix it", "Done.")
    (step,) = steps(answer)
    assert (step.thought, step.reasoning_content) == ("I look.", "Hm.")
    assert step.metadata == {"llm_response_id": "r1", "thinking_blocks": [{"signature": "s"}]}
    item, two = step.tool_calls or []
    assert (item.id, item.name, item.args, item.status) == ("c1", "terminal", '{"command": "ls"}', "success")
    assert (two.id, two.name, two.args, two.status) == ("c2", "nope", "{", "error")
    assert isinstance(item.result, records.ToolResult)
    assert isinstance(two.result, records.ToolResult)
    assert (item.result.output, two.result.output) == ("a.py", "no such tool")
    assert item.result.attachments == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    assert (session.metadata or {})["events"] == [SDK[6]]
    assert "import_digests" not in (session.metadata or {})


def test_rejection_and_conversation_error_are_failures() -> None:
    rejected = {
        "kind": "UserRejectObservation",
        "id": "x1",
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": "c1",
        "rejection_reason": "No.",
    }
    broken = {
        "kind": "ConversationErrorEvent",
        "id": "x2",
        "source": "environment",
        "code": "LLMError",
        "detail": "gone",
    }
    session = only(openhands, [*SDK[:3], rejected, broken])
    (call,) = calls(session)
    assert isinstance(call.result, records.ToolResult)
    assert (call.status, call.result.output) == ("error", "No.")
    assert [message.error for message in session.messages or () if message.error] == ["gone"]


def test_calls_of_external_agent_count_once() -> None:
    call = {
        "kind": "ACPToolCallEvent",
        "source": "agent",
        "tool_call_id": "a1",
        "title": "Read file",
        "raw_input": {"path": "a"},
    }
    events = [
        SDK[1],
        call | {"id": "x1", "status": "in_progress"},
        call | {"id": "x2", "status": "completed", "raw_output": "text"},
    ]
    (found,) = calls(only(openhands, events))
    assert (found.name, found.args, found.status) == ("Read file", {"path": "a"}, "success")


# --- Anything -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [EVENTS, SDK], ids=["openhands-ai", "SDK"])
@given(data=st.data())
def test_grown_conversation_keeps_earlier_records(events: list[Any], data: st.DataObject) -> None:
    assert_grows(openhands, events[: data.draw(st.integers(2, len(events)))], events)


@given(
    st.one_of(
        mangled(EVENTS), mangled(SDK), mangled([{"instance_id": "a", "history": [[OLD_ASKED], [OLD_RUN, OLD_RAN]]}])
    )
)
def test_read_mangled_document_never_raises(document: object) -> None:
    if openhands.recognises(document):
        for session in read(openhands, document)[0]:
            assert session.external_id


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(openhands, [*EVENTS, 3, {"id": 9, "source": "agent"}])
    assert left_out == [("[6]", "not an object"), ("[7]", "neither an action nor an observation")]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"history": []},
        [{"action": "ls -F", "observation": "a.py"}],
        [{"role": "user", "content": "hi"}],
        {"items": [{"type": "message"}]},
        [{"action": "read", "subject": "Post"}, {"action": "write", "subject": "Post"}],
        [{"id": 1, "timestamp": "2025-01-01T00:00:00Z", "source": "user", "action": "message", "message": "login"}],
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not openhands.recognises(document)


@pytest.mark.parametrize("name", ["basic_gui_mode.json", "wrong_initial_state.json", "resolver_mock_output.jsonl"])
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(f"openhands/{name}")
    document = load(SHARED / "openhands" / name)
    assert format_of(document) is openhands
    sessions, left_out = read(openhands, document)
    assert left_out == []
    if name.startswith("resolver"):
        # The count uses the metadata of function calling, which these runs lack; it has their actions separately.
        expected |= {"user": 2, "tool_calls_by_name": {"run": 3, "run_ipython": 21}, "tool_results": 24}
    assert figures(sessions) == expected


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(openhands, "openhands")
