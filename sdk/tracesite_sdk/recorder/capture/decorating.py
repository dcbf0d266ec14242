"""Scopes as decorators, and scopes that are carried to other threads.

A generator runs in the context of its consumer. So its current scope is set before each of its steps and reset afterwards:
the code between two values sees the consumer's own scopes, and none of the generator's.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType, TracebackType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Traced(Protocol):
    """One call of a decorated function: a scope, or the hooks of `wrap`."""

    @property
    def _current(self) -> ContextVar[Any]: ...
    @property
    def is_open(self) -> bool: ...
    def start(self) -> Traced: ...
    def end(self, error: BaseException | None = None) -> None: ...
    def __enter__(self) -> Traced: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def _record_arguments(
        self,
        read: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None: ...
    def _record_result(self, value: Any) -> None: ...
    def _record_first_value(self) -> None: ...
    def _go_inside(self) -> None: ...
    def _come_out(self) -> None: ...
    def _pause(self) -> Traced: ...
    def _resume(self) -> Traced: ...
    def _track(self, unfinished: Unfinished) -> None: ...
    def _untrack(self, unfinished: Unfinished) -> None: ...
    def _mark_incomplete(self, reason: str) -> None: ...


class Unfinished(Protocol):
    """Work of a scope that goes on after its function has returned."""

    def abandon(self) -> None: ...


@dataclass(frozen=True)
class _Tool:
    """The mark of a function that `tool` has decorated."""

    destination: object | None
    """The events' destination; None where each call asks for the default recorder."""
    function: Callable[..., Any]
    """The original function."""
    call: Callable[..., Any]
    """The decorated function. Another decorator above it copies its attributes, this one too, but is another function."""


_TOOL = "_tracesite_tool"
_PLAIN = (str, int, float, bool, list, tuple, dict)
"""Types of parameter defaults that are recorded. Others are None, clients and sentinels, which are no arguments."""
_MOST_VALUES = 10_000
"""Values of a generator that are recorded."""


class Called(NamedTuple):
    """A call of a decorated function, before the function runs."""

    scope: Traced
    function: Callable[..., Any]
    """The original function."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: dict[str, Any]
    """The arguments by parameter name."""


RUN = object()
"""Returned by an Answer for a function that is to run."""
Answer = Callable[[Called], Any]
"""Returns the value that a decorated function returns without running, or RUN; or raises."""
ANSWER: ContextVar[Answer | None] = ContextVar("tracesite_answer", default=None)


@contextmanager
def answering(answer: Answer) -> Iterator[None]:
    """Inside, ask `answer` at each call of a decorated function. For replays: time_machine.py, replaying.py."""
    before = ANSWER.get()
    ANSWER.set(answer)
    try:
        yield
    finally:
        ANSWER.set(before)


def carried(current: ContextVar[Any], function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with the current scope of this context, and its `answering`."""
    scope, answer = current.get(), ANSWER.get()
    if answer is not None:
        function = answering(answer)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Not by a token: see Scope._exit.
        before = current.get()
        current.set(scope if scope is None or scope.is_open else before)
        try:
            return function(*args, **kwargs)
        finally:
            current.set(before)

    return call


def tool(make: Callable[[], Traced], function: F, destination: object | None) -> F:
    """Decorate a function so that each call is a tool call with its arguments and the defaults of the others. A function that
    is decorated for this destination already is decorated anew, not twice."""
    if isinstance(function, classmethod | staticmethod):
        return cast("F", type(function)(tool(make, function.__func__, destination)))
    function = undecorated(function, destination)
    if destination is None and _tool_of(function) is not None:
        return function
    made = decorated(make, function, defaults=True)
    setattr(made, _TOOL, _Tool(destination, function, made))
    return made


def undecorated(function: F, destination: object | None) -> F:
    """Return the original of a function that `tool` decorated for this destination or for the default recorder."""
    if isinstance(function, MethodType):
        inner = undecorated(function.__func__, destination)
        return function if inner is function.__func__ else cast("F", MethodType(inner, function.__self__))
    tool = _tool_of(function)
    if tool is None or tool.destination not in (None, destination):
        return function
    return cast("F", tool.function)


