"""Traces that lack spans, or have odd times, ids, arguments or repetitions: nothing of them is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import Tokens, tokens_of
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.spans import langsmith_runs
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.span import Span

from .langsmith_wire import MODEL_ID, PATCHES, POSTS, TOOL_ID
from .test_pairs import agent, calls_of, chat, part, span, tool

NOW = datetime(2026, 12, 1, tzinfo=UTC)
BEGAN = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
"""The time of `at=0` in test_pairs.py."""


def session_of(*spans: Span) -> records.Session:
    """Return the session of a trace, the same in any order of a few spans."""
    orders = [*permutations(spans)] if len(spans) < 5 else [spans, spans[::-1]]
    first, *others = [normalise(session_of_trace(order), now=NOW) for order in orders]
    assert all(other == first for other in others)
    return first


def texts_of(session: records.Session) -> list[Any]:
    return [(message.role, message.content) for message in session.messages or ()]


ASKED = [("user", "Two seats"), ("assistant", "Done.")]
ASKING, RESULT, ANSWER = chat(3, 1, 1, part({}, "c")), tool(4, 1, 2, "booked", {}, "c"), chat(5, 1, 3)


@pytest.mark.parametrize(
    "spans",
    [
        [agent(1), replace(ASKING, parent_id="9" * 16), RESULT, ANSWER],
        [agent(1), ASKING, replace(RESULT, parent_id="9" * 16), ANSWER],
        [replace(agent(1), parent_id="9" * 16), ASKING, RESULT, ANSWER],
        [ASKING, RESULT, ANSWER],
    ],
    ids=["above a request", "above a tool", "above the agent", "the agent"],
)
def test_missing_span_hides_no_other(spans: list[Span]) -> None:
    assert texts_of(session_of(*spans)) == ASKED
    (call,) = calls_of(*spans)
    assert isinstance(call.result, records.ToolResult)
    assert (call.id, call.result.output) == ("c", "booked")


@pytest.mark.parametrize("is_agent", [True, False], ids=["agent", "request"])
def test_question_of_a_run_may_stand_above_it(is_agent: bool) -> None:
    without_input = replace(chat(5, 1, 3), attributes={**chat(5, 1, 3).attributes, "gen_ai.input.messages": "[]"})
    root = span(1, 0, 0, "handle", 90, input__value="Two seats")
    below = [agent(2, 1, 1), replace(without_input, parent_id=f"{2:016x}")] if is_agent else [without_input]
    assert texts_of(session_of(root, *below)) == ASKED


def test_sub_agent_that_escaped_its_parent_is_a_run() -> None:
    sub_agent = [agent(7, 0, 2.01, 2.05), chat(8, 7, 2.02, asked="Which seats?")]
    session = session_of(agent(1), ASKING, RESULT, *sub_agent, ANSWER)
    assert texts_of(session) == [*ASKED, ("user", "Which seats?"), ("assistant", "Done.")]


def test_time_of_a_span_without_start_is_that_of_the_first_below_it() -> None:
    session = session_of(replace(agent(1), start=0), ANSWER)
    assert session.created_at == BEGAN + timedelta(seconds=3)
    assert [message.created_at for message in session.messages or ()][:1] == [session.created_at]


@pytest.mark.parametrize(
    ("start", "end", "is_completed"),
    [(0, ANSWER.end, True), (ANSWER.start, 0, False), (ANSWER.end, ANSWER.start, True)],
    ids=["no start", "no end", "the end first"],
)
def test_request_without_two_times_in_order_has_no_duration(start: int, end: int, is_completed: bool) -> None:
    answer = (session_of(agent(1), replace(ANSWER, start=start, end=end)).messages or [])[-1]
    assert (answer.content, answer.is_completed) == ("Done.", is_completed)
    assert [step.duration for step in answer.agent_steps or ()] == [None]


@pytest.mark.parametrize("seconds", [0.5, 60])
def test_tool_with_another_clock_is_the_call_of_its_id(seconds: float) -> None:
    early = replace(RESULT, start=ASKING.start - int(seconds * 10**9), end=ASKING.start - 10**8)
    spans = [agent(1, 0, -90), ASKING, early, ANSWER]
    (call,) = calls_of(*spans)
    assert isinstance(call.result, records.ToolResult)
    assert (call.id, call.result.output) == ("c", "booked")
    assert texts_of(session_of(*spans)) == ASKED


@pytest.mark.parametrize("attributes", [{**ANSWER.attributes, "seat": "1"}, {"gen_ai.operation.name": "chat"}])
def test_span_sent_twice_counts_once_with_all_it_says(attributes: dict[str, Any]) -> None:
    session = session_of(agent(1), ANSWER, replace(ANSWER, attributes=attributes))
    assert texts_of(session) == ASKED
    assert [len(message.agent_steps or ()) for message in session.messages or ()] == [0, 1]


@pytest.mark.parametrize(
    ("args", "kept", "flags"),
    [
        ("two", {"_raw": "two"}, ["invalid_arguments"]),
        ('{"row": 1', {"_raw": '{"row": 1'}, ["invalid_arguments"]),
        ([1], {"_raw": [1]}, []),
        (5, {"_raw": 5}, []),
        (True, {"_raw": True}, []),
        ("null", {}, []),
        ('{"row": 1}', {"row": 1}, []),
    ],
)
def test_arguments_of_any_type_are_kept(args: Any, kept: Any, flags: list[str]) -> None:
    session = session_of(agent(1), chat(2, 1, 1, {"type": "tool_call", "id": "c", "name": "book", "arguments": args}))
    answer = (session.messages or [])[-1]
    assert [call.args for step in answer.agent_steps or () for call in step.tool_calls or ()] == [kept]
    assert list(answer.health or ()) == flags


def test_images_between_texts_stay_in_their_place() -> None:
    parts = [
        {"type": "text", "content": "Which seat is"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBORw0KGgo="},
        {"type": "text", "content": "nearer?"},
    ]
    asked = json.dumps([{"role": "user", "parts": parts}])
    session = session_of(agent(1), replace(ANSWER, attributes={**ANSWER.attributes, "gen_ai.input.messages": asked}))
    question = (session.messages or [])[0]
    shown = question.content_parts or question.content
    assert isinstance(shown, list)
    assert [part.get("text") for part in shown if part.get("type") == "text"] == ["Which seat is", "nearer?"]
    assert [index for index, part in enumerate(shown) if "iVBORw0KGgo=" in json.dumps(part)] == [1]


@pytest.mark.parametrize("length", [201, 512, 600])
def test_long_session_id_is_kept_up_to_512_characters(length: int) -> None:
    named = replace(ANSWER, attributes={**ANSWER.attributes, "gen_ai.conversation.id": "上" * length})
    assert session_of(agent(1), named).external_id == "上" * min(length, 512)


def test_trace_of_plain_spans_belongs_to_its_session() -> None:
    attributes = {"session.id": "talk", "input.value": "Two seats", "output.value": "Done."}
    session = session_of(replace(span(1, 0, 0, "work"), attributes=attributes))
    assert (session.external_id, texts_of(session)) == ("talk", ASKED)


@pytest.mark.parametrize(
    "counts",
    [
        {"input": 110, "output": 5, "input_cached_tokens": 80, "total": 115},
        {"prompt_tokens": 110, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
        {"input_tokens": 110, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 80}, "total_tokens": 115},
    ],
)
def test_cached_tokens_within_the_input_of_langfuse_count_once(counts: dict[str, Any]) -> None:
    attributes = {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": json.dumps(counts)}
    (step,) = (session_of(replace(ANSWER, attributes=attributes)).messages or [])[-1].agent_steps or ()
    assert tokens_of(step.usage) == Tokens(30, 80, 0, 5, 0)


def session_of_runs(posts: list[dict[str, Any]]) -> records.Session:
    decoded = langsmith_runs.decode_batch(json.dumps({"post": posts, "patch": PATCHES}).encode())
    assert decoded.errors == []
    return session_of_trace(merged(decoded.spans))


@pytest.mark.parametrize("order", ["broken", "", "20269999T999999999999Zx", None])
def test_langsmith_run_with_a_broken_order_is_below_its_parent(order: str | None) -> None:
    posts = [{**post, "dotted_order": order} if post["id"] in (MODEL_ID, TOOL_ID) else post for post in POSTS]
    session = session_of_runs(posts)
    assert session == session_of_runs(POSTS)
    calls = [call for message in session.messages or () for step in message.agent_steps or () for call in step.tool_calls or ()]  # fmt: skip
    assert [(call.id, call.name, call.args) for call in calls] == [("c1", "get_weather", {"city": "Oslo"})]
