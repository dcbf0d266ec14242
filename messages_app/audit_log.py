"""The audit log for those who may see it: the owners of its projects."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from msgspec import Raw

from access_app.models import SETTINGS, ActorKind, AuditAction, AuditEntry, AuditResult
from access_app.visibility import ProjectScope

from .http import schemas
from .http.filters import InstantFilter, ListFilterSet, TextFilter, WordFilter
from .timestamps import instant_text

_READS = (AuditAction.LIST, AuditAction.READ, AuditAction.SEARCH, AuditAction.EXPORT, AuditAction.KEY_USE)
_LOGINS = (AuditAction.LOGIN, AuditAction.LOGOUT)
_IS_CHANGE = ~Q(action__in=(*_READS, *_LOGINS))
KINDS: Mapping[str, Q] = {
    "settings": _IS_CHANGE & Q(object_type__in=SETTINGS),
    "traces": _IS_CHANGE & ~Q(object_type__in=SETTINGS),
    "reads": Q(action__in=_READS),
    "logins": Q(action__in=_LOGINS),
}
"""The kinds of entries: changes of settings, changes of traces, reads and logins. Each entry is of one."""


def entries_visible_to(scope: ProjectScope) -> QuerySet[AuditEntry]:
    """Return the entries of these projects, and those of what was read of several projects at once, one of them among these.

    Entries without a project, such as logins, are for those who may see all projects.
    """
    entries = AuditEntry.objects.select_related("project")
    if scope.project_ids is None:
        return entries
    among_several = Q(detail__projects="all")
    for project_id in scope.project_ids:
        among_several |= Q(detail__projects__contains=[project_id])
    return entries.filter(Q(project__in=scope.project_ids) | (Q(project=None) & among_several))


class AuditFilterSet(ListFilterSet):
    created_after = InstantFilter("time", "gte", help_text="From this time (inclusive).")
    created_before = InstantFilter("time", "lt", help_text="Before this time (exclusive).")
    actor = TextFilter("actor_name", help_text="The name of the user, key or command.")
    actor_kind = WordFilter(words=ActorKind.values, help_text="The kind of actor.")
    action = WordFilter(words=AuditAction.values, help_text="What was done.")
    object_type = TextFilter(help_text="The type of the object, such as session.")
    object_id = TextFilter(help_text="The id of the object.")
    result = WordFilter(
        words=AuditResult.values, help_text="refused: 401, 403 or a failed login. failed: other errors."
    )
    address = TextFilter(help_text="The IP address of the request.")
    request_id = TextFilter(help_text="The id of the request: X-Request-ID of its response.")

    rows = AuditEntry.objects.all()

    def found(self, scope: ProjectScope) -> QuerySet[AuditEntry]:
        """Return the entries that pass, of those that are visible."""
        return self.narrow(entries_visible_to(scope), self.given)


def entries(ids: Collection[str], scope: ProjectScope) -> list[schemas.AuditEntry]:
    """Return the visible entries of `ids`, in this order."""
    by_id = entries_visible_to(scope).in_bulk([int(key) for key in ids])
    return [_as_schema(by_id[int(key)]) for key in ids if int(key) in by_id]


def _as_schema(entry: AuditEntry) -> schemas.AuditEntry:
    columns: dict[str, Any] = {
        name: getattr(entry, name)
        for name in schemas.AuditEntry.__struct_fields__
        if name not in ("project", "time", "detail")
    }
    return schemas.AuditEntry(
        **columns,
        time=instant_text(entry.time),
        project=None if entry.project is None else entry.project.slug,
        detail=Raw(json.dumps(entry.detail).encode()),
    )
