"""A server that serves everything from one process, agents that write events, and clients that follow them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Server, Site, running
from benchmarks.live.agents import Agent, make_agent
from benchmarks.live.viewer import EventStream, WebSocket

Viewer = WebSocket | EventStream


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACESITE_LIVE_HEARTBEAT_SECONDS", "1")
        with running(workers=1) as site:
            yield site


@pytest.fixture
def port(site: Site) -> int:
    return site.server.port


@pytest.fixture
def key(site: Site) -> dict[str, str]:
    return {"X-API-Key": site.key}


@pytest.fixture
def database(site: Site) -> Iterator[psycopg.Connection[Any]]:
    with site.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def agents(site: Site) -> Callable[[], Agent]:
    """Return a function that creates agents, each with its own session."""
    numbers = count(1)
    return lambda: make_agent(site, f"task-{next(numbers)}")


@pytest.fixture
def agent(agents: Callable[[], Agent]) -> Agent:
    return agents()


@dataclass
class Viewers:
    """A factory of clients that closes them at the end of the test."""

    port: int
    connected: list[Viewer]

    def socket(self, headers: dict[str, str] | None = None, query: str = "") -> WebSocket:
        viewer = WebSocket(self.port, headers, query)
        self.connected.append(viewer)
        return viewer

    def stream(self, session: str, headers: dict[str, str] | None = None, **query: Any) -> EventStream:
        viewer = EventStream(self.port, session, headers, **query)
        self.connected.append(viewer)
        return viewer


@pytest.fixture
def viewers(port: int) -> Iterator[Viewers]:
    viewers = Viewers(port, [])
    yield viewers
    for viewer in viewers.connected:
        viewer.close()


def another_key(site: Site, project: str, *options: str) -> str:
    """Create a key of a project, and the project if it does not exist, in one process because each takes seconds to start."""
    arguments = ["create_api_key", "--project", project, "--name", "looks", "--json", *options]
    script = (
        "from django.core.management import call_command; from access_app.models import Project; "
        f"Project.objects.get_or_create(slug={project!r}); call_command(*{arguments!r})"
    )
    key: str = json.loads(site.manage("shell", "-v", "0", "-c", script).splitlines()[-1])["key"]
    return key


def hear(viewer: Viewer, kind: str) -> dict[str, Any]:
    """Return the next message of a kind, skipping others."""
    while (message := viewer.hear())["type"] != kind:
        pass
    return message


def hear_events(viewer: Viewer, last: int) -> list[int]:
    """Return the numbers of incoming events up to number `last`."""
    numbers: list[int] = []
    while not numbers or numbers[-1] != last:
        numbers.append(hear(viewer, "monitor_event")["event"]["seq"])
    return numbers


def inode_of(server: Server, viewer: Viewer) -> str:
    """Return the inode of the server's end of an open connection, as in its file descriptors."""
    client_port = viewer.socket.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if [int(address.rpartition(":")[2], 16) for address in fields[1:3]] == [server.port, client_port]:
            return fields[9]
    raise AssertionError("there is no such connection")


def until_closed(server: Server, *inodes: str) -> None:
    """Wait until the server has closed its ends of these connections."""
    deadline = time.monotonic() + 120
    while not set(inodes).isdisjoint(_open_sockets(server)):
        assert time.monotonic() < deadline, "the server keeps a connection open"
        time.sleep(0.2)


def _open_sockets(server: Server) -> Iterator[str]:
    """Yield the inodes of the sockets that are open in a server's processes."""
    for pid in server.worker_pids():
        for path in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(path)
            except FileNotFoundError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                yield target.removeprefix("socket:[").removesuffix("]")
