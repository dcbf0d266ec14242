"""Scopes as decorators, and what is open carried to other threads.

A generator runs in the context of whoever asks it for the next value. So what is open inside is put in place before each
step and taken away after it: the code between two values finds what it had opened itself, and nothing of the generator's.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from types import CoroutineType, FunctionType, GeneratorType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from .recording import Recorder
    from .scopes import Scope

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Watched(Protocol):
    """One call of a function that is watched: a scope, or the hooks of `wrap`."""

    @property
    def _recorder(self) -> Any: ...
    @property
    def is_open(self) -> bool: ...
    def start(self) -> Watched: ...
    def end(self, error: BaseException | None = None) -> None: ...
    def __enter__(self) -> Watched: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def _take(
        self,
        read: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None: ...
    def _give(self, value: Any) -> None: ...
    def _pause(self) -> Watched: ...
    def _resume(self) -> Watched: ...
    def _follow(self, unfinished: Unfinished) -> None: ...
    def _unfollow(self, unfinished: Unfinished) -> None: ...
    def _leave_incomplete(self, why: str) -> None: ...


class Unfinished(Protocol):
    """Work of a scope that goes on after the function that made it has returned."""

    def abandon(self) -> None: ...


@dataclass(frozen=True)
class _Tool:
    """What `tool_call` made of a function, kept with what it made."""

    recorder: Recorder | None
    """None where each call asks for the recorder of the moment."""
    function: Callable[..., Any]
    call: Callable[..., Any]
    """What was made. A decorator above it copies its attributes, this one too, and is another function."""


_TOOL = "_tracesite_tool"
_PLAIN = (str, int, float, bool, list, tuple, dict)
"""Defaults of parameters that are recorded. Others are None, clients and marks, which say nothing about a call."""
_UNDONE = (CoroutineType, GeneratorType)
_MOST_VALUES = 10_000
"""Values of a generator that are recorded."""


def carried(current: ContextVar[Scope | None], function: Callable[P, R]) -> Callable[P, R]:
    """The function, with what is open here."""
    scope = current.get()

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _inside(current, scope):
            return function(*args, **kwargs)

    return call


def tool(make: Callable[[], Watched], function: F, recorder: Recorder | None) -> F:
    """The function, each call of which is a call of a tool: its arguments are those that it was given and the defaults of
    the others. A function that this was done to before is done anew, and not twice."""
    if isinstance(function, classmethod | staticmethod):
        return cast("F", type(function)(tool(make, function.__func__, recorder)))
    function = undecorated(function, recorder)
    if recorder is None and _tool_of(function) is not None:
        return function
    made = decorated(make, function, defaults=True)
    setattr(made, _TOOL, _Tool(recorder, function, made))
    return made


def undecorated(function: F, recorder: Recorder | None) -> F:
    """The function without what `tool` did to it for this recorder, or for one to the same place."""
    if isinstance(function, MethodType):
        inner = undecorated(function.__func__, recorder)
        return function if inner is function.__func__ else cast("F", MethodType(inner, function.__self__))
    found = _tool_of(function)
    if found is None:
        return function
    if recorder is not None and found.recorder is not None and not recorder.has_destination_of(found.recorder):
        return function
    return cast("F", found.function) if recorder is not None or found.recorder is None else function


def _tool_of(function: Any) -> _Tool | None:
    found = function.__dict__.get(_TOOL) if isinstance(function, FunctionType) else None
    return found if isinstance(found, _Tool) and found.call is function else None


def name_of(function: Any) -> str:
    """The name of a function; of an object that can be called, that of its class."""
    if isinstance(function, partial):
        return name_of(function.func)
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def decorated(make: Callable[[], Watched], function: F, *, defaults: bool = False) -> F:
    """The function, each call of which is a scope that `make` makes: of the same kind (coroutine, generator ...) as before."""
    if isinstance(function, classmethod | staticmethod):
        # What stands above one of them is one again: a class binds a plain function in another way.
        return cast("F", type(function)(decorated(make, function.__func__, defaults=defaults)))
    read = _reader_of(function, defaults)

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watched:
        one = make()
        one._take(read, args, kwargs)
        return one

    call: Callable[..., Any]
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            steps = Steps(begin(args, kwargs).start())
            inner = function(*args, **kwargs)
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

    elif inspect.isgeneratorfunction(function):

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _Followed(Steps(begin(args, kwargs).start()), function(*args, **kwargs)))

    elif inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            with begin(args, kwargs) as one:
                result = await function(*args, **kwargs)
                one._give(result)
                return result

    else:

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with begin(args, kwargs) as one:
                result = function(*args, **kwargs)
                if isinstance(result, _UNDONE):
                    # The function makes one without being one: its work is yet to be done.
                    return _later(one._pause(), result)
                one._give(result)
                return result

    return cast("F", call)


def _later(one: Watched, work: Any) -> Any:
    if isinstance(work, CoroutineType):
        return _awaited(Awaiting(one), work)
    return _followed(Steps(one), work)


def _followed(steps: Steps, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    steps.scope._resume()
    return (yield from _Followed(steps, inner))


async def _awaited(awaiting: Awaiting, work: Awaitable[R]) -> R:
    one = awaiting.scope
    one._unfollow(awaiting)
    with one._resume():
        result = await work
        one._give(result)
        return result


class _Thrown:
    """Keeps what is thrown at a `yield`, to be thrown into the generator that it is meant for."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        self.error = error
        return error is not None


