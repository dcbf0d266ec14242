"""Remove sessions: those of the trash with their messages, and those without messages."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models import Model

from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from access_app.db.transactions import in_transaction
from access_app.errors import Conflict
from messages_app.models import Session
from messages_app.sql.snapshot import one_snapshot
from traces_app.ingest.snapshots import remove_contents
from traces_app.maintenance.statements import fetch
from traces_app.models import Score, Snapshot, SnapshotPart, SnapshotSums
from tracesite_sdk.records import ids

from .messages import remove_messages
from .reports import Progress, PurgeReport, Removed
from .scopes import PurgeScope, expired_below, lanes_of_projects, sessions_not_kept, sessions_of
from .statements import LAST_ID, MESSAGES, SESSIONS, Condition, size_of

_SESSIONS_AT_ONCE = 2000
TRASHED_SESSIONS_AT_ONCE = 200
_OF_SESSIONS: tuple[type[Model], ...] = (Score, Snapshot, SnapshotPart, SnapshotSums)
"""Rows that go with their session."""


def remove_trashed_sessions(
    db: Database, scope: PurgeScope, report: PurgeReport, progress: Progress, now: datetime
) -> None:
    if scope.deleted_before is None:
        return
    trashed = Condition("deleted_at < %s", [scope.deleted_before])
    lanes = [sessions_of(scope)] if scope.session_id else lanes_of_projects(scope)
    for lane in lanes:
        for page in _session_pages(db, lane & trashed, TRASHED_SESSIONS_AT_ONCE):
            remove_sessions(db, page & trashed, report, progress, now)


def remove_sessions(db: Database, page: Condition, report: PurgeReport, progress: Progress, now: datetime) -> None:
    doomed = retry_aborted(partial(_insert_tombstones, db, page, now))
    while doomed:
        messages = [Condition("session_id = %s", [session_id]) for session_id in doomed]
        remove_messages(db, messages, report, progress, now, with_session=True)
        these = Condition("id = ANY(%s)", [doomed])
        report.add_all(retry_aborted(partial(remove_session_rows, db, these, partial(busy_among, db, doomed), now)))
        # A write in flight at the deletion of the session may have added a message.
        doomed = [
            session_id for (session_id,) in fetch(db, f"SELECT id FROM {SESSIONS} WHERE {these.sql}", these.values)
        ]


def remove_empty_sessions(db: Database, scope: PurgeScope, report: PurgeReport, now: datetime) -> None:
    """Remove the sessions without messages that began before the time."""
    begun = (
        sessions_of(scope)
        & sessions_not_kept(scope)
        & Condition("id < %s AND created_at < %s", [expired_below(scope), scope.created_before])
    )
    for page in _session_pages(db, begun, _SESSIONS_AT_ONCE, end=expired_below(scope)):
        busy = partial(_busy_between, db, *page.values[-2:])
        report.add_all(retry_aborted(partial(remove_session_rows, db, page, busy, now)))


def remove_expired_snapshots(db: Database, scope: PurgeScope, before: datetime, report: PurgeReport) -> None:
    """Remove the contents of old snapshots of sessions that stay."""
    expired = db.rows(Snapshot.objects).filter(pk__lt=ids.first_id_at(before), is_purged=False).order_by()
    if scope.session_id is not None:
        expired = expired.filter(session_id=scope.session_id)
    elif scope.project_ids is not None:
        expired = expired.filter(project_id__in=scope.project_ids)
    unkept = sessions_not_kept(scope)
    for project_id, session_id in expired.values_list("project_id", "session_id").distinct():
        here = Condition("id = %s", [session_id]) & unkept
        if scope.kept and not fetch(db, f"SELECT 1 FROM {SESSIONS} WHERE {here.sql}", here.values):
            continue
        report.add(SnapshotPart, *retry_aborted(partial(_remove_contents_if_there, db, project_id, session_id, before)))


def _remove_contents_if_there(db: Database, project_id: int, session_id: UUID, before: datetime) -> tuple[int, int]:
    try:
        return remove_contents(db, project_id, session_id, before)
    except Conflict:
        return 0, 0  # removed meanwhile


def _session_pages(db: Database, condition: Condition, size: int, end: UUID = LAST_ID) -> Iterator[Condition]:
    """Yield conditions that divide the matching sessions, up to `end`, into ranges of ids with `size` sessions each."""
    last = UUID(int=0)
    while True:
        ((upto,),) = fetch(
            db,
            f"SELECT id FROM {SESSIONS} WHERE {condition.sql} AND id > %s ORDER BY id OFFSET {size - 1} LIMIT 1",
            [*condition.values, last],
        ) or [(None,)]
        if upto is None:
            yield condition & Condition("id > %s AND id <= %s", [last, end])
            return
        yield condition & Condition("id > %s AND id <= %s", [last, upto])
        last = upto


@in_transaction
def _insert_tombstones(db: Database, page: Condition, now: datetime) -> list[UUID]:
    """Insert the tombstones of sessions, so that nobody can restore them any more; return the ids of the sessions."""
    doomed = fetch(
        db, f"SELECT id, project_id, external_id FROM {SESSIONS} WHERE {page.sql} ORDER BY id FOR UPDATE", page.values
    )
    session_ids = [row[0] for row in doomed]
    fetch(
        db,
        f"WITH gone AS (SELECT id, project_id, external_id FROM {SESSIONS} WHERE id = ANY(%s)) {_INSERT_TOMBSTONES}",
        [session_ids, now],
    )
    return session_ids


def remove_session_rows(db: Database, page: Condition, busy: Callable[[], list[UUID]], now: datetime) -> Removed:
    """Remove sessions except the `busy` ones, with their scores and snapshots, and insert tombstones."""
    # A writer inserts its messages before it locks the session. If both happened before the snapshot, the session is
    # busy. If it locks the session after the snapshot, the transactions conflict and this one is retried. If it has not
    # locked the session yet, it will not find it and rolls back.
    with one_snapshot(db):
        idle = page & Condition("id <> ALL(%s)", [busy()])
        ((rows, size, *of_others),) = fetch(
            db,
            f"WITH gone AS (DELETE FROM {SESSIONS} WHERE {idle.sql} RETURNING id, project_id, external_id, "
            f"{size_of(Session)} AS size), tombstones AS ({_INSERT_TOMBSTONES}), "
            + ", ".join(
                f"{model._meta.db_table} AS (DELETE FROM {model._meta.db_table} WHERE session_id IN (SELECT id FROM gone) "
                f"RETURNING {size_of(model)} AS size)"
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
    "INSERT INTO messages_app_sessiontombstone (key, project_id, purged_at) "
    f"SELECT DISTINCT {_SESSION_KEY} AS key, project_id, %s "
    "FROM gone CROSS JOIN LATERAL unnest(ARRAY[id::text, external_id]) AS name WHERE name <> '' ORDER BY key "
    "ON CONFLICT (key) DO UPDATE SET project_id = excluded.project_id, purged_at = excluded.purged_at RETURNING 1"
)


def _busy_between(db: Database, after: UUID, last: UUID) -> list[UUID]:
    """Return the sessions with after < id <= last that have messages.

    For a range of old sessions, nearly all of them empty: `busy_among` would search every period for each session.
    """
    first, end = UUID(int=after.int + 1), UUID(int=min(last.int + 1, LAST_ID.int))
    return [session_id for some in sessions_with_messages(db, MESSAGES, first, end) for session_id in some]


def busy_among(db: Database, session_ids: list[UUID]) -> list[UUID]:
    """Return those of these sessions that have messages; the ids may be far apart."""
    rows = fetch(
        db,
        "SELECT id FROM unnest(%s::uuid[]) AS wanted (id) "
        f"WHERE EXISTS (SELECT 1 FROM {MESSAGES} WHERE session_id = wanted.id)",
        [session_ids],
    )
    return [session_id for (session_id,) in rows]


def sessions_with_messages(db: Database, table: str, first: UUID, after: UUID) -> Iterator[list[UUID]]:
    """Yield in batches the sessions with first <= id < after that have a message in `table`, in order.

    One index lookup for each session, because DISTINCT would read all its messages.
    """
    last = UUID(int=first.int - 1) if first.int else first
    while True:
        rows = fetch(
            db,
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
        if not rows:
            return
        yield [session_id for (session_id,) in rows]
        last = rows[-1][0]
