"""Bodies of very many very small items: each wire refuses them with 413, in its own form, before it makes objects of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest
from django.test import Client
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from access_app.keys import create_key
from access_app.models import Project
from messages_app.http.request_body import JSON, NDJSON, PROTOBUF
from sdk.tests.spans.langsmith_wire import part
from traces_app.events.decode import MOST_SESSIONS
from traces_app.ingest.decode import MOST_BELOW, MOST_ITEMS
from traces_app.ingest.store import MOST_REPEATED
from tracesite.foreign_apis.otlp import counts as otlp_counts
from tracesite.foreign_apis.weknora.parameters import MAX_SELECTED
from tracesite_sdk.spans.langsmith_runs import LONGEST_HEAD, MOST_PARTS
from tracesite_sdk.spans.span import MOST_EVENTS_AND_LINKS, MOST_SPANS, InvalidBody

MULTIPART = "multipart/form-data; boundary=b"
TRACE = "0af7651916cd43dd8448eb211c80319c"
IDS = b"\x0a\x10" + bytes.fromhex(TRACE) + b"\x12\x08" + b"\x01" * 8


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf with a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def request(*spans: bytes) -> bytes:
    """Return an OTLP request of one resource with one scope."""
    return field(1, field(2, b"".join(field(2, span) for span in spans)))


def listed(begin: bytes, item: bytes, end: bytes, number: int) -> bytes:
    return begin + b",".join([item] * number) + end


FLOODS: dict[str, tuple[str, str, Callable[[], bytes], int]] = {
    "protobuf spans": ("/v1/traces", PROTOBUF, lambda: field(1, field(2, b"\x12\x00" * 1_000_000)), MOST_SPANS),
    "protobuf spans with long tags": (
        "/v1/traces", PROTOBUF, lambda: field(1, field(2, b"\x92\x80\x00\x80\x80\x00" * 100_000)), MOST_SPANS),
    "protobuf events": ("/v1/traces", PROTOBUF, lambda: request(IDS + b"\x5a\x00" * 300_000), MOST_EVENTS_AND_LINKS),
    "protobuf links": ("/v1/traces", PROTOBUF, lambda: request(IDS + b"\x6a\x00" * 300_000), MOST_EVENTS_AND_LINKS),
    "protobuf resources": ("/v1/traces", PROTOBUF, lambda: b"\x0a\x00" * 300_000, MOST_EVENTS_AND_LINKS),
    "protobuf attributes": ("/v1/traces", PROTOBUF, lambda: request(IDS + b"\x4a\x00" * 2_100_000), otlp_counts.MOST_VALUES),
    "protobuf array": (
        "/v1/traces", PROTOBUF, lambda: request(IDS + field(9, field(2, field(5, b"\x0a\x00" * 2_100_000)))), otlp_counts.MOST_VALUES),
    "protobuf logs": ("/v1/logs", PROTOBUF, lambda: field(1, field(2, b"\x12\x00" * 1_000_000)), MOST_SPANS),
    "protobuf metrics": ("/v1/metrics", PROTOBUF, lambda: field(1, field(2, b"\x12\x00" * 1_000_000)), MOST_SPANS),
    "JSON spans": (
        "/v1/traces", JSON, lambda: listed(b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"{}", b"]}]}]}", MOST_SPANS + 1), MOST_SPANS),
    "JSON events": (
        "/v1/traces", JSON,
        lambda: listed(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"events":[', b"{}", b"]}]}]}]}", MOST_EVENTS_AND_LINKS),
        MOST_EVENTS_AND_LINKS),
    "JSON logs": (
        "/v1/logs", JSON, lambda: listed(b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[', b"{}", b"]}]}]}", MOST_SPANS + 1), MOST_SPANS),
    "JSON metrics": (
        "/v1/metrics", JSON,
        lambda: listed(b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[', b"{}", b"]}]}]}", MOST_SPANS + 1), MOST_SPANS),
    "Langfuse events": ("/api/public/ingestion", JSON, lambda: listed(b'{"batch":[', b"{}", b"]}", MOST_SPANS + 1), MOST_SPANS),
    "Langfuse scores": ("/api/public/scores", JSON, lambda: listed(b"[", b"{}", b"]", MOST_SPANS + 1), MOST_SPANS),
    "LangSmith runs": ("/runs/batch", JSON, lambda: listed(b'{"post":[', b"{}", b"]}", MOST_SPANS + 1), MOST_SPANS),
    "LangSmith events": ("/runs", JSON, lambda: listed(b'{"events":[', b"{}", b"]}", MOST_EVENTS_AND_LINKS + 1), MOST_EVENTS_AND_LINKS),
    "LangSmith parts": ("/runs/multipart", MULTIPART, lambda: part(b"a") * 1_200_000 + b"--b--\r\n", MOST_PARTS),
    "LangSmith header lines": (
        "/runs/multipart", MULTIPART, lambda: part(b"a", b"", b"\r\n".join([b"a:"] * 14_000_000)) + b"--b--\r\n", LONGEST_HEAD),
    "LangSmith feedback": (
        "/runs/multipart", MULTIPART, lambda: part(b"feedback.a", b'{"key":"a","score":1,"run_id":"%b"}' % TRACE.encode()) * (MOST_SPANS + 1) + b"--b--\r\n",
        MOST_SPANS),
    "OpenAI traces": ("/v1/traces/ingest", JSON, lambda: listed(b'{"data":[', b"{}", b"]}", MOST_SPANS + 1), MOST_SPANS),
    "sessions": ("/api/v1/ingest/", JSON, lambda: listed(b'{"sessions":[', b"{}", b"]}", MOST_ITEMS + 1), MOST_ITEMS),
    "sessions in lines": ("/api/v1/ingest/", NDJSON, lambda: b"{}\n" * (MOST_ITEMS + 1), MOST_ITEMS),
    "empty lines": ("/api/v1/ingest/", NDJSON, lambda: b"\n" * 60_000_000, MOST_ITEMS),
    "messages of a session": (
        "/api/v1/sessions/", JSON, lambda: listed(b'{"external_id":"a","messages":[', b'{"role":"user"}', b"]}", MOST_ITEMS), MOST_ITEMS),
    "repeated messages": (
        "/api/v1/sessions/", JSON,
        lambda: listed(b'{"external_id":"a","messages":[', b'{"role":"user","external_id":"a"}', b"]}", MOST_REPEATED + 2), MOST_REPEATED),
    "steps": (
        "/api/v1/sessions/", JSON,
        lambda: listed(b'{"external_id":"a","messages":[{"role":"assistant","agent_steps":[', b"{}", b"]}]}", MOST_BELOW + 1), MOST_BELOW),
    "calls": (
        "/api/v1/sessions/", JSON,
        lambda: listed(b'{"messages":[{"role":"assistant","agent_steps":[{"tool_calls":[', b'{"name":"t"}', b"]}]}]}", MOST_BELOW), MOST_BELOW),
    "events": ("/api/v1/events/", JSON, lambda: listed(b"[", b"{}", b"]", MOST_ITEMS + 1), MOST_ITEMS),
    "events in empty lines": ("/api/v1/events/", NDJSON, lambda: b"\n" * (MOST_ITEMS + 1), MOST_ITEMS),
    "sessions of events": (
        "/api/v1/events/", JSON,
        lambda: json.dumps([{"type": "agent_start", "session_id": str(number)} for number in range(MOST_SESSIONS + 1)]).encode(),
        MOST_SESSIONS),
    "callbacks": ("/api/v1/eko/callbacks/", NDJSON, lambda: b"{}\n" * (MOST_ITEMS + 1), MOST_ITEMS),
    "tasks of callbacks": (
        "/api/v1/eko/callbacks/", JSON,
        lambda: json.dumps([{"type": "agent_start", "agentName": "a", "taskId": str(number)} for number in range(MOST_SESSIONS + 1)]).encode(),
        MOST_SESSIONS),
}  # fmt: skip


@pytest.fixture
def client(db: None) -> Client:
    token = create_key(Project.objects.create(slug="floods"), "agent", ["read", "write", "delete"])[1]
    return Client(headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_of_small_items_is_refused(flood: str, client: Client) -> None:
    path, kind, made, most = FLOODS[flood]
    answer = client.post(path, gzip.compress(made(), 1), content_type=kind, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413, answer.content[:200]
    text = Status.FromString(answer.content).message if kind == PROTOBUF else answer.content.decode()
    assert f"more than {most} " in text
    assert "several requests" in text


def test_flood_of_2_kilobytes_is_refused(client: Client) -> None:
    body = gzip.compress(FLOODS["protobuf spans"][2](), mtime=0)
    assert len(body) < 2_100
    answer = client.post("/v1/traces", body, content_type=PROTOBUF, headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, Status.FromString(answer.content).code) == (413, 8)


def test_flood_of_ids_is_refused(client: Client) -> None:
    answer = client.delete("/weknora/api/v1/sessions/batch", {"ids": ["a"] * (MAX_SELECTED + 1)}, content_type=JSON)
    assert (answer.status_code, f"more than {MAX_SELECTED} " in answer.content.decode()) == (413, True)


def test_text_in_protobuf_is_not_counted_as_values(client: Client) -> None:
    text = field(9, field(1, b"a") + field(2, field(1, b"1,2,[{" * 700_000)))
    answer = client.post("/v1/traces", request(IDS + text), content_type=PROTOBUF)
    assert (answer.status_code, answer.content) == (200, b"")


def test_largest_allowed_numbers_are_taken(client: Client) -> None:
    events = request(IDS + b"\x5a\x00" * (MOST_EVENTS_AND_LINKS - 2))
    answers = [client.post("/v1/traces", events, content_type=PROTOBUF)]
    body = listed(b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[', b"{}", b"]}]}]}", MOST_SPANS)
    answers.append(client.post("/v1/logs", body, content_type=JSON))
    head = b"--b\r\n" + b"\r\n".join([b'Content-Disposition: form-data; name="a"', b"a: " + b"a" * (LONGEST_HEAD - 60)])
    answers.append(client.post("/runs/multipart", head + b"\r\n\r\n\r\n--b--\r\n", content_type=MULTIPART))
    assert [answer.status_code for answer in answers] == [200, 200, 202]


@pytest.mark.parametrize(
    "body",
    [
        field(1, field(2, field(2, field(5, b"\n" * 60_000))) + b"\x12\x05"),
        field(1, b"\x12\x00" * 60_000 + b"\x93\x00\x94\x00"),
        b"\x0a\xff\xff\xff\xff\xff\xff\x01" + b"\x0a" * 60_000,
        b"\x0a\x00" * 60_000 + b"\x0a",
        b"\x0a\x00" * 60_000 + b"\xff",
        b"\x0a\x00" * 60_000 + b"\x09\x00",
    ],
)
def test_counted_body_that_is_no_protobuf_is_refused(body: bytes, client: Client) -> None:
    answer = client.post("/v1/traces", body, content_type=PROTOBUF)
    assert (answer.status_code, Status.FromString(answer.content).code) == (400, 3)


def test_deep_values_are_refused_as_the_parser_does() -> None:
    deep = b""
    for _level in range(150):
        deep = field(5, field(1, deep))
    with pytest.raises(InvalidBody):
        otlp_counts.check_counts(
            request(IDS + field(9, field(2, deep)) + b"\x4a\x00" * 2_000_001), ExportTraceServiceRequest
        )
