"""OpenTelemetry's own instrumentation for OpenAI, configured by OTEL_* variables; agents and tools by its GenAI conventions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import OpenAI
from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from planner import plan

spans, logs = TracerProvider(), LoggerProvider()
spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
trace.set_tracer_provider(spans)
set_logger_provider(logs)
OpenAIInstrumentor().instrument()
tracer = trace.get_tracer("planner")


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": "sdk-session",
    }
    with tracer.start_as_current_span(f"invoke_agent {name}", attributes=attributes):
        return function()


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with tracer.start_as_current_span(f"execute_tool {name}", attributes=attributes) as span:
        result = function(**arguments)
        span.set_attribute("gen_ai.tool.call.result", result)
        return result


print(plan(OpenAI(), run_agent, run_tool))
spans.shutdown()
logs.shutdown()
