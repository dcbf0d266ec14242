"""The critical path of a run: the chain of rows, each beginning when or after the one before it ended, that decided how long
the run took. A row of it that is clearly longer than all others, and a large part of the run, is the bottleneck; so may be a row whose
duration alone is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CLEARLY_LONGER = 2
"""Times the next longest row. Of two rows that take about as long, neither decides alone how long the run takes."""

LEAST_PART = 4
"""A row that took less than a part in so many of the run's time is not what made it long."""


class CriticalPath(NamedTuple):
    rows: list[int]
    """In the order of time."""
    bottleneck: int | None
    """The row of it, or without a known start, that took clearly longer than any other row that did not only wait, and a large part of
    the run's time; None if none did."""


def critical_path(
    depths: Sequence[int], starts: Sequence[int | None], durations: Sequence[int | None], *, took_ms: int | None = None
) -> CriticalPath:
    """Return the critical path of a tree whose rows are in reading order; `took_ms` is the duration of the run, as far as it is known.

    From the end of the run backwards: the row that ended last, then of those that ended before it began the one that ended
    last, and so on. A row within whose time a row below it ran only waited for that one, so it is not on the path; nor are
    rows without a known start and duration.
    """
    ends = [
        None if start is None or took is None else start + took for start, took in zip(starts, durations, strict=True)
    ]
    waiting = _waiting(depths, starts, ends)
    # Of rows that end together the shortest one comes first, because another may have waited for it.
    rows = [row for row, end in enumerate(ends) if end is not None and not waiting[row]]
    rows.sort(key=lambda row: (ends[row], starts[row]), reverse=True)
    path: list[int] = []
    limit: int | None = None
    for row in rows:
        end, start = ends[row], starts[row]
        assert end is not None and start is not None, "rows with known times"
        # Times are rounded to milliseconds.
        if limit is None or end <= limit + 1:
            path.append(row)
            limit = start
    above = _above_unplaced(depths, starts, durations)
    took = {
        row: took for row, took in enumerate(durations) if took is not None and not waiting[row] and row not in above
    }
    on_path = set(path)
    longest = max((row for row in took if row in on_path or starts[row] is None), key=took.__getitem__, default=None)
    others = max((one for row, one in took.items() if row != longest), default=0)
    most = 0 if longest is None else took[longest]
    is_clear = most > CLEARLY_LONGER * others and LEAST_PART * most >= (took_ms or 0)
    return CriticalPath(path[::-1], longest if is_clear else None)


def _above_unplaced(depths: Sequence[int], starts: Sequence[int | None], durations: Sequence[int | None]) -> set[int]:
    """Return the rows that may only have waited for a row below them, whose duration is known, because one of both has no known
    start."""
    waiting: set[int] = set()
    above: list[int] = []
    for row, depth in enumerate(depths):
        del above[depth:]
        if durations[row] is not None:
            waiting.update(one for one in above if starts[one] is None or starts[row] is None)
        above.append(row)
    return waiting


def _waiting(depths: Sequence[int], starts: Sequence[int | None], ends: Sequence[int | None]) -> list[bool]:
    """Return for each row whether a row below it ran in its time."""
    waiting = [False] * len(depths)
    above: list[int] = []
    for row, depth in enumerate(depths):
        del above[depth:]
        start = starts[row]
        if start is not None:
            for one in above:
                begun, end = starts[one], ends[one]
                waiting[one] = waiting[one] or (begun is not None and end is not None and begun <= start < end)
        above.append(row)
    return waiting
