"""Sessions, messages, steps and tool calls: the scopes that a recorder opens, and the state that it shares with them.

Everything here runs in the host's threads. Nothing raises or blocks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tracesite_sdk import records
from tracesite_sdk.records.ids import message_id

from .capture import decorating
from .capture.entries import MARGIN, Cut, Entry, Kind, Losses, error_text, freeze, freeze_request, size_of, text_of
from .capture.scores import score_data
from .delivery.pipeline import Pipeline
from .guard import Guard, failure_of, guarded

F = TypeVar("F", bound=Callable[..., Any])

_NEW, _OPEN, _PAUSED, _ENDED = range(4)
_MOST_REQUESTED = 10_000
"""Calls of a message that wait for a tool or a result."""


class Runtime:
    """The state that a recorder shares with its scopes: queue, clock, ids, and the current scope of each context."""

    def __init__(
        self,
        pipeline: Pipeline,
        guard: Guard,
        *,
        enabled: bool,
        clock: Callable[[], int],
        ids: Callable[[], str] | None,
        destination: object | None,
    ) -> None:
        self.pipeline = pipeline
        self.guard = guard
        self.enabled = enabled
        self.destination = object() if destination is None else destination
        """Equal for recorders whose events go to the same place."""
        self.current: ContextVar[Scope | None] = ContextVar("tracesite_scope", default=None)
        self.part: ContextVar[Step | None] = ContextVar("tracesite_part", default=None)
        """The innermost step of an enabled object, in which other steps may be. It is no parent of scopes."""
        self.custom_ids = ids
        self.forks = 0
        """Forks between the process that made the recorder and this one."""
        self.max_characters = pipeline.privacy.max_bytes + MARGIN
        """Characters of a value that are frozen."""
        self.on_failure: Callable[[str], None] | None = None
        """Called with the external id of a session in which something failed."""
        self._clock = clock
        self._last_number = 0
        self.renew()
        # The parents of scopes that have not begun.
        self.no_session = Session(self)
        self.no_message = Message(self)

    def renew(self) -> None:
        """Choose a prefix for ids that no other process uses: at the start, and in the child of a fork."""
        self._prefix = token_hex(6)
        self._counter = count(1)
        self.own_session: Session | None = None

    def process_session(self) -> Session:
        """Return the session of calls and steps outside of any message. One for the process, because a session for each of
        them would hide all others."""
        if self.own_session is None:
            title = "Calls outside of a message" if self.custom_ids else f"Calls outside of a message: {_program()}"
            self.own_session = Session(self, fields={"title": title})
        return self.own_session

    def new_id(self) -> str:
        return self.custom_ids() if self.custom_ids else f"{self._prefix}-{next(self._counter):x}"

    def now(self) -> int:
        """Return nanoseconds since 1970, always increasing, so that setting back the clock does not reverse the order."""
        now = self._clock()
        if now <= self._last_number:
            now = self._last_number + 1
        self._last_number = now
        return now

    def freeze(self, value: Any) -> Any:
        return freeze(value, self.max_characters)

    def freeze_all(self, /, **values: Any) -> dict[str, Any]:
        """Freeze the values that are not empty."""
        return {name: freeze(value, self.max_characters) for name, value in values.items() if not _is_empty(value)}

    def put(
        self,
        kind: Kind,
        scope: Message | Step | ToolCall,
        name: str,
        fields: dict[str, Any],
        content: dict[str, Any],
        failed: bool = False,
        duration_ms: float | None = None,
        event: Mapping[str, Any] | None = None,
        number: int | None = None,
    ) -> None:
        """Put an entry on the queue; see Entry. Without a `number` it happened now."""
        number = self.now() if number is None else number
        size = size_of(content)
        self.pipeline.put(Entry(kind, number, scope, name, fields, content, size, failed, duration_ms, event))
        # A session without a name has no snapshots yet.
        if failed and self.on_failure is not None and not scope.message.session.awaits_name:
            self.on_failure(scope.message.session.external_id)


class Scope:
    """The base of Session, Message, Step and ToolCall. Each begins, ends, and is the parent of scopes that are opened in it.

    `with` makes it the current scope. `start` and `end` do not; they are for code that begins and ends it in different
    places. No method raises or blocks.
    """

    error: str | None
    """The reason of a failure. Set by an exception that leaves the `with` block."""
    metadata: dict[str, Any] | None
    """Any other fields."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._outer: Scope | None = None
        self._implicit: Message | None = None
        self._state = _NEW
        self._forks = 0
        self.error = None

    @property
    def session(self) -> Session:
        """The session of the scope."""
        return self.message.session

    @property
    def message(self) -> Message:
        """The message of the scope."""
        return self._runtime.no_message

    @property
    def step(self) -> Step | None:
        """The innermost step, or None."""
        return None

    @property
    def call(self) -> ToolCall | None:
        """The innermost call, or None."""
        return None

    @property
    def guard(self) -> Guard:
        return self._runtime.guard

    @property
    def is_open(self) -> bool:
        """True between the beginning and the end."""
        return self._state == _OPEN

    def start(self, within: Scope | None = None) -> Self:
        """Begin inside `within`, or else inside the current scope, without becoming the current scope."""
        self._start(within)
        return self

    @guarded
    def end(self, error: BaseException | str | None = None) -> None:
        """End the scope; with an error it has failed. Ending it again does nothing."""
        self._end(error)

    def enter(self, within: Scope | None = None) -> Self:
        """Begin like `start`, and be the current scope until `leave`."""
        self._enter(within)
        return self

    @guarded
    def leave(self, error: BaseException | str | None = None) -> None:
        """End the scope and make the previous one current again, even if scopes inside it were never ended."""
        current = self._runtime.current
        inside = scope = current.get()
        while scope is not None and scope is not self:
            scope = scope._outer
        if scope is not None and scope is not inside:
            # Scopes that were left open inside this one must not be a parent any more.
            current.set(self)
        self._exit(error)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit(error)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit(error)

    def __call__(self, function: F) -> F:
        """Decorate a function so that each call of it is a scope like this one."""
        return decorating.decorated(self._copy, function)

    # --- For decorators (decorating.Traced) ---------------------------------------------------------------------------

    @property
    def _current(self) -> ContextVar[Scope | None]:
        return self._runtime.current

    @guarded
    def _record_arguments(
        self,
        read: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if self._runtime.enabled:
            self._set_arguments(read(args, kwargs))

    @guarded
    def _record_result(self, value: Any) -> None:
        if self._state == _OPEN:
            self._set_result(value)

    def _record_first_value(self) -> None:
        """Take the first value of a decorated generator."""

    def _go_inside(self) -> None:
        """The work of a decorated generator goes on."""

    def _come_out(self) -> None:
        """The work of a decorated generator rests."""

    def _pause(self) -> Self:
        """Keep the scope open when the current `with` is left, because its work goes on elsewhere."""
        if self._state == _OPEN:
            self._state = _PAUSED
        return self

    def _resume(self) -> Self:
        if self._state == _PAUSED:
            self._state = _OPEN
        return self

    def _track(self, unfinished: decorating.Unfinished) -> None:
        """Abandon unfinished work at the end of the message."""
        if self.message is not self and self._state in (_OPEN, _PAUSED):
            self.message._unfinished[id(unfinished)] = unfinished

    def _untrack(self, unfinished: decorating.Unfinished) -> None:
        self.message._unfinished.pop(id(unfinished), None)

    def _mark_incomplete(self, reason: str) -> None:
        """Record that the work was not done to its end."""
        self.metadata = {**(self.metadata or {}), "incomplete": reason}

    # --- For subclasses -----------------------------------------------------------------------------------------------

    def _begin(self, outer: Scope | None) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _copy(self) -> Self:
        """Return a scope with the same settings that has not begun."""
        raise NotImplementedError

    def _set_arguments(self, args: dict[str, Any]) -> None:
        """Take the arguments of the decorated function."""

    def _set_result(self, value: Any) -> None:
        """Take the return value of the decorated function."""

    def _parent(self, outer: Scope | None) -> Scope:
        """Return `outer`, or a new message that ends with this scope where no message is open there."""
        if outer is not None and outer.message._state == _OPEN:
            return outer
        self._implicit = message = Message(self._runtime)
        message._begin_in(self._runtime.process_session() if outer is None else outer)
        return message

    # --- Inside -------------------------------------------------------------------------------------------------------

    @guarded
    def _enter(self, within: Scope | None = None) -> None:
        if not self._runtime.enabled:
            return
        current = self._runtime.current
        outer = current.get()
        if self._state != _NEW and not self._may_be_inside(outer):
            return
        self._outer = outer
        self._begin_in(within if within is not None else outer)
        current.set(self)

    def _may_be_inside(self, outer: Scope | None) -> bool:
        """Return whether an open scope can become current: not inside itself, and not after its end."""
        while outer is not None and outer is not self:
            outer = outer._outer
        return self._state == _OPEN and outer is None

    @guarded
    def _exit(self, error: BaseException | str | None) -> None:
        # Not by a token: a generator may end in another context than it began in.
        current = self._runtime.current
        if current.get() is self:
            outer = self._outer
            while outer is not None and outer._state == _ENDED:
                outer = outer._outer
            current.set(outer)
        self._end(error)

    @guarded
    def _start(self, within: Scope | None) -> None:
        self._begin_in(within if within is not None else self._runtime.current.get())

    def _begin_in(self, outer: Scope | None) -> None:
        if self._state == _NEW and self._runtime.enabled:
            self._forks = self._runtime.forks
            self._begin(outer)
            self._state = _OPEN

    def _end(self, error: BaseException | str | None) -> None:
        if self._state != _OPEN:
            return
        self._state = _ENDED
        # Scopes of the parent are still open in a forked child: the parent ends them.
        if self._forks != self._runtime.forks or not self._runtime.enabled:
            return
        if error is not None and not isinstance(error, GeneratorExit):
            self.error = error if isinstance(error, str) else error_text(error)
        self._finish()
        if self._implicit is not None:
            self._implicit._end(self.error)


class Session(Scope):
    """A conversation or task. Its fields are sent with its next message."""

    started_at: datetime | None
    """When it was opened in this process; None before. The server knows the start and end of the whole session."""
    ended_at: datetime | None
    """When it was left; None before."""

    def __init__(
        self,
        runtime: Runtime,
        external_id: str | None = None,
        fields: Mapping[str, str | None] | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(runtime)
        self._given_id = external_id
        given = "" if external_id is None else text_of(external_id)
        self._external_id = given or f"session-{runtime.new_id()}"
        self._fields = fields or {}
        listed = [tags] if isinstance(tags, str) else failure_of(list, tags)
        self.tags: list[str] = [] if isinstance(listed, Exception) else listed
        self.metadata = _copy_of(metadata)
        self.started_at = self.ended_at = None

    @property
    def external_id(self) -> str:
        """The caller's id of the conversation or task, or one that was made."""
        return self._external_id

    @property
    def awaits_name(self) -> bool:
        """Whether the external id may still become known. Reading it before makes one."""
        return False

    @property
    def session(self) -> Session:
        return self

    def _begin(self, outer: Scope | None) -> None:
        self.started_at = datetime.now(UTC)

    def _finish(self) -> None:
        self.ended_at = datetime.now(UTC)

    def _mark_incomplete(self, reason: str) -> None:
        """Do nothing, because a session goes on in other functions."""

    def _copy(self) -> Self:
        return type(self)(self._runtime, self._given_id, self._fields, self.tags, self.metadata)

    def _as_dict(self) -> dict[str, Any]:
        fields = {**self._fields, "tags": self.tags, "metadata": self.metadata}
        return {name: value for name, value in fields.items() if value}


class Message(Scope):
    """One run of an agent: the user's prompt, the agent's steps and calls, and its answer."""

    content: str | Sequence[Any] | None
    """The answer: a text, or content parts."""
    references: list[Mapping[str, Any]]
    """The passages that the answer rests on, with the fields of records.Reference."""
    usage: Mapping[str, Any] | None
    """Tokens. None: the sum of the steps."""
    root_tool: str
    """In a chain of calls, the tool that its tracker calls the root."""
    metadata: dict[str, Any]
    """Any other fields."""

    def __init__(
        self,
        runtime: Runtime,
        prompt: str | Sequence[Any] | None = None,
        external_id: str | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(runtime)
        self._prompt = prompt
        self._request_id = request_id
        self._metadata = metadata
        self.id = "" if external_id is None else text_of(external_id)
        self.content = None
        self.references = []
        self.usage = None
        self.root_tool = ""
        self.metadata = _copy_of(metadata)
        self.losses = Losses()
        self.left_out = False
        self.number = 0
        self._updates = 0
        self._since = 0
        self._session: Session | None = None
        self._name = ""
        self._unfinished: dict[int, decorating.Unfinished] = {}
        """Generators and coroutines of this message that are not at their end."""
        self._requested: list[ToolCall] = []
        """Calls that a model requested and that have neither a tool nor a result yet."""
        self._reply: tuple[Step, str] | None = None
        """The last reply of a model without calls: the answer, unless another request follows."""

    @property
    def session(self) -> Session:
        return self._session or self._runtime.no_session

    @property
    def sampling_key(self) -> str:
        """The id of the session, so that sampling keeps a session whole or not at all. In the session of the process, the id
        of the message, because those messages have nothing to do with each other."""
        return self.id if self._session is self._runtime.own_session else self.session.external_id

    @property
    def message(self) -> Message:
        return self

    @guarded
    def update(self, /, content: str | Sequence[Any] | None = None, **fields: Any) -> None:
        """Send more about the message while it goes on: the answer so far, `metadata`, and the `status` of its session, for
        example "paused" while the agent waits for a person."""
        runtime = self._runtime
        if self._state != _OPEN or not runtime.enabled:
            return
        self._updates += 1
        name = f"u{self._updates}"
        if content is not None:
            runtime.put(Kind.MESSAGE_ANSWER, self, f"{name}a", {}, runtime.freeze_all(result=content))
        if fields:
            runtime.put(Kind.MESSAGE_UPDATE, self, name, {}, runtime.freeze_all(**fields))

    @guarded
    def answered(
        self,
        content: str | Sequence[Any] | None = None,
        *,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
        request: Any = None,
    ) -> None:
        """Set the answer, and record the request that gave it as a step: its model, its tokens and what was asked."""
        if content is not None:
            self.content = content
        if self._state == _OPEN and not (model is None and usage is None and request is None):
            step = _RequestOfAnswer(self._runtime, model=model, request=request)
            step.usage = usage
            step.start(within=self).end()

    @guarded
    def prompt_built(self, prompt: Any, kind: str = "system") -> None:
        """Record that a prompt of this kind was built: its length and its text."""
        frozen = self._runtime.freeze(prompt)
        if not isinstance(frozen, Cut):
            frozen = frozen.decode() if isinstance(frozen, bytes) else str(frozen)
        length = frozen.size if isinstance(frozen, Cut) else len(frozen)
        self._put_event({"type": "prompt_build"}, {"kind": kind, "length": length}, {"text": frozen})

    def score(
        self,
        name: str,
        value: bool | float | str | None = None,
        *,
        label: str | None = None,
        comment: str | None = None,
        source: records.ScoreSource = "program",
        author: str | None = None,
    ) -> None:
        """Judge the message, also after its end: a number, true or false, or a category; a comment alone is a note.
        See docs/cost.md."""
        self.put_score({"name": name, "source": source, "author": author}, value, label, comment)

    @guarded
    def put_score(self, about: Mapping[str, Any], value: Any, label: str | None, comment: str | None) -> None:
        """Add a score with these fields: for `score` of the message, its calls, and the recorder."""
        fields, content = score_data(about, value, label, comment)
        # With an id of its own, because the message may be one of another process, which counts its events, too.
        self._put_event({"type": "score", "id": f"score-{self._runtime.new_id()}"}, fields, content)

    @guarded
    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event with the fields of docs/events.md to this message."""
        about = {name: event[name] for name in ("type", "agent", "level", "category") if event.get(name) is not None}
        self._put_event(about, {}, {name: self._runtime.freeze(value) for name, value in event["data"].items()})

    def _put_event(self, event: dict[str, Any], fields: dict[str, Any], content: dict[str, Any]) -> None:
        if self._state == _NEW or not self._runtime.enabled:
            return
        self._updates += 1
        failed = event["type"].endswith("_error")
        self._runtime.put(Kind.EVENT, self, f"t{self._updates}", fields, content, failed, event=event)

    def stand_for(self, session: Session) -> Self:
        """Stand for a message that another process records, or for its session; begins and ends nothing."""
        self._session = session
        self._state = _ENDED
        return self

    def _begin(self, outer: Scope | None) -> None:
        runtime = self._runtime
        self._session = outer.session if outer is not None else Session(runtime)
        self.number = now = runtime.now()
        self._since = time.perf_counter_ns()
        # A run that is retried under the caller's own id, or that two processes work on: the name keeps each attempt apart.
        self._name = f"{runtime.new_id()}." if self.id else ""
        if not self.id and runtime.custom_ids:
            self.id = runtime.custom_ids()
        elif not self.id:
            self.id = str(message_id(datetime.fromtimestamp(now // 1000 / 1_000_000, UTC), "assistant"))
        fields = {"request_id": self._request_id} if self._request_id else {}
        if self._name:
            fields["attempt"] = self._name[:-1]
        if self.root_tool:
            # A name, like those of calls: it leaves the process whatever the privacy.
            fields["root_tool"] = self.root_tool
        content = runtime.freeze_all(prompt=self._prompt, session=self._session._as_dict(), metadata=self.metadata)
        runtime.put(Kind.MESSAGE_START, self, f"{self._name}s", fields, content, number=now)

    # --- For replies of models (model_clients.py) ---------------------------------------------------------------------

    def add_requested(self, call: ToolCall) -> None:
        """Keep a call that a model requested, for the tool that takes it up or for its result."""
        self._requested.append(call)
        del self._requested[:-_MOST_REQUESTED]

    def has_requested(self) -> bool:
        """Return whether calls that a model requested wait for a tool or a result."""
        return bool(self._requested)

    def take_requested(self, call_id: str) -> ToolCall | None:
        """Return the waiting call with this id, which waits no longer; None if there is none."""
        return self._taken(next((call for call in self._requested if call.call_id == call_id), None))

    def take_requested_by(self, taking: ToolCall, args: Any) -> ToolCall | None:
        """Return the waiting call that a tool takes up: the one with its id, else with its name and arguments, else with its
        name. Only calls of the same agent are compared."""
        if taking.call_id and (call := self.take_requested(taking.call_id)) is not None:
            return call
        parent = taking.parent.id if taking.parent is not None else None
        named = [
            call
            for call in self._requested
            if call.name == taking.name
            and (call.parent.id if call.parent is not None else None) == parent
            and not (taking.call_id and call.call_id)
        ]
        call = next((call for call in named if failure_of(_is_within, call._args, args) is True), None)
        return self._taken(call or (named[0] if named else None))

    def _taken(self, call: ToolCall | None) -> ToolCall | None:
        if call is None:
            return None
        try:
            self._requested.remove(call)
        except ValueError:
            return None  # a tool in another thread took it up at this moment
        return call

    def set_reply(self, step: Step | None, text: str = "") -> None:
        """Set the last reply without calls; None if another request follows. An earlier one becomes a thought."""
        if self._reply is not None:
            earlier, thought = self._reply
            earlier.update(thought)
        self._reply = (step, text) if step is not None else None

    def _finish(self) -> None:
        for unfinished in list(self._unfinished.values()):
            unfinished.abandon()
        if self._reply is not None:
            if _is_empty(self.content):
                self.content = self._reply[1]
            if type(self.content) is str and self.content == self._reply[1]:
                self._reply = None
            self.set_reply(None)
        self._requested.clear()
        duration = (time.perf_counter_ns() - self._since) / 1_000_000
        content = self._runtime.freeze_all(
            result=self.content,
            error=self.error,
            references=self.references,
            usage=self.usage,
            metadata=self.metadata,
        )
        fields = {"duration": duration}
        self._runtime.put(Kind.MESSAGE_END, self, f"{self._name}e", fields, content, bool(self.error), duration)

    def _copy(self) -> Self:
        return type(self)(self._runtime, self._prompt, None, self._request_id, self._metadata)

    def _set_arguments(self, args: dict[str, Any]) -> None:
        if self._prompt is None:
            self._prompt = next((value for value in args.values() if isinstance(value, str)), None)

    def _set_result(self, value: Any) -> None:
        if self.content is None and value is not None:
            frozen = value if isinstance(value, str | list) else self._runtime.freeze(value)
            # A value that is too long is cut at the end of the message, which records its size.
            self.content = frozen.decode() if isinstance(frozen, bytes) else value


class Step(Scope):
    """One think-act iteration."""

    thought: str | None
    """The text of the model before it acts."""
    reasoning: str | None
    """The reasoning that the model returned, apart from the thought."""
    request: Any
    """The request to the model, in the form of its provider: `messages`, `system`, `tools`, and parameters such as
    `temperature`; or the messages alone, or a prompt. It becomes the `input` of the step."""
    time_to_first_token: float | None
    """Milliseconds from the request to the first part of the response."""
    usage: Mapping[str, Any] | None
    """Tokens: `input_tokens` and `output_tokens`, or the names of the provider."""
    iteration: int | None
    """The number of the iteration, from 0. None: the next one."""
    duration: float | None
    """Milliseconds of the model, where the step ends later than the model."""
    metadata: dict[str, Any]
    """Any other fields."""

    def __init__(
        self,
        runtime: Runtime,
        thought: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        iteration: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        request: Any = None,
    ) -> None:
        super().__init__(runtime)
        self._thought = self.thought = thought
        self.model = model
        self.agent = agent
        self._iteration = self.iteration = iteration
        self._metadata = metadata
        self.metadata = _copy_of(metadata)
        self.reasoning = None
        self.request = request
        self._has_sent_request = False
        self.time_to_first_token = None
        self.usage = None
        self.duration = None
        self.id = ""
        self._updates = 0
        self._since = 0
        self._message = runtime.no_message
        self._call: ToolCall | None = None
        self._around: Step | None = None
        """The step around a step of an enabled object."""
        self._has_counted_inside = False
        """Whether a step inside a step of an enabled object has tokens."""

    @property
    def message(self) -> Message:
        return self._message

    @property
    def step(self) -> Step:
        return self

    @property
    def call(self) -> ToolCall | None:
        return self._call

    def first_token(self) -> None:
        """Record that the first part of the response has arrived: `time_to_first_token`. Later calls do nothing."""
        if self.time_to_first_token is None and self.id:
            self.time_to_first_token = (time.perf_counter_ns() - self._since) / 1_000_000

    def stop(self) -> None:
        """Stop the clock of the step: the model is done, and the step ends later."""
        if self.duration is None and self.id:
            self.duration = (time.perf_counter_ns() - self._since) / 1_000_000

    @guarded
    def update(self, /, thought: str | None = None, *, reasoning: str | None = None, **fields: Any) -> None:
        """Send more about the step: while it goes on, so that viewers see it grow, or after its end."""
        if self._state == _NEW or not self._runtime.enabled:
            return
        self._updates += 1
        content = self._runtime.freeze_all(thought=thought, reasoning=reasoning, **fields)
        self._runtime.put(Kind.STEP_UPDATE, self, f"u{self._updates}", {"step": self.id}, content)

    def _begin(self, outer: Scope | None) -> None:
        outer = self._parent(outer)
        self._message = outer.message
        self._call = outer.call
        self.id = self._runtime.new_id()
        self._since = time.perf_counter_ns()
        self._runtime.put(Kind.STEP_START, self, "s", self._fields(), self._frozen_request())

    def _frozen_request(self) -> dict[str, Any]:
        """Return the request, frozen, the first time; later nothing."""
        if self._has_sent_request or self.request is None:
            return {}
        self._has_sent_request = True
        return {"request": freeze_request(self.request, self._runtime.max_characters)}

    def _finish(self) -> None:
        self.stop()
        content = self._runtime.freeze_all(
            thought=self.thought,
            reasoning=self.reasoning,
            usage=self.usage,
            metadata=self.metadata,
            error=self.error,
        )
        content |= self._frozen_request()
        if self.usage is not None:
            part = self._runtime.part.get()
            # Ends in a circle, too: a generator may be continued inside a task that it has started.
            while part is not None and not part._has_counted_inside:
                part._has_counted_inside = True
                part = part._around
        fields = self._fields()
        if self.duration is not None:
            fields["duration"] = self.duration
        if self.time_to_first_token is not None:
            fields["time_to_first_token"] = self.time_to_first_token
        self._runtime.put(Kind.STEP_END, self, "e", fields, content, bool(self.error), self.duration)

    def _fields(self) -> dict[str, Any]:
        data: dict[str, Any] = {"step": self.id}
        if self.model:
            data["model"] = self.model
        if self.agent:
            data["agent_name"] = self.agent
        if self.iteration is not None:
            data["iteration"] = self.iteration
        return data

    def _copy(self) -> Self:
        return type(self)(self._runtime, self._thought, self.model, self.agent, self._iteration, self._metadata)

    def _set_result(self, value: Any) -> None:
        if self.thought is None and isinstance(value, str):
            self.thought = value

    def _record_first_value(self) -> None:
        self.first_token()


class _RequestOfAnswer(Step):
    """The request that gave the answer of a message, recorded when the answer is there."""

    def stop(self) -> None:
        """Leave the duration open, because the clock of the step started after the request."""


class ToolCall(Scope):
    """One call of a tool."""

    result: Any
    """The return value of the tool: any value, or a records.ToolResult (made by recorder.results)."""
    reflection: str | None
    """The agent's assessment of the result."""

    def __init__(
        self,
        runtime: Runtime,
        name: str | None = None,
        args: Any = None,
        call_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(runtime)
        self.name = "" if name is None else name
        self._args = args
        self.call_id = call_id
        self._metadata = metadata
        self.metadata = None if metadata is None else _copy_of(metadata)
        self.result = None
        self.reflection = None
        self.parent: ToolCall | None = None
        self.id = ""
        self._takes_up_requests = True
        self._is_requested = False
        self.left_out = False
        self._updates = 0
        self._since = 0
        self._message = runtime.no_message
        self._step: Step | None = None

    @property
    def message(self) -> Message:
        return self._message

    @property
    def step(self) -> Step | None:
        return self._step

    @property
    def call(self) -> ToolCall:
        return self

    def __call__(self, function: F) -> F:
        """Decorate a function so that each call of it is recorded; without a name it has the function's."""
        called = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        self.name = self.name or decorating.name_of(called)
        return decorating.tool(self._copy, function, self._runtime.destination)

    def request(self, within: Scope) -> Self:
        """Begin as a call that a model requested: the tool that runs it, or its result, comes later."""
        self._takes_up_requests, self._is_requested = False, True
        self.start(within)
        if self.is_open:
            self._message.add_requested(self)
        return self

    @property
    def is_requested(self) -> bool:
        """Return whether a model requested the call, so that its arguments are known from the model."""
        return self._is_requested

    def end_with(self, result: records.ToolResult) -> None:
        """End a call that no tool has taken up, with the result that the model was given."""
        self.result = {name: value for name, value in msgspec.structs.asdict(result).items() if value is not None}
        self.end()

    @guarded
    def run(self) -> None:
        """Record that the tool begins to run: for a call that was started when the model asked for it."""
        if self._state == _NEW or not self._runtime.enabled:
            return
        self._updates += 1
        self._since = time.perf_counter_ns()
        self._runtime.put(Kind.CALL_UPDATE, self, f"u{self._updates}", {"uuid": self.id, "runs": True}, {})

    @guarded
    def update(self, /, *, reflection: str | None = None, result: Any = None, **fields: Any) -> None:
        """Send more about the call, also after its end: a reflection, a result that came late."""
        if self._state == _NEW or not self._runtime.enabled:
            return
        self._updates += 1
        content = self._runtime.freeze_all(reflection=reflection, result=result, **fields)
        kind = Kind.CALL_RESULT if "result" in content else Kind.CALL_UPDATE
        self._runtime.put(kind, self, f"u{self._updates}", {"uuid": self.id}, content)

    def score(
        self,
        name: str,
        value: bool | float | str | None = None,
        *,
        label: str | None = None,
        comment: str | None = None,
        source: records.ScoreSource = "program",
        author: str | None = None,
    ) -> None:
        """Judge the call, also after its end; see `Message.score`."""
        about = {"name": name, "source": source, "author": author, "uuid": self.id}
        self._message.put_score(about, value, label, comment)

    def has_taken(self, time_before: timedelta) -> None:
        """Move the beginning of the call so much earlier than it was recorded."""
        self._since -= time_before // timedelta(microseconds=1) * 1000

    def _begin(self, outer: Scope | None) -> None:
        runtime = self._runtime
        outer = self._parent(outer)
        self._message = outer.message
        step = self._step = outer.step
        parent = self.parent = outer.call
        if self._takes_up_requests and self._message.has_requested() and self._take_up():
            return
        self.id = runtime.new_id()
        fields = {"uuid": self.id, "name": self.name}
        if self.call_id:
            fields["call_id"] = self.call_id
        if step is not None:
            fields["step"] = step.id
        if parent is not None:
            fields["parent"] = parent.id
        content = {"args": runtime.freeze(self._args)}
        if self.metadata:
            content["metadata"] = runtime.freeze(self.metadata)
        self._since = time.perf_counter_ns()
        runtime.put(Kind.CALL_START, self, "s", fields, content)

    def _take_up(self) -> bool:
        """Be the call that a model requested, if there is one for this tool."""
        requested = self._message.take_requested_by(self, self._args)
        if requested is None:
            return False
        self._is_requested = True
        self.id, self.call_id, self._step = requested.id, requested.call_id, requested.step
        self.metadata = {**(requested.metadata or {}), **(self.metadata or {})} or None
        self._since = time.perf_counter_ns()
        self._runtime.put(Kind.CALL_UPDATE, self, "r", {"uuid": self.id, "runs": True}, {})
        return True

    def _finish(self) -> None:
        runtime = self._runtime
        duration = (time.perf_counter_ns() - self._since) / 1_000_000
        fields: dict[str, Any] = {"uuid": self.id, "name": self.name, "duration": duration}
        if self.call_id:
            fields["call_id"] = self.call_id
        content = {"result": runtime.freeze(self.result)}
        if self.error:
            content["error"] = self.error
        if self.reflection:
            content["reflection"] = self.reflection
        if self.metadata:
            content["metadata"] = runtime.freeze(self.metadata)
        runtime.put(Kind.CALL_END, self, "e", fields, content, bool(self.error), duration)

    def _copy(self) -> Self:
        return type(self)(self._runtime, self.name, None, None, self._metadata)

    def _set_arguments(self, args: dict[str, Any]) -> None:
        self._args = args

    def _set_result(self, value: Any) -> None:
        self.result = value


def _is_within(requested: Any, args: Any) -> bool:
    """Return whether the arguments of a tool are those that the model gave; the tool may have defaults of its own."""
    if not isinstance(requested, Mapping) or not isinstance(args, Mapping):
        return bool(requested == args)
    return all(name in args and bool(args[name] == value) for name, value in requested.items())


def _is_empty(value: Any) -> bool:
    """Return whether a value is None or empty. By its type, because the truth value of other objects is the host's code."""
    return value is None or (type(value) in (str, list, tuple, dict) and len(value) == 0)


def _copy_of(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy to write to. A value that is no mapping is kept under `metadata`."""
    if metadata is None:
        return {}
    copy: dict[str, Any] | Exception = failure_of(dict, metadata)
    return {"metadata": metadata} if isinstance(copy, Exception) else copy


def _program() -> str:
    """Return the name of the program that runs in this process."""
    path = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    return path.parent.name if path.name == "__main__.py" else path.name
