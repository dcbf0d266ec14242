"""What lies below messages is read from the leaves of their month, and nothing of a month is read that is going."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access_app.keys import create_key
from access_app.models import Project
from messages_app.sql import batch
from messages_app.sql.partitions import Month, drop_month
from tests.traces_app.conftest import answer, store
from traces_app.ingest.partitions import TABLES, forget
from traces_app.queries.messages import messages

pytestmark = pytest.mark.django_db(transaction=True)

CALLS = "/api/v1/tool-calls/?tool=get_weather&created_after=2026-03-01T00:00:00Z&created_before=2026-03-31T00:00:00Z"
MARCH = Month(2026, 3)


@pytest.fixture(autouse=True)
def unknown_months() -> Iterator[None]:
    batch._months.clear()
    yield
    batch._months.clear()
    forget()


@pytest.fixture
def project(transactional_db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def weather(project: Project) -> str:
    """A message of March with steps and calls."""
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


@pytest.mark.requirement("000-43")
def test_a_month_in_which_something_was_found_is_asked_by_itself(client: Client, weather: str) -> None:
    first = messages([weather]), calls(client)
    with CaptureQueriesContext(connection) as queries:
        assert (messages([weather]), calls(client)) == first

    asked = " ".join(query["sql"] for query in queries)
    assert first[0][0].agent_steps and first[1]
    for table in ("traces_app_agentstep", "traces_app_toolcall", "traces_app_toolresult"):
        assert f"{table}_y2026m03" in asked
        assert f"{table} " not in asked
    # That one hides a month that is going.
    assert "messages_app_message_y" not in asked


def test_a_month_that_another_process_has_dropped_is_empty(client: Client, weather: str) -> None:
    # Named twice: several are asked for in another way than one.
    for _again in range(2):
        assert messages([weather]) and messages([weather, weather]) and calls(client)
    known = set(batch._months)
    drop_month(TABLES, MARCH)

    for read in (lambda: calls(client), lambda: messages([weather]), lambda: messages([weather, weather])):
        batch._months.update(known)
        assert read() == []


def test_nothing_is_read_of_a_month_that_is_hidden_before_it_is_dropped(client: Client, weather: str) -> None:
    before = messages([weather]), calls(client)
    seen: list[Any] = []

    def look() -> bool:
        seen.extend([messages([weather]), calls(client)])
        return False  # bring it back

    assert drop_month(TABLES, MARCH, when_hidden=look) is None
    assert seen == [[], []]
    assert (messages([weather]), calls(client)) == before


def test_within_a_transaction_all_months_are_asked(weather: str) -> None:
    messages([weather])
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        assert messages([weather])

    assert not any("_y2026m03" in query["sql"] for query in queries)
