"""The cache of runs: the latest state of recently used runs, for a limited time."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from access_app.db import primary
from traces_app.events import run_cache
from traces_app.events.run_cache import RunCache, RunSoFar, recall, remember, run_id
from tracesite_sdk.events.projection import Subject
from tracesite_sdk.events.step_order import laid_out

SESSION = UUID(int=1)


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    before = run_cache._cache
    yield
    run_cache.use(before)


def put(run: int, seq: int, steps: int = 1) -> None:
    layout = laid_out({f"step:{number}": Subject((number, 0), "", "", None, "") for number in range(steps)})
    remember(primary, SESSION, UUID(int=run), f"run {run}", RunSoFar(seq=seq, layout=layout))


def seqs(*runs: int) -> list[int]:
    return [recall(primary, SESSION, UUID(int=run)).seq for run in runs]


def test_later_state_is_not_replaced_by_an_earlier_one() -> None:
    run_cache.use(RunCache())
    for seq in (3, 5, 4):
        put(1, seq)
    assert seqs(1, 2) == [5, 0]


def test_runs_used_longest_ago_are_dropped_when_it_is_full() -> None:
    run_cache.use(RunCache(max_subjects=10))
    for run in (1, 2, 3):
        put(run, 1, steps=3)
    put(1, 2, steps=4)
    put(4, 1, steps=3)
    assert seqs(1, 2, 3, 4) == [2, 0, 1, 1]


def test_run_larger_than_the_cache_is_the_only_cached_one() -> None:
    run_cache.use(RunCache(max_subjects=10))
    put(4, 1, steps=3)
    put(5, 1, steps=30)
    assert seqs(4, 5) == [0, 1]


def test_expired_entries_are_not_returned() -> None:
    run_cache.use(RunCache())
    put(1, 1)
    assert (seqs(1), run_id(primary, SESSION, "run 1")) == ([1], UUID(int=1))
    run_cache.use(RunCache(max_age=0.0))
    put(1, 1)
    assert (seqs(1), run_id(primary, SESSION, "run 1")) == ([0], None)
