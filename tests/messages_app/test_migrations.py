"""Migrations: the data of earlier versions keeps its meaning, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from access_app.models import Project
from messages_app import ids
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements
from messages_app.sql.periods import Period
from traces_app.ingest.partitions import ensure_periods

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEFORE = [("messages_app", "0005_session_pinned_at"), ("traces_app", "0004_contexts")]


def migrate(targets: list[tuple[str, str]]) -> None:
    MigrationExecutor(connection).migrate(targets)


@pytest.fixture
def version_before(transactional_db: None) -> Iterator[None]:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    ensure_periods([Period.of(NOON)])
    migrate(BEFORE)
    yield
    migrate(newest)


def insert(table: str, **values: Any) -> None:
    with connection.cursor() as cursor:
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def insert_session(project: Project, name: str, status: str, *runs: dict[str, Any]) -> None:
    """Insert a session as of migration 0005, with a run for each of `runs`, a minute apart."""
    session_id = ids.session_id(NOON)
    insert(
        "messages_app_session", id=session_id, project_id=project.pk, external_id=name, title="", description="",
        end_user="", status=status, current_phase="", tags="{}", metadata="{}", redactions="[]",
        message_count=len(runs), call_count=0, failure_count=sum(run.get("failure_count", 0) for run in runs),
        input_tokens=0, output_tokens=0, duration_ms=0, created_at=NOON, updated_at=NOON, deleted_by="",
    )  # fmt: skip
    for minute, run in enumerate(runs):
        at = NOON + timedelta(minutes=minute)
        message_id = ids.message_id(at, "assistant")
        step_error = run.pop("step_error", None)
        insert(
            "messages_app_message", id=message_id, project_id=project.pk, session_id=session_id, external_id="",
            request_id="", content="", health="{}", redactions="[]", metadata="{}", call_count=0, input_tokens=0,
            output_tokens=0, version=1, created_at=at, updated_at=at, deleted_by="",
            **{"role": "assistant", "is_completed": True, "error": "", "failure_count": 0, "step_count": 0, **run},
        )  # fmt: skip
        if step_error is not None:
            insert(
                "traces_app_agentstep", id=ids.child_hex(message_id.int, "step", 0), message_id=message_id, iteration=0,
                ordinal=0, thought="", reasoning="", agent_name="", model="", metadata=step_error,
            )  # fmt: skip


def test_sessions_of_earlier_version_get_status_and_problems(version_before: None) -> None:
    project = Project.objects.create(slug="owner")
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
    migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())

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
    assert disagreements(list(Session.objects.values_list("pk", flat=True))) == {}
    assert Session.objects.get(external_id="sent").active_at == NOON + timedelta(minutes=1)
    assert Message.objects.filter(model_error_count=1).count() == 1

    migrate(BEFORE)
    with connection.cursor() as cursor:
        cursor.execute('SELECT external_id, status FROM messages_app_session ORDER BY external_id COLLATE "C"')
        assert cursor.fetchall() == [(name, status) for name, status, *_rest in found]
