"""Requests get the connection that was used last, have it for themselves, and give it back however they end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DEFAULT_DB_ALIAS, connections

from benchmarks.faults.site import Site, running
from tests.access_app.db.test_base import backend
from tests.tracesite.serving.test_serve import request as ask
from tracesite.serving.idle_connections import UNUSED_SECONDS, IdleConnections


@pytest.fixture
def idle(transactional_db: None) -> Iterator[IdleConnections]:
    idle = IdleConnections()
    yield idle

    def close_all() -> None:
        for _since, unused in idle._idle:
            unused.close()

    in_a_thread(close_all)


def in_a_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


def use(idle: IdleConnections, meanwhile: Callable[[], object] = lambda: None) -> int:
    taken = idle.take()
    try:
        assert connections[DEFAULT_DB_ALIAS] is taken
        found = backend()
        meanwhile()
        assert backend() == found
        return found
    finally:
        idle.give_back(taken)
        assert not connections.all(initialized_only=True)


def test_threads_one_after_the_other_use_the_same_connection(idle: IdleConnections) -> None:
    assert len({in_a_thread(lambda: use(idle)) for _thread in range(5)}) == 1


def test_threads_at_a_time_have_each_their_own_and_the_last_is_used_first(idle: IdleConnections) -> None:
    together = threading.Barrier(3)
    with ThreadPoolExecutor(3) as threads:
        first = {found.result() for found in [threads.submit(use, idle, together.wait) for _ in range(3)]}
        again = {found.result() for found in [threads.submit(use, idle, together.wait) for _ in range(3)]}
    assert len(first) == 3
    assert again == first
    _since, last = idle._idle[-1]
    assert in_a_thread(lambda: use(idle)) == last.connection.info.backend_pid


def test_what_nobody_needed_for_long_is_closed(idle: IdleConnections, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)
    with ThreadPoolExecutor(3) as threads:
        for found in [threads.submit(use, idle, together.wait) for _ in range(3)]:
            found.result()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + UNUSED_SECONDS)
    before = [one for _since, one in idle._idle]
    for left in (2, 1, 1):
        in_a_thread(lambda: use(idle))
        assert len(idle._idle) == left
    # The one that was used last is the one that is left.
    assert [one.connection is None for one in before] == [True, True, False]
    assert before[-1] is idle._idle[0][1]


def test_what_was_not_opened_or_was_closed_is_not_kept(idle: IdleConnections) -> None:
    def take_and_close(opens: bool) -> None:
        taken = idle.take()
        if opens:
            backend()
            taken.close()
        idle.give_back(taken)

    for opens in (False, True):
        in_a_thread(lambda opens=opens: take_and_close(opens))  # type: ignore[misc]
        assert not idle._idle


# --- A server ---------------------------------------------------------------------------------------------------------

STREAMS = 4
THREADS = 8  # which is what a worker has where nothing else is said


@pytest.fixture(scope="module", params=[1, 2], ids=["over ASGI", "over WSGI"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One worker serves the live part, too; of more each is as in production."""
    with running(workers=request.param) as site:
        yield site


@pytest.fixture(scope="module")
def export(site: Site) -> bytes:
    """A request for an answer of more than sockets hold."""
    messages = [{"external_id": f"m{number}", "role": "user", "content": "x" * 50_000} for number in range(300)]
    body = json.dumps({"sessions": [{"external_id": "long", "messages": messages}]})
    headers = {"X-API-Key": site.key, "Content-Type": "application/json"}
    status, _, text = ask(site.server.port, "POST", "/api/v1/ingest/", body, headers)
    assert status == 200, text
    session = json.loads(text)["sessions"][0]["id"]
    head = f"GET /api/v1/sessions/{session}/export/ HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {site.key}\r\n\r\n"
    return head.encode()


def open_connections(site: Site) -> int:
    with site.connect() as database:
        row = database.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tracesite'").fetchone()
    assert row is not None
    return int(row[0])


def answers(site: Site) -> bool:
    return ask(site.server.port, "GET", "/api/v1/messages/?limit=1", headers={"X-API-Key": site.key})[0] == 200


def begun(site: Site, export: bytes) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", site.server.port), timeout=30)
    stream.sendall(export)
    assert stream.recv(15) == b"HTTP/1.1 200 OK"
    return stream


def test_a_worker_opens_no_more_connections_than_it_has_requests_at_a_time(site: Site, export: bytes) -> None:
    workers = site.server.workers
    assert all(answers(site) for _request in range(20))
    assert 1 <= open_connections(site) <= workers
    for number in range(8):
        streams = [begun(site, export) for _stream in range(STREAMS)]
        # Each of these waits for its client, and with it its connection.
        assert answers(site)
        if number == 0:
            assert STREAMS + 1 <= open_connections(site) <= STREAMS + workers
        for cut_off in streams[1:]:
            cut_off.close()
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += streams[0].recv(1_000_000)
        streams[0].close()
        assert len(read) > 300 * 50_000
    # Where cut off answers kept theirs, each would have opened another.
    assert open_connections(site) <= workers * THREADS
