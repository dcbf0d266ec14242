"""From what the host's threads hand over to what sinks take: queue -> sampling -> privacy -> sink, on one worker.

The host's threads append to a deque and go on: no lock, and no wait. The worker, a daemon thread that begins with the first
entry, looks every `delay_seconds` what is there; while nothing comes for a second it sleeps until it is woken. What does not
fit into the queue or is not taken by the sink is counted, by message, and told with the trace.

A flush drains the queue in the thread that asks for it, so it needs no worker, at the exit of the interpreter neither.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec

from .ending import IDLE_AT_EXIT
from .entries import ENDS, Entry, Kind, mended, without_values
from .guard import Guard, failure_of
from .privacy import Privacy, clean, report_of_losses
from .sampling import Sampler, Sampling
from .sinks import Clean, Sink

if TYPE_CHECKING:
    from .scopes import Message

Subscriber = Callable[[dict[str, Any]], Any]

_AT_A_TIME = 64
"""Entries between which the worker lets others run: some 0.5 ms of work."""
_BUSY = 4096
"""With more than this waiting it takes more at a time."""
_IDLE_SECONDS = 1.0
_LEAST_AT_EXIT = 0.2
_MOST_WAITERS = 10
"""Handlers of signals that wait inside each other in one thread: more would come to the limit of recursion."""
_MOST_UNTOLD = 10_000
"""Messages whose losses are remembered until they can be told."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of what was recorded in this process, in events."""

    recorded: int
    """Handed over by the agent's code."""
    delivered_to_sink: int
    """Taken by the sink. See its own report for what became of them there."""
    sampled_out: int
    """Left out by sampling."""
    dropped: int
    """Lost: no room in the queue, or not taken by the sink."""
    failed: int
    """Failures of the recorder itself: each lost at most what it was about."""
    queued: int
    """Waiting for the worker."""


