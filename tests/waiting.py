"""Wait in tests for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], *, seconds: float = 120, pause: float = 0.02) -> None:
    """Wait until the condition holds. Raise AssertionError if it takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(pause)
