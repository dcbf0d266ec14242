"""Histories of AutoGen 0.2 and AG2, runs of Who&When and AgentRx, and logs of Magentic-One."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import autogen_history
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


def said(content: str | None, role: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"content": content, "role": role, **({"name": name} if name else {}), **fields}


def call(own: str, city: str) -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": "get", "arguments": f'{{"city": "{city}"}}'}}


# In the list of who began, its own messages are the assistant's.
AG2 = [
    said("Is it warm?", "assistant", "ada"),
    said("", "user", "clerk", tool_calls=[call("c1", "Oslo"), call("c2", "Rome")]),
    said("12 degrees\n\nError: no station", "tool", "ada", tool_responses=[{"tool_call_id": "c1", "role": "tool", "content": "12 degrees"}, {"tool_call_id": "c2", "role": "tool", "content": "Error: no station"}]),
    said("I count.\n```python\nprint(1)\n```\nand\n```sh\nls\n```", "user", "clerk"),
    said("exitcode: 1 (execution failed)\nCode output: \nno such command", "assistant", "ada"),
    said("Oslo is.", "user", "clerk"),
    said("", "assistant", "ada"),
    said("Thanks", "assistant", "ada"),
    said("TERMINATE", "user", "clerk"),
]  # fmt: skip
RESULT = {
    "chat_id": 7,
    "chat_history": AG2,
    "summary": "Oslo is.",
    "cost": {"usage_including_cached_inference": {"total_cost": 0}},
    "human_input": [],
}
BLAMED = {
    "question": "Which town?",
    "question_ID": "q-1",
    "ground_truth": "Bergen",
    "level": "1",
    "is_correct": False,
    "mistake_agent": "Map_Expert",
    "mistake_step": "1",
    "mistake_reason": "Guessed.",
}
BY_ALGORITHM = {
    **BLAMED,
    "system_prompt": {"Map_Expert": "You know maps."},
    "history": [
        said("Which town? Advice of the manager: look at the map.", "assistant", "Map_Expert"),
        said("```python\nprint('Oslo')\n```", "assistant", "Map_Expert"),
        said("exitcode: 0 (execution succeeded)\nCode output: Oslo", "user", "Computer_terminal"),
        said("There is no code from the last 1 message for me to execute.", "user", "Computer_terminal"),
        said("Oslo. TERMINATE", "assistant", "Map_Expert"),
    ],
}
BY_HAND = {
    **BLAMED,
    "history": [
        said("Which town?", "human"),
        said("Initial plan: ask.", "Orchestrator (thought)"),
        said("Look it up.", "Orchestrator (-> WebSurfer)"),
        said("I clicked.", "WebSurfer"),
        said("Run it:\n```sh\nls\n```", "Assistant"),
        said("Please run the code.", "Orchestrator (-> ComputerTerminal)"),
        said("The script ran, then exited with Unix exit code: 2\nIts output was:\nno", "ComputerTerminal"),
        said("Oslo.", "Orchestrator (final answer)"),
        said("No agent is next.", "Orchestrator (termination condition)"),
    ],
}  # fmt: skip


def logged(kind: str, source: str, message: str, second: int) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T12:00:{second:02}", "source": source, "message": message, "type": kind}


LOG = [
    logged("OrchestrationEvent", "UserProxy", "Which town?", 0),
    {"timestamp": "2026-03-01T12:00:01", "prompt_tokens": 80, "completion_tokens": 8, "type": "LLMCallEvent"},
    logged("OrchestrationEvent", "Orchestrator (thought)", "Ask.", 1),
    logged("OrchestrationEvent", "Orchestrator (-> WebSurfer)", "Look.", 2),
    {**logged("WebSurferEvent", "WebSurfer", "Clicked.", 3), "url": "https://example.org", "action": "click", "arguments": {"id": 3}},
    logged("OrchestrationEvent", "WebSurfer", "Bergen.", 4),
]  # fmt: skip


def test_chat_history_gives_expected_records() -> None:
    session = only(autogen_history, RESULT)
    assert (session.metadata or {})["summary"] == "Oslo is."
    question, answer, thanks, end = session.messages or []
    assert [(message.role, message.content) for message in (question, answer, thanks, end)] == [
        ("user", "Is it warm?"),
        ("assistant", "Oslo is."),
        ("user", "Thanks"),
        ("assistant", "TERMINATE"),
    ]
    asked, counted = steps(answer)
    assert (asked.agent_name, counted.thought) == ("clerk", AG2[3]["content"])
    oslo, rome, code = calls(session)
    assert (oslo.id, oslo.args, has_failed(oslo), rome.id, has_failed(rome)) == (
        "c1",
        '{"city": "Oslo"}',
        False,
        "c2",
        True,
    )
    assert (code.name, code.args, code.status) == (
        "code_execution",
        {"language": "python, sh", "code": "print(1)\n\nls"},
        "error",
    )
    assert isinstance(code.result, records.ToolResult) and code.result.output == "no such command"


@pytest.mark.parametrize("document", [RESULT, AG2, lines(AG2), [RESULT]])
def test_samples_match_counts_made_by_hand(document: object) -> None:
    counts = figures([only(autogen_history, document)])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (
        2,
        {"get": 2, "code_execution": 1},
        3,
    )
    assert (counts["calls_without_result"], counts["results_without_call"]) == (0, 0)


def test_run_by_algorithm_begins_with_the_task() -> None:
    session = only(autogen_history, BY_ALGORITHM)
    assert (session.title, (session.metadata or {})["mistake_step"], (session.metadata or {})["ground_truth"]) == (
        "Which town?",
        "1",
        "Bergen",
    )
    question, answer = session.messages or []
    assert (question.role, answer.content, (answer.metadata or {})["agent_name"]) == (
        "user",
        "Oslo. TERMINATE",
        "Map_Expert",
    )
    code, terminal = steps(answer)
    assert [(call.args, call.status) for call in code.tool_calls or ()] == [
        ({"language": "python", "code": "print('Oslo')"}, "success")
    ]
    assert terminal.agent_name == "Computer_terminal"


@pytest.mark.parametrize("document", [BY_HAND, BY_HAND["history"], [BY_HAND], lines(BY_HAND["history"])])  # type: ignore[call-overload]
def test_roles_with_marks_are_agents(document: object) -> None:
    session = only(autogen_history, document)
    question, answer, end = session.messages or []
    assert (question.content, answer.content, (answer.metadata or {})["mark"]) == (
        "Which town?",
        "Oslo.",
        "final answer",
    )
    assert (end.role, end.content) == ("system", "No agent is next.")
    thought, order, surfer, coder, run = steps(answer)
    assert [step.agent_name for step in (thought, order, surfer, coder, run)] == [
        "Orchestrator",
        "Orchestrator",
        "WebSurfer",
        "Assistant",
        "Orchestrator",
    ]
    assert (thought.thought, thought.reasoning_content, (order.metadata or {})["to"]) == (
        None,
        "Initial plan: ask.",
        "WebSurfer",
    )
    (call,) = calls(session)
    assert (
        call.args,
        call.status,
        (call.result.metadata or {})["exit_code"] if isinstance(call.result, records.ToolResult) else None,
    ) == ({"language": "sh", "code": "ls"}, "error", 2)


def test_log_has_times_and_tokens() -> None:
    session = only(autogen_history, lines(LOG))
    question, answer = session.messages or []
    assert (question.content, question.created_at) == ("Which town?", datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert (answer.content, answer.created_at) == ("Bergen.", datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC))
    assert [step.usage for step in steps(answer)] == [{"prompt_tokens": 80, "completion_tokens": 8}, None, None, None]
    assert [step.agent_name for step in steps(answer)] == [None, "Orchestrator", "Orchestrator", "WebSurfer"]
    assert (steps(answer)[3].metadata or {})["action"] == "click"


def test_code_that_was_not_run_is_no_call() -> None:
    history = [AG2[0], said("```sh\nls\n```", "user", "clerk"), said("```sh\npwd\n```", "user", "clerk"), said("exitcode: 0 (execution succeeded)\nCode output: /", "assistant", "ada")]  # fmt: skip
    _question, answer = messages_of(autogen_history, history)
    assert [call.args["code"] for step in steps(answer) for call in step.tool_calls or ()] == ["pwd"]


def test_exit_code_of_any_length_is_read() -> None:
    history = [*AG2[:4], said(f"exitcode: {'9' * 5_000} (execution failed)\nCode output: no", "assistant", "ada")]
    assert len(messages_of(autogen_history, {**RESULT, "chat_history": history})) == 3


def test_invalid_parts_are_reported_with_their_places() -> None:
    _found, left_out = read(
        autogen_history, [BLAMED | {"history": [*BY_HAND["history"][:1], 3]}, BLAMED | {"history": []}, {"a": 1}]
    )  # type: ignore[index]
    assert left_out == [
        ("[0].history[1]", "not a message"),
        ("[1].history", "no user or assistant message"),
        ("[2]", "no history of AutoGen"),
    ]


# Code becomes a call when it is run.
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 8, 9])
def test_grown_history_keeps_earlier_records(count: int) -> None:
    assert_grows(autogen_history, {**RESULT, "chat_history": AG2[:count]}, RESULT)


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(autogen_history, RESULT)
    assert_takes_any_type(autogen_history, LOG)


@given(mangled([RESULT, BY_ALGORITHM, BY_HAND, LOG]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if autogen_history.recognises(form):
            read(autogen_history, form)


def test_history_with_roles_of_a_chat_is_ours_by_its_names() -> None:
    assert format_of(AG2) is format_of(RESULT) is autogen_history
    without_names = [{key: value for key, value in message.items() if key != "name"} for message in AG2]
    assert not autogen_history.recognises(without_names)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"history": BY_HAND["history"]},
        [said("Hi", "user", "ada"), said("Hello", "assistant", "bot")],
        [said("bio", "assistant", "Ada"), said("bio", "admin", "Bo")],
        [{"timestamp": "2026", "source": "disk", "message": "full", "type": "Warning"}],
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not autogen_history.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(autogen_history)
