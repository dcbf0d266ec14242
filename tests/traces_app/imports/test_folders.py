"""Transcripts of several files, in folders and in zip archives, and those in databases; beside others."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from sdk.tests.formats.test_opencode import REPLY, WHOLE, database, export, stored
from sdk.tests.formats.test_pi import WHOLE as PI
from traces_app.imports.importer import import_paths

from .test_importer import stored as in_database


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


OTHERS: dict[str, Any] = {
    "sessions/pi.jsonl": "".join(json.dumps(line) + "\n" for line in PI),
    "sessions/notes.json": {"a": 1},
    ".cache/message/ses_9/msg_9.json": REPLY["info"],
}


def imported(path: Path, project: Project) -> dict[str, tuple[str, str]]:
    """Return the status and the format of each file that is named in the report, without the folder."""
    return {report.path.removeprefix(str(path.parent)): (report.status, report.format) for report in import_paths(primary, [path], project.pk)}  # fmt: skip


@pytest.fixture
def expected(db: None, tmp_path: Path) -> Any:
    """What the database has of the export of the same session."""
    project = Project.objects.create(slug="exported")
    imported(write(tmp_path / "export", {"session.json": export(WHOLE)}), project)
    return in_database(project)


def test_files_of_a_session_in_a_folder_are_joined(expected: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "storage", stored(WHOLE, ""))
    project = Project.objects.create(slug="stored")
    for _time in range(2):
        assert imported(folder, project) == {"/storage": ("read", "opencode")}
        assert in_database(project) == expected


def test_other_files_of_a_folder_are_read_for_themselves(tmp_path: Path, db: None) -> None:
    folder = write(tmp_path / "home", {**stored(WHOLE), **OTHERS})
    assert imported(folder, Project.objects.create(slug="home")) == {
        "/home": ("read", "opencode"),
        "/home/.cache": ("skipped", ""),
        "/home/sessions/pi.jsonl": ("read", "pi"),
        "/home/sessions/notes.json": ("skipped", ""),
    }


def test_files_of_a_session_in_a_zip_archive_are_joined(expected: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "home", {**stored(WHOLE), "sessions/notes.json": {"a": 1}})
    with zipfile.ZipFile(tmp_path / "home.zip", "w") as archive:
        for file in folder.rglob("*.json"):
            archive.write(file, file.relative_to(folder))
    project = Project.objects.create(slug="zipped")
    assert imported(tmp_path / "home.zip", project) == {
        "/home.zip": ("read", "opencode"),
        "/home.zip/sessions/notes.json": ("skipped", ""),
    }
    assert in_database(project) == expected


def test_broken_file_of_a_session_costs_that_file(tmp_path: Path, db: None) -> None:
    folder = write(tmp_path / "storage", {**stored(WHOLE, ""), "part/msg_2/prt_0007.json": '{"id": "prt_0007"'})
    [report] = import_paths(primary, [folder], Project.objects.create(slug="broken").pk)
    assert (report.status, [where for where, _why in report.left_out]) == ("read", ["part/msg_2/prt_0007.json", "(all)"])  # fmt: skip


def test_folder_without_such_files_has_no_report_of_its_own(tmp_path: Path, db: None) -> None:
    folder = write(tmp_path / "logs", OTHERS)
    assert "/logs" not in imported(folder, Project.objects.create(slug="logs"))


def test_database_in_a_folder_or_named_is_read(expected: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "share", {"notes.json": {"a": 1}})
    path = database(folder / "opencode.db", WHOLE)
    project = Project.objects.create(slug="database")
    assert imported(folder, project)["/share/opencode.db"] == ("read", "opencode")
    assert in_database(project) == expected
    assert imported(path, project) == {"/opencode.db": ("read", "opencode")}
    assert in_database(project) == expected


def test_rows_of_the_write_ahead_log_are_read(expected: Any, tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", WHOLE[:1])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("ATTACH ? AS whole", [str(database(tmp_path / "whole.db", WHOLE))])
        for table in ("message", "part"):
            connection.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM whole.{table}")
        connection.commit()
        project = Project.objects.create(slug="wal")
        assert imported(path, project) == {"/opencode.db": ("read", "opencode")}
    assert in_database(project) == expected


def test_broken_or_unknown_database_has_failed_if_it_is_named(tmp_path: Path, db: None) -> None:
    project = Project.objects.create(slug="broken")
    path = database(tmp_path / "opencode.db", WHOLE)
    whole = path.read_bytes()
    for broken in (whole[:100], whole[:5000] + b"x" * 8000, whole[:16] + b"\xff" * 500):
        path.write_bytes(broken)
        assert imported(path, project)["/opencode.db"][0] == "failed"
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE a (b)")
    [report] = import_paths(primary, [path], project.pk)
    assert (report.status, report.reason) == ("failed", "not a database of a known format")
    assert imported(tmp_path, project) == {f"/{tmp_path.name}/opencode.db": ("skipped", "")}
