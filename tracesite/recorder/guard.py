"""The one place of the project that catches everything: nothing of the recorder may raise into the agent that it records.

What fails is counted and logged, each kind of failure once, without content; `strict` makes it raise, for tests. An object
of the host whose `repr` exits is a failure like any other: only the agent itself, and who presses Ctrl-C, end the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

logger = logging.getLogger("tracesite.recorder")

_MOST_KINDS = 100


class Guard:
    """Takes the failures of one recorder. Any thread may call it."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.failures = 0
        """How many there were. Two threads that fail in the same moment may count as one."""
        self._told: set[str] = set()

    def failed(self, error: BaseException) -> None:
        """Counts and logs a failure; with `strict` it is raised instead."""
        if self.strict:
            raise error
        self.failures += 1
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else "?"
        # Of the error only its kind: its text may hold what is being recorded.
        kind = f"{type(error).__name__} at {place}"
        if kind not in self._told and len(self._told) < _MOST_KINDS:
            self._told.add(kind)
            # The host's own handlers of logs may raise too.
            instead_of_failing(
                None, logger.warning, "Something was not recorded: %s. It is said once; the agent goes on.", kind
            )

    @contextmanager
    def around(self, failed: Callable[[], None] | None = None) -> Iterator[None]:
        """Nothing that happens inside raises; `failed` is called when something would have."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - this is the guard
            if failed is not None:
                failed()
            self.failed(error)


class Guarded(Protocol):
    @property
    def guard(self) -> Guard: ...


P = ParamSpec("P")
S = TypeVar("S", bound=Guarded)
R = TypeVar("R")


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """A method that returns None where it would have raised."""

    @wraps(method)
    def call(self: S, /, *args: Any, **kwargs: Any) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - this is the guard
            self.guard.failed(error)
            return None

    return call


def failure_of(function: Callable[..., R], *args: Any) -> R | Exception:
    """What a function returns, or the exception that it raised: where what it is asked for is done in several places."""
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - this is the guard
        return error
    except SystemExit as error:
        return RuntimeError(f"It exits with {error.code!r}.")


def instead_of_failing(value: R, function: Callable[..., R], *args: Any) -> R:
    """What a function of the host returns, or `value` where it raises: a rule that fails must not let a secret pass."""
    try:
        return function(*args)
    except (Exception, SystemExit):  # noqa: BLE001 - this is the guard
        return value
