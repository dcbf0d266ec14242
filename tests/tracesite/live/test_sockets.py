"""WebSockets at /live/ws, against a server that runs."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import Closed, Refused, WebSocket

from .conftest import Viewers, another_key, hear, hear_events, inode_of, until_closed

pytestmark = pytest.mark.system

Database = psycopg.Connection[Any]


def test_subscriber_receives_state_and_events(
    key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    assert viewer.hear() == {
        "type": "session_update",
        "sessionId": agent.external_id,
        "data": {
            "status": "running",
            "currentPhase": "",
            "resources": {
                "inputTokens": 0,
                "outputTokens": 0,
                "durationMs": 0,
                "messages": 1,
                "toolCalls": 0,
                "failedCalls": 0,
            },
        },
    }
    agent.does(database, {"n": 1})
    message = hear(viewer, "monitor_event")
    event = message.pop("event")
    assert message == {"type": "monitor_event", "sessionId": agent.external_id}
    assert {name: event[name] for name in ("session_id", "seq", "type", "level", "category", "agent", "data")} == {
        "session_id": str(agent.session),
        "seq": 1,
        "type": "agent_start",
        "level": "info",
        "category": "execution",
        "agent": "planner",
        "data": {"n": 1},
    }
    database.execute("UPDATE messages_app_session SET said_status = 'paused' WHERE id = %s", [agent.session])
    assert hear(viewer, "session_update")["data"] == {"status": "paused"}


def test_events_reach_subscribers_of_their_session_only(
    key: dict[str, str], agents: Callable[[], Agent], database: Database, viewers: Viewers
) -> None:
    one, other = agents(), agents()
    both, single = viewers.socket(key), viewers.socket(key)
    both.subscribe(str(one.session))
    both.subscribe(other.external_id)
    single.subscribe(other.external_id)
    for viewer in (both, both, single):
        hear(viewer, "session_update")
    one.does(database, {"of": "one"})
    assert hear(both, "monitor_event")["sessionId"] == str(one.session)
    other.does(database, {"of": "other"})
    for viewer in (both, single):
        assert hear(viewer, "monitor_event")["event"]["data"] == {"of": "other"}


def test_client_lets_go_of_one_of_its_sessions(
    key: dict[str, str], agents: Callable[[], Agent], database: Database, viewers: Viewers
) -> None:
    one, other = agents(), agents()
    viewer = viewers.socket(key)
    for agent in (one, other):
        viewer.subscribe(agent.external_id)
        hear(viewer, "session_update")
    viewer.subscribe("not yet")
    hear(viewer, "waiting")
    viewer.say({"type": "unsubscribe", "sessionId": one.external_id})
    viewer.say({"type": "unsubscribe", "sessionId": "not yet"})
    viewer.say({"type": "unsubscribe", "sessionId": "never followed"})
    viewer.say({"type": "unsubscribe"})
    # The answer to a later message: the ones before it were read.
    viewer.subscribe(7)  # type: ignore[arg-type]
    hear(viewer, "error")
    one.does(database, {"of": "one"})
    other.does(database, {"of": "other"})
    assert hear(viewer, "monitor_event")["event"]["data"] == {"of": "other"}
    viewer.subscribe(one.external_id)
    assert hear(viewer, "monitor_event")["event"]["data"] == {"of": "one"}


def test_socket_is_at_the_root_too(
    key: dict[str, str], agent: Agent, database: Database, viewers: Viewers, port: int
) -> None:
    viewer = WebSocket(port, key, path="/")
    viewers.connected.append(viewer)
    viewer.subscribe(agent.external_id)
    agent.does(database, {"n": 1})
    assert hear_events(viewer, 1) == [1]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("GET", "/")
        assert client.getresponse().status == 302


def test_subscription_starts_at_beginning_or_after_number(
    key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    agent.does(database, *({"n": n} for n in range(750)))
    late = viewers.socket(key)
    late.subscribe(agent.external_id)
    assert hear_events(late, 750) == list(range(1, 751))
    late.close()
    agent.does(database, {"n": 750}, {"n": 751})
    again = viewers.socket(key)
    again.subscribe(agent.external_id, after=750)
    assert hear_events(again, 752) == [751, 752]
    again.subscribe(agent.external_id, after=749)
    assert hear_events(again, 752) == [750, 751, 752]


def test_other_messages_and_unknown_fields_are_ignored(
    key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    for other in (
        "{",
        "[]",
        "7",
        '"subscribe"',
        "\x00",
        {"type": "ping"},
        {"sessionId": agent.external_id},
        {"type": [1]},
    ):
        viewer.say(other)
    viewer.subscribe(agent.external_id, colour="blue", data={"deep": [1]})
    assert viewer.hear()["type"] == "session_update"
    agent.does(database, {})
    assert hear_events(viewer, 1) == [1]


def test_invalid_subscription_gets_error_message(key: dict[str, str], agent: Agent, viewers: Viewers) -> None:
    viewer = viewers.socket(key)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"sessionId": 7}, "invalid_input", "sessionId"),
        ({"sessionId": agent.external_id, "after": -1}, "invalid_input", "after"),
        ({"sessionId": agent.external_id, "after": True}, "invalid_input", "after"),
        ({"sessionId": agent.external_id, "after": "1"}, "invalid_input", "after"),
        ({"sessionId": agent.external_id, "after": 2**63}, "invalid_input", "after"),
        ({"sessionId": ""}, "not_found", "sessionId"),
        ({"sessionId": "x" * 513}, "not_found", "sessionId"),
        ({"sessionId": "\x00"}, "not_found", "sessionId"),
    ]
    for fields, code, name in cases:
        viewer.say({"type": "subscribe", **fields})
        error = hear(viewer, "error")["error"]
        assert (error["code"], error["field"]) == (code, name)


def test_session_of_another_project_is_not_found(
    site: Site, key: dict[str, str], agent: Agent, viewers: Viewers
) -> None:
    viewer = viewers.socket({"X-API-Key": another_key(site, "stranger")})
    for name in (agent.external_id, str(agent.session), "nobody's"):
        viewer.subscribe(name)
        assert hear(viewer, "waiting") == {"type": "waiting", "sessionId": name}


def test_key_is_accepted_in_header_query_and_subscription(site: Site, agent: Agent, viewers: Viewers) -> None:
    ways: list[tuple[dict[str, str], str, dict[str, str]]] = [
        ({"Authorization": f"Bearer {site.key}"}, "", {}),
        ({"X-API-Key": site.key}, "", {}),
        ({}, f"?key={site.key}", {}),
        ({}, "", {"apiKey": site.key}),
    ]
    for headers, query, fields in ways:
        viewer = viewers.socket(headers, query)
        viewer.subscribe(agent.external_id, **fields)
        assert viewer.hear()["type"] == "session_update"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "not_authenticated"),
        ({"X-API-Key": "ts_wrong"}, "invalid_api_key"),
        ({"Cookie": "sessionid=x"}, "not_authenticated"),
    ],
)
def test_socket_without_valid_key_is_closed(agent: Agent, headers: dict[str, str], code: str, viewers: Viewers) -> None:
    viewer = viewers.socket(headers)
    viewer.subscribe(agent.external_id)
    assert hear(viewer, "error")["error"]["code"] == code
    with pytest.raises(Closed) as closed:
        viewer.hear()
    assert closed.value.code == 1008


def test_key_without_read_scope_is_refused(site: Site, agent: Agent, viewers: Viewers) -> None:
    viewer = viewers.socket({"X-API-Key": another_key(site, "faults", "--scopes", "write")})
    assert hear(viewer, "error")["error"]["code"] == "missing_scope"


def test_revoked_key_closes_its_sockets_only(
    site: Site, key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    token = another_key(site, "faults")
    revoked, other = viewers.socket({"X-API-Key": token}), viewers.socket(key)
    for viewer in (revoked, other):
        viewer.subscribe(agent.external_id)
        hear(viewer, "session_update")
    database.execute("UPDATE access_app_apikey SET revoked_at = now() WHERE prefix = %s", [token[:8]])
    assert hear(revoked, "error")["error"]["code"] == "access_ended"
    with pytest.raises(Closed) as closed:
        revoked.hear()
    assert closed.value.code == 1008
    agent.does(database, {})
    assert hear_events(other, 1) == [1]


def test_deleted_session_sends_session_deleted(
    port: int, key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    agent.does(database, {})
    assert hear_events(viewer, 1) == [1]
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("DELETE", f"/api/v1/sessions/{agent.session}/", headers=key)
    assert client.getresponse().status == 204
    client.close()
    assert hear(viewer, "session_deleted") == {"type": "session_deleted", "sessionId": agent.external_id}
    viewer.subscribe(agent.external_id)
    assert hear(viewer, "error")["error"]["code"] == "not_found"


def test_idle_socket_gets_heartbeats(key: dict[str, str], agent: Agent, viewers: Viewers) -> None:
    begin = time.monotonic()
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    assert hear(viewer, "heartbeat") == {"type": "heartbeat"}
    assert time.monotonic() - begin > 0.8


def test_client_that_stops_reading_is_disconnected(
    site: Site, key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    inode = inode_of(site.server, viewer)
    # More than the socket buffers of both ends hold.
    agent.does(database, *({"text": "x" * 50_000} for _ in range(300)))
    until_closed(site.server, inode)
    with pytest.raises(Closed):
        for _ in range(300):
            hear(viewer, "monitor_event")


def test_unknown_host_name_is_refused(key: dict[str, str], viewers: Viewers) -> None:
    with pytest.raises(Refused, match="403"):
        viewers.socket(key | {"Host": "evil.example"})


def test_single_process_serves_live_api_and_admin(site: Site, port: int, key: dict[str, str], viewers: Viewers) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path, status in (("/healthz", 200), ("/api/v1/sessions/?limit=1", 200), ("/live/", 404), ("/nowhere", 404)):
        client.request("GET", path, headers=key)
        answer = client.getresponse()
        body = answer.read()
        assert (path, answer.status) == (path, status), body
    client.request("GET", "/api/v1/sessions/", headers={"X_API_Key": key["X-API-Key"]})
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (401, "not_authenticated")
    client.request("GET", "/live/ws", headers=key)
    answer = client.getresponse()
    body = json.loads(answer.read())["error"]
    assert (answer.status, body["code"], answer.headers["Upgrade"]) == (426, "upgrade_required", "websocket")
    assert "connect to it with ws:// or wss://" in body["message"]
    client.request("POST", "/live/sse", b"{}", key)
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (405, "method_not_allowed")
    client.close()
