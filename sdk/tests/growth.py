"""Whether something takes linear time, told by comparing two sizes on the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def grows_linearly(work: Callable[[Any], object], made: Callable[[int], Any], size: int, spare: float) -> bool:
    """Return whether `work` on what is made of `size` takes less than 24 times as long as of an eighth of it, or `spare` seconds more.

    Quadratic time would be 64 times as long. A busy machine may disturb a measurement, so a bad one is repeated, up to three times.
    """
    return any(
        _seconds(work, made(size)) < 24 * min(_seconds(work, made(size // 8)) for _again in range(2)) + spare
        for _attempt in range(3)
    )


def _seconds(work: Callable[[Any], object], on: Any) -> float:
    with without_collections():
        begin = time.process_time()
        work(on)
        return time.process_time() - begin


@contextmanager
def without_collections() -> Iterator[None]:
    """Look for no garbage: that looks at all that other tests have left, and is done more often the more is made."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
