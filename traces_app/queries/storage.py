"""Measure the storage of the data, by kind and by period, and what the trash and old periods hold: for operators.

Sizes come from the catalogue and the files of the tables, so a look costs the same whatever these hold: about 30 us for each table and period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Sum

from access_app.db import Database
from messages_app.models import Message, MessageKey, PurgedPeriod, Reference, Session
from messages_app.sql.periods import Period
from traces_app.ingest.partitions import TABLES
from traces_app.models import (
    AgentStep,
    Context,
    ErrorPattern,
    Event,
    RunVector,
    Score,
    SearchPosting,
    SearchRows,
    SearchSegment,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    ToolCall,
    ToolPeriod,
    ToolResult,
)

Kind = str
KINDS: Mapping[Kind, Sequence[str]] = {
    "messages": [model._meta.db_table for model in (Session, Message, Reference, MessageKey, Score)],
    "calls": [model._meta.db_table for model in (AgentStep, ToolCall, ToolResult, ToolPeriod, ErrorPattern)],
    "events": [Event._meta.db_table],
    "contexts": [model._meta.db_table for model in (Context, Snapshot, SnapshotPart, SnapshotSums)],
    "spans": [Span._meta.db_table],
    "search": [model._meta.db_table for model in (SearchSegment, SearchRows, SearchPosting, RunVector)],
}
"""The tables of each kind of data. What the database has beyond them is `other`."""
OTHER: Kind = "other"

_SIZES = """
    SELECT parent.relname, leaf.relname, pg_total_relation_size(leaf.oid), leaf.reltuples
    FROM pg_class parent JOIN pg_inherits ON inhparent = parent.oid JOIN pg_class leaf ON leaf.oid = inhrelid
    WHERE parent.oid = ANY(%s::regclass[]) AND NOT inhdetachpending
    UNION ALL
    SELECT relname, NULL, pg_total_relation_size(oid), reltuples FROM pg_class WHERE oid = ANY(%s::regclass[])
    UNION ALL
    SELECT '', NULL, pg_database_size(current_database()), 0
    """


@dataclass(frozen=True, kw_only=True)
class PeriodSize:
    """The partitions of a period."""

    period: Period
    size: int
    """Bytes."""
    begin: datetime
    end: datetime


@dataclass(frozen=True, kw_only=True)
class Trash:
    """The rows that were deleted and not purged."""

    sessions: int
    messages: int
    """Those that were deleted alone, in the trash of messages."""
    messages_below: int
    """Those of the deleted sessions."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Sizes in bytes, with indexes."""

    total: int
    kinds: Mapping[Kind, int]
    """The largest first, and OTHER at the end."""
    periods: Sequence[PeriodSize]
    """Those that exist, the newest first."""
    messages: float | None
    """How many the periods have about; None before the planner has counted them (ANALYZE)."""
    trash: Trash
    last_purged: PurgedPeriod | None
    """The period that was dropped last, in the last 30 days."""

    @property
    def bytes_per_message(self) -> float | None:
        """Bytes of the periods for each of their messages; None if these are not known."""
        return sum(each.size for each in self.periods) / self.messages if self.messages else None

    @property
    def trash_size(self) -> int | None:
        """About how many bytes the trash has, as if its messages were of average size."""
        if self.bytes_per_message is None:
            return None
        return int(self.bytes_per_message * (self.trash.messages + self.trash.messages_below))

    def growth(self, oldest: datetime | None, now: datetime) -> float | None:
        """Return the bytes for each day in the newest period that has data; None if these are of less than a day."""
        newest = next((each for each in self.periods if each.begin <= now), None)
        if newest is None or oldest is None:
            return None
        time = min(now, newest.end) - max(newest.begin, oldest)
        return newest.size / (time / timedelta(days=1)) if time >= timedelta(days=1) else None


def storage(db: Database) -> Storage:
    """Read the sizes: four statements, and the small indexes of the trash."""
    partitioned = [table.name for table in TABLES]
    others = [name for names in KINDS.values() for name in names if name not in partitioned]
    with db.read_cursor() as cursor:
        cursor.execute(_SIZES, [partitioned, others])
        rows = cursor.fetchall()
    total = 0
    by_table: dict[str, int] = {}
    by_period: dict[Period, int] = {}
    counted, is_counted = 0.0, True
    for table, name, size, tuples in rows:
        size = size or 0  # a period that is being dropped
        if not table:
            total = size
            continue
        by_table[table] = by_table.get(table, 0) + size
        if name is None:
            continue
        period = Period.of_leaf(name)
        by_period[period] = by_period.get(period, 0) + size
        if table == Message._meta.db_table:
            counted += max(tuples, 0)
            is_counted = is_counted and tuples >= 0
    sizes = {kind: sum(by_table.get(name, 0) for name in names) for kind, names in KINDS.items()}
    kinds = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    return Storage(
        total=total,
        kinds={**kinds, OTHER: max(total - sum(kinds.values()), 0)},
        periods=[
            PeriodSize(period=period, size=size, begin=period.begins_at, end=period.ends_at)
            for period, size in sorted(by_period.items(), reverse=True)
        ],
        messages=counted if is_counted else None,
        trash=_trash(db),
        last_purged=db.rows(PurgedPeriod.objects).order_by("-purged_at").first(),
    )


def _trash(db: Database) -> Trash:
    sums = db.rows(Session.with_deleted).deleted().aggregate(sessions=Count("pk"), below=Sum("message_count"))
    alone = db.rows(Message.with_deleted).filter(deleted_at__isnull=False)
    return Trash(sessions=sums["sessions"], messages=alone.count(), messages_below=sums["below"] or 0)
