"""Migrations: the data of earlier versions keeps its meaning, forwards and backwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_django
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from access_app.db import connection, using
from messages_app import ids
from messages_app.models import ListColumns, Message, SavedView, Session
from messages_app.session_counters import disagreements
from messages_app.sql.partitions import make_periods
from messages_app.sql.periods import Period
from tests.project_databases import copies
from traces_app.ingest.partitions import TABLES
from traces_app.models import ModelPrice
from tracesite.backups import postgres_program

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEFORE = [("messages_app", "0005_session_pinned_at"), ("traces_app", "0004_contexts")]


@pytest.fixture
def old_database(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    """The database of an earlier version, with the alias `old`, in use, and an empty one, `new`."""
    with django_db_blocker.unblock(), copies(["old", "new"], of="template1"), using("old"):
        executor = MigrationExecutor(connections["old"])
        # An empty database would get the migrations that replace these.
        executor.loader = MigrationLoader(connections["old"], replace_migrations=False)
        executor.migrate(BEFORE)
        had = connection.introspection.table_names()
        make_periods([table for table in TABLES if table.name in had], [Period.of(NOON)])
        yield


def migrate_old(*target: str) -> None:
    call_command("migrate", *target, database="old", verbosity=0)


def insert(table: str, **values: Any) -> None:
    with connection.cursor() as cursor:
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def schema(alias: str) -> list[str]:
    """Return the statements that make a database, without its partitions."""
    leaves = [f"--exclude-table={table.name}_*" for table in TABLES]
    connections[alias].ensure_connection()
    at = connections[alias].connection.info
    dumped = subprocess.run(
        [
            postgres_program("pg_dump"),
            "--schema-only",
            "-h",
            at.host,
            "-p",
            str(at.port),
            "-U",
            at.user,
            *leaves,
            at.dbname,
        ],
        env=os.environ | {"PGPASSWORD": at.password},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # PostgreSQL 18 names this constraint after the column, which had another name in earlier versions.
    statements = dumped.replace("CONSTRAINT messages_app_session_status_not_null NOT NULL", "NOT NULL")
    # These two have a key that differs each time.
    return [line for line in statements.splitlines() if not line.startswith((r"\restrict", r"\unrestrict"))]


def insert_session(project: int, name: str, status: str, *runs: dict[str, Any]) -> None:
    """Insert a session as of migration 0005, with a run for each of `runs`, a minute apart."""
    session_id = ids.session_id(NOON)
    insert(
        "messages_app_session", id=session_id, project_id=project, external_id=name, title="", description="",
        end_user="", status=status, current_phase="", tags="{}", metadata="{}", redactions="[]",
        message_count=len(runs), call_count=0, failure_count=sum(run.get("failure_count", 0) for run in runs),
        input_tokens=0, output_tokens=0, duration_ms=0, created_at=NOON, updated_at=NOON, deleted_by="",
    )  # fmt: skip
    for minute, run in enumerate(runs):
        at = NOON + timedelta(minutes=minute)
        message_id = ids.message_id(at, "assistant")
        step_error = run.pop("step_error", None)
        insert(
            "messages_app_message", id=message_id, project_id=project, session_id=session_id, external_id="",
            request_id="", content="", health="{}", redactions="[]", metadata="{}", call_count=0, input_tokens=0,
            output_tokens=0, version=1, created_at=at, updated_at=at, deleted_by="",
            **{"role": "assistant", "is_completed": True, "error": "", "failure_count": 0, "step_count": 0, **run},
        )  # fmt: skip
        if step_error is not None:
            insert(
                "traces_app_agentstep", id=ids.child_hex(message_id.int, "step", 0), message_id=message_id, iteration=0,
                ordinal=0, thought="", reasoning="", agent_name="", model="", metadata=step_error,
            )  # fmt: skip


@pytest.mark.system
def test_sessions_of_earlier_version_get_status_and_problems(old_database: None) -> None:
    project = 1
    insert("access_app_project", id=project, slug="owner", name="", created_at=NOON)
    insert_session(project, "sent", "running", {}, {})
    insert_session(project, "open", "running", {}, {"is_completed": False})
    insert_session(project, "crashed", "running", {}, {"error": "It broke.", "failure_count": 2})
    insert_session(project, "recovered", "running", {"error": "It broke."}, {})
    insert_session(
        project, "caught", "running", {"step_error": '{"error": "slow down"}'}, {"step_error": '{"error": ""}'}
    )
    insert_session(project, "paused", "paused", {"is_completed": False})
    insert_session(project, "finished", "completed", {})
    insert_session(project, "told", "completed", {"error": "It broke."})
    insert_session(project, "empty", "running")
    migrate_old("messages_app", "0007_session_status")
    migrate_old("messages_app", "0005_session_pinned_at")
    with connection.cursor() as cursor:
        cursor.execute("SELECT external_id, status FROM messages_app_session")
        shown = dict(cursor.fetchall())
    migrate_old()

    columns = ("external_id", "status", "said_status", "problem_count", "open_count")
    found = sorted(Session.objects.values_list(*columns))
    assert found == [
        ("caught", "completed", "", 1, 0),
        ("crashed", "error", "", 3, 0),
        ("empty", "running", "", 0, 0),
        ("finished", "completed", "", 0, 0),
        ("open", "running", "", 0, 1),
        ("paused", "paused", "paused", 0, 1),
        ("recovered", "completed", "", 1, 0),
        ("sent", "completed", "", 0, 0),
        ("told", "completed", "completed", 1, 0),
    ]
    assert shown == {name: status for name, status, *_rest in found}
    assert disagreements(list(Session.objects.values_list("pk", flat=True))) == {}
    assert Session.objects.get(external_id="sent").active_at == NOON + timedelta(minutes=1)
    assert Message.objects.filter(model_error_count=1).count() == 1

    call_command("migrate", database="new", verbosity=0)
    assert schema("old") == schema("new")
    assert [ModelPrice.objects.using(alias).exists() for alias in ("old", "new", "default")] == [True, True, False]


def test_views_and_columns_move_to_the_list_of_their_title(transactional_db: None) -> None:
    call_command("migrate", "messages_app", "0001_squashed_0019", verbosity=0)
    owner = User.objects.create_user("ada")
    messages, calls = "messages_app.message", "traces_app.toolcall"
    saved = {
        "runs": (messages, "model=large&role=assistant", f"{messages}?role=assistant"),
        "of users": (messages, "role=assistant_2&tool=a", messages),
        "failed": (calls, "status=error", f"{calls}?status=error"),
        "open": (calls, "status=pending", calls),
        "broken sessions": ("messages_app.session", "status=error", "messages_app.session"),
    }
    for name, (list_name, query, _new) in saved.items():
        SavedView.objects.create(owner=owner, name=name, list_name=list_name, query=query)
    ListColumns.objects.create(owner=owner, list_name=messages, names=["text", "took"])
    call_command("migrate", verbosity=0)
    assert dict(SavedView.objects.values_list("name", "list_name")) == {name: new for name, (*_, new) in saved.items()}
    kept = dict(ListColumns.objects.values_list("list_name", "names"))
    assert kept == {messages: ["text", "took"], f"{messages}?role=assistant": ["text", "took"]}
