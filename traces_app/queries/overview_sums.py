"""The figures of a page over projects in several databases, added up of those of each: see docs/scaling.md.

Each function takes the answers of the databases, at least one, and returns what one database with all rows would answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

from access_app.readable import first_of
from messages_app.models import Message

from .histograms import quantile
from .intake import Arrivals, Backlog
from .overview import MOST, Failure, ModelUse, OpenRuns, Totals, whole_use
from .storage import OTHER, PeriodSize, Storage, Trash

T = TypeVar("T")


def newest_of(parts: Iterable[tuple[UUID, datetime] | None]) -> tuple[UUID, datetime] | None:
    return max(_known(parts), default=None)


def oldest_of(parts: Iterable[datetime | None]) -> datetime | None:
    return min(_known(parts), default=None)


def activity_of(parts: Sequence[list[Totals]]) -> list[Totals]:
    """Add up the buckets, which have the same times in each answer."""
    first, *others = parts
    for other in others:
        for bucket, more in zip(first, other, strict=True):
            bucket.add(more)
    return first


def uses_of(parts: Sequence[Mapping[datetime, list[ModelUse]]]) -> Mapping[datetime, list[ModelUse]]:
    first, *others = parts
    if not others:
        return first
    return {begin: whole_use(chain.from_iterable(part[begin] for part in parts)) for begin in first}


def failures_of(parts: Sequence[Mapping[int, Failure]]) -> Mapping[int, Failure]:
    return {tool: failure for part in parts for tool, failure in part.items()}


def failed_runs_of(parts: Sequence[list[Message]]) -> list[Message]:
    return first_of(parts, MOST, key=lambda run: -run.pk.int)


def slow_runs_of(parts: Sequence[list[Message]]) -> list[Message]:
    return first_of(parts, MOST, key=lambda run: (-(run.duration_ms or 0), -run.pk.int))


def open_runs_of(parts: Sequence[OpenRuns]) -> OpenRuns:
    def first(lists: Iterable[list[Message]]) -> list[Message]:
        return first_of(lists, MOST, key=lambda run: run.pk)

    return OpenRuns(
        running=sum(part.running for part in parts),
        waiting=sum(part.waiting for part in parts),
        running_rows=first(part.running_rows for part in parts),
        waiting_rows=first(part.waiting_rows for part in parts),
        pending_calls={key: calls for part in parts for key, calls in part.pending_calls.items()},
    )


def arrivals_of(parts: Sequence[Arrivals]) -> Arrivals:
    """Add up what arrived. Of several databases the waits are read of their histograms, so within 1 %."""
    if len(parts) == 1:
        return parts[0]
    waits: Counter[int] = Counter()
    for part in parts:
        waits.update(part.waits)

    def wait(share: float) -> timedelta | None:
        milliseconds = quantile(waits, share)
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    return Arrivals(
        messages=sum(part.messages for part in parts),
        calls=sum(part.calls for part in parts),
        last_write=max(_known(part.last_write for part in parts), default=None),
        timed=sum(part.timed for part in parts),
        median_wait=wait(0.5),
        p95_wait=wait(0.95),
        waits=waits,
    )


def backlog_of(parts: Sequence[Backlog]) -> Backlog:
    """Add up what waits; the times are those of the database that is most behind."""
    return Backlog(
        unindexed=sum(part.unindexed for part in parts),
        waiting_since={
            reader: min(part.waiting_since[reader] for part in parts if reader in part.waiting_since)
            for reader in {reader for part in parts for reader in part.waiting_since}
        },
        rolled_until=oldest_of(part.rolled_until for part in parts),
    )


def storage_of(parts: Sequence[Storage]) -> Storage:
    kinds: Counter[str] = Counter()
    periods: dict[Any, PeriodSize] = {}
    for part in parts:
        kinds.update(part.kinds)
        for size in part.periods:
            known = periods.get(size.period)
            periods[size.period] = size if known is None else replace(known, size=known.size + size.size)
    counts = [part.messages for part in parts]
    return Storage(
        total=sum(part.total for part in parts),
        kinds=dict(sorted(kinds.items(), key=lambda kind: (kind[0] == OTHER, -kind[1]))),
        periods=[periods[period] for period in sorted(periods, reverse=True)],
        messages=None if None in counts else sum(_known(counts)),
        trash=Trash(
            sessions=sum(part.trash.sessions for part in parts),
            messages=sum(part.trash.messages for part in parts),
            messages_below=sum(part.trash.messages_below for part in parts),
        ),
        last_purged=max(_known(part.last_purged for part in parts), key=lambda period: period.purged_at, default=None),
    )


def _known(values: Iterable[T | None]) -> Iterable[T]:
    return (value for value in values if value is not None)
