"""Kept connections: what is broken is found before it is used, and what is whole is not asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import psycopg
import pytest
from django.core.signals import request_finished, request_started
from django.db import DataError, IntegrityError, OperationalError, ProgrammingError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from psycopg.conninfo import make_conninfo
from pytest_django import DjangoAssertNumQueries

from access_app.db import primary
from access_app.db.base import DatabaseWrapper
from access_app.db.conflicts import was_stopped
from access_app.db.statements import execute_at_once, prepared_cursor, read_prepared
from access_app.errors import InvalidInput
from access_app.keys import create_key, find_key
from access_app.models import Project
from messages_app.sql.batch import LIST_MS, Query, fetch

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


def test_settings_name_our_backend_with_health_checks() -> None:
    assert connection.settings_dict["ENGINE"] == "access_app.db"
    assert connection.settings_dict["CONN_HEALTH_CHECKS"] is True


def test_ended_connection_is_replaced_by_the_next_request(other: psycopg.Connection) -> None:
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


def test_is_usable_open_connection_sends_no_query(other: psycopg.Connection) -> None:
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


def test_notification_does_not_mark_connection_unusable(other: psycopg.Connection) -> None:
    before = backend()
    with connection.cursor() as cursor:
        cursor.execute("LISTEN tracesite_test")
    other.execute("NOTIFY tracesite_test, 'hello'")
    # It is there before this answers: notifications of one's own database are sent before others' statements.
    assert [connection.is_usable() for _look in range(3)] == [True] * 3
    next_request()
    assert backend() == before


def test_is_usable_closed_connection_returns_false() -> None:
    assert not connection.is_usable()  # never opened
    backend()
    connection.connection.close()
    assert not connection.is_usable()
    next_request()
    assert backend()


def test_connection_is_kept_after_a_failed_statement(other: psycopg.Connection) -> None:
    before = backend()
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SET statement_timeout TO 10; SELECT pg_sleep(5)")
    with connection.cursor() as cursor:
        cursor.execute("RESET statement_timeout")
    next_request()
    assert backend() == before


# --- Keys ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def token() -> str:
    _key, token = create_key(Project.objects.create(slug="alpha"), "agent", ["read"])
    assert find_key(token) is not None
    return token


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE access_app_apikey SET revoked_at = now()",
        "UPDATE access_app_apikey SET expires_at = now() - interval '1 s'",
        "DELETE FROM access_app_apikey",
        "UPDATE access_app_apikey SET digest = 'another'",
    ],
)
def test_find_key_after_its_end_returns_none_at_once(token: str, other: psycopg.Connection, change: str) -> None:
    other.execute(change)
    assert find_key(token) is None


def test_find_key_after_a_change_returns_the_new_fields(token: str, other: psycopg.Connection) -> None:
    other.execute("UPDATE access_app_apikey SET scopes = '{write}'")
    other.execute("UPDATE access_app_project SET slug = 'beta'")
    key = find_key(token)
    assert key is not None
    assert (key.scopes, key.project.slug) == (["write"], "beta")


def test_find_key_takes_one_query(token: str, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(1):
        assert find_key(token) is not None


def test_find_key_refuses_a_key_from_its_expiry_on(token: str, other: psycopg.Connection) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    other.execute("UPDATE access_app_apikey SET expires_at = %s", [end])
    assert find_key(token, now=end - timedelta(microseconds=1)) is not None
    assert find_key(token, now=end) is None


# --- How long a statement of the server may take ----------------------------------------------------------------------


def test_fetch_statement_over_the_limit_raises_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseWrapper, "longest_statement_ms", 500)
    sleep = Query(sql="SELECT pg_sleep(%s)", parameters=[30], prepared=True)
    with pytest.raises(OperationalError):
        fetch(primary, [sleep])
    with pytest.raises(InvalidInput) as refused:
        fetch(primary, [sleep], at_most_ms=LIST_MS)
    assert (refused.value.status, refused.value.code) == (400, "too_slow")


# --- Reading by prepared statements ------------------------------------------------------------------------------------

EVERYTHING = """
SELECT %s::text, %s::uuid, %s::int, %s::bigint, %s::numeric, %s::float8, %s::bool, %s::timestamptz, %s::jsonb, %s::text[],
       %s::text, '100%%', NULL
