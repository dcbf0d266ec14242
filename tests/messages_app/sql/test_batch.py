"""Several statements in one round trip, and their time limits."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from access_app.db import primary
from access_app.db.conflicts import was_stopped
from access_app.errors import InvalidInput
from messages_app.sql.batch import Query, fetch


def sleep(seconds: float) -> Query:
    return Query(sql="SELECT pg_sleep(%s)", parameters=[seconds])


def limit_now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def configured_limit() -> str:
    """Return the limit of the role, which a pooler may have changed for its connections."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reset_val FROM pg_settings WHERE name = 'statement_timeout'")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("at_most_ms", [None, 60_000])
def test_fetch_sends_all_statements_in_one_round_trip(db: None, at_most_ms: int | None) -> None:
    queries = [
        Query(sql="SELECT %s::text, n FROM generate_series(1, %s) AS n", parameters=["it's; 100%", 2]),
        Query(sql="SELECT 1 WHERE %s", parameters=[False]),
        Query(sql="SELECT 'last'", parameters=[]),
    ]
    with CaptureQueriesContext(connection) as exchanges:
        found = fetch(primary, queries, at_most_ms=at_most_ms)
    assert found == [[("it's; 100%", 1), ("it's; 100%", 2)], [], [("last",)]]
    assert len(exchanges) == 1


@pytest.mark.django_db(transaction=True)
def test_fetch_beyond_its_time_raises_too_slow() -> None:
    before = limit_now()
    with translation.override("en"), pytest.raises(InvalidInput) as refused:
        fetch(primary, [sleep(0), sleep(30)], at_most_ms=20)
    assert (refused.value.status, refused.value.code) == (400, "too_slow")
    assert "created_after and created_before" in refused.value.message
    assert fetch(primary, [sleep(0)]) == [[("",)]]
    assert limit_now() == before


@pytest.mark.django_db(transaction=True)
def test_fetch_limits_each_statement_and_resets_the_limit() -> None:
    before = limit_now()
    assert fetch(primary, [sleep(0.5)] * 3, at_most_ms=1_400) == [[("",)]] * 3
    assert limit_now() == before
    with transaction.atomic():
        fetch(primary, [sleep(0)], at_most_ms=500)
        assert limit_now() == configured_limit()
        assert fetch(primary, [sleep(0.6)]) == [[("",)]]


@pytest.mark.django_db(transaction=True)
def test_fetch_without_limit_raises_operational_error() -> None:
    with pytest.raises(OperationalError) as stopped, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout TO 20")
        fetch(primary, [sleep(30)])
    assert was_stopped(stopped.value)


@pytest.mark.django_db(transaction=True)
def test_fetch_raises_other_errors_unchanged() -> None:
    with pytest.raises(OperationalError) as failed:
        fetch(primary, [Query(sql="SELECT pg_terminate_backend(pg_backend_pid())", parameters=[])], at_most_ms=60_000)
    assert not was_stopped(failed.value)
    connection.close()
