"""Measure two sides in turns, so that both meet the same load of the machine."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TypeVar

Side = TypeVar("Side", bound=str)


def in_turns(turn: Callable[[Side], float], sides: tuple[Side, Side], runs: int) -> dict[Side, list[float]]:
    """Return the seconds of each side in each run, as `turn` gives them; the sides take turns in being the first."""
    seconds: dict[Side, list[float]] = {side: [] for side in sides}
    for run in range(runs + 1):
        for side in sides if run % 2 else reversed(sides):
            took = turn(side)
            # The first run only warms up connections and plans.
            if run:
                seconds[side].append(took)
    return seconds


def print_turns(name: str, seconds: dict[Side, list[float]], requests: int) -> None:
    """Print the milliseconds a request of both sides, and the median, least and largest ratio of the first to the second."""
    (one, first), (other, second) = seconds.items()
    ratios = sorted(left / right for left, right in zip(first, second, strict=True))
    print(
        f"{name}: {1000 * median(first) / requests:.2f} ms a request {one}, {1000 * median(second) / requests:.2f} {other};"
        f" ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )
