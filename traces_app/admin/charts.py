"""Charts over time, drawn by the server as SVG that needs no script: bars and lines with their axes, a mark since when something
changed, and the figures of each slot as words that hovering over it or focusing it shows.

Each bar, or each part of it, leads to the rows behind it. Texts are in the units of the view box, so that they stand at their places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.contrib.humanize.templatetags.humanize import intcomma
from django.utils import timezone
from django.utils.translation import gettext as _

from messages_app.safe_text import duration

LEFT, RIGHT, TOP, BOTTOM = 44, 316, 18, 110
"""The edges of the plot in the view box of `chart.html`."""
_UNKNOWN_HEIGHT = 6
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
_MOST_LABELS = 5
_FILLED = 0.8
"""The part of the width of a slot that its bar has."""
_DAY = timedelta(days=1)
_CHARACTER, _NOW = 7, 28
"""Room for a character of a label of the time axis, in a wide font, and for the word at its end."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A part of a bar before it is drawn."""

    value: float
    kind: str
    """The colour: the CSS class is `bar-{kind}`."""
    words: str = ""
    url: str = ""
    """Both empty if they are those of the bar."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The amounts of a minute, hour, day or month."""

    begin: datetime
    words: str
    url: str = ""
    amounts: Sequence[Amount] = ()
    """From the bottom to the top."""
    unknown: str = ""
    """Says which part has no known amount. It is drawn on top, in one height whatever it is."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A rectangle of a bar."""

    y: float
    height: float
    kind: str
    words: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    x: float
    inner_x: float
    """Where its parts begin, which leave a gap to the next bar."""
    words: str
    url: str
    parts: list[Part] = field(default_factory=list)
    cut: str = ""
    """The amount, if the bar is cut off at the top."""

    @property
    def is_cut_said_before(self) -> bool:
        """Return whether there is room for the amount before the bar, beside the labels of the axis."""
        return self.x - _CHARACTER * len(self.cut) > LEFT


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line across the plot with its label."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Line:
    kind: str
    """The CSS class is `line-{kind}`."""
    points: list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Chart:
    bars: list[Bar]
    lines: list[Line]
    levels: list[Mark]
    times: list[Mark]
    since: Mark | None
    width: float
    """Of a slot."""
    inner_width: float
    is_open: bool
    """Whether the last slot is that of now."""


def chart_of(
    slots: Sequence[Slot],
    *,
    label: Callable[[float], str],
    scale: Callable[[float], float],
    lines: Mapping[str, Mapping[datetime, float]] | None = None,
    since: datetime | None = None,
    is_open: bool = False,
) -> Chart:
    """Draw slots of equal widths, at least one.

    `scale` returns the value at the top of the axis for the largest one, and `label` the words for a value. `lines` have a value
    for the beginnings of slots, by their kinds.
    """
    lines = lines or {}
    sums = [sum(amount.value for amount in slot.amounts) for slot in slots]
    highest = _without_outliers([*sums, *(value for line in lines.values() for value in line.values())])
    top = scale(highest)
    width = (RIGHT - LEFT) / len(slots)
    room = BOTTOM - TOP - (_UNKNOWN_HEIGHT if any(slot.unknown for slot in slots) else 0)
    places = {slot.begin: round(LEFT + index * width, 2) for index, slot in enumerate(slots)}
    bars = [
        _bar(slot, places[slot.begin], width, room / top, label(total) if total > top else "")
        for slot, total in zip(slots, sums, strict=True)
    ]
    middles = {begin: round(x + width / 2, 2) for begin, x in places.items()}
    drawn = [
        Line(
            kind=kind,
            points=[
                (middles[begin], round(BOTTOM - room * min(value / top, 1), 2))
                for begin, value in sorted(values.items())
                if begin in middles
            ],
        )
        for kind, values in lines.items()
    ]
    return Chart(
        bars=bars,
        lines=[line for line in drawn if line.points],
        levels=[Mark(at=round(BOTTOM - room * part, 2), label=label(part * top)) for part in (0, 0.5, 1)],
        times=_times(places, RIGHT - _NOW if is_open else RIGHT),
        since=_since(places, since, width),
        width=round(width, 2),
        inner_width=round(_FILLED * width, 2),
        is_open=is_open,
    )


def name_of(begin: datetime, step: timedelta) -> str:
    """Return the name of a minute, hour, day or month in the reader's zone."""
    form = "%Y-%m-%d %H:%M" if step < _DAY else "%Y-%m-%d" if step < 28 * _DAY else "%Y-%m"
    return f"{timezone.localtime(begin):{form}}"


def round_number(most: float) -> float:
    """Return the smallest round number that is not below `most` and of which half is as round; of whole numbers 2 at least."""
    return max(_round_above(most), 2)


