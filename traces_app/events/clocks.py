"""Correct the times of producers whose clock is wrong, and keep the original times in the events.

A recorder cannot know that its clock is days ahead or at 1970, and rejecting its events would lose everything it records.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tracesite_sdk.records import ids

CLOCK = "clock"
"""Key in the data of an event: its time as sent."""


def shift_into_range(instants: Iterable[datetime | None], now: datetime) -> timedelta | None:
    """Return the shift that makes the newest time out of range equal to `now`; None if all are in range.

    The same shift for all of them keeps the durations between them.
    """
    newest = max(
        (instant for instant in instants if instant is not None and not is_in_range(instant, now)), default=None
    )
    return None if newest is None else now - newest


def moved(instant: datetime, shift: timedelta, now: datetime) -> datetime:
    """Return `instant`, which is out of range, shifted; or `now` if that is still out of range."""
    try:
        there = instant + shift
    except OverflowError:
        return now
    return there if is_in_range(there, now) else now


def is_in_range(instant: datetime, now: datetime) -> bool:
    """Return whether a time can be stored: from 2000 to a day after `now`, because clocks differ."""
    return ids.EARLIEST <= instant <= now + ids.LATEST_AHEAD
