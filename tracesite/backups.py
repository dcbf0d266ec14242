"""Backups of the whole database, with the programs of PostgreSQL: made, checked, restored.

A backup is a directory. `dump` in it is what `pg_dump --format=directory` wrote, and `manifest.json` describes it: migrations,
the number of rows of each table, and size and SHA-256 of each file. Rows and dump are of one snapshot, the moment
`began`, so a backup is consistent while agents write, and has everything that was acknowledged before.

It has its name once it is whole. Until then it is called `unfinished-...`, which the next backup removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from django.db.migrations.loader import MigrationLoader
from psycopg import conninfo, sql

from access_app.db import primary
from access_app.db.direct import session_lock
from access_app.db.earlier_migrations import EARLIER
from access_app.db.unapplied import unapplied_migrations
from tracesite.serving import embedded_postgres

FORMAT = 1
MANIFEST = "manifest.json"
DUMP = "dump"
PREFIX = "tracesite-"
UNFINISHED = "unfinished-"
CHECK_SUFFIX = "_backup_check_"
"""Between the name of the database and a random one, in the name of the database that a backup is restored into as a check."""
_LOCK = 0x7472_6261
"""The advisory lock that is held while a backup is made."""


class BackupError(Exception):
    """A backup could not be made, checked or restored; the text says why, and what to do."""


class File(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 (hexadecimal) of a file."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a backup. Times are UTC."""

    format: int
    postgresql: int
    """The version as PostgreSQL numbers it: 160004 for 16.4."""
    began: datetime
    ended: datetime
    migrations: dict[str, list[str]]
    """The names of the applied migrations of each app."""
    tables: dict[str, int]
    """The rows of each table; of a partitioned one, of each partition."""
    files: dict[str, File]
    """The files of the dump by name."""

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(self.tables.values())

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files.values())


