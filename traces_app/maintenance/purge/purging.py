"""Remove what is in scopes, sessions or messages. The package says in which steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from access_app.db import Database
from messages_app.sql.partitions import DROP_PATIENCE_SECONDS, settle_periods
from traces_app.ingest.partitions import TABLES
from traces_app.models import Score
from tracesite_sdk.records import ids

from .messages import MESSAGES_AT_ONCE, remove_messages
from .periods import drop_periods
from .reports import Progress, PurgeReport
from .scopes import PurgeScope, lanes_of, lanes_of_projects, messages_not_kept
from .scores import pending_scores, remove_scores
from .sessions import (
    TRASHED_SESSIONS_AT_ONCE,
    remove_empty_sessions,
    remove_expired_snapshots,
    remove_sessions,
    remove_trashed_sessions,
)
from .statements import Condition, range_of
from .tombstones import TOMBSTONES_KEPT, forget_tombstones


def purge(
    db: Database,
    *scopes: PurgeScope,
    report: PurgeReport | None = None,
    progress: Progress = lambda _: None,
    now: datetime | None = None,
    patience: float = DROP_PATIENCE_SECONDS,
) -> PurgeReport:
    """Remove the rows in any of `scopes`; fill in `report` on the way, so that it is readable if an error ends the run.

    Safe beside readers and writers. Call it outside a transaction, because inside one no period can be dropped. Raise
    PeriodInUse if a transaction that reads an expired period does not end within `patience` seconds; run it again later.
    """
    report = report or PurgeReport()
    now = now or timezone.now()
    settle_periods(db, TABLES, patience=patience)
    report.tombstones_forgotten = forget_tombstones(db, now - TOMBSTONES_KEPT)
    drop_periods(db, scopes, report, progress, now, patience)
    for scope in scopes:
        _remove_by_rows(db, scope, report, progress, now)
    return report


def _remove_by_rows(db: Database, scope: PurgeScope, report: PurgeReport, progress: Progress, now: datetime) -> None:
    remove_trashed_sessions(db, scope, report, progress, now)
    if scope.deleted_before:
        trashed = Condition("deleted_at < %s", [scope.deleted_before])
        lanes = [lane & trashed for lane in lanes_of_projects(scope)]
        remove_messages(db, lanes, report, progress, now, still=trashed)
    if scope.created_before:
        unkept = messages_not_kept(scope)
        expired = Condition("id < %s", [ids.first_id_at(scope.created_before)]) & unkept
        remove_messages(db, [lane & expired for lane in lanes_of(scope)], report, progress, now, still=unkept)
        remove_empty_sessions(db, scope, report, now)
        remove_expired_snapshots(db, scope, scope.created_before, report)
        report.add(Score, *remove_scores(db, pending_scores(scope)))


def purge_deleted_message(db: Database, message_id: UUID) -> bool:
    """Remove a message of the trash with everything below it; return whether it was there. Safe like `purge`."""
    report, now = PurgeReport(), timezone.now()
    trashed = Condition("deleted_at <= %s", [now])
    lane = Condition("id = %s", [message_id]) & trashed
    remove_messages(db, [lane], report, lambda _: None, now, still=trashed)
    return report.tables["messages"].rows > 0


def purge_sessions(
    db: Database, session_ids: Sequence[UUID], report: PurgeReport, progress: Progress = lambda _: None
) -> None:
    """Remove sessions, in the trash or not, with everything below them. Safe like `purge`."""
    for first in range(0, len(session_ids), TRASHED_SESSIONS_AT_ONCE):
        some = list(session_ids[first : first + TRASHED_SESSIONS_AT_ONCE])
        remove_sessions(db, Condition("id = ANY(%s)", [some]), report, progress, timezone.now())


def purge_messages(
    db: Database, message_ids: Sequence[UUID], report: PurgeReport, progress: Progress = lambda _: None
) -> None:
    """Remove messages, in the trash or not, with everything below them. Safe like `purge`."""
    wanted = sorted(message_ids)
    lanes = [
        Condition("id = ANY(%s)", [some]) & range_of(some)
        for some in (wanted[first : first + MESSAGES_AT_ONCE] for first in range(0, len(wanted), MESSAGES_AT_ONCE))
    ]
    remove_messages(db, lanes, report, progress, timezone.now())
