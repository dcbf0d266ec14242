"""Test heartbeats at common intervals, the default first, over every transport, peers that vanish, and slow ones."""

from __future__ import annotations

import ctypes
import http.client
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from benchmarks.faults.site import Server, Site, free_port
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import EventStream, WebSocket

from .conftest import hear, hear_events, inode_of, until_closed

pytestmark = pytest.mark.system

DEFAULT_SECONDS = 15
QUICK_SECONDS = 4


@contextmanager
def serving(site: Site, heartbeat: int | None) -> Iterator[Server]:
    """Start a second server on the database of `site` with its own heartbeat interval; None means the default."""
    environment = {name: text for name, text in site.environment.items() if name != "TRACESITE_LIVE_HEARTBEAT_SECONDS"}
    if heartbeat is not None:
        environment["TRACESITE_LIVE_HEARTBEAT_SECONDS"] = str(heartbeat)
    port = free_port()
    server = Server(port=port, log=site.data_dir / f"server-{port}.log", environment=environment, workers=1)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def until_heartbeat(stream: http.client.HTTPResponse) -> None:
    while stream.readline() != b": heartbeat\n":
        pass


@pytest.mark.minutes
def test_heartbeats_come_at_their_interval_and_find_lost_peers_not_slow_ones(
    site: Site, agents: Callable[[], Agent]
) -> None:
    """All waits at once."""
    with serving(site, None) as usual, serving(site, QUICK_SECONDS) as quick, ThreadPoolExecutor() as threads:
        waits = [
            threads.submit(wait_for_heartbeats, usual, site.key, agents(), DEFAULT_SECONDS),
            threads.submit(wait_for_heartbeats, quick, site.key, agents(), QUICK_SECONDS),
            threads.submit(vanish_silently, quick, site.key, agents()),
            threads.submit(read_slowly, usual, site, agents()),
        ]
        for wait in waits:
            wait.result()


def wait_for_heartbeats(server: Server, site_key: str, agent: Agent, interval: int) -> None:
    """Check the pauses between the heartbeats of idle connections."""
    key, patience = {"X-API-Key": site_key}, 3 * interval
    began = time.monotonic()
    viewer = WebSocket(server.port, key, timeout=patience)
    viewer.subscribe(agent.external_id)
    events = EventStream(server.port, agent.external_id, key, timeout=patience)
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience)
    path = f"/weknora/api/v1/sessions/continue-stream/{agent.external_id}?message_id={agent.message}"
    client.request("GET", path, headers=key)
    answer = client.getresponse()
    waits: list[Callable[[], object]] = [
        lambda: hear(viewer, "heartbeat"),
        lambda: hear(events, "heartbeat"),
        lambda: until_heartbeat(answer),
    ]

    def seconds_until_second(wait: Callable[[], object]) -> float:
        wait()
        wait()
        return time.monotonic() - began

    with ThreadPoolExecutor(len(waits)) as threads:
        found = list(threads.map(seconds_until_second, waits))
    for closing in (viewer, events, client):
        closing.close()
    # The usual interval is much longer than the quick one.
    assert all(2 * interval - 1 < seconds < 4 * interval + 10 for seconds in found), (interval, found)


def vanish_silently(server: Server, site_key: str, agent: Agent) -> None:
    """Check that a peer is disconnected from which nothing more comes."""
    key = {"X-API-Key": site_key}
    viewer = WebSocket(server.port, key)
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    stream = EventStream(server.port, agent.external_id, key)
    hear(stream, "session_update")
    inodes = [inode_of(server, one) for one in (viewer, stream)]
    for one in (viewer, stream):
        receive_nothing_more(one.socket)
    until_closed(server, *inodes)
    for one in (viewer, stream):
        one.close()


def read_slowly(server: Server, site: Site, agent: Agent) -> None:
    """Check that a client learns what was dropped because it is slower than its agent, and can fetch it."""
    viewer = WebSocket(server.port, {"X-API-Key": site.key})
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    sent = 0
    with site.connect() as database:
        # One megabyte at a time, of which the client reads at most a quarter. Reading nothing would disconnect it.
        for _ in range(30):
            sent = agent.does(database, *({"text": "x" * 5_000} for _ in range(200)))[-1]
            viewer.receive()
    seen: list[int] = []
    lost: list[int] = []
    while not seen or seen[-1] < sent:
        message = viewer.hear()
        if message["type"] == "events_dropped":
            lost += range(message["after"] + 1, message["before"])
        elif message["type"] == "monitor_event":
            seen.append(message["event"]["seq"])
    assert lost
    assert seen == sorted(set(seen))
    assert sorted(seen + lost) == list(range(1, sent + 1))
    viewer.subscribe(agent.external_id, after=lost[0] - 1)
    assert hear_events(viewer, sent) == list(range(lost[0], sent + 1))
    viewer.close()


def receive_nothing_more(connection: socket.socket) -> None:
    """Have the kernel drop every packet to this socket, unacknowledged, as if its machine had lost its network."""
    drop_all = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes
    buffer = ctypes.create_string_buffer(drop_all)
    connection.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HL", 1, ctypes.addressof(buffer)))  # SO_ATTACH_FILTER
