"""A cache of database facts with keys chosen by clients, bounded in size and age."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A mapping, safe for threads, that drops the entries written longest ago when it is full, and any entry that is older
    than `max_age` seconds. Each value counts as `weigh` returns; the newest is kept even if it is heavier than the limit."""

    def __init__(self, limit: int, *, weigh: Callable[[V], int] = lambda _value: 1, max_age: float = inf) -> None:
        self.limit = limit
        self._weigh, self._max_age = weigh, max_age
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
        return entry[1] if entry and time.monotonic() - entry[0] < self._max_age else None

    def put(self, key: K, value: V, read_at: float | None = None) -> None:
        """Keep a value, whose age counts from `read_at`, a time of `time.monotonic`; from now if it is None."""
        with self._lock:
            self._remove(key)
            self._entries[key] = time.monotonic() if read_at is None else read_at, value
            self._weight += self._weigh(value)
            while self._weight > self.limit and len(self._entries) > 1:
                self._remove(next(iter(self._entries)))

    def pop(self, key: K) -> None:
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def _remove(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._weight -= self._weigh(entry[1])
