"""Partitions by period: the migration operation for a partitioned table, and the creation and removal of periods.

New periods have the length of the setting; existing ones keep theirs, and a new one that would overlap them is made of shorter
parts (messages_app/sql/periods.py).

Measured: COPY into partitioned tables is as fast as into plain ones, and the drop of a month takes 30 ms and reads none of
its rows (the file system adds 0.15 to 0.4 ms for each megabyte that it frees). A period is created as separate leaves, which
are then attached: ATTACH does not block readers and writers of other periods, while with CREATE TABLE .. PARTITION OF all of
them would wait behind one slow reader. A DEFAULT partition does not exist, because every ATTACH would scan it.

A period is dropped table by table with DETACH .. CONCURRENTLY, which waits for the transactions that use the table without
blocking others. Then all leaves are dropped in one statement, because they refer to each other. With a plain DROP all would
wait behind one slow reader, and it deadlocks with writers. The first table (messages) is detached first, because rows below
a message are not looked up without the message. An interrupted drop is undone if only the first table was hidden, otherwise
completed (`settle_periods`). Tested with PostgreSQL 15 and 18.

The advisory lock belongs to a session of PostgreSQL, so it is taken past a pooler (access_app/db/direct.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from django.db import migrations
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.db.conflicts import LocksHeld, retry_locked
from access_app.db.direct import session_cursor
from access_app.errors import Unavailable

from .periods import LEAF_PATTERN, Length, Period, parts_beside

# Periods are created and dropped under one advisory lock, so that two processes never create or drop the same leaf at once.
_ADVISORY_LOCK = 0x7472_6163  # "trac"
_POLL_SECONDS = 0.02
_LOCK_PATIENCE_SECONDS = 60

# Limit of one attempt, because the creation of periods waits for it. Longer than deadlock_timeout (1 s), after which
# PostgreSQL cancels a blocking autovacuum. FINALIZE waits less: in a deadlock with a reader the drop must give up, not the
# reader.
_LOCK_TIMEOUT = "1500ms"
_FINALIZE_LOCK_TIMEOUT = "500ms"
_PAUSE_SECONDS = 1
DROP_PATIENCE_SECONDS = 300

# More rows are estimated by the planner, so that counting takes constant time.
_COUNTED_ROWS = 10_000

_Result = TypeVar("_Result")
_LeafState = Literal["attached", "detaching", "detached", "absent"]


class PeriodInUse(Unavailable):
    """A transaction from before the period was hidden does not end. Nothing is lost: try again later."""

    default_code = "period_in_use"

    def __init__(self, period: Period) -> None:
        super().__init__(
            _(
                "The partition of %(period)s could not be removed, because an open transaction reads it. Try again later."
            )
            % {"period": period}
        )


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    """A table partitioned by period; `parents` maps a column to the table whose leaf of the same period it references."""

    name: str
    parents: dict[str, str]


class CreatePartitionedModel(migrations.CreateModel):
    """CreateModel for a table `PARTITION BY RANGE (id)`; a plain model in the migration state."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        schema_editor.sql_create_table += " PARTITION BY RANGE (id)"
        try:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        finally:
            del schema_editor.sql_create_table  # restores the attribute of the class


@dataclass(frozen=True, kw_only=True)
class DroppedLeaf:
    """The leaf of one table in a dropped period."""

    table: str
    rows: int
    is_estimate: bool
    """Whether `rows` is the planner's estimate."""
    size: int
    """Bytes on disk, with indexes and TOAST."""


def periods_of(db: Database, table: str) -> list[Period]:
    """Return the periods for which `table` has a partition, in order."""
    with db.cursor() as cursor:
        cursor.execute(
            """
            SELECT leaf.relname FROM pg_inherits JOIN pg_class leaf ON leaf.oid = inhrelid
            WHERE inhparent = %s::regclass AND NOT inhdetachpending
            """,
            [table],
        )
        return sorted(Period.of_leaf(name) for (name,) in cursor.fetchall())


def make_periods(db: Database, tables: Sequence[PartitionedTable], periods: Iterable[Period]) -> list[Period]:
    """Create the missing partitions in each of `tables` (parents first), so that `periods` are covered; return the created ones.

    Existing periods keep their length: one that covers a period suffices, and beside shorter ones only its other parts are
    created. One transaction of 30 ms a period, which blocks nobody. Safe to call from several processes at once. Raise
    PeriodInUse if a drop was interrupted and a transaction still reads it.
    """
    made = []
    for period in sorted(set(periods)):
        while (hidden := _hidden_in(_nearby(db, tables, period), period)) or (new := _make(db, tables, period)) is None:
            for interrupted in hidden:
                _retry(db, interrupted, _LOCK_PATIENCE_SECONDS, partial(_settle, tables, interrupted))
        made += new
    return made


