"""Kept connections: what is broken is found before it is used, and what is whole is not asked."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.core.signals import request_finished, request_started
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from psycopg.conninfo import make_conninfo

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    """A connection of someone else to the same database."""
    connection.ensure_connection()
    info = connection.connection.info
    dsn = make_conninfo(info.dsn, password=info.password or None)
    with psycopg.connect(dsn, autocommit=True) as other:
        yield other


@pytest.fixture(autouse=True)
def clean_connection() -> Iterator[None]:
    connection.close()
    yield
    connection.close()


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def next_request() -> None:
    """What Django does with its connections between two requests. Its test client leaves that out."""
    request_finished.send(None)
    request_started.send(None)


def end(other: psycopg.Connection, process: int) -> None:
    other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])


def test_the_backend_of_the_settings_is_ours() -> None:
    assert connection.settings_dict["ENGINE"] == "tracesite.postgresql"
    assert connection.settings_dict["CONN_HEALTH_CHECKS"] is True


def test_a_connection_that_was_ended_is_unusable_and_the_next_request_has_another(other: psycopg.Connection) -> None:
    before = backend()
    assert connection.is_usable()
    end(other, before)
    assert not connection.is_usable()
    next_request()
    after = backend()
    assert after != before
    end(other, after)
    next_request()
    assert Client().get("/readyz").status_code == 200


def test_a_whole_connection_is_kept_and_asked_nothing(other: psycopg.Connection) -> None:
    before = backend()
    with CaptureQueriesContext(connection) as queries:
        assert connection.is_usable()
    assert len(queries) == 0
    # Not even below Django: PostgreSQL says what it was asked last.
    next_request()
    connection.ensure_connection()
    connection.close_if_health_check_failed()
    row = other.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [before]).fetchone()
    assert row == ("SELECT pg_backend_pid()",)
    assert backend() == before


def test_a_word_from_the_server_is_no_end(other: psycopg.Connection) -> None:
    before = backend()
    with connection.cursor() as cursor:
        cursor.execute("LISTEN tracesite_test")
    other.execute("NOTIFY tracesite_test, 'hello'")
    # It is there before this answers: notifications of one's own database are sent before others' statements.
    assert [connection.is_usable() for _look in range(3)] == [True] * 3
    next_request()
    assert backend() == before


def test_what_is_closed_is_unusable() -> None:
    assert not connection.is_usable()  # never opened
    backend()
    connection.connection.close()
    assert not connection.is_usable()
    next_request()
    assert backend()


def test_after_an_error_in_a_statement_the_connection_goes_on(other: psycopg.Connection) -> None:
    before = backend()
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SET statement_timeout TO 10; SELECT pg_sleep(5)")
    with connection.cursor() as cursor:
        cursor.execute("RESET statement_timeout")
    next_request()
    assert backend() == before
