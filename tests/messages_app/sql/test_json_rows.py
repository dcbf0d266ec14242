"""From columns to resources: the columns read, the fields left out, and the JSON of values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection, models
from django.test.utils import CaptureQueriesContext
from msgspec import UNSET, Meta, Raw, UnsetType

from access_app.db import primary
from access_app.models import Project
from messages_app.http.schemas import Resource
from messages_app.models import Message, Session
from messages_app.sql import json_rows
from messages_app.sql.batch import fetch
from messages_app.sql.json_rows import Column, Source, look_up
from tests.traces_app.conftest import question, store
from tracesite_sdk.records import ids

NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


class Row(Resource, frozen=True):
    name: str
    at: str | None
    gone: str | None
    workflow: Any
    tags: Raw | None
    extra: str | UnsetType
    metadata: Raw | UnsetType = UNSET
    title: str | UnsetType = UNSET


class Content(Resource, frozen=True):
    content: str


ROWS = Source(
    resource=Row,
    model=Session,
    table="messages_app_session",
    partitioned=False,
    beside=("status",),
    columns={
        "name": Column(sql="external_id", convert=lambda names: [name.upper() for name in names]),
        "at": json_rows.instant("created_at"),
        "gone": json_rows.instant("deleted_at"),
        "tags": json_rows.json("to_jsonb(tags)"),
    },
    made=("extra",),
)


@pytest.fixture
def keys(db: None) -> list[str]:
    project = Project.objects.create(slug="owner")
    made = [
        Session.objects.create(
            id=ids.session_id(NOON), project=project, created_at=NOON, updated_at=NOON, external_id=name, **fields
        )
        for name, fields in (
            ("full", {"title": "t", "metadata": {"a": "上海"}, "tags": ["x"], "workflow": 0}),
            ("bare", {}),
        )
    ]
    return [str(row.pk) for row in made]


def test_make_converts_values_and_omits_empty_ones(keys: list[str]) -> None:
    rows = sorted(ROWS.read(primary, keys), key=lambda row: keys.index(row[0]))
    assert [row[:2] for row in rows] == [(key, "running") for key in keys]
    assert [msgspec.json.encode(one).decode() for one in ROWS.make(rows, extra=["e", "e"])] == [
        '{"name":"FULL","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":0,"tags":["x"],"extra":"e",'
        '"metadata":{"a": "上海"},"title":"t"}',
        '{"name":"BARE","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":null,"tags":[],"extra":"e"}',
    ]


def test_read_selects_wanted_fields_only(keys: list[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        rows = ROWS.read(primary, keys[:1], frozenset({"name", "extra"}))
    assert "metadata" not in queries[0]["sql"]
    assert msgspec.json.encode(ROWS.make(rows, frozenset({"name", "extra"}), extra=UNSET)) == b'[{"name":"FULL"}]'


def test_read_without_keys_sends_no_query(db: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert ROWS.read(primary, []) == []
        assert ROWS.make([]) == []
    assert not queries.captured_queries


def test_make_keeps_row_order_and_adds_other_values(keys: list[str]) -> None:
    rows = sorted(ROWS.read(primary, keys, frozenset({"name"})), key=lambda row: keys.index(row[0]), reverse=True)
    fields = frozenset({"name", "extra"})
    assert msgspec.json.encode(ROWS.make(rows, fields, extra=["1", "2"])) == (
        b'[{"name":"BARE","extra":"1"},{"name":"FULL","extra":"2"}]'
    )
    assert msgspec.json.encode(ROWS.make(rows, fields, extra=UNSET)) == b'[{"name":"BARE"},{"name":"FULL"}]'


class Pair(Resource, frozen=True):
    title: str


def test_joined_source_appends_its_columns(db: None) -> None:
    project = Project.objects.create(slug="owner")
    names = ["of 0", "of 1"]
    sessions = [str(store(project, question(content=name), external_id=name).id) for name in names]
    contents = Source(resource=Content, model=Message, table="messages_app_message AS message")
    titles = Source(
        resource=Pair,
        model=Session,
        table="messages_app_session AS session",
        columns={"title": Column(sql="session.external_id")},
        join="""LEFT JOIN LATERAL (
            SELECT * FROM messages_app_session
            WHERE id = message.session_id AND message.id >= %s AND message.id < %s
        ) AS session ON TRUE""",
    )
    made = [str(Message.objects.get(session_id=of).pk) for of in sessions]
    query = contents.query(made[1:], joined=titles)
    assert query.prepared
    pairs, rows = fetch(primary, [look_up("session_id::text", "messages_app_message", made), query])
    assert dict(pairs) == dict(zip(made, sessions, strict=True))
    assert rows == [(made[1], "of 1", sessions[1], "of 1")]


def test_months_of_covers_first_and_last_id() -> None:
    at = [str(ids.message_id(datetime(2026, month, 15, tzinfo=UTC), "user")) for month in (3, 1)]
    months = json_rows.periods_of(at)
    assert (months.lower, months.upper) == (
        ids.first_id_of_day(date(2026, 1, 1)),
        ids.first_id_of_day(date(2026, 4, 1)),
    )


class Misspelt(Resource, frozen=True):
    title: str
    weigth: int | None


def test_field_that_nothing_fills_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"\['weigth'\].*the Source of Misspelt \(table messages_app_session\)"):
        Source(resource=Misspelt, model=Session, table="messages_app_session")


def test_listed_field_that_the_resource_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Content has no fields \['title'\]"):
        Source(resource=Content, model=Message, table="messages_app_message", made=("title",))


def test_made_field_without_values_is_refused_by_name(keys: list[str]) -> None:
    with pytest.raises(TypeError, match=r"Row: \['extra'\]"):
        ROWS.make(ROWS.read(primary, keys))


class Kinds(Resource, frozen=True):
    id: str
    last_run_id: str | UnsetType
    workflow: Raw | UnsetType
    tags: list[str]
    last_run_failed: bool
    title: Annotated[str | UnsetType, Meta(description="Left out when empty.")] = UNSET


def test_columns_of_fields_follow_from_model_and_type() -> None:
    kinds = Source(resource=Kinds, model=Session, table="messages_app_session AS s")
    assert kinds.selected() == (
        's.id::text AS row_id, s.id::text AS "messages_app_session.id", '
        's.last_run_id::text AS "messages_app_session.last_run_id", s.workflow, s.tags, s.last_run_failed, s.title'
    )
    (made,) = kinds.make([("key", "key", None, None, ["a"], False, "")])
    assert msgspec.json.encode(made) == b'{"id":"key","tags":["a"],"last_run_failed":false}'


class Amount(models.Model):
    """A table that no migration makes, because it has a column of a kind that no table has yet."""

    exact = models.DecimalField(max_digits=20, decimal_places=10, null=True)

    class Meta:
        app_label = "unmigrated"
        managed = False

    def __str__(self) -> str:
        return str(self.exact)


class Amounts(Resource, frozen=True):
    exact: Raw | None


def test_decimal_column_is_answered_as_the_exact_number(db: None) -> None:
    amounts = Source(resource=Amounts, model=Amount, table=Amount._meta.db_table, partitioned=False)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE unmigrated_amount (id uuid, exact numeric(20, 10)) ON COMMIT DROP")
        cursor.execute(
            "INSERT INTO unmigrated_amount VALUES (%s, '0.1234567890'), (%s, 30), (%s, NULL)",
            [UUID(int=n) for n in range(3)],
        )
        rows = sorted(amounts.read(primary, [str(UUID(int=n)) for n in range(3)]))
    assert msgspec.json.encode(amounts.make(rows)) == b'[{"exact":0.123456789},{"exact":30},{"exact":null}]'
