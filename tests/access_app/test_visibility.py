"""Filters of rows by the projects that a caller may see."""

from __future__ import annotations

from itertools import combinations

from django.db import connection

from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope, in_sql, visible_to


def test_visible_to_returns_only_rows_of_the_scope(project: Project, stranger: Project) -> None:
    third = Project.objects.create(slug="third")

    def seen(scope: ProjectScope) -> list[str]:
        return [each.slug for each in visible_to(Project.objects.all(), scope, field="pk")]

    assert seen(ALL_PROJECTS) == ["owner", "stranger", "third"]
    assert seen(NO_PROJECTS) == []
    assert seen(ProjectScope(frozenset({stranger.pk}))) == ["stranger"]
    assert seen(ProjectScope(frozenset({project.pk, third.pk}))) == ["owner", "third"]


def test_in_sql_selects_the_same_rows_as_visible_to(project: Project, stranger: Project) -> None:
    keys = [project.pk, stranger.pk, Project.objects.create(slug="third").pk, 0]
    scopes = [ProjectScope(frozenset(some)) for count in range(len(keys) + 1) for some in combinations(keys, count)]
    for scope in (ALL_PROJECTS, NO_PROJECTS, *scopes):
        expected = list(visible_to(Project.objects.order_by("pk"), scope, field="pk").values_list("pk", flat=True))
        condition, values = in_sql(scope, "project.id")
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM access_app_project AS project WHERE {condition} ORDER BY id", values)
            assert expected == [row[0] for row in cursor.fetchall()], scope
            cursor.execute(f"SELECT count(*) FROM access_app_project AS project WHERE NOT ({condition})", values)
            assert cursor.fetchone() == (3 - len(expected),), scope


def test_in_sql_passes_project_ids_as_parameters() -> None:
    assert in_sql(ALL_PROJECTS) == ("TRUE", [])
    assert in_sql(NO_PROJECTS) == ("project_id = ANY(%s)", [[]])
    assert in_sql(ProjectScope(frozenset({7}))) == ("project_id = %s", [7])
    assert in_sql(ProjectScope(frozenset({9, 7})), "call.project_id") == ("call.project_id = ANY(%s)", [[7, 9]])
