"""Monthly partitions: the migration operation that makes a table partitioned, and making and dropping months.

Measured: partitioned tables take COPY as fast as plain ones, and dropping a month takes 30 ms and reads no row of it
(the file system adds 0.15 to 0.4 ms for each megabyte that it frees). Months are made by building a leaf beside the
table and attaching it: ATTACH lets readers and writers of other months go on, where CREATE TABLE .. PARTITION OF would
make everyone wait behind one slow reader. There is no DEFAULT partition: it would have to be scanned at every ATTACH.

A month is dropped table by table with DETACH .. CONCURRENTLY, which waits for the transactions that still use the
table while everybody else goes on, and only then are all its leaves dropped, in one statement because they refer to
each other. A plain DROP would make everyone wait behind one slow reader, and deadlocks with writers. The first table
(messages) goes first: rows below a message are not looked up when the message is not there. A drop that was cut off is undone if it only got to hide the first table,
and else completed (`settle_months`). Tried on 15 and 18.

The advisory lock belongs to the connection here, so a pooler between Tracesite and PostgreSQL must pool sessions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from django.db import OperationalError, connection, migrations, transaction
from django.utils.translation import gettext as _

from access_app.errors import Unavailable
from messages_app import ids

# Made and dropped under one advisory lock, so that two processes never build or drop the same leaf at once.
_ADVISORY_LOCK = 0x7472_6163  # "trac"
_POLL_SECONDS = 0.02
_LOCK_PATIENCE_SECONDS = 60

# How long one attempt waits for others, while makers of months wait for it. Beyond deadlock_timeout (1 s), after which
# PostgreSQL ends an autovacuum that is in the way. FINALIZE waits less: it may hold what a reader waits for whom it
# waits for, and then it is the drop that has to give up, not the reader.
_LOCK_TIMEOUT = "1500ms"
_FINALIZE_LOCK_TIMEOUT = "500ms"
_PAUSE_SECONDS = 1
DROP_PATIENCE_SECONDS = 300

# Up to here rows are counted, beyond it the planner's estimate is taken: counting must not take longer for a larger month.
_COUNTED_ROWS = 10_000

_Result = TypeVar("_Result")
_LeafState = Literal["attached", "detaching", "detached", "absent"]


class MonthInUse(Unavailable):
    """A transaction that was open before the month was hidden does not end. Nothing is lost: try again later."""

    default_code = "month_in_use"

    def __init__(self, month: Month) -> None:
        super().__init__(_("%(month)s is being removed, and an open transaction still reads it.") % {"month": month})


@lru_cache(maxsize=1024)
def _first_id(month: Month) -> UUID:
    return ids.first_id_of_month(month.year, month.month)


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    """A table that is partitioned by month; `parents` maps a column to the table whose leaf of the same month it points to."""

    name: str
    parents: dict[str, str]


class Month(NamedTuple):
    """A calendar month, UTC."""

    year: int
    month: int

    @classmethod
    def of(cls, instant: datetime) -> Month:
        utc = instant.astimezone(UTC)
        return cls(utc.year, utc.month)

    @property
    def first_id(self) -> UUID:
        return _first_id(self)

    @property
    def next(self) -> Month:
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    def leaf(self, table: str) -> str:
        return f"{table}_y{self.year:04}m{self.month:02}"

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


class CreatePartitionedModel(migrations.CreateModel):
    """CreateModel for a table `PARTITION BY RANGE (id)`; to the migration state it is a plain model."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        schema_editor.sql_create_table += " PARTITION BY RANGE (id)"
        try:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        finally:
            del schema_editor.sql_create_table  # the class's own statement shows through again


@dataclass(frozen=True, kw_only=True)
class DroppedLeaf:
    """One table's part of a month that was dropped."""

    table: str
    rows: int
    is_estimate: bool
    """Whether `rows` is the planner's estimate."""
    size: int
    """Bytes on disk, with indexes and TOAST."""


def months_of(table: str) -> set[Month]:
    """The months that `table` has a partition for."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT right(leaf.relname, 7) FROM pg_inherits
            JOIN pg_class leaf ON leaf.oid = inhrelid
            WHERE inhparent = %s::regclass AND NOT inhdetachpending
            """,
            [table],
        )
        return {Month(int(name[:4]), int(name[5:])) for (name,) in cursor.fetchall()}


