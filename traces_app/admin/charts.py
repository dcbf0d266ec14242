"""Bars over time, drawn by the server as SVG: each bar, or each part of it, leads to the rows behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from traces_app.queries.overview import Width

_HEIGHT = 100
_UNKNOWN_HEIGHT = 6
_FORMS: dict[Width, str] = {"minute": "%Y-%m-%d %H:%M", "hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "month": "%Y-%m"}


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A part of a bar before it is drawn."""

    value: float
    kind: str
    """The colour: the CSS class is `bar-{kind}`."""
    title: str = ""
    url: str = ""
    """Both empty if they are those of the bar."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The amounts of a minute, hour, day or month."""

    title: str
    url: str
    amounts: Sequence[Amount]
    """From the bottom to the top."""
    unknown: str = ""
    """Says which part has no known amount. It is drawn on top, in one height whatever it is."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A rectangle of a bar, in the units of the view box."""

    y: float
    height: float
    kind: str
    title: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    x: int
    title: str
    url: str
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A bar for each slot, all to one scale."""

    bars: list[Bar]
    most: float
    """The largest sum of a bar."""

    @property
    def width(self) -> int:
        """Width of the view box."""
        return 10 * len(self.bars)


def chart_of(slots: Sequence[Slot]) -> Chart:
    most = max((sum(amount.value for amount in slot.amounts) for slot in slots), default=0)
    room = _HEIGHT - (_UNKNOWN_HEIGHT if any(slot.unknown for slot in slots) else 0)
    bars = []
    for index, slot in enumerate(slots):
        bar = Bar(x=10 * index, title=slot.title, url=slot.url)
        top = float(_HEIGHT)
        for amount in slot.amounts:
            if amount.value:
                height = room * amount.value / most
                top -= height
                bar.parts.append(_part(top, height, amount.kind, amount.title or slot.title, amount.url or slot.url))
        if slot.unknown:
            bar.parts.append(_part(top - _UNKNOWN_HEIGHT, _UNKNOWN_HEIGHT, "unknown", slot.unknown, slot.url))
        bars.append(bar)
    return Chart(bars=bars, most=most)


def name_of(begin: datetime, width: Width) -> str:
    """Return the name of a minute, hour, day or month in the reader's zone, with the zone."""
    return f"{timezone.localtime(begin):{_FORMS[width]}} {timezone.get_current_timezone_name()}"


def _part(y: float, height: float, kind: str, title: str, url: str) -> Part:
    return Part(y=round(y, 2), height=round(height, 2), kind=kind, title=title, url=url)