"""
VALUES = [
    "上\t海 $1 '\\", UUID(int=7), 3, 2**40, Decimal("1.50"), 0.1, True, datetime(2026, 1, 2, tzinfo=UTC),
    '{"a": [1]}', ["x", None, "{"], None,
]  # fmt: skip


def test_read_prepared_returns_the_rows_of_a_cursor() -> None:
    with prepared_cursor(primary.connection) as cursor:
        cursor.execute(EVERYTHING, VALUES)
        expected = cursor.fetchall()
    assert [read_prepared(EVERYTHING, VALUES, primary.connection) for _again in range(3)] == [expected] * 3
    assert expected[0][:3] == ("上\t海 $1 '\\", UUID(int=7), 3)


def test_read_prepared_same_text_takes_values_of_other_types() -> None:
    assert [read_prepared("SELECT %s", [value], primary.connection) for value in (1, "a", 2, 2**40, None)] == [
        [(1,)], [("a",)], [(2,)], [(2**40,)], [(None,)],
    ]  # fmt: skip


def prepared(part: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE statement LIKE %s", [f"%{part}%"])
        return [text for (text,) in cursor.fetchall()]


def test_read_prepared_prepares_a_repeated_statement_once() -> None:
    for number in range(3):
        assert read_prepared("SELECT 'once', %s", [number], primary.connection) == [("once", number)]
    assert prepared("'once'") == ["SELECT 'once', $1"]


def test_read_prepared_works_after_an_error(other: psycopg.Connection) -> None:
    before = backend()
    for statement, values, expected in (
        ("SELECT nothing", [], ProgrammingError),
        ("SELECT 1 / %s", [0], DataError),
        ("SELECT %s::text", ["a\x00b"], DataError),
    ):
        with pytest.raises(expected):
            read_prepared(statement, values, primary.connection)
        assert read_prepared("SELECT 1 / %s", [1], primary.connection) == [(1,)]
    assert backend() == before


def test_read_prepared_prepares_deallocated_statement_again() -> None:
    assert read_prepared("SELECT %s", ["a"], primary.connection) == [("a",)]
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert read_prepared("SELECT %s", ["b"], primary.connection) == [("b",)]


def test_read_prepared_lost_connection_is_closed(other: psycopg.Connection) -> None:
    for how in ("while it is read", "before"):
        ending = threading.Timer(0.3, end, [other, backend()])
        ending.start()
        if how == "before":
            ending.join()
        with pytest.raises(OperationalError):
            read_prepared("SELECT pg_sleep(%s)", [30], primary.connection)
        ending.join()
        assert connection.connection.closed
        next_request()
        assert read_prepared("SELECT %s", ["a"], primary.connection) == [("a",)]


def test_read_prepared_in_a_transaction_sees_its_changes(written: Callable[[], list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO at_once VALUES ('a')")
        assert read_prepared("SELECT said FROM at_once WHERE said = %s", ["a"], primary.connection) == [("a",)]
        raise ZeroDivisionError
    assert read_prepared("SELECT said FROM at_once WHERE said = %s", ["a"], primary.connection) == []


def test_read_prepared_can_begin_a_transaction(other: psycopg.Connection) -> None:
    with transaction.atomic():
        now = read_prepared("SELECT now()", [], primary.connection)
        time.sleep(0.01)
        assert read_prepared("SELECT now()", [], primary.connection) == now
    assert read_prepared("SELECT now()", [], primary.connection) != now


def test_read_prepared_is_logged_with_its_values() -> None:
    with CaptureQueriesContext(connection) as queries:
        read_prepared("SELECT %s", ["a"], primary.connection)
    assert [query["sql"] for query in queries] == ["SELECT 'a'"]


# --- Statements at once -----------------------------------------------------------------------------------------------


@pytest.fixture
def written(other: psycopg.Connection) -> Iterator[Callable[[], list[str]]]:
    """A table of texts, and what others see in it."""
    other.execute(
        "DROP TABLE IF EXISTS at_once; CREATE TABLE at_once (said text, key text UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    yield lambda: [said for (said,) in other.execute("SELECT said FROM at_once ORDER BY said").fetchall()]
    other.execute("DROP TABLE at_once")


WRITE = "INSERT INTO at_once VALUES ($1, $1)"


def is_ready() -> bool:
    """Whether the connection takes ordinary statements, outside of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1; SELECT 2")
    status: int = connection.connection.pgconn.transaction_status
    return status == psycopg.pq.TransactionStatus.IDLE


