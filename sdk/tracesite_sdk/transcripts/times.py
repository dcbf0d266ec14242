"""Times of messages: stored messages are read in the order of their times, so each needs one, later than the one before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import TIME_WENT_BACK

_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


class Clock:
    """Assigns times to messages, in their order.

    A message without a time gets that of the previous one plus a millisecond. Messages before the first time end at it; if
    there is none, they begin at `began`.
    """

    def __init__(self, began: datetime, untimed: int, first_time: datetime | None) -> None:
        """`untimed` is the number of messages before the first that has a time, `first_time` that time."""
        self._previous = min(began, (first_time or began) - untimed * _MILLISECOND) - _MILLISECOND

    def next_time(self, own: datetime | None) -> tuple[datetime, bool]:
        """Return the time of the next message, and whether its own time is before that of the previous message."""
        time = own if own is not None and is_time(own) else self._previous + _MILLISECOND
        went_back = time < self._previous
        if time <= self._previous:
            time = self._previous + _MICROSECOND
        self._previous = time
        return time, went_back


def with_times(session: records.Session, start: datetime) -> records.Session:
    """Return the session with a time on every message; `start` is used if the session has none.

    A time that goes back is kept in the metadata (`said_at`) and flagged.
    """
    began = session.created_at or start
    messages = session.messages or []
    clock = Clock(began, *first_time(message.created_at for message in messages))
    timed = [with_time(message, *clock.next_time(message.created_at)) for message in messages]
    return replace(session, created_at=began, messages=timed)


def with_time(message: records.Message, time: datetime, went_back: bool) -> records.Message:
    """Return the message with the time that a Clock assigned to it."""
    health, metadata = message.health, message.metadata
    if went_back:
        assert message.created_at is not None, "only a time can go back"
        health = sorted({*(health or ()), TIME_WENT_BACK})
        metadata = {**(metadata or {}), "said_at": message.created_at.astimezone(UTC).isoformat()}
    completed_at = max(time, message.completed_at) if message.completed_at else None
    return replace(message, created_at=time, completed_at=completed_at, health=health, metadata=metadata)


def is_time(value: datetime | None) -> bool:
    """Return whether `value` is a plausible time: before the year 2000 the clock was not set."""
    return value is not None and value >= ids.EARLIEST


def first_time(values: Iterable[datetime | None]) -> tuple[int, datetime | None]:
    """Return how many values come before the first time, and that time."""
    return next(((index, value) for index, value in enumerate(values) if is_time(value)), (0, None))


def after(start: datetime, duration: float | None) -> datetime:
    """Return the time `duration` milliseconds after `start`; `start` itself where that is not in the years 1 to 9999."""
    if not duration:
        return start
    try:
        return start + timedelta(milliseconds=duration)
    except OverflowError:
        return start