def make_months(tables: Sequence[PartitionedTable], months: Iterable[Month]) -> list[Month]:
    """Makes the partitions that are missing for `months`, in each of `tables` (parents first); returns the months it made.

    One transaction a month, 30 ms, and nobody stalls meanwhile. Safe to call from several processes at once.
    Raises MonthInUse where the month was being dropped and somebody still reads it.
    """
    made = []
    for month in sorted(set(months)):
        if _is_interrupted(tables, month):
            _patiently(month, _LOCK_PATIENCE_SECONDS, partial(_settle, tables, month))
        with transaction.atomic(), connection.cursor() as cursor:
            _poll(cursor, "SELECT pg_try_advisory_xact_lock(%s)")
            missing = [table for table in tables if month not in months_of(table.name)]
            for table in missing:
                _make_leaf(cursor, table, month)
            if missing:
                made.append(month)
    return made


def drop_month(
    tables: Sequence[PartitionedTable],
    month: Month,
    *,
    when_hidden: Callable[[], bool] = lambda: True,
    patience: float = DROP_PATIENCE_SECONDS,
) -> list[DroppedLeaf] | None:
    """Drops the partitions of `month` in all of `tables` (parents first), whatever they hold, in constant time.

    `when_hidden` is called once new queries no longer see the rows of the first table (the leaf itself can still be
    read) and before anything is lost; if it answers False the month is brought back and None returned. It may be
    called again when an attempt has to be repeated.

    Runs outside transactions, a second apart until it succeeds: each attempt gives way after a moment, so that
    nobody waits long behind it. Raises MonthInUse after `patience` seconds, with the month hidden but not dropped;
    the next drop_month goes on from there. Returns an empty list when there is no such month.
    """
    return _patiently(month, patience, partial(_drop, tables, month, when_hidden))


def settle_months(tables: Sequence[PartitionedTable], *, patience: float = DROP_PATIENCE_SECONDS) -> None:
    """Ends the drops that were cut off: undone where only the first table was hidden, else completed.

    Raises MonthInUse like `drop_month`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT right(relname, 7) FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid "
            "WHERE relkind = 'r' AND relname ~ %s AND pg_table_is_visible(oid) AND (inhrelid IS NULL OR inhdetachpending)",
            [f"^({'|'.join(table.name for table in tables)})_y[0-9]{{4}}m[0-9]{{2}}$"],
        )
        months = sorted(Month(int(name[:4]), int(name[5:])) for (name,) in cursor.fetchall())
    for month in months:
        _patiently(month, patience, partial(_settle, tables, month))


def count_rows(cursor: Any, leaf: str) -> tuple[int, bool]:
    """How many rows a leaf has, and whether that is the planner's estimate; takes the same time whatever it holds."""
    cursor.execute(f"SELECT count(*) FROM (SELECT FROM {leaf} LIMIT {_COUNTED_ROWS + 1}) AS sample")  # noqa: S608 - a leaf's name
    (counted,) = cursor.fetchone()
    if counted <= _COUNTED_ROWS:
        return counted, False
    cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {leaf}")
    (plan,) = cursor.fetchone()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return max(counted, plan[0]["Plan"]["Plan Rows"]), True


def _make_leaf(cursor: Any, table: PartitionedTable, month: Month) -> None:
    leaf = month.leaf(table.name)
    cursor.execute(f"CREATE TABLE {leaf} (LIKE {table.name} INCLUDING ALL)")
    for column, parent in table.parents.items():
        cursor.execute(
            f"ALTER TABLE {leaf} ADD CONSTRAINT {leaf}_{column}_fk "
            f"FOREIGN KEY ({column}) REFERENCES {month.leaf(parent)} (id)"
        )
    _attach(cursor, table, month)


