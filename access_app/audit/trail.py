"""The objects and counts for the audit entry of a request or command: noted where they are known, read once at its end.

Notes cost no query. Without an actor, such as in a shell, they are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from access_app.visibility import ProjectScope

if TYPE_CHECKING:
    from django.http import HttpRequest
    from rest_framework.request import Request

    from access_app.models import ActorKind, ApiKey, AuditAction


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
    changes: dict[str, list[str]] = field(default_factory=dict)
    """What was changed of a setting: see `access_app.audit.changes`."""
    object_name: str = ""
    """The name of that setting."""
    is_saved: bool = False
    """Whether a form of a setting was saved, which may have changed nothing of it."""
    recorded: set[str] = field(default_factory=set)
    """Types of objects that have entries of their own already."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The actor of an audited action, and the address that it came from."""

    kind: ActorKind
    name: str
    id: str = ""
    address: str = ""
    request_id: str = ""


@dataclass(eq=False)
class Actor:
    """The user, key, command or job that acts, with the notes for its audit entry. Handed down beside, or within, a `Database`."""

    origin_of: Callable[[], Origin]
    """Returns who it is; called late, because the login of a request is not known at first."""
    trail: Trail = field(default_factory=Trail)

    @property
    def origin(self) -> Origin:
        return self.origin_of()


def actor_of(request: HttpRequest | Request) -> Actor | None:
    """Return who acts in a request; None for one that is not recorded, such as in tests of single views."""
    actor: Actor | None = getattr(request, "actor", None)
    return actor


def note_key(actor: Actor | None, key: ApiKey) -> None:
    if actor is not None:
        actor.trail.key = key


def note_name(actor: Actor | None, name: str) -> None:
    """Note who acts where neither a key nor a login does."""
    if actor is not None:
        actor.trail.actor = name


def note_scope(actor: Actor | None, scope: ProjectScope) -> None:
    if actor is not None:
        actor.trail.scope = scope


def note_readable(actor: Actor | None, scope: ProjectScope) -> None:
    if actor is not None:
        actor.trail.readable = scope


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
    actor: Actor | None,
    kind: str,
    ids: Iterable[object] = (),
    *,
    project_id: int | None = None,
    action: AuditAction | None = None,
) -> None:
    """Note objects that were found; with an action, that were written. `kind` is the name of a model."""
    if actor is not None:
        trail = actor.trail
        trail.objects.setdefault(kind, {}).update((str(one), None) for one in ids)
        if project_id is not None:
            trail.projects.add(project_id)
        if action is not None:
            trail.action = action


def note_counts(actor: Actor | None, project_id: int | None = None, **counts: int) -> None:
    """Add to the numbers of rows that were written."""
    if actor is not None:
        trail = actor.trail
        trail.counts.update(counts)
        if project_id is not None:
            trail.projects.add(project_id)


def note_entry(actor: Actor | None, kind: str) -> None:
    """Note that an object of this type has an entry of its own."""
    if actor is not None:
        actor.trail.recorded.add(kind)
