"""Which projects someone can see, as a plain value that querysets and raw SQL can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Reach:
    """The projects that are open to someone."""

    project_ids: frozenset[int] | None
    """None means all of them."""

    def includes(self, project_id: int) -> bool:
        return self.project_ids is None or project_id in self.project_ids


EVERYTHING: Final = Reach(project_ids=None)
NOTHING: Final = Reach(project_ids=frozenset())


def in_sql(reach: Reach, column: str = "project_id") -> tuple[str, list[Any]]:
    """The condition of `visible_to` for statements of one's own: its SQL, and the parameters in it."""
    if reach.project_ids is None:
        return "TRUE", []
    if len(reach.project_ids) == 1:
        return f"{column} = %s", [*reach.project_ids]
    return f"{column} = ANY(%s)", [sorted(reach.project_ids)]


def visible_to(rows: QuerySet[M], reach: Reach, field: str = "project_id") -> QuerySet[M]:
    """The rows of open projects; `field` is where the rows carry their project."""
    if reach.project_ids is None:
        return rows
    if not reach.project_ids:
        return rows.none()
    if len(reach.project_ids) == 1:
        # A plain equality, which the planner estimates best; most requests come with a key of one project.
        (project_id,) = reach.project_ids
        return rows.filter(**{field: project_id})
    condition: dict[str, Any] = {f"{field}__in": sorted(reach.project_ids)}
    return rows.filter(**condition)
