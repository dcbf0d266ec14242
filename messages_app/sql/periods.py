"""Periods: the days, weeks or months by which large tables are partitioned."""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from access_app.conf import conf
from tracesite_sdk.records import ids

_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_SUFFIX = re.compile(r"y([0-9]{4})m([0-9]{2})(?:d([0-9]{2})(w?))?")
_TEXT = re.compile(r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2})(-week)?)?")
LEAF_PATTERN = "_y[0-9]{4}m[0-9]{2}(d[0-9]{2}w?)?$"
"""A regular expression of PostgreSQL for the end of a leaf's name."""


class Length(StrEnum):
    """The length of a new period. The shorter ones divide the longer ones, so periods of all lengths fit beside each other."""

    DAY = "DAY"
    WEEK = "WEEK"
    """From the 1st, 8th, 15th, 22nd or 29th of a month; what is after the 28th is a week of at most three days."""
    MONTH = "MONTH"


class Period(NamedTuple):
    """A day, week or calendar month, UTC. Earlier ones sort first."""

    begin: date
    end: date
    """The day after the last one."""

    @classmethod
    def of(cls, instant: datetime, length: Length | None = None) -> Period:
        """Return the period with this time that would be made now, or the one of another length."""
        return _period(instant.astimezone(UTC).date(), Length(length or conf.PARTITIONS))

    @classmethod
    def month(cls, year: int, month: int) -> Period:
        return _period(date(year, month, 1), Length.MONTH)

    @classmethod
    def parse(cls, text: str) -> Period:
        """Return the period of a text such as 2026-01, 2026-01-08-week or 2026-01-31. Raise ValueError."""
        return _parsed(_TEXT.fullmatch(text), text)

    @classmethod
    def of_leaf(cls, name: str) -> Period:
        """Return the period of a partition from its name."""
        suffix = name.rpartition("_")[2]
        return _parsed(_SUFFIX.fullmatch(suffix), name)

    @property
    def length(self) -> Length:
        if self.end - self.begin == _DAY:
            return Length.DAY
        return Length.MONTH if self.end == _next_month(self.begin) and self.begin.day == 1 else Length.WEEK

    @property
    def first_id(self) -> UUID:
        return _first_id(self.begin)

    @property
    def after_id(self) -> UUID:
        return ids.END_OF_TIME if self.end == date.max else _first_id(self.end)

    @property
    def begins_at(self) -> datetime:
        return datetime(self.begin.year, self.begin.month, self.begin.day, tzinfo=UTC)

    @property
    def ends_at(self) -> datetime:
        return datetime(self.end.year, self.end.month, self.end.day, tzinfo=UTC)

    def covers(self, other: Period) -> bool:
        return self.begin <= other.begin and other.end <= self.end

    def overlaps(self, other: Period) -> bool:
        return self.begin < other.end and other.begin < self.end

    def parts(self) -> Iterator[Period]:
        """Yield the weeks of a month, or the days of a week."""
        shorter = Length.WEEK if self.length is Length.MONTH else Length.DAY
        day = self.begin
        while day < self.end:
            part = _period(day, shorter)
            yield part
            day = part.end

    def leaf(self, table: str) -> str:
        """Return the name of the partition of a table."""
        day = {Length.MONTH: "", Length.WEEK: f"d{self.begin:%d}w", Length.DAY: f"d{self.begin:%d}"}[self.length]
        return f"{table}_y{self.begin.year:04}m{self.begin.month:02}{day}"

    def __str__(self) -> str:
        day = {Length.MONTH: "", Length.WEEK: f"-{self.begin:%d}-week", Length.DAY: f"-{self.begin:%d}"}[self.length]
        return f"{self.begin.year:04}-{self.begin.month:02}{day}"


def period_at(periods: Sequence[Period], instant: datetime) -> Period | None:
    """Return the period with this time among periods in order that do not overlap."""
    day = instant.astimezone(UTC).date()
    at = bisect_right(periods, day, key=_begin) - 1
    return periods[at] if at >= 0 and day < periods[at].end else None


def parts_beside(existing: Sequence[Period], period: Period) -> Iterator[Period]:
    """Yield the periods that cover `period`: existing ones, and where none is, the longest that fit."""
    around = [other for other in existing if other.overlaps(period)]
    if not around:
        yield period
    elif any(other.covers(period) for other in around):
        yield from around
    else:
        for part in period.parts():
            yield from parts_beside(around, part)


def _begin(period: Period) -> date:
    return period.begin


def _parsed(match: re.Match[str] | None, text: str) -> Period:
    if match is None:
        raise ValueError(f"{text!r} is not the name of a period")
    year, month, day, week = match.groups()
    period = _period(date(int(year), int(month), int(day or 1)), _length(day, week))
    if day and period.begin.day != int(day):
        raise ValueError(f"{text!r}: no week begins on that day")
    return period


def _length(day: str | None, week: str | None) -> Length:
    if day is None:
        return Length.MONTH
    return Length.WEEK if week else Length.DAY


@lru_cache(maxsize=4096)
def _period(day: date, length: Length) -> Period:
    month_ends = _next_month(day)
    match length:
        case Length.DAY:
            return Period(day, _later(day, _DAY))
        case Length.WEEK:
            begin = day - timedelta(days=(day.day - 1) % 7)
            return Period(begin, min(_later(begin, _WEEK), month_ends))
        case Length.MONTH:
            return Period(day.replace(day=1), month_ends)


def _next_month(day: date) -> date:
    return _later(day.replace(day=1), timedelta(days=monthrange(day.year, day.month)[1]))


def _later(day: date, time: timedelta) -> date:
    # Filters may name the last day that there is.
    return day + time if date.max - day >= time else date.max


@lru_cache(maxsize=4096)
def _first_id(day: date) -> UUID:
    return ids.first_id_of_day(day)