def drop_period(
    db: Database,
    tables: Sequence[PartitionedTable],
    period: Period,
    *,
    when_hidden: Callable[[], bool] = lambda: True,
    patience: float = DROP_PATIENCE_SECONDS,
) -> list[DroppedLeaf] | None:
    """Drop the partitions of `period` in all of `tables` (parents first) in constant time; return the dropped leaves.

    `when_hidden` is called before anything is lost, once new queries do not see the rows of the first table any more (the
    leaf itself can still be read). If it returns False, the period is attached again and the result is None. A retry may call
    it again.

    Call it outside a transaction. Attempts are short, so that nobody waits long behind them, and repeated each second. Raise
    PeriodInUse after `patience` seconds, with the period hidden but not dropped; the next drop_period continues. Return an
    empty list if the period does not exist.
    """
    return _retry(db, period, patience, partial(_drop, tables, period, when_hidden))


def unsettled_periods(db: Database, tables: Sequence[PartitionedTable]) -> list[Period]:
    """Return the periods with a partition that is hidden, because a drop is going on or was interrupted, in order."""
    with db.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid "
            "WHERE relkind = 'r' AND relname ~ %s AND pg_table_is_visible(oid) AND (inhrelid IS NULL OR inhdetachpending)",
            [f"^({'|'.join(table.name for table in tables)}){LEAF_PATTERN}"],
        )
        return sorted({Period.of_leaf(name) for (name,) in cursor.fetchall()})


def settle_periods(
    db: Database, tables: Sequence[PartitionedTable], *, patience: float = DROP_PATIENCE_SECONDS
) -> None:
    """Finish interrupted drops: undo those that hid only the first table, complete the others.

    Raise PeriodInUse like `drop_period`.
    """
    for period in unsettled_periods(db, tables):
        _retry(db, period, patience, partial(_settle, tables, period))


def count_rows(cursor: Any, leaf: str) -> tuple[int, bool]:
    """Return the number of rows of a leaf, and whether it is the planner's estimate. Takes constant time."""
    cursor.execute(f"SELECT count(*) FROM (SELECT FROM {leaf} LIMIT {_COUNTED_ROWS + 1}) AS sample")  # noqa: S608 - a leaf's name
    (counted,) = cursor.fetchone()
    if counted <= _COUNTED_ROWS:
        return counted, False
    cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {leaf}")
    (plan,) = cursor.fetchone()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return max(counted, plan[0]["Plan"]["Plan Rows"]), True


class _Nearby(NamedTuple):
    """The periods in one month."""

    of_table: dict[str, list[Period]]
    """Those for which each table has a partition, in order."""
    hidden: list[Period]
    """Those with a partition that is hidden, in order."""


def _nearby(db: Database, tables: Sequence[PartitionedTable], period: Period) -> _Nearby:
    """Return the periods in the month of a period, because no others can overlap it.

    Found by the beginnings of their names, so it takes the same time however many there are.
    """
    firsts = [Period.of(period.begins_at, Length.MONTH).leaf(table.name) for table in tables]
    of_table: dict[str, list[Period]] = {table.name: [] for table in tables}
    hidden = set()
    with db.cursor() as cursor:
        cursor.execute(
            """
            SELECT name, relname, inhrelid IS NOT NULL AND NOT inhdetachpending
            FROM unnest(%s::text[], %s::name[], %s::name[]) AS wanted (name, first, last) CROSS JOIN LATERAL
            (SELECT oid, relname FROM pg_class WHERE relname BETWEEN first AND last AND relkind = 'r' OFFSET 0) AS found
            LEFT JOIN pg_inherits ON inhrelid = oid WHERE relname ~ %s AND pg_table_is_visible(oid)
            """,
            # Names of days and weeks go on with a "d". OFFSET 0, because the planner would rather read all names once.
            [list(of_table), firsts, [f"{first}e" for first in firsts], LEAF_PATTERN],
        )
        for table, leaf, is_attached in cursor.fetchall():
            if is_attached:
                of_table[table].append(Period.of_leaf(leaf))
            else:
                hidden.add(Period.of_leaf(leaf))
    return _Nearby({table: sorted(periods) for table, periods in of_table.items()}, sorted(hidden))


def _hidden_in(nearby: _Nearby, period: Period) -> list[Period]:
    return [hidden for hidden in nearby.hidden if hidden.overlaps(period)]


def _make(db: Database, tables: Sequence[PartitionedTable], period: Period) -> list[Period] | None:
    """Create the missing leaves of a period, or of its parts; return these, or None if one is hidden by now."""
    made = []
    with db.atomic(), db.cursor() as cursor:
        _poll(cursor, "SELECT pg_try_advisory_xact_lock(%s)")
        nearby = _nearby(db, tables, period)
        if _hidden_in(nearby, period):
            return None
        # Leaves refer to each other, so all tables have the periods of the first.
        for part in parts_beside(nearby.of_table[tables[0].name], period):
            missing = [table for table in tables if part not in nearby.of_table[table.name]]
            for table in missing:
                _make_leaf(cursor, table, part)
            if missing:
                made.append(part)
    return made


