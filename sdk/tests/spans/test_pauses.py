"""Pauses for a person, and tools that are alone: a call is there once, whoever executes it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sdk.tests.spans.test_failures import failed
from sdk.tests.spans.test_pairs import agent, chat, part, response, span, tool
from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span, SpanEvent

ASKING = chat(2, 1, 1, part({"n": 1}, "c1"))
PAUSES = [
    *({"type": f"langgraph.errors.{name}", "message": "(Interrupt(value='Approve?'),)"}
      for name in ("GraphInterrupt", "NodeInterrupt", "GraphBubbleUp")),
    {"status": "GraphInterrupt: (Interrupt(value='Approve?'),)"},
]  # fmt: skip
TOLD = [{"role": "assistant", "parts": [part({"n": 1}, "c1")]}, response("booked", "c1")]


def messages_of(*spans: Span) -> list[records.Message]:
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    return list(session.messages or ())


def calls_in(messages: list[records.Message]) -> list[tuple[Any, ...]]:
    calls = [call for m in messages for step in m.agent_steps or () for call in step.tool_calls or ()]
    return [(call.id, call.name, call.args, call.result and call.result.output) for call in calls]  # type: ignore[union-attr]


@pytest.mark.parametrize("around", [agent(1, until=5), span(1, 0, 0, "main", 5)], ids=["agent", "root"])
@pytest.mark.parametrize("pause", PAUSES, ids=lambda pause: next(iter(pause.values())))
def test_pause_is_waiting_and_not_an_error(pause: dict[str, str], around: Span) -> None:
    paused = failed(tool(3, 1, 2, None, {"n": 1}, "c1"), **pause)
    found = messages_of(failed(around, **pause), ASKING, paused)
    answer = found[-1]
    assert (answer.is_completed, answer.error, (answer.metadata or {})["waiting"]) == (False, None, True)
    assert calls_in(found) == [("c1", "book", {"n": 1}, None)]
    # It goes on in the same run, or as another run of the trace.
    again = [tool(13, 1, 6, "booked", {"n": 1}, "c1"), chat(14, 1, 7, told=TOLD)]
    same = messages_of(replace(around, end=around.end + 5 * 10**9), ASKING, paused, *again)
    later = [agent(11, 0, 5.5, 9), *(replace(one, parent_id=f"{11:016x}") for one in again)]
    for resumed in (same, messages_of(failed(agent(1, until=5), **pause), ASKING, paused, *later)):
        assert calls_in(resumed) == [("c1", "book", {"n": 1}, "booked")]
        assert all(message.is_completed and not message.error for message in resumed if message.role == "assistant")
        assert not any("waiting" in (message.metadata or {}) for message in resumed)


def test_command_for_the_graph_around_is_no_error_and_no_pause() -> None:
    (_question, answer) = messages_of(agent(1), ASKING, failed(tool(3, 1, 2, None, {}, "c1"), type="ParentCommand"))
    assert (answer.is_completed, answer.error) == (True, None)


def with_exceptions(one: Span, *types: str) -> Span:
    events = [SpanEvent(name="exception", attributes={"exception.type": type_}) for type_ in types]
    return replace(one, status="error", events=events)


@pytest.mark.parametrize(
    "real",
    [
        failed(agent(1), "Could not store the GraphInterrupt"),
        failed(agent(1), "GraphInterrupt is not supported without a checkpointer"),
        failed(agent(1), "GraphInterrupt: not stored", type="ValueError", message="GraphInterrupt: not stored"),
        replace(failed(agent(1), "GraphInterrupt()"), attributes={**agent(1).attributes, "error.type": "ValueError"}),
        with_exceptions(agent(1), "langgraph.errors.GraphInterrupt", "TimeoutError"),
    ],
    ids=["inside", "first word", "type", "error.type", "later exception"],
)
def test_real_error_that_names_a_pause_stays_an_error(real: Span) -> None:
    (_question, answer) = messages_of(real, ASKING)
    assert answer.error
    assert "waiting" not in (answer.metadata or {})


def test_pause_after_another_exception_is_a_pause() -> None:
    assert messages_of(with_exceptions(agent(1), "KeyError", "GraphInterrupt"), ASKING)[-1].error is None


@pytest.mark.parametrize("kind", ["tool-approval-request", "mcp_approval_request"])
def test_answer_that_asks_a_person_is_waiting(kind: str) -> None:
    asking = chat(2, 1, 1, part({}, "c1"), {"type": kind, "approvalId": "a1", "toolCallId": "c1"})
    assert messages_of(agent(1), asking)[-1].is_completed is False
    assert messages_of(agent(1), asking, chat(3, 1, 4))[-1].is_completed is True


@pytest.mark.parametrize("call_id", ["c1", None])
def test_tool_that_is_alone_is_a_call_and_no_conversation(call_id: str | None) -> None:
    (answer,) = messages_of(tool(3, 0, 2, "booked", {"n": 1}, call_id))
    assert (answer.role, answer.content) == ("assistant", None)
    assert calls_in([answer]) == [(call_id or f"{3:016x}", "book", {"n": 1}, "booked")]


def test_root_around_tools_only_asks_and_answers() -> None:
    root = span(1, 0, 0, "main", 9, input__value="How warm?", output__value="31 degrees")
    found = messages_of(root, tool(2, 1, 1, "31", {"n": 1}))
    assert [(message.role, message.content) for message in found] == [
        ("user", "How warm?"),
        ("assistant", "31 degrees"),
    ]


def test_tool_after_its_run_is_the_call_of_the_run() -> None:
    found = messages_of(agent(1, 0, 0, 5), ASKING, chat(4, 1, 4, told=TOLD), tool(5, 0, 6, "booked", {"n": 1}, "c1"))
    assert [message.role for message in found] == ["user", "assistant"]
    assert calls_in(found) == [("c1", "book", {"n": 1}, "booked")]


BOOKED = tool(13, 11, 12, "booked", {"n": 1}, "c1")


@pytest.mark.parametrize(
    ("others", "calls"),
    [
        ([tool(13, 11, 12, "warm", {"n": 1}, "c1", "search")], 2),
        ([tool(13, 11, 12, "booked", {"n": 2}, "c1")], 2),
        ([replace(BOOKED, start=ASKING.start - 10**9, end=ASKING.start)], 2),
        ([BOOKED, agent(21, 0, 20, 25), tool(23, 21, 22, "booked", {"n": 1}, "c1")], 3),
        ([BOOKED, agent(21, 0, 20, 25), chat(22, 21, 21, part({"n": 1}, "c1"), asked="Again")], 3),
    ],
    ids=["name", "arguments", "earlier", "executed twice", "requested twice"],
)
def test_call_does_not_get_the_result_of_another_run(others: list[Span], calls: int) -> None:
    found = calls_in(messages_of(agent(1, until=5), ASKING, chat(4, 1, 4), agent(11, 0, 10, 15), *others))
    assert len(found) == calls
    assert [result for *_call, result in found].count(None) == calls - sum("tool" in one.name for one in others)


def test_tool_of_a_later_run_without_arguments_has_the_call_of_its_id() -> None:
    later = [agent(11, 0, 5.5, 9), tool(13, 11, 6, "booked", None, "c1"), chat(14, 11, 7, told=TOLD)]
    assert calls_in(messages_of(agent(1, until=5), ASKING, *later)) == [("c1", "book", {"n": 1}, "booked")]
