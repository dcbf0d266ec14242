"""Each store of snapshots that needs no server, and recorders that use the store of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tracesite_sdk import Privacy, Recorder
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import MemoryStore, SnapshotStore, SqliteStore
from tracesite_sdk.testing import RecorderForTests


def local_store(kind: str, directory: Path) -> SnapshotStore:
    return MemoryStore() if kind == "memory" else SqliteStore(directory / "snapshots.db")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotStore]:
    made = local_store(request.param, tmp_path)
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


def restored(recorder: Recorder, node: str, session: str = "s") -> Any:
    snapshot = recorder.snapshots.store.latest(session, node)
    assert snapshot is not None
    return recorder.snapshots.context(snapshot)


def data_of(events: Sequence[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] in types]