def _drop(
    tables: Sequence[PartitionedTable], month: Month, when_hidden: Callable[[], bool]
) -> list[DroppedLeaf] | None:
    first, *others = tables
    with connection.cursor() as cursor:
        if _leaf_state(cursor, first, month) != "absent":
            _detach(cursor, first, month)
            if not when_hidden():
                _attach(cursor, first, month)
                return None
        for table in others:
            _detach(cursor, table, month)
        present = [table for table in tables if _leaf_state(cursor, table, month) == "detached"]
        dropped = [_measure(cursor, table, month) for table in present]
        if present:
            cursor.execute(f"DROP TABLE {', '.join(month.leaf(table.name) for table in present)}")
    return dropped


def _settle(tables: Sequence[PartitionedTable], month: Month) -> None:
    first, *others = tables
    with connection.cursor() as cursor:
        if any(_leaf_state(cursor, table, month) in ("detaching", "detached") for table in others):
            _drop(tables, month, lambda: True)
        elif _leaf_state(cursor, first, month) in ("detaching", "detached"):
            _detach(cursor, first, month)
            _attach(cursor, first, month)


def _is_interrupted(tables: Sequence[PartitionedTable], month: Month) -> bool:
    with connection.cursor() as cursor:
        return any(_leaf_state(cursor, table, month) in ("detaching", "detached") for table in tables)


def _leaf_state(cursor: Any, table: PartitionedTable, month: Month) -> _LeafState:
    cursor.execute(
        "SELECT CASE WHEN inhrelid IS NULL THEN 'detached' WHEN inhdetachpending THEN 'detaching' ELSE 'attached' END "
        "FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid WHERE oid = to_regclass(%s)",
        [month.leaf(table.name)],
    )
    row = cursor.fetchone()
    return row[0] if row else "absent"


def _attach(cursor: Any, table: PartitionedTable, month: Month) -> None:
    # The bounds are computed here, from two integers: no text from outside reaches this statement. A leaf that was
    # detached has the same CHECK constraint, so nothing is scanned.
    cursor.execute(
        f"ALTER TABLE {table.name} ATTACH PARTITION {month.leaf(table.name)} "
        f"FOR VALUES FROM ('{month.first_id}') TO ('{month.next.first_id}')"
    )


def _detach(cursor: Any, table: PartitionedTable, month: Month) -> None:
    state = _leaf_state(cursor, table, month)
    if state == "attached":
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {month.leaf(table.name)} CONCURRENTLY")
    elif state == "detaching":
        _wait_at_most(cursor, _FINALIZE_LOCK_TIMEOUT)
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {month.leaf(table.name)} FINALIZE")
        _wait_at_most(cursor, _LOCK_TIMEOUT)


def _measure(cursor: Any, table: PartitionedTable, month: Month) -> DroppedLeaf:
    leaf = month.leaf(table.name)
    rows, is_estimate = count_rows(cursor, leaf)
    cursor.execute("SELECT pg_total_relation_size(%s::regclass)", [leaf])
    return DroppedLeaf(table=table.name, rows=rows, is_estimate=is_estimate, size=cursor.fetchone()[0])


# --- Locks ------------------------------------------------------------------------------------------------------------


def _patiently(month: Month, patience: float, work: Callable[[], _Result]) -> _Result:
    """Does `work` alone among those who make and drop months, again and again while others are in its way."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with _alone():
                return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
                raise
            if time.monotonic() > deadline:
                raise MonthInUse(month) from error
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def _alone() -> Iterator[None]:
    """Holds the advisory lock, and keeps waits for other locks short. Outside transactions: DETACH asks for that."""
    with connection.cursor() as cursor:
        _poll(cursor, "SELECT pg_try_advisory_lock(%s)")
        try:
            _wait_at_most(cursor, _LOCK_TIMEOUT)
            yield
        finally:
            cursor.execute("RESET lock_timeout")
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])


def _wait_at_most(cursor: Any, timeout: str) -> None:
    cursor.execute("SELECT set_config('lock_timeout', %s, false)", [timeout])


def _poll(cursor: Any, try_lock: str) -> None:
    """Takes the advisory lock by asking again and again.

    Whoever waits for it inside a statement has a snapshot, and DETACH waits for older snapshots: a deadlock.
    """
    deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
    while True:
        cursor.execute(try_lock, [_ADVISORY_LOCK])
        if cursor.fetchone() == (True,):
            return
        if time.monotonic() > deadline:
            raise Unavailable(_("Another process is making or removing partitions."))
        time.sleep(_POLL_SECONDS)
