"""A tracing processor that records agents of the OpenAI Agents SDK, with the content that its own exporter leaves out.

    from agents import add_trace_processor
    from tracesite_sdk.openai_agents import TracesiteProcessor

    add_trace_processor(TracesiteProcessor(recorder))

* A trace is a message, or a part of the open one. Its session is the trace's group (`group_id`), else the current one, else a new one.
* A request to a model is a step. The calls of its reply begin with it; the tool that runs a call takes it up, and everything
  inside the tool, such as another agent, belongs to that call.
* A call without a tool of its own, such as a handoff, has the result that the next request brings.

It needs openai-agents, whose processors are called in the tasks of the agent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from .normalize.json_values import fields, text
from .recorder.capture.entries import thaw
from .recorder.guard import guarded
from .recorder.instruments.model_apis import CHAT, RESPONSES, Api, ModelReply, with_arguments
from .recorder.recording import Recorder
from .recorder.scopes import Message, Scope, Session, Step, ToolCall
from .transcripts.entries import Result
from .transcripts.parsing.message_shapes import joined, messages_in
from .transcripts.turn_records import result_of

try:
    from agents.tracing import Span, Trace, TracingProcessor
except ImportError as missing:
    raise ImportError("tracesite_sdk.openai_agents needs openai-agents: pip install openai-agents.") from missing

_MOST_OPEN = 50_000
"""Open traces and spans that are kept; beyond it the oldest is dropped."""
_END_USER = ("user_id", "end_user")
_REQUEST = ("instructions", "tools", "tool_choice", "temperature", "top_p", "max_output_tokens", "reasoning")
"""Parts of a request that its response repeats."""


@dataclass(eq=False, slots=True)
class _Place:
    """An open trace or span: the parent of those inside it."""

    scope: Scope
    agent: str | None = None
    has_prompt: bool = True
    """False for a message that was opened for a trace, until the first request shows the question."""
    is_own: bool = False
    """Whether the message was opened for the trace."""
    error: str | None = None
    """The error of a trace's last request or agent."""


