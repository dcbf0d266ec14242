"""Messages, results of tasks and states of AutoGen's AgentChat."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import autogen
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    lines,
    mangled,
    messages_of,
    only,
    read,
    steps,
)


def message(kind: str, source: str, content: Any, second: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"id-{kind}-{second}",
        "source": source,
        "models_usage": None,
        "metadata": {},
        "created_at": f"2026-03-01T12:00:{second:02}Z",
        "content": content,
        "type": kind,
        **fields,
    }


def call(own: str, city: str) -> dict[str, Any]:
    return {"id": own, "name": "get", "arguments": f'{{"city": "{city}"}}'}


def result(own: str, output: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"call_id": own, "name": "get", "content": output, "is_error": is_error}


USAGE = {"prompt_tokens": 90, "completion_tokens": 9}
WHOLE = [
    message("TextMessage", "user", "Is it warm?"),
    message("SelectorEvent", "manager", "clerk", 1),
    message("ThoughtEvent", "clerk", "Two cities.", 2),
    message("ToolCallRequestEvent", "clerk", [call("c1", "Oslo"), call("c2", "Rome")], 2, models_usage=USAGE),
    message("ToolCallExecutionEvent", "clerk", [result("c1", "12 degrees"), result("c2", "no station", is_error=True)], 4),
    message("ToolCallSummaryMessage", "clerk", "12 degrees\nno station", 4, tool_calls=[call("c1", "Oslo")], results=[]),
    message("HandoffMessage", "clerk", "To the coder.", 5, target="coder", context=[]),
    message("CodeGenerationEvent", "coder", "```sh\nls\n```", 6, code_blocks=[{"code": "ls", "language": "sh", "packages": []}], retry_attempt=0, models_usage={"prompt_tokens": 50, "completion_tokens": 3}),
    message("CodeExecutionEvent", "coder", "", 7, result={"output": "no such command", "exit_code": 127}, retry_attempt=0),
    message("ModelClientStreamingChunkEvent", "clerk", "Os", 8),
    message("TextMessage", "clerk", "Oslo is.", 9, models_usage={"prompt_tokens": 120, "completion_tokens": 4}),
    message("StopMessage", "TextMention", "'Oslo' was mentioned", 10),
]  # fmt: skip
del WHOLE[8]["content"]
TASK = {"messages": WHOLE, "stop_reason": "Text 'Oslo' mentioned"}


def test_result_of_a_task_gives_expected_records() -> None:
    session = only(autogen, TASK)
    assert (session.title, (session.metadata or {})["stop_reason"]) == ("Is it warm?", "Text 'Oslo' mentioned")
    question, answer, stop = session.messages or []
    assert (question.content, question.created_at) == ("Is it warm?", datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert (answer.content, (answer.metadata or {})["agent_name"]) == ("Oslo is.", "clerk")
    assert (stop.role, stop.content, (stop.metadata or {})["source"]) == (
        "system",
        "'Oslo' was mentioned",
        "TextMention",
    )
    first, summary, handoff, code, last = steps(answer)
    assert (first.thought, first.usage, first.agent_name) == ("Two cities.", USAGE, "clerk")
    assert (summary.thought, summary.tool_calls, handoff.thought) == ("12 degrees\nno station", [], "To the coder.")
    assert (handoff.metadata or {})["target"] == "coder"
    assert (code.agent_name, code.usage, last.usage) == (
        "coder",
        {"prompt_tokens": 50, "completion_tokens": 3},
        {"prompt_tokens": 120, "completion_tokens": 4},
    )
    oslo, rome, shell = calls(session)
    assert (oslo.id, oslo.args, has_failed(oslo), rome.id, has_failed(rome)) == (
        "c1",
        '{"city": "Oslo"}',
        False,
        "c2",
        True,
    )
    assert (shell.name, shell.args, has_failed(shell)) == ("code_execution", {"code": "ls", "language": "sh"}, True)
    assert isinstance(shell.result, records.ToolResult) and shell.result.output == "no such command"


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(autogen, TASK)])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (
        1,
        {"get": 2, "code_execution": 1},
        3,
    )
    assert (counts["errors_by_tool"], counts["calls_without_result"]) == ({"get": 1, "code_execution": 1}, 0)


@pytest.mark.parametrize("document", [WHOLE, lines(WHOLE), [TASK], lines([*WHOLE, TASK])])
def test_every_container_gives_the_same_calls(document: object) -> None:
    found, expected = only(autogen, document), only(autogen, TASK)
    assert [(call.id, call.name, call.status) for call in calls(found)] == [
        (call.id, call.name, call.status) for call in calls(expected)
    ]


def test_thoughts_without_an_answer_and_images_are_kept() -> None:
    image = message("MultiModalMessage", "user", ["What is it?", {"data": "iVBORw0KGgo="}])
    thoughts = [message("ThoughtEvent", "clerk", "A cat?", 1), message("ThoughtEvent", "boss", "A dog?", 2)]
    question, answer = messages_of(autogen, [image, *thoughts])
    assert question.content == [
        "What is it?",
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    assert [step.reasoning_content for step in steps(answer)] == ["A cat?"]
    assert (answer.metadata or {})["reasoning_content"] == "A dog?"


def test_thread_of_a_team_is_read() -> None:
    manager = {
        "type": "RoundRobinManagerState",
        "version": "1.0.0",
        "message_thread": WHOLE,
        "current_turn": 1,
        "next_speaker_index": 0,
    }
    clerk = {
        "type": "ChatAgentContainerState",
        "version": "1.0.0",
        "agent_state": {"type": "AssistantAgentState"},
        "message_buffer": [],
    }
    team = {
        "type": "TeamState",
        "version": "1.0.0",
        "agent_states": {"clerk/1": clerk, "RoundRobinGroupChatManager/1": manager},
    }
    session = only(autogen, team)
    assert [call.name for call in calls(session)] == ["get", "get", "code_execution"]
    assert (session.metadata or {})["current_turn"] == 1
    inner = {"type": "ChatAgentContainerState", "version": "1.0.0", "agent_state": manager}
    assert len(calls(only(autogen, {**team, "agent_states": {"society": inner}}))) == 3


def test_context_of_an_agent_is_read() -> None:
    context = [
        {"type": "SystemMessage", "content": "Be kind."},
        {"type": "UserMessage", "source": "user", "content": "Is it warm?"},
        {"type": "UserMessage", "source": "boss", "content": "Clerk?"},
        {"type": "AssistantMessage", "source": "clerk", "content": [call("c1", "Oslo")], "thought": "Hm."},
        {"type": "FunctionExecutionResultMessage", "content": [result("c1", "12 degrees")]},
        {"type": "AssistantMessage", "source": "clerk", "content": "Yes.", "thought": "So."},
    ]
    state = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": context}}
    session = only(autogen, state)
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("system", "Be kind."),
        ("user", "Is it warm?"),
        ("assistant", "Yes."),
    ]
    boss, clerk = steps((session.messages or [])[2])
    assert (boss.agent_name, boss.thought, clerk.agent_name, clerk.thought) == (
        "boss",
        "Clerk?",
        "clerk",
        "Hm.",
    )
    assert [(call.id, has_failed(call)) for call in calls(session)] == [("c1", False)]
    assert ((session.messages or [])[2].metadata or {})["reasoning_content"] == "So."


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(autogen, [TASK | {"messages": [*WHOLE[:1], 3, {"type": "Odd"}]}, {"a": 1}])
    assert left_out == [
        ("[0].messages[1]", "not an object"),
        ("[0].messages[2]", "the type is 'Odd', which is none of AutoGen's"),
        ("[1]", "neither messages nor a state"),
    ]


@pytest.mark.parametrize("count", [1, *range(4, len(WHOLE) + 1)])
def test_grown_task_keeps_earlier_records(count: int) -> None:
    assert_grows(autogen, {"messages": WHOLE[:count]}, TASK)


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(autogen, TASK)


@given(mangled([TASK, {"type": "TeamState", "version": "1", "agent_states": {"a": {"message_thread": WHOLE}}}]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ()), lines(WHOLE)):
        if autogen.recognises(form):
            read(autogen, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"messages": [{"role": "user", "content": "Hi"}]},
        [{"type": "TextMessage", "text": "Hi"}],
        {"type": "State", "version": 1},
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not autogen.recognises(document)
    assert format_of(document) is not autogen


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(autogen)
