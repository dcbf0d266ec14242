"""Requests that spin for ever, in servers started with `serve`, and what counts as too much."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import processes
from benchmarks.faults.site import Site, running
from benchmarks.restart.restarts import Supervised
from sdk.tests.ports import free_port
from tracesite.serving import cpu_limit
from tracesite.serving.cpu_limit import CpuLimit

pytestmark = pytest.mark.system

PATIENCE_SECONDS = 180


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(serve=False) as site:
        yield site


@contextmanager
def serving(site: Site, log: Path, *, workers: int = 2, live: str = "with", grace: str = "4") -> Iterator[Supervised]:
    """The site with a page that spins, whose requests may take two seconds of CPU time."""
    spinning = {
        "DJANGO_SETTINGS_MODULE": "tests.tracesite.serving.spinning_settings",
        "TRACESITE_REQUEST_CPU_SECONDS": "2",
    }
    environment = site.environment | spinning
    with socket.create_server(("127.0.0.1", free_port()), backlog=1024) as listener:
        own = replace(site, environment=environment, server=replace(site.server, log=log))
        server = Supervised(own, listener, workers, ("--grace", grace, "--live", live))
        try:
            server.start()
            server.wait_for_workers()
            yield server
        finally:
            server.kill()


class Client(threading.Thread):
    """Asks for one page after the other, on new connections."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.answers: list[Any] = []
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            try:
                self.answers.append(get(self.port, "/healthz"))
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(error)
            time.sleep(0.02)


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def begin(port: int, path: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


@pytest.mark.parametrize(("workers", "spinners", "live"), [(1, 3, "with"), (2, 1, "without")])
def test_worker_with_requests_that_spin_is_replaced(
    site: Site, tmp_path: Path, workers: int, spinners: int, live: str
) -> None:
    with serving(site, tmp_path / "log", workers=workers, live=live) as server:
        old = server.wait_for_workers()
        client = Client(server.port)
        client.start()
        try:
            clients = [begin(server.port, "/spin/a-secret/?key=a-secret") for _ in range(spinners)]
            new = server.wait_for_workers(instead_of=old)
        finally:
            client.is_over = True
            client.join()
        assert not any(map(processes.is_running, old))
        assert set(client.answers) == {200}
        assert get(server.port, "/healthz") == 200
        assert server.wait_for_workers() == new
        for one in clients:
            with one, suppress(ConnectionError):
                assert one.recv(100) == b""
    log = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    error, *others = [line["message"] for line in lines if line["level"] == "ERROR"]
    assert all("timeout graceful shutdown exceeded" in other for other in others)
    assert re.fullmatch(
        r"Requests take more CPU time than TRACESITE_REQUEST_CPU_SECONDS \(2\): "
        + ", ".join([r"GET /spin/<str:key>/ \(\d+ s\)"] * spinners)
        + r"\. New workers are started, and this one ends\.",
        error,
    )


def spin(seconds: float) -> None:
    """Use CPU time in this thread."""
    began = time.thread_time()
    while time.thread_time() < began + seconds:
        pass


def application(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
    """Answer in `parts`, each of which takes `seconds` of CPU time."""
    return (spin(environ["seconds"]) or b"." for _part in range(environ["parts"]))


def served(limit: CpuLimit, path: str, *, parts: int, seconds: float) -> bytes:
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "parts": parts, "seconds": seconds}
    return b"".join(limit.measured(application)(environ, None))


@pytest.fixture
def limit(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuLimit]:
    """A limit of half a second, which ends at once if nobody has ended it, and by a signal that is ignored here."""
    settings.TRACESITE_REQUEST_CPU_SECONDS = 0.5
    monkeypatch.setattr(cpu_limit, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(cpu_limit, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(os, "getppid", os.getpid)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGHUP, signal.SIGTERM)}
    limit = CpuLimit()
    limit.start()
    yield limit
    limit.end()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_request_over_the_limit_is_logged_without_its_path(limit: CpuLimit, caplog: pytest.LogCaptureFixture) -> None:
    served(limit, "/api/v1/sessions/a-secret/", parts=1, seconds=2)
    first, second = caplog.messages
    assert "TRACESITE_REQUEST_CPU_SECONDS (0): GET /api/v1/sessions/<" in first
    assert "a-secret" not in first
    assert second == "No new workers have started; this one ends without them."


def test_request_without_a_route_is_logged(limit: CpuLimit, caplog: pytest.LogCaptureFixture) -> None:
    served(limit, "/nowhere/\xff", parts=1, seconds=2)
    assert "GET (no route) (" in caplog.messages[0]


def test_request_that_hands_on_parts_is_not_over_the_limit(limit: CpuLimit, caplog: pytest.LogCaptureFixture) -> None:
    assert served(limit, "/healthz", parts=8, seconds=0.2) == b"." * 8
    assert caplog.messages == []
