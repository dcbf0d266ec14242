"""The messages of workload.py as OTLP requests: 13 spans each, an agent with four requests and eight tools."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from .workload import Json, Workload

_STEP = timedelta(milliseconds=4000)


def request(workload: Workload, numbers: Sequence[int], run: bytes) -> bytes:
    """Return a request in protobuf with the traces of messages. The ids of traces begin with the bytes of `run`."""
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "benchmark"
    scope = resource.scope_spans.add()
    scope.scope.name = "benchmark"
    for number in numbers:
        trace_id = run + number.to_bytes(16 - len(run))
        _add_trace(scope, workload, number, trace_id)
    return message.SerializeToString()


def _add_trace(scope: ScopeSpans, workload: Workload, number: int, trace_id: bytes) -> None:
    message = workload.message(number)
    begin = workload.created_at(number)
    root = _span(scope, trace_id, 1, 0, "invoke_agent orders", begin, datetime.fromisoformat(message["completed_at"]))
    _set(
        root,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "orders",
            "gen_ai.conversation.id": workload.session_name(workload.place(number).session),
            "gen_ai.output.messages": [
                {"role": "assistant", "parts": [{"type": "text", "content": message["content"]}]}
            ],
        },
    )
    for place, step in enumerate(message["agent_steps"]):
        start = datetime.fromisoformat(step["timestamp"])
        end = start + timedelta(milliseconds=step["duration"])
        chat = _span(scope, trace_id, 10 * place + 2, 1, "chat", start, end)
        _set(chat, _chat(step))
        for index, call in enumerate(step["tool_calls"]):
            started, ended = (datetime.fromisoformat(call[name]) for name in ("started_at", "completed_at"))
            tool = _span(scope, trace_id, 10 * place + index + 3, 1, f"execute_tool {call['name']}", started, ended)
            _set(tool, _tool(call))
            if not call["result"]["success"]:
                tool.status.code = 2
                tool.status.message = call["result"]["error"]


def _chat(step: Json) -> Json:
    parts = [
        {"type": "reasoning", "content": step["reasoning_content"]},
        {"type": "text", "content": step["thought"]},
        *(
            {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
            for call in step["tool_calls"]
        ),
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": step["model"],
        "gen_ai.usage.input_tokens": step["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": step["usage"]["output_tokens"],
        "gen_ai.output.messages": [{"role": "assistant", "parts": parts}],
    }


def _tool(call: Json) -> Json:
    result = call["result"]
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call["id"],
        "gen_ai.tool.call.arguments": call["args"],
        "gen_ai.tool.call.result": {"output": result["output"], "data": result.get("data")},
    }


def _span(
    scope: ScopeSpans, trace_id: bytes, number: int, parent: int, name: str, start: datetime, end: datetime
) -> Span:
    return scope.spans.add(
        trace_id=trace_id,
        span_id=number.to_bytes(8),
        parent_span_id=parent.to_bytes(8) if parent else b"",
        name=name,
        kind=1,
        start_time_unix_nano=int(start.timestamp() * 1e6) * 1000,
        end_time_unix_nano=int(end.timestamp() * 1e6) * 1000,
    )


def _set(span: Span, attributes: Json) -> None:
    """Set attributes; lists and objects are JSON text, as the SDKs write them."""
    for key, value in attributes.items():
        of_span = span.attributes.add(key=key).value
        if isinstance(value, int):
            of_span.int_value = value
        else:
            of_span.string_value = value if isinstance(value, str) else msgspec.json.encode(value).decode()
