"""Tests of messages_app/sql/partitions.py, on two tables of their own: pages that belong to books."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections

from access_app.db import primary
from messages_app.sql.partitions import (
    PartitionedTable,
    PeriodInUse,
    drop_period,
    make_periods,
    periods_of,
    settle_periods,
)
from messages_app.sql.periods import Length, Period
from tracesite_sdk.records import ids

BOOK = PartitionedTable(name="test_book", parents={})
PAGE = PartitionedTable(name="test_page", parents={"book_id": "test_book"})
SHELF = (BOOK, PAGE)
MARCH = Period.month(2024, 3)
APRIL = Period.month(2024, 4)


@pytest.fixture
def shelf(transactional_db: None) -> Iterator[None]:
    run("CREATE TABLE test_book (id uuid PRIMARY KEY, title text) PARTITION BY RANGE (id)")
    run("CREATE TABLE test_page (id uuid PRIMARY KEY, book_id uuid, body text) PARTITION BY RANGE (id)")
    run("CREATE INDEX ON test_page (book_id)")
    make_periods(primary, SHELF, [MARCH, APRIL])
    yield
    run("DROP TABLE IF EXISTS test_page, test_book CASCADE")
    for leaf in leaves():
        run(f"DROP TABLE {leaf} CASCADE")


def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def leaves() -> list[str]:
    return [
        name
        for (name,) in run("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^test_(book|page)_y' ORDER BY 1")
    ]  # fmt: skip


def add_book(period: Period, pages: int = 2) -> None:
    book = ids.message_id(period.ends_at - timedelta(hours=1), "user")
    run("INSERT INTO test_book VALUES (%s, 'Title')", book)
    for page in range(pages):
        run("INSERT INTO test_page VALUES (%s, %s, 'Text')", ids.child_id(book, page), book)


def count(table: str) -> int:
    return int(run(f"SELECT count(*) FROM {table}")[0][0])


@contextmanager
def other_connection() -> Iterator[psycopg.Connection]:
    """Open a transaction on another connection, and roll it back at the end."""
    settings = connection.get_connection_params()
    parameters = {name: settings[name] for name in ("dbname", "user", "password", "host", "port") if name in settings}
    with psycopg.connect(**parameters) as other:
        yield other
        other.rollback()


def at_once(work: Callable[[], Any], times: int) -> list[Any]:
    def in_thread(_: int) -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(in_thread, range(times)))


def test_month_of_instant_is_in_utc() -> None:
    late_evening = datetime(2024, 12, 31, 20, 0, tzinfo=timezone(timedelta(hours=-5)))
    assert Period.of(late_evening) == Period.month(2025, 1)
    assert Period.month(2024, 12).end == Period.month(2025, 1).begin
    assert Period.month(2024, 3).leaf("test_book") == "test_book_y2024m03"


@pytest.mark.django_db
def test_partitioned_models_keep_makemigrations_quiet() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    partitioned = {
        model._meta.db_table
        for model in apps.get_models()
        if run("SELECT relkind FROM pg_class WHERE oid = %s::regclass", model._meta.db_table) == [("p",)]
    }
    assert partitioned >= {
        "messages_app_message",
        "messages_app_reference",
        "traces_app_agentstep",
        "traces_app_toolcall",
        "traces_app_toolresult",
    }


@pytest.mark.usefixtures("shelf")
def test_month_is_created_once_with_keys_and_indexes() -> None:
    assert make_periods(primary, SHELF, [APRIL, MARCH, Period.month(2024, 5)]) == [Period.month(2024, 5)]
    assert periods_of(primary, "test_page") == [MARCH, APRIL, Period.month(2024, 5)]
    assert run(
        "SELECT contype::text, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = 'test_page_y2024m05'::regclass AND contype IN ('f', 'p') ORDER BY 1"
    ) == [("f", "FOREIGN KEY (book_id) REFERENCES test_book_y2024m05(id)"), ("p", "PRIMARY KEY (id)")]
    assert run("SELECT count(*) FROM pg_index WHERE indrelid = 'test_page_y2024m05'::regclass") == [(2,)]


@pytest.mark.usefixtures("shelf")
def test_later_table_gets_its_missing_months() -> None:
    run("CREATE TABLE test_page_note (id uuid PRIMARY KEY, page_id uuid) PARTITION BY RANGE (id)")
    note = PartitionedTable(name="test_page_note", parents={"page_id": "test_page"})
    assert make_periods(primary, (*SHELF, note), [MARCH]) == [MARCH]
    assert periods_of(primary, "test_page_note") == [MARCH]
    run("DROP TABLE test_page_note CASCADE")


@pytest.mark.usefixtures("shelf")
def test_new_periods_are_made_beside_those_of_other_lengths() -> None:
    day = Period.of(datetime(2024, 5, 10, tzinfo=UTC), Length.DAY)
    assert make_periods(primary, SHELF, [day]) == [day]
    assert [
        str(one)
        for one in make_periods(primary, SHELF, [Period.month(2024, 5), Period.of(APRIL.begins_at, Length.WEEK)])
    ] == [
        "2024-05-01-week",
        *(f"2024-05-{number:02}" for number in (8, 9, 11, 12, 13, 14)),
        *("2024-05-15-week", "2024-05-22-week", "2024-05-29-week"),
    ]
    assert make_periods(primary, SHELF, [Period.month(2024, 5)]) == []
    add_book(day)
    run("ALTER TABLE test_book DETACH PARTITION " + day.leaf("test_book"))
    # An interrupted drop of a part is settled before the month is made.
    assert make_periods(primary, SHELF, [Period.month(2024, 5)]) == []
    assert count("test_book") == 1
    drop_period(primary, SHELF, day)
    assert make_periods(primary, SHELF, [Period.of(day.begins_at, Length.MONTH)]) == [day]


@pytest.mark.usefixtures("shelf")
def test_concurrent_makers_make_each_month_once() -> None:
    wanted = [Period.month(2025, number) for number in range(1, 5)]
    made = at_once(lambda: make_periods(primary, SHELF, wanted), 4)
    assert sorted(month for months in made for month in months) == wanted
    assert periods_of(primary, "test_book") == periods_of(primary, "test_page") == [MARCH, APRIL, *wanted]


@pytest.mark.usefixtures("shelf")
def test_drop_month_removes_only_it_and_reports_sizes() -> None:
    add_book(MARCH, pages=3)
    add_book(APRIL)
    dropped = drop_period(primary, SHELF, MARCH)
    assert dropped is not None
    assert [(leaf.table, leaf.rows, leaf.is_estimate) for leaf in dropped] == [("test_book", 1, False), ("test_page", 3, False)]  # fmt: skip
    assert all(leaf.size >= 8192 for leaf in dropped)
    assert leaves() == ["test_book_y2024m04", "test_page_y2024m04"]
    assert (count("test_book"), count("test_page")) == (1, 2)


@pytest.mark.usefixtures("shelf")
def test_rows_of_large_month_are_estimated() -> None:
    run(
        "INSERT INTO test_book SELECT overlay(%s::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid "
        "FROM generate_series(1, 10001) AS n",
        ids.message_id(datetime(2024, 3, 1, tzinfo=UTC), "user"),
    )
    run("ANALYZE test_book")
    dropped = drop_period(primary, SHELF, MARCH)
    assert dropped is not None
    assert [(leaf.rows, leaf.is_estimate) for leaf in dropped] == [(10001, True), (0, False)]


@pytest.mark.usefixtures("shelf")
def test_drop_of_missing_month_returns_an_empty_list() -> None:
    assert drop_period(primary, SHELF, Period.month(1999, 1)) == []


@pytest.mark.usefixtures("shelf")
def test_concurrent_drops_drop_once_and_month_is_recreated() -> None:
    add_book(MARCH)
    dropped = at_once(lambda: drop_period(primary, SHELF, MARCH), 2)
    assert sorted(len(leaves) for leaves in dropped) == [0, 2]
    assert make_periods(primary, SHELF, [MARCH]) == [MARCH]
    add_book(MARCH)
    assert count("test_page") == 2


@pytest.mark.usefixtures("shelf")
def test_hidden_month_is_readable_and_attached_again() -> None:
    add_book(MARCH)
    seen = []

    def refuse() -> bool:
        seen.append((count("test_book"), count("test_book_y2024m03")))
        return False

    assert drop_period(primary, SHELF, MARCH, when_hidden=refuse) is None
    assert seen == [(0, 1)]
    assert (count("test_book"), count("test_page")) == (1, 2)
    assert periods_of(primary, "test_book") == [MARCH, APRIL]
    dropped = drop_period(primary, SHELF, MARCH)
    assert dropped is not None
    assert [leaf.rows for leaf in dropped] == [1, 2]


@pytest.mark.usefixtures("shelf")
def test_drop_gives_way_to_long_reader_and_continues_later() -> None:
    add_book(MARCH)
    with other_connection() as reader:
        assert reader.execute("SELECT count(*) FROM test_page").fetchone() == (2,)
        assert reader.execute("SELECT count(*) FROM test_book").fetchone() == (1,)
        with pytest.raises(PeriodInUse, match=r"2024-03"):
            drop_period(primary, SHELF, MARCH, patience=0)
        # Hidden from others, but still readable for the reader, whose transaction continues.
        assert count("test_book") == 0
        assert reader.execute("SELECT count(*) FROM test_page").fetchone() == (2,)
        with pytest.raises(PeriodInUse):
            drop_period(primary, SHELF, MARCH, patience=0)
        assert reader.execute("SELECT count(*) FROM test_page").fetchone() == (2,)
    dropped = drop_period(primary, SHELF, MARCH)
    assert dropped is not None
    assert [leaf.rows for leaf in dropped] == [1, 2]
    assert leaves() == ["test_book_y2024m04", "test_page_y2024m04"]


@pytest.mark.usefixtures("shelf")
def test_waiting_drop_blocks_no_writes_and_new_months() -> None:
    add_book(MARCH)

    with ThreadPoolExecutor(1) as threads, other_connection() as reader:
        reader.execute("SELECT count(*) FROM test_book")
        dropping = threads.submit(lambda: at_once(lambda: drop_period(primary, SHELF, MARCH), 1))
        while count("test_book"):
            time.sleep(0.01)
        add_book(APRIL)
        make_periods(primary, SHELF, [Period.month(2024, 5)])
        add_book(Period.month(2024, 5))
        assert not dropping.done()
        reader.rollback()
        assert len(dropping.result()[0]) == 2
    assert (count("test_book"), count("test_page")) == (2, 4)


@pytest.mark.usefixtures("shelf")
def test_drop_interrupted_while_hiding_messages_is_undone() -> None:
    add_book(MARCH)
    run("ALTER TABLE test_book DETACH PARTITION test_book_y2024m03 CONCURRENTLY")
    assert count("test_book") == 0
    settle_periods(primary, SHELF)
    assert (count("test_book"), count("test_page")) == (1, 2)


@pytest.mark.usefixtures("shelf")
def test_drop_interrupted_later_is_completed() -> None:
    add_book(MARCH)
    for table in SHELF:
        run(f"ALTER TABLE {table.name} DETACH PARTITION {MARCH.leaf(table.name)} CONCURRENTLY")
    settle_periods(primary, SHELF)
    assert leaves() == ["test_book_y2024m04", "test_page_y2024m04"]


@pytest.mark.usefixtures("shelf")
def test_interrupted_detach_is_finalized() -> None:
    add_book(MARCH)
    run("ALTER TABLE test_book DETACH PARTITION test_book_y2024m03 CONCURRENTLY")
    with other_connection() as reader:
        reader.execute("SELECT count(*) FROM test_page")
        with pytest.raises(PeriodInUse):
            drop_period(primary, SHELF, MARCH, patience=0)
    assert run("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhdetachpending") == [("test_page_y2024m03",)]
    settle_periods(primary, SHELF)
    assert leaves() == ["test_book_y2024m04", "test_page_y2024m04"]


@pytest.mark.usefixtures("shelf")
def test_creating_month_of_interrupted_drop_settles_it() -> None:
    add_book(MARCH)
    run("ALTER TABLE test_book DETACH PARTITION test_book_y2024m03 CONCURRENTLY")
    assert make_periods(primary, SHELF, [MARCH]) == []
    assert count("test_book") == 1
    for table in SHELF:
        run(f"ALTER TABLE {table.name} DETACH PARTITION {MARCH.leaf(table.name)} CONCURRENTLY")
    assert make_periods(primary, SHELF, [MARCH]) == [MARCH]
    assert (count("test_book"), count("test_page")) == (0, 0)