def _tool_of(function: Any) -> _Tool | None:
    tool = function.__dict__.get(_TOOL) if isinstance(function, FunctionType) else None
    return tool if isinstance(tool, _Tool) and tool.call is function else None


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of a callable object."""
    if isinstance(function, partial):
        return name_of(function.func)
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def decorated(make: Callable[[], Traced], function: F, *, defaults: bool = False) -> F:
    """Decorate a function so that each call is a scope from `make`. It stays a coroutine, generator, ... as it was."""
    if isinstance(function, classmethod | staticmethod):
        # A decorator above one of them returns one again, because a class binds a plain function differently.
        return cast("F", type(function)(decorated(make, function.__func__, defaults=defaults)))
    kind = next((wrap for is_kind, wrap in _KINDS if is_kind(function)), _plain_function)
    return cast("F", kind(_Calls(make, function, _reader_of(function, defaults))))


@dataclass(frozen=True)
class _Calls:
    """The calls of a decorated function."""

    make: Callable[[], Traced]
    function: Callable[..., Any]
    read: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
    """Returns the arguments by parameter name."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """Return the scope of a call, not started yet, with its arguments."""
        scope = self.make()
        scope._record_arguments(self.read, args, kwargs)
        return scope

    def answer(self, scope: Traced, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the answer that replaces a call; RUN if the function is to run."""
        answer = ANSWER.get()
        return RUN if answer is None else answer(Called(scope, self.function, args, kwargs, self.read(args, kwargs)))


