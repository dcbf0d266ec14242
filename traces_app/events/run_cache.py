"""What this process remembers of runs that grow by events: where their steps and calls stand, up to the event of a number.

Whoever writes events of a session is alone with it, knows the number of its last event, and reads only the events after
those that are remembered: each process reads each event once, however long the run. Events are never changed, and go only
together with their run, so what is remembered stays true; it is forgotten when it was not used for an hour, long before
the name of a purged run may be used anew.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection

from .projection import Heard
from .step_order import Layout
from .unnamed_calls import Unnamed

MOST_SUBJECTS = 20_000
"""Steps and calls of all runs that are remembered: some 20 MB. Those that were used last are kept."""
MOST_NAMES = 10_000
"""Of runs; beyond it all are forgotten, and those in use are back at once."""
MOST_SECONDS = 3600.0

_Key = tuple[str, UUID, UUID]


@dataclass(frozen=True, kw_only=True)
class RunSoFar:
    """A run as its events say it, up to the one of a number."""

    seq: int = 0
    layout: Layout = field(default_factory=Layout)
    unnamed: Unnamed = field(default_factory=Unnamed)
    heard: Heard = field(default_factory=Heard)


class Memory:
    """Of some runs, those that were used last. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[_Key, tuple[float, RunSoFar]] = OrderedDict()
        self._ids: dict[tuple[str, UUID, str], tuple[float, UUID]] = {}
        self._subjects = 0

    def id_of(self, name: tuple[str, UUID, str]) -> UUID | None:
        with self._lock:
            at, found = self._ids.get(name, (0.0, None))
        return found if time.monotonic() - at < MOST_SECONDS else None

    def remember_id(self, name: tuple[str, UUID, str], message_id: UUID) -> None:
        with self._lock:
            if len(self._ids) > MOST_NAMES:
                self._ids.clear()
            self._ids[name] = time.monotonic(), message_id

    def recall(self, key: _Key) -> RunSoFar:
        with self._lock:
            at, found = self._runs.get(key, (0.0, RunSoFar()))
        return found if time.monotonic() - at < MOST_SECONDS else RunSoFar()

    def remember(self, key: _Key, run: RunSoFar) -> None:
        with self._lock:
            known = self._runs.pop(key, (0.0, RunSoFar()))[1]
            # Another thread may have got further meanwhile.
            kept = known if known.seq > run.seq else run
            self._runs[key] = time.monotonic(), kept
            self._subjects += len(kept.layout.subjects) - len(known.layout.subjects)
            while self._subjects > MOST_SUBJECTS and len(self._runs) > 1:
                _key, (_at, forgotten) = self._runs.popitem(last=False)
                self._subjects -= len(forgotten.layout.subjects)


_memory = Memory()


def recall(session_id: UUID, message_id: UUID) -> RunSoFar:
    """What is remembered of a run; nothing of it, as of no event, where nothing is."""
    return _memory.recall((connection.settings_dict["NAME"], session_id, message_id))


def remember(session_id: UUID, message_id: UUID, name: str, run: RunSoFar) -> None:
    """To be called when the events up to `run.seq` are committed."""
    database = connection.settings_dict["NAME"]
    _memory.remember((database, session_id, message_id), run)
    _memory.remember_id((database, session_id, name), message_id)


def run_id(session_id: UUID, name: str) -> UUID | None:
    """The message of a run, by its name; None where it is not remembered. It may be purged."""
    return _memory.id_of((connection.settings_dict["NAME"], session_id, name))


def use(memory: Memory) -> None:
    """Remembers there from now on, as a process does that has just begun."""
    global _memory
    _memory = memory
