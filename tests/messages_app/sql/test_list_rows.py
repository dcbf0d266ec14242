"""The rows of lists: statements of QuerySets, ranges, orders and the limit of time."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import Value
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.errors import InvalidInput
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app.models import HAS_PROBLEMS, Session
from messages_app.sql import pagination as module
from messages_app.sql.batch import Query, fetch
from messages_app.sql.pagination import IdRange, ListRows, QuerySetKeys
from tests.traces_app.conftest import NOON
from traces_app.models import Tool
from tracesite_sdk.records import ids

HOSTILE = ["'", "x' OR 'a'='a", "%s", "%(x)s", "%%", "\\", "\\'", "a; SELECT 1", "$1", "上海 --"]


@pytest.fixture
def sessions(db: None) -> list[Session]:
    """Three sessions a minute apart, in two projects."""
    projects = [Project.objects.create(slug=slug) for slug in ("owner", "stranger")]
    return [
        Session.objects.create(
            id=ids.session_id(NOON + timedelta(minutes=number)),
            project=projects[number % 2],
            external_id=name,
            created_at=NOON,
            updated_at=NOON,
        )
        for number, name in enumerate("abc")
    ]


def rows_of(scope: ProjectScope) -> ListRows:
    return ListRows(db=primary, find=lambda _ids: Session.objects.visible_to(scope))


# --- Statements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", HOSTILE)
def test_value_is_never_part_of_the_sql(sessions: list[Session], value: str) -> None:
    Session.objects.filter(pk=sessions[1].pk).update(external_id=value)
    named = Session.objects.order_by("pk").annotate(said=Value(value)).values_list("external_id", "said")
    query = Query.of(named.filter(external_id=value))
    assert query.sql == Query.of(named.filter(external_id="a")).sql
    assert fetch(primary, [query]) == [[(value, value)]]


def test_partial_index_serves_a_list(sessions: list[Session]) -> None:
    with_problems = Session.with_deleted.filter(HAS_PROBLEMS, project_id=sessions[0].project_id)
    query = Query.of(with_problems.order_by("-pk").values_list("pk")[:20])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan TO off")
        cursor.execute(f"EXPLAIN {query.sql}", query.parameters)
        assert "session_problems" in str(cursor.fetchall())


def test_queryset_that_can_have_no_rows_is_a_statement(db: None) -> None:
    for empty in (Session.objects.none(), Session.objects.filter(pk__in=[])):
        (rows,) = fetch(primary, [Query.of(empty.values_list("pk", "title"))])
        assert rows == []


# --- Lists ------------------------------------------------------------------------------------------------------------


def test_rows_have_an_order_a_limit_and_an_offset(sessions: list[Session]) -> None:
    keys = [one.pk for one in sessions]
    rows = rows_of(ALL_PROJECTS)
    assert rows.keys(newest_first=False, limit=9) == keys
    assert rows.keys(newest_first=True, limit=9) == keys[::-1]
    assert rows.keys(newest_first=False, limit=1, offset=1) == keys[1:2]
    assert rows.keys(newest_first=False, limit=2, offset=3) == []


def test_range_includes_its_lower_bound_only(sessions: list[Session]) -> None:
    a, b, c = (one.pk for one in sessions)
    for bounds, expected in (
        (IdRange(), [a, b, c]),
        (IdRange(lower=b), [b, c]),
        (IdRange(upper=b), [a]),
        (IdRange(lower=b, upper=c), [b]),
        (IdRange(lower=c, upper=b), []),
    ):
        assert rows_of(ALL_PROJECTS).within(bounds).keys(newest_first=False, limit=9) == expected


def test_rows_are_found_for_the_range_of_the_page(sessions: list[Session]) -> None:
    a, b, c = (one.pk for one in sessions)
    asked: list[IdRange] = []
    rows = ListRows(db=primary, find=lambda page: asked.append(page) or Session.objects.all())
    rows.within(IdRange(lower=a)).within(IdRange(upper=c)).keys(newest_first=True, limit=9)
    assert asked == [IdRange(lower=a, upper=c)]
    assert rows.among([c, b]) == [b, c]
    assert asked[1:] == [IdRange(lower=b, upper=UUID(int=c.int + 1))]


def test_reader_sees_open_projects_only(sessions: list[Session]) -> None:
    owner, stranger = (sessions[0].project_id, sessions[1].project_id)
    for scope, expected in (
        (ALL_PROJECTS, "abc"),
        (NO_PROJECTS, ""),
        (ProjectScope(frozenset({owner})), "ac"),
        (ProjectScope(frozenset({stranger})), "b"),
        (ProjectScope(frozenset({owner, stranger})), "abc"),
        (ProjectScope(frozenset({stranger, 0})), "b"),
    ):
        found = Session.objects.in_bulk(rows_of(scope).keys(newest_first=False, limit=9))
        assert sorted(one.external_id for one in found.values()) == list(expected), scope


def test_whole_number_keys_accept_every_cursor(db: None) -> None:
    project = Project.objects.create(slug="owner")
    keys = [Tool.objects.create(project=project, name=name).pk for name in "abc"]
    tools = ListRows(db=primary, find=lambda _ids: Tool.objects.all())
    assert tools.within(IdRange(lower=UUID(int=keys[1]))).keys(newest_first=False, limit=9) == keys[1:]
    assert tools.within(IdRange(upper=UUID(int=keys[1]))).keys(newest_first=True, limit=9) == keys[:1]
    # The cursor of a list of UUIDs is a number that no column can hold.
    foreign = ids.first_id_at(NOON)
    assert tools.within(IdRange(lower=foreign)).keys(newest_first=True, limit=9) == []
    assert tools.within(IdRange(upper=UUID(int=2**128 - 1))).keys(newest_first=False, limit=9) == keys


def test_admin_and_api_page_the_same_keys(sessions: list[Session]) -> None:
    bounds = [None, *(one.pk for one in sessions), UUID(int=0), UUID(int=2**128 - 1)]
    for lower in bounds:
        for upper in bounds:
            within = IdRange(lower=lower, upper=upper)
            expected = QuerySetKeys(Session.objects.all()).within(within).keys(newest_first=True, limit=2)
            assert rows_of(ALL_PROJECTS).within(within).keys(newest_first=True, limit=2) == expected, within


def test_page_of_keys_is_one_round_trip(sessions: list[Session]) -> None:
    with CaptureQueriesContext(connection) as queries:
        rows_of(ALL_PROJECTS).keys(newest_first=True, limit=2)
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_slow_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIST_MS", 30)
    Project.objects.create(slug="owner")
    slow = Project.objects.extra(where=["pg_sleep(30) IS NOT NULL"])
    with pytest.raises(InvalidInput) as refused:
        ListRows(db=primary, find=lambda _ids: slow).keys(newest_first=True, limit=1)
    assert refused.value.code == "too_slow"