def back_up(directory: Path, *, jobs: int = 1, verify: bool = True, keep: int | None = None) -> tuple[Path, Manifest]:
    """Make a backup below a directory while the service runs, and return its path and manifest.

    With `verify` it is restored into a database of its own, whose rows are counted, and which is then dropped. With `keep` older
    backups than so many are removed. `jobs` is the number of tables that are dumped and restored at a time.

    Raises BackupError. Then, and if the process is killed, there is no backup.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BackupError(f"DIR: the directory {directory} cannot be made: {error.strerror}.") from error
    with session_lock(primary, _LOCK) as is_only_one:
        if not is_only_one:
            raise BackupError("Another backup of this database is being made.")
        for leftover in directory.glob(f"{UNFINISHED}*"):
            shutil.rmtree(leftover)
        began = datetime.now(UTC)
        name = f"{PREFIX}{began:%Y%m%dT%H%M%SZ}"
        draft = directory / f"{UNFINISHED}{name}"
        draft.mkdir(mode=0o700)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, draft)
            manifest = _dump(draft, began, jobs)
            if verify:
                _check_by_restoring(draft, manifest, jobs)
            on_failure.pop_all()
        whole = draft.rename(directory / name)
        _sync(directory)
        if keep is not None:
            for older in backups_in(directory)[:-keep]:
                shutil.rmtree(older)
    return whole, manifest


def restore(backup: Path) -> Manifest:
    """Restore a backup into the empty database of DATABASE_URL: all of it or nothing. Return its manifest.

    Raises BackupError if it is damaged, or of a later version than this code, or if the database has tables.
    """
    manifest = read_manifest(backup)
    check_files(backup, manifest)
    known = MigrationLoader(None).disk_migrations.keys() | EARLIER
    newer = [
        f"{app}.{name}" for app, names in manifest.migrations.items() for name in names if (app, name) not in known
    ]
    if newer:
        raise BackupError(
            f"The backup is of a later version of Tracesite, with migrations that this one does not know: {', '.join(newer[:3])}. "
            "Install that version."
        )
    if tables := primary.connection.introspection.table_names():
        raise BackupError(
            f"The database {primary.connection.settings_dict['NAME']!r} is not empty: it has {len(tables)} tables. Create a new one and "
            "name it in DATABASE_URL (for the embedded PostgreSQL: a new TRACESITE_DATA_DIR)."
        )
    _run("pg_restore", ["--single-transaction", *_RESTORE, str(backup / DUMP)], _url())
    with _connected(_url()) as restored:
        _compare(manifest, _rows(restored))
        restored.execute("ANALYZE")
    return manifest


def missing_migrations(manifest: Manifest) -> bool:
    """Return whether this code has migrations that the backup has not."""
    applied = {(app, name) for app, names in manifest.migrations.items() for name in names}
    return not applied.issuperset(MigrationLoader(None).disk_migrations)


def backups_in(directory: Path) -> list[Path]:
    """Return the backups of a directory, the oldest first."""
    return sorted(path.parent for path in directory.glob(f"{PREFIX}*/{MANIFEST}"))


def newest(path: Path) -> Path:
    """Return the path itself if it is a backup, else the newest backup in it. Raises BackupError if there is none."""
    if (path / MANIFEST).exists():
        return path
    backups = backups_in(path)
    if not backups:
        raise BackupError(f"{path} is no backup and has none: there is no {PREFIX}*/{MANIFEST} in it.")
    return backups[-1]


def read_manifest(backup: Path) -> Manifest:
    """Read the manifest of a backup. Raises BackupError."""
    path = backup / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise BackupError(f"{path} is not the manifest of a backup: {error}.") from None
    if manifest.format != FORMAT:
        raise BackupError(f"{path} has the format {manifest.format}; this version of Tracesite reads {FORMAT}.")
    return manifest


def check_files(backup: Path, manifest: Manifest) -> None:
    """Compare the files of a backup with its manifest. Raises BackupError, which names the first that differs."""
    files = _files(backup / DUMP)
    for name in sorted(files.keys() | manifest.files.keys()):
        if files.get(name) != manifest.files.get(name):
            state = "is missing" if name not in files else "was added" if name not in manifest.files else "was changed"
            raise BackupError(f"The backup {backup} is damaged: {DUMP}/{name} {state}.")


# --- The parts ----------------------------------------------------------------------------------------------

_RESTORE = ["--exit-on-error", "--no-owner", "--no-privileges"]


def _dump(draft: Path, began: datetime, jobs: int) -> Manifest:
    with primary.atomic(), primary.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        # Until the end no partition can be dropped, and because the snapshot comes after the locks, it has all of them.
        existing = primary.connection.introspection.django_table_names(only_existing=True)
        missing = {*primary.connection.introspection.django_table_names()} - {*existing}
        if missing and not unapplied_migrations():
            # With --keep a damaged database would push out the good backups.
            raise BackupError(f"The database lacks the table {min(missing)}. Restore the last good backup.")
        parents = sql.SQL(", ").join(map(sql.Identifier, existing))
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(parents))
        cursor.execute("SELECT pg_export_snapshot(), current_setting('server_version_num')::integer")
        snapshot, version = cursor.fetchone()
        cursor.execute("SELECT app, array_agg(name::text ORDER BY id) FROM django_migrations GROUP BY app ORDER BY app")
        migrations = dict(cursor.fetchall())
        tables = _rows(_django())
        options = ["--format=directory", f"--jobs={jobs}", f"--snapshot={snapshot}", f"--file={draft / DUMP}"]
        _run("pg_dump", options, _url())
    manifest = Manifest(
        format=FORMAT,
        postgresql=version,
        began=began,
        ended=datetime.now(UTC),
        migrations=migrations,
        tables=tables,
        files=_files(draft / DUMP),
    )
    with (draft / MANIFEST).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(draft)
    return manifest


def _check_by_restoring(draft: Path, manifest: Manifest, jobs: int) -> None:
    database = primary.connection.settings_dict["NAME"]
    with primary.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [database + CHECK_SUFFIX])
        for (leftover,) in cursor.fetchall():
            _drop(leftover)
        cursor.execute("SELECT datcollate, datctype FROM pg_database WHERE datname = current_database()")
        collate, ctype = cursor.fetchone()
        name = f"{database}{CHECK_SUFFIX}{secrets.token_hex(4)}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE {} LC_CTYPE {}")
        try:
            _django().execute(create.format(sql.Identifier(name), sql.Literal(collate), sql.Literal(ctype)))
        except psycopg.errors.InsufficientPrivilege:
            raise BackupError(
                f"The role {primary.connection.settings_dict['USER']!r} may not create the database that a backup is restored into as a "
                "check. Let a superuser run ALTER ROLE ... CREATEDB, or leave the check out with --no-verify."
            ) from None
    try:
        url = _url(name)
        _run("pg_restore", [f"--jobs={jobs}", *_RESTORE, str(draft / DUMP)], url)
        with _connected(url) as restored:
            _compare(manifest, _rows(restored))
    finally:
        _drop(name)


def _drop(database: str) -> None:
    with primary.cursor() as cursor:
        cursor.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


def _rows(database: psycopg.Connection[Any]) -> dict[str, int]:
    """Count the rows of each table, of partitioned ones those of each partition."""
    names = database.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY relname"
    ).fetchall()
    rows = {}
    for (name,) in names:
        counted = database.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()
        rows[name] = counted[0] if counted else 0
    return rows


def _compare(manifest: Manifest, tables: Mapping[str, int]) -> None:
    for name in sorted(manifest.tables.keys() | tables.keys()):
        if tables.get(name) != manifest.tables.get(name):
            raise BackupError(
                f"The backup is not whole: {name} has {tables.get(name, 'no')} rows once restored, and had "
                f"{manifest.tables.get(name, 'none')} when it was made."
            )


def _files(directory: Path) -> dict[str, File]:
    files = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        with path.open("rb") as file:
            files[path.name] = File(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    return files


def _sync(directory: Path) -> None:
    """Have the names of a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _django() -> psycopg.Connection[Any]:
    """Return the connection of Django, opened if it is not."""
    primary.connection.ensure_connection()
    connection: psycopg.Connection[Any] = primary.connection.connection
    return connection


