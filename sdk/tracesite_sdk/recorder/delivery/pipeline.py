"""The pipeline of one recorder: queue -> sampling -> privacy -> sink, on one worker thread.

The host's threads append to a deque and go on, without a lock and without waiting. The worker, a daemon thread that starts
with the first entry, polls the queue every `delay_seconds`; after a second without entries it sleeps until it is woken.
Entries that do not fit into the queue, or that the sink does not take, are counted by message, and the trace reports them.

A flush drains the queue in the thread that calls it, so it needs no worker, not even at the exit of the interpreter.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import msgspec

from tracesite_sdk.recorder.capture.entries import (
    ENDS,
    Entry,
    Kind,
    MessageSubject,
    SessionSubject,
    repaired,
    without_values,
)
from tracesite_sdk.recorder.guard import Guard, failure_of

from .ending import IDLE_AT_EXIT
from .privacy import Privacy, clean, report_of_losses
from .sampling import Sampler, Sampling
from .sinks import Clean, Sink

Subscriber = Callable[[dict[str, Any]], Any]

_AT_A_TIME = 64
"""Entries that the worker takes before it lets other threads run: some 0.5 ms of work."""
_BUSY = 4096
"""With more entries waiting than this it takes more at a time."""
_IDLE_SECONDS = 1.0
_LEAST_AT_EXIT = 0.2
_MOST_WAITERS = 10
"""Signal handlers that wait inside each other in one thread: more would reach the recursion limit."""
_MOST_BYTES_UNNAMED = 32 * 2**20
"""Bytes that wait for the names of their sessions."""
_MOST_UNREPORTED = 10_000
"""Messages whose losses are kept until they can be reported."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Counts of the events that were recorded in this process."""

    recorded: int
    """Put on the queue by the agent's code."""
    delivered_to_sink: int
    """Taken by the sink, which has a report of its own."""
    sampled_out: int
    """Left out by sampling."""
    dropped: int
    """Lost: the queue was full, or the sink did not take them."""
    failed: int
    """Errors inside the recorder. Each lost at most the entry it was working on."""
    queued: int
    """Waiting for the worker."""


