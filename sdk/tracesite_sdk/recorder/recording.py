"""The recorder: an agent's code calls it to open sessions, messages, steps and tool calls.

    recorder = Recorder("http://127.0.0.1:8000", key="ts_...")

    with recorder.session("weather-1", title="Weather"), recorder.message("What is the weather?") as message:
        with recorder.step(model="gpt-5") as step:
            step.thought = "Ask the weather service."
            with recorder.tool_call("get_weather", {"city": "Shanghai"}) as call:
                call.result = get_weather("Shanghai")
        message.content = "31 degrees."

A scope finds its parent by context variables, in the same thread, task or generator; `carry` passes the current scope to
another thread, and `start(within=...)` names the parent. Each of the four is a context manager, `async with` too, and a
decorator of functions, coroutines, generators and asynchronous generators. Missing parents are made: a message without a
session opens one; calls without a message are messages of one session for the process.

In the host's thread a call costs an id, two clock readings and the freezing of its values; everything else happens on the
worker (pipeline.py). Nothing here raises or blocks, except `flush` and `close`, which block for their timeout at most.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tracesite_sdk import records

from .capture import decorating
from .capture.entries import MARGIN
from .delivery import ending
from .delivery.pipeline import Pipeline, Report
from .delivery.privacy import Privacy
from .delivery.sampling import Sampling
from .delivery.sinks import NullSink, Sink
from .guard import Guard, failure_of, guarded, logger
from .scopes import Message, Runtime, Scope, Session, Step, ToolCall

if TYPE_CHECKING:
    from .instruments.enabling import ContextOf, Names, SessionOf
    from .snapshots.parts import Snapshot
    from .snapshots.snapshotting import Snapshots

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
N = TypeVar("N", int, float)
_Destination = tuple[str, str, str | None, int]
"""Address, key, spool directory and its limit in bytes."""

_URL = "TRACESITE_URL"
_KEY = "TRACESITE_KEY"


class Recorder:
    """Records an agent. Threads, tasks and forked processes may share a recorder; make it once.

    `url`, `key`: the address of Tracesite and an API key with write permission; by default TRACESITE_URL and TRACESITE_KEY.
    Surrounding spaces are removed. If they are missing or invalid, and there is no `sink`, the recorder is disabled and logs
    one warning. A recorder with the URL and key of an earlier one shares its sender and its session of the process.
    `sink`: the destination of the events instead of a server (sinks.py).
    `enabled=False`: all methods work and record nothing.
    `sampling`, `privacy`: which events are kept, and which of their contents; both may be assigned at any time. Sampling that
    the project sets on the server overrides `sampling`.
    `delay_ms`: milliseconds between two writes of the worker to the disk. A kill -9 loses the events since the last write: at
    a usual rate those of this time, in a burst that is faster than the worker up to `queue_bytes`.
    `queue_bytes`: the memory for events that wait for the worker. Beyond it long values are replaced by their sizes; events
    that do not fit even so are lost, and counted.
    `spool`, `spool_bytes`: the directory where events wait for the server, and its limit; see http_sink.py.
    `exit_seconds`: the most seconds that the exit of the process takes while the server accepts events; otherwise the exit
    takes at most 2 s. Events that are not sent by then wait on the disk.
    `handle_sigterm`: flush before SIGTERM ends the process, then call the previous handler; in this process, not in those
    that it forks.
    `strict`: raise failures of the recorder and invalid settings. For tests.
    `snapshots`: which snapshots are kept, and where; by default all, in memory. It may be assigned at any time.

    Never raises (unless `strict`): an invalid setting is replaced by the default, with a warning.
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
        snapshots: Snapshots | None = None,
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
            before = next(reversed(_by_destination.get(self._destination, [])), None)
            sink = before.sink if before is not None else self._server()
        self._pipeline = Pipeline(
            NullSink() if sink is None else sink,
            guard=self.guard,
            sampling=sampling or Sampling(),
            privacy=privacy or Privacy(),
            delay_seconds=delay_ms / 1000,
            queue_bytes=queue_bytes,
        )
        self.runtime = Runtime(
            self._pipeline,
            self.guard,
            enabled=enabled and sink is not None,
            clock=clock,
            ids=ids,
            destination=self._destination,
        )
        """For other modules of the recorder: the state that scopes share."""
        self._snapshots: Snapshots | None = None
        if snapshots is not None:
            self.snapshots = snapshots
        if before is not None:
            # A notebook cell that was run again, for example: the earlier recorder goes on without a thread of its own.
            self.runtime.own_session = before.runtime.own_session
            before._pipeline.retire()
        _latest.append(self)
        if self.enabled:
            if self._destination is not None:
                _by_destination.setdefault(self._destination, []).append(self)
            ending.watch(self)
            if handle_sigterm:
                ending.watch_sigterm(self)

    # --- Scopes -----------------------------------------------------------------------------------------------------

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
        """Return a session: a conversation or task. `external_id` is the caller's own id (of a thread, a task): messages with
        the same one belong together, whichever process sends them. By default a new id is made."""
        fields = {"title": title, "description": description, "end_user": end_user}
        return Session(self.runtime, external_id, fields, tags, metadata)

    def message(
        self,
        prompt: str | Sequence[Any] | None = None,
        *,
        external_id: str | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Message:
        """Return a message: one run of the agent, with the user's `prompt` (a text, or content parts)."""
        return Message(self.runtime, prompt, external_id, request_id, metadata)

    def step(
        self,
        thought: str | None = None,
        *,
        model: str | None = None,
        agent: str | None = None,
        iteration: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        request: Any = None,
    ) -> Step:
        """Return a step: one think-act iteration, with a request to a model and its response. Calls that are opened inside it
        belong to it; calls that are opened after it belong to the last step before them."""
        return Step(self.runtime, thought, model, agent, iteration, metadata, request)

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
        """Return a tool call: `with recorder.tool_call("search", {"q": "x"}) as call: call.result = search("x")`. Or decorate
        a tool, `@recorder.tool_call` or `@recorder.tool_call("search")`, which records its arguments and result.

        `call_id` is the id that the model gave the call.
        """
        if callable(name) or isinstance(name, classmethod):
            return ToolCall(self.runtime)(name)
        return ToolCall(self.runtime, name, args, call_id, metadata)

    def score(
        self,
        name: str,
        value: bool | float | str | None = None,
        *,
        session: str,
        message: str | None = None,
        call: str | None = None,
        label: str | None = None,
        comment: str | None = None,
        source: records.ScoreSource = "program",
        author: str | None = None,
    ) -> None:
        """Judge what any process has recorded: feedback that comes later, or from a person. `session`: its external id, or
        our id. `message`: the `id` of a message, by default the session itself is judged. `call`: the `id` of a call of
        this message. The rest is as in `Message.score`."""
        about = {"name": name, "source": source, "author": author, "uuid": call}
        judged = Message(self.runtime, external_id=message).stand_for(self.session(session))
        judged.put_score(about, value, label, comment)

    @guarded
    def snapshot(self, context: Any, *, nodes: Sequence[str], session: str | None = None) -> Snapshot | None:
        """Keep the context that these nodes are about to use, as it is now and without secrets, so that the nodes can be
        replayed (time_machine.py). Return the snapshot, or None if it was left out: see `Snapshots`.

        `nodes`: ids of steps, calls or parts of a workflow, of your choice. `session`: the external id of the session, by
        default that of the current scope.
        """
        if not self.enabled:
            return None
        if session is None:
            current = self.current()
            session = (self.runtime.process_session() if current is None else current.session).external_id
        return self.snapshots.take(
            context,
            nodes,
            session_id=session,
            ts=self.runtime.now(),
            privacy=self.privacy,
            new_id=self.runtime.new_id,
        )

    def current(self) -> Scope | None:
        """Return the innermost open scope of this context, or None."""
        return self.runtime.current.get()

    def carry(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with the current scope, for another thread: `pool.submit(recorder.carry(work), x)`."""
        return decorating.carried(self.runtime.current, function)

    # --- Agents that do not know the recorder -----------------------------------------------------------------------

    def enable(
        self,
        target: T,
        *,
        name: str | None = None,
        session: SessionOf = None,
        names: Names | None = None,
        snapshots: ContextOf = False,
    ) -> T:
        """Record an object from now on, and return it: its `run` is a message, its `execute` and `generate` are steps, and so
        are its requests to models; its tools are calls; prompts and callback messages are events. The object works as before.
        A disabled recorder leaves it untouched.

        `name`: the agent's name, by default the object's `name`. `session`: the session of its runs, or a function that
        returns it from the arguments by parameter name; `with recorder.session(...)` overrides it. Without both it is the task
        that a run works on, if an argument, a callback message, the return value or the object names one. `names`: the names of the
        methods, if they differ from those in enabling.py. `snapshots`: the context that is kept before each request and call,
        as a function of the object or the name of an attribute (dots are allowed); True keeps what callback messages of Eko
        tell. See docs/time_machine.md.
        """
        # Imported here, because it imports the parsers of other frameworks' callback messages.
        from .instruments import enabling

        def take(context: Any, node: str, session_id: str) -> None:
            self.snapshot(context, nodes=[node], session=session_id)

        return enabling.enable(
            self.runtime, target, name=name, session=session, names=names, snapshots=snapshots, take=take
        )

    def disable(self, target: T) -> T:
        """Undo `enable`, and return the object."""
        from .instruments import enabling

        return enabling.disable(self.runtime, target)

    def openai(self, client: T) -> T:
        """Record the requests of a client of OpenAI, sync or async, from now on, and return it: `client.chat.completions` and
        `client.responses`. Other clients, such as copies by `with_options`, are not recorded."""
        from .instruments import model_clients

        return model_clients.record(self.runtime, client, model_clients.OPENAI, "OpenAI")

    def anthropic(self, client: T) -> T:
        """Record the requests of a client of Anthropic, sync or async, from now on, and return it: `client.messages`. Other
        clients, such as copies by `with_options`, are not recorded."""
        from .instruments import model_clients

        return model_clients.record(self.runtime, client, model_clients.ANTHROPIC, "Anthropic")

    def subscribe(self, subscriber: Callable[[dict[str, Any]], Any], *, messages: bool = False) -> Callable[[], None]:
        """Call the subscriber with every event that is sent, without secrets, on the worker or in the thread that flushes; what
        it returns is awaited there if it can be, in an event loop of its own. With `messages` it gets the events as monitor
        messages, `{taskId, type, ts, payload}`. Return a function that ends the subscription. An exception of the subscriber
        affects nothing else; a slow subscriber delays sending."""
        if not messages:
            return self._pipeline.subscribe(subscriber)
        from tracesite_sdk.events.monitor_messages import message_of

        def hear(event: dict[str, Any]) -> Any:
            message = message_of(event)
            return None if message is None else subscriber(message)

        return self._pipeline.subscribe(hear)

    # --- Settings that may change -----------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """True while the recorder records."""
        return self.runtime.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self.runtime.enabled = enabled

    @property
    def sink(self) -> Sink:
        """The destination of the events. An HttpSink has a `report()` of delivered and waiting events."""
        return self._pipeline.sink

    @property
    def sampling(self) -> Sampling:
        """The sampling of this process. See `Recorder`."""
        return self._pipeline.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._pipeline.sampling = sampling

    @property
    def privacy(self) -> Privacy:
        """The privacy of this process. See `Recorder`."""
        return self._pipeline.privacy

    @privacy.setter
    def privacy(self, privacy: Privacy) -> None:
        self._pipeline.privacy = privacy
        self.runtime.max_characters = privacy.max_bytes + MARGIN

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of this process, and their store. See `Recorder`."""
        if self._snapshots is None:
            # Imported here, because most agents take no snapshots.
            from .snapshots.snapshotting import Snapshots

            self.snapshots = Snapshots()
        assert self._snapshots is not None, "it was set"
        return self._snapshots

    @snapshots.setter
    def snapshots(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self.runtime.on_failure = snapshots.failed

    # --- The end ----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 10.0) -> int:
        """Block until all recorded events are delivered, at most `timeout` seconds. Return how many events are not.

        Those are not lost: they wait on the disk, and this process or a later one sends them. See `report`.
        """
        return self._pipeline.flush(time.monotonic() + timeout)

    def close(self, timeout: float = 2.0) -> int:
        """Flush, and record nothing afterwards. Return as `flush` does. The exit of the process closes the recorder."""
        shares = self._stop()
        return self._pipeline.close(time.monotonic() + timeout, keeps_sink=shares)

    def close_at_exit(self, began: float) -> int:
        """Close at the end of the process, which began at `began` on the monotonic clock; called by ending.py. Return how many
        events are not delivered."""
        shares = self._stop()
        return self._pipeline.close_at_exit(began, self._exit_seconds, keeps_sink=shares)

    def report(self) -> Report:
        """Return how many events of this process were kept, left out and lost."""
        return self._pipeline.report()

    # --- Inside -----------------------------------------------------------------------------------------------------

    def postponed(self, action: Callable[[], None]) -> bool:
        """Return whether a signal handler has to wait; if so `action` is called later. See Pipeline.postponed."""
        return self._pipeline.postponed(action)

    def after_fork(self) -> None:
        """Start anew in a child process, with the settings of the parent's recorder; called by ending.py."""
        self.runtime.forks += 1
        self.runtime.renew()
        if self._snapshots is not None:
            self._snapshots.after_fork()
        self._pipeline.after_fork()

    def _stop(self) -> bool:
        """Stop recording. Return whether another recorder uses the sink."""
        self.enabled = False
        ending.forget(self)
        if self._destination is None:
            return False
        others = [other for other in _by_destination.get(self._destination, []) if other is not self]
        _by_destination[self._destination] = others
        return bool(others)

    def _above_0(self, name: str, value: N, default: N) -> N:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
        message = f"Recorder.{name}: expected a number above 0, not {value!r}."
        if self.guard.strict:
            raise ValueError(message)
        logger.warning("%s Using %r.", message, default)
        return default

    def _server(self) -> Sink | None:
        """Return the sink to a server, or None with a warning if the URL or the key is missing or invalid."""
        assert self._destination is not None, "set by the caller"
        url, key, spool, spool_bytes = self._destination
        if not url or not key:
            missing = [name for name, value in ((_URL, url), (_KEY, key)) if not value]
            logger.warning("Nothing is recorded: set %s, or pass url and key to Recorder().", " and ".join(missing))
            return None
        # Imported here, because other sinks do not need the modules for the network.
        from .delivery.http_sink import HttpSink

        sink = failure_of(lambda: HttpSink(url, key, spool=spool, spool_bytes=spool_bytes))
        if isinstance(sink, Exception):
            if self.guard.strict:
                raise sink
            logger.warning("Nothing is recorded: the URL or the key (%s, %s) is invalid: %s", _URL, _KEY, sink)
            return None
        return sink


@overload
def trace_tool(function: F) -> F: ...
@overload
def trace_tool(function: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
def trace_tool(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Decorate a tool in a module that has no recorder: `@trace_tool` or `@trace_tool(name="search")`.

    `default_recorder` records each call, as it is at that moment.
    """

    def decorate(tool: F) -> F:
        called = name or decorating.name_of(tool)
        return decorating.tool(lambda: ToolCall(default_recorder().runtime, called), tool, None)

    return decorate if function is None else decorate(function)


def default_recorder() -> Recorder:
    """Return the recorder that was made last in this process, or one from TRACESITE_URL and TRACESITE_KEY."""
    # A new recorder makes itself the latest.
    return _latest[-1] if _latest else Recorder()


_latest: deque[Recorder] = deque(maxlen=1)
_by_destination: dict[_Destination, list[Recorder]] = {}
"""Open recorders by server, the newest last."""


def _destination(
    url: str | None, key: str | None, spool: str | os.PathLike[str] | None, spool_bytes: int
) -> _Destination:
    # A key from a mounted file ends with a newline.
    address = str(url or os.environ.get(_URL) or "").strip().rstrip("/")
    secret = str(key or os.environ.get(_KEY) or "").strip()
    return address, secret, None if spool is None else str(spool), spool_bytes
