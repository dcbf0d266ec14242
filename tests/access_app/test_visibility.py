"""Rows are seen by whoever their project is open to."""

from __future__ import annotations

from itertools import combinations

from django.db import connection

from access_app.models import Project
from access_app.visibility import EVERYTHING, NOTHING, Reach, in_sql, visible_to


def test_rows_of_open_projects_are_seen_and_no_others(project: Project, stranger: Project) -> None:
    third = Project.objects.create(slug="third")

    def seen(reach: Reach) -> list[str]:
        return [each.slug for each in visible_to(Project.objects.all(), reach, field="pk")]

    assert seen(EVERYTHING) == ["owner", "stranger", "third"]
    assert seen(NOTHING) == []
    assert seen(Reach(frozenset({stranger.pk}))) == ["stranger"]
    assert seen(Reach(frozenset({project.pk, third.pk}))) == ["owner", "third"]


def test_a_reach_knows_which_projects_it_includes() -> None:
    assert EVERYTHING.includes(7)
    assert not NOTHING.includes(7)
    assert Reach(frozenset({7})).includes(7)
    assert not Reach(frozenset({7})).includes(8)


def test_a_statement_of_ones_own_shows_what_a_query_set_shows(project: Project, stranger: Project) -> None:
    keys = [project.pk, stranger.pk, Project.objects.create(slug="third").pk, 0]
    reaches = [Reach(frozenset(some)) for count in range(len(keys) + 1) for some in combinations(keys, count)]
    for reach in (EVERYTHING, NOTHING, *reaches):
        expected = list(visible_to(Project.objects.order_by("pk"), reach, field="pk").values_list("pk", flat=True))
        condition, values = in_sql(reach, "project.id")
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM access_app_project AS project WHERE {condition} ORDER BY id", values)
            assert expected == [row[0] for row in cursor.fetchall()], reach
            cursor.execute(f"SELECT count(*) FROM access_app_project AS project WHERE NOT ({condition})", values)
            assert cursor.fetchone() == (3 - len(expected),), reach


def test_the_condition_holds_no_project_only_places_for_them() -> None:
    assert in_sql(EVERYTHING) == ("TRUE", [])
    assert in_sql(NOTHING) == ("project_id = ANY(%s)", [[]])
    assert in_sql(Reach(frozenset({7}))) == ("project_id = %s", [7])
    assert in_sql(Reach(frozenset({9, 7})), "call.project_id") == ("call.project_id = ANY(%s)", [[7, 9]])
