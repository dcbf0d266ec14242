"""The datasets of an archive, one for each table: their columns as Parquet has them, and the rows of a project and period.

The columns are those of the models, by their names, so that a new column is archived without another line here. Some datasets
have columns in addition, which a reader of a single dataset would otherwise have to join: see docs/retention.md.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables and columns

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from django.contrib.postgres.fields import ArrayField
from django.db import models

from access_app.db import Database, primary
from messages_app.models import Message, Reference, Session
from messages_app.sql.batch import Query
from messages_app.sql.periods import Period
from traces_app.models import (
    AgentStep,
    Context,
    Event,
    Score,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    Tool,
    ToolCall,
    ToolResult,
)
from traces_app.queries.error_patterns import pattern_of
from traces_app.queries.usage import tokens_in_step
from tracesite_sdk.normalize.pricing import TOKENS_IN, TOKENS_OUT

FETCHED_BYTES = 2_000_000
"""Rows that are fetched at once have about so many bytes."""
_MOST_FETCHED = 2_000

_TYPES: Mapping[type[models.Field[Any, Any]], pa.DataType] = {
    models.UUIDField: pa.string(),
    models.TextField: pa.string(),
    models.CharField: pa.string(),
    models.JSONField: pa.string(),
    models.BooleanField: pa.bool_(),
    models.IntegerField: pa.int32(),
    models.BigIntegerField: pa.int64(),
    models.BigAutoField: pa.int64(),
    models.FloatField: pa.float64(),
    models.DateTimeField: pa.timestamp("us", tz="UTC"),
    models.BinaryField: pa.binary(),
}

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a dataset."""

    name: str
    type: pa.DataType
    sql: str
    """The SQL of its value, where `t` is the row."""
    stored_as: str
    """The PostgreSQL type of the column of the table."""
    is_restored: bool = True
    """Whether it is a column of the table that can be written."""


