"""Ids: they carry their time exactly, sort in reading order, and the ids of rows below a message are derived."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.db import connection
from hypothesis import given

from messages_app.sql.periods import Period
from sdk.tests.records.instants import instants
from tracesite_sdk.records import ids


@given(instants)
def test_month_bounds_contain_ids_of_the_month(instant: datetime) -> None:
    month = Period.of(instant)
    assert month.first_id <= ids.message_id(instant, "user") < month.after_id
    assert Period.month(2026, 12).end == Period.month(2027, 1).begin


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["", "weather", "1:2", "线程 😀 é", "back\\slash ' quote %s"])
def test_key_in_sql_equals_key(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {ids.key_in_sql('kind', 'n', 'name')} FROM (VALUES ('kind', 17, %s)) AS v (kind, n, name)", [name])  # fmt: skip
        assert cursor.fetchone() == (ids.key("kind", 17, name),)
