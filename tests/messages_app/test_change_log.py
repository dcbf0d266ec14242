"""The log of changes: its readers miss nothing, whatever commits when, also in a restored database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from importlib import import_module
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.db.models import F

from access_app.db import primary
from access_app.models import Project
from messages_app import change_log
from messages_app.change_log import Kind, Reader, log_changes, move, next_changes, place_of, trim, turn_of, unread
from messages_app.models import Change, ChangeReader
from tests.traces_app.conftest import answer, question, store
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.seals.sealing import seal_changed
from traces_app.maintenance.search_index import index_changed
from traces_app.maintenance.tool_roll_up import roll_up
from tracesite_sdk.records import ids

_INSERT = "INSERT INTO messages_app_change (project_id, message_id, kind) VALUES (1, %s, 'content')"


def message_id(number: int) -> UUID:
    return ids.message_id(datetime(2026, 3, 1, tzinfo=UTC), "user", number, (1, str(number)))


def log(*numbers: int) -> None:
    log_changes(primary, dict.fromkeys(map(message_id, numbers), 1))


def read(reader: Reader = Reader.SEARCH, most: int = 100) -> list[UUID]:
    """Read on, as a reader does."""
    place = place_of(primary, reader)
    changes = next_changes(primary, place, most)
    move(primary, place, changes)
    return [change.message_id for change in changes]


def read_within(seconds: float = 60) -> list[UUID]:
    """Read on as soon as there is something: other tests have transactions open on the same server."""
    until = time.monotonic() + seconds
    while not (found := read()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def other_connection() -> psycopg.Connection:
    return psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor})


@pytest.mark.order_of_changes
@pytest.mark.django_db(transaction=True)
def test_change_that_commits_late_is_read() -> None:
    with other_connection() as early, other_connection() as late:
        early.execute("SELECT pg_current_xact_id()")
        late.execute(_INSERT, [message_id(1)])
        early.execute(_INSERT, [message_id(2)])
        late.commit()
        assert read() == [], "an older transaction is open"
        assert set(unread(primary, Reader.SEARCH).values_list("message_id", flat=True)) == {message_id(1)}
        early.commit()
    # In the order of transactions, not of positions.
    assert read_within() == [message_id(2), message_id(1)]
    assert read() == []


@pytest.mark.order_of_changes
@pytest.mark.django_db(transaction=True)
def test_change_of_a_transaction_that_is_rolled_back_stops_nobody() -> None:
    with other_connection() as other:
        other.execute(_INSERT, [message_id(1)])
        log(2)
        assert read() == []
        other.rollback()
    assert read_within() == [message_id(2)]


@pytest.mark.django_db
def test_reader_reads_some_at_a_time_and_each_once() -> None:
    log(1, 2, 3)
    log(4)
    assert [read(most=2), read(most=2), read(most=2)] == [
        [message_id(1), message_id(2)],
        [message_id(3), message_id(4)],
        [],
    ]
    assert read(Reader.SEALS) == [message_id(number) for number in (1, 2, 3, 4)]


@pytest.mark.django_db
def test_only_what_all_readers_have_read_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "TRIMMED_AT_A_TIME", 1)
    log(1, 2, 3)
    for reader in Reader:
        assert trim(primary) == 0, "a reader has not begun"
        assert len(read(reader, most=2)) == 2
    assert trim(primary) == 2
    assert [change.message_id for change in Change.objects.all()] == [message_id(3)]
    assert read(Reader.SEARCH) == [message_id(3)]
    assert trim(primary) == 0


@pytest.mark.django_db(transaction=True)
def test_one_process_at_a_time_reads(project: Project) -> None:
    store(project, question(), answer())
    with other_connection() as other:
        key = change_log.lock_key(f"tracesite reader {Reader.SEARCH}")
        other.execute("SELECT pg_advisory_lock(%s)", [key])
        with turn_of(primary, Reader.SEARCH) as is_mine:
            assert not is_mine
        assert index_changed(primary).messages == 0
        other.execute("SELECT pg_advisory_unlock(%s)", [key])
    with turn_of(primary, Reader.SEARCH) as is_mine:
        assert is_mine


def restored() -> None:
    """Let the database be that of another cluster, where the numbers of transactions were higher: the rows keep them."""
    Change.objects.update(transaction=F("transaction") + 10**15)
    ChangeReader.objects.update(transaction=F("transaction") + 10**15, system=5)


@pytest.mark.django_db
def test_dump_in_another_cluster_is_read_on(project: Project) -> None:
    log(1, 2)
    read(most=1)
    read(Reader.SEALS)
    restored()
    log(3)
    # Read again is harmless, and missed is not.
    every = [message_id(1), message_id(2), message_id(3)]
    assert [read(), read(Reader.SEALS), read(Reader.VECTORS)] == [every, every, every]
    log(4)
    assert [read(), read(Reader.SEALS)] == [[message_id(4)], [message_id(4)]]


@pytest.mark.django_db
def test_seals_of_a_restored_dump_hold(project: Project) -> None:
    store(project, question(), answer())
    assert seal_changed(primary, patience=timedelta(0)).sealed == 2
    store(project, answer(external_id="a9"))
    restored()
    report = seal_changed(primary, patience=timedelta(0))
    assert (report.sealed, report.resealed, report.refused) == (1, 0, 0)
    assert set(ChangeReader.objects.get(pk=Reader.SEALS).state) == set()


@pytest.mark.django_db
def test_kinds_of_changes_concern_the_readers_that_make_something_of_them(project: Project) -> None:
    store(project, question(), answer())

    def all_read() -> dict[str, int]:
        errors = unread(primary, Reader.ERRORS).values("message_id").distinct().count()
        assert store_patterns(primary, patience=timedelta(0)).patterns <= errors
        return {
            "errors": errors,
            "search": index_changed(primary, patience=timedelta(0)).messages,
            "vectors": store_vectors(primary, patience=timedelta(0)).runs,
            "seals": (report := seal_changed(primary, patience=timedelta(0))).sealed + report.resealed,
            "hours": (hours := roll_up(primary)).hours + hours.changed,
        }

    nothing = {"errors": 0, "search": 0, "vectors": 0, "seals": 0, "hours": 0}
    assert all_read() == {"errors": 2, "search": 2, "vectors": 1, "seals": 2, "hours": 1}
    assert all_read() == nothing
    runs = dict(change_log.projects_of(primary, [row.message_id for row in Change.objects.all()]))
    expected = {
        Kind.CONTENT: nothing | {"errors": 2, "search": 2, "vectors": 1, "hours": 1},
        Kind.FIGURES: nothing | {"hours": 1},
        Kind.INDEX: nothing | {"search": 2},
        Kind.VECTOR: nothing | {"vectors": 1},
        Kind.PATTERN: nothing | {"errors": 2},
        Kind.SEAL: nothing,
    }
    for kind, made in expected.items():
        log_changes(primary, runs, kind)
        assert all_read() == made, kind
        log_changes(primary, runs, kind, sealed=runs)
        assert all_read() == made | {"seals": 2}, kind


@pytest.mark.django_db
def test_what_waited_before_there_was_a_log_is_taken_over(project: Project) -> None:
    outcome = store(project, question(), answer())
    asked, answered = (message.id for message in outcome.messages)
    Change.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE TABLE messages_app_sealmark (
                id bigserial, message_id uuid, token bytea, queued_at timestamptz DEFAULT now()
            );
            CREATE TABLE messages_app_changedhour (id bigserial, project_id bigint, "begin" timestamptz);
            CREATE TABLE traces_app_unindexedmessage (
                id bigserial, message_id uuid, queued_at timestamptz DEFAULT now()
            );
            CREATE TABLE traces_app_unvectoredmessage (id bigserial, message_id uuid);
            SELECT setval('traces_app_unindexedmessage_id_seq', 10000000);
            """
        )
        cursor.execute("INSERT INTO messages_app_sealmark (message_id, token) VALUES (%s, 'token')", [answered])
        cursor.execute(
            "INSERT INTO messages_app_changedhour (project_id, begin) "
            "SELECT project_id, date_trunc('hour', created_at, 'UTC') FROM messages_app_message WHERE id = %s",
            [asked],
        )
        cursor.execute("INSERT INTO traces_app_unindexedmessage (message_id) VALUES (%s)", [asked])
        cursor.execute("INSERT INTO traces_app_unvectoredmessage (message_id) VALUES (%s)", [answered])
        for app, name in (("messages_app", "0002_change_log"), ("traces_app", "0003_change_log")):
            cursor.execute(import_module(f"{app}.migrations.{name}").TAKE_OVER)
    taken = [(row.message_id, row.kind, bytes(row.token)) for row in Change.objects.exclude(kind=Kind.FIGURES)]
    assert sorted(taken) == sorted([(answered, "seal", b"token"), (asked, "content", b""), (answered, "vector", b"")])
    assert Change.objects.get(kind=Kind.FIGURES).project == project
    # Versions of rows of the search index grow.
    assert Change.objects.create(project=project, message_id=asked, kind=Kind.INDEX).position > 10_000_000
