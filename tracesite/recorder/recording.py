"""What an agent's code calls: the recorder, and the sessions, messages, steps and calls that it opens.

    recorder = Recorder("http://127.0.0.1:8000", key="ts_...")

    with recorder.session("weather-1", title="Weather"), recorder.message("What is the weather?") as message:
        with recorder.step(model="gpt-5") as step:
            step.thought = "Ask the weather service."
            with recorder.tool_call("get_weather", {"city": "Shanghai"}) as call:
                call.result = get_weather("Shanghai")
        message.content = "31 degrees."

Whatever is open is found by what is opened inside it (context variables), in the same thread, task or generator; `carry`
takes it along to another thread, `start(within=...)` names it. Each of the four is a context manager, `async with` too, and
a decorator of functions, coroutines, generators and asynchronous generators. What is left out is made up: a message without
a session opens one; calls without a message are messages of one session, that of the process.

In the host's thread a call costs an id, two readings of clocks and freezing its values; everything else happens on the
worker (pipeline.py). Nothing here raises or waits.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from . import decorating, ending
from .entries import MARGIN, Entry, Kind, size_of
from .guard import Guard, failure_of, logger
from .pipeline import Pipeline, Report
from .privacy import Privacy
from .sampling import Sampling
from .scopes import Message, Scope, Session, Step, ToolCall
from .sinks import NullSink, Sink

if TYPE_CHECKING:
    # Only who uses it pays for its import: it reads callback messages of other frameworks.
    from .enabling import Names, SessionOf

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
N = TypeVar("N", int, float)
_Destination = tuple[str, str, str | None, int]
"""Address, key, spool and its bound."""

_URL = "TRACESITE_URL"
_KEY = "TRACESITE_KEY"


class Recorder:
    """Records what an agent does. Threads, tasks and forked processes may share one; make it once.

    `url` and `key`: where Tracesite is and an API key that may write; without them TRACESITE_URL and TRACESITE_KEY. Space
    around them is removed. With neither, and no `sink`, or with a URL or key that cannot be, the recorder is disabled and
    logs one warning. A recorder with the URL and key of an earlier one shares its sender and its session of the process.
    `sink`: where the events go instead (sinks.py).
    `enabled=False`: everything is there and does nothing.
    `sampling`, `privacy`: what is kept, and what of it; both may be assigned at any time. What the project asks for on the
    server goes before `sampling`.
    `delay_ms`: how often the worker writes to the disk what was recorded. A kill -9 loses what it has not written: at a
    usual rate what was recorded in this time, in a burst that is faster than the worker up to `queue_bytes`.
    `queue_bytes`: how much may wait for the worker. Beyond that long values are replaced by their sizes; what does not fit
    even so is lost, and counted.
    `spool`, `spool_bytes`: where events wait while the server is away, and how much at most; see http_sink.py.
    `exit_seconds`: how long the end of the process may take while the server takes events; where it takes none, the end
    takes 2 s at most. What is not sent by then waits on the disk.
    `handle_sigterm`: sends what is left before SIGTERM ends the process, then does what it did before;
    in this process, not in those that it forks.
    `strict`: failures of the recorder, and settings that cannot be, raise. For tests.

    Nothing here raises: the default takes the place of a setting that cannot be, and a warning says so.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        sink: Sink | None = None,
        enabled: bool = True,
        sampling: Sampling | None = None,
        privacy: Privacy | None = None,
        delay_ms: float = 50,
        queue_bytes: int = 64 * 2**20,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = 256 * 2**20,
        exit_seconds: float = 30.0,
        handle_sigterm: bool = False,
        strict: bool = False,
        clock: Callable[[], int] = time.time_ns,
        ids: Callable[[], str] | None = None,
    ) -> None:
        self.guard = Guard(strict=strict)
        delay_ms = self._above_0("delay_ms", delay_ms, 50.0)
        queue_bytes = self._above_0("queue_bytes", queue_bytes, 64 * 2**20)
        spool_bytes = self._above_0("spool_bytes", spool_bytes, 256 * 2**20)
        self._exit_seconds = self._above_0("exit_seconds", exit_seconds, 30.0)
        self._destination: _Destination | None = None
        before: Recorder | None = None
        if sink is None and enabled:
            self._destination = _destination(url, key, spool, spool_bytes)
            before = _latest_to(self._destination)
            sink = before.sink if before is not None else self._server()
        self.enabled = enabled and sink is not None
        """Whether anything is recorded."""
        self._pipeline = Pipeline(
            sink or NullSink(),
            guard=self.guard,
            sampling=sampling or Sampling(),
            privacy=privacy or Privacy(),
            delay_seconds=delay_ms / 1000,
            queue_bytes=queue_bytes,
        )
        self._most = self._pipeline.privacy.max_bytes + MARGIN
        """Characters of a value that are frozen."""
        self._current: ContextVar[Scope | None] = ContextVar("tracesite_scope", default=None)
        self._clock = clock
        self._last_number = 0
        self._own_ids = ids
        self._fork = 0
        self._own_session: Session | None = None
        self._renew()
        if before is not None:
            # Of a cell of a notebook that was run again, for one: the earlier recorder goes on without a thread of its own.
            self._own_session = before._own_session
            before._pipeline.retire()
        # What a scope belongs to that did not begin.
        self._no_session = Session(self, None, {}, (), None)
        self._nowhere = Message(self, None, None, None, None)
        _latest.append(self)
        if self.enabled:
            if self._destination is not None:
                _by_destination.setdefault(self._destination, []).append(self)
            ending.watch(self)
            if handle_sigterm:
                ending.watch_sigterm(self)

    # --- What is opened ---------------------------------------------------------------------------------------------

    def session(
        self,
        external_id: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        end_user: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """A conversation or task. `external_id` is your own id of it (a thread, a task): messages with the same one belong
        together, from whatever process they come. Without one it is made."""
        said = {"title": title, "description": description, "end_user": end_user}
        return Session(self, external_id, said, tags, metadata)

    def message(
        self,
        prompt: str | Sequence[Any] | None = None,
        *,
        external_id: str | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Message:
        """One run of the agent: the answer to `prompt`, which is what the user said (a text, or content parts)."""
        return Message(self, prompt, external_id, request_id, metadata)

    def step(
        self,
        thought: str | None = None,
        *,
        model: str | None = None,
        agent: str | None = None,
        iteration: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:
        """One think-act iteration: what a model was asked and said. Calls that are opened inside it belong to it; calls
        that are opened after it, to the last step before them."""
        return Step(self, thought, model, agent, iteration, metadata)

    @overload
    def tool_call(self, name: F) -> F: ...
    @overload
    def tool_call(
        self,
        name: str | None = None,
        args: Any = None,
        *,
        call_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ToolCall: ...
    def tool_call(
        self,
        name: str | Callable[..., Any] | None = None,
        args: Any = None,
        *,
        call_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """One call of a tool: `with recorder.tool_call("search", {"q": "x"}) as call: call.result = search("x")`, or as a
        decorator, `@recorder.tool_call` or `@recorder.tool_call("search")`, which records arguments and result itself.

        `call_id` is the id that the model gave the call.
        """
        if callable(name) or isinstance(name, classmethod):
            return ToolCall(self, None, None, None, None)(name)
        return ToolCall(self, name, args, call_id, metadata)

    def current(self) -> Scope | None:
        """What is open here, the innermost."""
        return self._current.get()

    def carry(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, to be called in another thread with what is open here: `pool.submit(recorder.carry(work), x)`."""
        return decorating.carried(self._current, function)

    # --- Agents that know nothing of it -----------------------------------------------------------------------------

    def enable(self, target: T, *, name: str | None = None, session: SessionOf = None, names: Names | None = None) -> T:
        """Records what an object does from now on, and returns it: its `run` is a message, what `execute` and `generate` do
        a step, requests to models are steps, its tools calls, prompts are told, and so is what its callback hears. The
        object works as before; of a recorder that is off it stays untouched.

        `name`: the agent's, where its own `name` is another. `session`: the session of its runs, or a function that
        finds it in the arguments by their names; `with recorder.session(...)` goes before it. `names`: which methods are
        what, where they have other names than enabling.py knows.
        """
        from . import enabling

        return enabling.enable(self, target, name=name, session=session, names=names)

    def disable(self, target: T) -> T:
        """Takes back what `enable` did, and returns the object."""
        from . import enabling

        return enabling.disable(self, target)

    def subscribe(self, subscriber: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        """From now on the subscriber is called with every event, as it is sent: without secrets, on the worker or in the
        thread that flushes. One that raises holds up nothing; one that is slow holds up the sending. Returns what ends it."""
        return self._pipeline.subscribe(subscriber)

    # --- Settings that may change -----------------------------------------------------------------------------------

    @property
    def sink(self) -> Sink:
        """Where the events go. That to a server says by its `report()` what was delivered, and what still waits."""
        return self._pipeline.sink

    @property
    def sampling(self) -> Sampling:
        """What is kept, as this process says. See `Recorder`."""
        return self._pipeline.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._pipeline.sampling = sampling

    @property
    def privacy(self) -> Privacy:
        """What of it is kept."""
        return self._pipeline.privacy

    @privacy.setter
    def privacy(self, privacy: Privacy) -> None:
        self._pipeline.privacy = privacy
        self._most = privacy.max_bytes + MARGIN

    # --- The end ----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 10.0) -> int:
        """Waits, `timeout` seconds at most, until all that was recorded is delivered; how many events are not yet.

        Those are not lost: they wait on the disk, and this process or a later one sends them. See `report`.
        """
        return self._pipeline.flush(time.monotonic() + timeout)

    def close(self, timeout: float = 2.0) -> int:
        """Flushes and ends: nothing is recorded afterwards. At the exit of the process it happens by itself."""
        shares = self._let_go()
        return self._pipeline.close(time.monotonic() + timeout, keeps_sink=shares)

    def close_at_exit(self, began: float) -> int:
        """Closes at the end of the process, which began then; how many events are not delivered. Called by itself."""
        shares = self._let_go()
        return self._pipeline.close_at_exit(began, self._exit_seconds, keeps_sink=shares)

    def report(self) -> Report:
        """What became of what was recorded in this process: how much was kept, left out and lost."""
        return self._pipeline.report()

    # --- For what is opened -----------------------------------------------------------------------------------------

    def session_of_process(self) -> Session:
        """The session of calls and steps that lie in no message: one for the process, because a session for each of them
        would hide all others."""
        if self._own_session is None:
            title = "Calls outside of a message" if self._own_ids else f"Calls outside of a message: {_program()}"
            self._own_session = self.session(title=title)
        return self._own_session

    def has_destination_of(self, other: Recorder) -> bool:
        """Whether what both record goes to the same place."""
        return self is other or (self._destination is not None and self._destination == other._destination)

    def _let_go(self) -> bool:
        """Records nothing any more; whether another recorder uses the sink."""
        self.enabled = False
        ending.forget(self)
        if self._destination is None:
            return False
        others = [one for one in _by_destination.get(self._destination, []) if one is not self]
        _by_destination[self._destination] = others
        return bool(others)

    def _above_0(self, name: str, value: N, default: N) -> N:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
        message = f"Recorder.{name}: expected a number above 0, not {value!r}."
        if self.guard.strict:
            raise ValueError(message)
        logger.warning("%s %r takes its place.", message, default)
        return default

    def _server(self) -> Sink | None:
        """The sink to a server, None where there can be none, which is said."""
        assert self._destination is not None, "it was asked for"
        url, key, spool, spool_bytes = self._destination
        if not url or not key:
            missing = [name for name, value in ((_URL, url), (_KEY, key)) if not value]
            are = "is" if len(missing) == 1 else "are"
            logger.warning(
                "Nothing is recorded: %s %s not set, and the recorder was given none.", " and ".join(missing), are
            )
            return None
        # Imported here: what sends over a network costs an import that other sinks do without.
        from .http_sink import HttpSink

        sink = failure_of(lambda: HttpSink(url, key, spool=spool, spool_bytes=spool_bytes))
        if isinstance(sink, Exception):
            if self.guard.strict:
                raise sink
            logger.warning("Nothing is recorded, the URL or the key (%s, %s) is wrong: %s", _URL, _KEY, sink)
            return None
        return sink

    def _renew(self) -> None:
        """Ids that no other process makes: at the start, and after a fork in the child."""
        self._prefix = token_hex(6)
        self._counter = count(1)
        self._own_session = None

    def postponed(self, action: Callable[[], None]) -> bool:
        """Whether a handler of a signal has to wait, which is then done by `action`; see Pipeline.postponed."""
        return self._pipeline.postponed(action)

    def after_fork(self) -> None:
        """In a child process: a recorder of its own, with the settings of the parent's. Called by itself."""
        self._fork += 1
        self._renew()
        self._pipeline.after_fork()

    def _new_id(self) -> str:
        return self._own_ids() if self._own_ids else f"{self._prefix}-{next(self._counter):x}"

    def _now(self) -> int:
        """Nanoseconds since 1970, later than all before: a clock that is put back must not turn the order round."""
        now = self._clock()
        if now <= self._last_number:
            now = self._last_number + 1
        self._last_number = now
        return now

    def _put(
        self,
        kind: Kind,
        scope: Message | Step | ToolCall,
        name: str,
        said: dict[str, Any],
        content: dict[str, Any],
        failed: bool = False,
        duration_ms: float | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> None:
        """Hands over that something happened now; see Entry."""
        size = size_of(content)
        self._pipeline.put(Entry(kind, self._now(), scope, name, said, content, size, failed, duration_ms, event))


@overload
def trace_tool(function: F) -> F: ...
@overload
def trace_tool(function: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
def trace_tool(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """A decorator of tools for modules that know no recorder: `@trace_tool` or `@trace_tool(name="search")`.

    Each call is recorded by `default_recorder`, as it is then.
    """

    def decorate(tool: F) -> F:
        called = name or decorating.name_of(tool)
        return decorating.tool(lambda: ToolCall(default_recorder(), called, None, None, None), tool, None)

    return decorate if function is None else decorate(function)


def default_recorder() -> Recorder:
    """The recorder that was made last in this process, else one of TRACESITE_URL and TRACESITE_KEY."""
    # One that is made makes itself the latest.
    return _latest[-1] if _latest else Recorder()


_latest: deque[Recorder] = deque(maxlen=1)
_by_destination: dict[_Destination, list[Recorder]] = {}
"""Recorders to a server that are open, the newest last."""


def _latest_to(destination: _Destination) -> Recorder | None:
    others = _by_destination.get(destination)
    return others[-1] if others else None


def _destination(
    url: str | None, key: str | None, spool: str | os.PathLike[str] | None, spool_bytes: int
) -> _Destination:
    # A key that is mounted as a file has a line end.
    address = str(url or os.environ.get(_URL) or "").strip().rstrip("/")
    secret = str(key or os.environ.get(_KEY) or "").strip()
    return address, secret, None if spool is None else str(spool), spool_bytes


def _program() -> str:
    """The name of the program that runs in this process."""
    path = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    return path.parent.name if path.name == "__main__.py" else path.name
