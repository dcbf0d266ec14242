"""Requests get the connection that was used last, have it for themselves, and give it back however they end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections

from benchmarks.faults.site import Site, running
from tests.tracesite.test_serve import request
from tracesite.idle_connections import IdleConnections


@pytest.fixture
def idle(transactional_db: None) -> Iterator[IdleConnections]:
    idle = IdleConnections()
    yield idle

    def close_all() -> None:
        for unused in [*idle._idle]:
            unused.close()

    in_a_thread(close_all)


def in_a_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


def process() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def use(idle: IdleConnections, meanwhile: Callable[[], object] = lambda: None) -> int:
    taken = idle.take()
    try:
        assert connections[DEFAULT_DB_ALIAS] is taken
        found = process()
        meanwhile()
        assert process() == found
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
    last = idle._idle[-1]
    assert in_a_thread(lambda: use(idle)) == last.connection.info.backend_pid


# --- A server ---------------------------------------------------------------------------------------------------------

STREAMS = 4
THREADS = 8  # which is what a worker has where nothing else is said


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


@pytest.fixture(scope="module")
def export(site: Site) -> bytes:
    """A request for an answer of more than sockets hold."""
    messages = [{"external_id": f"m{number}", "role": "user", "content": "x" * 50_000} for number in range(300)]
    body = json.dumps({"sessions": [{"external_id": "long", "messages": messages}]})
    headers = {"X-API-Key": site.key, "Content-Type": "application/json"}
    status, _, text = request(site.server.port, "POST", "/api/v1/ingest/", body, headers)
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
    return request(site.server.port, "GET", "/api/v1/messages/?limit=1", headers={"X-API-Key": site.key})[0] == 200


def begun(site: Site, export: bytes) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", site.server.port), timeout=30)
    stream.sendall(export)
    assert stream.recv(15) == b"HTTP/1.1 200 OK"
    return stream


def test_a_worker_opens_no_more_connections_than_it_has_requests_at_a_time(site: Site, export: bytes) -> None:
    assert all(answers(site) for _request in range(20))
    assert open_connections(site) == 1
    for number in range(6):
        streams = [begun(site, export) for _stream in range(STREAMS)]
        # Each of these waits for its client, and with it its connection.
        assert answers(site)
        if number == 0:
            assert open_connections(site) == STREAMS + 1
        for cut_off in streams[1:]:
            cut_off.close()
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += streams[0].recv(1_000_000)
        streams[0].close()
        assert len(read) > 300 * 50_000
    # Where cut off answers kept theirs, each would have opened another.
    assert open_connections(site) <= THREADS
