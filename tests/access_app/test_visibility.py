"""Filters of rows by the projects that a caller may see."""

from __future__ import annotations

from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope, visible_to


def test_visible_to_returns_only_rows_of_the_scope(project: Project, stranger: Project) -> None:
    third = Project.objects.create(slug="third")

    def seen(scope: ProjectScope) -> list[str]:
        return [each.slug for each in visible_to(Project.objects.all(), scope, field="pk")]

    assert seen(ALL_PROJECTS) == ["owner", "stranger", "third"]
    assert seen(NO_PROJECTS) == []
    assert seen(ProjectScope(frozenset({stranger.pk}))) == ["stranger"]
    assert seen(ProjectScope(frozenset({project.pk, third.pk}))) == ["owner", "third"]
