"""Since when a series is higher or lower than before: one change of its mean. Pure functions.

The change is at the split that leaves the smallest sum of squared errors around the means of both sides, which is the most
likely one for normal errors of one variance (Hinkley 1970, "Inference about the change-point in a sequence of random variables",
Biometrika 57). It counts if the F statistic of this split exceeds the asymptotic 1 % value of its supremum over all splits
(Andrews 1993, "Tests for parameter instability and structural change with unknown change point", Econometrica 61, table 1:
12.35 for one parameter, 15 % left out at both ends; of 24 points of noise 3 % exceed it). Two kinds of series are left out: those
that a straight line fits better, because they drifted and changed at no time, and those of which the median of a side is not
beyond the middle of both means, because a few outliers made its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from statistics import median

_F = 12.35
LEAST_POINTS = 3
"""Points on both sides: a single outlier is no change."""
LEAST_CALLS = 5
"""Calls on both sides."""
_SMALLEST_ERROR = 1e-9
"""Squared errors below this are those of floating-point numbers."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The mean of a value over some calls, from `at` on. Its weight is the number of calls, because the variance of a mean is
    inversely proportional to it."""

    at: datetime
    value: float
    calls: int


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    last: datetime
    """The beginning of the last point before the change."""
    at: datetime
    """That of the first point after it."""
    before: float
    after: float
    """The means of both sides."""

    @property
    def middle(self) -> float:
        return (self.before + self.after) / 2


def change_point(points: Sequence[Point], *, least_after: int | None = None) -> ChangePoint | None:
    """Return the change of a series in the order of time; None if it has none, or too few points or calls to tell.

    `least_after` is the number of points and of calls that suffice after a change, for values that are given rarely.
    """
    points_after, calls_after = (LEAST_POINTS, LEAST_CALLS) if least_after is None else (least_after, least_after)
    if len(points) < LEAST_POINTS + points_after:
        return None
    weights = [0, *accumulate(point.calls for point in points)]
    sums = [0.0, *accumulate(point.calls * point.value for point in points)]
    squares = [0.0, *accumulate(point.calls * point.value**2 for point in points)]

    def mean(first: int, after: int) -> float:
        return (sums[after] - sums[first]) / (weights[after] - weights[first])

    def error(first: int, after: int) -> float:
        return max(squares[after] - squares[first] - (weights[after] - weights[first]) * mean(first, after) ** 2, 0)

    end = len(points)
    splits = [
        split
        for split in range(LEAST_POINTS, end - points_after + 1)
        if weights[split] >= LEAST_CALLS and weights[end] - weights[split] >= calls_after
    ]
    if not splits:
        return None
    split = min(splits, key=lambda split: error(0, split) + error(split, end))
    whole, rest = error(0, end), error(0, split) + error(split, end)
    if whole <= _SMALLEST_ERROR or (whole - rest) * (end - 2) <= _F * rest or rest > _error_of_line(points):
        return None
    before, after = mean(0, split), mean(split, end)
    medians = [median(point.value for point in side) for side in (points[:split], points[split:])]
    middle = (before + after) / 2
    if not (medians[0] < middle < medians[1] or medians[1] < middle < medians[0]):
        return None
    # Where a side has few points, the split that leaves it LEAST_POINTS takes some of the other side to it.
    is_later = [(point.value > middle) == (after > before) for point in points]
    while not is_later[split]:
        split += 1
    while is_later[split - 1]:
        split -= 1
    return ChangePoint(last=points[split - 1].at, at=points[split].at, before=mean(0, split), after=mean(split, end))


def _error_of_line(points: Sequence[Point]) -> float:
    """Return the sum of squared errors around the straight line that fits best."""
    weight = sum(point.calls for point in points)
    times = [(point.at - points[0].at).total_seconds() for point in points]
    middle = sum(point.calls * time for point, time in zip(points, times, strict=True)) / weight
    mean = sum(point.calls * point.value for point in points) / weight
    both = [(point.calls, time - middle, point.value - mean) for point, time in zip(points, times, strict=True)]
    spread = sum(calls * time**2 for calls, time, _value in both)
    slope = sum(calls * time * value for calls, time, value in both) / spread
    return sum(calls * (value - slope * time) ** 2 for calls, time, value in both)
