"""Transactions that PostgreSQL aborts, or keeps waiting, because of others: run them again. And statements that it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from django.db import OperationalError
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure

_ABORTED: Final = (DeadlockDetected, SerializationFailure)
_LOCKED: Final = (DeadlockDetected, LockNotAvailable)
_Result = TypeVar("_Result")


class LocksHeld(Exception):
    """Others held the locks of a transaction all the time that it could wait."""


def retry_aborted(work: Callable[[], _Result], *, attempts: int = 5, pause: float = 0) -> _Result:
    """Run a transaction, and again if PostgreSQL aborts it because of another one: a deadlock or a serialization failure.

    `work` opens the transaction itself, since an outer one would stay aborted, and keeps nothing of an attempt that failed.
    `pause` are the seconds between attempts. Raise OperationalError of the last attempt, and every other error at once.
    """
    for _attempt in range(attempts - 1):
        try:
            return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, _ABORTED):
                raise
        time.sleep(pause)
    return work()


def retry_locked(work: Callable[[], _Result], *, patience: float, pause: float) -> _Result:
    """Run what limits its waits for locks by `lock_timeout`, and again while others hold them, for `patience` seconds.

    It asks for a lock only for a moment, because all who ask for the same lock after it wait as long. `work` is outside a
    transaction; `pause` are the seconds between attempts. Raise LocksHeld in the end, and every other error at once.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, _LOCKED):
                raise
            if time.monotonic() > deadline:
                raise LocksHeld from error
        time.sleep(pause)


def was_stopped(error: OperationalError) -> bool:
    """Return whether a statement exceeded its time limit."""
    return isinstance(error.__cause__, QueryCanceled)