def test_execute_at_once_commits_one_transaction(written: Callable[[], list[str]], other: psycopg.Connection) -> None:
    read = "SELECT said, length(said) FROM at_once ORDER BY said"
    answers = execute_at_once(primary, [(WRITE, ["a"]), (WRITE, ["上\t海"]), (read, []), (WRITE, [None]), (read, [])])
    assert answers == [[], [], [("a", "1"), ("上\t海", "3")], [], [("a", "1"), ("上\t海", "3"), (None, None)]]
    assert written() == ["a", "上\t海", None]
    assert other.execute("SELECT count(DISTINCT xmin::text) FROM at_once").fetchone() == (1,)
    assert is_ready()


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ((WRITE, ["a"]), IntegrityError),  # the constraint is deferred: it is found when all is committed
        (("SELECT 1 / $1::int", ["0"]), DataError),
        (("SELECT nothing", []), ProgrammingError),
    ],
    ids=["commit", "statement", "preparation"],
)
def test_execute_at_once_failure_rolls_back_all_statements(
    written: Callable[[], list[str]], failing: tuple[str, list[str]], expected: type[Exception]
) -> None:
    before = backend()
    with pytest.raises(expected) as error:
        execute_at_once(primary, [(WRITE, ["a"]), failing, ("INSERT INTO at_once VALUES ('x' || $1)", ["b"])])
    assert isinstance(error.value.__cause__, psycopg.Error) and error.value.__cause__.sqlstate
    assert written() == []
    assert is_ready()
    execute_at_once(primary, [("INSERT INTO at_once VALUES ('x' || $1)", ["b"]), (WRITE, ["c"])])
    assert (written(), backend()) == (["c", "xb"], before)


def test_execute_at_once_text_with_nul_is_refused(written: Callable[[], list[str]]) -> None:
    with pytest.raises(DataError):
        execute_at_once(primary, [(WRITE, ["a"]), (WRITE, ["b\x00c"])])
    assert written() == []
    next_request()
    execute_at_once(primary, [(WRITE, ["d"])])
    assert written() == ["d"]


def test_execute_at_once_prepares_each_statement_once(written: Callable[[], list[str]]) -> None:
    for number in range(3):
        execute_at_once(primary, [(WRITE, [f"{number}a"]), (WRITE, [f"{number}b"])])
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement = %s", [WRITE])
        assert cursor.fetchone() == (1,)
    assert len(written()) == 6


def test_execute_at_once_prepares_deallocated_statement_again(written: Callable[[], list[str]]) -> None:
    execute_at_once(primary, [(WRITE, ["a"])])
    find_key("trc_of_nobody")  # prepared by psycopg, which deallocates all when it has prepared something
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        backend()
        raise ZeroDivisionError
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    execute_at_once(primary, [(WRITE, ["b"]), (WRITE, ["c"])])
    assert written() == ["a", "b", "c"]


def test_execute_at_once_new_connection_prepares_again(written: Callable[[], list[str]]) -> None:
    execute_at_once(primary, [(WRITE, ["a"])])
    connection.close()
    execute_at_once(primary, [(WRITE, ["b"])])
    assert written() == ["a", "b"]


def test_execute_at_once_lost_connection_is_closed(written: Callable[[], list[str]], other: psycopg.Connection) -> None:
    ending = threading.Timer(0.3, end, [other, backend()])
    ending.start()
    with pytest.raises(OperationalError):
        execute_at_once(primary, [(WRITE, ["a"]), ("SELECT pg_sleep($1)", ["30"]), (WRITE, ["b"])])
    ending.join()
    assert connection.connection.closed
    assert written() == []
    next_request()
    execute_at_once(primary, [(WRITE, ["c"])])
    assert written() == ["c"]


def test_execute_at_once_obeys_the_statement_timeout(
    monkeypatch: pytest.MonkeyPatch, written: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(DatabaseWrapper, "longest_statement_ms", 500)
    connection.close()
    with pytest.raises(OperationalError) as stopped:
        execute_at_once(primary, [(WRITE, ["a"]), ("SELECT pg_sleep($1)", ["30"])])
    assert was_stopped(stopped.value)
    assert is_ready()
    assert written() == []


def test_execute_at_once_large_statements_do_not_deadlock(written: Callable[[], list[str]]) -> None:
    large = "长\\\t\n\r\"'{}%s$1 " * 20_000
    execute_at_once(
        primary,
        [("INSERT INTO at_once VALUES ($1 || $2) RETURNING said", [str(number), large]) for number in range(20)],
    )
    assert written() == sorted(f"{number}{large}" for number in range(20))


def test_execute_at_once_in_a_transaction_is_refused(written: Callable[[], list[str]]) -> None:
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        execute_at_once(primary, [(WRITE, ["a"])])
    assert written() == []


def test_execute_at_once_is_logged_as_one_query(written: Callable[[], list[str]]) -> None:
    with CaptureQueriesContext(connection) as queries:
        execute_at_once(primary, [(WRITE, ["a"]), (WRITE, ["b"])])
    assert [query["sql"] for query in queries] == [f"{WRITE}; {WRITE}"]
