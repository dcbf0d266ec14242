"""Rows are seen by whoever their project is open to."""

from __future__ import annotations

from access_app.models import Project
from access_app.visibility import EVERYTHING, NOTHING, Reach, visible_to


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
