"""Cache the ids of the sessions that batches name and the keys of messages, so that the next batch need not query for them.

A session may be deleted or purged by another process: the write that needs it finds its row missing and calls
`forget_sessions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from access_app.bounded_cache import BoundedCache
from access_app.db import Database
from access_app.db.base import cache_key
from tracesite_sdk.normalize.redacted import Redacted

from .batch import KnownSession, SessionOutcome
from .sessions import names_of
from .sql import FoundSessions, look_up_sessions

_LIMIT = 10_000
"""Entries in each cache."""

_claimed: BoundedCache[UUID, bool] = BoundedCache(_LIMIT)
_sessions: BoundedCache[tuple[str, int, str], UUID] = BoundedCache(_LIMIT)
"""Ids by database, project and name."""


def find_sessions_of(db: Database, project_id: int, batch: Sequence[Redacted]) -> FoundSessions:
    """Return the sessions of a batch that exist. Cached ones may be gone, see `forget_sessions`."""
    uuids, names = names_of(batch)
    cached = _cached(db, project_id, names)
    looked_up = look_up_sessions(db, project_id, uuids, _missing(names, cached))
    _cache_on_commit(db, project_id, looked_up.sessions)
    return FoundSessions(sessions=[*looked_up.sessions, *cached.values()], purged=looked_up.purged)


def find_named_sessions(
    db: Database, project_id: int, uuids: Sequence[UUID], names: Sequence[str]
) -> list[KnownSession]:
    """Return the sessions of these names and ids. Cached ones may be gone, see `forget_sessions`."""
    cached = _cached(db, project_id, names)
    return [*look_up_sessions(db, project_id, uuids, _missing(names, cached)).sessions, *cached.values()]


def forget_named_sessions(db: Database, project_id: int, names: Iterable[str]) -> None:
    database = cache_key(db.connection)
    for name in names:
        _sessions.pop((database, project_id, name))


def may_be_new(keys: Collection[UUID]) -> bool:
    """Return False if one of these message keys was claimed by this process."""
    return not any(map(_claimed.get, keys))


def cache_claims(keys: Collection[UUID]) -> None:
    for key in keys:
        _claimed.put(key, True)


def cache_created_sessions(db: Database, project_id: int, outcomes: Iterable[SessionOutcome]) -> None:
    """Cache the sessions that a batch created, so that the next message need not query for them."""
    created = [
        KnownSession(outcome.id, outcome.external_id, False, project_id)
        for outcome in outcomes
        if outcome.created and outcome.id is not None
    ]
    _cache_on_commit(db, project_id, created)


def forget_sessions(db: Database, project_id: int, batch: Sequence[Redacted]) -> None:
    """Drop the sessions of a batch from the cache, because one was found missing or deleted."""
    forget_named_sessions(db, project_id, names_of(batch)[1])


def _cached(db: Database, project_id: int, names: Iterable[str]) -> dict[str, KnownSession]:
    database = cache_key(db.connection)
    # One lookup a name, because another thread may drop the entry between two.
    ids = {name: _sessions.get((database, project_id, name)) for name in names}
    return {name: KnownSession(id_, name, False, project_id) for name, id_ in ids.items() if id_ is not None}


def _missing(names: Iterable[str], cached: Collection[str]) -> list[str]:
    return [name for name in names if name not in cached]


def _cache_on_commit(db: Database, project_id: int, sessions: Sequence[KnownSession]) -> None:
    """Cache these once the current transaction is committed, because it may still roll back."""
    if not sessions:
        return
    database = cache_key(db.connection)

    def cache() -> None:
        for session in sessions:
            if session.external_id and not session.is_deleted and session.project_id == project_id:
                _sessions.put((database, project_id, session.external_id), session.id)

    db.on_commit(cache)
