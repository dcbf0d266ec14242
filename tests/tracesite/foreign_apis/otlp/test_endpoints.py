"""OTLP over HTTP: keys, encodings, answers, and bodies that are wrong."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from typing import Any

import pytest
from django.test import Client
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_message, delete_session
from traces_app.models import Span as SpanRow
from traces_app.models import ToolCall
from traces_app.spans import stored as span_store
from tracesite.foreign_apis.otlp.api import BASES
from tracesite_sdk.spans import otlp_json

pytestmark = pytest.mark.django_db

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000  # in September 2026
PROTOBUF = "application/x-protobuf"


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="otlp")


@pytest.fixture
def key(project: Project) -> str:
    return create_key(project, "agent", ["read", "write"])[1]


def span(number: int, parent: int = 0, **changes: Any) -> dict[str, Any]:
    attributes = changes.pop("attributes", {})
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": f"span {number}",
        "kind": 1,
        "startTimeUnixNano": str(START + number * 1_000_000),
        "endTimeUnixNano": str(START + 1_000_000_000),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
        **changes,
    }


def run(**changes: Any) -> list[dict[str, Any]]:
    """Return an agent with one request and one call."""
    agent = span(1, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "weather"}, **changes)
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "31 degrees"}]}]
    question = [{"role": "user", "parts": [{"type": "text", "content": "How warm is it?"}]}]
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "gpt",
        "gen_ai.input.messages": json.dumps(question),
        "gen_ai.output.messages": json.dumps(answer),
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.result": "31",
    }
    return [agent, span(2, 1, attributes=tool), span(3, 1, attributes=chat)]


def request_of(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "test"}, "spans": list(spans)}]}]}


def post(key: str, body: Any, path: str = "/v1/traces", kind: str = "application/json", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client().post(path, data, content_type=kind, headers={"X-API-Key": key, **headers})


def refused(answer: Any) -> tuple[int, str]:
    found = answer.json()["partialSuccess"]
    return int(found["rejectedSpans"]), found["errorMessage"]


def test_run_becomes_question_answer_step_and_call(key: str) -> None:
    assert post(key, request_of(*run())).json() == {}
    session = Session.objects.get()
    question, answer = session.messages.order_by("pk")
    assert (session.external_id, question.content, answer.content) == (TRACE, "How warm is it?", "31 degrees")
    assert (answer.is_completed, answer.request_id, answer.step_count, answer.call_count) == (True, TRACE, 2, 1)
    call = ToolCall.objects.get()
    assert (call.tool.name, call.status, call.result.output) == ("get_weather", "success", "31")
    assert (session.message_count, session.call_count, session.status) == (2, 1, "completed")


@pytest.mark.parametrize("base", BASES)
def test_every_base_path_takes_traces(key: str, base: str) -> None:
    assert post(key, request_of(span(1)), f"{base}traces").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", "Bearer {key}"),
        ("X-API-Key", "{key}"),
        ("api_key", "{key}"),
        ("Authorization", "Basic {basic}"),
    ],
    ids=["bearer", "x-api-key", "api_key", "basic"],
)
def test_key_is_taken_from_every_header(key: str, header: tuple[str, str]) -> None:
    name, value = header
    basic = base64.b64encode(f"pk-1:{key}".encode()).decode()
    headers = {name: value.format(key=key, basic=basic)}
    answer = Client().post(
        "/v1/traces", json.dumps(request_of(span(1))), content_type="application/json", headers=headers
    )
    assert (answer.status_code, SpanRow.objects.count()) == (200, 1)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer ts_no"}, {"Authorization": "Basic !!"}])
def test_missing_or_wrong_key_is_401(headers: dict[str, str]) -> None:
    answer = Client().post("/v1/traces", "{}", content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, 16)


def test_key_without_write_scope_is_403(project: Project) -> None:
    key = create_key(project, "reader", ["read"])[1]
    assert post(key, request_of(span(1))).status_code == 403


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_protobuf_is_decoded(key: str, encoding: str) -> None:
    spans = otlp_json.decode_traces(json.dumps(request_of(*run())).encode())
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for each in spans:
        scope.spans.add(
            trace_id=bytes.fromhex(each.trace_id), span_id=bytes.fromhex(each.span_id), start_time_unix_nano=each.start
        )
    body = message.SerializeToString()
    compressed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    answer = post(key, compressed, kind=PROTOBUF, **{"Content-Encoding": encoding})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, PROTOBUF)
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 0
    assert SpanRow.objects.count() == 3


@pytest.mark.parametrize(
    "body",
    [b"\x0a\xff", b"\xff\xff\xff", b"\x08\x01\x12", json.dumps(request_of(span(1))).encode()],
    ids=["truncated", "wrong wire type", "unknown field cut", "json"],
)
def test_broken_protobuf_is_400_with_a_status(key: str, body: bytes) -> None:
    answer = post(key, body, kind=PROTOBUF)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, PROTOBUF)
    status = Status.FromString(answer.content)
    assert (status.code, "OTLP" in status.message) == (3, True)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"spans": []}',
        b'{"resourceSpans": {}}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": 5}]}]}]}',
        b'{"resourceSpans": ' + b"[" * 100_000,
    ],
)
def test_broken_json_is_400_and_stores_nothing(key: str, body: bytes) -> None:
    answer = post(key, body)
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert not SpanRow.objects.exists()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"traceId": "ab"}, "traceId"),
        ({"traceId": "0" * 32}, "traceId"),
        ({"traceId": "z" * 32}, "traceId"),
        ({"spanId": ""}, "spanId"),
        ({"spanId": "0" * 16}, "spanId"),
        ({"parentSpanId": "12"}, "parentSpanId"),
    ],
)
def test_span_with_a_wrong_id_is_refused_and_others_stay(key: str, changes: dict[str, Any], name: str) -> None:
    answer = post(key, request_of(span(1), span(2, **changes)))
    count, reason = refused(answer)
    assert (answer.status_code, count, name in reason) == (200, 1, True)
    assert SpanRow.objects.count() == 1


ODD: dict[str, tuple[bytes, bytes]] = {
    "kind": (b'"kind": 1', b'"kind": "SPAN_KIND_CHAIN"'),
    "time": (b'"endTimeUnixNano"', b'"startTimeUnixNano": "2026-09-21T12:00:00Z", "endTimeUnixNano"'),
    "fraction": (b'"attributes": [', b'"attributes": [{"key": "n", "value": {"intValue": 1.5}}, '),
    "attributes": (b'"attributes": [', b'"attributes": {"a": 1}, "others": ['),
    "text": (b'"name": "span 9"', b'"name": ["span 9"]'),
    "object": (b'{"traceId"', b'7, {"traceId"'),
}
"""A text in the JSON of a span, and what stands in place of it."""


@pytest.mark.parametrize("odd", ODD)
def test_odd_span_is_refused_and_others_are_stored(key: str, odd: str) -> None:
    good, bad = (json.dumps(span(number, attributes={"a": "b"})).encode() for number in (1, 9))
    before, after = ODD[odd]
    assert before in bad
    body = (
        json.dumps(request_of(span(2), {})).encode().replace(b"{}", b"%s, %s" % (good, bad.replace(before, after, 1)))
    )
    count, reason = refused(post(key, body))
    assert (count, reason.startswith("resourceSpans[0].scopeSpans[0].spans[2]: ")) == (1, True)
    assert SpanRow.objects.count() == (3 if odd == "object" else 2)


@pytest.mark.parametrize("written", [b"\\ud83d", b"\xe9", b"\xed\xa0\xbd"], ids=["escape", "Latin-1", "raw half"])
def test_bad_character_of_one_span_loses_no_span(key: str, written: bytes) -> None:
    traces = [
        {**span(number, attributes={"output.value": "fine"}), "traceId": f"{number:032x}"} for number in (1, 2, 3)
    ]
    body = json.dumps(request_of(*traces)).encode().replace(b"fine", b"cut " + written, 1)
    assert post(key, body).json() == {}
    kept = sorted(Message.objects.filter(role="assistant").values_list("content", flat=True))
    assert kept == [
        {b"\\ud83d": r"cut \ud83d", b"\xe9": "cut \ufffd"}.get(written, "cut " + "\ufffd" * 3),
        "fine",
        "fine",
    ]


def test_bad_bytes_in_protobuf_lose_no_span(key: str) -> None:
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    for number in (1, 2):
        attributes = [{"key": "output.value", "value": {"string_value": f"caf- {number}"}}]
        resource.scope_spans.add().spans.add(
            trace_id=number.to_bytes(16),
            span_id=b"\xff" * 8,
            name="caf-",
            start_time_unix_nano=START,
            attributes=attributes,
        )
    answer = post(key, message.SerializeToString().replace(b"caf-", b"caf\xe9", 2), kind=PROTOBUF)
    assert (answer.status_code, answer.content) == (200, b"")
    kept = sorted(Message.objects.filter(role="assistant").values_list("content", flat=True))
    assert kept == ["caf- 2", "caf\ufffd 1"]


def test_lists_of_old_versions_are_read_from_json(key: str) -> None:
    scopes = [{"instrumentationLibrary": {"name": "old", "version": "1"}, "spans": run()}]
    assert post(key, {"resourceSpans": [{"instrumentationLibrarySpans": scopes}]}).json() == {}
    assert (Message.objects.count(), SpanRow.objects.filter(content__contains='"old"').count()) == (2, 3)


def test_deprecated_list_in_protobuf_is_refused(key: str) -> None:
    scope = ExportTraceServiceRequest().resource_spans.add().scope_spans.add(spans=[{"span_id": b"1" * 8}])
    content = scope.SerializeToString()
    resource = b"\xc2\x3e" + bytes([len(content)]) + content
    answer = post(key, b"\x0a" + bytes([len(resource)]) + resource, kind=PROTOBUF)
    success = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (success.rejected_spans, "field 1000" in success.error_message) == (1, True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"resourceSpans": [{"scope_spans": [{"spans": [span(1)]}]}]}, "resourceSpans[0]: expected “scopeSpans”"),
        (
            {"resourceSpans": [{"scopeSpans": [{"Spans": [span(1)]}]}]},
            "resourceSpans[0].scopeSpans[0]: expected “spans”",
        ),
        ({"resourceSpans": [{"scopeSpans": {"spans": [span(1)]}}]}, "resourceSpans[0].scopeSpans: expected a list"),
        ({"resourceSpans": [], "batches": [{}]}, "the body: expected “resourceSpans”"),
        ({"resource_spans": []}, "expected an object with “resourceSpans”"),
    ],
)
def test_body_without_a_known_list_is_refused(key: str, body: Any, reason: str) -> None:
    answer = post(key, body)
    assert (answer.status_code, reason in answer.json()["message"]) == (400, True)


def test_unknown_list_beside_spans_is_refused(key: str) -> None:
    resources = request_of(span(1))["resourceSpans"]
    assert refused(post(key, {"resourceSpans": [*resources, {"scope_spans": [1]}]}))[0] == 1
    assert refused(post(key, {"resourceSpans": [{**resources[0], "resource": []}]}))[0] == 0
    assert post(key, {"resourceSpans": [*resources, {}, {"resource": {"attributes": []}}]}).json() == {}
    assert SpanRow.objects.count() == 1


@pytest.mark.parametrize("start", [0, 1, 9_214_646_400_000_000_000, 2**64 - 1], ids=["0", "1970", "2262", "max"])
def test_impossible_times_are_stored_as_they_came(key: str, start: int, project: Project) -> None:
    odd = span(1, startTimeUnixNano=str(start), endTimeUnixNano=str(start), attributes={"input.value": "hello"})
    assert post(key, request_of(odd)).json() == {}
    (stored,) = span_store.spans_of(primary, project.pk, TRACE)
    assert (stored.start, stored.end) == (start, start)


def test_unknown_enums_links_and_values_are_kept(key: str, project: Project) -> None:
    links = [{"traceId": TRACE, "spanId": f"{number:016x}"} for number in range(1, 10_001)]
    attributes = [
        {"key": "double", "value": {"doubleValue": 1.0}},
        {"key": "nan", "value": {"doubleValue": "NaN"}},
        {"key": "int", "value": {"intValue": "9007199254740993"}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
        {"key": "text", "value": {"bytesValue": "w6kKeA=="}},
        {"key": "nul", "value": {"stringValue": "a\x00b"}},
        {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": True}, {}]}}},
        {"key": "object", "value": {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}]}}},
    ]
    odd = {**span(1), "kind": 77, "status": {"code": 99}, "links": links, "attributes": attributes}
    assert post(key, request_of(odd)).json() == {}
    (stored,) = span_store.spans_of(primary, project.pk, TRACE)
    sent = json.loads(otlp_json.encode_traces([stored]))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (sent["kind"], sent["links"]) == (77, links)
    assert sent["attributes"] == attributes


def test_secrets_in_attributes_reach_no_table(key: str) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    event = {"name": "log", "attributes": [{"key": "password", "value": {"stringValue": secret}}]}
    agent, tool, chat = run()
    chat["attributes"].append(
        {"key": "http.request.header.authorization", "value": {"stringValue": f"Bearer {secret}"}}
    )
    assert post(key, request_of({**agent, "events": [event]}, tool, chat)).json() == {}
    assert not SpanRow.objects.filter(content__contains=secret).exists()
    rules = {receipt["rule"] for message in Message.objects.all() for receipt in message.redactions}
    assert rules


def test_spans_of_a_deleted_session_are_refused(key: str) -> None:
    assert post(key, request_of(*run())).json() == {}
    session = Session.objects.get()
    delete_session(primary, session.pk, by="ada")
    assert refused(post(key, request_of(span(4, 1)))) == (1, f"Trace {TRACE} is not stored: session_deleted.")
    assert (Message.with_deleted.count(), SpanRow.objects.count()) == (2, 3)


def test_session_of_spans_without_an_agent_runs_until_all_have_ended(key: str) -> None:
    assert post(key, request_of(span(1, endTimeUnixNano="0"), span(2, 1))).json() == {}
    session = Session.objects.get()
    assert (session.external_id, session.message_count, session.status) == (TRACE, 0, "running")
    assert post(key, request_of(span(1))).json() == {}
    session.refresh_from_db()
    assert session.status == "completed"
    answer = Client(headers={"X-API-Key": key}).get(f"/api/v1/sessions/{session.pk}/export/?format=otlp")
    exported = json.loads(answer.content)
    (scope,) = exported["resourceSpans"][0]["scopeSpans"]
    assert [one["spanId"] for one in scope["spans"]] == [f"{number:016x}" for number in (1, 2)]
    # An agent that follows takes its place.
    assert post(key, request_of(*run())).json() == {}
    assert Session.objects.get().message_count == 2


def test_tags_of_a_trace_are_tags_of_its_session(key: str) -> None:
    def tagged(*tags: str) -> dict[str, Any]:
        values = [{"stringValue": tag} for tag in tags]
        attribute = {"key": "langfuse.trace.tags", "value": {"arrayValue": {"values": values}}}
        agent, *_others = run()
        return {**agent, "attributes": [*agent["attributes"], attribute]}

    _agent, *others = run()
    assert post(key, request_of(*others, tagged("beta", "trial"))).json() == {}
    session = Session.objects.get()
    assert session.tags == ["beta", "trial"]
    Session.objects.update(tags=["beta", "checked", "trial"])
    assert post(key, request_of(tagged("beta", "x" * 300))).json() == {}
    session.refresh_from_db()
    assert set(session.tags) <= {"beta", "checked", "trial", "x" * 200}
    assert "checked" in session.tags


def test_session_of_one_trace_is_titled_by_its_first_question(key: str) -> None:
    assert post(key, request_of(*run())).json() == {}
    session = Session.objects.get()
    question = Message.objects.get(role="user").content
    assert session.title == ("" if session.external_id != TRACE else question)


def test_address_with_a_slash_is_the_same(key: str) -> None:
    sent = Client(headers={"X-API-Key": key}).post("/v1/traces/", request_of(*run()), content_type="application/json")
    assert (sent.status_code, sent.json()) == (200, {})


def test_deleted_message_stays_deleted_when_spans_arrive(key: str) -> None:
    assert post(key, request_of(*run())).json() == {}
    answer = Message.objects.get(role="assistant")
    delete_message(primary, answer.pk, by="ada")
    assert post(key, request_of(span(4, 1))).json() == {}
    assert Message.with_deleted.get(pk=answer.pk).deleted_by == "ada"
    assert Session.objects.get().message_count == 1


def test_run_ends_beyond_the_most_spans_of_a_trace(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_store, "MOST_SPANS_OF_TRACE", 3)
    agent, tool, chat = run()
    assert post(key, request_of(agent, tool, chat)).json() == {}
    whole = Message.objects.values("content", "is_completed", "step_count").get(role="assistant")
    assert post(key, request_of(span(4, 1), span(5, 1))).json() == {}
    assert SpanRow.objects.count() == 5
    answer = Message.objects.get(role="assistant")
    assert {name: getattr(answer, name) for name in whole} == whole
    assert answer.metadata["spans_left_out"] == 2
    assert "truncated" in answer.health


def test_trace_moves_to_the_session_that_its_root_names(key: str) -> None:
    agent, tool, chat = run()
    assert post(key, request_of(tool, chat)).json() == {}
    assert [session.external_id for session in Session.objects.all()] == [TRACE]
    agent["attributes"].append({"key": "session.id", "value": {"stringValue": "chat-1"}})
    assert post(key, request_of(agent)).json() == {}
    assert [(session.external_id, session.message_count) for session in Session.objects.all()] == [("chat-1", 2)]


def test_open_span_is_a_running_message_until_it_ends(key: str) -> None:
    pending = span(9, 1, attributes={"logfire.span_type": "pending_span", "logfire.pending_parent_id": "0" * 16})
    agent, tool, chat = run()
    assert post(key, request_of(pending, tool, chat)).json() == {}
    assert not Message.objects.get(role="assistant").is_completed
    assert post(key, request_of(agent)).json() == {}
    assert Message.objects.get(role="assistant").is_completed


def test_log_records_before_their_span_give_the_messages(key: str) -> None:
    def log(name: str, body: dict[str, Any]) -> dict[str, Any]:
        pairs = [{"key": key, "value": {"stringValue": value}} for key, value in body.items()]
        ids = {"traceId": TRACE, "spanId": f"{1:016x}", "timeUnixNano": str(START)}
        return {**ids, "eventName": name, "body": {"kvlistValue": {"values": pairs}}}

    logs = [log("gen_ai.user.message", {"content": "How warm?"}), log("gen_ai.choice", {"message": "31"})]
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
    assert post(key, body, "/v1/logs").json() == {}
    assert not Message.objects.exists()
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt"}
    assert post(key, request_of(span(1, attributes=chat))).json() == {}
    assert list(Message.objects.order_by("pk").values_list("content", flat=True)) == ["How warm?", "31"]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
@pytest.mark.parametrize("body", [b"{}", b" {\n} "])
def test_empty_request_in_json_is_accepted(key: str, path: str, body: bytes) -> None:
    answer = post(key, body, path)
    assert (answer.status_code, answer.json()) == (200, {})


def test_metrics_are_accepted_and_not_stored(key: str) -> None:
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "tokens"}]}]}]}
    assert post(key, body, "/v1/metrics").json() == {}


@pytest.mark.parametrize(("kind", "status"), [("text/plain", 415), ("application/x-ndjson", 415)])
def test_other_content_types_are_415(key: str, kind: str, status: int) -> None:
    assert post(key, b"{}", kind=kind).status_code == status


def test_get_is_405(key: str) -> None:
    assert Client().get("/v1/traces", headers={"X-API-Key": key}).status_code == 405


def test_export_as_otlp_gives_every_span_back(key: str) -> None:
    agent, tool, chat = run()
    agent["attributes"].append({"key": "session.id", "value": {"stringValue": "chat-1"}})
    for batch in ([tool, chat], [agent], [tool]):
        assert post(key, request_of(*batch)).json() == {}
    headers = {"X-API-Key": key}
    answer = Client().get("/api/v1/sessions/chat-1/export/?format=otlp", headers=headers)
    exported = json.loads(answer.content)
    spans = [span for each in exported["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]
    sent = [{**each, "status": {}} for each in (agent, tool, chat)]
    assert spans == [{name: value for name, value in each.items() if value != ""} for each in sent]
    assert post(key, exported).json() == {}
    assert SpanRow.objects.count() == 3
    refused_format = Client().get("/api/v1/sessions/chat-1/export/?format=xml", headers=headers)
    assert (refused_format.status_code, refused_format.json()["error"]["field"]) == (400, "format")
