"""Measured ways of tracing a call. The tool itself does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import distributions
from types import SimpleNamespace
from typing import Any, Protocol

from tracesite_sdk import NullSink, Recorder
from tracesite_sdk.recorder.delivery.sinks import Clean

from .contents import Content

# By their distributions, because other packages share the name `opentelemetry`.
_INSTALLED = {found.name for found in distributions()}
HAS_OPENTELEMETRY = "opentelemetry-sdk" in _INSTALLED
HAS_OPENAI = "openai" in _INSTALLED

FLUSH_SECONDS = 600
"""What is not delivered by then would look like what was lost; a busy machine takes ten times as long as an idle one."""


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
        undelivered = self.recorder.flush(FLUSH_SECONDS)
        assert not undelivered

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


class Client(Traced):
    """`recorder.openai(client)`, with a client that has its response at once: a request with the arguments as the question and
    the result as the answer."""

    def __init__(self, *, calls: bool = False) -> None:
        super().__init__()
        from openai.types.chat import ChatCompletion

        self._calls = calls
        self._model = ChatCompletion
        self._prepared: dict[int, tuple[list[dict[str, Any]], Any]] = {}
        self._answer: Any = None
        completions = SimpleNamespace(create=lambda **_arguments: self._answer)
        self.client = self.recorder.openai(SimpleNamespace(chat=SimpleNamespace(completions=completions)))

    @contextmanager
    def run(self) -> Iterator[None]:
        # Inside a call, because a message has one answer and not a thousand.
        with super().run(), self.recorder.tool_call("agent"):
            yield

    def prepare(self, content: Content) -> None:
        """Make the request and the response, which the client's own code would make."""
        question = {"role": "user", "content": json.dumps(content.args)}
        reply: dict[str, Any] = {"role": "assistant", "content": content.result}
        if self._calls:
            function = {"name": content.name, "arguments": json.dumps(content.args)}
            reply["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        answer = self._model.model_validate(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1_790_000_000,
                "model": "gpt-4o-mini",
                "choices": [{"index": 0, "message": reply, "finish_reason": "tool_calls" if self._calls else "stop"}],
                "usage": {"prompt_tokens": 81, "completion_tokens": 400, "total_tokens": 481},
            }
        )
        self._prepared[id(content)] = ([{"role": "system", "content": "Help the customer."}, question], answer)

    def call(self, content: Content) -> None:
        messages, self._answer = self._prepared[id(content)]
        self.client.chat.completions.create(model="gpt-4o-mini", messages=messages)


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
