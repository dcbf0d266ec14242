"""A restart that no client sees. Many of them: python -m benchmarks.restart --help"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.faults import findings
from benchmarks.faults.site import ROOT
from benchmarks.restart import wrk
from benchmarks.restart.load import IDLE_SECONDS, Load
from benchmarks.restart.restarts import KINDS, Kind, Supervised, supervised
from sdk.tests.ports import free_port
from tests.waiting import eventually
from tracesite.serving.worker import LINGER_SECONDS

pytestmark = pytest.mark.system

PATIENCE_SECONDS = 180
PAUSE = 1.5
"""Seconds at most between two requests of a client: some of them are under way all the time, and there is time to restart."""
BATCH = json.dumps({"sessions": [{"external_id": "long", "messages": [{"external_id": "m", "role": "user"}]}]}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Supervised]:
    """Serves on a socket that stays open; whoever stops it starts it again."""
    with supervised(options=("--grace", "60")) as server:
        yield server


wait_for = partial(eventually, seconds=PATIENCE_SECONDS)


def begun_request(server: Supervised) -> http.client.HTTPConnection:
    """A request of which a worker has half."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.putrequest("POST", "/api/v1/ingest/")
    headers = {"X-API-Key": server.site.key, "Content-Type": "application/json", "Content-Length": str(len(BATCH))}
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(BATCH[:20])
    client_port = connection.sock.getsockname()[1]
    wait_for(lambda: has_read(server.port, client_port))
    return connection


