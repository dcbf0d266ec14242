"""Finding a session by its name."""

from __future__ import annotations

import pytest
from django.utils import timezone

from access_app.errors import Conflict, NotFound
from access_app.models import Project
from access_app.visibility import EVERYTHING, NOTHING, Reach
from messages_app import ids
from messages_app.models import Session
from messages_app.queries import as_uuid, find_session, sessions


def session(project: Project, external_id: str = "", **fields: object) -> Session:
    now = timezone.now()
    return Session.objects.create(
        id=ids.session_id(now), project=project, external_id=external_id, created_at=now, updated_at=now, **fields
    )


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def stranger(db: None) -> Project:
    return Project.objects.create(slug="stranger")


def test_a_session_is_found_by_id_and_by_external_id_within_reach(project: Project, stranger: Project) -> None:
    ours, theirs = session(project, "task"), session(stranger, "task")
    own = Reach(frozenset({project.pk}))
    assert (
        find_session(own, str(ours.pk)) == find_session(own, ours.pk.hex.upper()) == find_session(own, "task") == ours
    )
    assert find_session(EVERYTHING, str(theirs.pk)) == theirs
    for reach, name in ((own, str(theirs.pk)), (NOTHING, "task"), (own, ""), (own, "tas"), (own, "\x00")):
        with pytest.raises(NotFound) as caught:
            find_session(reach, name)
        assert caught.value.code == "session_not_found"


def test_an_external_id_of_two_projects_is_ambiguous_to_who_sees_both(project: Project, stranger: Project) -> None:
    session(project, "task")
    session(stranger, "task")
    with pytest.raises(Conflict, match="use the id of the session"):
        find_session(EVERYTHING, "task")


def test_deleted_sessions_are_found_where_they_are_looked_for(project: Project) -> None:
    gone = session(project, "gone", deleted_at=timezone.now())
    with pytest.raises(NotFound):
        find_session(EVERYTHING, "gone")
    assert find_session(EVERYTHING, "gone", among=Session.with_deleted.deleted()) == gone


def test_sessions_come_in_the_order_of_their_ids_and_without_those_that_are_gone(project: Project) -> None:
    one, two = str(session(project, "one").pk), str(session(project, "two").pk)
    gone = str(ids.session_id(timezone.now()))
    found = sessions([two, gone, one], frozenset({"external_id"}))
    assert [each.external_id for each in found] == ["two", "one"]


@pytest.mark.parametrize("text", ["", "x", "0193e0f0", "0193e0f0-0000-7000-8000-00000000000g", "\x00" * 32])
def test_what_is_no_uuid_is_none(text: str) -> None:
    assert as_uuid(text) is None
