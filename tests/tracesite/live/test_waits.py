"""Subscriptions to sessions that do not exist yet, against a server that runs."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterable
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import pytest

from access_app.visibility import ProjectScope
from benchmarks.faults.site import Site
from benchmarks.live.viewer import Closed, EventStream, Refused, WebSocket
from tracesite.live import clients
from tracesite.live.admission import Viewer
from tracesite.live.clients import MAX_SUBSCRIPTIONS
from tracesite.live.feeds import Hub
from tracesite.live.waits import MAX_PER_PROJECT, Wait

from .conftest import Viewers, another_key, hear, hear_events
from .test_admission import cookie_of
from .test_feeds import SESSION, Memory

pytestmark = pytest.mark.system

Database = psycopg.Connection[Any]

_NUMBERS = count(1)


@pytest.fixture
def name() -> str:
    """Return the name of a session that does not exist."""
    return f"not yet {next(_NUMBERS)}"


def send_events(port: int, key: dict[str, str], name: str, *ids: str) -> None:
    events = [{"sessionId": name, "type": "agent_start", "id": id_} for id_ in ids]
    post(port, key, "/api/v1/events/", {"events": events})


def post(port: int, key: dict[str, str], path: str, body: dict[str, Any]) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", path, json.dumps(body), key | {"Content-Type": "application/json"})
    answer = client.getresponse()
    text = answer.read()
    client.close()
    assert answer.status == 200, text


def is_silent(viewer: WebSocket | EventStream) -> bool:
    """Return whether only heartbeats arrive until the second one."""
    return [viewer.hear()["type"] for _ in range(2)] == ["heartbeat", "heartbeat"]


def test_subscription_before_first_event_gets_every_event(
    viewers: Viewers, port: int, key: dict[str, str], name: str
) -> None:
    socket, stream = viewers.socket(key), viewers.stream(name, key)
    socket.subscribe(name)
    for viewer in (socket, stream):
        message = viewer.hear()
        assert (message["type"], message["sessionId"]) == ("waiting", name)
    send_events(port, key, name, f"{name}_1_aaaaaa", f"{name}_2_bbbbbb")
    for viewer in (socket, stream):
        assert hear(viewer, "session_update")["data"]["status"] == "running"
        events = [hear(viewer, "monitor_event")["event"] for _ in range(2)]
        assert [(one["sessionId"], one["external_id"], one["seq"]) for one in events] == [
            (name, f"{name}_1_aaaaaa", 1),
            (name, f"{name}_2_bbbbbb", 2),
        ]
        assert {one["session_id"] for one in events} != {name}
    send_events(port, key, name, f"{name}_3_cccccc")
    assert (hear_events(socket, 3), hear_events(stream, 3)) == ([3], [3])


class Named(Memory):
    """A session that the feeds' memory has, by its name."""

    async def sessions_named(self, names: Iterable[tuple[int, str]]) -> dict[tuple[int, str], UUID]:
        return dict.fromkeys(names, SESSION)


def test_notification_begins_subscription_before_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "POLL_SECONDS", 600.0)

    async def run() -> None:
        live = clients.Live()
        live.tables = Named()  # type: ignore[assignment]
        live.hub = Hub(live.tables)
        client = clients.Client("")
        live.clients.add(client)
        live.waits.add(Wait(client, Viewer(ProjectScope(frozenset({1})), key_id=1), 1, "soon", 0, "session"))
        beginning = asyncio.create_task(live._begin_waits())
        live.hub.look_at(SESSION)
        async with asyncio.timeout(60):
            await client.wake.wait()
        beginning.cancel()
        assert (list(client.subscriptions), client.waits) == ([SESSION], {})

    asyncio.run(run())


