"""The projects that a request may see, as a value that QuerySets and SQL statements filter by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class ProjectScope:
    """The projects that a caller may see."""

    project_ids: frozenset[int] | None
    """None means all projects."""


ALL_PROJECTS: Final = ProjectScope(project_ids=None)
NO_PROJECTS: Final = ProjectScope(project_ids=frozenset())


def in_sql(scope: ProjectScope, column: str = "project_id") -> tuple[str, list[Any]]:
    """Return the condition of `visible_to` for raw SQL: its text and its parameters."""
    if scope.project_ids is None:
        return "TRUE", []
    if len(scope.project_ids) == 1:
        return f"{column} = %s", [*scope.project_ids]
    return f"{column} = ANY(%s)", [sorted(scope.project_ids)]


def visible_to(rows: QuerySet[M], scope: ProjectScope, field: str = "project_id") -> QuerySet[M]:
    """Return the rows whose project is in the scope; `field` is the lookup from a row to its project."""
    if scope.project_ids is None:
        return rows
    if not scope.project_ids:
        return rows.none()
    if len(scope.project_ids) == 1:
        # Most requests use the key of one project, and the planner estimates equality best.
        (project_id,) = scope.project_ids
        return rows.filter(**{field: project_id})
    condition: dict[str, Any] = {f"{field}__in": sorted(scope.project_ids)}
    return rows.filter(**condition)
