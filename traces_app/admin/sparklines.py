"""A row of small bars without axes, for a cell of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HEIGHT = 100
_LEAST = 4


@dataclass(frozen=True, kw_only=True)
class Part:
    """A rectangle of a bar in the units of the view box."""

    kind: str
    """The CSS class is `bar-{kind}`."""
    x: int
    y: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    parts: list[Part]
    width: int
    """Width of the view box."""


def sparkline(values: Sequence[float | None], kind: str) -> Sparkline:
    """Return a bar for each value, but for None; one of zero or less is a line, and the highest has the full height."""
    known = [value for value in values if value is not None]
    highest = max(known, default=0) or 1
    # What has a value is seen.
    shares = [None if value is None else max(max(value, 0) / highest, _LEAST / _HEIGHT) for value in values]
    return stacks([{} if share is None else {kind: share} for share in shares], 1)


def stacks(values: Sequence[Mapping[str, float]], most: float) -> Sparkline:
    """Return a bar for each place, of its amounts by their kinds from the bottom to the top; `most` has the full height."""
    parts = []
    for at, amounts in enumerate(values):
        y = float(_HEIGHT)
        for kind, amount in amounts.items():
            height = _HEIGHT * amount / most
            y -= height
            if height:
                parts.append(Part(kind=kind, x=10 * at, y=round(y, 2), height=round(height, 2)))
    return Sparkline(parts=parts, width=10 * len(values))
