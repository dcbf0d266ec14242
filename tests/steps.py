"""Count the lines of Python that a reader executes, so that a loop without an end fails a test on a machine of any speed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class TooManySteps(AssertionError):
    """More lines were executed than allowed."""


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """Raise TooManySteps in the code of the block, wherever it is, once it has executed `most` lines."""
    left = most

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise TooManySteps(f"{frame.f_code.co_filename}:{frame.f_lineno}: more than {most} lines were executed")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