def _make_leaf(cursor: Any, table: PartitionedTable, period: Period) -> None:
    leaf = period.leaf(table.name)
    cursor.execute(f"CREATE TABLE {leaf} (LIKE {table.name} INCLUDING ALL)")
    for column, parent in table.parents.items():
        cursor.execute(
            f"ALTER TABLE {leaf} ADD CONSTRAINT {leaf}_{column}_fk "
            f"FOREIGN KEY ({column}) REFERENCES {period.leaf(parent)} (id)"
        )
    _attach(cursor, table, period)


def _drop(
    tables: Sequence[PartitionedTable], period: Period, when_hidden: Callable[[], bool], cursor: Any
) -> list[DroppedLeaf] | None:
    first, *others = tables
    if _leaf_state(cursor, first, period) != "absent":
        _detach(cursor, first, period)
        if not when_hidden():
            _attach(cursor, first, period)
            return None
    for table in others:
        _detach(cursor, table, period)
    present = [table for table in tables if _leaf_state(cursor, table, period) == "detached"]
    dropped = [_measure(cursor, table, period) for table in present]
    if present:
        cursor.execute(f"DROP TABLE {', '.join(period.leaf(table.name) for table in present)}")
    return dropped


def _settle(tables: Sequence[PartitionedTable], period: Period, cursor: Any) -> None:
    first, *others = tables
    if any(_leaf_state(cursor, table, period) in ("detaching", "detached") for table in others):
        _drop(tables, period, lambda: True, cursor)
    elif _leaf_state(cursor, first, period) in ("detaching", "detached"):
        _detach(cursor, first, period)
        _attach(cursor, first, period)


def _leaf_state(cursor: Any, table: PartitionedTable, period: Period) -> _LeafState:
    cursor.execute(
        "SELECT CASE WHEN inhrelid IS NULL THEN 'detached' WHEN inhdetachpending THEN 'detaching' ELSE 'attached' END "
        "FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid WHERE oid = to_regclass(%s)",
        [period.leaf(table.name)],
    )
    row = cursor.fetchone()
    return row[0] if row else "absent"


def _attach(cursor: Any, table: PartitionedTable, period: Period) -> None:
    # The bounds are computed from two integers, so the statement contains no external text. A detached leaf has the same
    # CHECK constraint, so it is not scanned.
    cursor.execute(
        f"ALTER TABLE {table.name} ATTACH PARTITION {period.leaf(table.name)} "
        f"FOR VALUES FROM ('{period.first_id}') TO ('{period.after_id}')"
    )


def _detach(cursor: Any, table: PartitionedTable, period: Period) -> None:
    state = _leaf_state(cursor, table, period)
    if state == "attached":
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {period.leaf(table.name)} CONCURRENTLY")
    elif state == "detaching":
        _wait_at_most(cursor, _FINALIZE_LOCK_TIMEOUT)
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {period.leaf(table.name)} FINALIZE")
        _wait_at_most(cursor, _LOCK_TIMEOUT)


def _measure(cursor: Any, table: PartitionedTable, period: Period) -> DroppedLeaf:
    leaf = period.leaf(table.name)
    rows, is_estimate = count_rows(cursor, leaf)
    cursor.execute("SELECT pg_total_relation_size(%s::regclass)", [leaf])
    return DroppedLeaf(table=table.name, rows=rows, is_estimate=is_estimate, size=cursor.fetchone()[0])


# --- Locks ------------------------------------------------------------------------------------------------------------


def _retry(db: Database, period: Period, patience: float, work: Callable[[Any], _Result]) -> _Result:
    """Run `work` with a cursor, under the advisory lock; retry it while locks of others block it."""

    def work_once() -> _Result:
        with _advisory_lock(db) as cursor:
            return work(cursor)

    try:
        return retry_locked(work_once, patience=patience, pause=_PAUSE_SECONDS)
    except LocksHeld as error:
        raise PeriodInUse(period) from error


@contextmanager
def _advisory_lock(db: Database) -> Iterator[Any]:
    """Hold the advisory lock, and limit waits of the cursor for other locks. Outside of a transaction, as DETACH requires."""
    with session_cursor(db) as cursor:
        _poll(cursor, "SELECT pg_try_advisory_lock(%s)")
        try:
            _wait_at_most(cursor, _LOCK_TIMEOUT)
            yield cursor
        finally:
            cursor.execute("RESET lock_timeout")
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])


def _wait_at_most(cursor: Any, timeout: str) -> None:
    cursor.execute("SELECT set_config('lock_timeout', %s, false)", [timeout])


def _poll(cursor: Any, try_lock: str) -> None:
    """Take the advisory lock by polling.

    A statement that waits for the lock has a snapshot, and DETACH waits for older snapshots, which would be a deadlock.
    """
    deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
    while True:
        cursor.execute(try_lock, [_ADVISORY_LOCK])
        if cursor.fetchone() == (True,):
            return
        if time.monotonic() > deadline:
            raise Unavailable(_("Another process is creating or removing partitions. Try again later."))
        time.sleep(_POLL_SECONDS)
