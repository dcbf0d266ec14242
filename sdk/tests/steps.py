"""Count the lines of Python that a reader executes, so that a loop without an end fails a test on a machine of any speed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


class TooManySteps(AssertionError):
    """More lines were executed than allowed."""


@dataclass
class Count:
    lines: int = 0


@contextmanager
def at_most(most: float) -> Iterator[Count]:
    """Raise TooManySteps in the code of the block, wherever it is, once it has executed `most` lines. Yield their count."""
    count = Count()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            count.lines += 1
            if count.lines > most:
                raise TooManySteps(f"{frame.f_code.co_filename}:{frame.f_lineno}: more than {most} lines were executed")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
