"""Files of OpenTelemetry spans: requests and printed spans, counts of real files, and parts of a trace over the wire."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given

from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.formats.reading import assert_takes_no_other, calls, lines, load, mangled, read
from tests.paths import SHARED
from traces_app.imports.importer import import_paths
from traces_app.models import Span as SpanRow
from traces_app.models import ToolCall
from tracesite_sdk.formats import otlp
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.spans.span import Span, SpanEvent

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather", "gen_ai.tool.call.result": "31"}


def request_of(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def wire_span(number: int = 1, parent: str = "") -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": parent,
        "name": "execute_tool get_weather",
        "kind": 1,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 10**9),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in TOOL.items()],
        "status": {"code": 2, "message": "no"},
        "events": [{"name": "seen", "timeUnixNano": str(START + 1000)}],
    }


PYTHON = {
    "name": "execute_tool get_weather",
    "context": {"trace_id": f"0x{TRACE}", "span_id": "0x0000000000000001", "trace_state": "[]"},
    "kind": "SpanKind.INTERNAL",
    "parent_id": None,
    "start_time": "2026-09-21T14:13:20.000000Z",
    "end_time": "2026-09-21T14:13:21.000000Z",
    "status": {"status_code": "ERROR", "description": "no"},
    "attributes": TOOL,
    "events": [{"name": "seen", "timestamp": "2026-09-21T14:13:20.000001Z", "attributes": {}}],
    "links": [],
    "resource": {"attributes": {}, "schema_url": ""},
}
JAVASCRIPT = {
    "name": "execute_tool get_weather",
    "spanContext": {"traceId": TRACE, "spanId": "0000000000000001", "traceFlags": 1},
    "kind": 0,
    "startTime": [1_790_000_000, 0],
    "endTime": [1_790_000_001, 0],
    "status": {"code": 2, "message": "no"},
    "attributes": TOOL,
    "events": [{"name": "seen", "time": [1_790_000_000, 1000]}],
    "resource": {"_rawAttributes": []},
}
ANY_AGENT = {
    "name": "execute_tool get_weather",
    "kind": "internal",
    "parent": None,
    "context": {"trace_id": int(TRACE, 16), "span_id": 1, "is_remote": False},
    "start_time": START,
    "end_time": START + 10**9,
    "status": {"status_code": "error", "description": "no"},
    "attributes": TOOL,
    "events": [{"name": "seen", "timestamp": START + 1000}],
}
SPAN = Span(
    trace_id=TRACE,
    span_id="0000000000000001",
    name="execute_tool get_weather",
    kind=1,
    start=START,
    end=START + 10**9,
    status="error",
    status_message="no",
    attributes=TOOL,
    events=[SpanEvent(name="seen", time=START + 1000)],
)


def spans_in(document: Any) -> tuple[list[Span], list[tuple[str, str]]]:
    left_out: list[tuple[str, str]] = []
    found = list(otlp.spans(document, lambda where, why: left_out.append((where, why))))
    return found, left_out


@pytest.mark.parametrize(
    "document",
    [
        request_of(wire_span()),
        [request_of(wire_span())],
        lines([request_of(wire_span())]),
        PYTHON,
        [PYTHON],
        lines([PYTHON]),
        JAVASCRIPT,
        [JAVASCRIPT],
        {"spans": [ANY_AGENT], "final_output": "31"},
    ],
    ids=lambda document: type(document).__name__,
)
def test_every_form_of_a_span_is_read_alike(document: Any) -> None:
    assert format_of(document) is otlp
    assert spans_in(document) == ([SPAN], [])


def test_invalid_spans_are_left_out_with_their_place() -> None:
    document = [PYTHON, {**PYTHON, "start_time": "soon"}, {"name": "x"}, request_of({"startTimeUnixNano": "soon"})]
    found, left_out = spans_in(document)
    assert found == [SPAN]
    assert [where for where, _why in left_out] == ["[1]", "[2]", "[3]"]
    assert left_out[0][1] == "start_time: expected a time, not 'soon'"


FILES = [
    "agentprism_rag_earnings.json",
    "agentprism_smol_deep_research.json",
    "any_agent_GOOGLE_trace.json",
    "any_agent_LANGCHAIN_trace.json",
]


@pytest.mark.parametrize("name", FILES)
def test_real_files_match_independent_counts(name: str) -> None:
    path = SHARED / "otlp" / name
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    expected = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[f"otlp/{name}"]
    found, left_out = spans_in(load(path))
    assert (len(found), left_out, len({span.trace_id for span in found})) == (expected["spans"], [], expected["traces"])
    sessions, _left_out = read(otlp, load(path))
    executed = Counter(call.name for session in sessions for call in calls(session) if call.result is not None)
    assert executed == expected["tool_calls_by_name"]
    assert [message.role for session in sessions for message in session.messages or ()] == ["user", "assistant"]


def test_printed_spans_of_the_ai_sdk_are_read() -> None:
    path = SHARED / "otlp" / "openinference_vercel_v6_all-spans.json"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    sessions, left_out = read(otlp, load(path))
    assert (len(sessions), left_out) == (10, [])
    assert sum(message.role == "assistant" for session in sessions for message in session.messages or ()) == 8


@pytest.mark.django_db
def test_file_and_wire_make_one_trace(tmp_path: Path) -> None:
    project = Project.objects.create(slug="otlp")
    root = {**wire_span(2), "name": "invoke_agent planner", "status": {}, "attributes": []}
    child = wire_span(1, parent=f"{2:016x}")
    key = create_key(project, "agent", ["read", "write"])[1]
    body = json.dumps(request_of(root))
    headers = {"Authorization": f"Bearer {key}"}
    assert Client().post("/v1/traces", body, content_type="application/json", headers=headers).status_code == 200
    file = tmp_path / "spans.jsonl"
    file.write_text(json.dumps(request_of(child)) + "\n" + body)
    for state in ("updated", "unchanged"):
        [report] = import_paths([file], project.pk)
        assert (report.status, report.format, report.reason, report.left_out) == ("read", "otlp", "", [])
        assert (dict(report.stored), report.counts.sessions) == ({state: Message.objects.count()}, 1)
    assert (SpanRow.objects.count(), ToolCall.objects.get().tool.name) == (2, "get_weather")


def test_recognises_files_of_no_other_format() -> None:
    assert_takes_no_other(otlp, "otlp")


@given(mangled([request_of(wire_span()), PYTHON, JAVASCRIPT, ANY_AGENT]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    if otlp.recognises(document):
        read(otlp, document)
