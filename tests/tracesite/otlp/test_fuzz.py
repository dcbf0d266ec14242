"""Arbitrary bodies and attributes: the documented answers, never an error of the server, and nothing half-stored."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from access_app.keys import create_key
from access_app.models import Project
from sdk.tests.formats.reading import mangled
from sdk.tests.length import examples
from traces_app.models import Span as SpanRow
from tracesite.otlp import protobuf as otlp_protobuf
from tracesite_sdk.spans import otlp_json
from tracesite_sdk.spans.conventions import registry
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import InvalidBody, Span, SpanEvent

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000


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


REQUEST: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "b", "attributes": [{"key": "c", "value": {"intValue": "1"}}]},
                    "spans": [
                        {
                            "traceId": TRACE,
                            "spanId": f"{1:016x}",
                            "name": "chat",
                            "kind": 3,
                            "startTimeUnixNano": str(START),
                            "endTimeUnixNano": str(START + 1),
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {
                                    "key": "gen_ai.input.messages",
                                    "value": {"arrayValue": {"values": [{"boolValue": True}]}},
                                },
                                {
                                    "key": "x",
                                    "value": {"kvlistValue": {"values": [{"key": "y", "value": {"doubleValue": 1.5}}]}},
                                },
                            ],
                            "events": [{"name": "e", "timeUnixNano": "5"}],
                            "links": [{"traceId": TRACE, "spanId": f"{2:016x}"}],
                            "status": {"code": 2, "message": "m"},
                        }
                    ],
                }
            ],
        }
    ]
}


def protobuf() -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    scope.scope.name = "b"
    span = scope.spans.add(
        trace_id=bytes.fromhex(TRACE), span_id=bytes([0] * 7 + [1]), name="chat", start_time_unix_nano=START
    )
    for key, value in (("gen_ai.operation.name", "chat"), ("gen_ai.completion", "31")):
        span.attributes.add(key=key).value.string_value = value
    span.attributes.add(key="list").value.array_value.values.add().bytes_value = b"\x00\xff"
    span.events.add(name="e")
    return message.SerializeToString()


PROTOBUF = protobuf()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Replace, insert or cut bytes of a valid request."""
    body = bytearray(PROTOBUF)
    for _time in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["replace", "insert", "cut"])):
            case "replace":
                body[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                body[at:at] = draw(st.binary(max_size=6))
            case _:
                del body[at : at + draw(st.integers(1, 20))]
    return bytes(body)


@given(mangled(REQUEST))
def test_mangled_json_is_decoded_or_refused(document: Any) -> None:
    with contextlib.suppress(InvalidBody):
        otlp_json.decode_traces(json.dumps(document).encode())


@given(damaged() | st.binary(max_size=60))
def test_damaged_protobuf_is_decoded_or_refused(body: bytes) -> None:
    with contextlib.suppress(InvalidBody):
        otlp_protobuf.decode_traces(body)


@pytest.mark.django_db
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(20),
    deadline=None,
)
@given(st.one_of(mangled(REQUEST).map(lambda document: json.dumps(document).encode()), damaged()))
def test_damaged_requests_get_the_documented_answer(body: bytes) -> None:
    project, _created = Project.objects.get_or_create(slug="fuzz")
    headers = {"Authorization": f"Bearer {create_key(project, 'agent', ['write'])[1]}"}
    kind = "application/json" if body.startswith((b"{", b"[", b'"', b"n")) else "application/x-protobuf"
    stored = SpanRow.objects.count()
    answer = Client(raise_request_exception=False).post("/v1/traces", body, content_type=kind, headers=headers)
    assert answer.status_code in (200, 400)
    assert answer.status_code == 200 or SpanRow.objects.count() == stored
