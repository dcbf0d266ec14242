"""Each store of snapshots, recorders that use it, and the way of their events to the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.http import HttpResponseBase
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from tracesite_sdk import Privacy
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.recorder.delivery.transport import Answer
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import MemoryStore, SnapshotStore, SqliteStore
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.testing import RecorderForTests


def send(project: Project, recorder: RecorderForTests) -> None:
    """Store the events as POST /api/v1/events/ does."""
    body = msgspec.json.encode({"events": recorder.events})
    record_events(project.pk, [redact_event(event, DEFAULT_RULES) for event in decode_events(body, ndjson=False)])


class TestConnection:
    """Requests to Tracesite in this process, in the transaction of the test."""

    __test__ = False

    def __init__(self, project: Project) -> None:
        self.token = create_key(project, "agent", ["read", "write", "delete"])[1]
        self.client = Client(headers={"Authorization": f"Bearer {self.token}"})

    def get(self, path: str) -> Answer:
        return self._answer(self.client.get(path))

    def post(self, path: str, body: bytes, media_type: str) -> Answer:
        return self._answer(self.client.post(path, body, content_type=media_type))

    def delete(self, path: str) -> Answer:
        return self._answer(self.client.delete(path))

    def _answer(self, response: HttpResponseBase) -> Answer:
        body = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]
        return Answer(status=response.status_code, body=body, retry_after=None)


@pytest.fixture(params=["memory", "sqlite", pytest.param("server", marks=pytest.mark.django_db)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotStore]:
    made: SnapshotStore
    if request.param == "server":
        made = ServerStore(connection=TestConnection(request.getfixturevalue("project")))
    else:
        made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "snapshots.db")
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
