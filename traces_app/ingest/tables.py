"""Tables as ingest writes them. Columns, types, conversions and merge rules are derived from the models.

A column that has the name of a field of the record is filled from it; every other column has to be listed as `computed`
(passed by the code that builds the row) or `renamed`, otherwise this fails at import. So does a field of a record that fills
no column, unless it is listed as `read_elsewhere`. So a column that is added to a model and to its record is stored without
another line here.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from math import isfinite
from typing import Any
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models

from access_app.db import primary
from access_app.encryption.columns import ENCRYPTED, Column
from access_app.encryption.envelope import DataKey, row_bytes
from messages_app.models import Change, Message, MessageKey, Reference, Session
from messages_app.writes import COUNTERS
from traces_app.models import AgentStep, Context, Event, Span, ToolCall, ToolResult
from tracesite_sdk import records
from tracesite_sdk.records import pg_text

Row = Any
"""A named tuple of the columns of its table. Each value is text that PostgreSQL parses, or None."""

KEEP = "{old}"
"""Merge rule of a column that never changes. Rules are SQL: {old} is the stored value and {new} the one that arrives."""


class Table:
    """A table, its columns in the order of the model, and how a record becomes one of its rows."""

    def __init__(
        self,
        model: type[models.Model],
        record: type[records.Record] | None = None,
        *,
        computed: Collection[str] | None = None,
        renamed: Mapping[str, str] | None = None,
        without: Collection[str] = (),
        read_elsewhere: Collection[str] = (),
        merges: Mapping[str, str] | None = None,
        owner: str = "message_id",
    ) -> None:
        """`computed` columns (default: all) are passed to `row`; `renamed` maps columns to fields of the record that have
        another name; `without` are columns that the database fills; `read_elsewhere` are fields of the record that other code
        stores. `owner` is the column that must match for an upsert."""
        stored = {column: field for column, field in fields_of(model).items() if column not in without}
        self._computed = [column for column in stored if computed is None or column in computed]
        sources = {column: (renamed or {}).get(column, column) for column in stored if column not in self._computed}
        known = record.__struct_fields__ if record else ()
        if unfilled := [column for column, source in sources.items() if source not in known]:
            raise TypeError(
                f"No field of {record} fills the columns {unfilled} of {model.__name__}. List them in `computed` or `renamed` "
                "of its Table in traces_app/ingest/tables.py, or add the fields."
            )
        self.filled = {column: source for column in stored if (source := (renamed or {}).get(column, column)) in known}
        """The fields of the record by the columns that they fill, or that are computed from them."""
        if lost := sorted(set(known).difference(self.filled.values(), read_elsewhere)):
            raise TypeError(
                f"Nothing stores the fields {lost} of records.{getattr(record, '__name__', '')}. Add columns of these names to "
                f"{model.__name__}, or list the fields in `renamed` or `read_elsewhere` of its Table in "
                "traces_app/ingest/tables.py."
            )
        if unknown := sorted(set(read_elsewhere).difference(known)):
            raise TypeError(
                f"{record} has no fields {unknown}, which `read_elsewhere` lists in traces_app/ingest/tables.py."
            )
        self.model, self.record = model, record
        self.name = model._meta.db_table
        self.fields = {column: stored[column] for column in (*self._computed, *sources)}
        self.columns = ", ".join(self.fields)
        self.owner = owner
        # Derived from the model at run time, which a class statement cannot express.
        self.Row: Callable[..., Row] = namedtuple(model.__name__, list(self.fields))  # type: ignore[misc]
        self._make: Callable[[list[str | None]], Row] = self.Row._make  # type: ignore[attr-defined]
        self._conversions = [(source, _conversion(stored[column])) for column, source in sources.items()]
        self.merges = {column: _merge_of(stored[column]) for column in sources} | dict(merges or {})

    def row(self, record: records.Record, **computed: str | None) -> Row:
        """Return the row of a record, given the values of the `computed` columns."""
        values = [computed[column] for column in self._computed]
        values += [convert(getattr(record, source)) for source, convert in self._conversions]
        return self._make(values)

    def encrypted(self, rows: list[Row], key: DataKey | None) -> list[Row]:
        """Return rows as they are stored in a project with this data key; the same rows without a key."""
        if key is None or not self._encrypted:
            return rows
        stored = []
        for row in rows:
            values, row_id = list(row), row_bytes(row.id)
            for index, column in self._encrypted:
                if (value := values[index]) is not None:
                    values[index] = key.sealed(column, row_id, value)
            stored.append(self._make(values))
        return stored

    def encrypted_value(self, name: str, row_id: UUID, value: str, key: DataKey | None) -> str:
        """Return the text of one column as it is stored in a project with this data key."""
        column = ENCRYPTED.get(self.name, {}).get(name)
        return value if key is None or column is None else key.sealed(column, row_id.bytes, value)

    @cached_property
    def _encrypted(self) -> list[tuple[int, Column]]:
        columns = ENCRYPTED.get(self.name, {})
        return [(index, columns[name]) for index, name in enumerate(self.fields) if name in columns]

    @cached_property
    def insert(self) -> str:
        """An INSERT of any number of rows, with one array of texts for each column as its parameters."""
        # An array of JSON or array texts as text[] needs no quoting inside.
        values = ", ".join(f"{column}::{type_of(field)}" for column, field in self.fields.items())
        arrays = ", ".join("%s::text[]" for _column in self.fields)
        return f"INSERT INTO {self.name} ({self.columns}) SELECT {values} FROM unnest({arrays}) AS new ({self.columns})"  # noqa: S608 - names of the model

    @cached_property
    def upsert(self) -> str:
        """An `insert` that merges rows that exist, and returns the owners of those that changed.

        A row of another owner is never touched, and a row that would stay the same is not written.
        """
        merged = {
            column: rule.format(new=f"EXCLUDED.{column}", old=f"{self.name}.{column}")
            for column, rule in self.merges.items()
            if rule != KEEP
        }
        return (
            f"{self.insert} "
            f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{column} = {value}' for column, value in merged.items())} "
            f"WHERE {self.name}.{self.owner} = EXCLUDED.{self.owner} "
            f"AND ({', '.join(f'{self.name}.{column}' for column in merged)}) IS DISTINCT FROM ({', '.join(merged.values())}) "
            f"RETURNING {self.name}.{self.owner}"
        )

    @cached_property
    def overwrite(self) -> str:
        """An `insert` that replaces rows that exist. What is not of their record stays: that they are deleted, and by whom."""
        changes = {column: f"EXCLUDED.{column}" for column in self.fields if column not in ("id", "deleted_by")}
        if "version" in changes:
            changes["version"] = f"{self.name}.version + 1"
        return (
            f"{self.insert} "
            f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{column} = {value}' for column, value in changes.items())}"
        )


def fields_of(model: type[models.Model]) -> dict[str, models.Field[Any, Any]]:
    """The fields that are stored and can be written, by column."""
    return {
        field.column: field
        for field in model._meta.get_fields()
        if isinstance(field, models.Field) and field.column and not isinstance(field, models.GeneratedField)
    }


def type_of(field: models.Field[Any, Any]) -> str:
    """The PostgreSQL type of a column, for casts. Text for varchar(n), because a cast to that truncates silently."""
    return "text" if isinstance(field, models.CharField) else field.db_type(primary.connection) or ""


def _conversion(field: models.Field[Any, Any]) -> Callable[[Any], str | None]:
    """Return the function that makes the text of this column of a record's value. None becomes the column's empty value, else NULL."""
    match field:
        case models.JSONField(null=True):
            return pg_text.json_or_null
        case models.JSONField():
            empty = pg_text.json(field.get_default())
            return lambda value: pg_text.json(value) if value else empty
        case models.TextField() | models.CharField():
            return pg_text.text_or_null if field.null else pg_text.text
        case models.DateTimeField():
            return pg_text.timestamp
        case models.BooleanField():
            return pg_text.boolean
        case models.DecimalField():
            return _decimal_or_null if field.null else lambda value: _decimal_or_null(value) or "0"
        case ArrayField():
            return lambda value: pg_text.array(map(pg_text.text, value or ()))
        case _:
            return pg_text.number if field.null else lambda value: str(value or 0)


def _decimal_or_null(value: float | None) -> str | None:
    """The shortest text of a number: of a float, the digits that its sender wrote.

    Decoding refuses NaN and infinity, but the code of importers may compute them; JSON answers cannot hold them.
    """
    return None if value is None or (isinstance(value, float) and not isfinite(value)) else str(value)


def _merge_of(field: models.Field[Any, Any]) -> str:
    """The merge rule of a kind of column: an empty value overwrites nothing, objects are merged by key."""
    match field:
        case models.JSONField(null=False, default=default) if default is dict:
            return "{old} || {new}"
        case models.JSONField(null=False):
            return "CASE WHEN {new} = '[]' THEN {old} ELSE {new} END"
        case models.TextField(null=False):
            return "COALESCE(NULLIF({new}, ''), {old})"
        case _:
            return "COALESCE({new}, {old})"


# Columns that the database fills: NULL, its default, or computed.
SESSIONS = Table(
    Session,
    records.Session,
    without=("import_digests", "last_event", "pinned_at", "deleted_at"),
    computed=(
        *("id", "project_id", "external_id", "said_status", "redactions", "created_at", "updated_at", "deleted_by"),
        *(*COUNTERS, "last_run_id", "last_run_failed", "last_interruption", "is_abandoned", "active_at"),
    ),
    read_elsewhere=("status", "messages", "contexts", "scores"),
)
KEYS = Table(MessageKey, without=("purged_at",))
MESSAGES = Table(
    Message,
    records.Message,
    without=("decided_by", "deleted_at"),
    computed=(
        *("id", "project_id", "session_id", "content", "health", "redactions", "step_count", "call_count"),
        *("failure_count", "model_error_count", "input_tokens", "output_tokens", "duration_ms", "version"),
        *("cost", "unpriced_count"),
        *("updated_at", "completed_at", "deleted_by"),
    ),
    read_elsewhere=("knowledge_references", "agent_steps", "duration"),
)
REFERENCES = Table(
    Reference,
    records.Reference,
    computed=("id", "project_id", "message_id", "position"),
    renamed={"reference_id": "id"},
)
STEPS = Table(
    AgentStep,
    records.AgentStep,
    computed=("id", "project_id", "message_id", "iteration", "ordinal", "input_ref", "said_cost", "cost"),
    renamed={
        "reasoning": "reasoning_content",
        "duration_ms": "duration",
        "time_to_first_token_ms": "time_to_first_token",
    },
    read_elsewhere=("tool_calls", "input", "cost_is_explicit"),
    merges={
        "input_ref": "COALESCE(NULLIF({new}, ''), {old})",
        "said_cost": "COALESCE({new}, {old})",
        # A step that is sent again keeps its cost, whatever the prices are now. Of one with other tokens or another model the
        # cost is that of the record if it has both; otherwise store.py computes it of the merged row.
        "cost": "CASE WHEN COALESCE(EXCLUDED.said_cost, traces_app_agentstep.said_cost) IS NOT NULL "
        "THEN COALESCE(EXCLUDED.said_cost, traces_app_agentstep.said_cost) "
        "WHEN EXCLUDED.model <> '' AND EXCLUDED.usage IS NOT NULL AND (EXCLUDED.model, EXCLUDED.usage) "
        "IS DISTINCT FROM (traces_app_agentstep.model, traces_app_agentstep.usage) THEN {new} ELSE {old} END",
    },
)
CALLS = Table(
    ToolCall,
    records.ToolCall,
    computed=("id", "project_id", "message_id", "step_id", "tool_id", "parent_id", "call_id", "position"),
    renamed={"duration_ms": "duration"},
    read_elsewhere=("uuid", "name", "result", "parent"),
    merges={
        "parent_id": "COALESCE({new}, {old})",
        # A generated id does not replace one that the model gave.
        "call_id": "CASE WHEN {new} = 'call_' || right(EXCLUDED.id::text, 12) THEN {old} ELSE {new} END",
        "args": "CASE WHEN {new} = '{{}}' THEN {old} ELSE {new} END",
        "status": "CASE WHEN {new} = 'pending' THEN {old} ELSE {new} END",
    },
)
RESULTS = Table(
    ToolResult, records.ToolResult, computed=("id", "project_id"), read_elsewhere=("status", "success"), owner="id"
)
EVENTS = Table(Event)
CONTEXTS = Table(Context)
SPANS = Table(Span)
CHANGES = Table(Change, without=("position", "transaction", "at"))
