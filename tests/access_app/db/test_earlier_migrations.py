"""Databases of before `0001_initial` made all tables go on if they had all migrations; others are refused, and not called migrated."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from access_app.db.earlier_migrations import EARLIER, TOO_OLD, is_too_old
from traces_app.models import SnapshotPart

SIZES = ("traces_app", "0002_size_of_snapshot_parts")


def note(names: Iterable[tuple[str, str]]) -> None:
    for app, name in names:
        MigrationRecorder(connection).record_applied(app, name)


def unapply_since_sizes() -> None:
    for app, name in MigrationLoader(None).disk_migrations:
        if app == SIZES[0] and name >= SIZES[1]:
            MigrationRecorder(connection).record_unapplied(app, name)


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_new_migrations_have_no_earlier_name() -> None:
    assert EARLIER.isdisjoint(MigrationLoader(None).disk_migrations)


@pytest.mark.django_db
def test_database_made_by_initial_migrations_is_not_too_old() -> None:
    assert not is_too_old()


@pytest.mark.django_db
def test_database_without_tables_is_not_too_old() -> None:
    execute("DROP TABLE django_migrations")
    assert not is_too_old()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("app", "last"),
    [
        ("access_app", "0017_project_databases"),
        ("messages_app", "0020_views_by_list"),
        ("traces_app", "0025_archived_periods"),
    ],
)
def test_database_that_lacks_an_earlier_migration_is_too_old(app: str, last: str) -> None:
    note(EARLIER - {(app, last)})
    assert is_too_old()


@pytest.mark.django_db
def test_database_of_the_first_earlier_migration_is_too_old() -> None:
    execute("DROP TABLE access_app_projectplace, access_app_projectdatabase")
    assert is_too_old()


@pytest.mark.django_db
def test_migrate_of_a_database_that_is_too_old_changes_nothing() -> None:
    note(one for one in EARLIER if one[1] <= "0010")
    unapply_since_sizes()
    with pytest.raises(SystemCheckError, match="tracesite.E030") as refused:
        call_command("migrate", verbosity=0, skip_checks=False)
    assert str(TOO_OLD) in str(refused.value)
    assert SIZES not in MigrationRecorder(connection).applied_migrations()


@pytest.mark.django_db
@pytest.mark.parametrize("has_columns", [False, True])
def test_database_of_all_earlier_migrations_gets_later_ones(has_columns: bool) -> None:
    note(EARLIER)
    unapply_since_sizes()
    SnapshotPart.objects.create(project_id=1, session_id=uuid4(), ref="part", content=b"text", below=[])
    if not has_columns:
        execute("ALTER TABLE traces_app_snapshotpart DROP assembled_size, DROP assembled_depth")
    # What followed is there, and cannot be made again.
    call_command("migrate", *SIZES, verbosity=0, skip_checks=False)
    kept = SnapshotPart.objects.values_list("ref", "assembled_size", "assembled_depth")
    assert list(kept) == [("part", None, None)]
