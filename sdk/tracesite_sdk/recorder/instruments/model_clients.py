"""Clients of model providers: `recorder.openai(client)` and `recorder.anthropic(client)` record the requests of a client.

* A request is a step: the arguments, thought, reasoning, model, usage, error, duration. Retries inside the client are part of
  it. The calls of its reply begin with it; the tool that runs a call (`@recorder.tool_call`) takes it up, or else the result in
  a later request ends it.
* A reply without calls is the answer of the message, unless another request of the same message follows: then it is a thought.
* Without an open message, a request opens one, which goes on with the requests that bring the results of its calls, or that
  name its response (`previous_response_id`), and ends with the first reply without calls.

Methods are replaced on the objects of this client, not on classes or modules. The caller gets the client's own objects: of a
stream, its HTTP response passes on the bytes that it reads, and they are parsed at the end. The SDKs are not imported, and only
their public names are used.
"""

from __future__ import annotations

import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from tracesite_sdk.normalize.json_values import text
from tracesite_sdk.recorder.guard import Guard, guarded, logger
from tracesite_sdk.recorder.scopes import Message, Runtime, Scope, Step, ToolCall
from tracesite_sdk.transcripts.turn_records import result_of

from .model_apis import CHAT, MESSAGES, RESPONSES, Api, ModelReply

T = TypeVar("T")
Arguments = Mapping[str, Any]

OPENAI = {
    "chat.completions.create": CHAT,
    "chat.completions.parse": CHAT,
    "beta.chat.completions.parse": CHAT,
    "responses.create": RESPONSES,
    "responses.parse": RESPONSES,
}
"""Methods of OpenAI's client. The others that stream (`stream`) call these."""
ANTHROPIC = {
    "messages.create": MESSAGES,
    "messages.parse": MESSAGES,
    "messages.stream": MESSAGES,
    "beta.messages.create": MESSAGES,
    "beta.messages.parse": MESSAGES,
    "beta.messages.stream": MESSAGES,
}

_MARK = "_tracesite_client"
_RAW = ("with_raw_response", "with_streaming_response")
"""Cached views of a resource, which hold its methods as they were when the view was made."""
_NOT_RECORDED = frozenset({"extra_headers", "extra_query", "timeout"})
"""Arguments about the transport; headers may have secrets."""
_NOT_GIVEN = frozenset({"NotGiven", "Omit"})
"""The SDKs' types for arguments that are not given."""
_MOST_WAITING = 1_000
"""Calls of messages that were opened for requests, for which results are expected."""
_MOST_STREAM_BYTES = 64 * 2**20
"""Bytes of a streamed response that are kept to be parsed at its end."""
_inside: ContextVar[bool] = ContextVar("tracesite_inside_model_client", default=False)
"""Whether a recorded method of a client calls another one."""


def record(runtime: Runtime, client: T, methods: Mapping[str, Api], kind: str) -> T:
    """Record these methods of a client, and return it. A client that is recorded already stays as it is."""
    if not runtime.enabled:
        return client
    with runtime.guard.around():
        requests = _Requests(runtime)
        recorded = [requests.record(client, path, api) for path, api in methods.items()]
        if not any(recorded):
            logger.warning("Not recorded: %s is not a client of %s.", type(client).__name__, kind)
    return client


