"""Files of OpenTelemetry spans: requests and printed spans, and counts of real files."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.formats.reading import assert_takes_no_other, calls, lines, load, mangled, read, steps
from sdk.tests.paths import SHARED
from sdk.tests.spans.otlp_wire import START, TOOL, TRACE, request_of, wire_span
from tracesite_sdk.formats import otlp
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.spans.span import Span, SpanEvent

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
CONSOLE = {
    "resource": {"attributes": {}},
    "instrumentationScope": {"name": ""},
    "traceId": TRACE,
    "name": "execute_tool get_weather",
    "id": "0000000000000001",
    "kind": 0,
    "timestamp": START // 1000,
    "duration": 1_000_000,
    "attributes": TOOL,
    "status": {"code": 2, "message": "no"},
    "events": [{"name": "seen", "attributes": {}, "time": [1_790_000_000, 1000]}],
    "links": [],
}
COPILOT = {
    "type": "span",
    "traceId": TRACE,
    "spanId": "0000000000000001",
    "name": "execute_tool get_weather",
    "kind": 0,
    "startTime": [1_790_000_000, 0],
    "endTime": [1_790_000_001, 0],
    "attributes": TOOL,
    "status": {"code": 2, "message": "no"},
    "events": [{"name": "seen", "time": [1_790_000_000, 1000]}],
    "resource": {"attributes": {}},
}
PHOENIX: dict[str, Any] = {
    "id": "U3Bhbjox",
    "name": "execute_tool get_weather",
    "context": {"trace_id": TRACE, "span_id": "0000000000000001"},
    "span_kind": "TOOL",
    "parent_id": None,
    "start_time": "2026-09-21T14:13:20+00:00",
    "end_time": "2026-09-21T14:13:21+00:00",
    "status_code": "ERROR",
    "status_message": "no",
    "attributes": TOOL,
    "events": [{"name": "seen", "timestamp": "2026-09-21T14:13:20.000001Z", "attributes": {}}],
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


def snake(value: Any) -> Any:
    """Return a value with the names of protobuf."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): snake(item) for key, item in value.items()}


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
        [wire_span()],
        CONSOLE,
        [CONSOLE],
        lines([COPILOT]),
        {"data": [{**PHOENIX, "span_kind": "internal"}], "next_cursor": None},
        {"data": [snake(wire_span())], "next_cursor": None},
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


def test_ids_of_parents_are_read_in_every_form() -> None:
    above = "00000000000000aa"
    for span in (
        {**CONSOLE, "parentSpanContext": {"spanId": above}},
        {**CONSOLE, "parentId": above},
        {**COPILOT, "parentSpanId": above},
    ):
        assert [found.parent_id for found in spans_in([span])[0]] == [above]


def test_metrics_among_the_spans_of_a_file_are_left_out() -> None:
    metric = {"type": "metric", "name": "gen_ai.client.token.usage", "dataPoints": []}
    assert spans_in(lines([metric, COPILOT])) == ([SPAN], [("line 1", "neither an OTLP request nor a span")])


