"""From columns to resources: what is read, what is left out, and how values become JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import UNSET, Raw, UnsetType

from access_app.models import Project
from messages_app import ids
from messages_app.http.schemas import Resource
from messages_app.models import Message, Session
from messages_app.sql import json_rows
from messages_app.sql.batch import fetch
from messages_app.sql.json_rows import Column, Source, Through, look_up
from tests.traces_app.conftest import question, store

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
    table="messages_app_session",
    partitioned=False,
    beside=("status",),
    columns={
        "name": Column(sql="external_id", convert=lambda names: [name.upper() for name in names]),
        "at": json_rows.instant("created_at"),
        "gone": json_rows.instant("deleted_at"),
        "workflow": json_rows.json("workflow"),
        "tags": json_rows.json("to_jsonb(tags)"),
        "metadata": json_rows.json_if_any("metadata"),
        "title": json_rows.text_if_any("title"),
    },
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


def test_values_become_json_and_empty_ones_are_left_out(keys: list[str]) -> None:
    rows = sorted(ROWS.read(keys), key=lambda row: keys.index(row[0]))
    assert [row[:2] for row in rows] == [(key, "running") for key in keys]
    assert [msgspec.json.encode(one).decode() for one in ROWS.make(rows, extra=["e", "e"])] == [
        '{"name":"FULL","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":0,"tags":["x"],"extra":"e",'
        '"metadata":{"a": "上海"},"title":"t"}',
        '{"name":"BARE","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":null,"tags":[],"extra":"e"}',
    ]


def test_only_the_fields_that_are_wanted_are_read(keys: list[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        rows = ROWS.read(keys[:1], frozenset({"name", "extra"}))
    assert "metadata" not in queries[0]["sql"]
    assert msgspec.json.encode(ROWS.make(rows, frozenset({"name", "extra"}))) == b'[{"name":"FULL"}]'


def test_no_keys_are_no_query(db: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert ROWS.read([]) == []
        assert ROWS.make([]) == []
    assert not queries.captured_queries


def test_resources_are_in_the_order_of_their_rows_with_what_is_said_beside_them(keys: list[str]) -> None:
    rows = sorted(ROWS.read(keys, frozenset({"name"})), key=lambda row: keys.index(row[0]), reverse=True)
    fields = frozenset({"name", "extra"})
    assert msgspec.json.encode(ROWS.make(rows, fields, extra=["1", "2"])) == (
        b'[{"name":"BARE","extra":"1"},{"name":"FULL","extra":"2"}]'
    )
    assert msgspec.json.encode(ROWS.make(rows, fields, extra=UNSET)) == b'[{"name":"BARE"},{"name":"FULL"}]'


def test_rows_are_found_through_the_table_that_leads_to_them(db: None) -> None:
    project = Project.objects.create(slug="owner")
    names = ["of 0", "of 1"]
    sessions = [str(store(project, question(content=name), external_id=name).id) for name in names]
    contents = Source(
        resource=Content,
        table="messages_app_message",
        columns={"content": Column(sql="content")},
        through=Through(table="messages_app_message", key="id", gives="id"),
    )
    made = [str(Message.objects.get(session_id=of).pk) for of in sessions]
    with CaptureQueriesContext(connection) as queries:
        assert [(row[0], row[1]) for row in contents.read(made[1:])] == [(made[1], "of 1")]
    assert len(queries) == 1
    pairs, rows = fetch([look_up("session_id::text", "messages_app_message", made), contents.query(made[:1])])
    assert dict(pairs) == dict(zip(made, sessions, strict=True))
    assert [one.content for one in contents.make(rows)] == ["of 0"]


def test_months_are_those_of_the_ids() -> None:
    at = [str(ids.message_id(datetime(2026, month, 15, tzinfo=UTC), "user")) for month in (3, 1)]
    months = json_rows.months_of(at)
    assert (months.lower, months.upper) == (ids.first_id_of_month(2026, 1), ids.first_id_of_month(2026, 4))
