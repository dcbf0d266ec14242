"""Remove what is in an archive, and has not changed since."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.utils import timezone

from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from messages_app.sql.partitions import periods_of
from messages_app.sql.periods import Period

from .messages import remove_batch
from .periods import drop, is_whole, prepare_drop
from .reports import PurgeReport
from .scopes import PurgeScope
from .sessions import busy_among, remove_session_rows
from .statements import MESSAGES, SCORES, SESSIONS, Condition


class Unchanged(NamedTuple):
    """A message as it was archived. Every write to it or below it changes these values."""

    id: UUID
    version: int
    updated_at: datetime


def drop_archived_period(
    db: Database,
    period: Period,
    project_ids: Sequence[int],
    is_archived: Callable[[], bool],
    report: PurgeReport,
    *,
    patience: float,
) -> bool:
    """Drop a period of these projects; return False, and keep it, if others have messages in it or it `is_archived` no more.

    `is_archived` is called while nobody can write to the messages of the period. Raise PeriodInUse like purge.
    """
    scope, now = PurgeScope(created_before=period.ends_at, project_ids=tuple(project_ids)), timezone.now()
    if period not in periods_of(db, MESSAGES) or not is_whole(db, [scope], period):
        return False

    def when_hidden() -> bool:
        return is_archived() and prepare_drop(db, [scope], period, report, now)

    return drop(db, period, when_hidden, report, lambda _: None, patience)


def remove_archived(db: Database, messages: Sequence[Unchanged], archived_at: datetime, report: PurgeReport) -> int:
    """Remove messages that are as they were archived, and without younger scores; return their number. Safe like `purge`."""
    unchanged = Condition(
        "(id, version, updated_at) IN (SELECT * FROM unnest(%s::uuid[], %s::int[], %s::timestamptz[])) "
        f"AND NOT EXISTS (SELECT 1 FROM {SCORES} AS score WHERE score.message_id = {MESSAGES}.id AND score.updated_at > %s)",
        [*([list(column) for column in zip(*messages, strict=True)] or [[], [], []]), archived_at],
    )
    candidates = [message.id for message in messages]
    # That a message is in the archive is no change of its session, and a restore brings it back.
    return report.add_all(retry_aborted(partial(remove_batch, db, candidates, unchanged, timezone.now(), touch=False)))


def remove_archived_sessions(
    db: Database,
    session_ids: Sequence[UUID],
    digests: Sequence[str],
    digest: str,
    archived_at: datetime,
    report: PurgeReport,
) -> None:
    """Remove the sessions without messages whose `digest`, SQL over the row `t`, is as it was archived. Safe like `purge`."""
    page = Condition(
        "id IN (SELECT t.id FROM unnest(%s::uuid[], %s::text[]) AS archived (id, digest) "
        f"JOIN {SESSIONS} AS t ON t.id = archived.id AND {digest} = archived.digest) "
        f"AND NOT EXISTS (SELECT 1 FROM {SCORES} AS score WHERE score.session_id = {SESSIONS}.id AND score.updated_at > %s)",
        [list(session_ids), list(digests), archived_at],
    )
    busy = partial(busy_among, db, list(session_ids))
    report.add_all(retry_aborted(partial(remove_session_rows, db, page, busy, timezone.now())))
