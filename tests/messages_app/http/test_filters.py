"""The filters on sessions, compared with the same conditions in Python on the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from django.utils import timezone

from access_app.db import primary
from access_app.errors import InvalidInput
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app.models import Session
from messages_app.sql.pagination import IdRange
from messages_app.timestamps import instant_text
from tests.traces_app.conftest import NOON
from traces_app.queries.filters import SessionFilterSet
from tracesite_sdk.records import ids

TITLES = [
    "",
    "100% sure",
    "100 sure",
    "a_b",
    "aXb",
    "back\\slash",
    "Straße",
    "STRASSE",
    "上海",
    "it's; -- %s",
    "WEATHER",
]
PARTS = ["100%", "%", "_", "a_b", "A_B", "\\", "\\s", "straß", "上", "'", "%s", "weather", "%%", "0% s", "none"]


@pytest.fixture
def rows(db: None) -> list[Session]:
    """Store sessions of all kinds in two projects."""
    pick = random.Random(7)
    projects = [Project.objects.create(slug=slug) for slug in ("owner", "stranger")]
    made = []
    for number in range(60):
        at = NOON + timedelta(minutes=number)
        made.append(
            Session(
                id=ids.session_id(at),
                project=projects[number % 2],
                external_id=f"s{number // 2}",
                title=TITLES[number % len(TITLES)],
                end_user=pick.choice(["", "ada", "Ada", "bob%"]),
                said_status=pick.choice(Session.Status.values),
                tags=pick.sample(["red", "blue", "r,ed", '"q"', "{}"], pick.randrange(4)),
                problem_count=pick.choice([0, 0, 1, 7]),
                deleted_at=timezone.now() if number % 5 == 0 else None,
                created_at=at,
                updated_at=at,
            )
        )
    Session.with_deleted.bulk_create(made)
    return made


def found(query: dict[str, Any], scope: ProjectScope = ALL_PROJECTS, page_ids: IdRange | None = None) -> list[Any]:
    rows = SessionFilterSet(QueryDict(urlencode(query, doseq=True)), mask=None).found(primary, scope)
    return rows.within(page_ids or IdRange()).keys(newest_first=False, limit=200)


def upper(text: str) -> str:
    # PostgreSQL changes the case of single letters, and "ß" has no single capital.
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in text)


CASES: list[tuple[dict[str, Any], Callable[[Session], bool]]] = [
    ({}, lambda row: True),
    *(({"status": word}, lambda row, word=word: row.said_status == word) for word in Session.Status.values),
    *(({"end_user": name}, lambda row, name=name: row.end_user == name) for name in ("ada", "ADA", "bob%", "b", " ada")),
    *(({"external_id": name}, lambda row, name=name: row.external_id == name) for name in ("s3", "s", "s%")),
    *(({"title": part}, lambda row, part=part: upper(part) in upper(row.title)) for part in PARTS),
    *(
        ({"tag": tags}, lambda row, tags=tags: set(tags) <= set(row.tags))
        for tags in (["red"], ["red", "blue"], ["r,ed"], ['"q"', "{}"], ["red", "none"])
    ),
    ({"tag": ["", "blue"]}, lambda row: "blue" in row.tags),
    ({"has_errors": "true"}, lambda row: row.problem_count > 0),
    ({"has_errors": "false"}, lambda row: row.problem_count == 0),
    ({"created_after": instant_text(NOON + timedelta(minutes=30))}, lambda row: row.created_at >= NOON + timedelta(minutes=30)),
    ({"created_before": instant_text(NOON + timedelta(minutes=30))}, lambda row: row.created_at < NOON + timedelta(minutes=30)),
    (
        {"title": "1", "has_errors": "false", "created_after": instant_text(NOON + timedelta(minutes=9))},
        lambda row: "1" in row.title and row.problem_count == 0 and row.created_at >= NOON + timedelta(minutes=9),
    ),
    ({"title": "", "status": "", "has_errors": "", "deleted": "", "tag": ""}, lambda row: True),
]  # fmt: skip


def test_session_filters_match_the_same_in_python(rows: list[Session]) -> None:
    own = ProjectScope(frozenset({rows[0].project_id}))
    passed = 0
    for query, passes in CASES:
        for deleted in (None, "false", "true"):
            given = query if deleted is None else {**query, "deleted": deleted}
            expected = [row for row in rows if passes(row) and (row.deleted_at is not None) == (deleted == "true")]
            assert found(given) == [row.pk for row in expected], given
            seen = [row.pk for row in expected if row.project_id == rows[0].project_id]
            assert found(given, own) == seen, given
            assert found(given, NO_PROJECTS) == [], given
            passed += len(expected)
    assert passed > 300, "the rows are of all kinds, so that filters have something to pass and to keep"


def test_page_and_times_both_limit_the_ids(rows: list[Session]) -> None:
    page = IdRange(lower=rows[10].pk, upper=rows[20].pk)
    query = {"created_after": instant_text(rows[15].created_at), "has_errors": "false"}
    expected = [row.pk for row in rows[15:20] if row.problem_count == 0 and row.deleted_at is None]
    assert expected == found(query, page_ids=page)


def test_filter_set_keeps_no_values_of_other_requests(rows: list[Session]) -> None:
    first = SessionFilterSet(QueryDict("title=a&tag=red"), mask=None)
    second = SessionFilterSet(QueryDict("status=running"), mask=None)
    assert (first.given, second.given) == ({"title": "a", "tag": ["red"]}, {"status": "running"})


@pytest.mark.parametrize("name", ["title", "end_user", "external_id", "tag"])
def test_null_character_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(InvalidInput, match="Null characters are not allowed") as refused:
        SessionFilterSet(QueryDict(urlencode({name: "a\x00b"})), mask=None)
    assert refused.value.field == name
