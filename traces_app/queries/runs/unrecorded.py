"""The times of a run that its steps and calls leave out: nothing ran, or it was not recorded, and the trace cannot tell which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from messages_app.models import Message

from .outline import Outline

_PENDING = 0


class Gap(NamedTuple):
    """A time in which no step or call is known to have run."""

    ms: int
    before: int | None
    """The row that began after it; None at the end of the run."""


class Unrecorded(NamedTuple):
    """The gaps of a run, in order."""

    total_ms: int
    """The duration of the run, or of its rows if that is unknown."""
    gaps: Sequence[Gap]


def unrecorded(outline: Outline, run: Message) -> Unrecorded:
    """Return what the rows of a run leave out; no gaps if no start is known.

    A call without a result may have run until the end. Of a run that goes on, or has no end, only the time between its rows counts.
    """
    timed = sorted(
        (start, start + (outline.took(row) or 0), row)
        for row in range(len(outline.ids))
        if (start := _begin_of(outline, row)) is not None
    )
    if not timed or outline.origin is None:
        return Unrecorded(0, [])
    begin = end = timed[0][0]
    until = max(ended for _start, ended, _row in timed)
    if run.completed_at is not None and run.duration_ms is not None:
        begun = round(run.created_at.timestamp() * 1000) - outline.origin
        begin = end = min(begin, begun)
        until = max(until, begun + run.duration_ms)
    gaps = []
    for start, ended, row in timed:
        if start > end:
            gaps.append(Gap(start - end, row))
        end = max(end, until if outline.statuses[row] == _PENDING else ended)
    if until > end:
        gaps.append(Gap(until - end, None))
    return Unrecorded(until - begin, gaps)


def _begin_of(outline: Outline, row: int) -> int | None:
    """Return when a row began, or the step for which it stands."""
    step = outline.steps.get(row)
    return outline.starts[row] if step is None or step.start is None else step.start
