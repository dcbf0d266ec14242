"""Drop the periods whose messages have all expired, in constant time."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from uuid import UUID

from access_app.db import Database
from messages_app.session_counters import recount
from messages_app.sql.partitions import drop_period, periods_of
from messages_app.sql.periods import Length, Period
from traces_app.ingest.partitions import TABLES, forget
from traces_app.maintenance.seals.chain import append_dropped_period
from traces_app.maintenance.statements import fetch
from traces_app.maintenance.tool_roll_up import forget_dropped_periods
from traces_app.models import Archive, Context, Score

from .reports import NAME_OF_TABLE, Progress, PurgeReport
from .scopes import PurgeScope, expired_below, is_kept, sessions_of
from .scores import remove_scores, scores_of_period
from .sessions import sessions_with_messages
from .statements import LAST_ID, MESSAGES, SESSIONS, Condition


def whole_periods(db: Database, scopes: Sequence[PurgeScope]) -> Iterator[Period]:
    """Yield the periods that can be dropped."""
    for period in periods_of(db, MESSAGES):
        if is_whole(db, scopes, period):
            yield period


def is_whole(db: Database, scopes: Sequence[PurgeScope], period: Period) -> bool:
    """Return whether a period can be dropped: all its rows have expired and are in the scopes."""
    # Inside a caller's transaction no period can be dropped; its messages are removed like the others.
    return not db.connection.in_atomic_block and not _has_others(db, scopes, period)


def drop_periods(
    db: Database, scopes: Sequence[PurgeScope], report: PurgeReport, progress: Progress, now: datetime, patience: float
) -> None:
    for period in whole_periods(db, scopes):
        drop(db, period, partial(prepare_drop, db, scopes, period, report, now), report, progress, patience)


def drop(
    db: Database,
    period: Period,
    when_hidden: Callable[[], bool],
    report: PurgeReport,
    progress: Progress,
    patience: float,
) -> bool:
    """Drop a period and report it; return False if it was kept after all, or dropped by another purge."""
    dropped = drop_period(db, TABLES, period, when_hidden=when_hidden, patience=patience)
    forget()
    forget_dropped_periods(db)
    if not dropped:
        return False
    report.periods.append(str(period))
    for leaf in dropped:
        table = report.tables[NAME_OF_TABLE[leaf.table]]
        table.rows += leaf.rows
        table.is_estimate |= leaf.is_estimate
        table.bytes_freed += leaf.size
        if leaf.table == MESSAGES:
            progress(leaf.rows)
    return True


def prepare_drop(
    db: Database, scopes: Sequence[PurgeScope], period: Period, report: PurgeReport, now: datetime
) -> bool:
    """Prepare the drop of a period that is hidden from writers; return False to keep it."""
    if _has_others(db, scopes, period):
        return False  # a message of another project arrived after the first check, or a session is kept now
    # An empty period, created again for a sender that was then refused, must not extend the life of keys.
    fetch(
        db,
        'INSERT INTO messages_app_purgedmonth AS known (month, "end", purged_at) SELECT %s, %s, %s '
        f"WHERE EXISTS (SELECT 1 FROM {period.leaf(MESSAGES)}) ON CONFLICT (month) DO UPDATE SET purged_at = excluded.purged_at, "
        """"end" = greatest(coalesce(known."end", (known.month + interval '1 month')::date), excluded."end") RETURNING 1""",
        [period.begin, period.end, now],
    )
    for session_ids in _sessions_beyond(db, period):
        recount(db, session_ids)
    report.add(Score, *remove_scores(db, scores_of_period(period)))
    append_dropped_period(db, period)
    return True


def _has_others(db: Database, scopes: Sequence[PurgeScope], period: Period) -> bool:
    """Return whether the period has messages that have not expired in one of the scopes."""
    expired = [scope for scope in scopes if scope.session_id is None and period.after_id <= expired_below(scope)]
    if not expired:
        return True
    return (
        _has_other_projects(db, expired, period)
        or any(_has_kept(db, scope, period) for scope in expired)
        or _has_entries_of_others(db, period)
    )


def _has_entries_of_others(db: Database, period: Period) -> bool:
    """Return whether contexts of later periods refer to entries in this one.

    Entries are at the beginning of the period of their contexts. One that was archived may be restored into shorter ones.
    """
    longer = db.rows(Archive.objects).filter(month=period.begin).exclude(period=str(period))
    month = Period.of(period.begins_at, Length.MONTH)
    if period == month or not longer.exists():
        return False
    contexts = Context._meta.db_table
    return bool(
        fetch(
            db,
            f"SELECT 1 FROM {period.leaf(contexts)} AS entry JOIN {contexts} AS later ON later.session_id = entry.session_id "
            "AND later.kind <> 'entry' AND later.id >= %s AND later.id < %s "
            "WHERE entry.kind = 'entry' AND entry.message_id IS NULL AND entry.id = ANY(later.entries) LIMIT 1",
            [period.after_id, month.after_id],
        )
    )


def _has_other_projects(db: Database, scopes: Sequence[PurgeScope], period: Period) -> bool:
    """Return whether the period has messages of projects outside the scopes, by one index lookup for each gap between the
    ids of their projects."""
    projects = sorted({project_id for scope in scopes for project_id in scope.project_ids or ()})
    if any(scope.project_ids is None for scope in scopes):
        return False
    gaps = [Condition("project_id < %s", projects[:1]), Condition("project_id > %s", projects[-1:])]
    gaps += [
        Condition("project_id > %s AND project_id < %s", [project_id, next_one])
        for project_id, next_one in pairwise(projects)
    ]
    leaf = period.leaf(MESSAGES)
    return any(fetch(db, f"SELECT 1 FROM {leaf} WHERE {gap.sql} LIMIT 1", gap.values) for gap in gaps)


def _has_kept(db: Database, scope: PurgeScope, period: Period) -> bool:
    """Return whether a session that the scope keeps has messages in the period: one index lookup for each kept session."""
    if scope.kept is None:
        return False
    kept = sessions_of(scope) & is_kept(scope.kept, SESSIONS)
    ((has_kept,),) = fetch(
        db,
        f"SELECT EXISTS (SELECT 1 FROM (SELECT id FROM {SESSIONS} WHERE {kept.sql} OFFSET 0) AS kept "
        f"WHERE EXISTS (SELECT 1 FROM {period.leaf(MESSAGES)} WHERE session_id = kept.id))",
        kept.values,
    )
    return bool(has_kept)


def _sessions_beyond(db: Database, period: Period) -> Iterator[list[UUID]]:
    """Yield in batches the sessions that have messages in this (hidden) period and may outlive it.

    They began before its end and have messages in other periods, or have messages from before their own beginning.
    """
    leaf, end = period.leaf(MESSAGES), period.after_id
    for some in sessions_with_messages(db, MESSAGES, UUID(int=0), end):
        here = fetch(db, f"SELECT DISTINCT session_id FROM {leaf} WHERE session_id = ANY(%s)", [some])
        if here:
            yield [session_id for (session_id,) in here]
    yield from sessions_with_messages(db, leaf, end, LAST_ID)
