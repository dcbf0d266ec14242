"""Traces of many spans, whose messages are not made with each delivery but by a job (traces_app.imports.large_traces).

Messages are made of all spans of their trace, which takes the longer the larger it is; done with each delivery, a long run would
cost the square of its spans. So a trace of MANY_SPANS gets a row, and from then on a delivery only notes that the trace is due:
at once when its root has ended, otherwise after it was left alone for a while. A trace to which nothing is delivered for IDLE
loses its row.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Value
from django.db.models.functions import Greatest, Least

from access_app.bounded_cache import BoundedCache
from access_app.db import Database
from traces_app.models import LargeTrace

MANY_SPANS = 250
"""Deliveries of a trace from which its messages are not made with each further one."""
REST = 10
"""How many times as long as its messages took a trace is left alone, so that they take a tenth of the time at most."""
SHORTEST_REST = timedelta(seconds=1)
LEASE = timedelta(minutes=1)
"""After this time a trace is taken again by another run of the job, in case the one that took it was killed."""
IDLE = timedelta(hours=1)

_known: BoundedCache[tuple[str, int], frozenset[str]] = BoundedCache(1_000, max_age=1)
"""The large traces of a project, by the alias of its database. One that is not known yet is made with its delivery, as before."""


def large_among(db: Database, project_id: int, trace_ids: Collection[str]) -> set[str]:
    """Return the large ones of these traces."""
    known = _known.get((db.alias, project_id))
    if known is None:
        rows = db.rows(LargeTrace.objects).filter(project_id=project_id).values_list("trace_id", flat=True)
        known = frozenset(trace_id.hex for trace_id in rows)
        _known.put((db.alias, project_id), known)
    return set(known.intersection(trace_ids))


def note_large(db: Database, project_id: int, trace_ids: Collection[str], now: datetime) -> None:
    """Note that traces are large. Their messages have just been made."""
    rows = [
        LargeTrace(project_id=project_id, trace_id=UUID(trace_id), rests_until=now + SHORTEST_REST, used_at=now)
        for trace_id in trace_ids
    ]
    db.rows(LargeTrace.objects).bulk_create(rows, ignore_conflicts=True)


def forget_large(db: Database, project_id: int, trace_ids: Collection[str]) -> None:
    """Let the messages of traces be made with each delivery again."""
    db.rows(LargeTrace.objects).filter(project_id=project_id, trace_id__in=map(UUID, trace_ids)).delete()


def note_delivery(db: Database, project_id: int, trace_id: str, now: datetime, *, is_over: bool) -> bool:
    """Note, in the transaction of a delivery, that a trace is due; `is_over` if its root has ended. Return False if it is not
    large any more."""
    due = Value(now) if is_over else Greatest(F("rests_until"), Value(now))
    changes = {"is_over": True} if is_over else {}
    rows = db.rows(LargeTrace.objects).filter(project_id=project_id, trace_id=UUID(trace_id))
    return bool(rows.update(version=F("version") + 1, due_at=Least(F("due_at"), due), used_at=now, **changes))
