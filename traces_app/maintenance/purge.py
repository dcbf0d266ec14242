"""Purge: remove rows for good if they are older than a time, or were deleted before a time.

`purge` consists of steps. Each may be interrupted at any moment, also by kill -9, and the next run continues:

 1. finish an interrupted drop of an earlier run, and delete tombstones older than 30 days;
 2. drop the periods whose messages have all expired: constant time, whatever their size (`_drop_periods`);
 3. sessions deleted long enough ago: first insert a tombstone, so that nobody writes to them or restores them any more,
    then remove their messages, then their rows;
 4. messages deleted long enough ago, and expired messages in periods that stay: 1,000 in a transaction, children first,
    locks in the order of the writes (keys, messages, their children, sessions last);
 5. sessions without messages that began before the time, the contents of snapshots of that time, and scores whose trace or
    session never arrived.

The key of a message and the tombstone of a session remain for 30 days: digests of ids, no content. Until then the data
of a sender that is still running is refused with `message_purged` or `session_purged` and revives nothing. Tools stay,
because all sessions of a project share them.

A session keeps its row as long as it has messages. Each batch subtracts the removed messages from its counters; after the
drop of a period the sessions with messages in other periods are recounted, so that no row of the period has to be read.

Measured (benchmarks/purge_month.py: 2 cores, 3.4 KB a message with its children and all indexes, medians of 5 runs, the
sizes in turn): the command takes 0.73 s for a month of 10,000 messages and 0.81 s for one of 100,000, mostly Python's
start. `purge` alone takes 0.05 s and 0.17 s; the difference is the file system, which frees 340 MB instead of 34 when
the tables are dropped (50 to 140 ms against 9). Each session that is removed with the month adds 15 us, each session that
stays is recounted. In months that stay 3,000 messages a second are removed, in 67 MB of memory whatever their number.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables, columns and leaves

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from django.db import OperationalError
from django.db.models import Model
from django.utils import timezone

from access_app.db import connection, transaction
from access_app.errors import Conflict
from access_app.models import Project
from access_app.retention import KeptScore
from messages_app import ids
from messages_app.changed_hours import mark_messages
from messages_app.models import Message, PurgedPeriod, Reference, SealMark, Session
from messages_app.seal_marks import mark
from messages_app.session_counters import recount
from messages_app.sql.partitions import DROP_PATIENCE_SECONDS, drop_period, periods_of, settle_periods
from messages_app.sql.periods import Length, Period
from messages_app.sql.snapshot import one_snapshot
from messages_app.writes import COUNTED_AS, COUNTER_TYPES, COUNTERS, NO_RUN_LEFT, Counts
from traces_app.ingest.context_rows import remove_unused
from traces_app.ingest.partitions import TABLES, forget
from traces_app.ingest.snapshots import remove_contents
from traces_app.ingest.sql import add_to_sessions
from traces_app.models import (
    AgentStep,
    Archive,
    Context,
    Event,
    MessageSeal,
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
    ToolResult,
    UnindexedMessage,
)

from .seals.chain import append_dropped_period
from .tool_roll_up import forget_dropped_periods

TOMBSTONES_KEPT = timedelta(days=30)

# A batch holds its locks for some 0.3 s; senders seldom write to what is so old, and the row of a session is locked last.
# Of small messages much of the time is that of the statements, not of the rows.
_MESSAGES_AT_ONCE = 1000
# Of larger batches the rows of the first messages are measured, because measuring small rows takes longer than deleting them.
_MESSAGES_MEASURED = 100
_SESSIONS_AT_ONCE = 2000
_TRASHED_SESSIONS_AT_ONCE = 200
_KEYS_AT_ONCE = 5000
_ATTEMPTS = 5

_MESSAGES = Message._meta.db_table
_SESSIONS = Session._meta.db_table
_SCORES = Score._meta.db_table
_NAMES: dict[type[Model], str] = {
    Session: "sessions",
    Message: "messages",
    Reference: "references",
    AgentStep: "steps",
    ToolCall: "calls",
    ToolResult: "results",
    Event: "events",
    Context: "contexts",
    Span: "spans",
    Score: "scores",
    # Of whole periods; rows of single messages leave the index when segments are merged.
    SearchSegment: "search index",
    SearchRows: "search index",
    SearchPosting: "search index",
    RunVector: "vectors",
    # Of whole periods.
    MessageSeal: "seals",
    Snapshot: "snapshots",
    SnapshotPart: "snapshots",
    SnapshotSums: "snapshots",
}
_NAME_OF_TABLE = {model._meta.db_table: name for model, name in _NAMES.items()}

_OF_SESSIONS: tuple[type[Model], ...] = (Score, Snapshot, SnapshotPart, SnapshotSums)
"""Rows that go with their session."""

# Whether a message was made of spans.
_OF_TRACE = "metadata ->> 'trace_id' ~ '^[0-9a-f]{32}$'"

_CLASHES = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

_Result = TypeVar("_Result")
_Removed = list[tuple[type[Model], int, int]]
"""(model, rows, size of the rows) of each table."""
Progress = Callable[[int], object]
"""Called with the number of messages removed since the last call."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Sessions that no age removes, with all their messages: those to which one of these applies."""

    tags: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    scores: tuple[KeptScore, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The rows to purge: messages made before `created_before`, and sessions and messages deleted before `deleted_before`,
    only of these projects or this session. None means no limit; at least one of the times is required.

    `kept` limits what goes by `created_before` only, because somebody decided on what is in the trash."""

    created_before: datetime | None = None
    deleted_before: datetime | None = None
    project_ids: tuple[int, ...] | None = None
    session_id: UUID | None = None
    kept: Kept | None = None

    def __post_init__(self) -> None:
        assert self.created_before or self.deleted_before, "without a time everything would be purged"


@dataclass(kw_only=True)
class TableReport:
    """The rows removed from one table."""

    rows: int = 0
    is_estimate: bool = False
    """Whether `rows` includes the planner's estimate for a dropped period, whose rows are not read."""
    bytes_freed: int = 0
    """Disk space of dropped periods with their indexes, returned to the operating system."""
    bytes_reusable: int = 0
    """Stored size of the deleted rows, an estimate. PostgreSQL reuses this space after a VACUUM."""


@dataclass(kw_only=True)
class Report:
    """The result of a purge, or of a survey."""

    periods: list[str] = field(default_factory=list)
    """Dropped periods, such as 2024-01 or 2024-01-31."""
    tables: dict[str, TableReport] = field(default_factory=lambda: {name: TableReport() for name in _NAMES.values()})
    tombstones_forgotten: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.periods and not any(table.rows for table in self.tables.values())

    @property
    def bytes_freed(self) -> int:
        return sum(table.bytes_freed for table in self.tables.values())

    @property
    def bytes_reusable(self) -> int:
        return sum(table.bytes_reusable for table in self.tables.values())

    def add(self, model: type[Model], rows: int, size: int) -> None:
        table = self.tables[_NAMES[model]]
        table.rows += rows
        table.bytes_reusable += size

    def add_all(self, removed: _Removed) -> int:
        """Add the rows that were removed; return how many of them are messages."""
        for model, rows, size in removed:
            self.add(model, rows, size)
        return sum(rows for model, rows, _size in removed if model is Message)


def purge(
    *scopes: Scope,
    report: Report | None = None,
    progress: Progress = lambda _: None,
    now: datetime | None = None,
    patience: float = DROP_PATIENCE_SECONDS,
) -> Report:
    """Remove the rows in any of `scopes`; fill in `report` on the way, so that it is readable if an error ends the run.

    Safe beside readers and writers. Call it outside a transaction, because inside one no period can be dropped. Raise
    PeriodInUse if a transaction that reads an expired period does not end within `patience` seconds; run it again later.
    """
    report = report or Report()
    now = now or timezone.now()
    settle_periods(TABLES, patience=patience)
    report.tombstones_forgotten = _forget_tombstones(now - TOMBSTONES_KEPT)
    _drop_periods(scopes, report, progress, now, patience)
    for scope in scopes:
        _remove_by_rows(scope, report, progress, now)
    return report


def _remove_by_rows(scope: Scope, report: Report, progress: Progress, now: datetime) -> None:
    _remove_trashed_sessions(scope, report, progress, now)
    if scope.deleted_before:
        trashed = _Condition("deleted_at < %s", [scope.deleted_before])
        lanes = [lane & trashed for lane in _lanes_of_projects(scope)]
        _remove_messages(lanes, report, progress, now, still=trashed)
    if scope.created_before:
        unkept = _messages_not_kept(scope)
        expired = _Condition("id < %s", [ids.first_id_at(scope.created_before)]) & unkept
        _remove_messages([lane & expired for lane in _lanes(scope)], report, progress, now, still=unkept)
        _remove_empty_sessions(scope, report, now)
        _remove_expired_snapshots(scope, scope.created_before, report)
        report.add(Score, *_remove_scores(_pending_scores(scope)))


def purge_deleted_message(message_id: UUID) -> bool:
    """Remove a message of the trash with everything below it; return whether it was there. Safe like `purge`."""
    report, now = Report(), timezone.now()
    trashed = _Condition("deleted_at <= %s", [now])
    lane = _Condition("id = %s", [message_id]) & trashed
    _remove_messages([lane], report, lambda _: None, now, still=trashed)
    return report.tables["messages"].rows > 0


def purge_sessions(session_ids: Sequence[UUID], report: Report, progress: Progress = lambda _: None) -> None:
    """Remove sessions, in the trash or not, with everything below them. Safe like `purge`."""
    for first in range(0, len(session_ids), _TRASHED_SESSIONS_AT_ONCE):
        some = list(session_ids[first : first + _TRASHED_SESSIONS_AT_ONCE])
        _remove_sessions(_Condition("id = ANY(%s)", [some]), report, progress, timezone.now())


def purge_messages(message_ids: Sequence[UUID], report: Report, progress: Progress = lambda _: None) -> None:
    """Remove messages, in the trash or not, with everything below them. Safe like `purge`."""
    wanted = sorted(message_ids)
    lanes = [
        _Condition("id = ANY(%s)", [some]) & _below(some)
        for some in (wanted[first : first + _MESSAGES_AT_ONCE] for first in range(0, len(wanted), _MESSAGES_AT_ONCE))
    ]
    _remove_messages(lanes, report, progress, timezone.now())


def survey(*scopes: Scope) -> Report:
    """Count the rows that `purge` would remove now. A row in several scopes counts in each."""
    report = Report()
    whole = set(_whole_periods(scopes))
    for period in periods_of(_MESSAGES):
        if period in whole:
            report.periods.append(str(period))
            _survey_whole_period(period, report)
            _survey_scores(_scores_of_period(period), report)
            continue
        for scope in scopes:
            if scope.deleted_before or period.first_id < _expired_below(scope):
                _survey_period(scope, period, report)
    for scope in scopes:
        _survey_sessions(scope, report)
        _survey_scores(_pending_scores(scope), report)
    return report


# --- Conditions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Condition:
    """A condition in SQL with its values. All its texts are in this file."""

    sql: str
    values: list[Any] = field(default_factory=list)

    def __and__(self, other: _Condition) -> _Condition:
        return _Condition(f"{self.sql} AND {other.sql}", [*self.values, *other.values])

    def __or__(self, other: _Condition) -> _Condition:
        return _Condition(f"({self.sql} OR {other.sql})", [*self.values, *other.values])


_ALL = _Condition("true")
_LAST_ID = UUID(int=2**128 - 1)


def _lanes(scope: Scope) -> list[_Condition]:
    """Return conditions that divide the messages of the scope, each served by an index in the order of ids."""
    if scope.session_id is not None:
        return [_Condition("session_id = %s", [scope.session_id])]
    if scope.project_ids is not None:
        return [_Condition("project_id = %s", [project_id]) for project_id in scope.project_ids]
    return [_ALL]


def _lanes_of_projects(scope: Scope) -> list[_Condition]:
    """Return such conditions for messages in the trash, whose index begins with the project."""
    if scope.session_id is None and scope.project_ids is None:
        return [
            _Condition("project_id = %s", [pk]) for pk in Project.objects.order_by("pk").values_list("pk", flat=True)
        ]
    return _lanes(scope)


def _sessions_of(scope: Scope) -> _Condition:
    if scope.session_id is not None:
        return _Condition("id = %s", [scope.session_id])
    if scope.project_ids is not None:
        return _Condition("project_id = ANY(%s)", [list(scope.project_ids)])
    return _ALL


def _is_kept(kept: Kept, session: str) -> _Condition:
    """Return the condition that one of the exceptions applies to a session; `session` is the table or its alias."""
    names, lows, highs = ([getattr(score, name) for score in kept.scores] for name in ("name", "low", "high"))
    return _Condition(
        f"({session}.tags && %s::text[] OR {session}.status = ANY(%s::text[]) OR %s AND {session}.pinned_at IS NOT NULL "
        f"OR %s AND EXISTS (SELECT 1 FROM {_SCORES} AS score "
        "JOIN unnest(%s::text[], %s::float8[], %s::float8[]) AS kept (name, low, high) ON kept.name = score.name "
        f"WHERE score.session_id = {session}.id AND score.deleted_at IS NULL "
        "AND (kept.low IS NULL OR score.number >= kept.low) AND (kept.high IS NULL OR score.number <= kept.high)))",
        [list(kept.tags), list(kept.statuses), kept.pinned, bool(kept.scores), names, lows, highs],
    )


def _messages_not_kept(scope: Scope, table: str = _MESSAGES) -> _Condition:
    """Return the condition that the session of a message is not kept. One lookup by its id for each message."""
    if scope.kept is None:
        return _ALL
    kept = _is_kept(scope.kept, "session")
    return _Condition(
        f"NOT EXISTS (SELECT 1 FROM {_SESSIONS} AS session WHERE session.id = {table}.session_id AND {kept.sql})",
        kept.values,
    )


def _sessions_not_kept(scope: Scope, session: str = _SESSIONS) -> _Condition:
    if scope.kept is None:
        return _ALL
    kept = _is_kept(scope.kept, session)
    return _Condition(f"{kept.sql} IS NOT TRUE", kept.values)


def _expired_below(scope: Scope) -> UUID:
    """Return the id below which everything has expired; the smallest id if nothing expires."""
    return ids.first_id_at(scope.created_before) if scope.created_before else UUID(int=0)


def _below(message_ids: Sequence[UUID], column: str = "id") -> _Condition:
    """Return the range of ids of these messages and their children, which limits the partitions that are searched."""
    first = ids.first_id_at(ids.created_at_of(min(message_ids)))
    after = ids.first_id_at(ids.created_at_of(max(message_ids)) + timedelta(microseconds=1))
    return _Condition(f"{column} >= %s AND {column} < %s", [first, after])


# --- Whole periods -----------------------------------------------------------------------------------------------------


def _whole_periods(scopes: Sequence[Scope]) -> Iterator[Period]:
    """Yield the periods that can be dropped."""
    for period in periods_of(_MESSAGES):
        if _is_whole(scopes, period):
            yield period


def _is_whole(scopes: Sequence[Scope], period: Period) -> bool:
    """Return whether a period can be dropped: all its rows have expired and are in the scopes."""
    # Inside a caller's transaction no period can be dropped; its messages are removed like the others.
    return not connection.in_atomic_block and not _has_others(scopes, period)


def _drop_periods(scopes: Sequence[Scope], report: Report, progress: Progress, now: datetime, patience: float) -> None:
    for period in _whole_periods(scopes):
        _drop_period(period, partial(_when_hidden, scopes, period, report, now), report, progress, patience)


def _drop_period(
    period: Period, when_hidden: Callable[[], bool], report: Report, progress: Progress, patience: float
) -> bool:
    """Drop a period and report it; return False if it was kept after all, or dropped by another purge."""
    dropped = drop_period(TABLES, period, when_hidden=when_hidden, patience=patience)
    forget()
    forget_dropped_periods()
    if not dropped:
        return False
    report.periods.append(str(period))
    for leaf in dropped:
        table = report.tables[_NAME_OF_TABLE[leaf.table]]
        table.rows += leaf.rows
        table.is_estimate |= leaf.is_estimate
        table.bytes_freed += leaf.size
        if leaf.table == _MESSAGES:
            progress(leaf.rows)
    return True


def _when_hidden(scopes: Sequence[Scope], period: Period, report: Report, now: datetime) -> bool:
    """Prepare the drop of a period that is hidden from writers; return False to keep it."""
    if _has_others(scopes, period):
        return False  # a message of another project arrived after the first check, or a session is kept now
    # An empty period, created again for a sender that was then refused, must not extend the life of keys.
    _rows(
        'INSERT INTO messages_app_purgedmonth AS known (month, "end", purged_at) SELECT %s, %s, %s '
        f"WHERE EXISTS (SELECT 1 FROM {period.leaf(_MESSAGES)}) ON CONFLICT (month) DO UPDATE SET purged_at = excluded.purged_at, "
        """"end" = greatest(coalesce(known."end", (known.month + interval '1 month')::date), excluded."end") RETURNING 1""",
        [period.begin, period.end, now],
    )
    for session_ids in _sessions_beyond(period):
        recount(session_ids)
    report.add(Score, *_remove_scores(_scores_of_period(period)))
    UnindexedMessage.objects.filter(message_id__gte=period.first_id, message_id__lt=period.after_id).delete()
    SealMark.objects.filter(message_id__gte=period.first_id, message_id__lt=period.after_id).delete()
    append_dropped_period(period)
    return True


def _has_others(scopes: Sequence[Scope], period: Period) -> bool:
    """Return whether the period has messages that have not expired in one of the scopes."""
    expired = [scope for scope in scopes if scope.session_id is None and period.after_id <= _expired_below(scope)]
    if not expired:
        return True
    return (
        _has_other_projects(expired, period)
        or any(_has_kept(scope, period) for scope in expired)
        or _has_entries_of_others(period)
    )


def _has_entries_of_others(period: Period) -> bool:
    """Return whether contexts of later periods refer to entries in this one.

    Entries are at the beginning of the period of their contexts. One that was archived may be restored into shorter ones.
    """
    longer = Archive.objects.filter(month=period.begin).exclude(period=str(period))
    month = Period.of(period.begins_at, Length.MONTH)
    if period == month or not longer.exists():
        return False
    contexts = Context._meta.db_table
    return bool(
        _rows(
            f"SELECT 1 FROM {period.leaf(contexts)} AS entry JOIN {contexts} AS later ON later.session_id = entry.session_id "
            "AND later.kind <> 'entry' AND later.id >= %s AND later.id < %s "
            "WHERE entry.kind = 'entry' AND entry.message_id IS NULL AND entry.id = ANY(later.entries) LIMIT 1",
            [period.after_id, month.after_id],
        )
    )


def _has_other_projects(scopes: Sequence[Scope], period: Period) -> bool:
    """Return whether the period has messages of projects outside the scopes, by one index lookup for each gap between the
    ids of their projects."""
    projects = sorted({project_id for scope in scopes for project_id in scope.project_ids or ()})
    if any(scope.project_ids is None for scope in scopes):
        return False
    gaps = [_Condition("project_id < %s", projects[:1]), _Condition("project_id > %s", projects[-1:])]
    gaps += [_Condition("project_id > %s AND project_id < %s", [one, next_one]) for one, next_one in pairwise(projects)]
    leaf = period.leaf(_MESSAGES)
    return any(_rows(f"SELECT 1 FROM {leaf} WHERE {gap.sql} LIMIT 1", gap.values) for gap in gaps)


def _has_kept(scope: Scope, period: Period) -> bool:
    """Return whether a session that the scope keeps has messages in the period: one index lookup for each kept session."""
    if scope.kept is None:
        return False
    kept = _sessions_of(scope) & _is_kept(scope.kept, _SESSIONS)
    ((has_kept,),) = _rows(
        f"SELECT EXISTS (SELECT 1 FROM (SELECT id FROM {_SESSIONS} WHERE {kept.sql} OFFSET 0) AS kept "
        f"WHERE EXISTS (SELECT 1 FROM {period.leaf(_MESSAGES)} WHERE session_id = kept.id))",
        kept.values,
    )
    return bool(has_kept)


def _sessions_beyond(period: Period) -> Iterator[list[UUID]]:
    """Yield in batches the sessions that have messages in this (hidden) period and may outlive it.

    They began before its end and have messages in other periods, or have messages from before their own beginning.
    """
    leaf, end = period.leaf(_MESSAGES), period.after_id
    for some in _sessions_with_messages(_MESSAGES, UUID(int=0), end):
        here = _rows(f"SELECT DISTINCT session_id FROM {leaf} WHERE session_id = ANY(%s)", [some])
        if here:
            yield [session_id for (session_id,) in here]
    yield from _sessions_with_messages(leaf, end, _LAST_ID)


def _sessions_with_messages(table: str, first: UUID, after: UUID) -> Iterator[list[UUID]]:
    """Yield in batches the sessions with first <= id < after that have a message in `table`, in order.

    One index lookup for each session, because DISTINCT would read all its messages.
    """
    last = UUID(int=first.int - 1) if first.int else first
    while True:
        found = _rows(
            f"""
            WITH RECURSIVE found (session_id, place) AS (
                (SELECT session_id, 1 FROM {table} WHERE session_id > %(last)s AND session_id < %(after)s
                 ORDER BY session_id LIMIT 1)
                UNION ALL
                SELECT next.session_id, place + 1 FROM found CROSS JOIN LATERAL (
                    SELECT session_id FROM {table}
                    WHERE session_id > found.session_id AND session_id < %(after)s ORDER BY session_id LIMIT 1
                ) AS next WHERE place < {_SESSIONS_AT_ONCE}
            )
            SELECT session_id FROM found
            """,
            {"last": last, "after": after},
        )
        if not found:
            return
        yield [session_id for (session_id,) in found]
        last = found[-1][0]


# --- Messages in batches ----------------------------------------------------------------------------------------------


def _remove_messages(
    lanes: Iterable[_Condition],
    report: Report,
    progress: Progress,
    now: datetime,
    *,
    still: _Condition = _ALL,
    with_session: bool = False,
) -> None:
    """Remove the messages in `lanes`, unless `still` does not hold any more once they are locked."""
    for candidates in _candidates(lanes):
        progress(report.add_all(_retrying(partial(_remove_batch, candidates, still, now, with_session=with_session))))


def _candidates(lanes: Iterable[_Condition]) -> Iterator[list[UUID]]:
    """Yield the ids of the messages in `lanes`; a batch may span several lanes, so that it is full."""
    batch: list[UUID] = []
    for lane in lanes:
        last = UUID(int=0)
        while True:
            room = _MESSAGES_AT_ONCE - len(batch)
            found = _rows(
                f"SELECT id FROM {_MESSAGES} WHERE {lane.sql} AND id > %s ORDER BY id LIMIT {room}",
                [*lane.values, last],
            )
            batch += [message_id for (message_id,) in found]
            if len(found) < room:
                break
            last = batch[-1]
            yield batch
            batch = []
    if batch:
        yield batch


@transaction.atomic
def _remove_batch(
    candidates: list[UUID], still: _Condition, now: datetime, *, with_session: bool = False, touch: bool = True
) -> _Removed:
    """Remove messages and their children, locking in the order of traces_app.ingest.store.

    With `touch` their sessions have changed, otherwise they keep the time of their last change.
    """
    _rows("SELECT 1 FROM messages_app_messagekey WHERE message_id = ANY(%s) ORDER BY key FOR UPDATE", [candidates])
    here = _Condition("id = ANY(%s)", [candidates]) & _below(candidates) & still
    # With all that is asked about them later: each more statement costs as much as ten messages.
    locked = _rows(
        f"SELECT id, project_id, session_id, CASE WHEN {_OF_TRACE} THEN metadata ->> 'trace_id' END "
        f"FROM {_MESSAGES} WHERE {here.sql} ORDER BY id FOR UPDATE",
        here.values,
    )
    if not locked:
        return []
    message_ids = [message_id for message_id, *_others in locked]
    of_projects: dict[int, list[UUID]] = {}
    for message_id, project_id, *_others in locked:
        of_projects.setdefault(project_id, []).append(message_id)
    for project_id, some in of_projects.items():
        mark_messages(project_id, some)
    mark(message_ids)
    these = _Condition("id = ANY(%s)", [message_ids]) & _below(message_ids)
    of_messages = _Condition("message_id = ANY(%s)", [message_ids]) & _below(message_ids)
    of_calls = (
        _Condition(f"id IN (SELECT id FROM {ToolCall._meta.db_table} WHERE {of_messages.sql})", of_messages.values)
        & _below(message_ids)
    )  # fmt: skip
    measured = _last_measured(message_ids)
    # The spans of a trace go with the first of its messages that goes.
    traces = sorted({(project_id, trace_id) for _id, project_id, _session, trace_id in locked if trace_id})
    of_traces = _Condition(
        "(project_id, trace_id) IN (SELECT * FROM unnest(%s::bigint[], %s::uuid[]))",
        [[project_id for project_id, _trace_id in traces], [trace_id for _project_id, trace_id in traces]],
    )
    removed: _Removed = [(Score, *_remove_scores(_Condition("message_id = ANY(%s)", [message_ids])))]
    # Referring rows first.
    for model, condition in ((Span, of_traces), (Event, of_messages), (Context, of_messages), (ToolResult, of_calls), (ToolCall, of_messages), (AgentStep, of_messages), (Reference, of_messages), (RunVector, these)):  # fmt: skip
        ((rows, size),) = _rows(
            f"WITH gone AS (DELETE FROM {model._meta.db_table} WHERE {condition.sql} "
            f"RETURNING CASE WHEN id <= %s THEN {_size_of(model)} END AS size) "
            "SELECT count(*), coalesce(round(avg(size) * count(*)), 0)::bigint FROM gone",
            [*condition.values, measured],
        )
        removed.append((model, rows, size))
    session_ids = list({session_id for _id, _project, session_id, _trace in locked})
    removed.append((Message, *_remove_message_rows(message_ids, touch=touch)))
    _rows(f"DELETE FROM {UnindexedMessage._meta.db_table} WHERE message_id = ANY(%s) RETURNING 1", [message_ids])
    removed.append((Context, *remove_unused(session_ids, min(message_ids), max(message_ids))))
    if with_session:
        _rows("DELETE FROM messages_app_messagekey WHERE message_id = ANY(%s) RETURNING 1", [message_ids])
    else:
        _rows(
            "UPDATE messages_app_messagekey SET purged_at = %s WHERE message_id = ANY(%s) RETURNING 1",
            [now, message_ids],
        )
    return removed


def _last_measured(message_ids: Sequence[UUID]) -> UUID:
    """Return the last id whose size is measured; what lies below a message has its time in its id, too."""
    if len(message_ids) <= _MESSAGES_MEASURED:
        return _LAST_ID
    return ids.first_id_at(ids.created_at_of(sorted(message_ids)[_MESSAGES_MEASURED]))


def _remove_message_rows(message_ids: list[UUID], *, touch: bool) -> tuple[int, int]:
    """Delete the rows and subtract the live ones from the counters of their sessions; return (rows, size)."""
    here = _Condition("id = ANY(%s)", [message_ids]) & _below(message_ids)
    live = " FILTER (WHERE deleted_at IS NULL)"
    sums = ", ".join(f"coalesce(sum({name}){live}, 0)::{COUNTER_TYPES[name]}" for name in COUNTERS)
    columns = ", ".join(f"{COUNTED_AS[name]} AS {name}" for name in COUNTERS)
    found = _rows(
        f"WITH gone AS (DELETE FROM {_MESSAGES} WHERE {here.sql} "
        f"RETURNING session_id, deleted_at, {columns}, CASE WHEN id <= %s THEN {_size_of(Message)} END AS size) "
        f"SELECT session_id, count(*), sum(size)::bigint, count(size), {sums} FROM gone GROUP BY session_id",
        [*here.values, _last_measured(message_ids)],
    )
    gone = {
        session_id: Counts(**dict(zip(COUNTERS, counts, strict=True)))
        for session_id, _rows_, _size, _measured, *counts in found
    }
    _rows(f"SELECT 1 FROM {_SESSIONS} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [list(gone)])
    add_to_sessions({session_id: -counts for session_id, counts in gone.items()}, touch=touch)
    # Clear the id of the last run; whether it failed is kept.
    _rows(
        f"UPDATE {_SESSIONS} SET last_run_id = %s WHERE id = ANY(%s) AND last_run_id = ANY(%s) RETURNING 1",
        [NO_RUN_LEFT, list(gone), message_ids],
    )
    rows, size, measured = (sum(row[place] or 0 for row in found) for place in (1, 2, 3))
    return rows, round(size * rows / measured) if measured else 0


# --- Sessions ---------------------------------------------------------------------------------------------------------


def _remove_trashed_sessions(scope: Scope, report: Report, progress: Progress, now: datetime) -> None:
    if scope.deleted_before is None:
        return
    trashed = _Condition("deleted_at < %s", [scope.deleted_before])
    lanes = [_sessions_of(scope)] if scope.session_id else _lanes_of_projects(scope)
    for lane in lanes:
        for page in _session_pages(lane & trashed, _TRASHED_SESSIONS_AT_ONCE):
            _remove_sessions(page & trashed, report, progress, now)


def _remove_sessions(page: _Condition, report: Report, progress: Progress, now: datetime) -> None:
    doomed = _retrying(partial(_insert_tombstones, page, now))
    while doomed:
        messages = [_Condition("session_id = %s", [session_id]) for session_id in doomed]
        _remove_messages(messages, report, progress, now, with_session=True)
        these = _Condition("id = ANY(%s)", [doomed])
        report.add_all(_retrying(partial(_remove_session_rows, these, partial(_busy_among, doomed), now)))
        # A write in flight at the deletion of the session may have added a message.
        doomed = [session_id for (session_id,) in _rows(f"SELECT id FROM {_SESSIONS} WHERE {these.sql}", these.values)]


def _remove_empty_sessions(scope: Scope, report: Report, now: datetime) -> None:
    """Remove the sessions without messages that began before the time."""
    begun = (
        _sessions_of(scope)
        & _sessions_not_kept(scope)
        & _Condition("id < %s AND created_at < %s", [_expired_below(scope), scope.created_before])
    )
    for page in _session_pages(begun, _SESSIONS_AT_ONCE, end=_expired_below(scope)):
        busy = partial(_busy_between, *page.values[-2:])
        report.add_all(_retrying(partial(_remove_session_rows, page, busy, now)))


def _remove_expired_snapshots(scope: Scope, before: datetime, report: Report) -> None:
    """Remove the contents of old snapshots of sessions that stay."""
    expired = Snapshot.objects.filter(pk__lt=ids.first_id_at(before), is_purged=False).order_by()
    if scope.session_id is not None:
        expired = expired.filter(session_id=scope.session_id)
    elif scope.project_ids is not None:
        expired = expired.filter(session__project_id__in=scope.project_ids)
    unkept = _sessions_not_kept(scope)
    for session_id in expired.values_list("session_id", flat=True).distinct():
        here = _Condition("id = %s", [session_id]) & unkept
        if scope.kept and not _rows(f"SELECT 1 FROM {_SESSIONS} WHERE {here.sql}", here.values):
            continue
        report.add(SnapshotPart, *_retrying(partial(_remove_contents_if_there, session_id, before)))


def _remove_contents_if_there(session_id: UUID, before: datetime) -> tuple[int, int]:
    try:
        return remove_contents(session_id, before)
    except Conflict:
        return 0, 0  # removed meanwhile


def _session_pages(condition: _Condition, size: int, end: UUID = _LAST_ID) -> Iterator[_Condition]:
    """Yield conditions that divide the matching sessions, up to `end`, into ranges of ids with `size` sessions each."""
    last = UUID(int=0)
    while True:
        ((upto,),) = _rows(
            f"SELECT id FROM {_SESSIONS} WHERE {condition.sql} AND id > %s ORDER BY id OFFSET {size - 1} LIMIT 1",
            [*condition.values, last],
        ) or [(None,)]
        if upto is None:
            yield condition & _Condition("id > %s AND id <= %s", [last, end])
            return
        yield condition & _Condition("id > %s AND id <= %s", [last, upto])
        last = upto


@transaction.atomic
def _insert_tombstones(page: _Condition, now: datetime) -> list[UUID]:
    """Insert the tombstones of sessions, so that nobody can restore them any more; return the ids of the sessions."""
    doomed = _rows(
        f"SELECT id, project_id, external_id FROM {_SESSIONS} WHERE {page.sql} ORDER BY id FOR UPDATE", page.values
    )
    session_ids = [row[0] for row in doomed]
    _rows(
        f"WITH gone AS (SELECT id, project_id, external_id FROM {_SESSIONS} WHERE id = ANY(%s)) {_INSERT_TOMBSTONES}",
        [session_ids, now],
    )
    return session_ids


def _remove_session_rows(page: _Condition, busy: Callable[[], list[UUID]], now: datetime) -> _Removed:
    """Remove sessions except the `busy` ones, with their scores and snapshots, and insert tombstones."""
    # A writer inserts its messages before it locks the session. If both happened before the snapshot, the session is
    # busy. If it locks the session after the snapshot, the transactions conflict and this one is retried. If it has not
    # locked the session yet, it will not find it and rolls back.
    with one_snapshot():
        idle = page & _Condition("id <> ALL(%s)", [busy()])
        ((rows, size, *of_others),) = _rows(
            f"WITH gone AS (DELETE FROM {_SESSIONS} WHERE {idle.sql} RETURNING id, project_id, external_id, "
            f"{_size_of(Session)} AS size), tombstones AS ({_INSERT_TOMBSTONES}), "
            + ", ".join(
                f"{model._meta.db_table} AS (DELETE FROM {model._meta.db_table} WHERE session_id IN (SELECT id FROM gone) "
                f"RETURNING {_size_of(model)} AS size)"
                for model in _OF_SESSIONS
            )
            + " SELECT count(*), coalesce(sum(size), 0)::bigint, "
            + ", ".join(
                f"(SELECT count(*) FROM {model._meta.db_table}), "
                f"(SELECT coalesce(sum(size), 0)::bigint FROM {model._meta.db_table})"
                for model in _OF_SESSIONS
            )
            + " FROM gone",
            [*idle.values, now],
        )
    others = zip(_OF_SESSIONS, of_others[::2], of_others[1::2], strict=True)
    return [(Session, rows, size), *others]


_SESSION_KEY = ids.key_in_sql("'session'", "project_id", "name")
# Reads id, project_id and external_id from `gone`. Two keys, because senders may use either id of a session.
_INSERT_TOMBSTONES = (
    "INSERT INTO messages_app_sessiontombstone (key, purged_at) "
    f"SELECT DISTINCT {_SESSION_KEY} AS key, %s "
    "FROM gone CROSS JOIN LATERAL unnest(ARRAY[id::text, external_id]) AS name WHERE name <> '' ORDER BY key "
    "ON CONFLICT (key) DO UPDATE SET purged_at = excluded.purged_at RETURNING 1"
)


def _busy_between(after: UUID, last: UUID) -> list[UUID]:
    """Return the sessions with after < id <= last that have messages.

    For a range of old sessions, nearly all of them empty: `_busy_among` would search every period for each session.
    """
    first, end = UUID(int=after.int + 1), UUID(int=min(last.int + 1, _LAST_ID.int))
    return [session_id for some in _sessions_with_messages(_MESSAGES, first, end) for session_id in some]


def _busy_among(session_ids: list[UUID]) -> list[UUID]:
    """Return those of these sessions that have messages; the ids may be far apart."""
    found = _rows(
        "SELECT id FROM unnest(%s::uuid[]) AS wanted (id) "
        f"WHERE EXISTS (SELECT 1 FROM {_MESSAGES} WHERE session_id = wanted.id)",
        [session_ids],
    )
    return [session_id for (session_id,) in found]


# --- What is archived -------------------------------------------------------------------------------------------------


class Unchanged(NamedTuple):
    """A message as it was archived. Every write to it or below it changes these values."""

    id: UUID
    version: int
    updated_at: datetime


def drop_archived_period(
    period: Period, project_ids: Sequence[int], is_archived: Callable[[], bool], report: Report, *, patience: float
) -> bool:
    """Drop a period of these projects; return False, and keep it, if others have messages in it or it `is_archived` no more.

    `is_archived` is called while nobody can write to the messages of the period. Raise PeriodInUse like purge.
    """
    scope, now = Scope(created_before=period.ends_at, project_ids=tuple(project_ids)), timezone.now()
    if period not in periods_of(_MESSAGES) or not _is_whole([scope], period):
        return False

    def when_hidden() -> bool:
        return is_archived() and _when_hidden([scope], period, report, now)

    return _drop_period(period, when_hidden, report, lambda _: None, patience)


def remove_archived(messages: Sequence[Unchanged], archived_at: datetime, report: Report) -> int:
    """Remove messages that are as they were archived, and without younger scores; return their number. Safe like `purge`."""
    unchanged = _Condition(
        "(id, version, updated_at) IN (SELECT * FROM unnest(%s::uuid[], %s::int[], %s::timestamptz[])) "
        f"AND NOT EXISTS (SELECT 1 FROM {_SCORES} AS score WHERE score.message_id = {_MESSAGES}.id AND score.updated_at > %s)",
        [*([list(column) for column in zip(*messages, strict=True)] or [[], [], []]), archived_at],
    )
    candidates = [message.id for message in messages]
    # That a message is in the archive is no change of its session, and a restore brings it back.
    return report.add_all(_retrying(partial(_remove_batch, candidates, unchanged, timezone.now(), touch=False)))


def remove_archived_sessions(
    session_ids: Sequence[UUID], digests: Sequence[str], digest: str, archived_at: datetime, report: Report
) -> None:
    """Remove the sessions without messages whose `digest`, SQL over the row `t`, is as it was archived. Safe like `purge`."""
    page = _Condition(
        "id IN (SELECT t.id FROM unnest(%s::uuid[], %s::text[]) AS archived (id, digest) "
        f"JOIN {_SESSIONS} AS t ON t.id = archived.id AND {digest} = archived.digest) "
        f"AND NOT EXISTS (SELECT 1 FROM {_SCORES} AS score WHERE score.session_id = {_SESSIONS}.id AND score.updated_at > %s)",
        [list(session_ids), list(digests), archived_at],
    )
    busy = partial(_busy_among, list(session_ids))
    report.add_all(_retrying(partial(_remove_session_rows, page, busy, timezone.now())))


# --- Scores -----------------------------------------------------------------------------------------------------------


def _scores_of_period(period: Period) -> _Condition:
    return _Condition("message_id >= %s AND message_id < %s", [period.first_id, period.after_id])


def _pending_scores(scope: Scope) -> _Condition:
    """Return the condition of expired scores whose trace or session never arrived."""
    pending = _Condition("session_id IS NULL AND id < %s", [_expired_below(scope)])
    if scope.session_id is not None:
        return _Condition("false")
    if scope.project_ids is not None:
        pending &= _Condition("project_id = ANY(%s)", [list(scope.project_ids)])
    return pending


def _remove_scores(condition: _Condition) -> tuple[int, int]:
    """Delete scores; return (rows, size of the rows)."""
    ((rows, size),) = _rows(
        f"WITH gone AS (DELETE FROM {_SCORES} WHERE {condition.sql} RETURNING {_size_of(Score)} AS size) "
        "SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone",
        condition.values,
    )
    return rows, size


def _survey_scores(condition: _Condition, report: Report) -> None:
    ((rows, size),) = _rows(
        f"SELECT count(*), coalesce(sum({_size_of(Score)}), 0)::bigint FROM {_SCORES} WHERE {condition.sql}",
        condition.values,
    )
    report.add(Score, rows, size)


# --- Tombstones -------------------------------------------------------------------------------------------------------


def _forget_tombstones(before: datetime) -> int:
    """Delete the keys and tombstones of messages and sessions that were purged before a time; return their number."""
    forgotten = _delete_in_batches("messages_app_messagekey", "key", _Condition("purged_at < %s", [before]))
    forgotten += _delete_in_batches("messages_app_sessiontombstone", "key", _Condition("purged_at < %s", [before]))
    for purged in PurgedPeriod.objects.filter(purged_at__lt=before):
        forgotten += _forget_period(purged.period, before)
        PurgedPeriod.objects.filter(pk=purged.pk, purged_at__lt=before).delete()
    return forgotten


def _delete_in_batches(table: str, key: str, condition: _Condition) -> int:
    deleted = 0
    while True:
        # SKIP LOCKED, so that concurrent purges do not wait for each other.
        gone = _rows(
            f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {condition.sql} "
            f"LIMIT {_KEYS_AT_ONCE} FOR UPDATE SKIP LOCKED) RETURNING 1",
            condition.values,
        )
        if not gone:
            return deleted
        deleted += len(gone)


def _forget_period(period: Period, before: datetime) -> int:
    """Delete the keys of a dropped period, except those of messages that exist because the period was created again."""
    forgotten, last = 0, UUID(int=0)
    while True:
        found = _rows(
            "SELECT message_id FROM messages_app_messagekey WHERE message_id >= %s AND message_id < %s AND message_id > %s "
            f"ORDER BY message_id LIMIT {_KEYS_AT_ONCE}",
            [period.first_id, period.after_id, last],
        )
        if not found:
            return forgotten
        gone = _rows(
            "DELETE FROM messages_app_messagekey WHERE key IN (SELECT key FROM messages_app_messagekey AS k "
            "WHERE message_id >= %s AND message_id <= %s AND (purged_at IS NULL OR purged_at < %s) "
            f"AND NOT EXISTS (SELECT 1 FROM {_MESSAGES} WHERE id = k.message_id AND id >= %s AND id < %s) "
            "FOR UPDATE SKIP LOCKED) RETURNING 1",
            [found[0][0], found[-1][0], before, period.first_id, period.after_id],
        )
        forgotten += len(gone)
        last = found[-1][0]


# --- Counting without removing ----------------------------------------------------------------------------------------


def _survey_whole_period(period: Period, report: Report) -> None:
    for table in TABLES:
        leaf = period.leaf(table.name)
        if _rows("SELECT to_regclass(%s) IS NOT NULL", [leaf]) == [(True,)]:
            ((rows, size),) = _rows(f"SELECT count(*), pg_total_relation_size('{leaf}') FROM {leaf}")
            table_report = report.tables[_NAME_OF_TABLE[table.name]]
            table_report.rows += rows
            table_report.bytes_freed += size


def _survey_period(scope: Scope, period: Period, report: Report) -> None:
    doomed = _Condition("message.id >= %s AND message.id < %s", [period.first_id, period.after_id])
    if scope.session_id is not None:
        doomed &= _Condition("message.session_id = %s", [scope.session_id])
    if scope.project_ids is not None:
        doomed &= _Condition("message.project_id = ANY(%s)", [list(scope.project_ids)])
    old = _Condition("message.id < %s", [_expired_below(scope)]) & _sessions_not_kept(scope, "session")
    if scope.deleted_before:
        old |= _Condition("message.deleted_at < %s OR session.deleted_at < %s", [scope.deleted_before] * 2)
    doomed &= old
    messages = f"{_MESSAGES} AS message LEFT JOIN {_SESSIONS} AS session ON session.id = message.session_id"
    sources = {
        Message: (messages, "message"),
        Reference: (f"{Reference._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        AgentStep: (f"{AgentStep._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        ToolCall: (f"{ToolCall._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        ToolResult: (
            f"{ToolResult._meta.db_table} AS child JOIN {ToolCall._meta.db_table} AS call ON call.id = child.id "
            f"AND call.id >= '{period.first_id}' AND call.id < '{period.after_id}' "
            f"JOIN {messages} ON message.id = call.message_id",
            "child",
        ),
        Event: (f"{Event._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        Context: (f"{Context._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
    }
    for model, (source, alias) in sources.items():
        in_month = _Condition(f"{alias}.id >= %s AND {alias}.id < %s", [period.first_id, period.after_id]) & doomed
        ((rows, size),) = _rows(
            f"SELECT count(*), coalesce(sum({_size_of(model, alias)}), 0)::bigint FROM {source} WHERE {in_month.sql}",
            in_month.values,
        )
        report.add(model, rows, size)
    in_month = _Condition("message.id >= %s AND message.id < %s", [period.first_id, period.after_id]) & doomed
    ((rows, size),) = _rows(
        f"SELECT count(*), coalesce(sum({_size_of(Span, 'span')}), 0)::bigint FROM {Span._meta.db_table} AS span "
        f"WHERE EXISTS (SELECT 1 FROM {messages} WHERE message.project_id = span.project_id AND message.{_OF_TRACE} "
        f"AND message.metadata ->> 'trace_id' = replace(span.trace_id::text, '-', '') AND {in_month.sql})",
        in_month.values,
    )
    report.add(Span, rows, size)
    table = Context._meta.db_table
    ((rows, size),) = _rows(
        f"WITH doomed AS (SELECT message.id, message.session_id FROM {messages} WHERE {in_month.sql}), used AS ("
        f"SELECT DISTINCT unnest(entries) AS id FROM {table} WHERE kind <> 'entry' AND id >= %s AND id < %s "
        "AND session_id IN (SELECT session_id FROM doomed) AND message_id NOT IN (SELECT id FROM doomed)) "
        f"SELECT count(*), coalesce(sum({_size_of(Context, 'entry')}), 0)::bigint FROM {table} AS entry "
        "WHERE kind = 'entry' AND message_id IS NULL AND id >= %s AND id < %s "
        "AND session_id IN (SELECT session_id FROM doomed) AND NOT EXISTS (SELECT 1 FROM used WHERE used.id = entry.id)",
        [*in_month.values, *[period.first_id, period.after_id] * 2],
    )
    report.add(Context, rows, size)
    of_messages = f"message_id IN (SELECT message.id FROM {messages} WHERE {in_month.sql})"
    _survey_scores(_Condition(of_messages, in_month.values), report)


def _survey_sessions(scope: Scope, report: Report) -> None:
    doomed = _Condition("false")
    if scope.deleted_before:
        doomed |= _Condition("session.deleted_at < %s", [scope.deleted_before])
    if scope.created_before:
        below = _expired_below(scope)
        stays = _Condition("id >= %s", [below])
        unkept = _sessions_not_kept(scope, "session")
        if scope.deleted_before:
            stays &= _Condition("(deleted_at >= %s OR deleted_at IS NULL)", [scope.deleted_before])
        doomed |= _Condition(
            f"(session.id < %s AND session.created_at < %s AND {unkept.sql} AND session.id NOT IN "
            f"(SELECT session_id FROM {_MESSAGES} WHERE session_id < %s AND {stays.sql}))",
            [below, scope.created_before, *unkept.values, below, *stays.values],
        )
    wanted = _sessions_of(scope) & doomed
    ((rows, size),) = _rows(
        f"SELECT count(*), coalesce(sum({_size_of(Session, 'session')}), 0)::bigint FROM {_SESSIONS} AS session "
        f"WHERE {wanted.sql}",
        wanted.values,
    )
    report.add(Session, rows, size)
    of_sessions = (
        f"message_id IS NULL AND session_id IN (SELECT session.id FROM {_SESSIONS} AS session WHERE {wanted.sql})"
    )
    _survey_scores(_Condition(of_sessions, wanted.values), report)


# --- Statements -------------------------------------------------------------------------------------------------------


def _rows(statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _size_of(model: type[Model], alias: str = "") -> str:
    """Return SQL for the stored size of a row: 24 bytes of header, and the values as stored, compressed or not."""
    prefix = f"{alias}." if alias else ""
    columns = [field.column for field in model._meta.concrete_fields]
    return "24 + " + " + ".join(f'coalesce(pg_column_size({prefix}"{column}"), 0)' for column in columns)


def _retrying(work: Callable[[], _Result]) -> _Result:
    """Retry a transaction that PostgreSQL aborted because of a conflict with another one."""
    for attempt in range(_ATTEMPTS):
        try:
            return work()
        except OperationalError as error:
            if attempt == _ATTEMPTS - 1 or not isinstance(error.__cause__, _CLASHES):
                raise
    raise AssertionError("the last attempt returned or raised")