def _url(database: str | None = None) -> str:
    """Return how Django is connected, or how another database of its server is reached, without the password.

    Only with what the settings give: libpq adds options that the programs of an older PostgreSQL refuse.
    """
    given = {"host", "port", "user", "dbname", *primary.connection.settings_dict["OPTIONS"]}
    parameters = {name: value for name, value in _django().info.get_parameters().items() if name in given}
    return conninfo.make_conninfo(**parameters | ({"dbname": database} if database else {}))


def _connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(conninfo.make_conninfo(url, password=_django().info.password or None), autocommit=True)


def _run(program: str, options: list[str], url: str) -> None:
    """Run a program of PostgreSQL on a database. Raises BackupError with its last lines if it fails."""
    # Not among the arguments, which all users of the machine can read.
    password = {"PGPASSWORD": _django().info.password} if _django().info.password else {}
    done = subprocess.run(  # noqa: S603  # a program of PostgreSQL, with arguments made here
        [postgres_program(program), f"--dbname={url}", "--no-password", *options],
        env=os.environ | password,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupError(f"{program} failed: " + "\n".join(done.stderr.strip().splitlines()[-3:]))


def postgres_program(name: str) -> Path:
    """Return a program of the server's major version or the next later one: pg_dump refuses newer servers, pg_restore sets what older ones lack."""
    needed = _django().info.server_version // 10_000
    on_path = shutil.which(name)
    candidates = [
        *([Path(on_path)] if on_path else []),
        *(directory / name for directory in Path("/usr/lib/postgresql").glob("*/bin")),  # Debian
        *(directory / name for directory in embedded_postgres.program_directories()),
    ]
    versions = {path: embedded_postgres.major_version(path) or 0 for path in candidates if path.exists()}
    fitting = [path for path, version in versions.items() if version >= needed]
    if not fitting:
        raise BackupError(
            f"The server is PostgreSQL {needed}, and no {name} of that version or a later one is installed. On Debian: apt "
            f"install postgresql-client-{needed}."
        )
    return min(fitting, key=versions.__getitem__)
