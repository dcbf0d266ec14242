"""The store of snapshots of a server, recorders that use it, and the way of their events to the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.http import HttpResponseBase
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.recorder.conftest import make
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from traces_app.queries import messages as queries
from traces_app.queries.contexts import inputs
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.recorder.delivery.transport import Answer
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.snapshots.stores import SnapshotStore
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.testing import RecorderForTests

__all__ = ["make"]


def send(project: Project, recorder: RecorderForTests) -> None:
    """Store the events as POST /api/v1/events/ does."""
    body = msgspec.json.encode({"events": recorder.events})
    record_events(
        primary, project.pk, [redact_event(event, DEFAULT_RULES) for event in decode_events(body, ndjson=False)]
    )


def answers(project: Project) -> list[dict[str, Any]]:
    """Return the assistant messages from the API."""
    found = Message.objects.filter(project_id=project.pk, role="assistant").order_by("id")
    documents = msgspec.json.encode(queries.messages(primary, [str(one.pk) for one in found]))
    return msgspec.json.decode(documents, type=list[dict[str, Any]])


def inputs_of(answer: dict[str, Any]) -> list[Any]:
    """Return what the models of the steps were asked, None where it is not known."""
    refs = [step.get("input_ref") for step in answer["agent_steps"]]
    found = inputs(primary, [(answer["id"], ref) for ref in refs if ref])
    return [msgspec.json.decode(msgspec.json.encode(found[(answer["id"], ref)])) if ref else None for ref in refs]


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


@pytest.fixture
def store(project: Project) -> Iterator[SnapshotStore]:
    made = ServerStore(connection=TestConnection(project))
    yield made
    made.close()