def _async_generator_function(calls: _Calls) -> Callable[..., Any]:
    @wraps(calls.function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = Steps(calls.begin(args, kwargs).start())
        answer = RUN
        if ANSWER.get() is not None:
            with steps:
                answer = calls.answer(steps.scope, args, kwargs)
        # Not by a generator around it, which would have to pass on what is sent and thrown.
        inner = calls.function(*args, **kwargs) if answer is RUN else _given(answer)
        step: Callable[[], Awaitable[Any]] = inner.__anext__
        while True:
            try:
                with steps:
                    item = await step()
            except StopAsyncIteration:
                return
            steps.keep(item)
            sent = None
            thrown = _Thrown()
            with thrown:
                sent = yield item
            if isinstance(thrown.error, GeneratorExit):
                with steps:
                    await inner.aclose()
                steps.abandon()
                raise thrown.error
            step = partial(inner.athrow, thrown.error) if thrown.error else partial(inner.asend, sent)

    return call


def _generator_function(calls: _Calls) -> Callable[..., Any]:
    @wraps(calls.function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        scope = calls.begin(args, kwargs).start()
        inner = calls.function(*args, **kwargs)
        if ANSWER.get() is not None:
            inner = _answered(inner, partial(calls.answer, scope, args, kwargs))
        return (yield from _Followed(Steps(scope), inner))

    return call


def _coroutine_function(calls: _Calls) -> Callable[..., Any]:
    @wraps(calls.function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with calls.begin(args, kwargs) as scope:
            result = calls.answer(scope, args, kwargs)
            if result is RUN:
                result = await calls.function(*args, **kwargs)
            elif inspect.isawaitable(result):
                result = await result
            scope._record_result(result)
            return result

    return call


def _plain_function(calls: _Calls) -> Callable[..., Any]:
    @wraps(calls.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with calls.begin(args, kwargs) as scope:
            result = calls.answer(scope, args, kwargs)
            if result is RUN:
                result = calls.function(*args, **kwargs)
            if isinstance(result, CoroutineType):
                # A plain function that returns a coroutine or generator: its work is yet to be done.
                return _awaited(Awaiting(scope._pause()), result)
            if isinstance(result, GeneratorType):
                return _followed(Steps(scope._pause()), result)
            scope._record_result(result)
            return result

    return call


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[_Calls], Callable[..., Any]]], ...] = (
    (inspect.isasyncgenfunction, _async_generator_function),
    (inspect.isgeneratorfunction, _generator_function),
    (inspect.iscoroutinefunction, _coroutine_function),
)


def _answered(inner: Generator[Any, Any, Any], answer: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """Return the values of a generator, or those of the answer in its place."""
    given = answer()
    if given is RUN:
        return (yield from inner)
    yield from given if isinstance(given, list | GeneratorType) else [given]


def _given(answer: Any) -> AsyncGenerator[Any, Any]:
    """Return the values of an answer that is given in place of an asynchronous generator."""

    async def values() -> AsyncGenerator[Any, Any]:
        for item in answer if isinstance(answer, list) else [answer]:
            yield item

    return answer if isinstance(answer, AsyncGeneratorType) else values()


def _followed(steps: Steps, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    steps.scope._resume()
    return (yield from _Followed(steps, inner))


async def _awaited(awaiting: Awaiting, work: Awaitable[R]) -> R:
    scope = awaiting.scope
    scope._untrack(awaiting)
    with scope._resume():
        result = await work
        scope._record_result(result)
        return result


class _Thrown:
    """Keeps an error that is thrown at a `yield`, to be thrown into the inner generator."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        self.error = error
        return error is not None


class Awaiting:
    """A coroutine that has not been awaited yet."""

    def __init__(self, scope: Traced) -> None:
        self.scope = scope
        scope._track(self)

    def abandon(self) -> None:
        """End the scope, because the message ends and the coroutine was never awaited."""
        self.scope._untrack(self)
        self.scope._resume()
        self.scope._mark_incomplete("Nobody awaited it.")
        self.scope.end(None)


class Steps:
    """The steps of a generator: each is a `with` in which the generator's own scopes are open; the last one ends the scope.
    A generator that is closed early, or open at the end of its message, is marked as incomplete."""

    def __init__(self, scope: Traced) -> None:
        self.scope = scope
        self._count = 0
        scope._track(self)
        self._current = scope._current
        self._inside: Any = scope
        self._outside: Any = None
        self._values: list[Any] = []

    def __enter__(self) -> None:
        self._outside = self._current.get()
        # A disabled recorder opens nothing.
        self._current.set(self._inside if self.scope.is_open else self._outside)
        self.scope._go_inside()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._inside = self._current.get()
        self._current.set(self._outside)
        self.scope._come_out()
        if isinstance(error, StopIteration | StopAsyncIteration):
            self.end(None)
        elif isinstance(error, GeneratorExit):
            self.abandon()
        elif error is not None:
            self.end(error)

    def keep(self, item: Any) -> None:
        self._count += 1
        if self._count == 1:
            self.scope._record_first_value()
        if self.scope.is_open and len(self._values) < _MOST_VALUES:
            self._values.append(item)

    def abandon(self) -> None:
        """End the scope, because the generator will not be continued."""
        self.scope._resume()
        if self.scope.is_open:
            values = "1 value" if self._count == 1 else f"{self._count} values"
            self.scope._mark_incomplete(f"It was left after {values}, before its end.")
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        self.scope._untrack(self)
        if self._values and all(isinstance(value, str) for value in self._values):
            self.scope._record_result("".join(self._values))
        else:
            self.scope._record_result(self._values)
        self.scope.end(error)


class _Followed(Generator[Any, Any, Any]):
    """A generator whose steps are recorded; `yield from` passes send, throw and close to it."""

    def __init__(self, steps: Steps, inner: Generator[Any, Any, Any]) -> None:
        self._steps = steps
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._step(partial(self._inner.send, value))

    def throw(self, *error: Any) -> Any:
        return self._step(partial(self._inner.throw, *error))

    def close(self) -> None:
        with self._steps:
            self._inner.close()
        self._steps.abandon()

    def _step(self, step: Callable[[], Any]) -> Any:
        with self._steps:
            item = step()
        self._steps.keep(item)
        return item


def _reader_of(
    function: Callable[..., Any], with_defaults: bool
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Return a function that reads arguments by parameter name, as `Signature.bind` does, at a tenth of the cost."""
    parameters = _parameters_of(function)
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    takes_self = bool(names) and names[0] in ("self", "cls")
    may_be_method = isinstance(function, FunctionType)
    others: dict[str, Any] = {}
    if with_defaults:
        if isinstance(function, partial):
            others.update(
                zip((parameter.name for parameter in _parameters_of(function.func)), function.args, strict=False)
            )
        others.update(
            (parameter.name, parameter.default) for parameter in parameters if type(parameter.default) in _PLAIN
        )

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        own = names
        if takes_self or (may_be_method and args and _is_method_of(args[0], function)):
            args, own = args[1:], names[1:]
        arguments = dict(zip(own, args, strict=False))
        if len(args) > len(own):
            arguments["args"] = args[len(own) :]
        arguments.update(kwargs)
        for name, value in others.items():
            arguments.setdefault(name, value)
        return arguments

    return read


def _is_method_of(value: Any, function: Callable[..., Any]) -> bool:
    """Return whether a function is a method of this object or class, whatever the name of its first parameter."""
    for base in (value if issubclass(type(value), type) else type(value)).__mro__:
        member = base.__dict__.get(function.__name__)
        if member is not None and inspect.unwrap(member) is inspect.unwrap(function):
            return not isinstance(member, staticmethod)
    return False


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions that are written in C have no signature.
        return []
