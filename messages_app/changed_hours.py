"""Mark the hours whose messages change long after them, so that what was added up for these hours is added up again.

A message belongs to the hour (UTC) of its `created_at`, which its id carries. Statistics of hours that have passed are
stored (traces_app.maintenance.tool_roll_up). Every write that may change an hour which ended more than 2 hours ago
marks it here, in its own transaction: new and merged messages, deletions and their undoing, removals and purges,
changes of costs. The mark is a row of its own without a unique constraint, so that writers do not wait for each other.
Writes of younger hours mark nothing and cost a comparison, because these hours are always read from the rows.

Between "marked" (2 hours) and "stored" (3 hours) lies the time for a transaction that writes without a mark and commits
late, and for clocks that differ. tool_roll_up does not rely on it alone: it also waits for every transaction that is older.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from access_app.db import Database
from tracesite_sdk.records import ids

from .models import ChangedHour

HOUR = timedelta(hours=1)
MARKED_AFTER = timedelta(hours=2)
"""The age, from its end, at which an hour is marked when its messages change."""

# The first 48 bits of an id are milliseconds; see tracesite_sdk.records.ids.
_IDS_AN_HOUR = 3_600_000 << 80
_HOUR_OF_MESSAGE = (
    "to_timestamp(('x' || left(replace(message.id::text, '-', ''), 12))::bit(48)::bigint / 3600000 * 3600)"
)


def hour_of(instant: datetime) -> datetime:
    """Return the beginning of the hour, UTC."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def changed_hours(message_ids: Iterable[UUID]) -> list[datetime]:
    """Return the hours of these messages that a write must mark, in order."""
    young = ids.first_id_at(_first_young())
    # One of each hour, because a time takes longer to make than the rest.
    of_hours = {message_id.int // _IDS_AN_HOUR: message_id for message_id in message_ids if message_id < young}
    return sorted(hour_of(ids.created_at_of(message_id)) for message_id in of_hours.values())


def mark_messages(db: Database, project_id: int, message_ids: Iterable[UUID]) -> None:
    """Mark the hours of these messages. Call it in the transaction that changes them."""
    if hours := changed_hours(message_ids):
        db.rows(ChangedHour.objects).bulk_create(ChangedHour(project_id=project_id, begin=hour) for hour in hours)


def mark_sessions(db: Database, session_ids: Collection[UUID]) -> None:
    """Mark the hours of all messages of these sessions.

    Call it in the transaction that changes the sessions, after their rows are locked, so that the messages of a writer
    that held the lock before are found.
    """
    if session_ids:
        _mark_where(db, "message.session_id = ANY(%s)", [list(session_ids)])


def mark_stored(db: Database, message_ids: Collection[UUID]) -> None:
    """Mark the hours of messages of any projects. Call it before they are removed."""
    if message_ids:
        # The range spares the other months.
        condition = "message.id = ANY(%s) AND message.id >= %s AND message.id <= %s"
        _mark_where(db, condition, [list(message_ids), min(message_ids), max(message_ids)])


def _mark_where(db: Database, condition: str, values: list[Any]) -> None:
    with db.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messages_app_changedhour (project_id, begin) "  # noqa: S608 - texts of this file
            f"SELECT DISTINCT message.project_id, {_HOUR_OF_MESSAGE} FROM messages_app_message AS message "
            f"WHERE {condition} AND message.id < %s",
            [*values, ids.first_id_at(_first_young())],
        )


def _first_young() -> datetime:
    """Return the beginning of the oldest hour that need not be marked: it ended at most MARKED_AFTER ago."""
    return hour_of(timezone.now() - MARKED_AFTER)