@dataclass(frozen=True)
class Dataset:
    """A table of an archive."""

    name: str
    model: type[models.Model]
    rows: str
    """FROM and WHERE of the rows of a project and period, where `t` is the row."""
    added: Mapping[str, tuple[str, pa.DataType, str]] = field(default_factory=dict)
    """Columns that the table lacks: SQL, type, and type in PostgreSQL."""
    key: str = "id"
    """The column that identifies a row."""
    computed: Callable[[], models.QuerySet[Any]] | None = None
    """The rows of the table with what is computed from a row by an expression of the statistics; `rows` has it as `computed`."""
    without: Collection[str] = ()
    """Fields that are computed of what is archived, later and anew where it is restored."""

    @cached_property
    def columns(self) -> Sequence[Column]:
        own = [_column(field) for field in self.model._meta.concrete_fields if field.name not in self.without]
        added = [
            Column(name=name, type=kind, sql=sql, stored_as=stored_as, is_restored=False)
            for name, (sql, kind, stored_as) in self.added.items()
        ]
        return [*own, *added]

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    def place_of(self, name: str) -> int:
        """Return the place of a column in a row."""
        return [column.name for column in self.columns].index(name)

    def read(self, db: Database, project_id: int, period: Period) -> Iterator[list[Row]]:
        """Yield the rows of a project and period in the order of ids, in batches of some FETCHED_BYTES.

        Call it in a transaction, because it reads with a cursor of the server.
        """
        values = ", ".join(column.sql for column in self.columns)
        # What is encrypted stays so in files.
        with db.connection.as_stored():
            made = db.connection.chunked_cursor()
        with made as cursor:
            computed = ""
            if self.computed:
                query = Query.of(db.rows_of(self.computed()))
                # The values of the statement below have names, so those of this one are written into its text.
                text = cursor.mogrify(query.sql, query.parameters).replace("%", "%%")
                computed = f"WITH computed AS ({text}) "
            cursor.execute(
                f"{computed}SELECT {values} {self.rows} ORDER BY t.{self.key}",
                {"project": project_id, "first": period.first_id, "after": period.after_id},
            )
            count = 20
            while rows := cursor.fetchmany(count):
                yield rows
                size = sum(_size(value) for row in rows for value in row)
                count = max(1, min(_MOST_FETCHED, 2 * count, count * FETCHED_BYTES // max(1, size)))


def _column(field: models.Field[Any, Any]) -> Column:
    assert field.column, "it is concrete"
    target = field
    while isinstance(target, models.ForeignKey):
        target = target.target_field
    if isinstance(target, models.GeneratedField):
        target = target.output_field or target
    sql = f't."{field.column}"'
    stored_as = (
        field.rel_db_type(primary.connection)
        if isinstance(field, models.ForeignKey)
        else field.db_type(primary.connection)
    )
    match target:
        case ArrayField():
            kind, sql = pa.list_(pa.string()), f"{sql}::text[]"
        case models.DecimalField():
            kind = pa.decimal128(target.max_digits, target.decimal_places)
        case _:
            kind = _TYPES[next(of for of in type(target).__mro__ if of in _TYPES)]
            if isinstance(target, models.UUIDField | models.JSONField):
                sql = f"{sql}::text"
    return Column(
        name=field.column,
        type=kind,
        sql=sql,
        stored_as=str(stored_as),
        # Numbers that the database gives are given anew.
        is_restored=not isinstance(field, models.GeneratedField | models.AutoField),
    )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


# --- The rows of each -------------------------------------------------------------------------------------------------

_MESSAGE = Message._meta.db_table
_SESSION = Session._meta.db_table

_IN_PERIOD = "{0}.id >= %(first)s AND {0}.id < %(after)s"
_OF_SESSION = f"LEFT JOIN {_SESSION} AS s ON s.id = m.session_id"
_BELOW = (
    f"JOIN {_MESSAGE} AS m ON m.id = t.message_id AND {_IN_PERIOD.format('m')} {_OF_SESSION} "
    f"WHERE m.project_id = %(project)s AND {_IN_PERIOD.format('t')}"
)
_SESSION_ID = ("m.session_id::text", pa.string(), "uuid")
_MESSAGE_ID = ("m.id::text", pa.string(), "uuid")
_IN_TRASH = ("m.deleted_at IS NOT NULL OR s.deleted_at IS NOT NULL", pa.bool_(), "boolean")
_BELOW_A_MESSAGE = {"session_id": _SESSION_ID, "in_trash": _IN_TRASH}

_MESSAGES_OF_PERIOD = f"SELECT {{}} FROM {_MESSAGE} AS m WHERE m.project_id = %(project)s AND {_IN_PERIOD.format('m')}"
_TRACE = "(m.metadata ->> 'trace_id')::uuid"
_HAS_TRACE = "m.metadata ->> 'trace_id' ~ '^[0-9a-f]{32}$'"

DIGEST_OF_SESSION = (
    "md5(row(t.external_id, t.title, t.description, t.end_user, t.said_status, t.current_phase, t.workflow, t.tags, "
    "t.metadata, t.redactions, t.pinned_at, t.deleted_at, t.deleted_by, t.last_event)::text "
    "|| coalesce((SELECT row(sums.session_id, sums.generation, sums.size, sums.left_out, sums.fork)::text "
    f"FROM {SnapshotSums._meta.db_table} AS sums WHERE sums.session_id = t.id), ''))"
)
"""The digest of what a sender or a person sets, snapshots too: all but its counters and the times that change with them."""

SESSIONS = Dataset(
    "sessions",
    Session,
    # Those with messages in the period, and those that began in it and have none.
    f"FROM {_SESSION} AS t WHERE t.project_id = %(project)s AND (t.id IN ({_MESSAGES_OF_PERIOD.format('m.session_id')}) "
    f"OR ({_IN_PERIOD.format('t')} AND NOT EXISTS (SELECT 1 FROM {_MESSAGE} AS m WHERE m.session_id = t.id)))",
    {
        "in_trash": ("t.deleted_at IS NOT NULL", pa.bool_(), "boolean"),
        "digest": (DIGEST_OF_SESSION, pa.string(), "text"),
    },
)
MESSAGES = Dataset(
    "messages",
    Message,
    f"FROM {_MESSAGE} AS t LEFT JOIN {_SESSION} AS s ON s.id = t.session_id "
    f"WHERE t.project_id = %(project)s AND {_IN_PERIOD.format('t')}",
    {"in_trash": ("t.deleted_at IS NOT NULL OR s.deleted_at IS NOT NULL", pa.bool_(), "boolean")},
    without={"decided_by"},
)
REFERENCES = Dataset("references", Reference, f"FROM {Reference._meta.db_table} AS t {_BELOW}", _BELOW_A_MESSAGE)


def _steps() -> models.QuerySet[AgentStep]:
    return AgentStep.with_deleted.annotate(
        input_tokens=tokens_in_step(TOKENS_IN), output_tokens=tokens_in_step(TOKENS_OUT)
    )


STEPS = Dataset(
    "steps",
    AgentStep,
    f"FROM computed AS t {_BELOW}",
    {
        "input_tokens": ("t.input_tokens", pa.int64(), "bigint"),
        "output_tokens": ("t.output_tokens", pa.int64(), "bigint"),
        **_BELOW_A_MESSAGE,
    },
    computed=_steps,
)
CALLS = Dataset(
    "calls",
    ToolCall,
    f"FROM {ToolCall._meta.db_table} AS t JOIN {Tool._meta.db_table} AS tool ON tool.id = t.tool_id {_BELOW}",
    {"tool": ("tool.name", pa.string(), "text"), **_BELOW_A_MESSAGE},
)


def _results() -> models.QuerySet[ToolResult]:
    return ToolResult.objects.annotate(error_pattern=pattern_of("error"))


RESULTS = Dataset(
    "results",
    ToolResult,
    "FROM computed AS t "
    f"JOIN {ToolCall._meta.db_table} AS c ON c.id = t.id AND {_IN_PERIOD.format('c')} "
    f"JOIN {_MESSAGE} AS m ON m.id = c.message_id AND {_IN_PERIOD.format('m')} {_OF_SESSION} "
    f"WHERE m.project_id = %(project)s AND {_IN_PERIOD.format('t')}",
    {"error_pattern": ("t.error_pattern", pa.string(), "text"), "message_id": _MESSAGE_ID, **_BELOW_A_MESSAGE},
    computed=_results,
)
EVENTS = Dataset("events", Event, f"FROM {Event._meta.db_table} AS t {_BELOW}", {"in_trash": _IN_TRASH})
CONTEXTS = Dataset(
    "contexts",
    Context,
    f"FROM {Context._meta.db_table} AS t JOIN {_SESSION} AS s ON s.id = t.session_id "
    f"LEFT JOIN {_MESSAGE} AS m ON m.id = t.message_id AND {_IN_PERIOD.format('m')} "
    f"WHERE s.project_id = %(project)s AND {_IN_PERIOD.format('t')}",
    {"in_trash": _IN_TRASH},
)
SPANS = Dataset(
    "spans",
    Span,
    # Those of the period, and those of other periods whose trace has a message in it, because they go with that message.
    f"FROM (SELECT * FROM {Span._meta.db_table} AS t WHERE t.project_id = %(project)s AND {_IN_PERIOD.format('t')} "
    f"UNION ALL SELECT * FROM {Span._meta.db_table} AS t WHERE t.project_id = %(project)s "
    f"AND NOT ({_IN_PERIOD.format('t')}) AND t.trace_id IN ({_MESSAGES_OF_PERIOD.format(_TRACE)} AND {_HAS_TRACE})) AS t",
)
SCORES = Dataset(
    "scores",
    Score,
    # Those of messages of the period; of sessions as a whole, if the session is in it; and those that wait for their trace.
    f"FROM {Score._meta.db_table} AS t WHERE t.project_id = %(project)s AND ("
    "(t.message_id >= %(first)s AND t.message_id < %(after)s) "
    f"OR (t.message_id IS NULL AND t.session_id IN (SELECT t.id {SESSIONS.rows})) "
    f"OR (t.session_id IS NULL AND {_IN_PERIOD.format('t')}))",
)
TOOLS = Dataset(
    "tools",
    Tool,
    f"FROM {Tool._meta.db_table} AS t WHERE t.project_id = %(project)s AND t.id IN ("
    f"SELECT c.tool_id FROM {ToolCall._meta.db_table} AS c WHERE c.project_id = %(project)s AND {_IN_PERIOD.format('c')})",
)

_OF_SESSIONS = f"WHERE t.session_id IN (SELECT t.id {SESSIONS.rows})"
SNAPSHOTS = Dataset("snapshots", Snapshot, f"FROM {Snapshot._meta.db_table} AS t {_OF_SESSIONS}")
SNAPSHOT_PARTS = Dataset("snapshot_parts", SnapshotPart, f"FROM {SnapshotPart._meta.db_table} AS t {_OF_SESSIONS}")
SNAPSHOT_SUMS = Dataset(
    "snapshot_sums", SnapshotSums, f"FROM {SnapshotSums._meta.db_table} AS t {_OF_SESSIONS}", key="session_id"
)

DATASETS = (
    SESSIONS,
    MESSAGES,
    REFERENCES,
    STEPS,
    TOOLS,
    CALLS,
    RESULTS,
    EVENTS,
    CONTEXTS,
    SPANS,
    SCORES,
    SNAPSHOTS,
    SNAPSHOT_PARTS,
    SNAPSHOT_SUMS,
)
"""Parents before their children."""
WITH_SESSION = (SNAPSHOTS, SNAPSHOT_PARTS, SNAPSHOT_SUMS)
"""Those that go with their session as a whole."""
BY_NAME = {dataset.name: dataset for dataset in DATASETS}
