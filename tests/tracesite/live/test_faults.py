"""Test that failures of database, process and connections lose and duplicate no events for clients that reconnect."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live import kills
from benchmarks.live.agents import Agent
from benchmarks.live.loyal import PATIENCE_SECONDS, Loyal
from benchmarks.live.viewer import Closed
from sdk.tests.length import kills as how_many

from .conftest import Viewers, hear, hear_events

pytestmark = pytest.mark.system

RUNS = how_many(4)


@pytest.mark.parametrize("kind", kills.KINDS)
def test_killed_server_loses_and_duplicates_no_events(site: Site, kind: kills.Kind) -> None:
    """The same as `python -m benchmarks.live.kills`, with a few kills of each kind."""
    came_back = 0
    for number in range(1, RUNS + 1):
        loyal = kills.run(site, kind, number, seed=5)
        assert [one.has_all for one in loyal] == [True] * len(loyal)
        came_back += sum(one.connections - 1 for one in loyal)
    # Clients do not notice a lost listener.
    assert came_back >= {"listener": 0, "process": RUNS * 4, "socket": RUNS}[kind]


def test_killed_reader_connections_lose_no_events(site: Site, agent: Agent, database: psycopg.Connection[Any]) -> None:
    last = 210
    loyal = [Loyal(site, agent.external_id, last, streams=streams) for streams in (False, True)]
    for one in loyal:
        one.start()
    agent.does(database, *({"turn": 0} for _ in range(10)))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(one.seen for one in loyal):  # so that there are connections to kill
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed = 0
    for turn in range(20):
        agent.does(database, *({"turn": turn} for _ in range(10)))
        killed += len(
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tracesite' "
                "AND pid <> pg_backend_pid() AND query ~ 'traces_app_event AS event|last_event\\s+FROM messages_app_session'"
            ).fetchall()
        )
        time.sleep(0.05)
    for one in loyal:
        one.join(PATIENCE_SECONDS)
    assert killed
    assert [one.has_all for one in loyal] == [True, True]


def test_history_growing_while_read_joins_live_events(
    viewers: Viewers, site: Site, agent: Agent, database: psycopg.Connection[Any]
) -> None:
    agent.does(database, *({"n": n} for n in range(3_000)))
    last = 4_000

    def go_on() -> None:
        with site.connect() as connection:
            for number in range(3_000, last, 10):
                agent.does(connection, *({"n": number + more} for more in range(10)))

    work = threading.Thread(target=go_on)
    work.start()
    for after in (0, 1_500, 2_999, 3_050):
        viewer = viewers.socket({"X-API-Key": site.key})
        viewer.subscribe(agent.external_id, after=after)
        assert hear_events(viewer, last) == list(range(after + 1, last + 1))
    work.join()


def test_lost_notification_only_delays_events(
    viewers: Viewers, key: dict[str, str], agent: Agent, database: psycopg.Connection[Any]
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    agent.does(database, {}, tells=False)
    assert hear_events(viewer, 1) == [1]


def test_failing_client_does_not_stop_others(
    viewers: Viewers, key: dict[str, str], agent: Agent, database: psycopg.Connection[Any]
) -> None:
    reset, deaf, good = viewers.socket(key), viewers.socket(key), viewers.socket(key)
    for viewer in (reset, deaf, good):
        viewer.subscribe(agent.external_id)
        hear(viewer, "session_update")
    seen: list[int] = []
    for turn in range(20):
        last = agent.does(database, *({"text": "x" * 20_000} for _ in range(20)))[-1]
        if turn == 5:
            # Disconnect in the middle of a response.
            reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reset.close()
        seen += hear_events(good, last)
    assert seen == list(range(1, 401))


def test_reload_makes_clients_reconnect_and_serves_them(
    viewers: Viewers, site: Site, key: dict[str, str], agent: Agent, database: psycopg.Connection[Any]
) -> None:
    assert site.server.process is not None
    before, stream = viewers.socket(key), viewers.stream(agent.external_id, key)
    before.subscribe(agent.external_id)
    agent.does(database, {})
    assert (hear_events(before, 1), hear_events(stream, 1)) == ([1], [1])
    workers = set(site.server.worker_pids())
    site.server.process.send_signal(signal.SIGHUP)
    before.socket.settimeout(PATIENCE_SECONDS)
    stream.socket.settimeout(PATIENCE_SECONDS)
    with pytest.raises(Closed) as closed:
        hear(before, "never")
    assert closed.value.code == 1012
    with pytest.raises(Closed):
        hear(stream, "never")
    agent.does(database, {})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        after = viewers.socket(key)
        after.subscribe(agent.external_id, after=1)
        try:
            assert hear_events(after, 2) == [2]
            break
        except Closed as told_again:
            # A quick client can reach the old worker once more, just before it stops accepting.
            assert told_again.code == 1012
            assert time.monotonic() < deadline
    while workers & set(site.server.worker_pids()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
