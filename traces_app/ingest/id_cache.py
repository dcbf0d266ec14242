"""Find or create the tools and sessions that a batch names, and cache their ids so that the next batch need not query.

A tool keeps its id forever. A session may be deleted or purged by another process: the write that needs it finds its row
missing and calls `forget_sessions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from access_app.bounded_cache import BoundedCache
from access_app.db import connection, transaction
from access_app.db.base import cache_key
from tracesite_sdk.normalize.redacted import Redacted

from .batch import KnownSession, SessionOutcome
from .sessions import names_of
from .sql import Known, look_up, make_tools

_LIMIT = 10_000
"""Entries in each cache."""

T = TypeVar("T", int, UUID)

_Named = tuple[str, int, str]
"""Database, project, name."""

_claimed: BoundedCache[UUID, bool] = BoundedCache(_LIMIT)
_tools: BoundedCache[_Named, int] = BoundedCache(_LIMIT)
_sessions: BoundedCache[_Named, UUID] = BoundedCache(_LIMIT)


def find_or_make_tools(project_id: int, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of all tools of these names; missing ones are created."""
    return find_or_make(project_id, names, ()).tool_ids


def tools_named(project_id: int, names: Sequence[str]) -> list[int]:
    """Return the ids of the tools of these names that exist."""
    cached = _cached(_tools, project_id, names)
    missing = [name for name in names if name not in cached]
    found = look_up(project_id, missing, (), ()).tool_ids if missing else {}
    _cache_on_commit(project_id, found, ())
    return list((cached | found).values())


def find_or_make(project_id: int, tool_names: Sequence[str], batch: Sequence[Redacted]) -> Known:
    """Return the tools of these names, creating missing ones, and the sessions of a batch that exist.

    Call it outside the transaction of the batch, because two batches that first use the same tool must not wait for each
    other.
    """
    uuids, session_names = names_of(batch)
    tool_ids = _cached(_tools, project_id, tool_names)
    sessions = _cached(_sessions, project_id, session_names)
    found = look_up(
        project_id,
        [name for name in tool_names if name not in tool_ids],
        uuids,
        [name for name in session_names if name not in sessions],
    )
    new_tools = dict(found.tool_ids)
    missing = [name for name in tool_names if name not in tool_ids and name not in new_tools]
    if missing:
        new_tools |= make_tools(project_id, missing)
    _cache_on_commit(project_id, new_tools, found.sessions)
    return Known(
        tool_ids=tool_ids | new_tools,
        sessions=[*found.sessions, *(KnownSession(id_, name, False, project_id) for name, id_ in sessions.items())],
        purged=found.purged,
    )


def find_named_sessions(project_id: int, uuids: Sequence[UUID], names: Sequence[str]) -> list[KnownSession]:
    """Return the sessions of these names and ids. Cached ones may be gone, see `forget_sessions`."""
    cached = _cached(_sessions, project_id, names)
    missing = [name for name in names if name not in cached]
    found = look_up(project_id, (), uuids, missing).sessions if missing or uuids else []
    return [*found, *(KnownSession(id_, name, False, project_id) for name, id_ in cached.items())]


def forget_named_sessions(project_id: int, names: Iterable[str]) -> None:
    database = cache_key(connection)
    for name in names:
        _sessions.pop((database, project_id, name))


def may_be_new(keys: Collection[UUID]) -> bool:
    """Return False if one of these message keys was claimed by this process."""
    return not any(map(_claimed.get, keys))


def cache_claims(keys: Collection[UUID]) -> None:
    for key in keys:
        _claimed.put(key, True)


def cache_created_sessions(project_id: int, outcomes: Iterable[SessionOutcome]) -> None:
    """Cache the sessions that a batch created, so that the next message need not query for them."""
    created = [
        KnownSession(outcome.id, outcome.external_id, False, project_id)
        for outcome in outcomes
        if outcome.created and outcome.id is not None
    ]
    _cache_on_commit(project_id, {}, created)


def forget_sessions(project_id: int, batch: Sequence[Redacted]) -> None:
    """Drop the sessions of a batch from the cache, because one was found missing or deleted."""
    forget_named_sessions(project_id, names_of(batch)[1])


def _cached(cache: BoundedCache[_Named, T], project_id: int, names: Iterable[str]) -> dict[str, T]:
    database = cache_key(connection)
    # One lookup a name, because another thread may drop the entry between two.
    found = {name: cache.get((database, project_id, name)) for name in names}
    return {name: id_ for name, id_ in found.items() if id_ is not None}


def _cache_on_commit(project_id: int, tool_ids: dict[str, int], sessions: Sequence[KnownSession]) -> None:
    """Cache these once the current transaction is committed, because it may still roll back."""
    if not (tool_ids or sessions):
        return
    database = cache_key(connection)

    def cache() -> None:
        for name, tool_id in tool_ids.items():
            _tools.put((database, project_id, name), tool_id)
        for session in sessions:
            if session.external_id and not session.is_deleted and session.project_id == project_id:
                _sessions.put((database, project_id, session.external_id), session.id)

    transaction.on_commit(cache)
