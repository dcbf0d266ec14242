"""A whole Tracesite of its own for the tests that break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.faults.site import Site, running


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Whoever stops a part of it starts it again."""
    with running() as site:
        yield site
