"""Results as lines of a table and as JSON."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

Better = Literal["more", "less"]


class Bar(msgspec.Struct, frozen=True):
    """Required limit of a figure or of its ratio to the floor."""

    value: float
    better: Better

    def is_met(self, value: float) -> bool:
        return value >= self.value if self.better == "more" else value <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.better == 'more' else '≤'} {self.value:g}"


def at_least(value: float) -> Bar:
    return Bar(value, "more")


def at_most(value: float) -> Bar:
    return Bar(value, "less")


@dataclass(frozen=True, kw_only=True)
class Line:
    """Figure measured in several runs, with its floor in the same runs."""

    name: str
    unit: str
    runs: Sequence[float]
    floors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Runs of each way of the floor; the best way counts."""
    better: Better = "less"
    bar: Bar | None = None
    """Limit of the ratio, or of the figure if there is no floor."""
    beside: Mapping[str, float | None] = field(default_factory=dict)
    """Other figures of the same runs."""

    @property
    def figure(self) -> float:
        return statistics.median(self.runs)

    @property
    def best_floor(self) -> str | None:
        if not self.floors:
            return None
        sign = -1 if self.better == "more" else 1
        return min(self.floors, key=lambda way: sign * statistics.median(self.floors[way]))

    @property
    def floor(self) -> float | None:
        return None if self.best_floor is None else statistics.median(self.floors[self.best_floor])

    @property
    def ratio(self) -> float | None:
        return self.figure / self.floor if self.floor else None

    @property
    def is_met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.bar.is_met(self.figure if self.ratio is None else self.ratio)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "figure": self.figure,
            "floor": self.floor,
            "floor_by": self.best_floor,
            "ratio": self.ratio,
            "bar": None if self.bar is None else str(self.bar),
            "is_met": self.is_met,
            "runs": list(self.runs),
            "floors": {way: list(runs) for way, runs in self.floors.items()},
            "beside": dict(self.beside),
        }


@dataclass(kw_only=True)
class Report:
    """Lines of a run, and the conditions that they depend on."""

    circumstances: dict[str, str]
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Add a line and print it with its other figures, which the table omits."""
        self.lines.append(line)
        beside = "".join(f"  {name} {_number(value)}" for name, value in line.beside.items() if value is not None)
        print(_row(line) + beside, flush=True)

    def table(self) -> str:
        return "\n".join([_HEAD, "-" * len(_HEAD), *map(_row, self.lines)])

    def as_json(self) -> bytes:
        document = {
            "circumstances": self.circumstances,
            "load_at_end": os.getloadavg()[0],
            "lines": [line.as_json() for line in self.lines],
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


_HEAD = f"{'':44} {'Tracesite':>10} {'floor':>10} {'':6} {'ratio':>6} {'bar':>7}"


def _row(line: Line) -> str:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    bar = "" if line.bar is None else f"{line.bar}"
    missed = "  missed" if line.is_met is False else ""
    floor = "" if line.floor is None else _number(line.floor)
    return f"{line.name:44} {_number(line.figure):>10} {floor:>10} {line.unit:6} {ratio:>6} {bar:>7}{missed:8}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
