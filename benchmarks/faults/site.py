"""Complete Tracesite for fault injection: a durable embedded PostgreSQL and `manage.py serve`, as processes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks import processes
from sdk.tests.ports import free_port

from .commands import Commands

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180
PATIENCE_SECONDS = 300
PROJECT = "faults"

# Keeps the database running while its standard input is open, which closes when the parent process ends in any way.
_KEEPER_OF_THE_DATABASE = """
import os, sys
from tracesite.serving import embedded_postgres
embedded_postgres.ensure(durable=True)
print(os.environ["DATABASE_URL"], flush=True)
sys.stdin.read()
"""


# One process instead of three commands, each of which takes seconds to start.
PREPARE = """
import sys
import django
from django.core.management import call_command
from tracesite.serving import embedded_postgres
embedded_postgres.ensure()
django.setup()
call_command("migrate", verbosity=0)
call_command("create_project", sys.argv[1])
call_command("create_api_key", project=sys.argv[1], name="faults", json=True)
"""


class SiteError(Exception):
    """Failed process, with the end of its log."""


@dataclass
class Server:
    """Process of `manage.py serve`."""

    port: int
    log: Path
    environment: dict[str, str]
    workers: int = 2
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start or restart the server and wait until it responds."""
        self._wait_for_the_end_of_the_last()
        command = [sys.executable, "manage.py", "serve", "--port", str(self.port), "--workers", str(self.workers)]
        deadline = time.monotonic() + START_SECONDS
        while not self._start_once(command, deadline):
            time.sleep(0.1)

    def _wait_for_the_end_of_the_last(self) -> None:
        """Wait until the workers of a killed parent are gone, because they still respond for a moment."""
        if self.process is None:
            return
        begin = time.monotonic()
        while left := processes.in_session(self.process.pid):
            if time.monotonic() - begin > START_SECONDS:
                raise SiteError(f"Workers {left} outlive their parent:\n{self.end_of_log()}")
            time.sleep(0.01)

    def _start_once(self, command: list[str], deadline: float) -> bool:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while len(self.worker_pids()) < self.workers or not self.is_ready():
            if self.process.poll() is not None and time.monotonic() < deadline:
                return False  # for example a port still in use; a supervisor retries
            if time.monotonic() > deadline:
                raise SiteError(f"The server did not start:\n{self.end_of_log()}")
            time.sleep(0.05)
        return True

    def has_ended(self) -> bool:
        assert self.process is not None, "it was started"
        return self.process.poll() is not None

    def end_of_log(self) -> str:
        return self.log.read_text()[-3000:]

    def family(self) -> list[int]:
        assert self.process is not None, "it was started"
        return processes.family(self.process.pid)

    def worker_pids(self) -> list[int]:
        assert self.process is not None, "it was started"
        return processes.workers(self.process.pid)

    def jobs_pid(self) -> int:
        """Return the process of the jobs; wait until there is one."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for pid in self.family():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if b"--beside" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        return pid
            time.sleep(0.05)
        raise SiteError("The process of the jobs did not start.")

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz", timeout=5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str, headers: dict[str, str] | None = None, timeout: float = 60) -> tuple[int, bytes]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            client.request("GET", path, headers=headers or {})
            answer = client.getresponse()
            return answer.status, answer.read()
        finally:
            client.close()

    def stop(self) -> None:
        """Stop the server by SIGTERM, then kill remaining processes."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
        # The process group also contains workers whose parent was killed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Site:
    """Separate database and server with one project, in a separate directory."""

    data_dir: Path
    url: str
    """Database URL for psycopg."""
    server: Server
    environment: dict[str, str]
    key: str = ""
    """API key with all scopes of PROJECT."""
    patience: float = PATIENCE_SECONDS
    """Seconds that a command may take."""

    def __post_init__(self) -> None:
        self.commands = Commands(self.environment)

    def manage(self, *arguments: str, check: bool = True) -> str:
        """Run a management command and return its output. Raise SiteError if it fails, and TimeoutExpired after `patience`."""
        done = self.commands.run(*arguments, timeout=self.patience)
        if check and done.returncode:
            raise SiteError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def python(self, *arguments: str, check: bool = True) -> str:
        """Run Python and return its output. Raise SiteError if it fails, and TimeoutExpired after `patience`."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.patience,
            check=False,
        )
        if check and done.returncode:
            raise SiteError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def postmaster(self) -> int:
        """Return the process id of PostgreSQL; wait until it runs."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
                pid = int((self.data_dir / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])
                if Path(f"/proc/{pid}/comm").read_text().strip() == "postgres":
                    return pid
            if time.monotonic() > deadline:
                raise SiteError("PostgreSQL did not come back.")
            time.sleep(0.05)

    def connect(self, user: str = "tracesite") -> psycopg.Connection:
        """Return a connection for queries; wait for a PostgreSQL that is restarting."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return psycopg.connect(self.url, user=user, autocommit=True, connect_timeout=10)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@contextmanager
def running(
    *, workers: int = 2, data_dir: Path | None = None, serve: bool = True, patience: float = PATIENCE_SECONDS
) -> Iterator[Site]:
    """Run a site; at any exit, end its processes and remove its files.

    A command may take `patience` seconds. `data_dir` is an empty directory to use instead of a temporary one. The database is a copy: to make one and to migrate it
    takes seconds.
    """
    template = _template()
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = _temporary_directory()
            stack.callback(shutil.rmtree, data_dir, ignore_errors=True)
        # Owners too: PostgreSQL runs as another user if the tests run as root.
        subprocess.run(["cp", "-a", f"{template.data_dir}/.", data_dir], check=True)
        environment = _environment(data_dir)
        url = stack.enter_context(_database(environment))
        port = free_port()
        server = Server(port=port, log=data_dir / "server.log", environment=environment, workers=workers)
        site = Site(
            data_dir=data_dir, url=url, server=server, environment=environment, key=template.key, patience=patience
        )
        stack.callback(site.commands.close)
        stack.callback(server.stop)
        if serve:
            server.start()
        yield site


@dataclass(frozen=True)
class _Template:
    """Data directory of a database that was stopped, migrated, with PROJECT and its API key."""

    data_dir: Path
    key: str


@functools.cache
def _template() -> _Template:
    """Make the template of all sites of this process, which is removed when it ends."""
    data_dir = _temporary_directory()
    atexit.register(shutil.rmtree, data_dir, ignore_errors=True)
    environment = _environment(data_dir)
    with _database(environment):
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE, PROJECT],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if prepared.returncode:
        raise SiteError(f"{prepared.stdout}{prepared.stderr}")
    return _Template(data_dir=data_dir, key=json.loads(prepared.stdout.splitlines()[-1])["key"])


def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tracesite-faults-"))
    path.chmod(0o755)  # PostgreSQL runs as another user if the tests run as root
    return path


def _environment(data_dir: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "TRACESITE_LOG_LEVEL")}
    return kept | {"TRACESITE_DATA_DIR": str(data_dir), "DJANGO_SETTINGS_MODULE": "tracesite.settings"}


@contextmanager
def _database(environment: dict[str, str]) -> Iterator[str]:
    user = subprocess.Popen(
        [sys.executable, "-c", _KEEPER_OF_THE_DATABASE],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert user.stdin is not None and user.stdout is not None, "they are pipes"
    try:
        url = user.stdout.readline().strip()
        if not url:
            raise SiteError("The embedded PostgreSQL did not start.")
        yield url
    finally:
        user.stdin.close()
        user.stdout.close()
        try:
            user.wait(timeout=60)
        except subprocess.TimeoutExpired:
            user.kill()
            user.wait()
