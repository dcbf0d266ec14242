"""Tests of traces_app/maintenance/archive and its commands: archive, drop, restore; what they keep, and what they refuse."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections
from django.test import Client

from access_app.db import primary
from access_app.encryption.keys import add_key, destroy_keys
from access_app.models import Project
from messages_app.interruptions import FLAG, PROCESS_ENDED, metadata_of
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements
from messages_app.sql.partitions import periods_of
from sdk.tests.paths import ROOT
from tests.admin_pages import text_of
from tests.encryption import MASTER_KEY, master_key
from tests.traces_app.conftest import answer, store
from tests.traces_app.maintenance.archive.conftest import (
    FAR,
    FEBRUARY,
    JANUARY,
    MID_MARCH,
    exports,
    fill,
    rows,
    run,
    tell,
)
from traces_app.events.store import record_events
from traces_app.ingest.partitions import TABLES, forget
from traces_app.maintenance.archive import archiving
from traces_app.maintenance.archive.archiving import archive, plan
from traces_app.maintenance.archive.datasets import DATASETS, Dataset
from traces_app.maintenance.archive.folder import open_folder
from traces_app.maintenance.archive.querying import archive_views
from traces_app.maintenance.archive.restoring import restore
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.management import archive_arguments
from traces_app.models import (
    Archive,
    Context,
    ErrorPattern,
    MessageSeal,
    RunVector,
    SearchPosting,
    SearchRows,
    SearchSegment,
)
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("length", ["MONTH", "DAY"])
def test_dropped_periods_are_restored_to_the_same_rows(
    project: Project, stranger: Project, tmp_path: Path, settings: Any, length: str
) -> None:
    settings.TRACESITE_PARTITIONS = length
    if length == "MONTH":
        fill(project, stranger)
    else:  # without the samples, because each day of them makes and drops a dozen tables
        for owner in (project, stranger):
            tell(owner, "both", JANUARY, FEBRUARY)
    before, exported = rows(), exports()
    folder = open_folder(str(tmp_path))
    planned = plan(primary, folder, before=FAR)
    assert (rows(), list(tmp_path.iterdir())) == (before, [])
    report = archive(primary, folder, before=FAR, drop=True)
    assert sorted(map(str, planned.dropped_at_once)) == sorted(report.dropped.periods)
    assert [(one.project, one.period, one.messages, one.is_new) for one in planned.periods] == [
        (done.project, done.period, done.manifest.tables["messages"].rows, True) for done in report.archived
    ]
    assert periods_of(primary, "messages_app_message") == []
    assert not Session.with_deleted.exists()
    assert report.messages_kept == 0
    assert sum(done.manifest.tables["messages"].rows for done in report.archived) == len(before["messages_app_message"])
    restore(primary, folder)
    assert rows() == before
    assert exports() == exported
    assert disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True))) == {}
    run("seal_traces")
    run("verify_traces", "--strict")


def test_project_is_dropped_restored_and_archived_again(
    project: Project, stranger: Project, staff: Client, tmp_path: Path
) -> None:
    for owner in (project, stranger):
        tell(owner, "both", JANUARY, FEBRUARY)
        tell(owner, "long", JANUARY, MID_MARCH)
    before = exports()
    archived = ["archive", "--older-than", "2024-03-01", "--to", str(tmp_path), "--project", "owner"]
    # The months have messages of another project, so they would stay.
    assert run(*archived, "--drop", "--dry-run").splitlines() == [
        f"2024-01 of owner would be archived in {tmp_path}: 4 messages",
        f"2024-02 of owner would be archived in {tmp_path}: 2 messages",
        "Would remove from the database: 6 messages, what is below them, and sessions without other messages",
    ]
    assert not list(tmp_path.iterdir())
    first = run(*archived)
    assert [line.split(":")[0] for line in first.splitlines()] == [
        "2024-01 of owner archived",
        "2024-02 of owner archived",
    ]
    assert exports() == before
    files = sorted(tmp_path.rglob("*.parquet"))
    # Without a change nothing is written again.
    assert "2024-01 of owner is archived already, unchanged" in run(*archived)
    would = json.loads(run(*archived, "--dry-run", "--json"))
    assert (would["dry_run"], would["dropped"]) == (True, {"messages": 0})
    assert [(one["period"], one["is_new"], one["rows"]["messages"]) for one in would["archived"]] == [
        ("2024-01", False, 4),
        ("2024-02", False, 2),
    ]
    said = run(*archived, "--drop")
    assert sorted(tmp_path.rglob("*.parquet")) == files
    # The months have messages of another project, so they stay.
    assert "Dropped at once" not in said
    assert "messages     6 removed" in said
    assert sorted(exports()) == sorted(name for name in before if not name.startswith("owner/both"))
    assert Archive.objects.filter(project=project, dropped_at=None).count() == 0
    # Its other messages are still there.
    partial = Session.objects.get(project=project, external_id="long")
    part = {"period": "2024-01", "url": str(tmp_path)}
    assert staff.get(f"/api/v1/sessions/{partial.pk}/").json()["archived_parts"] == [part]
    page = text_of(staff.get(f"/admin/messages_app/session/{partial.pk}/change/"))
    assert f"restore_archive {tmp_path} --project owner --period 2024-01 --session {partial.pk}" in page
    # What arrives late is added to what is archived.
    tell(project, "late", JANUARY)
    late = {name: text for name, text in exports().items() if name.startswith("owner/late")}
    assert "2024-01 of owner archived" in run(*archived, "--drop")
    tell(project, "later", JANUARY)
    assert "2024-01 of owner archived" in run(*archived, "--drop")
    assert not (tmp_path / "unfinished").exists() or not list((tmp_path / "unfinished").rglob("*.*"))
    assert len(list((tmp_path / "messages" / "project=owner" / "period=2024-01").iterdir())) == 1
    for arguments in (["--session", "late"], ["--project", "owner"], []):
        run("restore_archive", str(tmp_path), *arguments)
    restored = exports()
    assert {name: text for name, text in restored.items() if name.startswith("owner/late.")} == late
    assert {name: restored[name] for name in before} == before
    assert disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True))) == {}
    assert "archived_parts" not in staff.get(f"/api/v1/sessions/{partial.pk}/").json()
    assert "stay as the database has them" in run("restore_archive", str(tmp_path))
    assert exports() == restored


def test_periods_of_another_length_are_archived_as_before(project: Project, tmp_path: Path, settings: Any) -> None:
    folder = open_folder(str(tmp_path))
    tell(project, "first", JANUARY)
    for day in (10, 20):
        ask_model(project, "long", JANUARY.replace(day=day))
    before = rows()
    archive(primary, folder, before=FAR, drop=True)
    settings.TRACESITE_PARTITIONS = "WEEK"
    forget()
    tell(project, "late", JANUARY.replace(day=12))
    restore(primary, folder)
    weeks = [f"2024-01-{day:02}-week" for day in (1, 8, 15, 22, 29)]
    assert [str(period) for period in periods_of(primary, "messages_app_message")] == weeks
    # The conversation of a later week begins with an entry at the beginning of the month.
    fifteenth = JANUARY.replace(day=15, hour=0)
    assert purge(primary, PurgeScope(created_before=fifteenth)).periods == weeks[1:2]
    assert missing_entries() == set()
    restore(primary, folder)
    tell(project, "later", JANUARY.replace(day=12))
    # The whole month is archived again, and what has ended is dropped.
    report = archive(primary, folder, before=fifteenth, drop=True)
    assert [str(done.period) for done in report.archived] == ["2024-01"]
    assert report.dropped.periods == weeks[1:2]
    assert missing_entries() == set()
    # Weeks that are archived by themselves stay so in a month.
    tell(project, "february", FEBRUARY)
    archive(primary, folder, before=FAR, drop=True)
    settings.TRACESITE_PARTITIONS = "MONTH"
    forget()
    tell(project, "late in february", FEBRUARY.replace(day=20))
    restore(primary, folder)
    assert str(periods_of(primary, "messages_app_message")[-1]) == "2024-02"
    archive(primary, folder, before=FAR, drop=True)
    assert periods_of(primary, "messages_app_message") == []
    assert folder.periods("owner") == ["2024-01", "2024-02-08-week", "2024-02-15-week"]
    with archive_views(folder) as views:
        assert views.sql("SELECT count(*), count(DISTINCT id) FROM messages").fetchall() == [(10, 10)]
    restore(primary, folder)
    assert {table: set(some) - set(rows()[table]) for table, some in before.items()} == {
        table: set() for table in before
    }


def ask_model(project: Project, name: str, at: datetime) -> None:
    """Store a request to a model with a conversation that always begins in the same way."""
    event = records.Event(
        session_id=name,
        message_id=f"{name} {at}",
        id=f"{name} {at}",
        type="llm_request_start",
        timestamp=at,
        data={"messages": ["Hello", f"It is {at}."]},
    )
    record_events(primary, project.pk, [redact_event(event, DEFAULT_RULES)])


def missing_entries() -> set[Any]:
    """Return the entries of conversations that do not exist."""
    named = {
        entry
        for entries in Context.objects.exclude(kind="entry").values_list("entries", flat=True)
        for entry in entries or ()
    }
    return named - set(Context.objects.filter(kind="entry").values_list("pk", flat=True))


def test_message_that_changes_meanwhile_is_not_dropped(project: Project, stranger: Project, tmp_path: Path) -> None:
    tell(project, "first", JANUARY)
    tell(project, "second", JANUARY)
    tell(stranger, "first", JANUARY)

    def change_one() -> None:
        store(project, answer(created_at=JANUARY, external_id="first-a0", error="late"), external_id="first")
        connections.close_all()

    def progress(_messages: int) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(change_one).result()

    folder = open_folder("memory://archive")
    report = archive(primary, folder, before=FAR, drop=True, progress=progress)
    assert (report.messages_kept, report.dropped.periods) == (1, [])
    assert list(Message.objects.values_list("external_id", "error")) == [("first-a0", "late")]
    again = archive(primary, folder, before=FAR, drop=True)
    assert again.dropped.periods == ["2024-01"]
    assert not Session.objects.exists()
    restore(primary, folder)
    assert Message.objects.get(error="late").session.message_count == 2
    assert Message.objects.count() == 6


def test_damaged_file_is_neither_restored_nor_trusted(project: Project, tmp_path: Path) -> None:
    tell(project, "both", JANUARY, FEBRUARY)
    run("archive", "--older-than", "2024-04-01", "--to", str(tmp_path))
    (january,) = (tmp_path / "calls" / "project=owner" / "period=2024-01").iterdir()
    january.write_bytes(january.read_bytes()[:-1] + b"?")
    for command in (["archive", "--older-than", "2024-04-01", "--to"], ["restore_archive"]):
        with pytest.raises(
            CommandError, match=r"is damaged: calls/project=owner/period=2024-01/.*\.parquet was changed"
        ):
            run(*command, str(tmp_path), *(["--drop"] if command[0] == "archive" else []))
    assert Message.objects.count() == 4


def test_manifest_of_other_files_or_counts_is_refused(project: Project, tmp_path: Path) -> None:
    tell(project, "january", JANUARY)
    folder = tmp_path / "archive"
    run("archive", "--older-than", "2024-04-01", "--to", str(folder), "--drop")
    manifest = folder / "manifests" / "project=owner" / "period=2024-01.json"
    written = json.loads(manifest.read_text())
    calls = written["tables"]["calls"]
    shutil.copy(folder / calls["path"], tmp_path / Path(calls["path"]).name)
    for changed, reason in (
        ({"path": f"../{Path(calls['path']).name}"}, "names a file that is none of its own: '../"),
        (
            {"path": calls["path"].replace("owner", "other")},
            "names a file that is none of its own: 'calls/project=other/",
        ),
        ({"rows": calls["rows"] + 1}, r"calls/.* has \d+ rows, and its manifest says \d+"),
    ):
        manifest.write_text(json.dumps(written | {"tables": written["tables"] | {"calls": calls | changed}}))
        with pytest.raises(CommandError, match=reason):
            run("restore_archive", str(folder))
    manifest.write_text(json.dumps(written | {"project": "other"}))
    with pytest.raises(CommandError, match="says that it is the manifest of other, 2024-01"):
        run("restore_archive", str(folder))
    assert not Message.with_deleted.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("archive", "--older-than", "soon", "--to", "{0}"), "--older-than soon: use a number of days"),
        (("archive", "--older-than", "1", "--to", "{0}", "--project", "nobody"), "There is no project 'nobody'."),
        (("archive", "--older-than", "1", "--to", "ftp://me:word@host/x"), "The URL of the archive must not have a password"),
        (("archive", "--older-than", "1", "--to", "nothing://x"), "nothing://x is not a folder that Tracesite can write to"),
        (("archive", "--older-than", "1", "--to", __file__), f"{__file__} is a file, not a folder."),
        (("archive", "--older-than", "1", "--to", "/proc/none"), "--to /proc/none: [Errno 2] No such file or directory"),
        (("restore_archive", "{0}"), "Nothing of any project is archived in "),
        (("restore_archive", "{0}", "--period", "2024"), "--period 2024: use a month such as 2026-01, a day "),
        (("restore_archive", "{0}", "--session", "x"), "Nothing of session 'x' is archived in "),
        (("query_archive", "{0}/none", "SELECT 1"), "Nothing of any project is archived in "),
        (("query_archive", "{0}", "SELECT 1", "--project", "nobody"), "Nothing of project 'nobody' is archived in "),
    ],
)  # fmt: skip
def test_archive_commands_refuse_wrong_arguments(
    project: Project, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    if "/proc/none" in arguments:
        tell(project, "january", JANUARY)
    with pytest.raises(CommandError) as error:
        run(*(argument.format(tmp_path) for argument in arguments))
    assert str(error.value).startswith(said)
    # What the machine refuses may be mended without another argument.
    assert error.value.returncode == (1 if "/proc/none" in arguments else 2)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_arguments, "NEEDED", ("pyarrow", "no_such_package"))
    with pytest.raises(CommandError, match=r"Archives need no_such_package, .*: pip install no_such_package$"):
        run("archive", "--older-than", "1", "--to", "x")


def test_docs_list_the_columns_of_every_dataset() -> None:
    def listed(dataset: Dataset) -> str:
        by_type: dict[str, list[str]] = {}
        for column in dataset.columns:
            by_type.setdefault(str(column.type), []).append(f"`{column.name}`")
        return (
            f"| `{dataset.name}` | "
            + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_type.items())
            + " |"
        )

    docs = (ROOT / "docs" / "retention.md").read_text()
    assert [listed(dataset) for dataset in DATASETS] == docs.rstrip().splitlines()[-len(DATASETS) :]


def test_every_partitioned_table_is_archived_or_derived() -> None:
    derived = {SearchSegment, SearchRows, SearchPosting, RunVector, ErrorPattern, MessageSeal}
    archived = {dataset.table for dataset in DATASETS} | {model._meta.db_table for model in derived}
    assert {table.name for table in TABLES} - archived == set()


def test_archive_of_an_encrypted_project_has_nothing_readable(project: Project, tmp_path: Path) -> None:
    with master_key(MASTER_KEY):
        add_key(project)
        tell(project, "january", JANUARY)
        session = Session.objects.get()
        run = Message.objects.get(pk=session.last_run_id)
        run.is_completed, run.health, run.metadata = True, [FLAG], metadata_of(PROCESS_ENDED, JANUARY)
        run.save()
        Session.objects.update(last_interruption=PROCESS_ENDED)
        before, exported = rows(), exports()
        assert b"Shanghai" in b"".join(exported.values())
        archive(primary, open_folder(str(tmp_path)), before=FAR, drop=True)
        assert not Message.with_deleted.exists()
        with archive_views(open_folder(str(tmp_path))) as views:
            texts = str([views.sql(f'SELECT * FROM "{dataset.name}"').fetchall() for dataset in DATASETS])
        assert "Shanghai" not in texts and "tsenc1:" in texts
        restore(primary, open_folder(str(tmp_path)))
        assert (rows(), exports()) == (before, exported)
        destroy_keys(project)
        assert b"Shanghai" not in b"".join(exports().values())


def test_moved_encrypted_value_is_neither_archived_nor_restored(project: Project, tmp_path: Path) -> None:
    with master_key(MASTER_KEY):
        add_key(project)
        tell(project, "january", JANUARY)
        first, second = Message.objects.order_by("pk")[:2]
        with primary.connection.as_stored():
            copied = Message.objects.get(pk=first.pk).content
        Message.objects.filter(pk=second.pk).update(content=copied)
        refusal = f"messages {second.pk}: content was encrypted for another row or column"
        with pytest.raises(CommandError, match=refusal):
            run("archive", "--to", str(tmp_path / "a"), "--older-than", "0", "--drop")
        assert Message.objects.count() == 2 and not Archive.objects.exists()

        # In a file whose manifest was made for it.
        folder = open_folder(str(tmp_path / "b"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archiving, "bound", lambda _dataset, batches: batches)
            archive(primary, folder, before=FAR, drop=True)
        assert not Message.with_deleted.exists()
        with pytest.raises(CommandError, match=refusal):
            run("restore_archive", folder.url)
        assert not Message.with_deleted.exists() and not Session.with_deleted.exists()
