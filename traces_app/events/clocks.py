"""Times of producers whose clock is wrong: their events are stored with times that can be, and say what was sent.

A recorder cannot know that its clock is days ahead or stands at 1970, and a refusal would lose all that it records.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from messages_app import ids

CLOCK = "clock"
"""In the data of an event: its time as it was sent."""


def shift_into_range(instants: Iterable[datetime | None], now: datetime) -> timedelta | None:
    """Return what to add to the times that are out of range, so that the newest of them is `now`; None where all fit.

    Adding the same to all of them keeps the durations between them.
    """
    newest = max(
        (instant for instant in instants if instant is not None and not is_in_range(instant, now)), default=None
    )
    return None if newest is None else now - newest


def moved(instant: datetime, shift: timedelta, now: datetime) -> datetime:
    """Return the time that stands for `instant`, which is out of range: shifted, or `now` where that is no time either."""
    try:
        there = instant + shift
    except OverflowError:
        return now
    return there if is_in_range(there, now) else now


def is_in_range(instant: datetime, now: datetime) -> bool:
    """Return whether a time can be stored: from 2000 to a day after `now`, for clocks are never quite alike."""
    return ids.EARLIEST <= instant <= now + ids.LATEST_AHEAD
