"""Exit, fork and SIGTERM: close recorders at the end of a process, and renew them in a forked child."""

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

from tracesite_sdk.recorder.guard import Guard


class Ending(Protocol):
    @property
    def guard(self) -> Guard: ...
    def close_at_exit(self, began: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def after_fork(self) -> None: ...


class Interruptible(Ending, Protocol):
    def postponed(self, action: Callable[[], None]) -> bool: ...


_watched: dict[int, Ending] = {}
"""Recorders by id. Kept until they are closed, because a recorder with waiting events may have no other reference."""
IDLE_AT_EXIT = 1.8
"""Seconds without a delivery after which the end of a process stops waiting, so that it takes 2 s while the server is away."""


def watch(recorder: Ending) -> None:
    """Close the recorder at exit, and renew it in forked children."""
    _register()
    _watched[id(recorder)] = recorder


def watch_sigterm(recorder: Interruptible) -> None:
    """Flush the recorder at SIGTERM, then call the previous handler; in this process, not in its children.

    Python handles signals in the main thread only: in another thread the guard logs a failure instead.
    """
    if threading.current_thread() is threading.main_thread():
        _flush_at_sigterm(recorder)
    else:
        recorder.guard.failed(ValueError("SIGTERM can be handled only by a recorder that is made in the main thread."))


def forget(recorder: Ending) -> None:
    """Stop watching a closed recorder."""
    _watched.pop(id(recorder), None)


_registered = threading.Event()
_registered_at_multiprocessing = threading.Event()


def _register() -> None:
    if _registered.is_set():
        return
    _registered.set()
    atexit.register(_close_all)
    _register_at_multiprocessing()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_fork_all)
    ours = sys.modules.get("multiprocessing.process")
    if ours is not None and ours.parent_process() is not None:
        _close_at_exit_of_child(None)


def _register_at_multiprocessing() -> None:
    """Register with multiprocessing, whose children end without atexit. A child of a forkserver forgets finalizers that were
    registered before its work began, and calls the function that is registered here."""
    ours = sys.modules.get("multiprocessing.util")
    if ours is not None and not _registered_at_multiprocessing.is_set():
        _registered_at_multiprocessing.set()
        ours.register_after_fork(_registered, _close_at_exit_of_child)


def _close_all() -> None:
    began = time.monotonic()
    for recorder in list(_watched.values()):
        with recorder.guard.around():
            # A recorder that waited in vain has used the time of all, so that the end takes 2 s, not 2 s for each.
            if not recorder.close_at_exit(began):
                began = time.monotonic()


def _fork_all() -> None:
    for recorder in list(_watched.values()):
        with recorder.guard.around():
            recorder.after_fork()
    _remove_sigterm_handlers()
    _release_sigterm()
    _register_at_multiprocessing()


def _close_at_exit_of_child(_of: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _close_all, exitpriority=0)


_Handler = Callable[[int, FrameType | None], None]
_handled: list[tuple[_Handler, Any]] = []
"""The recorder's handlers of SIGTERM, the newest last, each with its predecessor."""


_held = threading.local()


def _hold_sigterm() -> None:
    """Before a fork: block SIGTERM until the child has removed the handler, because Python would drop a signal that it took
    for a handler which is gone then."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if _handled else None


def _release_sigterm() -> None:
    if _held.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _remove_sigterm_handlers() -> None:
    """In a child: let SIGTERM end it as without the recorder. Pools end their workers by it, and would hang if a worker stopped
    in the middle of a shared operation."""
    if _handled and signal.getsignal(signal.SIGTERM) is _handled[-1][0]:
        signal.signal(signal.SIGTERM, _handled[0][1] or signal.SIG_DFL)
    _handled.clear()


def _flush_at_sigterm(recorder: Interruptible) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        if recorder.postponed(lambda: os.kill(os.getpid(), number)):
            return
        if before == signal.SIG_DFL:
            # The process ends with this signal, and atexit does not run.
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
