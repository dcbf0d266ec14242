"""Bound the CPU time of work in the main thread of a command; requests are bounded by the server (tracesite/serving/cpu_limit.py)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOK_SECONDS = 0.5
"""CPU time between two looks at the clock."""


class TookTooMuchCpuTime(Exception):
    """The work took more CPU time than allowed, perhaps in a loop without an end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took more than {seconds:g} s of CPU time")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TookTooMuchCpuTime in the code of the block, wherever it is, once the process has used `seconds` of CPU time in it.

    Python runs handlers of signals in the main thread only, and between two of its instructions: a call of C is not cut off,
    and in another thread nothing is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.process_time()

    def look(_number: int, _frame: FrameType | None) -> None:
        # Looked at again and again, because an exception in a finalizer is only printed.
        if time.process_time() - began > seconds:
            raise TookTooMuchCpuTime(seconds)

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
