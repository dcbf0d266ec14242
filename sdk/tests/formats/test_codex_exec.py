"""Output of `codex exec --json`: items in all states, tokens of turns, several runs, and growth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import codex_exec
from tracesite_sdk.formats.registry import format_of

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    has_failed,
    lines,
    mangled,
    only,
    read,
    steps,
)

START = {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"}
TURN = {"type": "turn.started"}


def item(state: str, number: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{state}", "item": {"id": f"item_{number}", "type": kind, **fields}}


def command(
    state: str, number: int, line: str, status: str, code: int | None = None, output: str = ""
) -> dict[str, Any]:
    return item(state, number, "command_execution", command=line, aggregated_output=output, exit_code=code, status=status)  # fmt: skip


SEARCH = {"server": "docs", "tool": "search", "arguments": {"q": "x"}}
FOUND = {"content": [{"type": "text", "text": "Two pages"}], "structured_content": {"count": 2}}
TASKS = [{"text": "Look", "completed": True}, {"text": "Mend", "completed": False}]
CHANGES = [{"path": "a.py", "kind": "update"}]
AGENTS = {"t-2": {"status": "running", "message": None}}
WHOLE: list[dict[str, Any]] = [
    START,
    TURN,
    item("completed", 0, "error", message="The model is not known"),
    item("completed", 1, "reasoning", text="**Looking**"),
    item("completed", 2, "agent_message", text="I look."),
    command("started", 3, "bash -lc ls", "in_progress"),
    command("started", 4, "bash -lc make", "in_progress"),
    command("completed", 4, "bash -lc make", "completed", 2, "2 failed\n"),
    command("completed", 3, "bash -lc ls", "completed", 0, "a.py\n"),
    item("started", 5, "todo_list", items=[{"text": "Look", "completed": False}]),
    item("updated", 5, "todo_list", items=TASKS),
    item("completed", 6, "reasoning", text="**Asking**"),
    item("started", 7, "mcp_tool_call", **SEARCH, result=None, error=None, status="in_progress"),
    item("completed", 7, "mcp_tool_call", **SEARCH, result=FOUND, error=None, status="completed"),
    item("started", 8, "mcp_tool_call", **SEARCH, result=None, error=None, status="in_progress"),
    item("completed", 8, "mcp_tool_call", **SEARCH, result=None, error={"message": "no server"}, status="failed"),
    item("completed", 9, "file_change", changes=CHANGES, status="completed"),
    command("completed", 10, "rm -r .", "declined"),
    item("completed", 11, "web_search", query="how", action={"type": "search", "query": "how"}),
    item("started", 12, "collab_tool_call", tool="spawn_agent", sender_thread_id="t-1", receiver_thread_ids=[], prompt="Help", agents_states={}, status="in_progress"),
    item("completed", 12, "collab_tool_call", tool="spawn_agent", sender_thread_id="t-1", receiver_thread_ids=["t-2"], prompt="Help", agents_states=AGENTS, status="completed"),
    command("started", 13, "sleep 99", "in_progress"),
    {"type": "error", "message": "Reconnecting... 1/5"},
    item("completed", 14, "agent_message", text="Mended."),
    item("completed", 5, "todo_list", items=TASKS),
    {"type": "turn.completed", "usage": {"input_tokens": 900, "cached_input_tokens": 700, "output_tokens": 60, "reasoning_output_tokens": 20}},
]  # fmt: skip


def test_full_run_gives_expected_records() -> None:
    session = only(codex_exec, lines(WHOLE))
    assert (session.external_id, (session.metadata or {})["todo_list"]) == (START["thread_id"], TASKS)
    said = [(message.role, message.content) for message in session.messages or ()]
    assert said == [("system", "The model is not known"), ("assistant", "Mended."), ("system", "Reconnecting... 1/5")]
    answer = (session.messages or [])[1]
    assert Counter(call.name for call in calls(session)) == {"exec_command": 4, "mcp__docs__search": 2, "apply_patch": 1, "web_search": 1, "spawn_agent": 1}  # fmt: skip
    assert [(call.id, call.status) for call in calls(session)] == [
        ("item_3", "success"),
        ("item_4", "error"),
        ("item_7", "success"),
        ("item_8", "error"),
        ("item_9", "success"),
        ("item_10", "error"),
        ("item_11", "success"),
        ("item_12", "success"),
        ("item_13", "pending"),
    ]
    assert [has_failed(call) for call in calls(session)].count(True) == 3
    first, second, *_others, last = steps(answer)
    assert (first.thought, first.reasoning_content, len(first.tool_calls or ())) == ("I look.", "**Looking**", 2)
    assert (second.thought, second.reasoning_content) == (None, "**Asking**")
    # The tokens of all requests, once.
    assert [step.usage for step in steps(answer) if step.usage] == [last.usage]
    assert last.usage == {"input_tokens": 900, "cached_input_tokens": 700, "output_tokens": 60, "reasoning_output_tokens": 20}  # fmt: skip
    found = {call.id: call for call in calls(session)}
    results = [found[f"item_{number}"].result for number in (4, 7, 8, 12)]
    assert [isinstance(result, records.ToolResult) and (result.output, result.error, result.data) for result in results] == [
        ("2 failed\n", None, None),
        ("Two pages", None, {"count": 2}),
        ("", "no server", None),
        ("", None, AGENTS),
    ]  # fmt: skip
    assert [found[f"item_{number}"].args for number in (3, 7, 9, 11)] == [
        {"command": "bash -lc ls"},
        {"q": "x"},
        {"changes": CHANGES},
        {"query": "how", "action": {"type": "search", "query": "how"}},
    ]


def test_failed_turn_is_an_error_of_the_message() -> None:
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected"}}
    session = only(codex_exec, lines([START, TURN, WHOLE[5], failed]))
    (answer,) = session.messages or []
    assert (answer.content, answer.error, session.status) == (None, "stream disconnected", "error")
    assert [call.status for call in calls(session)] == ["pending"]


def test_tokens_of_a_turn_without_an_answer_are_kept() -> None:
    (answer,) = only(codex_exec, lines([*WHOLE[:2], WHOLE[9], WHOLE[16], WHOLE[-1]])).messages or []
    assert [(step.usage or {}).get("input_tokens") for step in steps(answer)] == [None, 900]


def test_each_run_of_a_file_is_a_session() -> None:
    done = item("completed", 0, "agent_message", text="Again.")
    sessions, left_out = read(codex_exec, lines([{"type": "turn.started"}, *WHOLE, START, done, {**START, "thread_id": "t-9"}]))  # fmt: skip
    assert [session.external_id for session in sessions] == [START["thread_id"]] * 2
    assert left_out == [("line 1", "before the start of a run"), ("thread t-9", "no user or assistant message")]


def test_items_that_are_not_read_are_counted() -> None:
    odd = [item("completed", 1, "plan", text="x"), {"type": "item.plan.delta", "delta": "x"}, {"a": 1}, 3]
    _sessions, left_out = read(codex_exec, lines([*WHOLE, *odd]))
    assert left_out == [
        ("line 30", "not an object"),
        ("(all)", "not part of the conversation, item plan: 1 line"),
        ("(all)", "not part of the conversation, item.plan.delta: 1 line"),
        ("(all)", "not part of the conversation, no type: 1 line"),
    ]


def test_call_is_made_once_however_often_it_is_written() -> None:
    twice = [*WHOLE[:9], WHOLE[6], WHOLE[7], WHOLE[4], *WHOLE[9:]]
    assert [call.id for call in calls(only(codex_exec, lines(twice)))] == [f"item_{number}" for number in (3, 4, 7, 8, 9, 10, 11, 12, 13)]  # fmt: skip


WITHIN_A_RESPONSE = 5
"""A reply whose calls follow: as the answer of the message it has its reasoning there."""


@pytest.mark.parametrize("count", [count for count in range(3, len(WHOLE)) if count != WITHIN_A_RESPONSE])
def test_grown_run_keeps_earlier_records(count: int) -> None:
    assert_grows(codex_exec, lines(WHOLE[:count]), lines(WHOLE))


def test_value_of_any_type_is_read_in_any_place() -> None:
    assert_takes_any_type(codex_exec, WHOLE)


@given(mangled(WHOLE))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document) if isinstance(document, list) else None):
        if codex_exec.recognises(form):
            read(codex_exec, form)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        lines([]),
        lines([{"type": "thread.started"}]),
        lines([{"id": "0", "msg": {"type": "task_started"}}]),
        lines([{"type": "response.created", "response": {"id": "r"}}]),
        lines([{"method": "item/completed", "params": {"item": {"id": "item_0", "type": "agentMessage"}}}]),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not codex_exec.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(codex_exec)
    assert format_of(lines(WHOLE)) is codex_exec