class TracesiteProcessor(TracingProcessor):
    """Records traces with `recorder`. Thread-safe. Never raises, unless the recorder is `strict`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.guard = recorder.guard
        self._open: OrderedDict[str, _Place] = OrderedDict()

    # --- TracingProcessor -------------------------------------------------------------------------------------------

    @guarded
    def on_trace_start(self, trace: Trace) -> None:
        runtime = self.recorder.runtime
        if not runtime.enabled:
            return
        current = runtime.current.get()
        if current is not None and current.message.is_open:
            self._keep(trace.trace_id, _Place(current))
            return
        # A trace says its group and metadata in its export only.
        about = trace.export() or {}
        group, metadata = text(about.get("group_id")), fields(about.get("metadata"))
        end_user = next((text(metadata[name]) for name in _END_USER if metadata.get(name)), None)
        session: Scope | None = current
        if group is not None or session is None:
            session = Session(runtime, group, {"end_user": end_user})
        message = Message(runtime, metadata={"trace_name": trace.name, "trace_id": trace.trace_id, **metadata})
        message.start(within=session)
        self._keep(trace.trace_id, _Place(message, has_prompt=False, is_own=True))

    @guarded
    def on_trace_end(self, trace: Trace) -> None:
        place = self._open.pop(trace.trace_id, None)
        if place is not None and place.is_own:
            place.scope.end(place.error)

    @guarded
    def on_span_start(self, span: Span[Any]) -> None:
        parent = self._open.get(span.parent_id or span.trace_id) or self._open.get(span.trace_id)
        if parent is None:
            return
        data, kind = span.span_data, span.span_data.type
        place = _Place(parent.scope, parent.agent)
        if kind == "agent":
            place.agent = text(data.name)
        elif kind in ("response", "generation"):
            parent.scope.message.set_reply(None)
            place.scope = Step(self.recorder.runtime, agent=parent.agent).start(within=parent.scope)
        elif kind == "function":
            place.scope = ToolCall(self.recorder.runtime, data.name).enter(within=parent.scope)
        self._keep(span.span_id, place)

    @guarded
    def on_span_end(self, span: Span[Any]) -> None:
        place = self._open.pop(span.span_id, None)
        if place is None:
            return
        data, kind, error = span.span_data, span.span_data.type, _error(span.error)
        top = self._open.get(span.trace_id)
        if kind == "response" and isinstance(place.scope, Step):
            self._end_step(place.scope, RESPONSES, data.input, _response(data), error, top)
        elif kind == "generation" and isinstance(place.scope, Step):
            self._end_step(place.scope, CHAT, data.input, _generation(data), error, top)
        elif kind == "function" and isinstance(place.scope, ToolCall):
            _end_call(place.scope, data, error)
        elif kind == "agent" and error is not None and top is not None:
            top.error = top.error or error

    def shutdown(self) -> None:
        """Flush the recorder, for 2 s at most. It goes on, because it belongs to its owner."""
        self.recorder.flush(2)

    def force_flush(self) -> None:
        """Flush the recorder, for 10 s at most."""
        self.recorder.flush()

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _end_step(
        self, step: Step, api: Api, given: Any, reply: ModelReply, error: str | None, top: _Place | None
    ) -> None:
        name = "input" if api is RESPONSES else "messages"
        arguments = {**reply.request, name: given}
        message = step.message
        if top is not None and not top.has_prompt and given:
            top.has_prompt = True
            message.update(prompt=api.question(arguments))
        if message.has_requested():
            self._take_results(message, api, arguments)
        is_answer = not reply.calls and bool(reply.text) and not error and step.call is None
        step.thought = None if is_answer else reply.text or None
        step.reasoning, step.usage, step.model = reply.reasoning, reply.usage, reply.model
        step.metadata |= reply.metadata
        if given:
            step.request = {key: value for key, value in arguments.items() if value is not None}
        step.end(error or reply.error)
        if top is not None:
            # A request that failed and was made again is an error of its step only.
            top.error = error or reply.error
        for call in reply.calls:
            ToolCall(self.recorder.runtime, call.name, call.args, call.id, call.metadata or None).request(step)
        for result in reply.results:
            _take_result(message, result)
        if is_answer:
            message.set_reply(step, reply.text)

    @staticmethod
    def _take_results(message: Message, api: Api, arguments: Mapping[str, Any]) -> None:
        for result in api.results(arguments):
            _take_result(message, result)
            if not message.has_requested():
                return

    def _keep(self, name: str, place: _Place) -> None:
        self._open[name] = place
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)


def _response(data: Any) -> ModelReply:
    """Read the data of a `response` span."""
    response = data.response
    if response is None:
        return ModelReply(usage=fields(data.usage) or None)
    found = response.to_dict(warnings=False)
    return replace(RESPONSES.reply(found), request={name: found.get(name) for name in _REQUEST})


def _generation(data: Any) -> ModelReply:
    """Read the data of a `generation` span, whose output is a list of messages or of responses."""
    message = joined(messages_in(thaw(data.output), "assistant"))
    usage = {name: value for name, value in fields(thaw(data.usage)).items() if name != "requests"} or None
    model, request = text(data.model), dict(fields(thaw(data.model_config)))
    if message is None:
        return ModelReply(usage=usage, model=model, request=request)
    found = message.content
    return ModelReply(
        text=found if isinstance(found, str) else "" if found is None else msgspec.json.encode(found).decode(),
        reasoning=message.reasoning,
        calls=[with_arguments(call) for call in message.calls],
        results=message.results,
        model=message.model or model,
        usage=usage,
        request=request,
    )


def _take_result(message: Message, result: Result) -> None:
    for call_id in result.call_ids:
        if (call := message.take_requested(call_id)) is not None:
            call.end_with(result_of(result))


def _end_call(call: ToolCall, data: Any, error: str | None) -> None:
    if not call.is_requested and data.input is not None:
        call.update(args=data.input)
    call.result = data.output
    if error is not None:
        call.error = error
    call.leave()


def _error(error: Any) -> str | None:
    """Return the text of the error of a span: its message, and the reason in its data."""
    if not error:
        return None
    if not isinstance(error, Mapping):
        return str(error)
    data = error.get("data")
    reason = data.get("error") if isinstance(data, Mapping) else None
    return ": ".join(str(part) for part in (error.get("message"), reason) if part) or None
