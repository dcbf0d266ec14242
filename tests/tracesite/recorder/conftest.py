"""Each store of snapshots, and recorders that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tracesite.recorder import Privacy
from tracesite.recorder.snapshot_stores import MemoryStore, SnapshotStore, SqliteStore
from tracesite.recorder.snapshotting import Snapshots
from tracesite.recorder.testing import RecorderForTests


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotStore]:
    made: SnapshotStore = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "snapshots.db")
    yield made
    made.close()


@pytest.fixture
def make(store: SnapshotStore) -> Iterator[Callable[..., RecorderForTests]]:
    recorders: list[RecorderForTests] = []

    def recorder(privacy: Privacy | None = None, strict: bool = True, **settings: Any) -> RecorderForTests:
        made = RecorderForTests(privacy=privacy, strict=strict)
        made.snapshots = Snapshots(store, **settings)
        recorders.append(made)
        return made

    yield recorder
    for made in recorders:
        made.close()
