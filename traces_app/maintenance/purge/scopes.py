"""The scopes of a purge, as conditions in SQL."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from access_app.models import Project
from access_app.retention import KeptScore
from tracesite_sdk.records import ids

from .statements import ALL, MESSAGES, SCORES, SESSIONS, Condition


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Sessions that no age removes, with all their messages: those to which one of these applies."""

    tags: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    scores: tuple[KeptScore, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, kw_only=True)
class PurgeScope:
    """The rows to purge: messages made before `created_before`, and sessions and messages deleted before `deleted_before`,
    only of these projects or this session. None means no limit; at least one of the times is required.

    `kept` limits what goes by `created_before` only, because somebody decided on what is in the trash."""

    created_before: datetime | None = None
    deleted_before: datetime | None = None
    project_ids: tuple[int, ...] | None = None
    session_id: UUID | None = None
    kept: Kept | None = None

    def __post_init__(self) -> None:
        assert self.created_before or self.deleted_before, "without a time everything would be purged"


def lanes_of(scope: PurgeScope) -> list[Condition]:
    """Return conditions that divide the messages of the scope, each served by an index in the order of ids."""
    if scope.session_id is not None:
        return [Condition("session_id = %s", [scope.session_id])]
    if scope.project_ids is not None:
        return [Condition("project_id = %s", [project_id]) for project_id in scope.project_ids]
    return [ALL]


def lanes_of_projects(scope: PurgeScope) -> list[Condition]:
    """Return such conditions for messages in the trash, whose index begins with the project."""
    if scope.session_id is None and scope.project_ids is None:
        return [
            Condition("project_id = %s", [pk]) for pk in Project.objects.order_by("pk").values_list("pk", flat=True)
        ]
    return lanes_of(scope)


def sessions_of(scope: PurgeScope) -> Condition:
    if scope.session_id is not None:
        return Condition("id = %s", [scope.session_id])
    if scope.project_ids is not None:
        return Condition("project_id = ANY(%s)", [list(scope.project_ids)])
    return ALL


def is_kept(kept: Kept, session: str) -> Condition:
    """Return the condition that one of the exceptions applies to a session; `session` is the table or its alias."""
    names, lows, highs = ([getattr(score, name) for score in kept.scores] for name in ("name", "low", "high"))
    return Condition(
        f"({session}.tags && %s::text[] OR {session}.status = ANY(%s::text[]) OR %s AND {session}.pinned_at IS NOT NULL "
        f"OR %s AND EXISTS (SELECT 1 FROM {SCORES} AS score "
        "JOIN unnest(%s::text[], %s::float8[], %s::float8[]) AS kept (name, low, high) ON kept.name = score.name "
        f"WHERE score.session_id = {session}.id AND score.deleted_at IS NULL "
        "AND (kept.low IS NULL OR score.number >= kept.low) AND (kept.high IS NULL OR score.number <= kept.high)))",
        [list(kept.tags), list(kept.statuses), kept.pinned, bool(kept.scores), names, lows, highs],
    )


def messages_not_kept(scope: PurgeScope, table: str = MESSAGES) -> Condition:
    """Return the condition that the session of a message is not kept. One lookup by its id for each message."""
    if scope.kept is None:
        return ALL
    kept = is_kept(scope.kept, "session")
    return Condition(
        f"NOT EXISTS (SELECT 1 FROM {SESSIONS} AS session WHERE session.id = {table}.session_id AND {kept.sql})",
        kept.values,
    )


def sessions_not_kept(scope: PurgeScope, session: str = SESSIONS) -> Condition:
    if scope.kept is None:
        return ALL
    kept = is_kept(scope.kept, session)
    return Condition(f"{kept.sql} IS NOT TRUE", kept.values)


def expired_below(scope: PurgeScope) -> UUID:
    """Return the id below which everything has expired; the smallest id if nothing expires."""
    return ids.first_id_at(scope.created_before) if scope.created_before else UUID(int=0)
