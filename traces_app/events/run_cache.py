"""The cache of runs that grow by events: the places of their steps and calls, up to the event of a number.

A writer of events has the session to itself, knows the number of its last event, and reads only the events after those in
the cache: each process reads each event once, however long the run. Cached state stays true, because events never change
and are deleted only together with their run. It expires after an hour, long before the name of a purged run may be used
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from access_app.bounded_cache import BoundedCache
from access_app.db import Database
from access_app.db.base import cache_key
from tracesite_sdk.events.projection import CallFlags
from tracesite_sdk.events.step_order import Layout
from tracesite_sdk.events.unnamed_calls import Unnamed

MAX_SUBJECTS = 20_000
"""Steps and calls of all cached runs: about 20 MB."""
MAX_NAMES = 10_000
MAX_AGE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class RunSoFar:
    """The state of a run after its event number `seq`."""

    seq: int = 0
    layout: Layout = field(default_factory=Layout)
    unnamed: Unnamed = field(default_factory=Unnamed)
    call_flags: CallFlags = field(default_factory=CallFlags)


class RunCache:
    """Runs by database, session and message, and their messages by database, session and name."""

    def __init__(self, *, max_subjects: int = MAX_SUBJECTS, max_age: float = MAX_AGE_SECONDS) -> None:
        self.runs: BoundedCache[tuple[str, UUID, UUID], RunSoFar] = BoundedCache(
            max_subjects, weigh=lambda run: len(run.layout.subjects), max_age=max_age
        )
        self.ids: BoundedCache[tuple[str, UUID, str], UUID] = BoundedCache(MAX_NAMES, max_age=max_age)


_cache = RunCache()


def recall(db: Database, session_id: UUID, message_id: UUID) -> RunSoFar:
    """Return the cached state of a run, or that of a run without events."""
    return _cache.runs.get((cache_key(db.connection), session_id, message_id)) or RunSoFar()


def remember(db: Database, session_id: UUID, message_id: UUID, name: str, run: RunSoFar) -> None:
    """Cache a run. Call it when the events up to `run.seq` are committed."""
    database = cache_key(db.connection)
    # Another thread may have stored later events meanwhile.
    if recall(db, session_id, message_id).seq <= run.seq:
        _cache.runs.put((database, session_id, message_id), run)
    _cache.ids.put((database, session_id, name), message_id)


def run_id(db: Database, session_id: UUID, name: str) -> UUID | None:
    """Return the message of a run by its name, if it is cached. The message may be purged."""
    return _cache.ids.get((cache_key(db.connection), session_id, name))


def use(cache: RunCache) -> None:
    """Replace the cache of this process, as a process that has just started has another one."""
    global _cache
    _cache = cache
