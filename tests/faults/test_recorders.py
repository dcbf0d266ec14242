"""Agents whose server is away, and agents that are killed: what they recorded arrives once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults.recorders import DELAY_MS, OUTAGES, SLACK_MS, kills, outages
from benchmarks.faults.site import Site

pytestmark = pytest.mark.system


def test_server_that_is_away_gets_everything_once_later(site: Site, tmp_path: Path) -> None:
    found = outages(site, tmp_path, 500, pause_ms=0.5)
    assert [one.kind for one in found] == list(OUTAGES)
    for one in found:
        assert (one.left, one.watched.dropped) == (0, 0), one
        # The time of a call is a millisecond at most where nobody else uses the processor; a call that waits for the server
        # takes seconds.
        assert one.watched.p99 < 500_000, one
        # Two seconds, and more where others use the processor; a server that answers would have 30.
        assert one.exit_seconds < 20, one


@pytest.mark.parametrize("is_away", [False, True])
def test_kill_loses_only_what_the_worker_has_not_written(site: Site, tmp_path: Path, is_away: bool) -> None:
    directory = tmp_path / f"killed-{'away' if is_away else 'there'}"
    for one in kills(site, directory, range(4, 6), is_away=is_away, longest_ms=250):
        assert one.doubled == 0, one
        assert one.worked > 20, one
        # On a machine that does other things the worker may be let run later.
        assert one.oldest_lost_ms < DELAY_MS + 10 * SLACK_MS, one
