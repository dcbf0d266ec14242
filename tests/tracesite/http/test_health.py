"""/healthz and /readyz."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client


def test_the_process_is_alive_without_a_database() -> None:
    # No mark django_db: a query would fail this test.
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_it_is_ready_when_the_database_has_our_tables() -> None:
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_it_is_not_ready_while_migrations_are_missing() -> None:
    MigrationRecorder.Migration.objects.filter(app="traces_app").delete()
    answer = Client().get("/readyz")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "migrations_pending")
    assert "run “manage.py migrate”" in error["message"]
    assert answer.headers["Retry-After"] == "5"


@pytest.mark.django_db(transaction=True)
def test_it_is_not_ready_while_the_database_is_away() -> None:
    connection.close()
    there = dict(connection.settings_dict)
    connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": "1"}
    try:
        answer = Client().get("/readyz")
    finally:
        connection.settings_dict |= there
        connection.close()
    assert (answer.status_code, _code(answer)) == (503, "database_unavailable")


def _code(answer: Any) -> str:
    code: str = answer.json()["error"]["code"]
    return code
