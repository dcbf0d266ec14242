"""A row of small bars without axes, for a cell of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_HEIGHT = 100
_LEAST = 4


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar in the units of the view box."""

    x: int
    y: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    bars: list[Bar]

    @property
    def width(self) -> int:
        """Width of the view box."""
        return 10 * len(self.bars)


def sparkline(values: Sequence[float | None], most: float | None = None) -> Sparkline:
    """Return a bar for each value, but for None; one of zero or less is a line.

    `most` is the value of the full height, without it that of the highest.
    """
    known = [value for value in values if value is not None]
    highest = max(known, default=0) if most is None else most
    bars = []
    for at, value in enumerate(values):
        share = max(value, 0) / highest if value is not None and highest > 0 else 0
        height = 0 if value is None else max(round(_HEIGHT * share, 2), _LEAST)
        bars.append(Bar(x=10 * at, y=_HEIGHT - height, height=height))
    return Sparkline(bars=bars)
