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
from messages_app import columns, ids
from messages_app.columns import Column, Source
from messages_app.models import Session
from messages_app.resources import Resource

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


ROWS = Source(
    resource=Row,
    table="messages_app_session",
    partitioned=False,
    beside=("status",),
    columns={
        "name": Column(sql="external_id", convert=str.upper),
        "at": columns.instant("created_at"),
        "gone": columns.instant("deleted_at"),
        "workflow": columns.json("workflow"),
        "tags": columns.json("to_jsonb(tags)"),
        "metadata": columns.json_if_any("metadata"),
        "title": columns.text_if_any("title"),
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
    make = ROWS.maker()
    rows = {values.pop(0): (values.pop(0), values) for values in map(list, ROWS.read(keys))}
    assert [rows[key][0] for key in keys] == ["running", "running"]
    assert [msgspec.json.encode(make(rows[key][1], extra="e")).decode() for key in keys] == [
        '{"name":"FULL","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":0,"tags":["x"],"extra":"e",'
        '"metadata":{"a": "上海"},"title":"t"}',
        '{"name":"BARE","at":"2026-03-01T12:00:00.000005Z","gone":null,"workflow":null,"tags":[],"extra":"e"}',
    ]


def test_only_the_fields_that_are_wanted_are_read(keys: list[str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        rows = [values for _key, _status, *values in ROWS.read(keys[:1], {"name", "extra"})]
    assert "metadata" not in queries[0]["sql"]
    assert msgspec.json.encode(ROWS.maker({"name", "extra"})(rows[0])) == b'{"name":"FULL"}'


def test_no_keys_are_no_query(db: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert ROWS.read([]) == []
        assert columns.look_up("error", "messages_app_message", []) == {}
    assert not queries.captured_queries


def test_months_are_those_of_the_ids() -> None:
    at = [str(ids.message_id(datetime(2026, month, 15, tzinfo=UTC), "user")) for month in (3, 1)]
    months = columns.months_of(at)
    assert (months.lower, months.upper) == (ids.first_id_of_month(2026, 1), ids.first_id_of_month(2026, 4))
