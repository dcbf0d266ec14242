"""Arbitrary attributes and mangled requests: a session or a refusal, never another error."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.formats.reading import mangled
from sdk.tests.spans.otlp_wire import REQUEST, START, TRACE
from tracesite_sdk.spans import otlp_json
from tracesite_sdk.spans.conventions import registry
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import InvalidBody, Span, SpanEvent


def names_of_attributes() -> list[str]:
    """Return every name in the tables of the conventions, and some of flattened messages."""
    found = {
        name
        for convention in registry.CONVENTIONS
        for table in (getattr(convention, "NAMES", {}), getattr(convention, "TOKENS", {}))
        for names in table.values()
        for name in names
    }
    flattened = [
        *("llm.input_messages.0.message.role", "llm.input_messages.0.message.tool_calls.0.tool_call.function.name"),
        *("llm.output_messages.0.message.content", "gen_ai.prompt.0.content", "gen_ai.completion.0.tool_calls.1.name"),
        *("gen_ai.completion.0.content", "agentops.span.kind", "traceloop.span.kind", "openinference.span.kind"),
        *("langsmith.span.kind", "logfire.span_type", "logfire.pending_parent_id", "mlflow.spanType", "ai.operationId"),
    ]
    return sorted(found) + flattened


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "tool", "system", ""]) | JSON,
            "content": JSON,
            "parts": JSON,
            "tool_calls": st.lists(st.fixed_dictionaries({}, optional={"id": JSON, "function": JSON, "name": JSON})),
            "tool_call_id": JSON,
        },
    ),
    max_size=3,
)
KINDS = st.sampled_from(
    [
        *(
            "chat",
            "execute_tool",
            "invoke_agent",
            "LLM",
            "TOOL",
            "AGENT",
            "CHAIN",
            "tool",
            "agent",
            "workflow",
            "generation",
        )
    ]
    + ["ai.toolCall", "ai.generateText", "ai.generateText.doGenerate", "llm", "pending_span", "TOOL_CALL"]
)
VALUES = KINDS | JSON | MESSAGES | MESSAGES.map(json.dumps) | JSON.map(json.dumps)
ATTRIBUTES = st.dictionaries(st.sampled_from(names_of_attributes()), VALUES, max_size=8)
NUMBERS = st.integers(1, 5)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=f"{draw(NUMBERS):016x}",
        parent_id=draw(st.just("") | NUMBERS.map(lambda number: f"{number:016x}")),
        name=draw(st.sampled_from(["", "tool_call.x", "get_weather.tool", "invoke_agent a"]) | st.text(max_size=5)),
        start=draw(st.sampled_from([0, START, START + 1, 2**64 - 1])),
        end=draw(st.sampled_from([0, START + 5, 2**64 - 1])),
        status=draw(st.sampled_from(["", "ok", "error"])),
        attributes=draw(ATTRIBUTES),
        events=[
            SpanEvent(name=name, time=START, attributes=attributes)
            for name, attributes in draw(
                st.lists(
                    st.tuples(st.sampled_from(["exception", "gen_ai.choice", "gen_ai.user.message"]), ATTRIBUTES),
                    max_size=2,
                )
            )
        ],
    )


@given(st.lists(spans(), min_size=1, max_size=6))
def test_any_attributes_give_a_session_in_any_order(trace: list[Span]) -> None:
    assert session_of_trace(trace) == session_of_trace(trace[::-1])


@given(mangled(REQUEST))
def test_mangled_json_is_decoded_or_refused(document: Any) -> None:
    with contextlib.suppress(InvalidBody):
        otlp_json.decode_traces(json.dumps(document).encode())
