"""Tables derived from the models: columns, types, conversions and merge rules."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection, models
from msgspec import inspect

from traces_app.ingest.tables import CALLS, MESSAGES, REFERENCES, RESULTS, SESSIONS, STEPS, Table
from traces_app.models import ToolCall
from traces_app.queries.schemas import calls
from traces_app.queries.schemas import messages as message_schemas
from tracesite_sdk import records
from tracesite_sdk.records import NotSearched

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


@pytest.mark.parametrize(
    ("record", "answered"),
    [
        (records.Message, message_schemas.Message),
        (records.AgentStep, message_schemas.AgentStep),
        (records.ToolCall, calls.ToolCall),
        (records.ToolCall, calls.Call),
        (records.ToolResult, calls.ToolResult),
    ],
)
def test_every_stored_field_is_answered(record: Any, answered: Any) -> None:
    assert set(record.__struct_fields__) - set(answered.__struct_fields__) == set(), f"Add these fields to {answered}."


def test_row_without_a_computed_column_is_refused() -> None:
    with pytest.raises(KeyError, match="message_id"):
        STEPS.row(records.AgentStep(), id="1", project_id="1", iteration="0", ordinal="0")


def test_table_with_an_unfilled_column_is_refused() -> None:
    with pytest.raises(TypeError, match="project_id"):
        Table(ToolCall, records.ToolCall, computed=("id", "message_id", "step_id", "tool_id"))


class Weighed(models.Model):
    """A table that no migration makes, because it has columns of a kind that no table has yet."""

    id = models.UUIDField(primary_key=True)
    weight = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    total = models.DecimalField(max_digits=20, decimal_places=10, default=0)

    class Meta:
        app_label = "unmigrated"
        managed = False

    def __str__(self) -> str:
        return str(self.weight)


class WeighedRecord(records.Record, frozen=True, kw_only=True):
    weight: records.Amount | None = None
    total: records.Amount | None = None
    exact: NotSearched[Decimal | None] = None


def test_table_that_loses_a_field_is_refused() -> None:
    Table(Weighed, WeighedRecord, computed=("id",), read_elsewhere=("exact",))
    with pytest.raises(TypeError, match=r"\['exact'\] of records.WeighedRecord.*tables.py"):
        Table(Weighed, WeighedRecord, computed=("id",))
    with pytest.raises(TypeError, match=r"has no fields \['exatc'\]"):
        Table(Weighed, WeighedRecord, computed=("id",), read_elsewhere=("exact", "exatc"))


@pytest.mark.django_db
def test_decimal_columns_keep_the_digits_that_were_sent() -> None:
    table = Table(Weighed, WeighedRecord, computed=("id",), read_elsewhere=("exact",))
    sent = [b'{"weight": 0.1, "total": 1e-10}', b'{"weight": -9999999999.5, "total": 12}', b"{}"]
    decoded = [msgspec.json.decode(one, type=WeighedRecord) for one in sent]
    decoded += [WeighedRecord(weight=value, total=value) for value in (nan, inf)]
    rows = [table.row(one, id=UUID(int=at).hex) for at, one in enumerate(decoded)]
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE unmigrated_weighed (id uuid PRIMARY KEY, weight numeric(20, 10), total numeric(20, 10)) "
            "ON COMMIT DROP"
        )
        cursor.execute(table.insert, list(map(list, zip(*rows, strict=True))))
        cursor.execute("SELECT trim_scale(weight)::text, trim_scale(total)::text FROM unmigrated_weighed ORDER BY id")
        assert cursor.fetchall() == [
            ("0.1", "0.0000000001"), ("-9999999999.5", "12"), (None, "0"), (None, "0"), (None, "0"),
        ]  # fmt: skip


@pytest.mark.parametrize("value", ["10000000000", "-1e10", "1e400", "NaN", '"NaN"', "Infinity", '"1.5"'])
def test_amount_that_no_column_holds_is_refused_by_path(value: str) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError), match=r"\$.weight|malformed"):
        msgspec.json.decode(f'{{"weight": {value}}}', type=WeighedRecord)


LIMITS = {
    models.BigIntegerField: (-(2**63), 2**63 - 1),
    models.IntegerField: (-(2**31), 2**31 - 1),
    models.SmallIntegerField: (-(2**15), 2**15 - 1),
}


def unfit(table: Table) -> list[str]:
    """Return the numeric fields of a table's record whose values may not fit the columns that they fill."""
    assert table.record is not None
    fields = {field.name: field.type for field in inspect.type_info(table.record).fields}  # type: ignore[attr-defined]
    found = []
    for column, name in table.filled.items():
        kind: Any = table.fields[column]
        if isinstance(kind, models.DecimalField):
            most = 10 ** (kind.max_digits - kind.decimal_places) - 1
            limits = -most, most
        elif type(kind) in LIMITS:
            limits = LIMITS[type(kind)]
        else:
            continue
        if not all(is_within(one, *limits) for one in kinds_of(fields[name])):
            found.append(f"{name}: use Count, Int32, Int64, Milliseconds or Amount of schema/records.py")
    return found


def kinds_of(type_: Any) -> list[Any]:
    types = type_.types if isinstance(type_, inspect.UnionType) else [type_]
    return [one for one in types if not isinstance(one, inspect.NoneType)]


def is_within(kind: Any, least: int, most: int) -> bool:
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return False
    lower = kind.ge if kind.ge is not None else kind.gt + 1 if kind.gt is not None else None
    upper = kind.le if kind.le is not None else kind.lt - 1 if kind.lt is not None else None
    return lower is not None and upper is not None and least <= lower and upper <= most


@pytest.mark.parametrize("table", (*TABLES, MESSAGES), ids=lambda table: table.name)
def test_numbers_fit_the_columns_that_they_fill(table: Table) -> None:
    assert unfit(table) == []


def test_numbers_without_fitting_limits_are_found() -> None:
    class Unlimited(records.Record, frozen=True, kw_only=True):
        weight: Decimal | None = None
        total: float | None = None

    assert [one.partition(":")[0] for one in unfit(Table(Weighed, Unlimited, computed=("id",)))] == ["weight", "total"]
    assert unfit(Table(Weighed, WeighedRecord, computed=("id",), read_elsewhere=("exact",))) == []


@pytest.mark.django_db
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_insert_without_rows_is_a_valid_statement(table: Table) -> None:
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
