"""The measured server: `manage.py serve` as in production, with a separate database."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from sdk.tests.ports import free_port
from tracesite.serving import embedded_postgres

from . import http_client, processes

ROOT = Path(__file__).resolve().parent.parent
DATA_DIR = ROOT / ".tracesite" / "bench"
DATABASE = "tracesite_bench_"
START_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Server:
    """Running server."""

    port: int
    pid: int

    def connect(self) -> http_client.Connection:
        return http_client.Connection(self.port)

    @property
    def workers(self) -> list[int]:
        return processes.workers(self.pid)

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(processes.family(self.pid))


@contextmanager
def database() -> Iterator[str]:
    """Create and migrate a database, set DATABASE_URL to it and set up Django; drop it at the end.

    It is on the server of DATABASE_URL, else on a durable embedded PostgreSQL with its data in .tracesite/bench.
    """
    os.environ["TRACESITE_DATA_DIR"] = str(DATA_DIR)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    embedded_postgres.ensure()
    outer = os.environ["DATABASE_URL"]
    name = f"{DATABASE}{os.getpid()}"
    with psycopg.connect(outer, autocommit=True) as connection:
        _drop_leftovers(connection)
        connection.execute(f'CREATE DATABASE "{name}"')
        os.environ["DATABASE_URL"] = urlsplit(outer)._replace(path=f"/{name}").geturl()
        try:
            _migrate()
            yield os.environ["DATABASE_URL"]
        finally:
            os.environ["DATABASE_URL"] = outer
            _drop(connection, name)


def _drop(connection: psycopg.Connection, name: str) -> None:
    """Drop the database, once no autovacuum worker, which another role may not end, is at work in it."""
    for attempt in range(20):
        try:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            return
        except psycopg.errors.InsufficientPrivilege:
            if attempt == 19:
                raise
            time.sleep(0.5)


@contextmanager
def serving(workers: int) -> Iterator[Server]:
    """Run `manage.py serve` on a free port. It logs to a file, because logging is part of its cost."""
    port = free_port()
    log_path = DATA_DIR / "server.log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, ROOT / "manage.py", "serve", "--port", str(port), "--workers", str(workers)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={name: value for name, value in os.environ.items() if name != "TRACESITE_LOG_LEVEL"},
        )
        try:
            server = Server(port=port, pid=process.pid)
            _wait_until_ready(server, workers, process)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=120)


def postmaster(connection: psycopg.Connection) -> int | None:
    """Return the main process of the database server; None if it runs on another machine."""
    try:
        parent = processes.parent_of(connection.info.backend_pid)
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except FileNotFoundError:
        return None
    return parent if name in ("postgres", "postmaster") else None


def _migrate() -> None:
    # Imported here, because Django reads DATABASE_URL when its settings load.
    import django
    from django.core.management import call_command

    os.environ["TRACESITE_LOG_LEVEL"] = "ERROR"  # keeps the log of this process out of the output
    django.setup()
    call_command("migrate", interactive=False, verbosity=0)


def _drop_leftovers(connection: psycopg.Connection) -> None:
    """Drop the databases of killed runs."""
    found = connection.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [DATABASE])
    for (name,) in found.fetchall():
        if not Path(f"/proc/{name.removeprefix(DATABASE)}").exists():
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _wait_until_ready(server: Server, workers: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while len(server.workers) < workers or not _answers(server):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The server did not start:\n{(DATA_DIR / 'server.log').read_text()[-2000:]}")
        time.sleep(0.1)


def _answers(server: Server) -> bool:
    try:
        connection = server.connect()
        connection.send(http_client.get("/readyz", {}))
    except (OSError, http_client.HttpError):
        return False
    connection.close()
    return True
