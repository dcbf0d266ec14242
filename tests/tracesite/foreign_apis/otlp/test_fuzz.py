"""Arbitrary bodies and attributes: the documented answers, never an error of the server, and nothing half-stored."""

from __future__ import annotations

import contextlib
import json

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from access_app.keys import create_key
from access_app.models import Project
from sdk.tests.formats.reading import mangled
from sdk.tests.length import examples
from sdk.tests.spans.otlp_wire import REQUEST, START, TRACE
from traces_app.models import Span as SpanRow
from tracesite.foreign_apis.otlp import protobuf as otlp_protobuf
from tracesite_sdk.spans.span import InvalidBody


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