class Pipeline:
    """The way of the entries of one recorder."""

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
        """Bytes in the queue, about: threads that add to it at the same moment may count as one."""
        self._asleep = True
        self._closed = False
        self._is_retired = False
        self._wake = threading.Event()
        self._worker: threading.Thread | None = None
        self._worker_lock = threading.Lock()
        self._draining = threading.RLock()
        """Held by whoever takes from the queue."""
        self._waiters: list[int] = []
        """The threads that wait to do so. One is there twice while a handler of a signal waits in the middle of a wait."""
        self._drainer: int | None = None
        """The thread that is."""
        self._afterwards: Callable[[], None] | None = None
        self._sampler = Sampler()
        # A handler of a signal may come in between while its own thread counts a loss.
        self._losing = threading.RLock()
        self._untold: dict[str, tuple[Message, dict[str, int]]] = {}
        """What messages lost, until it can be told."""
        self._reports = 0
        self._run = token_hex(4)
        """Tells the reports of losses from those of other processes that work on the same message."""
        self._taken = self._refused = self._sent = self._sampled_out = self._dropped = 0

    # --- In the host's threads --------------------------------------------------------------------------------------

    def put(self, entry: Entry) -> None:
        """Takes an entry. Waits for nobody."""
        waiting = self._waiting + entry.size
        if waiting > self._queue_bytes or self._closed:
            # An end without its result is worth more than none: the call would seem to go on for ever.
            entry = without_values(entry)
            waiting = self._waiting + entry.size
            room = self._queue_bytes + (self._queue_bytes // 4 if entry.kind in ENDS else 0)
            if waiting > room or self._closed:
                with self._losing:
                    self._refused += 1
                    self._lose(entry)
                return
        self._waiting = waiting
        self._queue.append(entry)
        if self._asleep:
            self._awake()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Tells it of every event that is sent; returns what ends that."""
        # Another list each time: the worker may be in the middle of the old one.
        self._subscribers = [*self._subscribers, subscriber]

        def end() -> None:
            self._subscribers = [one for one in self._subscribers if one is not subscriber]

        return end

    def flush(self, deadline: float) -> int:
        """Waits until everything is delivered, or `deadline` on the monotonic clock; how many events are not yet."""
        self._drain(deadline)
        left = len(self._queue)
        with self._guard.around():
            left += self.sink.flush(deadline)
        return left

    def close(self, deadline: float, *, keeps_sink: bool = False) -> int:
        """Flushes, and takes nothing any more. With `keeps_sink` the sink goes on for others."""
        self._closed = True
        self._wake.set()
        self._drain(deadline, release=True)
        left = len(self._queue)
        with self._guard.around():
            left += self.sink.flush(deadline) if keeps_sink else self.sink.close(deadline)
        return left

    def close_at_exit(self, began: float, most_seconds: float, *, keeps_sink: bool = False) -> int:
        """Closes at the end of the process, which began at `began`: goes on for `most_seconds` while the sink delivers, and
        ends IDLE_AT_EXIT after it last did."""
        self._closed = True
        self._wake.set()
        limit = time.monotonic() + most_seconds
        # Where others have waited in vain already, there is still time to write what waits to the disk.
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
        """How many events the sink has taken, and how many of them it has delivered by then."""
        left = 0
        with self._guard.around():
            left = self.sink.flush(until)
        return self._sent, self._sent - left

    def retire(self) -> None:
        """Another recorder is used from now on: the worker ends once nothing waits. What comes all the same starts one."""
        self._is_retired = True
        self._wake.set()

    def postponed(self, action: Callable[[], None]) -> bool:
        """For handlers of signals that end the process: one that came in between while its own thread passes entries on
        would take them along. Whether that is so; then `action` is called once they are passed on."""
        if self._drainer != threading.get_ident():
            return False
        self._afterwards = action
        return True

    def after_fork(self) -> None:
        """In the child: what waits is the parent's to tell."""
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

    def _awake(self) -> None:
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
            if self._queue:
                last = time.monotonic()
                self._drain(None)
            elif self._is_retired:
                if self._ends():
                    return
            elif time.monotonic() - last > _IDLE_SECONDS:
                self._wake.clear()
                self._asleep = True
                # Whoever came in between saw it awake.
                if not self._queue and not self._closed:
                    self._wake.wait()
                self._asleep = False
                last = time.monotonic()
            time.sleep(self._delay)

    def _ends(self) -> bool:
        """Whether the worker may end: nothing waits, and what comes from now on starts another."""
        with self._worker_lock:
            self._worker = None
            self._asleep = True
            if not self._queue:
                return True
            self._worker = threading.current_thread()
            self._asleep = False
            return False

    def _drain(self, deadline: float | None, *, release: bool = False) -> None:
        """Takes what is in the queue now; with `release` also what sampling holds."""
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
            if release:
                self._send(list(self._sampler.release()))
            if deadline is not None and self._untold and not self.sink.discards:
                self._tell()
        finally:
            self._drainer = outer
            self._draining.release()
            if outer is None and self._afterwards is not None:
                action, self._afterwards = self._afterwards, None
                action()

    def _next(self, most: int) -> list[Entry]:
        entries: list[Entry] = []
        # A handler of a signal may flush in between, in the same thread.
        with suppress(IndexError):
            while len(entries) < most:
                entries.append(self._queue.popleft())
        # Not below zero, and exact again whenever the queue is empty.
        self._waiting = max(0, self._waiting - sum(entry.size for entry in entries)) if self._queue else 0
        return entries

    def _pass_on(self, entries: Sequence[Entry]) -> None:
        # A handler of a signal may come in between at a call, and its numbers must not be overwritten.
        count = len(entries)
        self._taken += count
        kept = entries
        # Where it cannot be said what is to be kept, all is.
        with self._guard.around():
            kept = self._sampled(entries, self._asked_for())
        self._send(kept)

    def _sampled(self, entries: Sequence[Entry], sampling: Sampling) -> Sequence[Entry]:
        if sampling.keeps_all and self._sampler.is_idle:
            return entries
        kept = [one for entry in entries for one in self._sampler.sift(entry, sampling)]
        self._sampled_out = self._sampler.left_out
        return kept

    def _asked_for(self) -> Sampling:
        """What the project asks for on the server, and where it asks for nothing, what this process says."""
        own = self.sampling
        asked = self.sink.settings()
        if asked is None or asked.sampling is None:
            return own
        told = asked.sampling
        return Sampling(
            rate=own.rate if told.rate is None else told.rate,
            tools={**own.tools, **told.tools},
            keep_errors=told.keep_errors,
            keep_slower_than_ms=own.keep_slower_than_ms
            if told.keep_slower_than_ms is None
            else told.keep_slower_than_ms,
        )

    def _send(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        if self.sink.discards and not self._subscribers:
            count = len(entries)
            self._sent += count
            return
        made, events = self._made(entries)
        taken = 0
        with self._guard.around():
            taken = self.sink.send(events)
        self._sent += taken
        self._publish(events)
        for entry in made[taken:]:
            self._lose(entry)
        if self._untold and taken == len(made):
            self._tell()

    def _publish(self, events: Sequence[Clean]) -> None:
        """To the subscribers, after the sink: they know nothing of it and it nothing of them."""
        for subscriber in self._subscribers:
            for event in events:
                with self._guard.around():
                    subscriber(msgspec.json.decode(event))

    def _made(self, entries: Sequence[Entry]) -> tuple[Sequence[Entry], list[Clean]]:
        """The events of the entries. One that cannot be made is lost, and takes no other with it."""
        events = failure_of(clean, entries, self.privacy)
        if isinstance(events, list):
            return entries, events
        made: list[Entry] = []
        events = []
        for entry in entries:
            one = failure_of(clean, [entry], self.privacy)
            if isinstance(one, Exception):
                one = failure_of(clean, [mended(entry)], self.privacy)
            if isinstance(one, Exception):
                self._lose(entry)
                self._guard.failed(one)
            else:
                made.append(entry)
                events += one
        return made, events

    # --- What was lost ----------------------------------------------------------------------------------------------

    def _lose(self, entry: Entry) -> None:
        message = entry.scope.message
        with self._losing:
            self._dropped += 1
            _message, lost = self._untold.get(message.id, (message, {}))
            if not lost and len(self._untold) >= _MOST_UNTOLD:
                return
            lost = {**lost, "dropped": lost.get("dropped", 0) + 1}
            if entry.kind is Kind.MESSAGE_END:
                # It would have said this.
                lost |= message.losses.said()
            self._untold[message.id] = (message, lost)

    def _tell(self) -> None:
        """There is room again: says what each message lost."""
        with self._losing:
            untold, self._untold = self._untold, {}
        told = list(untold.values())
        events: list[Clean] = []
        for message, lost in told:
            self._reports += 1
            events.append(report_of_losses(message, lost, f"r{self._run}-{self._reports}"))
        taken = 0
        with self._guard.around():
            taken = self.sink.send(events)
        self._publish(events)
        with self._losing:
            for message, lost in told[taken:]:
                since = self._untold.get(message.id, (message, {}))[1]
                added = {name: lost.get(name, 0) + since.get(name, 0) for name in {**lost, **since}}
                self._untold[message.id] = (message, added)
