"""While the database is away, full or has no connection to spare: 503 and when to come again, and recovery by itself."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import processes
from benchmarks.faults.site import Site, running

pytestmark = pytest.mark.system

# Every kind of path: none, a key, a cookie; reading, writing, the admin, the pages around.
PATHS = [
    ("GET", "/readyz", None),
    ("GET", "/api/v1/sessions/", None),
    ("GET", "/api/v1/messages/?limit=1", None),
    ("POST", "/api/v1/ingest/", {"sessions": [{"external_id": "outage", "messages": []}]}),
    ("PATCH", "/api/v1/sessions/outage/", {"title": "x"}),
    ("DELETE", "/api/v1/sessions/outage/", None),
    ("GET", "/api/v1/tools/", None),
]
ANY_SECONDS = 120


def ask(
    site: Site, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    client = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=60)
    sent = {"X-API-Key": site.key, "X-Request-ID": "r1"} if headers is None else headers
    if body is not None:
        sent = sent | {"Content-Type": "application/json"}
    try:
        client.request(method, path, None if body is None else json.dumps(body), sent)
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        client.close()


def assert_everything_is_answered_503(site: Site) -> None:
    for method, path, body in PATHS:
        status, headers, text = ask(site, method, path, body)
        assert (path, status, headers["Retry-After"]) == (path, 503, "5")
        error = json.loads(text)["error"]
        assert (error["field"], error["request_id"]) == (None, "r1")
        assert "database" in error["code"] or error["code"] == "unavailable"
    # With a cookie of the admin, which is looked up in the database too.
    cookie = {"Cookie": "sessionid=abcdefghijklmnopqrstuvwxyz012345"}
    status, headers, _text = ask(site, "GET", "/api/v1/sessions/", headers=cookie)
    assert (status, headers["Retry-After"]) == (503, "5")
    status, headers, text = ask(site, "GET", "/admin/", headers=cookie)
    assert (status, headers["Retry-After"], headers["Content-Type"]) == (503, "5", "text/html; charset=utf-8")
    assert "Traceback" not in text
    assert ask(site, "GET", "/healthz")[0] == 200


def assert_recovers_by_itself(site: Site) -> None:
    """All connections of all workers."""
    deadline = time.monotonic() + ANY_SECONDS
    while ask(site, "GET", "/readyz")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ask_at_once(site) == [200] * 128


def ask_at_once(site: Site) -> list[int]:
    """One after the other would use the same connection of each worker: more at a time than all workers have threads."""
    with ThreadPoolExecutor(32) as threads:
        return list(threads.map(lambda _: ask(site, "GET", "/api/v1/sessions/?limit=1")[0], range(128)))


@pytest.fixture(autouse=True)
def _many_connections(site: Site) -> None:
    """Are open when the outage comes."""
    assert ask_at_once(site) == [200] * 128


def send(site: Site, session: str, name: str, size: int = 100) -> tuple[int, http.client.HTTPMessage, str]:
    call = {"id": "c", "name": "t", "args": {}, "result": {"status": "success", "output": os.urandom(size // 2).hex()}}
    message = {
        "external_id": name,
        "role": "assistant",
        "content": "x",
        "agent_steps": [{"iteration": 0, "tool_calls": [call]}],
    }
    return ask(site, "POST", "/api/v1/ingest/", {"sessions": [{"external_id": session, "messages": [message]}]})


def counts(site: Site, session: str) -> tuple[set[str], int, int, int]:
    """The external ids of the messages of a session; its steps, calls and results."""
    with site.connect() as connection:
        names = connection.execute(
            "SELECT m.external_id FROM messages_app_message m JOIN messages_app_session s ON s.id = session_id "
            "WHERE s.external_id = %s",
            [session],
        ).fetchall()
        numbers = connection.execute(
            "SELECT count(st.id), count(c.id), count(r.id) FROM messages_app_message m "
            "JOIN messages_app_session s ON s.id = session_id LEFT JOIN traces_app_agentstep st ON st.message_id = m.id "
            "LEFT JOIN traces_app_toolcall c ON c.step_id = st.id LEFT JOIN traces_app_toolresult r ON r.id = c.id "
            "WHERE s.external_id = %s",
            [session],
        ).fetchone()
    assert numbers is not None
    return {name for (name,) in names}, *numbers


@contextmanager
def no_connections_left(site: Site) -> Iterator[None]:
    """Others have taken what connections there are, and ours were cut."""
    with ExitStack() as stack:
        operator = stack.enter_context(site.connect(user="postgres"))
        operator.execute("ALTER ROLE tracesite CONNECTION LIMIT 2")
        stack.callback(operator.execute, "ALTER ROLE tracesite CONNECTION LIMIT -1")
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tracesite'"
        others: list[psycopg.Connection] = []
        deadline = time.monotonic() + ANY_SECONDS
        while len(others) < 2:
            operator.execute(cut) if not others else None
            try:
                others.append(stack.enter_context(psycopg.connect(site.url, autocommit=True)))
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield


def test_requests_get_503_without_a_free_connection_and_recover(site: Site) -> None:
    with no_connections_left(site):
        assert_everything_is_answered_503(site)
    assert_recovers_by_itself(site)
    assert send(site, "connections", "one")[0] == 200


def test_requests_get_503_without_the_database_and_recover(site: Site) -> None:
    postmaster = site.postmaster()
    keeper = processes.parent_of(postmaster)
    os.kill(keeper, signal.SIGSTOP)  # or it would start another while we ask
    backends = processes.family(postmaster)
    try:
        os.kill(postmaster, signal.SIGKILL)
        # Backends see that it is gone when they look up next, and answer until then.
        while any(map(processes.is_running, backends)):
            time.sleep(0.01)
        assert_everything_is_answered_503(site)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert_recovers_by_itself(site)
    assert send(site, "away", "one")[0] == 200


# --- No space left ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = Path(tempfile.mkdtemp(prefix="tracesite-small-"))
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs", place], capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"this root cannot mount a small file system: {mounted.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
    finally:
        place.rmdir()


@contextmanager
def full(place: Path, *, left: int) -> Iterator[None]:
    """The file system has `left` bytes to spare."""
    ballast = place / "ballast"
    with open(ballast, "wb") as file:
        filled = False
        while not filled:
            room = os.statvfs(place).f_bavail * os.statvfs(place).f_bsize + os.fstat(file.fileno()).st_blocks * 512
            try:
                os.posix_fallocate(file.fileno(), 0, room - left)
                filled = True
            except OSError as error:  # the server has taken some of the room meanwhile
                if error.errno != errno.ENOSPC:
                    raise
    try:
        yield
    finally:
        ballast.unlink()


def use_up_the_log(site: Site) -> None:
    """Until PostgreSQL has ended itself; at first it may find a little room again while it recovers."""
    log = site.data_dir / "postgres" / "log"
    deadline = time.monotonic() + ANY_SECONDS
    while "shutting down due to startup process failure" not in log.read_text():
        assert time.monotonic() < deadline
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(site.url, user="postgres", autocommit=True) as operator,
        ):
            for number in range(20):
                operator.execute("SELECT pg_switch_wal()")
                operator.execute(f"CREATE TABLE filler{number} ()")
                operator.execute(f"DROP TABLE filler{number}")
        time.sleep(0.1)


def test_requests_get_503_on_a_full_disk_and_recover(small_disk: Path) -> None:
    with running(data_dir=small_disk, workers=1) as site:
        assert send(site, "full", "before")[0] == 200
        acknowledged, refused = {"before"}, set()
        with full(small_disk, left=1_000_000):
            for number in range(60):
                status, headers, text = send(site, "full", f"m{number}", size=100_000)
                if status == 200:
                    acknowledged.add(f"m{number}")
                else:
                    refused.add((status, headers["Retry-After"], json.loads(text)["error"]["code"]))
            assert refused == {(503, "5", "storage_full")}
            # What is there can still be read.
            assert ask(site, "GET", "/api/v1/sessions/full/messages/")[0] == 200
        assert send(site, "full", "after", size=100_000)[0] == 200
        acknowledged.add("after")
        number = len(acknowledged)
        assert counts(site, "full") == (acknowledged, number, number, number)

        # PostgreSQL itself ends when it has no room for its log of changes; its keeper brings it back.
        with full(small_disk, left=0):
            use_up_the_log(site)
            assert send(site, "full", "log")[0] == 503
            assert ask(site, "GET", "/readyz")[0] == 503
        assert_recovers_by_itself(site)
        assert send(site, "full", "log")[0] == 200
        number = len(acknowledged) + 1
        assert counts(site, "full") == (acknowledged | {"log"}, number, number, number)
