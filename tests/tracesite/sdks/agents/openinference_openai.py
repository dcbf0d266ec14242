"""OpenInference: the OpenTelemetry SDK with Phoenix's instrumentation, configured by OTEL_* variables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import OpenAI
from openinference.instrumentation import TracerProvider, using_session
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from planner import plan

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
OpenAIInstrumentor().instrument(tracer_provider=provider)
tracer = provider.get_tracer("planner")


def run_agent(name: str, question: str, function: Callable[[], str]) -> str:
    with tracer.start_as_current_span(name, openinference_span_kind="agent") as span:
        span.set_input(question)
        answer = function()
        span.set_output(answer)
        span.set_status("OK")
        return answer


def run_tool(name: str, arguments: dict[str, Any], function: Callable[..., str]) -> str:
    with tracer.start_as_current_span(name, openinference_span_kind="tool") as span:
        span.set_tool(name=name, parameters=json.dumps(arguments))
        span.set_input(arguments)
        result = function(**arguments)
        span.set_output(result)
        return result


with using_session("sdk-session"):
    print(plan(OpenAI(), run_agent, run_tool))
provider.shutdown()
