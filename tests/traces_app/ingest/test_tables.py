"""Tables derived from the models: columns, types, conversions and merge rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from traces_app.ingest.tables import CALLS, REFERENCES, RESULTS, SESSIONS, STEPS, Table
from traces_app.models import ToolCall
from traces_app.schema import records

TABLES = (SESSIONS, REFERENCES, STEPS, CALLS, RESULTS)


def test_row_of_call_takes_columns_from_record_and_caller() -> None:
    call = records.ToolCall(
        name="weather",
        args={"city": "Oslo"},
        reflection="Ok.\x00",
        status="error",
        duration=20,
        started_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    )
    own = {column: column for column in ("id", "project_id", "message_id", "step_id", "tool_id", "call_id", "position")}
    row = CALLS.row(call, parent_id=None, **own)
    assert row._asdict() == own | {
        "parent_id": None,
        "args": '{"city":"Oslo"}',
        "reflection": "Ok.\\u0000",
        "status": "error",
        "started_at": "2026-03-01T12:00:00Z",
        "completed_at": None,
        "duration_ms": "20",
        "metadata": "{}",
    }


def test_row_without_a_computed_column_is_refused() -> None:
    with pytest.raises(KeyError, match="message_id"):
        STEPS.row(records.AgentStep(), id="1", iteration="0", ordinal="0")


def test_table_with_an_unfilled_column_is_refused() -> None:
    with pytest.raises(TypeError, match="project_id"):
        Table(ToolCall, records.ToolCall, computed=("id", "message_id", "step_id", "tool_id"))


@pytest.mark.django_db
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_insert_without_rows_is_a_valid_statement(table: Table) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(table.insert, [[] for _column in table.fields])
        assert cursor.rowcount == 0


@pytest.mark.parametrize(
    ("table", "column", "rule"),
    [
        (CALLS, "reflection", "COALESCE(NULLIF({new}, ''), {old})"),
        (CALLS, "duration_ms", "COALESCE({new}, {old})"),
        (CALLS, "metadata", "{old} || {new}"),
        (RESULTS, "attachments", "CASE WHEN {new} = '[]' THEN {old} ELSE {new} END"),
        (RESULTS, "raw", "COALESCE({new}, {old})"),
    ],
)
def test_merge_rule_follows_from_the_kind_of_column(table: Table, column: str, rule: str) -> None:
    assert table.merges[column] == rule


def test_ids_and_places_never_merge() -> None:
    assert {"id", "message_id", "step_id", "tool_id", "project_id", "position"}.isdisjoint(CALLS.merges)
