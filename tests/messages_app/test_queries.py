"""Lookup of a session or a message by its name."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access_app.db import primary
from access_app.db.base import PLANS_FOR_ANY_SIZE
from access_app.errors import Conflict, NotFound
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app.models import Message, Session
from messages_app.queries import Among, FoundMessage, FoundSession, as_uuid, find_message, find_session, sessions
from tests.traces_app.conftest import answer, question, store
from tracesite_sdk.records import ids


def session(project: Project, external_id: str = "", **fields: object) -> Session:
    now = timezone.now()
    return Session.objects.create(
        id=ids.session_id(now), project=project, external_id=external_id, created_at=now, updated_at=now, **fields
    )


def test_session_in_scope_is_found_by_id_and_external_id(project: Project, stranger: Project) -> None:
    ours, theirs = session(project, "task"), session(stranger, "task")
    own = ProjectScope(frozenset({project.pk}))
    found = FoundSession(ours.pk, project.pk)
    assert [found] * 3 == [find_session(primary, own, name) for name in (str(ours.pk), ours.pk.hex.upper(), "task")]
    assert find_session(primary, ALL_PROJECTS, str(theirs.pk)) == FoundSession(theirs.pk, stranger.pk)
    for scope, name in ((own, str(theirs.pk)), (NO_PROJECTS, "task"), (own, ""), (own, "tas"), (own, "\x00")):
        with pytest.raises(NotFound) as caught:
            find_session(primary, scope, name)
        assert caught.value.code == "session_not_found"


@pytest.mark.parametrize("is_of_one_project", [True, False], ids=["one project", "all projects"])
def test_external_id_is_looked_up_in_its_index(project: Project, is_of_one_project: bool) -> None:
    now = timezone.now()
    Session.objects.bulk_create(
        Session(id=ids.session_id(now), project=project, external_id=f"s{n}", created_at=now, updated_at=now)
        for n in range(300)
    )
    with CaptureQueriesContext(connection) as queries:
        find_session(primary, ProjectScope(frozenset([project.pk])) if is_of_one_project else ALL_PROJECTS, "s7")
    (lookup,) = [query["sql"] for query in queries.captured_queries]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messages_app_session")
        cursor.execute(PLANS_FOR_ANY_SIZE.replace("SET ", "SET LOCAL "))
        cursor.execute(f"EXPLAIN {lookup}")
        assert "session_external_id" in str(cursor.fetchall())


def test_external_id_of_two_visible_projects_is_ambiguous(project: Project, stranger: Project) -> None:
    session(project, "task")
    session(stranger, "task")
    with pytest.raises(Conflict, match="Use the id of the session"):
        find_session(primary, ALL_PROJECTS, "task")


def test_deleted_session_is_found_only_among_deleted(project: Project) -> None:
    found = {
        each.external_id: FoundSession(each.pk, project.pk)
        for each in (session(project, "gone", deleted_at=timezone.now()), session(project, "here"))
    }
    seen: tuple[tuple[Among, set[str]], ...] = (("alive", {"here"}), ("deleted", {"gone"}), ("any", {"gone", "here"}))
    for among, names in seen:
        for name, wanted in found.items():
            for text in (name, str(wanted.pk)):
                if name in names:
                    assert find_session(primary, ALL_PROJECTS, text, among=among) == wanted
                    continue
                with pytest.raises(NotFound):
                    find_session(primary, ALL_PROJECTS, text, among=among)


def test_id_takes_precedence_over_equal_external_id(project: Project) -> None:
    one = session(project, "one")
    session(project, str(one.pk))
    assert find_session(primary, ALL_PROJECTS, str(one.pk)).pk == one.pk


@pytest.mark.parametrize("name", ["' OR '1'='1", "%s", "100%", "a; DROP TABLE messages_app_session", "\\", "x' --"])
def test_any_name_is_compared_literally(project: Project, name: str) -> None:
    named = session(project, name)
    session(project, "other")
    assert find_session(primary, ALL_PROJECTS, name).pk == named.pk
    named.delete()
    with pytest.raises(NotFound):
        find_session(primary, ALL_PROJECTS, name)


def test_message_is_found_only_in_its_session_and_state(project: Project, stranger: Project) -> None:
    def found(scope: ProjectScope, one: Message, within: Session | None = None, *, deleted: bool = False) -> bool:
        session = FoundSession(within.pk, within.project_id) if within else None
        try:
            answer = find_message(primary, scope, str(one.pk), session, deleted=deleted)
        except NotFound as error:
            assert error.code == "message_not_found"
            return False
        assert answer == FoundMessage(one.pk, one.project_id, one.session_id)
        return True

    for name in ("here", "gone"):
        store(project, question(external_id="alive"), question(external_id="deleted"), external_id=name)
    there = session(project, "there")
    here, gone = (Session.objects.get(external_id=name) for name in ("here", "gone"))
    Message.with_deleted.filter(external_id="deleted").update(deleted_at=timezone.now())
    Session.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
    alive, deleted, below, below_deleted = (
        Message.with_deleted.get(session=of, external_id=name) for of in (here, gone) for name in ("alive", "deleted")
    )
    own, foreign = ProjectScope(frozenset({project.pk})), ProjectScope(frozenset({stranger.pk}))
    assert [found(scope, alive) for scope in (ALL_PROJECTS, own, foreign, NO_PROJECTS)] == [True, True, False, False]
    assert [found(own, alive, within) for within in (here, there)] == [True, False]
    assert [found(own, one) for one in (alive, deleted, below, below_deleted)] == [True, False, False, False]
    restorable = [found(own, one, deleted=True) for one in (alive, deleted, below, below_deleted)]
    assert restorable == [False, True, False, False]
    for name in ("", "x", "\x00", str(here.pk)):
        with pytest.raises(NotFound):
            find_message(primary, own, name, None)


def test_message_is_found_by_its_external_id(project: Project, stranger: Project) -> None:
    for owner, name in ((project, "one"), (project, "two"), (stranger, "one")):
        store(owner, question(external_id="q"), answer(external_id=f"a-{name}"), external_id=name)
    own = ProjectScope(frozenset({project.pk}))
    one = Session.objects.get(project=project, external_id="one")
    within = FoundSession(one.pk, project.pk)

    def found(name: str, session: FoundSession | None = None) -> UUID:
        return find_message(primary, own, name, session).pk

    assert found("a-one") == found("a-one", within) == Message.objects.get(session=one, external_id="a-one").pk
    assert found("q", within) == Message.objects.get(session=one, external_id="q").pk
    with pytest.raises(Conflict) as error:
        found("q")
    assert error.value.code == "ambiguous_message"
    with pytest.raises(NotFound):
        found("a-two", within)
    # An id takes precedence over an external id of the same text.
    store(project, question(external_id=str(found("a-one"))), external_id="three")
    assert found(str(found("a-one"))) == found("a-one")


def test_sessions_keep_the_given_order_without_missing_ones(project: Project) -> None:
    one, two = str(session(project, "one").pk), str(session(project, "two").pk)
    gone = str(ids.session_id(timezone.now()))
    found = sessions(primary, [two, gone, one], frozenset({"external_id"}))
    assert [each.external_id for each in found] == ["two", "one"]


@pytest.mark.parametrize("text", ["", "x", "0193e0f0", "0193e0f0-0000-7000-8000-00000000000g", "\x00" * 32])
def test_as_uuid_of_other_text_is_none(text: str) -> None:
    assert as_uuid(text) is None
