"""What failed: a run with an error from which it did not recover, and a tool with its reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from sdk.tests.spans.test_pairs import agent, chat, part, span, tool
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span, SpanEvent


def failed(one: Span, status: str = "", **exception: str) -> Span:
    events = (
        [SpanEvent(name="exception", attributes={f"exception.{k}": v for k, v in exception.items()})]
        if exception
        else []
    )
    return replace(one, status="error", status_message=status, events=events)


def answer_of(*spans: Span) -> records.Message:
    session = normalise(session_of_trace(spans), now=datetime(2026, 12, 1, tzinfo=UTC))
    assert session == normalise(session_of_trace(spans[::-1]), now=datetime(2026, 12, 1, tzinfo=UTC))
    (answer,) = (message for message in session.messages or () if message.role == "assistant")
    return answer


ROOT = span(1, 0, 0, "main", 90)
ASKING = chat(2, 1, 1, part({}, "c"))
FAILED_TOOL = failed(tool(3, 1, 2, None, {}, "c"), "no seats")
ANSWER = chat(4, 1, 3)


@pytest.mark.parametrize("around", [[ROOT], [agent(1)], []], ids=["root", "agent", "nothing"])
@pytest.mark.parametrize(
    ("spans", "error"),
    [
        pytest.param([ASKING, FAILED_TOOL, ANSWER], None, id="tool"),
        pytest.param([failed(chat(2, 1, 1), "429"), chat(3, 1, 2)], None, id="request made again"),
        pytest.param([failed(chat(2, 1, 1), "429"), failed(chat(3, 1, 2), "429"), chat(4, 1, 3)], None, id="twice"),
        pytest.param([chat(2, 1, 1, part({}, "c")), tool(3, 1, 2, "1", {}, "c"), failed(chat(4, 1, 3), "429")], "429",
                     id="last request"),
    ],
)  # fmt: skip
def test_run_that_recovered_has_not_failed(around: list[Span], spans: list[Span], error: str | None) -> None:
    answer = answer_of(*around, *spans)
    assert answer.error == error
    # The step or the call has the error.
    assert "429" in repr(answer.agent_steps) or "no seats" in repr(answer.agent_steps)


def test_request_of_another_kind_does_not_hide_a_failed_answer() -> None:
    lost = failed(chat(2, 1, 1), "529")
    title = chat(3, 1, 2, {"type": "text", "content": "Seats"}, asked="Name this: Two seats")
    assert answer_of(ROOT, lost, title).error == "529"
    told = [{"role": "user", "parts": [{"type": "text", "content": "Please go on"}]}]
    assert answer_of(ROOT, lost, title, chat(4, 1, 3, told=told)).error is None


@pytest.mark.parametrize("asked", ["Two seats", [{"role": "user", "content": "Two seats"}]])
def test_request_made_again_recovers_in_any_form(asked: Any) -> None:
    values = {"langfuse.observation.type": "generation", "langfuse.observation.input": json.dumps(asked)}
    lost, again = (span(n, 1, n, "ask", **values) for n in (2, 3))
    assert answer_of(ROOT, failed(lost, "529"), again).error is None


def test_tool_after_which_no_model_answered_fails_a_run_without_agent() -> None:
    assert answer_of(ROOT, ASKING, FAILED_TOOL).error == "no seats"
    assert answer_of(failed(agent(1), "stopped"), ASKING, FAILED_TOOL, ANSWER).error == "stopped"


@pytest.mark.parametrize(
    ("one", "error", "output"),
    [
        (failed(tool(3, 1, 2, "half a page"), "Timeout after 30 s"), "Timeout after 30 s", "half a page"),
        (failed(tool(3, 1, 2, '{"rows": 3}'), type="x.Timeout", message="30 s"), "Timeout: 30 s", '{"rows": 3}'),
        (failed(tool(3, 1, 2, None), "Timeout after 30 s"), "Timeout after 30 s", "Timeout after 30 s"),
        (failed(tool(3, 1, 2, "Connection refused")), "Connection refused", "Connection refused"),
    ],
)
def test_error_of_a_failed_tool_is_its_message_and_the_output_stays(one: Span, error: str, output: Any) -> None:
    ((call,),) = [
        step.tool_calls for step in answer_of(agent(1), ASKING, one, ANSWER).agent_steps or () if step.tool_calls
    ]
    assert isinstance(call.result, records.ToolResult)
    assert (call.status, call.result.error, call.result.output) == ("error", error, output)