def has_read(port: int, client_port: int) -> bool:
    """Return whether the server has accepted a connection and read all that was sent over it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if [int(address.rpartition(":")[2], 16) for address in fields[1:3]] == [port, client_port]:
            waiting, inode = fields[4].partition(":")[2], fields[9]
            return int(waiting, 16) == 0 and inode != "0"
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_restart_under_load_fails_and_loses_nothing(server: Supervised, kind: Kind) -> None:
    load = Load(server.port, server.site.key, f"{kind}/", pause=PAUSE)
    load.start()
    try:
        wait_for(lambda: len(load.ledger.entries) > 25)
        server.restart(kind)
        after = len(load.ledger.entries) + 25
        wait_for(lambda: len(load.ledger.entries) > after)
    finally:
        load.stop()
    assert load.ledger.faults == []
    assert set(load.ledger.answers) == {"200"}
    with server.site.connect() as connection:
        assert findings.problems(connection, load.ledger, f"{kind}/") == []


@pytest.mark.skipif(not wrk.is_installed(), reason="wrk is not installed (Debian: apt install wrk)")
@pytest.mark.parametrize("kind", KINDS)
def test_restart_under_wrk_fails_and_loses_nothing(server: Supervised, kind: Kind) -> None:
    process = wrk.start(server, seconds=4)
    time.sleep(1)
    server.restart(kind)
    _answers, acknowledged, problems = wrk.finish(process, server)
    assert problems == []
    assert acknowledged > 50


def test_reload_keeps_the_parent_and_replaces_the_workers(server: Supervised) -> None:
    assert server.process is not None
    before = server.wait_for_workers()
    server.restart("reload")
    assert server.process.poll() is None
    assert set(before).isdisjoint(server.wait_for_workers())


def test_reload_of_a_broken_release_keeps_the_old_workers(server: Supervised) -> None:
    assert server.process is not None
    workers = server.wait_for_workers()
    with server.site.connect() as connection:
        of_access = "app = 'access_app'"
        connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM django_migrations WHERE {of_access}")
        connection.execute(f"DELETE FROM django_migrations WHERE {of_access}")
        try:
            server.process.send_signal(signal.SIGHUP)
            wait_for(lambda: "Not restarted" in server.log.read_text())
            (said,) = (line for line in server.log.read_text().splitlines() if "Not restarted" in line)
            assert (json.loads(said)["level"], "Run: manage.py migrate" in said) == ("ERROR", True)
            assert server.wait_for_workers() == workers
        finally:
            connection.execute("INSERT INTO django_migrations SELECT * FROM kept")


def test_load_leaves_idle_connections_before_the_server_does() -> None:
    assert IDLE_SECONDS < LINGER_SECONDS


def make_release(directory: Path, *, says: str) -> None:
    """A copy of Tracesite whose health page says something of its own."""
    directory.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("tracesite", "manage.py"):
            (directory / path.name).symlink_to(path)
    shutil.copy(ROOT / "manage.py", directory)
    shutil.copytree(ROOT / "tracesite", directory / "tracesite", ignore=shutil.ignore_patterns("__pycache__"))
    health = directory / "tracesite" / "http" / "health.py"
    health.write_text(health.read_text().replace('"status": "ok"', f'"status": "{says}"'))


def test_reload_serves_the_code_that_the_link_points_to(server: Supervised, tmp_path: Path) -> None:
    """As docs/production.md has it: a directory for each version, and a link."""
    for version in ("old", "new"):
        make_release(tmp_path / version, says=version)
    current = tmp_path / "current"
    current.symlink_to(tmp_path / "old")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        linked = Supervised(server.site, listener, workers=1, program=str(current / "manage.py"))
        try:
            linked.start()
            linked.wait_for_workers()
            assert health(linked.port) == "old"
            current.unlink()
            current.symlink_to(tmp_path / "new")
            linked.restart("reload")
            assert health(linked.port) == "new"
            linked.stop()
        finally:
            linked.kill()


def health(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/healthz")
    status: str = json.loads(connection.getresponse().read())["status"]
    connection.close()
    return status


def test_stop_finishes_requests_and_announces_the_close(server: Supervised) -> None:
    assert server.process is not None
    idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    idle.request("GET", "/healthz")
    assert idle.getresponse().read()
    connection = begun_request(server)
    server.process.terminate()
    time.sleep(3)  # longer than anybody lingers without something to do
    connection.send(BATCH[20:])
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (200, "close")
    assert json.loads(answer.read())["refused"] == []
    assert server.process.wait(timeout=PATIENCE_SECONDS) == 0
    # In order: the end of the stream, no reset.
    assert idle.sock is not None
    assert idle.sock.recv(1) == b""
    idle.close()
    connection.close()
    server.start()
    server.wait_for_workers()


def test_requests_that_arrive_as_workers_end_are_answered(server: Supervised) -> None:
    workers = server.wait_for_workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS) for _ in range(20)]
    for client in clients:
        client.request("GET", "/healthz")
    time.sleep(0.5)
    # The workers find the connections, the signal, and timers that are due, at once.
    for number in (signal.SIGTERM, signal.SIGCONT):
        for pid in workers:
            os.kill(pid, number)
    assert [client.getresponse().status for client in clients] == [200] * 20
    for client in clients:
        client.close()
    server.wait_for_workers(instead_of=workers)


def test_request_beyond_the_grace_is_cut_off_and_logged(server: Supervised) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        impatient = Supervised(server.site, listener, workers=1, options=("--grace", "5"))
        try:
            impatient.start()
            impatient.wait_for_workers()
            connection = begun_request(impatient)
            begin = time.monotonic()
            impatient.stop()
            assert time.monotonic() - begin > 4
        finally:
            impatient.kill()
        assert "Cancel 1 running task(s)" in impatient.log.read_text()
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            connection.getresponse()
        connection.close()


def test_connections_wait_while_no_server_runs(server: Supervised) -> None:
    server.stop()
    answers: list[int] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/healthz")
        answers.append(connection.getresponse().status)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert answers == []
    server.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 20


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd is not installed")
def test_systemd_socket_activation_starts_and_is_notified(server: Supervised, tmp_path: Path) -> None:
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(PATIENCE_SECONDS)
        command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", "-E", "NOTIFY_SOCKET"]
        for name in server.site.environment:
            command += ["-E", name]
        process = subprocess.Popen(
            [*command, sys.executable, "manage.py", "serve"],
            cwd=ROOT,
            env=server.site.environment | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for(lambda: _answers(port))
            assert notify.recv(100).startswith(b"READY=1\n")
            process.terminate()
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()