def said(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def copilot(number: int, operation: str, **attributes: Any) -> dict[str, Any]:
    """Return a span of Copilot CLI's file exporter; the one with the number 1 is around the others."""
    texts = {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in attributes.items()}
    named = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": "conversation-1", **texts}
    above = {"parentSpanId": f"{1:016x}"} if number > 1 else {}
    times = {"startTime": [1_790_000_000 + number, 0], "endTime": [1_790_000_001 + (number if above else 9), 0]}
    return {**COPILOT, "name": operation, "spanId": f"{number:016x}", **above, **times, "attributes": named, "status": {"code": 0}, "events": []}  # fmt: skip


def tokens(given: int, made: int, cached: int) -> dict[str, Any]:
    counts = {"input_tokens": given, "output_tokens": made, "cache_read.input_tokens": cached}
    return {f"gen_ai.usage.{name}": count for name, count in counts.items()}


def test_turn_of_copilot_counts_the_tokens_of_its_requests_once() -> None:
    asked, reply = (
        said("user", type="text", content="Run the tests"),
        said("assistant", type="text", content="They fail."),
    )
    called = said("assistant", type="tool_call", id="c1", name="bash", arguments={"command": "make"})
    found = said("tool", type="tool_call_response", id="c1", response="2 failed")
    model = {"gen_ai.request.model": "auto", "gen_ai.response.model": "gpt-x", "github.copilot.cost": 1}
    # Children are written first; the agent has the sums of its requests, and so have records of logs.
    document = [
        copilot(2, "chat", **model, **tokens(100, 20, 60), **{"gen_ai.input.messages": [asked], "gen_ai.output.messages": [called]}),
        {**copilot(3, "execute_tool", **{"gen_ai.tool.name": "bash", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": {"command": "make"}, "gen_ai.tool.call.result": "2 failed", "error.type": "failure"}), "status": {"code": 2}},
        {"type": "metric", "name": "gen_ai.client.token.usage", "dataPoints": []},
        {"hrTime": [1_790_000_003, 0], "body": "copilot_chat.agent.turn", "attributes": {"gen_ai.usage.input_tokens": 100}, "traceId": TRACE, "spanId": f"{2:016x}"},
        copilot(4, "chat", **model, **tokens(130, 7, 100), **{"gen_ai.input.messages": [asked, called, found], "gen_ai.output.messages": [reply]}),
        copilot(1, "invoke_agent", **tokens(230, 27, 160), **{"gen_ai.agent.name": "copilot", "github.copilot.turn_count": 2}),
    ]  # fmt: skip
    [session], left_out = read(otlp, lines(document))
    question, answer = session.messages or ()
    assert (session.external_id, question.content, answer.content) == ("conversation-1", "Run the tests", "They fail.")
    assert [(call.id, call.name, call.status) for call in calls(session)] == [("c1", "bash", "error")]
    assert [step.usage for step in steps(answer)] == [
        {"input_tokens": 100, "output_tokens": 20, "cached_input_tokens": 60},
        {"input_tokens": 130, "output_tokens": 7, "cached_input_tokens": 100},
    ]
    assert [where for where, _why in left_out] == ["line 3", "line 4"]


ASKED = {"role": "user", "content": "How warm is it?"}
REPLIED = [
    {
        "message": {
            "role": "assistant",
            "tool_calls": [{"tool_call": {"id": "c1", "function": {"name": "get_weather", "arguments": "{}"}}}],
        }
    }
]
"""As a data frame nests them."""


def phoenix(number: int, kind: str, parent: int | None, attributes: dict[str, Any], **others: Any) -> dict[str, Any]:
    context = {"trace_id": TRACE, "span_id": f"{number:016x}"}
    above = f"{parent:016x}" if parent else None
    return {**PHOENIX, "name": kind.lower(), "span_kind": kind, "context": context, "parent_id": above, "attributes": attributes, "events": []} | others  # fmt: skip


def row(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span as a row of a data frame, with its times in milliseconds."""
    row = {name: value for name, value in span.items() if name not in ("context", "attributes", "id")}
    row |= {f"context.{name}": value for name, value in span["context"].items()}
    row |= {f"attributes.{name}": value for name, value in span["attributes"].items()} | {
        "attributes.retrieval.documents": None
    }
    return row | {"start_time": START // 10**6, "end_time": START // 10**6 + 1000}


@pytest.mark.parametrize("form", [dict, row])
def test_kinds_and_statuses_of_phoenix_are_read(form: Any) -> None:
    request = {
        "llm.model_name": "gpt-x", "llm.token_count.prompt": 7, "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": ASKED["content"], "llm.output_messages": REPLIED,
    }  # fmt: skip
    unset = {"status_code": "UNSET", "status_message": ""}
    document = [
        phoenix(1, "AGENT", None, {"session.id": "s-1"}, **unset),
        phoenix(2, "LLM", 1, request, **unset),
        phoenix(3, "TOOL", 1, {"tool.name": "get_weather", "input.value": "{}"}),
    ]
    [session], left_out = read(otlp, [form(span) for span in document])
    question, answer = session.messages or ()
    assert (session.external_id, question.content, left_out) == ("s-1", ASKED["content"], [])
    [step] = answer.agent_steps or ()
    assert (step.agent_name, step.model, step.usage) == ("agent", "gpt-x", {"input_tokens": 7})
    assert [(call.id, call.name, call.result.status) for call in step.tool_calls or ()] == [
        ("c1", "get_weather", "error")
    ]  # type: ignore[union-attr]


# --- MLflow -----------------------------------------------------------------------------------------------------------

ABOUT_TRACE = {"mlflow.trace.session": "s-1", "mlflow.trace.user": "ada"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]}  # fmt: skip
SAID = {"role": "assistant", "content": "31 degrees."}


def base64_of(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def mlflow(form: int, number: int, kind: str, *, failed: bool = False, **values: Any) -> dict[str, Any]:
    """Return a span of version 2 or 3, or of the newest form, 4; the one with the number 1 is around the others."""
    own, above = f"{number:016x}", "" if number == 1 else f"{1:016x}"
    start, end = START + number * 10**9, START + (number + (1 if above else 9)) * 10**9
    attributes = {"mlflow.traceRequestId": json.dumps(f"tr-{TRACE}"), "mlflow.spanType": json.dumps(kind)}
    attributes |= {f"mlflow.{name.replace('__', '.')}": json.dumps(value) for name, value in values.items()}
    said = {"name": "get_weather" if kind == "TOOL" else "run", "attributes": attributes}
    code = "ERROR" if failed else "OK"
    if form == 2:
        ids = {
            "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{own}"},
            "parent_id": f"0x{above}" if above else None,
        }
        return {
            **said,
            **ids,
            "start_time": start,
            "end_time": end,
            "status_code": code,
            "status_message": "",
            "events": [],
        }
    event = {"name": "exception", "time_unix_nano": end, "attributes": {"exception.message": "no"}}
    ids = {"trace_id": base64_of(TRACE), "span_id": base64_of(own), "parent_span_id": base64_of(above)}
    if form == 4:
        ids = {"trace_id": f"trace:/a/{TRACE}", "otel_trace_id": TRACE, "span_id": own, "parent_span_id": above}
    status = {"code": code if form == 4 else f"STATUS_CODE_{code}", "message": ""}
    return {**said, **ids, "start_time_unix_nano": start, "end_time_unix_nano": str(end), "status": status, "events": [event] * failed}  # fmt: skip


def mlflow_spans(form: int) -> list[dict[str, Any]]:
    request = {"model": "gpt-x", "messages": [ASKED]}
    counts: dict[str, Any] = {
        "input_tokens": 100,
        "output_tokens": 9,
        "total_tokens": 109,
        "cache_read_input_tokens": 60,
    }
    later: dict[str, Any] = {"input_tokens": 130, "output_tokens": 5, "total_tokens": 135}
    found = {"role": "tool", "tool_call_id": "c1", "content": "31"}
    return [
        mlflow(form, 1, "AGENT", spanInputs={"question": ASKED["content"]}, spanOutputs="31 degrees.", chat__tokenUsage={"input_tokens": 230, "output_tokens": 14}),
        mlflow(form, 2, "CHAT_MODEL", spanInputs=request, spanOutputs={"choices": [{"message": CALLED}]}, chat__tokenUsage=counts, llm__model="gpt-x"),
        mlflow(form, 3, "TOOL", failed=True, spanInputs={"city": "Oslo"}),
        mlflow(form, 4, "CHAT_MODEL", spanInputs={**request, "messages": [ASKED, CALLED, found]}, spanOutputs={"choices": [{"message": SAID}]}, chat__tokenUsage=later, llm__model="gpt-x"),
    ]  # fmt: skip


MLFLOW: dict[str, Any] = {
    "a trace of version 2": {
        "info": {"request_id": f"tr-{TRACE}", "timestamp_ms": 1, "request_metadata": ABOUT_TRACE},
        "data": {"spans": mlflow_spans(2), "request": "{}", "response": "{}"},
    },
    "a trace of version 3": [
        {"info": {"trace_id": f"tr-{TRACE}", "trace_metadata": ABOUT_TRACE}, "data": {"spans": mlflow_spans(3)}}
    ],
    "a row of a frame": [{"trace_id": f"tr-{TRACE}", "trace_metadata": ABOUT_TRACE, "spans": mlflow_spans(4)}],
}


@pytest.mark.parametrize("document", MLFLOW.values(), ids=MLFLOW)
def test_trace_of_mlflow_is_read(document: Any) -> None:
    assert format_of(document) is otlp
    [session], left_out = read(otlp, document)
    question, answer = session.messages or ()
    assert (session.external_id, session.end_user, left_out) == ("s-1", "ada", [])
    assert (question.content, answer.content) == (ASKED["content"], "31 degrees.")
    assert [(call.id, call.name, call.status) for call in calls(session)] == [("c1", "get_weather", "error")]
    assert [(step.model, (step.usage or {})["input_tokens"]) for step in steps(answer)] == [("gpt-x", 100), ("gpt-x", 130)]  # fmt: skip


def test_spans_of_an_artifact_of_mlflow_have_the_trace_of_opentelemetry() -> None:
    found, left_out = spans_in({"spans": mlflow_spans(3)})
    assert [(span.trace_id, span.span_id, span.parent_id) for span in found[:2]] == [
        (TRACE, f"{1:016x}", ""),
        (TRACE, f"{2:016x}", f"{1:016x}"),
    ]
    assert (found[0].start, left_out) == (START + 10**9, [])


def test_odd_span_of_a_request_is_left_out_alone() -> None:
    found, left_out = spans_in(request_of({**wire_span(2), "kind": "CHAIN"}, wire_span()))
    assert found == [SPAN]
    assert left_out == [("", "resourceSpans[0].scopeSpans[0].spans[0]: kind: expected an integer, not 'CHAIN'")]


def test_request_of_an_old_version_is_read() -> None:
    scopes = [{"instrumentationLibrary": {"name": ""}, "spans": [wire_span()]}]
    assert spans_in({"resourceSpans": [{"instrumentationLibrarySpans": scopes}]}) == ([SPAN], [])


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
    answers = [m for session in sessions for m in session.messages or () if m.role == "assistant"]
    embeddings = [m for m in answers if any("embedding" in (step.model or "") for step in steps(m))]
    assert (len(answers), len(embeddings), {m.content for m in embeddings}) == (10, 2, {None})


def test_recognises_files_of_no_other_format() -> None:
    assert_takes_no_other(otlp, "otlp")


@given(
    mangled(
        [
            request_of(wire_span()),
            PYTHON,
            JAVASCRIPT,
            ANY_AGENT,
            CONSOLE,
            COPILOT,
            PHOENIX,
            row(PHOENIX),
            *MLFLOW.values(),
        ]
    )
)
def test_read_mangled_document_never_raises(document: Any) -> None:
    if otlp.recognises(document):
        read(otlp, document)
