"""The end of a process, and its copies: what recorders do at exit, at fork and, where they are asked to, at SIGTERM."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from .guard import Guard


class Ending(Protocol):
    @property
    def guard(self) -> Guard: ...
    def close_at_exit(self, began: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def after_fork(self) -> None: ...


class Interruptible(Ending, Protocol):
    def postponed(self, action: Callable[[], None]) -> bool: ...


_watched: dict[int, Ending] = {}
"""By id. They are kept until they are closed: what a recorder holds must not go with the last name for it."""
IDLE_AT_EXIT = 1.8
"""At the end of a process: who delivers nothing for so many seconds is not waited for any longer, so that the end takes 2 s
where the server is away."""


def watch(recorder: Ending) -> None:
    """From now on the recorder is told of the exit and of forks."""
    _register()
    _watched[id(recorder)] = recorder


def watch_sigterm(recorder: Interruptible) -> None:
    """From now on SIGTERM flushes the recorder, then does what it did before; in this process, not in its children.

    A signal can be handled from the main thread only: elsewhere this is left out, and said.
    """
    if threading.current_thread() is threading.main_thread():
        _flush_at_sigterm(recorder)
    else:
        recorder.guard.failed(ValueError("SIGTERM can be handled only by a recorder that is made in the main thread."))


def forget(recorder: Ending) -> None:
    """The recorder is closed."""
    _watched.pop(id(recorder), None)


_registered = threading.Event()
_told_multiprocessing = threading.Event()


def _register() -> None:
    if _registered.is_set():
        return
    _registered.set()
    atexit.register(_close_all)
    _tell_multiprocessing()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_fork_all)
    ours = sys.modules.get("multiprocessing.process")
    if ours is not None and ours.parent_process() is not None:
        _close_at_exit_of_child(None)


def _tell_multiprocessing() -> None:
    """A child of multiprocessing ends without atexit, and has its own way. A child of a forkserver forgets what was
    registered there before its work began, and calls what is registered here."""
    ours = sys.modules.get("multiprocessing.util")
    if ours is not None and not _told_multiprocessing.is_set():
        _told_multiprocessing.set()
        ours.register_after_fork(_registered, _close_at_exit_of_child)


def _close_all() -> None:
    began = time.monotonic()
    for recorder in list(_watched.values()):
        with recorder.guard.around():
            # One that waited in vain has used up the time of all: the end of a process takes 2 s, not 2 s for each.
            if not recorder.close_at_exit(began):
                began = time.monotonic()


def _fork_all() -> None:
    for recorder in list(_watched.values()):
        with recorder.guard.around():
            recorder.after_fork()
    _let_go_of_sigterm()
    _release_sigterm()
    _tell_multiprocessing()


def _close_at_exit_of_child(_of: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _close_all, exitpriority=0)


_Handler = Callable[[int, FrameType | None], None]
_handled: list[tuple[_Handler, Any]] = []
"""Our handlers of SIGTERM, the newest last, each with what handled it before."""


_held = threading.local()


def _hold_sigterm() -> None:
    """Before a fork: a SIGTERM that comes before the child has let go of our handler waits until it has. Python would forget
    one that it took for a handler which then is none."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if _handled else None


def _release_sigterm() -> None:
    if _held.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _let_go_of_sigterm() -> None:
    """In a child: SIGTERM ends it as it would have without us. Pools of processes end their workers by it, and would wait for
    one that is stopped by it in the middle of what it shares with others."""
    if _handled and signal.getsignal(signal.SIGTERM) is _handled[-1][0]:
        signal.signal(signal.SIGTERM, _handled[0][1] or signal.SIG_DFL)
    _handled.clear()


def _flush_at_sigterm(recorder: Interruptible) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        if recorder.postponed(lambda: os.kill(os.getpid(), number)):
            return
        if before == signal.SIG_DFL:
            # Nothing else will be asked at this end.
            recorder.close_at_exit(time.monotonic())
        else:
            recorder.flush(IDLE_AT_EXIT)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)
    _handled.append((handle, before))
