"""Hooks around a function, without a recorder.

    search = wrap(search, before=lambda args: ..., after=lambda value, args: ..., on_error=lambda error, args: ...)

The wrapped function keeps its signature, return value and exceptions, and stays a function, coroutine, generator or
asynchronous generator. enabling.py wraps the methods of objects.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from tracesite_sdk.recorder.guard import Guard

from .decorating import decorated

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
    """Return the function with hooks: `before(args)`, and then `after(value, args)`, or `on_error(error, args)` before the
    error is raised again.

    `args` maps parameter names to arguments. `value` is the return value; for a coroutine its result, for a generator the
    list of its values, or one text if they are texts. Hooks are plain functions that run in the caller's thread; their return
    values are ignored, and their exceptions are logged. Raises TypeError if `function` is not a function.
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"wrap: expected a function, not {function!r}.")
    hooks = _Hooks(before, after, on_error, guard or Guard(), ContextVar("tracesite_wrapped", default=None))
    return decorated(partial(_HookedCall, hooks), function)


@dataclass(frozen=True)
class _Hooks:
    """The arguments of `wrap`."""

    before: Before | None
    after: After | None
    on_error: OnError | None
    guard: Guard
    current: ContextVar[Any]


class _HookedCall:
    """One call of a function with hooks; see decorating.Traced."""

    def __init__(self, hooks: _Hooks) -> None:
        self._hooks = hooks
        self._current = hooks.current
        self._args: Args = {}
        self._value: Any = None
        self._is_paused = False
        self.is_open = False

    def _record_arguments(self, read: Callable[..., Args], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._hooks.guard.around():
            self._args = read(args, kwargs)

    def start(self) -> Self:
        self.is_open = True
        with self._hooks.guard.around():
            if self._hooks.before is not None:
                self._hooks.before(self._args)
        return self

    def _record_result(self, value: Any) -> None:
        self._value = value

    def end(self, error: BaseException | None = None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        with self._hooks.guard.around():
            if error is None or isinstance(error, GeneratorExit):
                if self._hooks.after is not None:
                    self._hooks.after(self._value, self._args)
            elif self._hooks.on_error is not None:
                self._hooks.on_error(error, self._args)

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

    def _track(self, steps: object) -> None:
        """Do nothing: hooks have no message at whose end unfinished work is abandoned."""

    def _untrack(self, steps: object) -> None:
        pass

    def _mark_incomplete(self, reason: str) -> None:
        pass

    def _record_first_value(self) -> None:
        pass

    def _go_inside(self) -> None:
        pass

    def _come_out(self) -> None:
        pass
