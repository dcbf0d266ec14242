"""Transactions that others get in the way of are run again, as often or as long as their caller can wait, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, transaction
from psycopg.conninfo import make_conninfo

from access_app.db.conflicts import LocksHeld, retry_aborted, retry_locked
from access_app.models import Project

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "LOCK TABLE access_app_project IN ROW EXCLUSIVE MODE"


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    """A connection of someone else to the same database."""
    connection.ensure_connection()
    info = connection.connection.info
    with psycopg.connect(make_conninfo(info.dsn, password=info.password or None)) as other:
        yield other


@pytest.fixture
def rename(other: psycopg.Connection) -> Callable[[int], int]:
    """Rename a project, and let someone else rename it first in the first so many attempts. Return the number of the attempt."""
    project = Project.objects.create(slug="before")
    made = 0

    def attempt(conflicts: int) -> int:
        nonlocal made
        made += 1
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM access_app_project")
            if made <= conflicts:
                other.execute("UPDATE access_app_project SET slug = %s WHERE id = %s", [f"other-{made}", project.pk])
                other.commit()
            Project.objects.filter(pk=project.pk).update(slug="after")
        return made

    return attempt


def test_retry_aborted_runs_transaction_until_it_is_committed(rename: Callable[[int], int]) -> None:
    assert retry_aborted(lambda: rename(2), attempts=3) == 3
    assert Project.objects.get().slug == "after"


def test_retry_aborted_raises_error_of_the_last_attempt(rename: Callable[[int], int]) -> None:
    with pytest.raises(OperationalError, match="could not serialize"):
        retry_aborted(lambda: rename(2), attempts=2)
    assert Project.objects.get().slug == "other-2"


def test_retry_aborted_does_not_retry_other_errors() -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    with pytest.raises(DataError):
        retry_aborted(fail)
    assert len(attempts) == 1


def test_retry_locked_runs_again_once_others_are_done_or_gives_up(other: psycopg.Connection) -> None:
    attempts = []

    def take_lock() -> int:
        attempts.append(1)
        if len(attempts) == 3:
            other.commit()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10ms'")
            cursor.execute("LOCK TABLE access_app_project")
        return len(attempts)

    other.execute(LOCK)
    with pytest.raises(LocksHeld):
        retry_locked(take_lock, patience=0, pause=0)
    assert len(attempts) == 1
    assert retry_locked(take_lock, patience=600, pause=0) >= 3