def test_subscription_begins_when_session_is_made_without_events(
    viewers: Viewers, port: int, key: dict[str, str], name: str
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(name)
    hear(viewer, "waiting")
    post(port, key, "/api/v1/ingest/", {"sessions": [{"external_id": name}]})
    assert hear(viewer, "session_update")["sessionId"] == name


def test_second_subscription_to_a_name_replaces_the_first(
    viewers: Viewers, port: int, key: dict[str, str], name: str
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(name)
    viewer.subscribe(name, after=1)
    for _ in range(2):
        hear(viewer, "waiting")
    send_events(port, key, name, "1", "2")
    assert hear_events(viewer, 2) == [2]
    assert is_silent(viewer)


def test_name_in_another_project_begins_nothing(
    viewers: Viewers, site: Site, port: int, key: dict[str, str], name: str
) -> None:
    strange = {"X-API-Key": another_key(site, "stranger")}
    socket, stream = viewers.socket(strange), viewers.stream(name, strange)
    socket.subscribe(name)
    for viewer in (socket, stream):
        hear(viewer, "waiting")
    send_events(port, key, name, "ours")
    assert is_silent(socket)
    assert is_silent(stream)
    send_events(port, strange, name, "theirs")
    for viewer in (socket, stream):
        assert hear(viewer, "monitor_event")["event"]["external_id"] == "theirs"


def test_revoked_key_ends_waiting_subscriptions(viewers: Viewers, site: Site, database: Database, name: str) -> None:
    token = another_key(site, "faults")
    with_header = viewers.socket({"X-API-Key": token})
    in_message = viewers.socket()
    stream = viewers.stream(name, {"X-API-Key": token})
    with_header.subscribe(name)
    in_message.subscribe(name, apiKey=token)
    waiting: list[WebSocket | EventStream] = [with_header, in_message, stream]
    for viewer in waiting:
        hear(viewer, "waiting")
    database.execute("UPDATE access_app_apikey SET revoked_at = now() WHERE prefix = %s", [token[:8]])
    for viewer in waiting:
        assert hear(viewer, "error")["error"]["code"] == "access_ended"
        with pytest.raises(Closed):
            viewer.hear()


def test_waiting_subscriptions_are_bounded_and_given_back(
    viewers: Viewers, site: Site, key: dict[str, str], name: str
) -> None:
    sockets = [viewers.socket(key) for _ in range(MAX_PER_PROJECT // MAX_SUBSCRIPTIONS)]
    for number, viewer in enumerate(sockets):
        for more in range(MAX_SUBSCRIPTIONS):
            viewer.subscribe(f"{name} {number} {more}")
            hear(viewer, "waiting")
    sockets[0].subscribe(f"{name} one more")
    assert hear(sockets[0], "error")["error"]["code"] == "invalid_input"
    with pytest.raises(Refused) as refused:
        viewers.stream(name, key)
    assert (refused.value.status, json.loads(refused.value.body)["error"]["code"]) == (429, "too_many_waiting")
    hear(viewers.stream(name, {"X-API-Key": another_key(site, "stranger")}), "waiting")
    sockets[0].close()
    deadline = time.monotonic() + 60
    while True:
        try:
            hear(viewers.stream(name, key), "waiting")
            break
        except Refused:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_login_does_not_wait_for_a_session(viewers: Viewers, site: Site, name: str) -> None:
    with pytest.raises(Refused, match="404"):
        viewers.stream(name, cookie_of(site, "early", superuser=True))


def test_name_in_two_projects_is_ambiguous_for_a_login(
    viewers: Viewers, site: Site, port: int, key: dict[str, str], name: str
) -> None:
    cookie = cookie_of(site, "boss of all", superuser=True)
    send_events(port, key, name, "1")
    assert hear(viewers.stream(name, cookie), "monitor_event")["event"]["external_id"] == "1"
    send_events(port, {"X-API-Key": another_key(site, "stranger")}, name, "2")
    with pytest.raises(Refused) as refused:
        viewers.stream(name, cookie)
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["code"], error["field"]) == (409, "ambiguous_session", "session")
