"""Traces that are due: spans of them are stored of which their messages are not made yet (projector.py).

A delivery notes it in its own transaction (deliveries.py). A trace is due at once when its root has ended, otherwise soon, and a
large one only after it was left alone for a while: its messages are made of all its spans, which takes the longer the more there
are, and done with each delivery would cost the square of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone
from msgspec import msgpack

from access_app.db import Database
from access_app.db.transactions import in_transaction
from traces_app.models import DueTrace

SOON = timedelta(seconds=1)
"""How long a trace whose root has not ended waits for more spans."""
MANY_SPANS = 250
"""Deliveries from which a trace is large."""
REST = 10
"""How many times as long as its messages took a large trace is left alone, so that they take a tenth of the time at most."""
SHORTEST_REST = timedelta(seconds=1)
LEASE = timedelta(seconds=10)
"""After this time a trace is taken again, in case the process that took it was killed; twice as long after each further attempt."""
LONGEST_LEASE = timedelta(hours=1)
IDLE = timedelta(minutes=10)
"""A trace to which nothing is delivered for so long loses its row; if more comes, its messages are written whole once."""

# Beside the deliveries that were new, as `NEW (project_id, trace_id)`; the parameters are traces, whether each is over, and when
# each is due. In one order, so that senders of the same traces wait for each other and do not deadlock.
NOTE = """
    INSERT INTO traces_app_duetrace AS due
        (project_id, trace_id, version, made_version, is_over, due_at, attempts, used_at, digests)
    SELECT DISTINCT new.project_id, new.trace_id, microseconds, microseconds - 1, is_over, due_at, 0, now(), ''::bytea
    FROM new JOIN unnest(%s::uuid[], %s::boolean[], %s::timestamptz[]) AS delivered (trace_id, is_over, due_at) USING (trace_id)
    CROSS JOIN (SELECT extract(epoch FROM now()) * 1000000) AS clock (microseconds)
    ORDER BY new.trace_id
    ON CONFLICT (project_id, trace_id) DO UPDATE SET
        version = greatest(due.version + 1, excluded.version), is_over = due.is_over OR excluded.is_over, used_at = excluded.used_at,
        due_at = least(due.due_at, greatest(excluded.due_at, CASE WHEN NOT excluded.is_over THEN due.rests_until END))
    RETURNING trace_id
    """
ROWS = "SELECT trace_id, version, digests FROM traces_app_duetrace WHERE project_id = %s AND trace_id = ANY(%s)"
"""The versions and packed digests of traces that have a row. Ask before their spans are read."""
_FORGET = """
    DELETE FROM traces_app_duetrace AS due USING unnest(%s::uuid[], %s::bigint[]) AS made (trace_id, version)
    WHERE due.project_id = %s AND due.trace_id = made.trace_id AND due.version = made.version
    """
_NOTE_MADE = """
    UPDATE traces_app_duetrace AS due SET
        made_version = made.version, attempts = 0, taken_until = NULL, rests_until = made.rests_until,
        digests = made.digests,
        is_over = due.is_over AND due.version > made.version,
        due_at = CASE WHEN due.version > made.version THEN
            greatest(now(), CASE WHEN NOT due.is_over THEN made.rests_until END) END
    FROM unnest(%s::uuid[], %s::bigint[], %s::timestamptz[], %s::bytea[]) AS made (trace_id, version, rests_until, digests)
    WHERE due.project_id = %s AND due.trace_id = made.trace_id
    """


_decode = msgpack.Decoder(dict[bytes, bytes]).decode


@dataclass(frozen=True, kw_only=True)
class Made:
    """The messages of a trace, as they were just made."""

    version: int
    rests_until: datetime | None
    """Until when it is left alone."""
    digests: Mapping[UUID, bytes] | None
    """Of the rows of its messages, so that only what differs is written next time; None if it needs no row any more."""


def take(db: Database, most: int) -> list[DueTrace]:
    """Return traces that are due, those first that have been for the longest time. Nobody else gets them until their lease ends.

    One that was taken before and was not made comes alone, because it may be what killed the process.
    """
    # A transaction would cost two statements more, several times a second.
    return _take(db, most) if _due(db, timezone.now()).exists() else []


def _due(db: Database, now: datetime) -> QuerySet[DueTrace]:
    return db.rows(DueTrace.objects).filter(Q(taken_until=None) | Q(taken_until__lte=now), due_at__lte=now)


@in_transaction
def _take(db: Database, most: int) -> list[DueTrace]:
    now = timezone.now()
    rows = list(_due(db, now).order_by("due_at").select_for_update(skip_locked=True)[:most])
    if rows and rows[0].attempts:
        rows = rows[:1]
    rows = [row for row in rows if row.attempts == rows[0].attempts]
    if rows:
        attempts = rows[0].attempts
        lease = min(LEASE * 2 ** min(attempts, 10), LONGEST_LEASE)
        taken = db.rows(DueTrace.objects).filter(pk__in=[row.pk for row in rows])
        taken.update(taken_until=now + lease, attempts=min(attempts + 1, 1_000))
    return rows


def note_made(db: Database, project_id: int, traces: Mapping[str, Made]) -> None:
    """Note, in the transaction that stores them, that the messages of traces were made."""
    finished = {trace_id: made.version for trace_id, made in traces.items() if made.digests is None}
    with db.cursor() as cursor:
        if finished:
            cursor.execute(_FORGET, [[*map(UUID, finished)], [*finished.values()], project_id])
            if cursor.rowcount == len(traces):
                return
        # Those that need a row, and those to which more was delivered meanwhile.
        rows = [(UUID(id_), one.version, one.rests_until, _packed(one.digests or {})) for id_, one in traces.items()]
        cursor.execute(_NOTE_MADE, [*map(list, zip(*rows, strict=True)), project_id])


def _packed(digests: Mapping[UUID, bytes]) -> bytes:
    return msgpack.encode({message_id.bytes: of_message for message_id, of_message in digests.items()})


def unpacked(digests: bytes) -> dict[UUID, bytes]:
    """Return the digests of each message of a row."""
    of_messages = _decode(digests) if digests else {}
    return {UUID(bytes=message_id): of_message for message_id, of_message in of_messages.items()}


def forget(db: Database, project_id: int, trace_ids: Collection[str]) -> None:
    """Remove the rows of traces that are gone."""
    db.rows(DueTrace.objects).filter(project_id=project_id, trace_id__in=map(UUID, trace_ids)).delete()


def forget_idle(db: Database) -> None:
    """Remove the rows of traces whose messages are made and to which nothing was delivered for long."""
    db.rows(DueTrace.objects).filter(due_at=None, used_at__lt=timezone.now() - IDLE).delete()
