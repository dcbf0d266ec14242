"""Reads while a month is dropped: they return nothing of it, and raise no error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.sql.partitions import drop_period
from messages_app.sql.periods import Period
from tests.traces_app.conftest import answer, store
from traces_app.ingest.partitions import TABLES, forget
from traces_app.queries.messages import messages

pytestmark = pytest.mark.django_db(transaction=True)

CALLS = "/api/v1/tool-calls/?tool=get_weather&created_after=2026-03-01T00:00:00Z&created_before=2026-03-31T00:00:00Z"
MARCH = Period.month(2026, 3)


@pytest.fixture(autouse=True)
def known_months() -> Iterator[None]:
    yield
    forget()


@pytest.fixture
def project(transactional_db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def weather(project: Project) -> str:
    """Store a message of March with steps and calls."""
    (message,) = store(project, answer(created_at=datetime.fromisoformat("2026-03-01T12:00:00Z"))).messages
    return str(message.id)


@pytest.fixture
def client(project: Project) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read'])[1]}"})


def calls(client: Client) -> list[dict[str, Any]]:
    answered = client.get(CALLS)
    assert answered.status_code == 200, answered.content
    found: list[dict[str, Any]] = answered.json()["results"]
    return found


def test_month_dropped_by_another_process_is_empty(client: Client, weather: str) -> None:
    # Twice, so that statements are prepared; several ids have another statement than one.
    for _again in range(2):
        assert messages(primary, [weather]) and messages(primary, [weather, weather]) and calls(client)
    drop_period(primary, TABLES, MARCH)

    for read in (
        lambda: calls(client),
        lambda: messages(primary, [weather]),
        lambda: messages(primary, [weather, weather]),
    ):
        assert read() == []


def test_hidden_month_is_not_read(client: Client, weather: str) -> None:
    before = messages(primary, [weather]), calls(client)
    seen: list[Any] = []

    def look() -> bool:
        seen.extend([messages(primary, [weather]), calls(client)])
        return False  # attach it again

    assert drop_period(primary, TABLES, MARCH, when_hidden=look) is None
    assert seen == [[], []]
    assert (messages(primary, [weather]), calls(client)) == before
