"""Make the messages of large traces that are due (traces_app.ingest.large_traces).

A delivery does not wait meanwhile, and none is missed: it increments `version`, and the trace stays due if that has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from access_app.db import Database
from access_app.db.direct import lock_key, session_lock
from access_app.db.transactions import in_transaction
from traces_app.ingest.large_traces import IDLE, LEASE, REST, SHORTEST_REST
from traces_app.models import LargeTrace

from .span_store import make_again

_LOCK = lock_key("tracesite large traces")


@dataclass(kw_only=True)
class LargeTracesReport:
    """The work of one run."""

    traces: int = 0
    """Traces whose messages were made, one that was made twice counted twice."""


def make_large_traces(db: Database, *, is_stopped: Callable[[], bool] = lambda: False) -> LargeTracesReport:
    """Make the messages of the large traces that are due; end early if `is_stopped`. Do nothing while another process does."""
    report = LargeTracesReport()
    now = timezone.now()
    if not db.rows(LargeTrace.objects).filter(Q(due_at__lte=now) | Q(due_at=None, used_at__lt=now - IDLE)).exists():
        return report
    with session_lock(db, _LOCK) as is_mine:
        while is_mine and not is_stopped() and (trace := _take(db)) is not None:
            began = time.monotonic()
            is_there = make_again(db, trace.project_id, trace.trace_id.hex)
            report.traces += 1
            if is_there:
                _give_back(db, trace, timedelta(seconds=time.monotonic() - began))
            else:
                db.rows(LargeTrace.objects).filter(pk=trace.pk).delete()
        if is_mine:
            db.rows(LargeTrace.objects).filter(due_at=None, used_at__lt=timezone.now() - IDLE).delete()
    return report


@in_transaction
def _take(db: Database) -> LargeTrace | None:
    """Return the trace that has been due for the longest time."""
    now = timezone.now()
    due = db.rows(LargeTrace.objects).filter(due_at__lte=now).order_by("due_at")
    trace = due.select_for_update().first()
    if trace is not None:
        db.rows(LargeTrace.objects).filter(pk=trace.pk).update(due_at=now + LEASE, is_over=False)
    return trace


@in_transaction
def _give_back(db: Database, trace: LargeTrace, took: timedelta) -> None:
    """Leave a trace alone whose messages were made, unless its root has ended meanwhile."""
    now = timezone.now()
    rests_until = now + max(REST * took, SHORTEST_REST)
    row = db.rows(LargeTrace.objects).select_for_update().get(pk=trace.pk)
    row.rests_until = rests_until
    row.due_at = None if row.version == trace.version else now if row.is_over else rests_until
    row.save(using=db.alias, update_fields=["rests_until", "due_at"])
