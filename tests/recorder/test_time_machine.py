"""Replays of nodes from the store of a server: the tests of all stores; and random graphs."""

from __future__ import annotations

from benchmarks import replay_graphs
from sdk.tests.recorder.test_time_machine import *  # noqa: F403  # each test of a store is one of this store, too


def test_random_graphs_are_mapped_as_in_the_model() -> None:
    replay_graphs.check(graphs=200, seed=23)
