"""Backups are whole, of one moment and checked; restoring is all or nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from benchmarks.faults import findings
from benchmarks.faults.site import ROOT, Site, running
from benchmarks.restart.load import Load
from tracesite.backups import BackupError, back_up, check_files, newest, read_manifest

pytestmark = pytest.mark.system

PAUSE = 1.5
"""Seconds at most between two requests of a client: writers that never rest take the time of everything beside them."""
ROWS = "SELECT count(*) FROM messages_app_message"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as site:
        yield site


def command(site: Site, *arguments: str | Path, url: str | None = None) -> subprocess.CompletedProcess[str]:
    if url is None:
        return site.commands.run(*map(str, arguments), timeout=300)
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=site.environment | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def new_database(site: Site, name: str) -> str:
    with site.connect() as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlsplit(site.url)._replace(path=f"/{name}").geturl()


def databases(site: Site) -> list[str]:
    with site.connect() as connection:
        return [name for (name,) in connection.execute("SELECT datname FROM pg_database ORDER BY datname")]


@pytest.fixture(scope="module")
def backup(site: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Load]:
    """A backup that was made while agents wrote, and the writers, with what they had stored before it began."""
    before = Load(site.server.port, site.key, "before/", pause=PAUSE)
    before.start()
    time.sleep(0.5)
    before.stop()
    during = Load(site.server.port, site.key, "during/", pause=PAUSE)
    during.start()
    done = command(site, "backup", tmp_path_factory.mktemp("backups"))
    during.stop()
    assert done.returncode == 0, done.stderr
    assert "restored as a check" in done.stdout
    return Path(done.stdout.partition(": ")[0]), before


def test_a_backup_made_under_writes_is_restored_whole(site: Site, backup: tuple[Path, Load]) -> None:
    path, before = backup
    assert (path.stat().st_mode & 0o777, [each.name for each in path.parent.iterdir()]) == (0o700, [path.name])
    manifest = json.loads((path / "manifest.json").read_text())
    url = new_database(site, "restored")
    done = command(site, "restore_backup", path.parent, url=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path}: {sum(manifest['tables'].values()):,} rows as of ")
    with psycopg.connect(url, autocommit=True) as restored:
        assert findings.problems(restored, before.ledger, "before/") == []
        counted = restored.execute(ROWS).fetchone()
    with site.connect() as original:
        all_rows = original.execute(ROWS).fetchone()
    assert counted is not None and all_rows is not None
    assert counted[0] <= all_rows[0]
    checked = command(site, "check_traces", url=url)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert command(site, "migrate", "--check", url=url).returncode == 0
    assert not any("backup_check" in name for name in databases(site))


def test_only_an_empty_database_is_restored_into(site: Site, backup: tuple[Path, Load]) -> None:
    done = command(site, "restore_backup", backup[0])
    assert done.returncode == 1
    assert "is not empty" in done.stderr


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("changed", "is damaged: dump/toc.dat was changed"),
        ("missing", "is damaged: dump/toc.dat is missing"),
        ("added", "is damaged: dump/more was added"),
        ("format", "has the format 2; this version of Tracesite reads 1"),
        ("no manifest", "is no backup and has none"),
        ("no JSON", "is not the manifest of a backup"),
    ],
)
def test_a_damaged_backup_is_refused(backup: tuple[Path, Load], tmp_path: Path, damage: str, error: str) -> None:
    path = shutil.copytree(backup[0], tmp_path / "copy")
    manifest, contents = path / "manifest.json", path / "dump" / "toc.dat"
    if damage == "changed":
        with contents.open("r+b") as file:
            file.seek(100)
            file.write(b"\0\0")
    elif damage == "missing":
        contents.unlink()
    elif damage == "added":
        contents.with_name("more").touch()
    elif damage == "format":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2}))
    elif damage == "no JSON":
        manifest.write_text("{")
    else:
        manifest.unlink()
    with pytest.raises(BackupError, match=re.escape(error)):
        check_files(newest(path), read_manifest(newest(path)))


@pytest.mark.parametrize(
    ("part", "name", "value", "error"),
    [
        (
            "migrations",
            "traces_app",
            ["0002_toast_lz4", "9999_later"],
            "migrations that this one does not know: traces_app.9999_later",
        ),
        ("tables", "access_app_project", 2, "access_app_project has 1 rows once restored, and had 2"),
    ],
)
def test_another_manifest_is_refused(
    site: Site, backup: tuple[Path, Load], tmp_path: Path, part: str, name: str, value: object, error: str
) -> None:
    path = shutil.copytree(backup[0], tmp_path / "copy")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[part][name] = value
    (path / "manifest.json").write_text(json.dumps(manifest))
    done = command(site, "restore_backup", path, url=new_database(site, f"another_{part}"))
    assert done.returncode == 1
    assert error in done.stderr


def test_a_killed_backup_leaves_none_and_the_next_cleans_up(site: Site, tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "manage.py", "backup", tmp_path],
            cwd=ROOT,
            env=site.environment | {"DATABASE_URL": site.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def dumps() -> bool:
        return any(tmp_path.iterdir())

    def checks() -> bool:
        return any("backup_check" in name for name in databases(site))

    for reached in (dumps, checks):
        process, deadline = start(), time.monotonic() + 180
        while not reached():
            assert time.monotonic() < deadline
            if process.poll() is not None:
                process = start()  # the connection of the killed one was still there, and with it its lock
            time.sleep(0.05)
        process.kill()
        process.wait()
        assert [path for path in tmp_path.iterdir() if not path.name.startswith("unfinished-")] == []
    kept = []
    for options in ([], ["--no-verify"]):
        deadline = time.monotonic() + 180
        # A killed backup's connection ends with its program's.
        while (
            done := command(site, "backup", tmp_path, "--keep", "1", *options)
        ).returncode and time.monotonic() < deadline:
            assert "Another backup" in done.stderr
        assert done.returncode == 0, done.stderr
        kept.append(done.stdout.partition(": ")[0])
        assert [str(path) for path in tmp_path.iterdir()] == kept[-1:]
    assert not any("backup_check" in name for name in databases(site))


def test_a_role_that_may_not_create_databases_is_told(site: Site, tmp_path: Path) -> None:
    with site.connect("postgres") as connection:
        connection.execute("ALTER ROLE tracesite NOCREATEDB")
    try:
        done = command(site, "backup", tmp_path)
        assert done.returncode == 1
        assert "--no-verify" in done.stderr
        assert list(tmp_path.iterdir()) == []
        done = command(site, "backup", tmp_path, "--no-verify")
        assert (done.returncode, done.stderr) == (0, "")
        assert "not restored as a check" in done.stdout
    finally:
        with site.connect("postgres") as connection:
            connection.execute("ALTER ROLE tracesite CREATEDB")


def test_database_without_a_table_is_not_backed_up(site: Site, backup: tuple[Path, Load], tmp_path: Path) -> None:
    url = new_database(site, "damaged")
    assert command(site, "restore_backup", backup[0], url=url).returncode == 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE messages_app_message CASCADE")
    done = command(site, "backup", tmp_path, url=url)
    assert (done.returncode, "lacks the table messages_app_message" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_made_is_named() -> None:
    with pytest.raises(BackupError) as error:
        back_up(Path(__file__))
    assert str(error.value) == f"DIR: the directory {__file__} cannot be made: File exists."
