"""Arbitrary events of Langfuse: each is decoded or refused, and read in any order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import Tokens, tokens_of
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.langfuse_events import OBSERVATIONS, Item, decode_batch
from tracesite_sdk.spans.span import LogRecord, Span

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
IDS = st.sampled_from(["a", "b", "c", "0" * 32, "0" * 16, "00000000-0000-0000-0000-000000000000"]) | JSON

TIMES = (
    st.sampled_from(
        ["2026-11-20T10:00:01.500Z", "2026-11-20T10:00:09.500Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"]
    )
    | JSON
)

TYPES = [f"{kind}-{operation}" for kind in (*sorted(OBSERVATIONS), "observation") for operation in ("create", "update")]
BODIES = st.fixed_dictionaries(
    {"id": IDS},
    optional={
        **dict.fromkeys(("traceId", "parentObservationId", "observationId", "sessionId"), IDS),
        **dict.fromkeys(("startTime", "endTime", "timestamp", "completionStartTime"), TIMES),
        **dict.fromkeys(
            ("name", "input", "output", "metadata", "usage", "usageDetails", "model", "tags", "type"), JSON
        ),
        "level": st.sampled_from(["ERROR", "DEFAULT"]) | JSON,
    },
)
BATCHES = st.lists(
    st.fixed_dictionaries(
        {"id": JSON, "type": st.sampled_from([*TYPES, "trace-create", "score-create"]) | JSON, "timestamp": TIMES},
        optional={"body": BODIES | JSON},
    ),
    max_size=5,
)


def spans_in(items: list[Item]) -> list[Span]:
    return [item.delivery for item in items if isinstance(item.delivery, Span)]


@given(batch=BATCHES)
def test_any_event_is_decoded_and_read(batch: list[dict[str, Any]]) -> None:
    items = decode_batch(json.dumps({"batch": batch}).encode())
    assert len(items) == len(batch)
    assert all((item.error is None) or (item.delivery is None) for item in items)
    for item in items:
        if isinstance(item.delivery, Span | LogRecord):
            assert (len(item.delivery.trace_id), len(item.delivery.span_id)) == (32, 16)
            assert item.delivery.trace_id.strip("0")
            assert item.delivery.span_id.strip("0")
    for trace_id in {span.trace_id for span in spans_in(items)}:
        of_trace = [span for span in spans_in(items) if span.trace_id == trace_id]
        assert session_of_trace(of_trace) == session_of_trace(of_trace[::-1])


def step_with(usage: dict[str, Any]) -> records.AgentStep:
    body = {"id": "g", "traceId": "t", "model": "text-bison", "input": "Hi", "output": "Ho", "usage": usage}
    event = {"id": "1", "type": "generation-create", "timestamp": "2026-11-20T10:00:00Z", "body": body}
    spans = spans_in(decode_batch(json.dumps({"batch": [event]}).encode()))
    [step] = (session_of_trace(spans).messages or ())[-1].agent_steps or ()
    return step


def test_cached_tokens_of_an_older_usage_are_counted() -> None:
    usage = {"prompt_tokens": 110, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
    assert tokens_of(step_with(usage).usage) == Tokens(30, 80, 0, 5, 0)


@pytest.mark.parametrize("unit", [None, "TOKENS", "tokens", "CHARACTERS", "SECONDS"])
def test_counts_in_another_unit_are_no_tokens(unit: str | None) -> None:
    usage = {"input": 400, "output": 20, "total": 420, "totalCost": 0.5, "unit": unit}
    names = ("input", "output", "total")
    is_tokens = unit is None or unit.upper() == "TOKENS"
    ending = "_tokens" if is_tokens else f"_{str(unit).lower()}"
    assert step_with(usage).usage == {
        **dict(zip([name + ending for name in names], (400, 20, 420), strict=True)),
        "cost": 0.5,
    }


TRACE_BODY = {"id": "t", "timestamp": "2026-11-20T10:00:00Z", "name": "chat"}
ROOT = {"id": "r", "traceId": "t", "name": "answer", "input": "Where?", "output": "In Oslo."}
GENERATION = {"id": "g", "traceId": "t", "parentObservationId": "r", "model": "m", "output": "In Oslo."}
RETRIEVED = {"id": "d", "traceId": "t", "type": "RETRIEVER", "input": "words", "output": [{"page_content": "x"}]}
ENDED = {"endTime": "2026-11-20T10:00:09Z"}


def messages_of(*events: tuple[str, dict[str, Any]]) -> list[tuple[str, Any]]:
    batch = [
        {"id": str(number), "type": type_, "timestamp": f"2026-11-20T10:00:0{number}Z", "body": body}
        for number, (type_, body) in enumerate(events)
    ]
    spans = spans_in(decode_batch(json.dumps({"batch": batch}).encode()))
    assert session_of_trace(spans) == session_of_trace(spans[::-1])
    return [(message.role, message.content) for message in session_of_trace(spans).messages or ()]


@pytest.mark.parametrize(
    ("trace", "root", "below", "expected"),
    [
        ({}, ENDED, [GENERATION], [("user", "Where?"), ("assistant", "In Oslo.")]),
        ({}, ENDED, [], [("user", "Where?"), ("assistant", "In Oslo.")]),
        ({}, {}, [], [("user", "Where?")]),
        ({"input": "And when?"}, ENDED, [GENERATION], [("user", "And when?"), ("assistant", "In Oslo.")]),
        ({"output": "Oslo!"}, ENDED, [], [("user", "Where?"), ("assistant", "Oslo!")]),
        # Of two observations below the trace neither is its root.
        ({}, ENDED, [{**GENERATION, "parentObservationId": None}], [("assistant", "In Oslo.")]),
    ],
)
def test_trace_without_input_asks_what_its_root_asks(
    trace: dict[str, Any], root: dict[str, Any], below: list[dict[str, Any]], expected: list[tuple[str, Any]]
) -> None:
    begun = [("trace-create", {**TRACE_BODY, **trace}), ("span-create", {**ROOT, **root})]
    assert messages_of(*begun, *(("generation-create", {**body, **ENDED}) for body in below)) == expected


def test_query_of_only_retriever_is_no_question() -> None:
    body = {**RETRIEVED, **ENDED}
    assert messages_of(("trace-create", TRACE_BODY), ("observation-create", body)) == []
