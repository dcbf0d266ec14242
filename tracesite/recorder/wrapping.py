"""Hooks around a function that knows nothing of them.

    search = wrap(search, before=lambda args: ..., after=lambda value, args: ..., on_error=lambda error, args: ...)

What is wrapped stays what it was: signature, what it returns and raises, and whether it is a function, coroutine, generator
or asynchronous generator. enabling.py wraps the methods of objects.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from .decorating import decorated
from .guard import Guard

F = TypeVar("F", bound=Callable[..., Any])
Args = dict[str, Any]
Before = Callable[[Args], Any]
After = Callable[[Any, Args], Any]
OnError = Callable[[BaseException, Args], Any]


def wrap(
    function: F,
    before: Before | None = None,
    after: After | None = None,
    on_error: OnError | None = None,
    *,
    guard: Guard | None = None,
) -> F:
    """The function with hooks: `before(args)`, then what it did, then `after(value, args)` or `on_error(error, args)`, and
    the error is raised on.

    `args` are the arguments by the names of their parameters. Of a coroutine the value is what it returns, of a generator
    the list of what it yielded, or one text where these are texts. Hooks are plain functions; what they return is ignored,
    and one that raises breaks nothing. Raises TypeError for what is no function.
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"wrap: expected a function, not {function!r}.")
    hooks = _Hooks(before, after, on_error, guard or Guard(), ContextVar("tracesite_wrapped", default=None))
    return decorated(partial(_Watched, hooks), function)


@dataclass(frozen=True)
class _Hooks:
    """What `wrap` was given. To what follows a generator it is what a recorder is to a scope."""

    before: Before | None
    after: After | None
    on_error: OnError | None
    guard: Guard
    _current: ContextVar[Any]


class _Watched:
    """One call of a function with hooks."""

    def __init__(self, hooks: _Hooks) -> None:
        self._recorder = hooks
        self._args: Args = {}
        self._value: Any = None
        self._is_paused = False
        self.is_open = False

    def _take(self, read: Callable[..., Args], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._recorder.guard.around():
            self._args = read(args, kwargs)

    def start(self) -> Self:
        self.is_open = True
        with self._recorder.guard.around():
            if self._recorder.before is not None:
                self._recorder.before(self._args)
        return self

    def _give(self, value: Any) -> None:
        self._value = value

    def end(self, error: BaseException | None = None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        with self._recorder.guard.around():
            if error is None or isinstance(error, GeneratorExit):
                if self._recorder.after is not None:
                    self._recorder.after(self._value, self._args)
            elif self._recorder.on_error is not None:
                self._recorder.on_error(error, self._args)

    def __enter__(self) -> Self:
        return self if self.is_open else self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not self._is_paused:
            self.end(error)

    def _pause(self) -> Self:
        self._is_paused = True
        return self

    def _resume(self) -> Self:
        self._is_paused = False
        return self

    def _follow(self, steps: object) -> None:
        """Hooks hear of the end only."""

    def _unfollow(self, steps: object) -> None:
        pass

    def _leave_incomplete(self, why: str) -> None:
        pass
