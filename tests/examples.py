"""How many examples a property test draws: few on each run, because every run draws others. `make fuzz` draws many."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("TEST_EXAMPLES", "1"))


def examples(usual: int) -> int:
    """Return `usual`, times `TEST_EXAMPLES` of the environment."""
    return usual * FACTOR
