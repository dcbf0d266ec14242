"""Conditions on rows, put together: what passes them, in which order, and that no value is ever a part of the SQL."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations, product
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access_app.errors import InvalidInput
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope, visible_to
from messages_app import ids
from messages_app.admin.keyset import QuerySetKeys
from messages_app.models import Message, Session
from messages_app.sql import row_query
from messages_app.sql.pagination import IdRange, Keys
from messages_app.sql.row_query import Rows, alive_messages, all_messages, deleted_messages, sessions_that_are
from tests.traces_app.conftest import NOON, store
from traces_app.models import Tool

PROJECTS = Rows(source="access_app_project AS project", table="project", has_whole_numbers=True)
SESSIONS = Rows(source="messages_app_session AS session", table="session")


@pytest.fixture
def projects(db: None) -> dict[str, int]:
    return {slug: Project.objects.create(slug=slug).pk for slug in ("owner", "stranger", "third")}


@pytest.fixture
def sessions(projects: dict[str, int]) -> dict[str, UUID]:
    """Ten minutes apart, in three projects by turns."""
    found = {}
    for number, name in enumerate(("a", "b", "c", "d", "e", "f")):
        at = NOON + timedelta(minutes=10 * number)
        project = list(projects.values())[number % 3]
        row = Session.objects.create(
            id=ids.session_id(at),
            project_id=project,
            external_id=name,
            title=f"100% {name}",
            created_at=at,
            updated_at=at,
        )
        found[name] = row.pk
    return found


def names(rows: Rows, sessions: dict[str, UUID]) -> str:
    by_id = {key: name for name, key in sessions.items()}
    return "".join(by_id[key] for key in rows.keys(newest_first=False, limit=50))


def test_rows_come_in_both_orders_and_as_many_as_are_asked_for(sessions: dict[str, UUID]) -> None:
    oldest_first = list(sessions.values())
    assert oldest_first == SESSIONS.keys(newest_first=False, limit=50)
    assert oldest_first[::-1] == SESSIONS.keys(newest_first=True, limit=50)
    assert oldest_first[1:3] == SESSIONS.keys(newest_first=False, limit=2, offset=1)
    assert SESSIONS.keys(newest_first=False, limit=2, offset=6) == []


def test_all_conditions_must_be_passed(sessions: dict[str, UUID]) -> None:
    rows = SESSIONS.where("session.external_id > %s", "b").where("session.external_id BETWEEN %s AND %s", "a", "d")
    assert names(rows, sessions) == "cd"
    assert names(SESSIONS, sessions) == "abcdef"  # what a condition is added to stays as it is


def test_rows_are_among_choices_and_of_no_choices_there_are_none(sessions: dict[str, UUID]) -> None:
    for choices, expected in (([], ""), (["b"], "b"), (["b", "f", "none"], "bf"), (("b", "b"), "b")):
        assert names(SESSIONS.among("session.external_id", choices), sessions) == expected
        for order in (True, False):
            assert len(SESSIONS.among("session.external_id", choices).keys(newest_first=order, limit=9)) == len(
                expected
            )


@pytest.mark.parametrize(
    "value", ["'", "x' OR 'a'='a", "%s", "%(x)s", "%%", "\\", "\\'", "a; SELECT 1", "$1", "上海 --"]
)
def test_values_are_compared_as_they_stand(sessions: dict[str, UUID], value: str) -> None:
    assert names(SESSIONS.where("session.external_id = %s", value), sessions) == ""
    assert names(SESSIONS.among("session.external_id", [value, "a"]), sessions) == "a"
    Session.objects.filter(pk=sessions["c"]).update(external_id=value)
    assert names(SESSIONS.where("session.external_id = %s", value), sessions) == "c"
    assert names(SESSIONS.among("session.external_id", [value, "a"]), sessions) == "ac"


def test_a_range_holds_its_lower_bound_and_not_its_upper_one(sessions: dict[str, UUID]) -> None:
    lower, upper = sessions["b"], sessions["e"]
    assert names(SESSIONS.within(IdRange()), sessions) == "abcdef"
    assert names(SESSIONS.within(IdRange(lower=lower)), sessions) == "bcdef"
    assert names(SESSIONS.within(IdRange(upper=upper)), sessions) == "abcd"
    assert names(SESSIONS.within(IdRange(lower=lower, upper=upper)), sessions) == "bcd"
    assert names(SESSIONS.within(IdRange(lower=upper, upper=lower)), sessions) == ""


def test_a_range_can_be_about_another_table_of_the_source(project_with_messages: dict[str, UUID]) -> None:
    rows = all_messages().within(IdRange(lower=project_with_messages["late"]), "session.id")
    (found,) = rows.keys(newest_first=True, limit=5)
    assert Message.objects.get(pk=found).session_id == project_with_messages["late"]


@pytest.fixture
def project_with_messages(db: None) -> dict[str, UUID]:
    """A message in each of two sessions."""
    project = Project.objects.create(slug="owner")
    found = {}
    for day, name in enumerate(("early", "late")):
        at = NOON + timedelta(days=day)
        outcome = store(project, {"role": "user", "created_at": NOON}, external_id=name, created_at=at)
        assert outcome.id is not None
        found[name] = outcome.id
    return found


def test_whole_numbers_are_bounded_by_what_cursors_hold(projects: dict[str, int]) -> None:
    tools = Rows(source="traces_app_tool AS tool", table="tool", has_whole_numbers=True)
    keys = [Tool.objects.create(project_id=projects["owner"], name=name).pk for name in "abc"]
    assert keys[1:] == tools.within(IdRange(lower=UUID(int=keys[1]))).keys(newest_first=False, limit=9)
    assert keys[:1] == tools.within(IdRange(upper=UUID(int=keys[1]))).keys(newest_first=True, limit=9)
    # A cursor of another list holds a number that no column could.
    assert tools.within(IdRange(lower=ids.first_id_at(NOON))).keys(newest_first=True, limit=9) == []
    assert keys == tools.within(IdRange(upper=UUID(int=2**128 - 1))).keys(newest_first=False, limit=9)


def test_a_query_set_of_the_admin_gives_the_same_keys(projects: dict[str, int], sessions: dict[str, UUID]) -> None:
    tools = Rows(source="traces_app_tool AS tool", table="tool", has_whole_numbers=True)
    numbers = [UUID(int=Tool.objects.create(project_id=projects["owner"], name=name).pk) for name in "abc"]
    foreign = [ids.first_id_at(NOON), UUID(int=0), UUID(int=2**128 - 1)]
    pairs: list[tuple[Keys, Keys, list[UUID]]] = [
        (SESSIONS, QuerySetKeys(Session.objects.all()), list(sessions.values())),
        (tools, QuerySetKeys(Tool.objects.all()), numbers),
    ]
    for rows, query_set, own in pairs:
        for lower, upper in product([None, *own, *foreign], repeat=2):
            bounds = IdRange(lower=lower, upper=upper)
            for newest_first, limit, offset in ((True, 2, 0), (False, 9, 1)):
                expected = query_set.within(bounds).keys(newest_first=newest_first, limit=limit, offset=offset)
                found = rows.within(bounds).keys(newest_first=newest_first, limit=limit, offset=offset)
                assert found == expected, (bounds, newest_first)


def test_a_reader_sees_the_same_rows_as_in_a_query_set(projects: dict[str, int], sessions: dict[str, UUID]) -> None:
    keys = [*projects.values(), 0]
    scopes = [ProjectScope(frozenset(some)) for count in range(len(keys) + 1) for some in combinations(keys, count)]
    for scope in (ALL_PROJECTS, NO_PROJECTS, *scopes):
        expected = list(visible_to(Session.objects.order_by("pk"), scope).values_list("pk", flat=True))
        assert expected == SESSIONS.visible_to(scope).keys(newest_first=False, limit=50), scope


def test_rows_have_any_of_the_rows_below_them(projects: dict[str, int], sessions: dict[str, UUID]) -> None:
    below = SESSIONS.where("session.project_id = project.id")
    for choices, expected in ((["a", "d", "b"], ["owner", "stranger"]), (["none"], []), ([], [])):
        rows = PROJECTS.where("project.slug <> %s", "third").with_any(below.among("session.external_id", choices))
        assert [projects[slug] for slug in expected] == rows.keys(newest_first=False, limit=9)
        condition, values = below.among("session.external_id", choices).exist()
        others = PROJECTS.where("project.slug <> %s", "third").where(f"NOT {condition}", *values)
        assert [projects[slug] for slug in ("owner", "stranger") if slug not in expected] == others.keys(
            newest_first=False, limit=9
        )


def test_what_is_alive_and_what_is_deleted(db: None) -> None:
    project = Project.objects.create(slug="owner")
    for name in ("here", "gone"):
        store(
            project,
            *({"external_id": f"{name} {each}", "role": "user", "created_at": NOON} for each in ("kept", "deleted")),
            external_id=name,
        )
    Message.with_deleted.filter(external_id__endswith="deleted").update(deleted_at=timezone.now())
    Session.objects.filter(external_id="gone").update(deleted_at=timezone.now())
    here = Session.objects.get(external_id="here")

    def said(rows: Rows) -> list[str]:
        found = Message.with_deleted.in_bulk(rows.keys(newest_first=True, limit=9)).values()
        return sorted(message.external_id for message in found)

    assert said(all_messages()) == ["gone deleted", "gone kept", "here deleted", "here kept"]
    assert said(alive_messages()) == said(alive_messages(here.pk)) == ["here kept"]
    assert said(deleted_messages()) == ["gone deleted", "gone kept", "here deleted"]
    assert sessions_that_are(deleted=False).keys(newest_first=True, limit=9) == [here.pk]
    (gone,) = sessions_that_are(deleted=True).keys(newest_first=True, limit=9)
    assert Session.with_deleted.get(pk=gone).external_id == "gone"


def test_a_page_of_keys_is_one_exchange(sessions: dict[str, UUID]) -> None:
    with CaptureQueriesContext(connection) as queries:
        SESSIONS.visible_to(ALL_PROJECTS).keys(newest_first=True, limit=2)
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_a_search_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_query, "LIST_MS", 30)
    Project.objects.create(slug="owner")
    with pytest.raises(InvalidInput) as refused:
        PROJECTS.where("pg_sleep(%s) IS NOT NULL", 30).keys(newest_first=True, limit=1)
    assert refused.value.code == "too_slow"
