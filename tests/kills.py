"""How often a test kills a process: once on each run, more often in `make test-kills`."""

from __future__ import annotations

import os

HAS_ALL = "TEST_KILLS" in os.environ


def kills(most: int) -> int:
    """Return `most` with `TEST_KILLS` in the environment, else 1."""
    return most if HAS_ALL else 1
