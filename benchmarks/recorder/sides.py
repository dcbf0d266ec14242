"""Measured ways of tracing a call. The tool itself does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import distributions
from typing import Any, Protocol

from tracesite.recorder import NullSink, Recorder
from tracesite.recorder.sinks import Clean

from .contents import Content

# By its distribution, because other packages share the name `opentelemetry`.
HAS_OPENTELEMETRY = any(found.name == "opentelemetry-sdk" for found in distributions())


class Side(Protocol):
    """Way of tracing."""

    def run(self) -> AbstractContextManager[Any]:
        """Return the context of the calls."""

    def call(self, content: Content) -> None:
        """Make one traced call, the measured operation."""

    def flush(self) -> None:
        """Wait until all calls are processed."""

    def kept(self) -> int:
        """Return the number of calls that reached the end of the pipeline."""


class CountingSink(NullSink):
    """Sink that counts ended calls and discards events, which are encoded as for any sink."""

    calls = 0

    @property
    def discards(self) -> bool:
        return False

    def send(self, events: Sequence[Clean]) -> int:
        # The end of a call, not of its message.
        self.calls += sum(
            b'"type":"tool_call_complete"' in event or b'"type":"tool_call_error"' in event for event in events
        )
        return len(events)


class Traced:
    """`with recorder.tool_call(...)`, with a sink that discards events."""

    def __init__(self, *, enabled: bool = True, counting: bool = False, delay_ms: float = 50) -> None:
        self.sink = CountingSink() if counting else NullSink()
        self.recorder = Recorder(sink=self.sink, enabled=enabled, delay_ms=delay_ms)

    def run(self) -> AbstractContextManager[Any]:
        return self.recorder.message("Where is my order?")

    def call(self, content: Content) -> None:
        with self.recorder.tool_call(content.name, content.args) as call:
            call.result = content.result

    def flush(self) -> None:
        self.recorder.flush()

    def kept(self) -> int:
        return self.sink.calls if isinstance(self.sink, CountingSink) else 0


class Decorated(Traced):
    """`@recorder.tool_call`."""

    def __init__(self) -> None:
        super().__init__()

        @self.recorder.tool_call("decorated")
        def tool(args: dict[str, Any], result: str) -> str:
            return result

        self.tool: Callable[[dict[str, Any], str], str] = tool

    def call(self, content: Content) -> None:
        self.tool(content.args, content.result)


class Bare:
    """No tracing, to show the cost of measuring."""

    def run(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def call(self, content: Content) -> None:
        pass

    def flush(self) -> None:
        pass

    def kept(self) -> int:
        return 0


class OpenTelemetry:
    """Span with its arguments as JSON and its result, as instrumentations write them. The exporter discards spans, with
    `to_json` after encoding each by the SDK."""

    def __init__(self, *, to_json: bool = False) -> None:
        # Optional, see __main__.py.
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        class NullExporter(SpanExporter):
            spans = 0

            def export(self, spans: Sequence[Any]) -> SpanExportResult:
                self.spans += len(spans)
                if to_json:
                    for span in spans:
                        span.to_json(indent=None)
                return SpanExportResult.SUCCESS

            def shutdown(self) -> None:
                pass

        self.exporter = NullExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(BatchSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("benchmark")

    def run(self) -> AbstractContextManager[Any]:
        return self.tracer.start_as_current_span("message")

    def call(self, content: Content) -> None:
        with self.tracer.start_as_current_span(content.name) as span:
            span.set_attribute("input.value", json.dumps(content.args))
            span.set_attribute("output.value", content.result)

    def flush(self) -> None:
        self.provider.force_flush()

    def kept(self) -> int:
        return self.exporter.spans
