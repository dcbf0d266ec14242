"""The header `Prefer: wait=SECONDS` lets who reads wait for the messages of what was sent before."""

from __future__ import annotations

import threading

import pytest
from django.db import connection
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from sdk.tests.spans.test_pairs import agent, chat
from traces_app.queries import due_traces
from traces_app.spans.deliveries import record_spans
from traces_app.spans.projector import make_due_traces

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.due_traces]


@pytest.fixture
def reader(project: Project) -> Client:
    _key, token = create_key(project, "reader", ["read"])
    return Client(headers={"Authorization": f"Bearer {token}"})


def answers(reader: Client, prefer: str) -> tuple[int, str | None]:
    response = reader.get("/api/v1/messages/?role=user", headers={"Prefer": prefer})
    return len(response.json()["results"]), response.headers.get("Preference-Applied")


def test_reader_waits_until_messages_are_made(reader: Client, project: Project) -> None:
    assert answers(reader, "wait=0") == (0, "wait")
    record_spans(primary, project.pk, [agent(1, until=90), chat(2, 1, 1)])
    assert answers(reader, "respond-async") == (0, None)
    assert answers(reader, "wait=0") == (0, None)

    def work() -> None:
        try:
            make_due_traces(primary)
        finally:
            connection.close()

    worker = threading.Timer(0.3, work)
    worker.start()
    assert answers(reader, 'respond-async; wait="9"') == (1, "wait")
    worker.join()


@pytest.mark.parametrize("prefer", ["wait", "wait=-1", "wait=soon", "await=1", ""])
def test_other_preferences_are_ignored(reader: Client, project: Project, prefer: str) -> None:
    record_spans(primary, project.pk, [agent(1, until=90), chat(2, 1, 1)])
    assert answers(reader, prefer) == (0, None)


def test_wait_has_a_limit(reader: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    clock = iter(range(1_000))
    monkeypatch.setattr(due_traces.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(due_traces.time, "sleep", waits.append)
    record_spans(primary, project.pk, [agent(1, until=90), chat(2, 1, 1)])
    assert answers(reader, "wait=100000") == (0, None)
    assert len(waits) <= 10
