"""Test /healthz and /readyz."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from access_app.db.earlier_migrations import TOO_OLD


def test_healthz_without_database_is_200() -> None:
    # Without the mark django_db any query fails this test.
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_with_migrated_database_is_200() -> None:
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_with_missing_migrations_is_503() -> None:
    MigrationRecorder.Migration.objects.filter(app="traces_app").delete()
    answer = Client().get("/readyz")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "migrations_pending")
    assert "Run “manage.py migrate”" in error["message"]
    assert answer.headers["Retry-After"] == "5"


@pytest.mark.django_db
def test_readyz_with_database_that_is_too_old_is_503() -> None:
    MigrationRecorder(connection).record_applied("traces_app", "0002_toast_lz4")
    answer = Client().get("/readyz")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"]) == (503, "database_too_old", str(TOO_OLD))


@pytest.mark.django_db(transaction=True)
def test_readyz_without_database_is_503() -> None:
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
