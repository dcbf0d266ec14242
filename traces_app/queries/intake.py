"""Measure what arrives, how long it waits, and how far the values computed from it are behind.

The time of arrival of a message is not stored. It is that of its last write, `updated_at`, for a message that was written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Aggregate, Count, DurationField, ExpressionWrapper, F, FloatField, Func, Max, Q, Sum
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from access_app.db import Database
from access_app.visibility import ProjectScope, visible_to
from messages_app.change_log import LAGS, Reader, unread
from messages_app.models import Message
from traces_app.models import ToolRollUp

from .due_traces import LAG as LAG_OF_TRACES
from .histograms import bucket_of
from .overview import Period

TRACES = "traces"
MOST_WAITING = 10_000
"""Changes that wait for the search index, as far as they are counted."""
IMPORTED_AFTER = timedelta(hours=1)
"""Messages that arrive this long after their end are taken for imports of older data, which says nothing of the way of live ones."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """The messages of a period, of any role."""

    messages: int
    calls: int
    last_write: datetime | None
    """When one of them was written last."""
    timed: int
    """Messages that were written once, so that it is known when they arrived."""
    median_wait: timedelta | None
    """From their end to their arrival, which half of them do not exceed; and 95 of 100."""
    p95_wait: timedelta | None
    waits: Mapping[int, int] = field(default_factory=dict)
    """How many waited how long, by the buckets of queries.histograms, if that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """How far what is derived of messages is behind."""

    unindexed: int
    """Changes of messages that are not in the search index, at most MOST_WAITING + 1."""
    waiting_since: Mapping[str, datetime]
    """When the oldest change was made that a reader of the log has not read, by its name, and when the first of the TRACES was due
    whose messages are not made; those that are not behind are missing."""
    rolled_until: datetime | None
    """The statistics of tools have all hours before this; None if nothing was added up yet."""


class Percentile(Aggregate):
    """The value that a share of the values do not exceed."""

    template = "percentile_disc(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"

    def __init__(self, expression: Any, share: float, **extra: Any) -> None:
        super().__init__(expression, share=share, **extra)


def arrivals(db: Database, scope: ProjectScope, period: Period, *, with_waits: bool = False) -> Arrivals:
    """Read the messages of a period: one statement, and one for the histogram of the waits."""
    messages = visible_to(db.rows(Message.objects).filter(**period.in_period), scope).order_by()
    after_end = ExpressionWrapper(
        F("updated_at") - Coalesce("completed_at", "created_at"), output_field=DurationField()
    )
    wait = Greatest(after_end, timedelta(0))  # clocks of senders may be ahead of ours
    once = Q(version=1, updated_at__lt=Coalesce("completed_at", "created_at") + IMPORTED_AFTER)
    sums = messages.aggregate(
        messages=Count("pk"),
        calls=Sum("call_count"),
        last_write=Max("updated_at"),
        timed=Count("pk", filter=once),
        median_wait=Percentile(wait, 0.5, filter=once, output_field=DurationField()),
        p95_wait=Percentile(wait, 0.95, filter=once, output_field=DurationField()),
    )
    milliseconds = Func(wait, template="trunc(extract(epoch FROM %(expressions)s) * 1000)", output_field=FloatField())
    waits = messages.filter(once).annotate(bucket=bucket_of(milliseconds)).values_list("bucket").annotate(Count("pk"))
    return Arrivals(**{**sums, "calls": sums["calls"] or 0}, waits=dict(waits) if with_waits else {})


def newest(db: Database, scope: ProjectScope) -> tuple[UUID, datetime] | None:
    """Return the newest message and its time."""
    rows = visible_to(db.rows(Message.objects).order_by("-pk"), scope)
    return rows.values_list("pk", "created_at").first()


def oldest(db: Database, scope: ProjectScope) -> datetime | None:
    """Return the time of the oldest message."""
    return visible_to(db.rows(Message.objects).order_by("pk"), scope).values_list("created_at", flat=True).first()


def backlog(db: Database) -> Backlog:
    """Read how far the background jobs are, of all projects."""
    now = timezone.now()
    with db.read_cursor() as cursor:
        cursor.execute(LAGS, [list(Reader)])
        lags = {str(list(Reader)[number - 1]): seconds for number, seconds in cursor.fetchall() if seconds is not None}
        cursor.execute(LAG_OF_TRACES)
        ((of_traces,),) = cursor.fetchall()
        if of_traces is not None:
            lags[TRACES] = of_traces
    return Backlog(
        unindexed=unread(db, Reader.SEARCH)[: MOST_WAITING + 1].count(),
        waiting_since={reader: now - timedelta(seconds=seconds) for reader, seconds in lags.items()},
        rolled_until=db.rows(ToolRollUp.objects).values_list("rolled_until", flat=True).first(),
    )