class Pipeline:
    """The queue and the worker of one recorder."""

    def __init__(
        self,
        sink: Sink,
        *,
        guard: Guard,
        sampling: Sampling,
        privacy: Privacy,
        delay_seconds: float,
        queue_bytes: int,
    ) -> None:
        self.sink = sink
        self.sampling = sampling
        self.privacy = privacy
        self._guard = guard
        self._subscribers: list[Subscriber] = []
        self._delay = delay_seconds
        self._queue_bytes = queue_bytes
        self._begin()

    def _begin(self) -> None:
        self._queue: deque[Entry] = deque()
        self._waiting = 0
        """Approximate bytes in the queue: threads that add to it at the same moment may count as one."""
        self._asleep = True
        self._closed = False
        self._is_retired = False
        self._wake = threading.Event()
        self._worker: threading.Thread | None = None
        self._worker_lock = threading.Lock()
        self._draining = threading.RLock()
        """Held by the thread that takes from the queue."""
        self._waiters: list[int] = []
        """Threads that wait for it. A thread is in it twice while a signal handler waits during a wait."""
        self._drainer: int | None = None
        """The thread that holds it."""
        self._afterwards: Callable[[], None] | None = None
        self._unnamed: dict[SessionSubject, list[Entry]] = {}
        """Entries of sessions whose names are not known yet."""
        self._unnamed_bytes = 0
        self._sampler = Sampler()
        # Reentrant, because a signal handler may run while its own thread counts a loss.
        self._loss_lock = threading.RLock()
        self._unreported: dict[str, tuple[MessageSubject, dict[str, int]]] = {}
        """Losses by message, until they can be reported."""
        self._reports = 0
        self._run = token_hex(4)
        """Distinguishes the loss reports of processes that work on the same message."""
        self._taken = self._refused = self._sent = self._sampled_out = self._dropped = 0

    # --- In the host's threads --------------------------------------------------------------------------------------

    def put(self, entry: Entry) -> None:
        """Put an entry on the queue, or count it as lost. Does not block."""
        waiting = self._waiting + entry.size
        if waiting > self._queue_bytes or self._closed:
            # An end without its result is better than none: the call would seem to go on for ever.
            entry = without_values(entry)
            waiting = self._waiting + entry.size
            room = self._queue_bytes + (self._queue_bytes // 4 if entry.kind in ENDS else 0)
            if waiting > room or self._closed:
                with self._loss_lock:
                    self._refused += 1
                    self._count_loss(entry)
                return
        self._waiting = waiting
        self._queue.append(entry)
        if self._asleep:
            self._wake_worker()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call the subscriber with every event that is sent. Return a function that ends that."""
        # A new list each time, because the worker may be iterating over the old one.
        self._subscribers = [*self._subscribers, subscriber]

        def end() -> None:
            self._subscribers = [other for other in self._subscribers if other is not subscriber]

        return end

    def flush(self, deadline: float) -> int:
        """Block until everything is delivered, or until `deadline` on the monotonic clock. Return how many events are not."""
        self._drain(deadline)
        left = len(self._queue)
        with self._guard.around():
            left += self.sink.flush(deadline)
        return left

    def close(self, deadline: float, *, keeps_sink: bool = False) -> int:
        """Flush, then refuse new entries. With `keeps_sink` the sink stays open for other recorders."""
        self._closed = True
        self._wake.set()
        self._drain(deadline, release=True)
        left = len(self._queue)
        with self._guard.around():
            left += self.sink.flush(deadline) if keeps_sink else self.sink.close(deadline)
        return left

    def close_at_exit(self, began: float, most_seconds: float, *, keeps_sink: bool = False) -> int:
        """Close at the end of the process, which began at `began` on the monotonic clock: go on for `most_seconds` while the
        sink delivers, and stop IDLE_AT_EXIT after its last delivery."""
        self._closed = True
        self._wake.set()
        limit = time.monotonic() + most_seconds
        # Even if other recorders have used up the time in vain, write the queue to the disk.
        until = soonest = min(limit, max(began + IDLE_AT_EXIT, time.monotonic() + _LEAST_AT_EXIT))
        before = self._delivered(time.monotonic())
        while True:
            self._drain(until, release=True)
            now = self._delivered(until)
            is_done = not self._queue and now[0] == now[1]
            goes_on = now[1] > before[1] or (self._queue and now[0] > before[0])
            if is_done or until >= limit or not goes_on:
                break
            before, until = now, min(limit, time.monotonic() + IDLE_AT_EXIT)
        return self.close(max(time.monotonic(), soonest), keeps_sink=keeps_sink)

    def _delivered(self, until: float) -> tuple[int, int]:
        """Return how many events the sink has taken, and how many of them it has delivered by then."""
        left = 0
        with self._guard.around():
            left = self.sink.flush(until)
        return self._sent, self._sent - left

    def retire(self) -> None:
        """End the worker once the queue is empty, because another recorder is in use. A later entry starts a new one."""
        self._is_retired = True
        self._wake.set()

    def postponed(self, action: Callable[[], None]) -> bool:
        """For signal handlers that end the process: return whether their own thread is passing entries on at this moment,
        which would be lost. If so, `action` is called once they are passed on."""
        if self._drainer != threading.get_ident():
            return False
        self._afterwards = action
        return True

    def after_fork(self) -> None:
        """In the child: start with an empty queue, because the parent delivers its own entries."""
        self._begin()
        self.sink.after_fork()

    def report(self) -> Report:
        queued = len(self._queue)
        return Report(
            recorded=self._taken + queued + self._refused,
            delivered_to_sink=self._sent,
            sampled_out=self._sampled_out,
            dropped=self._dropped,
            failed=self._guard.failures,
            queued=queued,
        )

    def _wake_worker(self) -> None:
        self._asleep = False
        self._wake.set()
        if self._worker is None:
            with self._worker_lock:
                if self._worker is None:
                    worker = threading.Thread(target=self._work, name="tracesite-recorder", daemon=True)
                    worker.start()
                    self._worker = worker

    # --- On the worker ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        last = time.monotonic()
        while not self._closed:
            if self._queue or self._unnamed:
                last = time.monotonic()
                self._drain(None)
            elif self._is_retired:
                if self._may_end():
                    return
            elif time.monotonic() - last > _IDLE_SECONDS:
                self._wake.clear()
                self._asleep = True
                # An entry that came in between was put while the worker seemed awake.
                if not self._queue and not self._closed:
                    self._wake.wait()
                self._asleep = False
                last = time.monotonic()
            time.sleep(self._delay)

    def _may_end(self) -> bool:
        """Return whether the worker may end: the queue is empty, and the next entry will start another worker."""
        with self._worker_lock:
            self._worker = None
            self._asleep = True
            if not self._queue:
                return True
            self._worker = threading.current_thread()
            self._asleep = False
            return False

    def _drain(self, deadline: float | None, *, release: bool = False) -> None:
        """Process the entries that are in the queue now; with `release` also those that sampling holds. With a deadline no
        entry waits for the name of its session."""
        seconds = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        here = threading.get_ident()
        if self._waiters.count(here) >= _MOST_WAITERS:
            return
        self._waiters.append(here)
        try:
            if not self._draining.acquire(timeout=seconds):
                return
        finally:
            self._waiters.remove(here)
        outer, self._drainer = self._drainer, threading.get_ident()
        try:
            todo = len(self._queue)
            while todo > 0 and (deadline is None or time.monotonic() < deadline):
                entries = self._next(_AT_A_TIME if len(self._queue) < _BUSY else _BUSY // 8)
                if not entries:
                    break
                todo -= len(entries)
                with self._guard.around():
                    self._pass_on(entries)
                if deadline is None:
                    time.sleep(0)
            if self._unnamed:
                with self._guard.around():
                    self._pass_on((), names_are_final=deadline is not None)
            if release:
                self._send(list(self._sampler.release()))
            if deadline is not None and self._unreported and not self.sink.discards:
                self._report_losses()
        finally:
            self._drainer = outer
            self._draining.release()
            if outer is None and self._afterwards is not None:
                action, self._afterwards = self._afterwards, None
                action()

    def _next(self, most: int) -> list[Entry]:
        entries: list[Entry] = []
        # A signal handler may flush in between, in the same thread.
        with suppress(IndexError):
            while len(entries) < most:
                entries.append(self._queue.popleft())
        # Not below zero, and exact again whenever the queue is empty.
        self._waiting = max(0, self._waiting - sum(entry.size for entry in entries)) if self._queue else 0
        return entries

    def _pass_on(self, entries: Sequence[Entry], *, names_are_final: bool = False) -> None:
        # Counted first: a signal handler may run during the call of len(), after `+=` has read the old number.
        count = len(entries)
        self._taken += count
        named = kept = self._named(entries, names_are_final)
        # Where sampling fails, everything is kept.
        with self._guard.around():
            kept = self._sampled(named, self._effective_sampling())
        self._send(kept)

    def _named(self, entries: Sequence[Entry], names_are_final: bool) -> Sequence[Entry]:
        """Return the entries whose sessions have names, after those that have waited for them, and keep the others."""
        if not self._unnamed and not any(entry.scope.message.session.awaits_name for entry in entries):
            return entries
        for entry in entries:
            self._unnamed.setdefault(entry.scope.message.session, []).append(entry)
            self._unnamed_bytes += entry.size
        names_are_final = names_are_final or self._unnamed_bytes > _MOST_BYTES_UNNAMED
        ready = [session for session in self._unnamed if names_are_final or not session.awaits_name]
        named = [entry for session in ready for entry in self._unnamed.pop(session)]
        self._unnamed_bytes -= sum(entry.size for entry in named)
        return named

    def _sampled(self, entries: Sequence[Entry], sampling: Sampling) -> Sequence[Entry]:
        if sampling.keeps_all and self._sampler.is_idle:
            return entries
        kept = [sampled for entry in entries for sampled in self._sampler.filter(entry, sampling)]
        self._sampled_out = self._sampler.left_out
        return kept

    def _effective_sampling(self) -> Sampling:
        """Return the sampling of the project on the server, and for settings that it leaves open, that of this process."""
        own, settings = self.sampling, self.sink.settings()
        if settings is None or settings.sampling is None:
            return own
        project = settings.sampling
        slow = project.keep_slower_than_ms
        return Sampling(
            rate=own.rate if project.rate is None else project.rate,
            tools={**own.tools, **project.tools},
            keep_errors=project.keep_errors,
            keep_slower_than_ms=own.keep_slower_than_ms if slow is None else slow,
        )

    def _send(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        if self.sink.discards and not self._subscribers:
            count = len(entries)
            self._sent += count
            return
        made, events = self._events_of(entries)
        taken = 0
        with self._guard.around():
            taken = self.sink.send(events)
        self._sent += taken
        self._publish(events)
        for entry in made[taken:]:
            self._count_loss(entry)
        if self._unreported and taken == len(made):
            self._report_losses()

    def _publish(self, events: Sequence[Clean]) -> None:
        """Call the subscribers, after the sink, which does not depend on them."""
        for subscriber in self._subscribers:
            for event in events:
                with self._guard.around():
                    heard = subscriber(msgspec.json.decode(event))
                    if inspect.isawaitable(heard):
                        _wait_for(heard)

    def _events_of(self, entries: Sequence[Entry]) -> tuple[Sequence[Entry], list[Clean]]:
        """Return the events, and their entries. An entry that fails is lost without affecting others."""
        events = failure_of(clean, entries, self.privacy)
        if isinstance(events, list):
            return entries, events
        made: list[Entry] = []
        events = []
        for entry in entries:
            failure = failure_of(clean, [entry], self.privacy)
            if isinstance(failure, Exception):
                failure = failure_of(clean, [repaired(entry)], self.privacy)
            if isinstance(failure, Exception):
                self._count_loss(entry)
                self._guard.failed(failure)
            else:
                made.append(entry)
                events += failure
        return made, events

    # --- Losses -----------------------------------------------------------------------------------------------------

    def _count_loss(self, entry: Entry) -> None:
        message = entry.scope.message
        with self._loss_lock:
            self._dropped += 1
            if not message.number:
                # Of a message that another process records: an event about its beginning would change it.
                return
            _message, lost = self._unreported.get(message.id, (message, {}))
            if not lost and len(self._unreported) >= _MOST_UNREPORTED:
                return
            lost = {**lost, "dropped": lost.get("dropped", 0) + 1}
            if entry.kind is Kind.MESSAGE_END:
                # The end would have reported them.
                lost |= message.losses.as_json()
            self._unreported[message.id] = (message, lost)

    def _report_losses(self) -> None:
        """Send the losses of each message, now that there is room again."""
        with self._loss_lock:
            unreported, self._unreported = self._unreported, {}
        reports = list(unreported.values())
        events: list[Clean] = []
        for message, lost in reports:
            self._reports += 1
            events.append(report_of_losses(message, lost, f"r{self._run}-{self._reports}"))
        taken = 0
        with self._guard.around():
            taken = self.sink.send(events)
        self._publish(events)
        with self._loss_lock:
            for message, lost in reports[taken:]:
                since = self._unreported.get(message.id, (message, {}))[1]
                added = {name: lost.get(name, 0) + since.get(name, 0) for name in {**lost, **since}}
                self._unreported[message.id] = (message, added)


def _wait_for(work: Awaitable[Any]) -> None:
    """Wait in an event loop of its own; in another thread where one runs in this, as while an asynchronous agent flushes."""
    # Imported here, because it takes 20 ms.
    import asyncio

    async def waiting() -> None:
        await work

    def run() -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(waiting())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run()
        return
    failures: list[object] = []
    thread = threading.Thread(target=lambda: failures.append(failure_of(run)), daemon=True)
    thread.start()
    thread.join()
    if isinstance(failures[0], Exception):
        raise failures[0]
