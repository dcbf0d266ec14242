"""A valid body of every wire of spans, and what takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sdk.tests.odd_values import as_body
from tracesite_sdk import records
from tracesite_sdk.normalize import redacted as redaction
from tracesite_sdk.normalize.json_values import fields
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.redaction.rules import DEFAULT_RULES as RULES
from tracesite_sdk.spans import langfuse_events, langsmith_runs, openai_traces, otlp_json
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.span import LogRecord, Span
from tracesite_sdk.spans.wire_scores import scores_in

NOW = datetime(2026, 9, 28, tzinfo=UTC)
TIME = "2026-09-28T12:00:00Z"
TRACE, SPAN, RUN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "0af76519-16cd-43dd-8448-eb211c80319c"
NANOSECONDS = "1790000000000000000"


def finished(sessions: list[records.Session]) -> None:
    """Take the rest of the way to rows that needs no database."""
    for session in sessions:
        redaction.redact(normalise(session, now=NOW), RULES)


def of_spans(spans: list[Span], logs: list[LogRecord]) -> None:
    msgspec.json.encode([spans, logs])
    traces = {span.trace_id for span in spans}
    finished([session_of_trace(merged(span for span in spans if span.trace_id == trace)) for trace in sorted(traces)])
    scores_in(spans, logs)


def traces(body: bytes) -> None:
    of_spans(otlp_json.decode_traces(body), [])


def logs(body: bytes) -> None:
    of_spans([], otlp_json.decode_logs(body))


def langfuse_batch(body: bytes) -> None:
    items = langfuse_events.decode_batch(body)
    of_spans(
        [item.delivery for item in items if isinstance(item.delivery, Span)],
        [item.delivery for item in items if isinstance(item.delivery, LogRecord)],
    )


def langsmith(decoded: langsmith_runs.Decoded) -> None:
    of_spans(decoded.spans, [])


def multipart(body: bytes) -> None:
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), as_body(value))
        for name, value in fields(json.loads(body)).items()
    ]
    langsmith(langsmith_runs.decode_multipart(b"".join(parts) + b"--b--\r\n", "b"))


GENERATION = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "c", "gen_ai.usage.input_tokens": 1,
    "langfuse.observation.type": "generation", "langfuse.observation.model.name": "m", "langfuse.trace.tags": ["a"],
    "langfuse.observation.usage_details": '{"input": 1}', "openinference.span.kind": "LLM", "traceloop.span.kind": "workflow",
    "langsmith.span.kind": "llm", "agentops.span.kind": "llm", "mlflow.spanType": "CHAT_MODEL", "ai.operationId": "ai.generateText",
    "logfire.msg": "m", "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "a",
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "a"}]}]',
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "t", "arguments": {}}]}]',
}  # fmt: skip
OTLP_SPAN = {
    "traceId": TRACE, "spanId": SPAN, "parentSpanId": "", "name": "chat", "kind": 1, "startTimeUnixNano": NANOSECONDS,
    "endTimeUnixNano": NANOSECONDS, "status": {"code": 2, "message": "m"}, "flags": 1, "traceState": "a=b", "droppedLinksCount": 0,
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, {"key": "i", "value": {"intValue": "1"}},
        {"key": "d", "value": {"doubleValue": 1.5}}, {"key": "b", "value": {"boolValue": True}},
        {"key": "y", "value": {"bytesValue": "YQ=="}},
        {"key": "a", "value": {"arrayValue": {"values": [{"kvlistValue": {"values": [{"key": "k", "value": {"intValue": 1}}]}}]}}},
    ],
    "events": [{"name": "gen_ai.evaluation.result", "timeUnixNano": NANOSECONDS, "droppedAttributesCount": 0, "attributes": [
        {"key": "gen_ai.evaluation.name", "value": {"stringValue": "q"}},
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1}}]}],
    "links": [{"traceId": TRACE, "spanId": SPAN, "traceState": "", "attributes": [], "flags": 0}],
}  # fmt: skip
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]}
SCOPE = {"name": "s", "version": "1", "attributes": []}
LOG = {
    "eventName": "gen_ai.evaluation.result", "traceId": TRACE, "spanId": SPAN, "timeUnixNano": NANOSECONDS, "severityNumber": 9,
    "observedTimeUnixNano": NANOSECONDS, "body": {"stringValue": "a"}, "attributes": OTLP_SPAN["events"][0]["attributes"],  # type: ignore[index]
}  # fmt: skip
LANGFUSE_SCORE = {
    "id": "s", "traceId": "t", "observationId": "o", "sessionId": "s", "name": "q", "value": 1, "comment": "c", "dataType": "NUMERIC",
    "source": "EVAL", "timestamp": TIME, "metadata": {"a": 1}, "environment": "e",
}  # fmt: skip
OBSERVATION = {
    "id": "o", "traceId": "t", "parentObservationId": "p", "type": "GENERATION", "name": "n", "startTime": TIME, "endTime": TIME,
    "completionStartTime": TIME, "model": "m", "modelParameters": {"a": 1}, "input": [{"role": "user", "content": "a"}], "output": "b",
    "metadata": {"a": 1}, "level": "ERROR", "statusMessage": "m", "promptName": "p", "promptVersion": 1, "version": "1",
    "usage": {"promptTokens": 1, "completionTokens": 1, "inputCost": 0.1, "totalCost": 0.1, "unit": "TOKENS"},
    "usageDetails": {"input": 1}, "costDetails": {"total": 1},
}  # fmt: skip
TRACE_BODY = {
    "id": "t", "timestamp": TIME, "name": "n", "userId": "u", "sessionId": "s", "tags": ["a"], "input": "a", "output": "b", "public": True,
    "metadata": {"a": 1}, "release": "r",
}  # fmt: skip
RUN_BODY = {
    "id": RUN, "trace_id": RUN, "parent_run_id": RUN, "dotted_order": f"20260928T120000000000Z{RUN}", "name": "n", "run_type": "llm",
    "start_time": TIME, "end_time": TIME, "inputs": {"messages": [{"role": "user", "content": "a"}]}, "error": "e", "tags": ["a"],
    "outputs": {"generations": [[{"text": "b", "message": {"kwargs": {"tool_calls": [{"name": "t", "args": {}, "id": "c"}]}}}]]},
    "events": [{"name": "new_token", "time": TIME, "kwargs": {}}], "serialized": {"id": ["a"]}, "session_name": "p",
    "extra": {"metadata": {"ls_model_name": "m", "session_id": "s"}, "runtime": {"sdk_version": "1"}, "invocation_params": {"tools": [{}]}},
}  # fmt: skip
FEEDBACK = {
    "id": RUN, "run_id": RUN, "trace_id": RUN, "key": "q", "score": 1, "value": "v", "comment": "c", "created_at": TIME,
    "feedback_source": {"type": "app", "user_name": "u", "metadata": {}}, "correction": {},
}  # fmt: skip
OPENAI_SPAN = {
    "object": "trace.span", "id": "span_1", "trace_id": f"trace_{TRACE}", "parent_id": "span_0", "started_at": TIME, "ended_at": TIME,
    "error": {"message": "m", "data": {}}, "metadata": {"user_id": "u"},
    "span_data": {"type": "generation", "model": "m", "input": [{"role": "user", "content": "a"}], "output": [{"role": "assistant"}],
                  "usage": {"input_tokens": 1}, "model_config": {"temperature": 1}, "tools": ["t"], "name": "n"},
}  # fmt: skip

LANGFUSE_EVENTS: list[Any] = [
    {"id": str(number), "type": kind, "timestamp": TIME, "body": json.loads(json.dumps(body))}
    for number, (kind, body) in enumerate(
        [
            ("trace-create", TRACE_BODY),
            ("generation-create", OBSERVATION),
            ("observation-update", OBSERVATION),
            ("score-create", LANGFUSE_SCORE),
            ("dataset-run-item-create", {"traceId": "t", "observationId": "o", "runName": "r"}),
        ]
    )
]

WIRES: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "OTLP traces": (
        traces,
        {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"scope": SCOPE, "spans": [OTLP_SPAN], "schemaUrl": ""}]}]},
    ),
    "OTLP attributes": (
        lambda body: of_spans([msgspec.json.decode(body, type=Span)], []),
        {"trace_id": TRACE, "span_id": SPAN, "name": "chat", "start": 1, "end": 2, "attributes": GENERATION},
    ),
    "OTLP logs": (logs, {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"scope": SCOPE, "logRecords": [LOG]}]}]}),
    "OTLP metrics": (otlp_json.count_metrics, {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m"}]}]}]}),
    **{
        f"Langfuse {event['type']}": (langfuse_batch, {"batch": [event], "metadata": {"sdk_version": "2"}})
        for event in LANGFUSE_EVENTS
    },
    "Langfuse scores": (lambda body: langfuse_events.decode_scores(body, NOW), [LANGFUSE_SCORE]),
    "LangSmith batch": (lambda body: langsmith(langsmith_runs.decode_batch(body)), {"post": [RUN_BODY], "patch": [{"id": RUN}]}),
    "LangSmith run": (lambda body: langsmith(langsmith_runs.decode_run(body, "patch", RUN)), RUN_BODY),
    "LangSmith parts": (
        multipart,
        {f"post.{RUN}": RUN_BODY, f"post.{RUN}.events": RUN_BODY["events"], f"post.{RUN}.extra": {}, f"feedback.{RUN}": FEEDBACK},
    ),
    "LangSmith feedback": (langsmith_runs.decode_feedback, FEEDBACK),
    "LangSmith change": (langsmith_runs.decode_feedback_change, {"score": 1, "value": "v", "comment": "c"}),
    "OpenAI traces": (
        lambda body: of_spans(openai_traces.decode_items(body)[0], []),
        {"data": [{"object": "trace", "id": "trace_1", "workflow_name": "w", "group_id": "g", "metadata": {"user_id": "u"}}, OPENAI_SPAN]},
    ),
}  # fmt: skip
