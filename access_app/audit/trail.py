"""The objects and counts for the audit entry of a request or command: noted where they are known, read once at its end.

Notes cost no query. Outside of a request or a command they are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from access_app.visibility import ProjectScope

if TYPE_CHECKING:
    from access_app.models import ApiKey, AuditAction


@dataclass
class Trail:
    """Notes about one request or command."""

    key: ApiKey | None = None
    """The key that was sent, also one that is not active."""
    actor: str = ""
    """The actor where there is neither a key nor a login, such as a signed URL."""
    scope: ProjectScope | None = None
    """The projects that were asked for."""
    readable: ProjectScope | None = None
    """All projects that a login may read, which is what a page without a choice of projects shows."""
    projects: set[int] = field(default_factory=set)
    """The projects of what was found and written, which say more than `scope`."""
    action: AuditAction | None = None
    """The write of a page that offers several."""
    objects: dict[str, dict[str, None]] = field(default_factory=dict)
    """Ids of what was found and written, by type, in their order."""
    counts: Counter[str] = field(default_factory=Counter)
    recorded: set[str] = field(default_factory=set)
    """Types of objects that have entries of their own already."""


_current: ContextVar[Trail | None] = ContextVar("audit_trail", default=None)


@contextmanager
def following() -> Iterator[Trail]:
    """Collect the notes that are made meanwhile in this thread or task."""
    trail = Trail()
    token = _current.set(trail)
    try:
        yield trail
    finally:
        _current.reset(token)


def note_key(key: ApiKey) -> None:
    if trail := _current.get():
        trail.key = key


def note_actor(name: str) -> None:
    if trail := _current.get():
        trail.actor = name


def note_scope(scope: ProjectScope) -> None:
    if trail := _current.get():
        trail.scope = scope


def note_readable(scope: ProjectScope) -> None:
    if trail := _current.get():
        trail.readable = scope


def place_of(trail: Trail) -> tuple[int | None, dict[str, Any]]:
    """Return the project of an entry, and otherwise the ids of several for its detail: "all" for all."""
    found = trail.projects
    if not found:
        scope = trail.scope or trail.readable
        if scope is None:
            return None, {}
        if scope.project_ids is None:
            return None, {"projects": "all"}
        found = set(scope.project_ids)
    if len(found) == 1:
        return next(iter(found)), {}
    return None, {"projects": sorted(found)}


def note_objects(
    kind: str, ids: Iterable[object] = (), *, project_id: int | None = None, action: AuditAction | None = None
) -> None:
    """Note objects that were found; with an action, that were written. `kind` is the name of a model."""
    if trail := _current.get():
        trail.objects.setdefault(kind, {}).update((str(one), None) for one in ids)
        if project_id is not None:
            trail.projects.add(project_id)
        if action is not None:
            trail.action = action


def note_counts(project_id: int | None = None, **counts: int) -> None:
    """Add to the numbers of rows that were written."""
    if trail := _current.get():
        trail.counts.update(counts)
        if project_id is not None:
            trail.projects.add(project_id)


def note_entry(kind: str) -> None:
    """Note that an object of this type has an entry of its own."""
    if trail := _current.get():
        trail.recorded.add(kind)
