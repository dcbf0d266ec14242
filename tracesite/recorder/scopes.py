"""What a recorder opens: sessions, messages, steps and calls, that begin and end and find what they lie in.

All that happens here happens in the host's thread; nothing raises or waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from messages_app.ids import message_id
from traces_app.transcripts.entries import total_usage

from . import decorating
from .entries import Cut, Entry, Kind, freeze, size_of, text_of, thawed, words_of
from .guard import Guard, failure_of, guarded

if TYPE_CHECKING:
    from .recording import Recorder

F = TypeVar("F", bound=Callable[..., Any])

_NEW, _OPEN, _PAUSED, _ENDED = range(4)


@dataclass
class Losses:
    """What a trace does not hold of its message, besides what was dropped. Written by the worker."""

    sampled_out: int = 0
    """Calls that sampling left out."""
    truncated: int = 0
    """Values that were cut."""
    redacted: int = 0
    """Secrets that were taken out."""

    def said(self) -> dict[str, int]:
        return {name: number for name, number in vars(self).items() if number}


class Scope:
    """What a session, a message, a step and a call have in common: they begin, end, and what lies in them finds them.

    `with` makes it the current one; `start` and `end` do not, for code that begins and ends in different places.
    """

    __slots__ = ("_fork", "_implicit", "_outer", "_recorder", "_state", "error")

    error: str | None
    """Why it failed. An exception that passes through says it by itself."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._outer: Scope | None = None
        self._implicit: Message | None = None
        self._state = _NEW
        self._fork = 0
        self.error = None

    @property
    def session(self) -> Session:
        """The session that it is of."""
        return self.message.session

    @property
    def message(self) -> Message:
        """The message that it is of."""
        return self._recorder._nowhere

    @property
    def step(self) -> Step | None:
        """The innermost step, if there is one."""
        return None

    @property
    def call(self) -> ToolCall | None:
        """The innermost call, if there is one."""
        return None

    @property
    def guard(self) -> Guard:
        return self._recorder.guard

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._state == _OPEN

    def start(self, within: Scope | None = None) -> Self:
        """Begins, inside `within` or else what is current, without being current itself."""
        self._start(within)
        return self

    def end(self, error: BaseException | str | None = None) -> None:
        """Ends; with an error it has failed. A second time does nothing."""
        self._end(error)

    def enter(self, within: Scope | None = None) -> Self:
        """Begins as `start` does, and is the current one here until `leave`."""
        self._enter(within)
        return self

    def leave(self, error: BaseException | str | None = None) -> None:
        """Ends, and what was current before is so again; so is it if what lies in this was never ended."""
        self._leave(error)

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
        """As a decorator: each call of the function is one of these."""
        return decorating.decorated(self._again, function)

    # --- For decorators ---------------------------------------------------------------------------------------------

    @guarded
    def _take(
        self,
        read: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """The arguments of the function."""
        if self._recorder.enabled:
            self._takes(read(args, kwargs))

    @guarded
    def _give(self, value: Any) -> None:
        """What the function returned."""
        if self._state == _OPEN:
            self._gives(value)

    def _pause(self) -> Self:
        """What follows happens elsewhere: leaving this `with` does not end it, entering the next one goes on with it."""
        if self._state == _OPEN:
            self._state = _PAUSED
        return self

    def _resume(self) -> Self:
        if self._state == _PAUSED:
            self._state = _OPEN
        return self

    def _follow(self, unfinished: decorating.Unfinished) -> None:
        """What it is to do ends with the message, if nobody brings it to its end."""
        if self.message is not self and self._state in (_OPEN, _PAUSED):
            self.message._unread[id(unfinished)] = unfinished

    def _unfollow(self, unfinished: decorating.Unfinished) -> None:
        self.message._unread.pop(id(unfinished), None)

    def _leave_incomplete(self, why: str) -> None:
        """What was to be done was not done to its end."""

    # --- Inside -----------------------------------------------------------------------------------------------------

    @guarded
    def _enter(self, within: Scope | None = None) -> None:
        recorder = self._recorder
        if not recorder.enabled:
            return
        current = recorder._current
        outer = current.get()
        if self._state != _NEW and not self._may_lie_in(outer):
            return
        self._outer = outer
        self._begin_in(within if within is not None else outer)
        current.set(self)

    def _may_lie_in(self, outer: Scope | None) -> bool:
        """Whether it can become current although it has begun: not where it is open already, and not after its end."""
        while outer is not None and outer is not self:
            outer = outer._outer
        return self._state == _OPEN and outer is None

    @guarded
    def _exit(self, error: BaseException | str | None) -> None:
        # Not by a token: a generator may end in another context than it began in.
        current = self._recorder._current
        if current.get() is self:
            outer = self._outer
            while outer is not None and outer._state == _ENDED:
                outer = outer._outer
            current.set(outer)
        self._end_with(error)

    @guarded
    def _leave(self, error: BaseException | str | None) -> None:
        current = self._recorder._current
        inside = one = current.get()
        while one is not None and one is not self:
            one = one._outer
        if one is not None and one is not inside:
            # What was left open inside it is not where anything belongs any more.
            current.set(self)
        self._exit(error)

    @guarded
    def _start(self, within: Scope | None) -> None:
        self._begin_in(within if within is not None else self._recorder._current.get())

    @guarded
    def _end(self, error: BaseException | str | None) -> None:
        self._end_with(error)

    def _begin_in(self, outer: Scope | None) -> None:
        if self._state == _NEW and self._recorder.enabled:
            self._fork = self._recorder._fork
            self._begin(outer)
            self._state = _OPEN

    def _end_with(self, error: BaseException | str | None) -> None:
        if self._state != _OPEN:
            return
        self._state = _ENDED
        # In a forked child the parent's things are still open: it is the parent who ends them.
        if self._fork != self._recorder._fork or not self._recorder.enabled:
            return
        if error is not None and not isinstance(error, GeneratorExit):
            self.error = error if isinstance(error, str) else words_of(error)
        self._finish()
        if self._implicit is not None:
            self._implicit._end_with(self.error)

    def _begin(self, outer: Scope | None) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _again(self) -> Self:
        """Another one like it, that has not begun: for decorators."""
        raise NotImplementedError

    def _host(self, outer: Scope | None) -> Scope:
        """What a step or a call lies in: `outer`, or where no message is open there, one that ends with this."""
        if outer is not None and outer.message._state == _OPEN:
            return outer
        self._implicit = message = self._recorder.message()
        message._begin_in(self._recorder.session_of_process() if outer is None else outer)
        return message

    def _takes(self, args: dict[str, Any]) -> None:
        """The arguments of a function that it decorates."""

    def _gives(self, value: Any) -> None:
        """What a function returned that it decorates."""


class Session(Scope):
    """A conversation or task. What is said of it goes with its next message."""

    __slots__ = ("_given_id", "_said", "external_id", "metadata", "tags")

    def __init__(
        self,
        recorder: Recorder,
        external_id: str | None,
        said: dict[str, str | None],
        tags: Sequence[str],
        metadata: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(recorder)
        self._given_id = external_id
        given = "" if external_id is None else text_of(external_id)
        self.external_id = given or f"session-{recorder._new_id()}"
        self._said = said
        listed = [tags] if isinstance(tags, str) else failure_of(list, tags)
        self.tags: list[str] = [] if isinstance(listed, Exception) else listed
        self.metadata = _own(metadata)

    @property
    def session(self) -> Session:
        return self

    def _begin(self, outer: Scope | None) -> None:
        pass

    def _finish(self) -> None:
        pass

    def _again(self) -> Self:
        return type(self)(self._recorder, self._given_id, self._said, self.tags, self.metadata)

    def _all(self) -> dict[str, Any]:
        said: dict[str, Any] = {name: value for name, value in self._said.items() if value}
        if self.tags:
            said["tags"] = self.tags
        if self.metadata:
            said["metadata"] = self.metadata
        return said


class Message(Scope):
    """One run of an agent: what the user said, what the agent did, and its answer."""

    __slots__ = (
        "_metadata",
        "_name",
        "_prompt",
        "_has_answer_usage",
        "_request_id",
        "_session",
        "_since",
        "_unread",
        "_updates",
        "_usages",
        "content",
        "id",
        "left_out",
        "losses",
        "metadata",
        "number",
        "references",
        "root_tool",
        "usage",
    )

    content: str | Sequence[Any] | None
    """The answer: a text, or content parts."""
    references: list[Mapping[str, Any]]
    """The passages that the answer rests on, with the fields of records.Reference."""
    usage: Mapping[str, Any] | None
    """Tokens. Where it is not said, those of the steps are counted."""
    root_tool: str
    """Of a chain of calls, the tool that its tracker calls the root."""
    metadata: dict[str, Any]
    """Whatever else there is to say."""

    def __init__(
        self,
        recorder: Recorder,
        prompt: str | Sequence[Any] | None,
        external_id: str | None,
        request_id: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(recorder)
        self._prompt = prompt
        self._request_id = request_id
        self._metadata = metadata
        self.id = "" if external_id is None else text_of(external_id)
        self.content = None
        self.references = []
        self.usage = None
        self.root_tool = ""
        self.metadata = _own(metadata)
        self.losses = Losses()
        self.left_out = False
        self.number = 0
        self._updates = 0
        self._session: Session | None = None
        self._usages: list[dict[str, Any]] = []
        self._has_answer_usage = False
        self._name = ""
        self._unread: dict[int, decorating.Unfinished] = {}
        """Generators and coroutines in it that are not at their end."""

    @property
    def session(self) -> Session:
        return self._session or self._recorder._no_session

    @property
    def chosen_by(self) -> str:
        """What sampling draws by: the session, so that it is kept whole or not at all; in that of the process each message
        for itself."""
        return self.id if self._session is self._recorder._own_session else self.session.external_id

    @property
    def message(self) -> Message:
        return self

    def update(self, content: str | Sequence[Any] | None = None, **said: Any) -> None:
        """Says more about the message at once, while it goes on: the answer as it stands, `metadata`, and of its session
        `status`, for example "paused" while the agent waits for a person."""
        self._update(content, said)

    @guarded
    def _update(self, content: str | Sequence[Any] | None, said: dict[str, Any]) -> None:
        if self._state != _OPEN or not self._recorder.enabled:
            return
        self._updates += 1
        put, name = self._recorder._put, f"u{self._updates}"
        if content is not None:
            put(Kind.MESSAGE_ANSWER, self, f"{name}a", {}, _frozen(self._recorder._most, result=content))
        if said:
            put(Kind.MESSAGE_SAID, self, name, {}, _frozen(self._recorder._most, **said))

    def _begin(self, outer: Scope | None) -> None:
        recorder = self._recorder
        self._session = outer.session if outer is not None else recorder.session()
        self.number = now = recorder._now()
        self._since = time.perf_counter_ns()
        # Of a run that is tried again under the caller's own id, or that two processes work on, each tells its own.
        self._name = f"{recorder._new_id()}." if self.id else ""
        if not self.id and recorder._own_ids:
            self.id = recorder._own_ids()
        elif not self.id:
            self.id = str(message_id(datetime.fromtimestamp(now // 1000 / 1_000_000, UTC), "assistant"))
        said = {"request_id": self._request_id} if self._request_id else {}
        if self._name:
            said["attempt"] = self._name[:-1]
        if self.root_tool:
            # A name, like those of calls: it leaves the process whatever the privacy.
            said["root_tool"] = self.root_tool
        content = _frozen(
            self._recorder._most, prompt=self._prompt, session=self._session._all(), metadata=self.metadata
        )
        recorder._pipeline.put(Entry(Kind.MESSAGE_START, now, self, f"{self._name}s", said, content, size_of(content)))

    def _finish(self) -> None:
        for unfinished in list(self._unread.values()):
            unfinished.abandon()
        duration = (time.perf_counter_ns() - self._since) / 1_000_000
        content = _frozen(
            self._recorder._most,
            result=self.content,
            error=self.error,
            references=self.references,
            usage=self.usage,
            metadata=self.metadata,
        )
        self._recorder._put(
            Kind.MESSAGE_END, self, f"{self._name}e", {"duration": duration}, content, bool(self.error), duration
        )

    def answered(
        self,
        content: str | Sequence[Any] | None = None,
        *,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Says what the model answered, which model that was, and what that request took. The answer is no step: its model is
        kept in the metadata of the message, and its tokens are added to those of the steps."""
        self._answered(content, model, usage)

    @guarded
    def _answered(
        self, content: str | Sequence[Any] | None, model: str | None, usage: Mapping[str, Any] | None
    ) -> None:
        if content is not None:
            self.content = content
        if model is not None:
            self.metadata = {**(self.metadata or {}), "model": model}
        if usage is not None:
            self._has_answer_usage = True
            self._add_usage(usage)

    def _add_usage(self, usage: Any) -> None:
        """The usage of a step, or of the answer. A message that states its own has to state the sum."""
        own = thawed(usage)
        if isinstance(own, dict):
            self._usages.append(own)
        if self._has_answer_usage and self._usages:
            self.usage = total_usage(self._usages)

    def prompt_built(self, prompt: Any, kind: str = "system") -> None:
        """Says that a prompt was made: of which kind, and with which text."""
        self._tell_prompt(prompt, kind)

    def told(self, event: Mapping[str, Any]) -> None:
        """An event that somebody else made, by its fields (docs/events.md): it becomes one of this message."""
        self._tell(event)

    @guarded
    def _tell_prompt(self, prompt: Any, kind: str) -> None:
        frozen = freeze(prompt, self._recorder._most)
        if isinstance(frozen, Cut):
            self._put_told({"type": "prompt_build"}, {"kind": kind, "length": frozen.size}, {"text": frozen})
            return
        text = frozen.decode() if isinstance(frozen, bytes) else str(frozen)
        self._put_told({"type": "prompt_build"}, {"kind": kind, "length": len(text)}, {"text": text})

    @guarded
    def _tell(self, event: Mapping[str, Any]) -> None:
        about = {name: event[name] for name in ("type", "agent", "level", "category") if event.get(name) is not None}
        self._put_told(about, {}, {name: freeze(value, self._recorder._most) for name, value in event["data"].items()})

    def _put_told(self, event: dict[str, Any], said: dict[str, Any], content: dict[str, Any]) -> None:
        if self._state == _NEW or not self._recorder.enabled:
            return
        self._updates += 1
        failed = event["type"].endswith("_error")
        self._recorder._put(Kind.TOLD, self, f"t{self._updates}", said, content, failed, event=event)

    def _again(self) -> Self:
        return type(self)(self._recorder, self._prompt, None, self._request_id, self._metadata)

    def _takes(self, args: dict[str, Any]) -> None:
        if self._prompt is None:
            self._prompt = next((value for value in args.values() if isinstance(value, str)), None)

    def _leave_incomplete(self, why: str) -> None:
        self.metadata = {**(self.metadata or {}), "incomplete": why}

    def _gives(self, value: Any) -> None:
        if self.content is None and value is not None:
            frozen = value if isinstance(value, str | list) else freeze(value, self._recorder._most)
            # Of what is too long the beginning is frozen at the end, with its size.
            self.content = frozen.decode() if isinstance(frozen, bytes) else value


class Step(Scope):
    """One think-act iteration."""

    __slots__ = (
        "_asked",
        "_iteration",
        "_metadata",
        "_request_is_told",
        "_since",
        "_thought",
        "_call",
        "_message",
        "_updates",
        "agent",
        "duration",
        "id",
        "iteration",
        "metadata",
        "model",
        "reasoning",
        "request",
        "thought",
        "usage",
    )

    thought: str | None
    """What the agent said it was about to do."""
    reasoning: str | None
    """What the model returned as reasoning, apart from the thought."""
    request: Mapping[str, Any] | None
    """What the model was asked: `messages`, and whatever else there is, such as `tools` and `temperature`. The server keeps
    the messages as a context of the run, each once, however many requests repeat it."""
    usage: Mapping[str, Any] | None
    """Tokens: `input_tokens` and `output_tokens`, or the names that the provider gives them."""
    iteration: int | None
    """Which one it is, from 0. Without one: the next."""
    duration: float | None
    """Milliseconds that the model took, where the step ends later than that."""
    metadata: dict[str, Any]
    """Whatever else there is to say."""

    def __init__(
        self,
        recorder: Recorder,
        thought: str | None,
        model: str | None,
        agent: str | None,
        iteration: int | None,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(recorder)
        self._thought = self.thought = thought
        self.model = model
        self.agent = agent
        self._iteration = self.iteration = iteration
        self._metadata = metadata
        self.metadata = _own(metadata)
        self.reasoning = None
        self.request = None
        self._request_is_told = False
        self.usage = None
        self.duration = None
        self.id = ""
        self._asked: int | None = None
        self._updates = 0
        self._message = recorder._nowhere
        self._call: ToolCall | None = None

    @property
    def message(self) -> Message:
        return self._message

    @property
    def step(self) -> Step:
        return self

    @property
    def call(self) -> ToolCall | None:
        return self._call

    def ask(self, within: Scope | None = None) -> Self:
        """Says that a model is asked, in a message that is open, before it is known whether this becomes a step or the
        answer. `start`, once that is known, makes it a step that began now; otherwise it was none."""
        self._ask(within)
        return self

    @guarded
    def _ask(self, within: Scope | None) -> None:
        recorder = self._recorder
        if self._state != _NEW or self._asked is not None or not recorder.enabled:
            return
        self._place(within if within is not None else recorder._current.get())
        self._asked = number = recorder._now()
        # Without the id of the step: an event that names a step makes it.
        said = {name: value for name, value in self._who().items() if name in ("model", "agent_name")}
        content = self._asks()
        recorder._pipeline.put(Entry(Kind.STEP_ASKED, number, self, "a", said, content, size_of(content)))

    def stop(self) -> None:
        """The model is done: what happens until the step ends is not counted into its duration."""
        if self.duration is None and self.id:
            self.duration = (time.perf_counter_ns() - self._since) / 1_000_000

    def update(self, thought: str | None = None, *, reasoning: str | None = None, **said: Any) -> None:
        """Says more about the step at once: while it goes on, so that viewers see it grow, or after its end."""
        self._update({"thought": thought, "reasoning": reasoning, **said})

    @guarded
    def _update(self, said: dict[str, Any]) -> None:
        if self._state == _NEW or not self._recorder.enabled:
            return
        self._updates += 1
        self._recorder._put(
            Kind.STEP_SAID, self, f"u{self._updates}", {"step": self.id}, _frozen(self._recorder._most, **said)
        )

    def _begin(self, outer: Scope | None) -> None:
        recorder = self._recorder
        if self._asked is None:
            self._place(outer)
        number = self._asked or recorder._now()
        content = self._asks()
        recorder._pipeline.put(Entry(Kind.STEP_START, number, self, "s", self._who(), content, size_of(content)))

    def _asks(self) -> dict[str, Any]:
        """What the model is asked, once."""
        if self._request_is_told or self.request is None:
            return {}
        self._request_is_told = True
        return {"request": freeze(self.request, self._recorder._most)}

    def _place(self, outer: Scope | None) -> None:
        outer = self._host(outer)
        self._message = outer.message
        self._call = outer.call
        self.id = self._recorder._new_id()
        self._since = time.perf_counter_ns()

    def _finish(self) -> None:
        duration = self.duration
        if duration is None:
            duration = (time.perf_counter_ns() - self._since) / 1_000_000
        content = _frozen(
            self._recorder._most,
            thought=self.thought,
            reasoning=self.reasoning,
            usage=self.usage,
            metadata=self.metadata,
            error=self.error,
        )
        content |= self._asks()
        if not _is_nothing(self.usage):
            self._message._add_usage(self.usage)
        said = self._who() | {"duration": duration}
        self._recorder._put(Kind.STEP_END, self, "e", said, content, bool(self.error), duration)

    def _who(self) -> dict[str, Any]:
        data: dict[str, Any] = {"step": self.id}
        if self.model:
            data["model"] = self.model
        if self.agent:
            data["agent_name"] = self.agent
        if self.iteration is not None:
            data["iteration"] = self.iteration
        return data

    def _again(self) -> Self:
        return type(self)(self._recorder, self._thought, self.model, self.agent, self._iteration, self._metadata)

    def _leave_incomplete(self, why: str) -> None:
        self.metadata = {**(self.metadata or {}), "incomplete": why}

    def _gives(self, value: Any) -> None:
        if self.thought is None and isinstance(value, str):
            self.thought = value


class ToolCall(Scope):
    """One call of a tool."""

    __slots__ = (
        "_args",
        "_message",
        "_metadata",
        "_since",
        "_step",
        "_updates",
        "call_id",
        "id",
        "left_out",
        "metadata",
        "name",
        "parent",
        "reflection",
        "result",
    )

    result: Any
    """What the tool returned: any value, or a records.ToolResult (recorder.results makes them)."""
    reflection: str | None
    """What the agent thought of the result."""
    metadata: dict[str, Any] | None
    """Whatever else there is to say."""

    def __init__(
        self, recorder: Recorder, name: str | None, args: Any, call_id: str | None, metadata: Mapping[str, Any] | None
    ) -> None:
        # As Scope does it: this is made for each call.
        self._recorder = recorder
        self._outer = self._implicit = self.error = None
        self._state = _NEW
        self._fork = 0
        self.name = "" if name is None else name
        self._args = args
        self.call_id = call_id
        self._metadata = metadata
        self.metadata = None if metadata is None else _own(metadata)
        self.result = None
        self.reflection = None
        self.parent: ToolCall | None = None
        self.id = ""
        self.left_out = False
        self._updates = 0
        self._message = recorder._nowhere
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

    def run(self) -> None:
        """Says that the tool runs from now on: of a call that was started when the model asked for it."""
        self._run()

    @guarded
    def _run(self) -> None:
        if self._state == _NEW or not self._recorder.enabled:
            return
        self._updates += 1
        self._since = time.perf_counter_ns()
        self._recorder._put(Kind.CALL_SAID, self, f"u{self._updates}", {"uuid": self.id, "runs": True}, {})

    def update(self, *, reflection: str | None = None, result: Any = None, **said: Any) -> None:
        """Says more about the call at once, also after its end: a reflection, a result that came late."""
        self._update({"reflection": reflection, "result": result, **said})

    @guarded
    def _update(self, said: dict[str, Any]) -> None:
        if self._state == _NEW or not self._recorder.enabled:
            return
        self._updates += 1
        content = _frozen(self._recorder._most, **said)
        kind = Kind.CALL_RESULT if "result" in content else Kind.CALL_SAID
        self._recorder._put(kind, self, f"u{self._updates}", {"uuid": self.id}, content)

    def has_taken(self, time_before: timedelta) -> None:
        """The call began so much earlier than it was said."""
        self._since -= time_before // timedelta(microseconds=1) * 1000

    def _begin(self, outer: Scope | None) -> None:
        recorder = self._recorder
        outer = self._host(outer)
        self._message = outer.message
        step = self._step = outer.step
        parent = self.parent = outer.call
        self.id = recorder._own_ids() if recorder._own_ids else f"{recorder._prefix}-{next(recorder._counter):x}"
        said = {"uuid": self.id, "name": self.name}
        if self.call_id:
            said["call_id"] = self.call_id
        if step is not None:
            said["step"] = step.id
        if parent is not None:
            said["parent"] = parent.id
        content = {"args": freeze(self._args, recorder._most)}
        if self.metadata:
            content["metadata"] = freeze(self.metadata, self._recorder._most)
        self._since = time.perf_counter_ns()
        recorder._put(Kind.CALL_START, self, "s", said, content)

    def _finish(self) -> None:
        duration = (time.perf_counter_ns() - self._since) / 1_000_000
        error = self.error
        result = self.result
        said: dict[str, Any] = {"uuid": self.id, "name": self.name, "duration": duration}
        if self.call_id:
            said["call_id"] = self.call_id
        content = {"result": freeze(result, self._recorder._most)}
        if error:
            content["error"] = error
        if self.reflection:
            content["reflection"] = self.reflection
        if self.metadata:
            content["metadata"] = freeze(self.metadata, self._recorder._most)
        self._recorder._put(Kind.CALL_END, self, "e", said, content, bool(error), duration)

    def _again(self) -> Self:
        return type(self)(self._recorder, self.name, None, None, self._metadata)

    def _takes(self, args: dict[str, Any]) -> None:
        self._args = args

    def __call__(self, function: F) -> F:
        """As a decorator; without a name it is the function's."""
        called = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        self.name = self.name or decorating.name_of(called)
        return decorating.tool(self._again, function, self._recorder)

    def _leave_incomplete(self, why: str) -> None:
        self.metadata = {**(self.metadata or {}), "incomplete": why}

    def _gives(self, value: Any) -> None:
        self.result = value


def _frozen(most: int, /, **values: Any) -> dict[str, Any]:
    """What there is of these values, frozen, of each `most` characters."""
    return {name: freeze(value, most) for name, value in values.items() if not _is_nothing(value)}


def _is_nothing(value: Any) -> bool:
    """By its type, for what a value says when it is asked is the host's."""
    return value is None or (type(value) in (str, list, tuple, dict) and len(value) == 0)


def _own(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy to write to. What is no mapping stands for itself."""
    if metadata is None:
        return {}
    copy: dict[str, Any] | Exception = failure_of(dict, metadata)
    return {"metadata": metadata} if isinstance(copy, Exception) else copy
