"""The guard: the only module of the project that catches every exception, because the recorder must not raise into an agent.

Failures are counted and logged, each kind once, without content; `strict` raises them, for tests. SystemExit from an object
of the host (its `repr`) counts as a failure too: only the agent itself and Ctrl-C end the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

logger = logging.getLogger("tracesite_sdk")

_MOST_KINDS = 100


class Guard:
    """Counts and logs the failures of one recorder. Thread-safe."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.failures = 0
        """The number of failures. Two threads that fail at the same moment may count as one."""
        self._logged: set[str] = set()

    def failed(self, error: BaseException) -> None:
        """Count and log a failure; with `strict`, raise it instead."""
        if self.strict:
            raise error
        self.failures += 1
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        code_line = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else "?"
        # Only the type of the error, because its text may hold recorded content.
        kind = f"{type(error).__name__} at {code_line}"
        if kind not in self._logged and len(self._logged) < _MOST_KINDS:
            self._logged.add(kind)
            # Log handlers of the host may raise too.
            instead_of_failing(
                None,
                logger.warning,
                "The recorder failed: %s. The agent is not affected. Further failures of this kind are only counted.",
                kind,
            )

    @contextmanager
    def around(self, failed: Callable[[], None] | None = None) -> Iterator[None]:
        """Suppress exceptions of the block; call `failed` if there was one."""
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
    """Decorate a method to return None instead of raising."""

    @wraps(method)
    def call(self: S, /, *args: Any, **kwargs: Any) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - this is the guard
            self.guard.failed(error)
            return None

    return call


def failure_of(function: Callable[..., R], *args: Any) -> R | Exception:
    """Return the result of a function, or the exception that it raised, for callers that handle both."""
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - this is the guard
        return error
    except SystemExit as error:
        return RuntimeError(f"exits with {error.code!r}")


def instead_of_failing(value: R, function: Callable[..., R], *args: Any) -> R:
    """Return the result of a function of the host, or `value` if it raises, so that a failing rule does not leak a secret."""
    try:
        return function(*args)
    except (Exception, SystemExit):  # noqa: BLE001 - this is the guard
        return value
