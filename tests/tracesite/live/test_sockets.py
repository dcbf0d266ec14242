"""WebSockets at /live/ws, against a server that runs."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import Closed, Refused

from .conftest import Viewers, another_key, hear, hear_events

Database = psycopg.Connection[Any]


@pytest.mark.requirement("004-53", "004-54", "004-62")
def test_who_subscribes_is_told_how_the_session_is_and_what_happens(
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


@pytest.mark.requirement("004-08")
def test_only_those_who_subscribed_to_a_session_receive_it(
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


@pytest.mark.requirement("004-71", "004-64")
def test_who_comes_late_gets_all_that_was_and_who_comes_back_what_is_new(
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


@pytest.mark.requirement("004-62", "004-63")
def test_what_is_no_subscription_is_ignored_and_so_is_what_is_not_known_of_one(
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


def test_what_cannot_be_subscribed_to_is_said(key: dict[str, str], agent: Agent, viewers: Viewers) -> None:
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


def test_a_session_of_another_project_is_not_there(
    site: Site, key: dict[str, str], agent: Agent, viewers: Viewers
) -> None:
    viewer = viewers.socket({"X-API-Key": another_key(site, "stranger")})
    for name in (agent.external_id, str(agent.session), "nobody's"):
        viewer.subscribe(name)
        assert hear(viewer, "waiting") == {"type": "waiting", "sessionId": name}


def test_a_key_opens_it_in_a_header_in_the_address_and_in_the_subscription(
    site: Site, agent: Agent, viewers: Viewers
) -> None:
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
def test_without_a_valid_key_it_is_closed(agent: Agent, headers: dict[str, str], code: str, viewers: Viewers) -> None:
    viewer = viewers.socket(headers)
    viewer.subscribe(agent.external_id)
    assert hear(viewer, "error")["error"]["code"] == code
    with pytest.raises(Closed) as closed:
        viewer.hear()
    assert closed.value.code == 1008


def test_a_key_that_may_not_read_does_not_open_it(site: Site, agent: Agent, viewers: Viewers) -> None:
    viewer = viewers.socket({"X-API-Key": another_key(site, "faults", "--scopes", "write")})
    assert hear(viewer, "error")["error"]["code"] == "missing_scope"


def test_a_revoked_key_ends_its_sockets_and_no_others(
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


def test_a_deleted_session_ends_its_stream_with_a_word(
    port: int, key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    agent.does(database, {})
    assert hear_events(viewer, 1) == [1]
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request("DELETE", f"/api/v1/sessions/{agent.session}/", headers=key)
    assert client.getresponse().status == 204
    client.close()
    assert hear(viewer, "session_deleted") == {"type": "session_deleted", "sessionId": agent.external_id}
    viewer.subscribe(agent.external_id)
    assert hear(viewer, "error")["error"]["code"] == "not_found"


@pytest.mark.requirement("004-65")
def test_there_is_a_sign_of_life_where_nothing_happens(key: dict[str, str], agent: Agent, viewers: Viewers) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    begin = time.monotonic()
    assert hear(viewer, "heartbeat") == {"type": "heartbeat"}
    assert 0.8 < time.monotonic() - begin < 5


@pytest.mark.requirement("004-65")
def test_who_does_not_read_any_more_is_removed(
    key: dict[str, str], agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket(key)
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    # More than the buffers of both ends take in.
    agent.does(database, *({"text": "x" * 50_000} for _ in range(300)))
    time.sleep(5)  # two signs of life and some
    with pytest.raises(Closed):
        for _ in range(300):
            hear(viewer, "monitor_event")


@pytest.mark.requirement("004-66")
def test_who_falls_behind_is_told_what_was_left_out_and_can_have_it(
    site: Site, agent: Agent, database: Database, viewers: Viewers
) -> None:
    viewer = viewers.socket({"X-API-Key": site.key})
    viewer.subscribe(agent.external_id)
    hear(viewer, "session_update")
    sent = 0
    # A megabyte each time, of which it reads a quarter at most. If it read nothing it would be removed after two signs of life.
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


def test_another_host_name_is_refused(key: dict[str, str], viewers: Viewers) -> None:
    with pytest.raises(Refused, match="403"):
        viewers.socket(key | {"Host": "evil.example"})


def test_everything_else_is_served_by_the_same_process(
    site: Site, port: int, key: dict[str, str], viewers: Viewers
) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for path, status in (("/healthz", 200), ("/api/v1/sessions/?limit=1", 200), ("/live/", 404), ("/nowhere", 404)):
        client.request("GET", path, headers=key)
        answer = client.getresponse()
        body = answer.read()
        assert (path, answer.status) == (path, status), body
    client.request("GET", "/api/v1/sessions/", headers={"X_API_Key": key["X-API-Key"]})
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (401, "not_authenticated")
    client.request("POST", "/live/sse", b"{}", key)
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (405, "method_not_allowed")
    client.close()
