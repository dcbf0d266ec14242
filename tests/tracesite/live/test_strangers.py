"""Test WebSockets without a key: their number, how long they stay, and their memory."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import Closed, Refused, WebSocket
from tracesite.live import sockets
from tracesite.live.clients import MAX_WITHOUT_KEY, Live
from tracesite.live.sockets import KEY_SECONDS, LONGEST_QUEUE

from .conftest import Viewers, hear

pytestmark = pytest.mark.system

MB = 2**20


def test_connection_without_a_key_is_closed_in_time(viewers: Viewers) -> None:
    begin = time.monotonic()
    viewer = viewers.socket()
    viewer.say({"type": "ping"})
    assert hear(viewer, "error")["error"]["code"] == "not_authenticated"
    with pytest.raises(Closed) as closed:
        viewer.hear()
    assert closed.value.code == 1008
    assert time.monotonic() - begin > KEY_SECONDS - 0.1


def test_subscription_that_fails_does_not_keep_a_connection(viewers: Viewers) -> None:
    viewer = viewers.socket()
    viewer.subscribe("anything", apiKey="ts_wrong")
    assert hear(viewer, "error")["error"]["code"] == "invalid_api_key"
    with pytest.raises(Closed):
        viewer.hear()


def test_connection_that_subscribed_with_a_key_stays(viewers: Viewers, site: Site, agent: Agent) -> None:
    viewer = viewers.socket()
    viewer.subscribe(agent.external_id, apiKey=site.key)
    hear(viewer, "session_update")
    deadline = time.monotonic() + KEY_SECONDS + 2
    while time.monotonic() < deadline:
        assert viewer.hear() == {"type": "heartbeat"}


def test_strangers_hold_few_connections_and_keys_get_in(
    site: Site, port: int, key: dict[str, str], agent: Agent, viewers: Viewers
) -> None:
    lock = threading.Lock()
    accepted: list[float] = []
    refused: list[int] = []
    begin = time.monotonic()

    def connect(number: int) -> None:
        try:
            viewer = WebSocket(port)
        except Refused:
            with lock:
                refused.append(number)
            return
        with lock:
            accepted.append(time.monotonic() - begin)
        with contextlib.suppress(Closed):
            hear(viewer, "never")
        viewer.close()

    strangers = LONGEST_QUEUE + 40
    with ThreadPoolExecutor(strangers) as threads:
        done = threads.map(connect, range(strangers))
        deadline = time.monotonic() + 120
        while not refused:  # because the queue is full
            assert time.monotonic() < deadline
            time.sleep(0.01)
        viewer = viewers.socket(key)
        viewer.subscribe(agent.external_id)
        assert hear(viewer, "session_update")["data"]["status"] == "running"
        list(done)
    assert len(accepted) + len(refused) == strangers
    # An accepted one stays for KEY_SECONDS; then those that still wait are accepted.
    rounds = [int((at + 0.1) / KEY_SECONDS) for at in sorted(accepted)]
    assert all(number < MAX_WITHOUT_KEY * (1 + round_) for number, round_ in enumerate(rounds)), accepted
    assert accepted


def test_handshake_is_refused_at_once_if_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "KEY_SECONDS", 600.0)
    live = Live()
    live.queue_without_key = LONGEST_QUEUE
    assert asyncio.run(sockets._has_turn(live)) is False


def wait_until_no_stranger_is_left(port: int) -> None:
    """Wait until connections of earlier tests have been given up: a handshake is refused that they keep from its turn."""
    deadline = time.monotonic() + 120
    with contextlib.ExitStack() as connected:
        for _number in range(MAX_WITHOUT_KEY):
            while True:
                try:
                    connected.enter_context(contextlib.closing(WebSocket(port)))
                    break
                except Refused:
                    assert time.monotonic() < deadline


def test_many_keys_in_subscriptions_wait_for_their_turn(port: int, site: Site, agent: Agent) -> None:
    wait_until_no_stranger_is_left(port)

    def follow(_number: int) -> str:
        viewer = WebSocket(port)
        viewer.subscribe(agent.external_id, apiKey=site.key)
        status: str = hear(viewer, "session_update")["data"]["status"]
        viewer.close()
        return status

    # Three rounds of turns, because on a busy machine ten may take longer than a handshake waits.
    with ThreadPoolExecutor(3 * MAX_WITHOUT_KEY) as threads:
        assert list(threads.map(follow, range(60))) == ["running"] * 60


def test_fragments_without_a_key_take_bounded_memory(site: Site, port: int) -> None:
    (worker,) = site.server.worker_pids()
    before = resident(worker)
    enough = threading.Event()

    def attack(_number: int) -> None:
        with contextlib.suppress(Refused, OSError, Closed), contextlib.closing(WebSocket(port)) as viewer:
            data = bytes(15 * MB)
            for number in range(4):
                # A text frame, then continuation frames without the final one.
                head = bytes([0 if number else 1, 255]) + struct.pack(">Q", len(data)) + bytes(4)
                viewer.socket.sendall(head + data)
            enough.wait(120)

    peak = before
    with ThreadPoolExecutor(12) as threads:
        done = threads.map(attack, range(12))
        deadline = time.monotonic() + 2 * KEY_SECONDS + 2
        while time.monotonic() < deadline:
            peak = max(peak, resident(worker))
            time.sleep(0.05)
        enough.set()
        list(done)
    assert peak - before < 50 * MB
    assert resident(worker) - before < 100 * MB


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
