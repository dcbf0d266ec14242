"""Trees of rows that name their parents, of any depth and also hostile ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
Value = TypeVar("Value")


def cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """Return the ids on each cycle of parents, which senders may have made by mistake or to make readers loop.

    `parents` are the ids of the parents by the ids of their rows; a parent may be unknown.
    """
    loops = []
    seen: set[str] = set()
    for start in parents:
        path: dict[str, int] = {}
        above: str | None = start
        while above is not None and above in parents and above not in seen:
            seen.add(above)
            path[above] = len(path)
            above = parents[above]
        if above is not None and above in path:
            loops.append([*path][path[above] :])
    return loops


def walk(roots: Iterable[Row], children: Callable[[Row], Sequence[Row]]) -> list[Row]:
    """Return the roots and all rows below them, each followed by those below it."""
    rows = []
    waiting = [*roots][::-1]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        waiting += reversed(children(row))
    return rows


class NearestAbove(Generic[Value]):
    """Values of rows that can be found from below, in logarithmic time and whatever the order in which they become known.

    The rows are numbered in the order of `walk`, so those below a row have the numbers that follow it.
    """

    def __init__(self, count: int) -> None:
        """`count` is that of the rows."""
        self._count = count
        self._values: list[tuple[int, Value] | None] = [None] * (2 * count)
        """A segment tree: `count + number` is the leaf of a row, and half of an index that of the segment around it."""

    def put(self, row: int, end: int, value: Value) -> None:
        """Give a value to a row; those below it have the numbers from `row + 1` up to and without `end`."""
        segments = []
        low, high = row + 1 + self._count, end + self._count
        while low < high:
            segments += [low] if low % 2 else []
            segments += [high - 1] if high % 2 else []
            low, high = (low + 1) // 2, high // 2
        for segment in segments:
            known = self._values[segment]
            if known is None or known[0] < row:
                self._values[segment] = row, value

    def find(self, row: int) -> Value | None:
        """Return the value of the nearest row above this one that has a value."""
        nearest: tuple[int, Value] | None = None
        segment = row + self._count
        while segment:
            value = self._values[segment]
            if value is not None and (nearest is None or value[0] > nearest[0]):
                nearest = value
            segment //= 2
        return nearest[1] if nearest is not None else None
