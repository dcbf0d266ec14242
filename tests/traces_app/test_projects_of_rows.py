"""Test that every row below sessions and messages carries their project, whichever way it came in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pyarrow.parquet as pq
import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.db.reading import is_of_traces
from access_app.models import Project
from messages_app.models import (
    Change,
    ChangeReader,
    Message,
    MessageKey,
    PurgedPeriod,
    Reference,
    Session,
    SessionTombstone,
)
from messages_app.writes import delete_session
from tests.traces_app.conftest import answer, drop_all_periods, question, store
from tests.traces_app.maintenance.archive.conftest import JANUARY, MID_MARCH, tell
from tests.traces_app.maintenance.seals.sealing import seal, store_run, verify
from tests.traces_app.planted import Garden, plant, plant_elsewhere
from tests.traces_app.planted_snapshots import plant_snapshots
from traces_app.maintenance.archive.folder import open_folder
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.seals import rows as sealed_rows
from traces_app.models import (
    AgentStep,
    Archive,
    ArchivedSession,
    Context,
    DueTrace,
    EmbedderInUse,
    Erasure,
    ErrorPattern,
    Event,
    JobRun,
    MessageSeal,
    RunVector,
    Score,
    SealBatch,
    SealLayout,
    SearchPosting,
    SearchRows,
    SearchSegment,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    Tool,
    ToolCall,
    ToolPeriod,
    ToolResult,
    ToolRollUp,
)

pytestmark = pytest.mark.django_db(transaction=True)

ABOVE: Mapping[type[models.Model], tuple[type[models.Model], str]] = {
    Message: (Session, "session_id"),
    MessageKey: (Message, "message_id"),
    Reference: (Message, "message_id"),
    AgentStep: (Message, "message_id"),
    ToolCall: (Message, "message_id"),
    ToolResult: (ToolCall, "id"),
    Event: (Message, "message_id"),
    Context: (Session, "session_id"),
    Score: (Session, "session_id"),
    RunVector: (Message, "id"),
    ErrorPattern: (Message, "message_id"),
    MessageSeal: (Message, "id"),
    Change: (Message, "message_id"),
    Snapshot: (Session, "session_id"),
    SnapshotPart: (Session, "session_id"),
    SnapshotSums: (Session, "session_id"),
    ArchivedSession: (Archive, "archive_id"),
}
"""The model above each model, with the column that names its row."""
FIRST = {Session, SessionTombstone, Tool, ToolPeriod, Span, DueTrace, SealBatch, Archive}
"""Models of projects that nothing else is above of; the row above a tombstone is gone."""
WITHOUT: Mapping[type[models.Model], str] = {
    **dict.fromkeys((SearchSegment, SearchRows, SearchPosting), "a segment has rows of all projects"),
    PurgedPeriod: "a period goes with the messages of all projects",
    **dict.fromkeys((ChangeReader, ToolRollUp, EmbedderInUse, SealLayout, JobRun), "of the database"),
    Erasure: "names several",
}


def differing() -> dict[str, int]:
    """Return the number of rows with another project than the row above, by table."""
    found = {}
    for model, (above, column) in ABOVE.items():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*) FROM {model._meta.db_table} AS t JOIN {above._meta.db_table} AS a ON a.id = t.{column} "
                "WHERE t.project_id IS DISTINCT FROM a.project_id"
            )
            (found[model.__name__],) = cursor.fetchone()
    return {name: number for name, number in found.items() if number}


def empty() -> set[type[models.Model]]:
    return {model for model in ABOVE if not model._base_manager.exists()}


def derive() -> None:
    """Make what follows from the log of changes, but not the statistics."""
    call_command("index_search", stdout=StringIO())
    store_vectors(primary, patience=timedelta(0))
    store_patterns(primary, patience=timedelta(0))
    seal()


@pytest.fixture(autouse=True)
def stranger(transactional_db: None) -> Project:
    """Another project with traces, before that of the test, so that their ids differ."""
    drop_all_periods()
    stranger = Project.objects.create(slug="stranger")
    store_run(stranger)
    tell(stranger, "january", JANUARY)
    return stranger


def test_every_table_of_traces_carries_its_project() -> None:
    there = {model for model in apps.get_models() if is_of_traces(model)}
    with_project = {model for model in there if any(one.column == "project_id" for one in model._meta.concrete_fields)}
    assert with_project == ABOVE.keys() | FIRST
    assert there - with_project == WITHOUT.keys()


def test_rows_of_every_way_in_carry_the_project(project: Project, client_of_key: Client) -> None:
    for way in (plant, plant_elsewhere, plant_snapshots, plant):
        way(Garden("EMP-{}"), client_of_key)
    derive()
    assert empty() == {ArchivedSession}
    assert differing() == {}
    for model in ABOVE.keys() - {ArchivedSession, Change}:
        assert model._base_manager.filter(project=project).exists(), model


def many(project: Project) -> None:
    """Store so many rows that they are copied."""
    store(project, *(answer(external_id=f"a{number}", knowledge_references=[{"content": "x"}]) for number in range(40)))


def grown(project: Project) -> None:
    """Store messages that grow with each delivery."""
    store(project, question(), answer(agent_steps=[], is_completed=False))
    store_run(project, is_completed=False)
    store(project, answer(knowledge_references=[{"content": "x"}]))


def repaired(project: Project) -> None:
    """Restore keys that are missing."""
    store(project, question(), answer())
    MessageKey.objects.filter(project=project).delete()
    call_command("check_traces", repair=True, stdout=StringIO())
    assert MessageKey.objects.filter(project=project).count() == 2


def sealed_again(project: Project) -> None:
    """Seal messages that change, and that are removed."""
    store_run(project)
    seal()
    store(project, answer(external_id="a1", metadata={"n": 2}), external_id="session a1")
    seal()
    delete_session(primary, Session.objects.get(project=project).pk, by="test")
    call_command("purge", deleted_longer_than="0", yes=True, stdout=StringIO())
    seal()


@pytest.mark.parametrize("way", [many, grown, repaired, sealed_again])
def test_rows_carry_the_project_after(way: Callable[[Project], None], project: Project) -> None:
    way(project)
    assert differing() == {}


@pytest.mark.parametrize("has_column", [True, False])
def test_archived_rows_are_restored_with_the_project(
    has_column: bool, project: Project, stranger: Project, tmp_path: Path
) -> None:
    tell(project, "january", JANUARY)
    store(
        project,
        answer(created_at=JANUARY, knowledge_references=[{"content": "x"}]),
        external_id="references",
        created_at=JANUARY,
    )
    call_command("archive", older_than=f"{MID_MARCH:%Y-%m-%d}", to=str(tmp_path), drop=True, stdout=StringIO())
    assert not Message.with_deleted.filter(project=project).exists()
    if not has_column:
        forget_column(tmp_path)
    call_command("restore_archive", str(tmp_path), stdout=StringIO())
    derive()
    assert differing() == {}
    for model in (AgentStep, ToolResult, Reference, MessageKey, SnapshotPart, SnapshotSums, ArchivedSession):
        assert model._base_manager.filter(project=project).exists(), model


def forget_column(folder: Path) -> None:
    """Rewrite an archive as a version wrote it whose rows below messages lacked the column."""
    files = open_folder(str(folder))
    for path in (folder / "manifests").rglob("*.json"):
        manifest = msgspec.json.decode(path.read_bytes())
        for name, file in manifest["tables"].items():
            if name not in ("sessions", "messages", "calls", "events", "spans", "scores", "tools"):
                table = pq.read_table(folder / file["path"], partitioning=None)
                pq.write_table(table.drop_columns("project_id"), folder / file["path"])
                file["bytes"] = (folder / file["path"]).stat().st_size
                file["sha256"] = files.sha256(str(folder / file["path"]))
        path.write_bytes(msgspec.json.encode(manifest))


def test_marks_of_what_was_purged_carry_the_project(project: Project) -> None:
    store(project, question(), answer())
    message = Message.objects.filter(project=project).earliest("pk")
    Message.objects.filter(pk=message.pk).update(deleted_at=timezone.now() - timedelta(days=1))
    purge = {"project": project.slug, "deleted_longer_than": "0", "yes": True, "stdout": StringIO()}
    call_command("purge", **purge)
    marks = MessageKey.objects.filter(purged_at__isnull=False)
    assert list(marks.values_list("project", "message_id")) == [(project.pk, message.pk)]
    delete_session(primary, message.session_id, by="test")
    call_command("purge", **purge)
    assert set(SessionTombstone.objects.values_list("project", flat=True)) == {project.pk}


def test_migration_fills_rows_of_before_and_their_seals_verify(
    project: Project, client_of_key: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_run(project)
    tell(project, "january", JANUARY)
    older = [(kind, [one for one in names if one != "project_id"]) for kind, names in sealed_rows.layout()]
    with monkeypatch.context() as patched:
        patched.setattr("traces_app.maintenance.seals.sealing.layout", lambda: older)
        seal()
    store_patterns(primary, patience=timedelta(0))
    call_command("archive", older_than=f"{MID_MARCH:%Y-%m-%d}", to=str(tmp_path), stdout=StringIO())
    purged = MessageKey.objects.create(project=project, key=uuid4(), message_id=uuid4(), purged_at=timezone.now())
    SessionTombstone.objects.create(project=project, key=uuid4(), purged_at=timezone.now())
    added = [
        *(MessageKey, SessionTombstone, Reference, AgentStep, ToolResult, Context, ErrorPattern, MessageSeal),
        ArchivedSession,
        *(SnapshotSums, Snapshot, SnapshotPart),
    ]
    before = {model: projects_of(model) for model in added}
    assert all(before.values())

    for app, name in (("traces_app", "0006_error_patterns"), ("messages_app", "0003_error_patterns")):
        call_command("migrate", app, name, verbosity=0)
    assert not any("project_id" in columns_of(model) for model in added)
    call_command("migrate", verbosity=0)

    before[MessageKey][purged.pk] = 0
    before[SessionTombstone] = dict.fromkeys(before[SessionTombstone], 0)
    assert {model: projects_of(model) for model in added} == before
    assert {model for model in added if columns_of(model)["project_id"]} == {MessageSeal}
    assert verify() == {}
    # An archive from before knows them again, and new partitions refuse rows without a project, too.
    archived = {str(one.pk) for one in Archive.objects.all()}
    call_command("archive", older_than=f"{MID_MARCH:%Y-%m-%d}", to=str(tmp_path), stdout=StringIO())
    assert {str(one.pk) for one in Archive.objects.all()} == archived
    store(project, question(created_at=JANUARY.replace(year=2023)), external_id="new")
    seal()
    assert (verify(), differing()) == ({}, {})


def projects_of(model: type[models.Model]) -> dict[UUID | int, int | None]:
    return dict(model._base_manager.values_list("pk", "project_id"))


def columns_of(model: type[models.Model]) -> dict[str, bool]:
    """Return the columns of a table, and whether they may be NULL."""
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, model._meta.db_table)
    return {column.name: column.null_ok for column in described}
