"""Forget the keys and tombstones of what was purged long ago."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from access_app.db import Database
from messages_app.models import PurgedPeriod
from messages_app.sql.periods import Period
from traces_app.maintenance.statements import fetch

from .statements import MESSAGES, Condition

TOMBSTONES_KEPT = timedelta(days=30)
_KEYS_AT_ONCE = 5000


def forget_tombstones(db: Database, before: datetime) -> int:
    """Delete the keys and tombstones of messages and sessions that were purged before a time; return their number."""
    forgotten = _delete_in_batches(db, "messages_app_messagekey", "key", Condition("purged_at < %s", [before]))
    forgotten += _delete_in_batches(db, "messages_app_sessiontombstone", "key", Condition("purged_at < %s", [before]))
    for purged in db.rows(PurgedPeriod.objects).filter(purged_at__lt=before):
        forgotten += _forget_period(db, purged.period, before)
        db.rows(PurgedPeriod.objects).filter(pk=purged.pk, purged_at__lt=before).delete()
    return forgotten


def _delete_in_batches(db: Database, table: str, key: str, condition: Condition) -> int:
    deleted = 0
    while True:
        # SKIP LOCKED, so that concurrent purges do not wait for each other.
        gone = fetch(
            db,
            f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {condition.sql} "
            f"LIMIT {_KEYS_AT_ONCE} FOR UPDATE SKIP LOCKED) RETURNING 1",
            condition.values,
        )
        if not gone:
            return deleted
        deleted += len(gone)


def _forget_period(db: Database, period: Period, before: datetime) -> int:
    """Delete the keys of a dropped period, except those of messages that exist because the period was created again."""
    forgotten, last = 0, UUID(int=0)
    while True:
        rows = fetch(
            db,
            "SELECT message_id FROM messages_app_messagekey WHERE message_id >= %s AND message_id < %s AND message_id > %s "
            f"ORDER BY message_id LIMIT {_KEYS_AT_ONCE}",
            [period.first_id, period.after_id, last],
        )
        if not rows:
            return forgotten
        gone = fetch(
            db,
            "DELETE FROM messages_app_messagekey WHERE key IN (SELECT key FROM messages_app_messagekey AS k "
            "WHERE message_id >= %s AND message_id <= %s AND (purged_at IS NULL OR purged_at < %s) "
            f"AND NOT EXISTS (SELECT 1 FROM {MESSAGES} WHERE id = k.message_id AND id >= %s AND id < %s) "
            "FOR UPDATE SKIP LOCKED) RETURNING 1",
            [rows[0][0], rows[-1][0], before, period.first_id, period.after_id],
        )
        forgotten += len(gone)
        last = rows[-1][0]
