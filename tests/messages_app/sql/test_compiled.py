"""Compiled QuerySets: values stay parameters, shapes are kept, constants are literals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connection
from django.db.models import BigIntegerField, Q, QuerySet, TextField, UUIDField, Value
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from django.utils.functional import lazy

from access_app.errors import InvalidInput
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app.models import HAS_PROBLEMS, Session
from messages_app.sql import compiled as module
from messages_app.sql.batch import fetch
from messages_app.sql.compiled import Bounds, CompiledRows, Param, Statement, compiled, shape_of
from messages_app.sql.pagination import IdRange, QuerySetKeys
from tests.traces_app.conftest import NOON
from traces_app.models import Tool
from tracesite_sdk.records import ids

EXTERNAL_ID = Param("external_id", TextField())
HOSTILE = ["'", "x' OR 'a'='a", "%s", "%(x)s", "%%", "\\", "\\'", "a; SELECT 1", "$1", "上海 --"]


@compiled()
def named(status: str | None = None) -> QuerySet[Session, Any]:
    rows = Session.objects.order_by("pk").filter(external_id=EXTERNAL_ID)
    return (rows if status is None else rows.filter(status=status)).values_list("external_id")


@compiled(prepared=True)
def among() -> QuerySet[Session, Any]:
    names = Param("names", ArrayField(TextField()))
    return Session.objects.order_by("pk").filter(external_id__any=names).values_list("external_id")


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


# --- Params -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [bool, str, int, len, list, lambda param: param < 1, lambda param: f"{param}"])
def test_param_refuses_to_be_looked_at(look: Any) -> None:
    with pytest.raises(TypeError, match="external_id"):
        look(EXTERNAL_ID)


@pytest.mark.parametrize("value", HOSTILE)
def test_value_is_never_part_of_the_sql(sessions: list[Session], value: str) -> None:
    Session.objects.filter(pk=sessions[1].pk).update(external_id=value)
    query = named().query({"external_id": value})
    assert value not in query.sql or value in ("%s", "'", "\\")
    assert (query.sql, query.parameters) == (named().query({"external_id": "a"}).sql, [value])
    assert named().rows({"external_id": value}) == [(value,)]
    assert among().rows({"names": [value, "a"]}) == [("a",), (value,)]


def test_null_value_is_refused() -> None:
    with pytest.raises(ValueError, match="'external_id' is NULL"):
        named().query({"external_id": None})


def test_missing_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="external_id"):
        named().query({})


def test_value_is_adapted_by_its_field(sessions: list[Session]) -> None:
    @compiled()
    def one() -> QuerySet[Session, Any]:
        return Session.objects.filter(pk=Param("id", UUIDField())).values_list("pk")

    assert one().rows({"id": str(sessions[0].pk)}) == [(sessions[0].pk,)]


def test_any_takes_an_array_of_any_length_in_one_statement(sessions: list[Session]) -> None:
    sql = among().sql
    for names in ([], ["a"], ["c", "a", "none"]):
        assert among().rows({"names": names}) == [(name,) for name in sorted(names) if name != "none"]
    assert among().sql is sql


def test_any_works_in_an_ordinary_queryset(sessions: list[Session]) -> None:
    own = [sessions[0].project_id]
    assert Session.objects.filter(project_id__any=own, pk__any=[str(one.pk) for one in sessions]).count() == 2


# --- Shapes -----------------------------------------------------------------------------------------------------------


def test_shape_is_compiled_once() -> None:
    built = []

    @compiled()
    def counted(newest_first: bool) -> QuerySet[Session, Any]:
        built.append(newest_first)
        return Session.objects.order_by("-pk" if newest_first else "pk").values_list("pk")

    assert counted(True) is counted(True)
    assert counted(False) is not counted(True)
    assert built == [True, False]


def test_number_of_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHAPES_KEPT", 2)
    built = []

    @compiled()
    def numbered(number: int) -> QuerySet[Session, Any]:
        built.append(number)
        return Session.objects.annotate(number=Value(number)).values_list("number")

    for number in (1, 2, 3, 1):
        numbered(number)
    assert built == [1, 2, 3, 1]


def test_constant_becomes_a_literal(sessions: list[Session]) -> None:
    statement = named("running")
    assert statement.sql is not None and "'running'" in statement.sql
    assert [name for name, _field in statement.params] == ["external_id"]
    assert statement.rows({"external_id": "a"}) == [("a",)]


@pytest.mark.parametrize("value", HOSTILE)
def test_literal_is_quoted(sessions: list[Session], value: str) -> None:
    Session.objects.filter(pk=sessions[1].pk).update(title=value)

    @compiled()
    def titled(title: str) -> QuerySet[Session, Any]:
        return Session.objects.filter(Q(title=title), external_id=EXTERNAL_ID).values_list("title")

    for prepared in (False, True):
        statement = Statement(sql=titled(value).sql, params=titled(value).params, prepared=prepared)
        assert statement.rows({"external_id": "b"}) == [(value,)]


def test_partial_index_serves_a_compiled_condition(sessions: list[Session]) -> None:
    @compiled()
    def with_problems() -> QuerySet[Session, Any]:
        rows = Session.with_deleted.filter(HAS_PROBLEMS, project_id=Param("project", BigIntegerField()))
        return rows.order_by("-pk").values_list("pk")

    query = with_problems().query({"project": sessions[0].project_id}, " LIMIT 20")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan TO off")
        cursor.execute(f"EXPLAIN {query.sql}", query.parameters)
        assert "session_problems" in str(cursor.fetchall())


def test_rows_that_cannot_exist_take_no_query(db: None) -> None:
    @compiled()
    def impossible() -> QuerySet[Session, Any]:
        return Session.objects.filter(pk__in=[]).values_list("pk")

    with CaptureQueriesContext(connection) as queries:
        assert impossible().rows({}) == []
    assert not queries.captured_queries


def test_language_of_the_first_request_is_not_kept() -> None:
    language = lazy(lambda: translation.get_language() or "", str)

    @compiled()
    def translated() -> QuerySet[Session, Any]:
        return Session.objects.annotate(language=Value(str(language()), TextField())).values_list("language")

    with translation.override("zh-hans"):
        statement = translated()
    assert statement.sql is not None and "zh-hans" not in statement.sql


@pytest.mark.skipif(not settings.PREPARED_STATEMENTS, reason="statements are not prepared")
@pytest.mark.django_db(transaction=True)
def test_prepared_statement_is_prepared_and_others_are_not() -> None:
    connection.close()
    for _again in range(6):
        fetch([named().query({"external_id": "a"})])
    among().rows({"names": ["a"]})
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%messages_app_session%'")
        assert [("= ANY" in statement) for (statement,) in cursor.fetchall()] == [True]


# --- Lists ------------------------------------------------------------------------------------------------------------


def _sessions(_bounds: Bounds, scope: ProjectScope) -> QuerySet[Session]:
    return Session.objects.visible_to(scope)


def _tools(_bounds: Bounds) -> QuerySet[Tool]:
    return Tool.objects.all()


def _slow(_bounds: Bounds) -> QuerySet[Project]:
    return Project.objects.extra(where=["pg_sleep(30) IS NOT NULL"])


def rows_of(scope: ProjectScope) -> CompiledRows:
    of_scope, project = shape_of(scope)
    return CompiledRows(build=_sessions, shape=(of_scope,), values=project)


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


def test_project_of_one_reader_is_not_kept_for_the_next(sessions: list[Session]) -> None:
    first, second = (shape_of(ProjectScope(frozenset({one.project_id}))) for one in sessions[:2])
    assert first[0] == second[0] and first[1] != second[1]


def test_whole_number_keys_accept_every_cursor(db: None) -> None:
    project = Project.objects.create(slug="owner")
    keys = [Tool.objects.create(project=project, name=name).pk for name in "abc"]
    tools = CompiledRows(build=_tools, shape=(), values={})
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
    with pytest.raises(InvalidInput) as refused:
        CompiledRows(build=_slow, shape=(), values={}).keys(newest_first=True, limit=1)
    assert refused.value.code == "too_slow"
