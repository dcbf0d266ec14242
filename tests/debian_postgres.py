"""A PostgreSQL of Debian with its own data, and a PgBouncer before it, for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sdk.tests.paths import ROOT

BINARIES = Path("/usr/lib/postgresql/15/bin")
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
START_SECONDS = 120
# Settings of a server set up for Tracesite, except that it does not wait for the disk.
SERVER_SETTINGS = {
    "listen_addresses": "",
    "max_locks_per_transaction": "256",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
}
POOLER_SETTINGS = {
    "auth_type": "any",
    "max_client_conn": "500",
    "default_pool_size": "60",
    "listen_addr": "",
    "listen_port": "6432",
}
# As in docs/scaling.md.
CONNECT_QUERY = (
    "SET jit = off; SET max_parallel_workers_per_gather = 0; SET enable_seqscan = off; SET statement_timeout = 60000"
)
# Neither of the two runs as root, and their user cannot reach tmp_path of pytest.
_NOBODY = pwd.getpwnam("nobody")
_USER: dict[str, Any] = {"user": _NOBODY.pw_uid, "group": _NOBODY.pw_gid} if os.geteuid() == 0 else {}


@contextmanager
def postgres() -> Iterator[Path]:
    """Run PostgreSQL until the end of the block; give the directory of its socket. Anybody may connect as `tracesite`."""
    with tempfile.TemporaryDirectory(prefix="tracesite-pg-", dir="/tmp") as name:
        home = Path(name)
        if _USER:
            os.chown(home, _USER["user"], _USER["group"])
        make = [BINARIES / "initdb", "-D", home / "data", "-U", "tracesite", "--auth=trust", "--encoding=UTF8"]
        subprocess.run([*make, "--locale=C.UTF-8", "--no-sync"], check=True, capture_output=True, cwd="/", **_USER)
        control(home, "start")
        try:
            # Tests take on this role, too, which every PostgreSQL usually has.
            role = [BINARIES / "createuser", "-h", home, "-U", "tracesite", "--superuser", "postgres"]
            subprocess.run(role, check=True, cwd="/", **_USER)
            yield home
        finally:
            _end(home)


@contextmanager
def replica_of(primary: Path) -> Iterator[Path]:
    """Run a copy of the PostgreSQL whose socket is in `primary`, which follows it by streaming replication."""
    with tempfile.TemporaryDirectory(prefix="tracesite-pg-", dir="/tmp") as name:
        home = Path(name)
        if _USER:
            os.chown(home, _USER["user"], _USER["group"])
        copy = [
            BINARIES / "pg_basebackup",
            "-h",
            primary,
            "-U",
            "tracesite",
            "-D",
            home / "data",
            "--write-recovery-conf",
        ]
        subprocess.run([*copy, "--checkpoint=fast", "--no-sync"], check=True, capture_output=True, cwd="/", **_USER)
        control(home, "start")
        try:
            yield home
        finally:
            # Unless a test has stopped it.
            subprocess.run(
                _command(home, "-m", "immediate", "stop"), check=False, capture_output=True, cwd="/", **_USER
            )


def control(home: Path, *action: str) -> None:
    """Have pg_ctl start, stop or promote the PostgreSQL whose data is below `home`."""
    subprocess.run(_command(home, *action), check=True, cwd="/", **_USER)


def _end(home: Path) -> None:
    # A test may have stopped it.
    subprocess.run(_command(home, "-m", "immediate", "stop"), check=False, capture_output=True, cwd="/", **_USER)


def _command(home: Path, *action: str) -> list[Any]:
    settings = " ".join(f"-c {name}='{value}'" for name, value in SERVER_SETTINGS.items())
    start = ["-l", home / "log", "-o", f"-k {home} {settings}"] if "start" in action else []
    return [BINARIES / "pg_ctl", "-D", home / "data", "-w", "-s", *start, *action]


@contextmanager
def pgbouncer(home: Path, mode: Literal["session", "transaction"]) -> Iterator[int]:
    """Run PgBouncer before the PostgreSQL whose socket is in `home` until the end of the block; give its port there."""
    assert PGBOUNCER
    port = int(POOLER_SETTINGS["listen_port"])
    settings = {**POOLER_SETTINGS, "pool_mode": mode, "unix_socket_dir": home, "logfile": home / "pgbouncer.log"}
    config = home / "pgbouncer.ini"
    lines = [f"{name} = {value}\n" for name, value in settings.items()]
    databases = f"[databases]\n* = host={home} user=tracesite connect_query='{CONNECT_QUERY}'\n"
    config.write_text("".join([databases, "[pgbouncer]\n", *lines]))
    process = subprocess.Popen([PGBOUNCER, "-q", config], cwd="/", **_USER)
    try:
        deadline = time.monotonic() + START_SECONDS
        with socket.socket(socket.AF_UNIX) as client:
            while client.connect_ex(str(home / f".s.PGSQL.{port}")):
                assert process.poll() is None, (home / "pgbouncer.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def url(home: Path, port: int = 5432) -> str:
    return f"postgresql://tracesite@/postgres?host={quote(str(home))}&port={port}"


def url_of_both(one: Path, other: Path) -> str:
    """Return a URL of whichever of two servers can be written to."""
    hosts = quote(f"{one},{other}")
    return f"postgresql://tracesite@/postgres?host={hosts}&port=5432,5432&target_session_attrs=read-write"


def run_pytest(paths: Sequence[str], left_out: Sequence[str], workers: int = 2, **variables: str) -> None:
    """Run tests in a process with these variables, such as DATABASE_URL, and expect them to pass.

    Each worker makes a database and collects all of them; without workers the process itself does.
    """
    # Without what this run of pytest and its workers set, because it must not affect the inner run.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "TRACESITE_", "DJANGO_", "TEMPLATE_"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider", "--reuse-db", *paths]
    command += [f"--ignore-glob={pattern}" for pattern in left_out]
    # What it prints is what the outer test prints: seen at once with -s, else if it fails.
    done = subprocess.run(command, cwd=ROOT, env=environment | variables, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed: see what it printed."
