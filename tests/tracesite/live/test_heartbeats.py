"""Test heartbeats at common intervals, the default first, over every transport, and peers that vanish."""

from __future__ import annotations

import ctypes
import http.client
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.faults.site import Server, Site, free_port
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import EventStream, WebSocket

from .conftest import hear

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
@pytest.mark.requirement("004-65")
def test_heartbeats_come_at_their_interval_and_find_lost_peers(site: Site, agents: Callable[[], Agent]) -> None:
    """All waits at once."""
    with serving(site, None) as usual, serving(site, QUICK_SECONDS) as quick, ThreadPoolExecutor() as threads:
        waits = [
            threads.submit(wait_for_heartbeats, usual, site.key, agents(), DEFAULT_SECONDS),
            threads.submit(wait_for_heartbeats, quick, site.key, agents(), QUICK_SECONDS),
            threads.submit(vanish_silently, quick, site.key, agents(), QUICK_SECONDS),
        ]
        for wait in waits:
            wait.result()


def wait_for_heartbeats(server: Server, site_key: str, agent: Agent, interval: int) -> None:
    """Check the pauses between the heartbeats of idle connections."""
    key, patience = {"X-API-Key": site_key}, 3 * interval
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

    def pauses(wait: Callable[[], object]) -> list[float]:
        times = []
        for _ in range(2):
            begin = time.monotonic()
            wait()
            times.append(time.monotonic() - begin)
        return times

    with ThreadPoolExecutor(len(waits)) as threads:
        found = list(threads.map(pauses, waits))
    for closing in (viewer, events, client):
        closing.close()
    for times in found:
        assert max(times) < interval + 3, (interval, found)
        assert times[1] > interval - 1, (interval, found)


def vanish_silently(server: Server, site_key: str, agent: Agent, interval: int) -> None:
    """Check that a peer is disconnected from which nothing more comes."""
    key = {"X-API-Key": site_key}
    viewer = WebSocket(server.port, key)
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    stream = EventStream(server.port, agent.external_id, key)
    hear(stream, "session_update")
    inodes = [inode_of(server.port, one.socket.getsockname()[1]) for one in (viewer, stream)]
    assert all(is_open(server, inode) for inode in inodes)
    for one in (viewer, stream):
        receive_nothing_more(one.socket)
    # One interval until something is sent, two until it counts as lost.
    deadline = time.monotonic() + 3 * interval + 8
    while any(is_open(server, inode) for inode in inodes):
        assert time.monotonic() < deadline, "it is still connected"
        time.sleep(0.2)
    for one in (viewer, stream):
        one.close()


def receive_nothing_more(connection: socket.socket) -> None:
    """Have the kernel drop every packet to this socket, unacknowledged, as if its machine had lost its network."""
    drop_all = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes
    buffer = ctypes.create_string_buffer(drop_all)
    connection.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HL", 1, ctypes.addressof(buffer)))  # SO_ATTACH_FILTER


def inode_of(server_port: int, client_port: int) -> str:
    """Return the inode of the server's end of a connection, as in its file descriptors."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ports == [server_port, client_port]:
            return fields[9]
    raise AssertionError("there is no such connection")


def is_open(server: Server, inode: str) -> bool:
    for pid in server.worker_pids():
        for path in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(path) == f"socket:[{inode}]":
                    return True
            except FileNotFoundError:
                continue  # closed meanwhile
    return False
