"""The projects that a request may see, as a value that QuerySets filter by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.db.models import QuerySet

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])


@dataclass(frozen=True)
class ProjectScope:
    """The projects that a caller may see."""

    project_ids: frozenset[int] | None
    """None means all projects."""

    @property
    def only_project(self) -> int | None:
        """The project, if the caller may see exactly one."""
        if self.project_ids is None or len(self.project_ids) != 1:
            return None
        (project_id,) = self.project_ids
        return project_id


ALL_PROJECTS: Final = ProjectScope(project_ids=None)
NO_PROJECTS: Final = ProjectScope(project_ids=frozenset())


def visible_to(rows: Rows, scope: ProjectScope, field: str = "project_id") -> Rows:
    """The rows of open projects; `field` is where the rows carry their project."""
    if scope.project_ids is None:
        return rows
    if not scope.project_ids:
        return rows.none()
    if (project_id := scope.only_project) is not None:
        # Most requests use the key of one project, and the planner estimates equality best.
        return rows.filter(**{field: project_id})
    condition: dict[str, Any] = {f"{field}__in": sorted(scope.project_ids)}
    return rows.filter(**condition)