def round_cost(most: float) -> float:
    return _round_above(most) if most else 1


def round_duration(most: float) -> float:
    """Return a round number of milliseconds, seconds, minutes or hours."""
    unit = next((unit for unit in (_HOUR, _MINUTE, _SECOND) if most > unit), 1)
    return unit * round_number(most / unit)


def duration_label(milliseconds: float) -> str:
    """Return a round duration without the zeros of `duration`."""
    if not milliseconds:
        return "0"
    if milliseconds >= _HOUR:
        return _("%(number)g h") % {"number": milliseconds / _HOUR}
    if milliseconds >= _MINUTE:
        return _("%(number)g min") % {"number": milliseconds / _MINUTE}
    return duration(milliseconds) if milliseconds < _SECOND else _("%(number)g s") % {"number": milliseconds / _SECOND}


def number_label(number: float) -> str:
    """Return a number in at most six characters: 40, 4,000, 400 k, 40 M."""
    for unit, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= unit * (10 if unit == 1000 else 1):
            return f"{number / unit:.3g} {letter}"
    return str(intcomma(round(number)))


def _round_above(most: float) -> float:
    power = 1.0
    while power > most > 0:
        power /= 10
    while 10 * power < most:
        power *= 10
    return next(step * power for step in (1, 1.2, 1.6, 2, 4, 6, 8, 10) if step * power >= most * (1 - 1e-9))


def _without_outliers(values: Sequence[float]) -> float:
    """Return the largest value; twice the 90th percentile if it is more than 4 times as large, so that one run does not flatten
    all others."""
    known = sorted(value for value in values if value)
    if not known:
        return 0
    high = known[int(0.9 * (len(known) - 1))]
    return 2 * high if len(known) >= 5 and known[-1] > 4 * high else known[-1]


def _bar(slot: Slot, x: float, width: float, unit: float, cut: str) -> Bar:
    bar = Bar(x=x, inner_x=round(x + width * (1 - _FILLED) / 2, 2), words=slot.words, url=slot.url, cut=cut)
    bottom = float(BOTTOM)
    for amount in slot.amounts:
        top = max(bottom - unit * amount.value, TOP)
        if top < bottom:
            words, url = amount.words or slot.words, amount.url or slot.url
            bar.parts.append(_part(top, bottom - top, amount.kind, words, url))
        bottom = top
    if slot.unknown:
        bar.parts.append(_part(bottom - _UNKNOWN_HEIGHT, _UNKNOWN_HEIGHT, "unknown", slot.unknown, slot.url))
    return bar


def _part(y: float, height: float, kind: str, words: str, url: str) -> Part:
    return Part(y=round(y, 2), height=round(height, 2), kind=kind, words=words, url=url)


def _times(places: Mapping[datetime, float], right: float) -> list[Mark]:
    """Return the labels of the time axis, which ends at `right`, at round times where there are enough of them."""
    begins = [timezone.localtime(begin) for begin in places]
    length = max(places) - min(places)
    if length > _DAY * 400:
        form, is_round = "%Y-%m", [begin.month == 1 for begin in begins]
    elif length > _DAY * 2:
        days = [begin.date() for begin in begins]
        is_first = [not at or days[at - 1] != day for at, day in enumerate(days)]
        form, is_round = "%m-%d", [first and begin.hour < 6 for first, begin in zip(is_first, begins, strict=True)]
    else:
        form, is_round = "%H:%M", [begin.hour % 6 == 0 and begin.minute == 0 for begin in begins]
        if sum(is_round) < 3:
            is_round = [begin.minute % 15 == 0 for begin in begins]
    chosen = [index for index, is_chosen in enumerate(is_round) if is_chosen]
    chosen = chosen if len(chosen) > 1 else list(range(len(begins)))
    step = -(-len(chosen) // _MOST_LABELS)
    xs = list(places.values())
    marks: list[Mark] = []
    for index in chosen[::step]:
        mark = Mark(at=xs[index], label=f"{begins[index]:{form}}")
        room = _CHARACTER * len(mark.label)
        if mark.at + room <= right and (not marks or marks[-1].at + room <= mark.at):
            marks.append(mark)
    return marks


def _since(places: Mapping[datetime, float], since: datetime | None, width: float) -> Mark | None:
    """Return the mark of a time within the slots, whose length is that between the first two; None for any other time."""
    begins = list(places)
    if since is None or not begins[0] <= since or len(begins) < 2:
        return None
    index = bisect_right(begins, since) - 1
    part = (since - begins[index]) / (begins[1] - begins[0])
    if part >= 1:
        return None
    form = "%m-%d %H:%M" if begins[-1] - begins[0] > _DAY else "%H:%M"
    return Mark(at=round(places[begins[index]] + part * width, 2), label=f"{timezone.localtime(since):{form}}")
