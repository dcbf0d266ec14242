"""Recount the counters of sessions: for check_traces, which compares them, and after a month was dropped.

Deleted messages do not count. Writes add and subtract differences (messages_app/writes.py); a recount reads every message
of a session, so it is only for sessions whose difference is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from access_app.db import Database
from access_app.db.transactions import in_transaction

from .writes import COUNTED_AS, COUNTER_TYPES, COUNTERS

_SUMS = ", ".join(f"coalesce(sum({COUNTED_AS[name]}), 0)::{COUNTER_TYPES[name]} AS {name}" for name in COUNTERS)
_COUNTED = f"SELECT {_SUMS} FROM messages_app_message WHERE session_id = session.id AND deleted_at IS NULL"  # noqa: S608 - built of COUNTERS
_STORED = ", ".join(f"session.{name}" for name in COUNTERS)
_FOUND = ", ".join(f"counted.{name}" for name in COUNTERS)


@in_transaction
def recount(db: Database, session_ids: Sequence[UUID]) -> None:
    """Set the counters of these sessions to the totals of their messages."""
    with db.cursor() as cursor:
        # Locked before they are counted, so that a concurrent writer either adds its messages afterwards or has committed
        # them and the next statement sees them.
        cursor.execute(
            "SELECT 1 FROM messages_app_session WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [list(session_ids)]
        )
        cursor.execute(
            f"UPDATE messages_app_session SET ({', '.join(COUNTERS)}) = ROW({_FOUND}), "  # noqa: S608 - built of COUNTERS
            "last_run_id = CASE WHEN EXISTS (SELECT 1 FROM messages_app_message "
            "WHERE id = messages_app_session.last_run_id) THEN messages_app_session.last_run_id "
            "WHEN messages_app_session.last_run_id IS NOT NULL THEN '00000000-0000-0000-0000-000000000000'::uuid END "
            f"FROM messages_app_session AS session CROSS JOIN LATERAL ({_COUNTED}) AS counted "
            "WHERE session.id = ANY(%s) AND messages_app_session.id = session.id "
            f"AND ROW({_STORED}) IS DISTINCT FROM ROW({_FOUND})",
            [list(session_ids)],
        )


def disagreements(db: Database, session_ids: Sequence[UUID]) -> dict[UUID, dict[str, tuple[int, int]]]:
    """Return the counters that are wrong, by session: {name: (stored, counted)}."""
    with db.cursor() as cursor:
        cursor.execute(
            f"SELECT session.id, {_STORED}, {_FOUND} FROM messages_app_session AS session "  # noqa: S608 - built of COUNTERS
            f"CROSS JOIN LATERAL ({_COUNTED}) AS counted "
            f"WHERE session.id = ANY(%s) AND ROW({_STORED}) IS DISTINCT FROM ROW({_FOUND}) ORDER BY session.id",
            [list(session_ids)],
        )
        rows = cursor.fetchall()
    half = len(COUNTERS)
    return {
        row[0]: {
            name: (stored, counted)
            for name, stored, counted in zip(COUNTERS, row[1 : half + 1], row[half + 1 :], strict=True)
            if stored != counted
        }
        for row in rows
    }