class Awaiting:
    """A coroutine that nobody has awaited yet."""

    def __init__(self, scope: Watched) -> None:
        self.scope = scope
        scope._follow(self)

    def abandon(self) -> None:
        """Nobody will: what it was to do is over."""
        self.scope._unfollow(self)
        self.scope._resume()
        self.scope._leave_incomplete("Nobody awaited it.")
        self.scope.end(None)


class Steps:
    """The steps of a generator: `with` is one of them, in which what the generator has opened is open; the last one ends
    the scope. One that is not read to its end is so marked: when it is closed, or at the end of its message."""

    def __init__(self, scope: Watched) -> None:
        self.scope = self._scope = scope
        self._count = 0
        scope._follow(self)
        self._current = scope._recorder._current
        self._inside: Any = scope
        self._outside: Any = None
        self._values: list[Any] = []

    def __enter__(self) -> None:
        self._outside = self._current.get()
        # Of a recorder that is off nothing is open.
        self._current.set(self._inside if self._scope.is_open else self._outside)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._inside = self._current.get()
        self._current.set(self._outside)
        if isinstance(error, StopIteration | StopAsyncIteration):
            self.end(None)
        elif isinstance(error, GeneratorExit):
            self.abandon()
        elif error is not None:
            self.end(error)

    def keep(self, item: Any) -> None:
        self._count += 1
        if self._scope.is_open and len(self._values) < _MOST_VALUES:
            self._values.append(item)

    def abandon(self) -> None:
        """Nobody reads on."""
        self._scope._resume()
        if self._scope.is_open:
            values = "1 value" if self._count == 1 else f"{self._count} values"
            self._scope._leave_incomplete(f"It was left after {values}, before its end.")
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        self._scope._unfollow(self)
        if self._values and all(isinstance(value, str) for value in self._values):
            self._scope._give("".join(self._values))
        else:
            self._scope._give(self._values)
        self._scope.end(error)


class _Followed(Generator[Any, Any, Any]):
    """A generator whose steps are recorded; `yield from` passes on to it all that its user does."""

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


@contextmanager
def _inside(current: ContextVar[Scope | None], scope: Scope | None) -> Iterator[None]:
    """With this scope as the current one. Not by a token: see Scope.__exit__."""
    before = current.get()
    current.set(scope if scope is None or scope.is_open else before)
    try:
        yield
    finally:
        current.set(before)


def _reader_of(
    function: Callable[..., Any], with_defaults: bool
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Reads arguments by the names of the parameters: as `Signature.bind` does, at a tenth of its price."""
    parameters = _parameters_of(function)
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    is_method = bool(names) and names[0] in ("self", "cls")
    others: dict[str, Any] = {}
    if with_defaults:
        if isinstance(function, partial):
            others.update(zip((one.name for one in _parameters_of(function.func)), function.args, strict=False))
        others.update((one.name, one.default) for one in parameters if type(one.default) in _PLAIN)

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        found = dict(zip(names, args, strict=False))
        if is_method:
            found.pop(names[0], None)
        if len(args) > len(names):
            found["args"] = args[len(names) :]
        found.update(kwargs)
        for name, value in others.items():
            found.setdefault(name, value)
        return found

    return read


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Of some functions that are written in C nobody knows the parameters.
        return []
