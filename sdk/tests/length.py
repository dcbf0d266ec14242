"""How much a run of the tests does: as much as a change needs, or more of what other tests show in part.

`TEST_AT_LENGTH=1` runs the tests that take minutes, all cases of large tables, and more kills of each kind. `TEST_EXAMPLES=25` draws
25 times as many examples for each property: few are drawn on each run, because every run draws others.
"""

from __future__ import annotations

import os

import hypothesis
import pytest

AT_LENGTH = "TEST_AT_LENGTH" in os.environ
FACTOR = int(os.environ.get("TEST_EXAMPLES", "1"))

at_length = pytest.mark.skipif(not AT_LENGTH, reason="it takes a minute: TEST_AT_LENGTH=1")


def examples(usual: int) -> int:
    """Return how many examples a property test draws: `usual`, times `TEST_EXAMPLES`."""
    return usual * FACTOR


def kills(most: int) -> int:
    """Return how often a test kills a process: once, or `most` times at length."""
    return most if AT_LENGTH else 1


def load_profile() -> None:
    """Set how property tests of the server and the SDK run."""
    # How long an example takes says more about the machine than about the code.
    hypothesis.settings.register_profile(
        "ours", deadline=None, max_examples=examples(10), suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("ours")