class _Requests:
    """The requests of one client."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.guard = runtime.guard
        self._waiting: OrderedDict[str, Message] = OrderedDict()
        """Messages that were opened for requests, by the ids of the calls and responses that later requests may name."""

    def record(self, client: Any, path: str, api: Api) -> bool:
        """Replace a method; return whether the client has it."""
        *parts, name = path.split(".")
        resource = client
        for part in parts:
            resource = getattr(resource, part, None)
        original = getattr(resource, name, None)
        if not callable(original):
            return False
        if not hasattr(original, _MARK):
            made = self._managed(original, api) if name == "stream" else self._recorded(original, api)
            setattr(made, _MARK, True)
            setattr(resource, name, made)
            for view in _RAW:
                vars(resource).pop(view, None)
        return True

    def _recorded(self, original: Callable[..., Any], api: Api) -> Callable[..., Any]:
        made: Callable[..., Any]
        if inspect.iscoroutinefunction(inspect.unwrap(original)):

            @wraps(original)
            async def made(*args: Any, **kwargs: Any) -> Any:
                with _Request(self, api, kwargs) as request:
                    result = await original(*args, **kwargs)
                request.answered(result)
                return result

        else:

            @wraps(original)
            def made(*args: Any, **kwargs: Any) -> Any:
                with _Request(self, api, kwargs) as request:
                    result = original(*args, **kwargs)
                request.answered(result)
                return result

        return made

    def _managed(self, original: Callable[..., Any], api: Api) -> Callable[..., Any]:
        """Return a method whose request is sent when the manager that it returns is entered."""

        @wraps(original)
        def made(*args: Any, **kwargs: Any) -> Any:
            manager = original(*args, **kwargs)
            with self.guard.around():
                manager.__class__ = _recorded_manager(type(manager))
                manager.tracesite_request = _Request(self, api, kwargs)
            return manager

        return made

    # --- Places -----------------------------------------------------------------------------------------------------

    def place(self, api: Api, arguments: Arguments) -> tuple[Scope, bool]:
        """Return the parent of a request, and whether its message was opened for requests."""
        current = self.runtime.current.get()
        if current is not None and current.message.is_open:
            return current, False
        names = [
            api.previous(arguments),
            *(call_id for result in api.results(arguments) for call_id in result.call_ids),
        ]
        for name in names:
            known = self._waiting.get(name) if name is not None else None
            if known is not None and known.is_open:
                return known, True
        message = Message(self.runtime, api.question(arguments))
        return message.start(within=current if current is not None else self.runtime.process_session()), True

    def wait(self, name: str, message: Message) -> None:
        """Remember the message of a call or response that a later request may name."""
        self._waiting[name] = message
        self._waiting.move_to_end(name)
        while len(self._waiting) > _MOST_WAITING:
            _name, oldest = self._waiting.popitem(last=False)
            if oldest not in self._waiting.values():
                oldest.end()


class _Request:
    """One request to a model. Its `with` block holds the call of the client's method."""

    def __init__(self, requests: _Requests, api: Api, arguments: Arguments) -> None:
        self._requests = requests
        self._api = api
        self._arguments = arguments
        self._step: Step | None = None
        """The step until its response is known."""
        self._begun: Step | None = None
        self._place: Scope | None = None
        self._is_own = False
        self._was_inside = False
        self._since = 0

    @property
    def guard(self) -> Guard:
        return self._requests.guard

    def __enter__(self) -> _Request:
        self._was_inside = _inside.get()
        if not self._was_inside:
            self._begin()
            _inside.set(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._was_inside:
            _inside.set(False)
        if error is not None:
            self.failed(error)

    @guarded
    def _begin(self) -> None:
        runtime, arguments = self._requests.runtime, self._arguments
        if not runtime.enabled:
            return
        self._since = time.perf_counter_ns()
        place, self._is_own = self._requests.place(self._api, arguments)
        message = place.message
        message.set_reply(None)
        if message.has_requested():
            self._take_results(message)
        model = arguments.get("model")
        self._place = place
        self._step = self._begun = step = Step(runtime, model=model if isinstance(model, str) else None)
        step.request = {
            name: value.__name__ if isinstance(value, type) else value
            for name, value in arguments.items()
            if value is not None and name not in _NOT_RECORDED and type(value).__name__ not in _NOT_GIVEN
        }
        step.start(within=place)

    def _take_results(self, message: Message) -> None:
        for result in self._api.results(self._arguments):
            for call_id in result.call_ids:
                call = message.take_requested(call_id)
                if call is not None:
                    call.end_with(result_of(result))
            if not message.has_requested():
                return

    @guarded
    def failed(self, error: BaseException) -> None:
        """Record that there is no response."""
        step = self._step
        if step is None:
            return
        self._step = None
        response = getattr(error, "response", None)
        status, request_id = getattr(error, "status_code", None), getattr(error, "request_id", None)
        if isinstance(status, int):
            step.metadata["status_code"] = status
        if isinstance(request_id, str):
            step.metadata["request_id"] = request_id
        self._count_retries(step, response)
        step.end(error)
        if self._is_own:
            step.message.end(error)

    def answered(self, result: Any) -> None:
        """Record the response, now or, of a stream, at its end."""
        with self.guard.around(self._give_up):
            self._answered(result)

    def _answered(self, result: Any) -> None:
        step = self._step
        if step is None:
            return
        to_dict = getattr(result, "to_dict", None)
        if callable(to_dict):
            self._reply(self._api.reply(to_dict(warnings=False)))
            return
        response = getattr(result, "http_response", None) or getattr(result, "response", None)
        if response is None or not hasattr(response, "iter_bytes"):
            step.end()
            return
        self._count_retries(step, response)
        if response.is_stream_consumed or response.is_closed:
            # A raw response that was read already.
            self._reply(parsed_body(self._api, response.content))
        else:
            _Stream(self, response).watch()

    def received(self, body: bytes, error: BaseException | None, first_byte_at: int, is_cut: bool) -> None:
        """Record the body of a stream that has ended."""
        with self.guard.around(self._give_up):
            self._received(body, error, first_byte_at, is_cut)

    def _give_up(self) -> None:
        """End the step of a response that cannot be read."""
        step, self._step = self._begun, None
        if step is not None:
            step.end()
            if self._is_own:
                step.message.end()

    def _received(self, body: bytes, error: BaseException | None, first_byte_at: int, is_cut: bool) -> None:
        step = self._step
        if step is None:
            return
        if first_byte_at and not _is_whole(body):
            step.time_to_first_token = (first_byte_at - self._since) / 1_000_000
        reply = parsed_body(self._api, body)
        if isinstance(error, GeneratorExit) or not reply.is_finished or is_cut:
            step.metadata["incomplete"] = "The stream was not read to its end."
        self._reply(reply, None if isinstance(error, GeneratorExit) else error)

    def _reply(self, reply: ModelReply, error: BaseException | None = None) -> None:
        step, place = self._step, self._place
        assert step is not None and place is not None, "it has begun"
        self._step = None
        runtime, message = self._requests.runtime, step.message
        failure = error if error is not None else reply.error
        is_answer = not reply.calls and bool(reply.text) and not failure and place.call is None
        step.thought = None if is_answer else reply.text or None
        step.reasoning, step.usage = reply.reasoning, reply.usage
        step.model = reply.model or step.model
        step.metadata |= reply.metadata
        step.end(failure)
        for call in reply.calls:
            ToolCall(runtime, call.name, call.args, call.id, call.metadata or None).request(step)
            if self._is_own and call.id:
                self._requests.wait(call.id, message)
        for result in reply.results:
            for call_id in result.call_ids:
                if (requested := message.take_requested(call_id)) is not None:
                    requested.end_with(result_of(result))
        if is_answer:
            message.set_reply(step, reply.text)
        if not self._is_own:
            return
        if failure or not message.has_requested():
            message.end(failure)
        elif response_id := text(reply.metadata.get("response_id")):
            self._requests.wait(response_id, message)

    @staticmethod
    def _count_retries(step: Step, response: Any) -> None:
        """Keep how often the client sent the request again, which it says in a header of the last one."""
        count = response.request.headers.get("x-stainless-retry-count", "0") if response is not None else "0"
        if count.isdecimal() and int(count):
            step.metadata["retries"] = int(count)


class _Stream:
    """A streamed response: keeps the bytes that the caller reads, until the end."""

    def __init__(self, request: _Request, response: Any) -> None:
        self._request = request
        self._response = response
        self._pieces: list[bytes] = []
        self._size = 0
        self._first_at = 0
        self._is_over = False
        self._step = request._step

    @property
    def guard(self) -> Guard:
        return self._request.guard

    def watch(self) -> None:
        """Replace the methods of the response that read and close it."""
        response, step = self._response, self._step
        assert step is not None, "it has begun"
        step._track(self)
        iter_bytes, aiter_bytes = response.iter_bytes, response.aiter_bytes
        close, aclose = response.close, response.aclose

        @wraps(iter_bytes)
        def iter_watched(*args: Any, **kwargs: Any) -> Iterator[bytes]:
            with self:
                for piece in iter_bytes(*args, **kwargs):
                    self._keep(piece)
                    yield piece

        @wraps(aiter_bytes)
        async def aiter_watched(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
            with self:
                async for piece in aiter_bytes(*args, **kwargs):
                    self._keep(piece)
                    yield piece

        @wraps(close)
        def close_watched() -> None:
            self._end(None)
            close()

        @wraps(aclose)
        async def aclose_watched() -> None:
            self._end(None)
            await aclose()

        response.iter_bytes, response.aiter_bytes = iter_watched, aiter_watched
        response.close, response.aclose = close_watched, aclose_watched

    def abandon(self) -> None:
        """End the step, because its message ends."""
        self._end(None)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    @guarded
    def _keep(self, piece: bytes) -> None:
        if not self._first_at:
            self._first_at = time.perf_counter_ns()
        self._size += len(piece)
        if self._size <= _MOST_STREAM_BYTES:
            self._pieces.append(piece)

    @guarded
    def _end(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        step = self._step
        assert step is not None, "it has begun"
        step._untrack(self)
        body, self._pieces = b"".join(self._pieces), []
        self._request.received(body, error, self._first_at, self._size > _MOST_STREAM_BYTES)


# --- Managers of streams ----------------------------------------------------------------------------------------------

_managers: dict[type, type] = {}


def _recorded_manager(kind: type) -> type:
    """Return a subclass of a client's stream manager that records the request when it is entered."""
    made = _managers.get(kind)
    if made is None:
        is_async = hasattr(kind, "__aenter__")

        def __enter__(self: Any) -> Any:
            with self.tracesite_request as request:
                stream = kind.__enter__(self)  # type: ignore[attr-defined]
            request.answered(stream)
            return stream

        async def __aenter__(self: Any) -> Any:
            with self.tracesite_request as request:
                stream = await kind.__aenter__(self)  # type: ignore[attr-defined]
            request.answered(stream)
            return stream

        methods = {"__aenter__": __aenter__} if is_async else {"__enter__": __enter__}
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        made = _managers[kind] = type(kind.__name__, (kind,), {**names, **methods})
    return made


# --- Values -----------------------------------------------------------------------------------------------------------


def parsed_body(api: Api, body: bytes) -> ModelReply:
    """Parse the body of a response: JSON, or server-sent events."""
    if _is_whole(body):
        document = msgspec.json.decode(body)
        return api.reply(document if isinstance(document, dict) else {})
    events = []
    for line in body.splitlines():
        if line.startswith(b"data:") and (data := line[5:].strip()).startswith(b"{"):
            try:
                events.append(msgspec.json.decode(data))
            except msgspec.DecodeError:
                continue  # the last line of a stream that was cut off
    return api.streamed(events)


def _is_whole(body: bytes) -> bool:
    """Return whether a body is one document and no stream of events."""
    return body.lstrip()[:1] == b"{"
