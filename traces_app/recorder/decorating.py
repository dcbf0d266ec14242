"""Scopes as decorators, and what is open carried to other threads.

A generator runs in the context of whoever asks it for the next value. So what is open inside is put in place before each
step and taken away after it: the code between two values finds what it had opened itself, and nothing of the generator's.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from types import CoroutineType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
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


def decorated(make: Callable[[], Watched], function: F) -> F:
    """The function, each call of which is a scope that `make` makes: of the same kind (coroutine, generator ...) as before."""
    if isinstance(function, classmethod | staticmethod):
        # What stands above one of them is one again: a class binds a plain function in another way.
        return cast("F", type(function)(decorated(make, function.__func__)))
    read = _reader_of(function)

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watched:
        one = make()
        one._take(read, args, kwargs)
        return one

    call: Callable[..., Any]
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            steps = _Steps(begin(args, kwargs).start())
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
                    steps.end(None)
                    raise thrown.error
                step = partial(inner.athrow, thrown.error) if thrown.error else partial(inner.asend, sent)

    elif inspect.isgeneratorfunction(function):

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _Followed(begin(args, kwargs).start(), function(*args, **kwargs)))

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
    return _awaited(one, work) if isinstance(work, CoroutineType) else _followed(one, work)


def _followed(one: Watched, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    one._resume()
    return (yield from _Followed(one, inner))


async def _awaited(one: Watched, work: Awaitable[R]) -> R:
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


class _Steps:
    """The steps of a generator: `with` is one of them, in which what the generator has opened is open; the last one ends
    the scope."""

    def __init__(self, scope: Watched) -> None:
        self._scope = scope
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
        elif error is not None:
            self.end(error)

    def keep(self, item: Any) -> None:
        if self._scope.is_open and len(self._values) < _MOST_VALUES:
            self._values.append(item)

    def end(self, error: BaseException | None) -> None:
        if self._values and all(isinstance(value, str) for value in self._values):
            self._scope._give("".join(self._values))
        else:
            self._scope._give(self._values)
        self._scope.end(error)


class _Followed(Generator[Any, Any, Any]):
    """A generator whose steps are recorded; `yield from` passes on to it all that its user does."""

    def __init__(self, scope: Watched, inner: Generator[Any, Any, Any]) -> None:
        self._steps = _Steps(scope)
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._step(partial(self._inner.send, value))

    def throw(self, *error: Any) -> Any:
        return self._step(partial(self._inner.throw, *error))

    def close(self) -> None:
        with self._steps:
            self._inner.close()
        self._steps.end(None)

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


def _reader_of(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Reads arguments by the names of the parameters: as `Signature.bind` does, at a tenth of its price."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Of some functions that are written in C nobody knows the parameters.
        parameters = []
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    is_method = bool(names) and names[0] in ("self", "cls")

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        found = dict(zip(names, args, strict=False))
        if is_method:
            found.pop(names[0], None)
        if len(args) > len(names):
            found["args"] = args[len(names) :]
        found.update(kwargs)
        return found

    return read
