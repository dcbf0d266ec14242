"""The tools, sessions and messages that a batch names: found, and remembered, so that the next one need not ask for them.

A tool keeps its id for ever. A session may be deleted or purged behind our back: a write ends with its row, finds it
gone, and calls `forget_sessions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from django.db import connection, transaction

from traces_app.normalize.redaction import Redacted

from .batch import KnownSession, SessionOutcome
from .sessions import names_of
from .sql import Known, look_up, make_tools

NOTHING = Known(tool_ids={}, sessions=[], purged=set())
_MOST = 10_000
"""Of each are remembered. Names come from outside: beyond that all are forgotten, and the common ones are back at once."""

T = TypeVar("T", int, UUID)

_Named = tuple[str, int, str]
"""Database, project, name."""

_claimed: set[UUID] = set()
_tools: dict[_Named, int] = {}
_sessions: dict[_Named, UUID] = {}


def find_or_make_tools(project_id: int, names: Sequence[str]) -> dict[str, int]:
    """The ids of all tools of these names; those that are missing are made."""
    return find_or_make(project_id, names, ()).tool_ids


def tools_named(project_id: int, names: Sequence[str]) -> list[int]:
    """The ids of those tools of these names that there are."""
    database = connection.settings_dict["NAME"]
    remembered = _remembered(_tools, database, project_id, names)
    asked = [name for name in names if name not in remembered]
    found = look_up(project_id, asked, (), ()) if asked else NOTHING
    if found.tool_ids:
        transaction.on_commit(lambda: _remember(database, project_id, found.tool_ids, NOTHING))
    return list((remembered | found.tool_ids).values())


def find_or_make(project_id: int, tool_names: Sequence[str], batch: Sequence[Redacted]) -> Known:
    """The tools of these names, made where they are missing, and the sessions of a batch that are there.

    Outside the transaction of the batch: two batches that first use the same tool must not wait for each other.
    """
    database = connection.settings_dict["NAME"]
    uuids, session_names = names_of(batch)
    tool_ids = _remembered(_tools, database, project_id, tool_names)
    sessions = _remembered(_sessions, database, project_id, session_names)
    asked = look_up(
        project_id,
        [name for name in tool_names if name not in tool_ids],
        uuids,
        [name for name in session_names if name not in sessions],
    )
    tool_ids |= asked.tool_ids
    missing = [name for name in tool_names if name not in tool_ids]
    if missing:
        tool_ids |= make_tools(project_id, missing)
    if missing or asked.tool_ids or asked.sessions:
        # Inside a transaction that may yet roll back, remembering them would be a lie.
        transaction.on_commit(lambda: _remember(database, project_id, tool_ids, asked))
    return Known(
        tool_ids=tool_ids,
        sessions=[
            *asked.sessions,
            *(KnownSession(row_id, name, False, project_id) for name, row_id in sessions.items()),
        ],
        purged=asked.purged,
    )


def find_named_sessions(project_id: int, uuids: Sequence[UUID], names: Sequence[str]) -> list[KnownSession]:
    """The sessions of these names and ids that there are, see `statements.Known`; some may be gone, see `forget_sessions`."""
    remembered = _remembered(_sessions, connection.settings_dict["NAME"], project_id, names)
    asked = [name for name in names if name not in remembered]
    found = look_up(project_id, (), uuids, asked).sessions if asked or uuids else []
    return [*found, *(KnownSession(row_id, name, False, project_id) for name, row_id in remembered.items())]


def forget_named_sessions(project_id: int, names: Iterable[str]) -> None:
    database = connection.settings_dict["NAME"]
    for name in names:
        _sessions.pop((database, project_id, name), None)


def may_be_new(keys: Collection[UUID]) -> bool:
    """False where one of these identities of messages was claimed through this process."""
    return _claimed.isdisjoint(keys)


def remember_claims(keys: Collection[UUID]) -> None:
    if len(_claimed) > _MOST:
        _claimed.clear()
    _claimed.update(keys)


def remember_made(project_id: int, outcomes: Iterable[SessionOutcome]) -> None:
    """The sessions that a batch has made: the next message of them need not ask."""
    made = {outcome.external_id: outcome.id for outcome in outcomes if outcome.created and outcome.id is not None}
    if made:
        sessions = [KnownSession(row_id, name, False, project_id) for name, row_id in made.items()]
        asked = replace(NOTHING, sessions=sessions)
        database = connection.settings_dict["NAME"]
        transaction.on_commit(lambda: _remember(database, project_id, {}, asked))


def forget_sessions(project_id: int, batch: Sequence[Redacted]) -> None:
    """Forgets what this process knows of the sessions of a batch: one was found missing or deleted."""
    forget_named_sessions(project_id, names_of(batch)[1])


def _remembered(known: Mapping[_Named, T], database: str, project_id: int, names: Iterable[str]) -> dict[str, T]:
    # One look a name: another thread may forget it between two.
    found = {name: known.get((database, project_id, name)) for name in names}
    return {name: row_id for name, row_id in found.items() if row_id is not None}


def _remember(database: str, project_id: int, tool_ids: dict[str, int], asked: Known) -> None:
    for remembered in (_tools, _sessions):
        if len(remembered) > _MOST:
            remembered.clear()
    _tools.update({(database, project_id, name): tool_id for name, tool_id in tool_ids.items()})
    for session_id, external_id, is_deleted, owner in asked.sessions:
        if external_id and not is_deleted and owner == project_id:
            _sessions[database, project_id, external_id] = session_id
