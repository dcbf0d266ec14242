"""Evens out who serves whom. All workers accept from one socket, and whoever wakes up first takes a connection and keeps
it: of four clients often three, and now and then all, come to the same of two workers, while the other is idle.

So a worker that for a while had clearly more to do than another one says goodbye to a client with its answer
(`Connection: close`); the client comes back, to whom is free. Measured with 4 clients and 2 workers: see docs/benchmarks.md.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import os
import struct
import threading
import time
from dataclasses import dataclass

from tracesite.processes import is_running

# Over so many seconds the requests at hand are averaged: shorter, and the pauses between requests look like idleness.
WINDOW = 0.2
# So many requests at hand more than the least busy worker has: 3 and 1 are evened out, 2 and 1 cannot be.
TOO_MANY = 1.3
# Connections that a worker gives away a second, at most: opening one costs as much as a small answer.
A_SECOND = 20

_SLOT = struct.Struct("=qidd")


@dataclass
class _Load:
    pid: int = 0
    at_hand: int = 0
    average: float = 0.0
    seen: float = 0.0

    def at(self, now: float) -> float:
        """The average number of requests at hand, seen from `now`."""
        weight = math.exp((self.seen - now) / WINDOW) if now > self.seen else 1.0
        return self.at_hand + (self.average - self.at_hand) * weight


class Balance:
    """Made before workers are forked; each joins it once. `begin` and `end` frame its requests, from any thread."""

    def __init__(self, workers: int) -> None:
        self._shared = mmap.mmap(-1, _SLOT.size * workers)
        self._joining = multiprocessing.get_context("fork").Lock()
        self._lock = threading.Lock()
        self._own = _Load()
        self._place: int | None = None
        self._given_away = 0.0

    def join(self) -> None:
        """Takes the place of a worker that is gone. Without a free one this worker keeps its connections."""
        self._own = _Load(pid=os.getpid(), seen=time.monotonic())
        with self._joining:
            free = [place for place, load in enumerate(self._loads()) if not load.pid or not is_running(load.pid)]
            self._place = free[0] if free else None
            self._publish()

    @property
    def place(self) -> int | None:
        """Which of the workers this one is, counted from 0; None without a place."""
        return self._place

    def begin(self) -> None:
        self._change(1)

    def end(self) -> None:
        self._change(-1)

    def gives_away(self) -> bool:
        """Whether the connection of the request that is being answered would be better served by another worker."""
        now = time.monotonic()
        if self._own.at_hand < 2 or self._place is None or now < self._given_away + 1 / A_SECOND:
            return False
        own = self._own.at(now)
        least = min((load.at(now) for load in self._loads() if load.pid != self._own.pid and load.pid), default=own)
        if own - least < TOO_MANY:
            return False
        # A worker that died at work left its load behind.
        if not any(is_running(load.pid) for load in self._loads() if own - load.at(now) >= TOO_MANY):
            return False
        self._given_away = now
        return True

    def _change(self, by: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._own.average, self._own.seen = self._own.at(now), now
            self._own.at_hand += by
            self._publish()

    def _publish(self) -> None:
        if self._place is not None:
            own = self._own
            _SLOT.pack_into(self._shared, self._place * _SLOT.size, own.pid, own.at_hand, own.average, own.seen)

    def _loads(self) -> list[_Load]:
        return [_Load(*slot) for slot in _SLOT.iter_unpack(self._shared[:])]
