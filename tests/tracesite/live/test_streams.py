"""Server-sent events at /live/sse, against a server that runs."""

from __future__ import annotations

import http.client
import json
import resource
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from benchmarks.live.viewer import Closed, Refused
from tracesite.serving.worker import BACKLOG

from .conftest import Viewers, another_key, hear, hear_events

pytestmark = pytest.mark.system

Database = psycopg.Connection[Any]


def test_stream_has_stored_and_new_events_with_numbers(
    viewers: Viewers, key: dict[str, str], agent: Agent, database: Database
) -> None:
    agent.does(database, {"n": 1}, {"n": 2})
    stream = viewers.stream(agent.external_id, key)
    assert stream.hear()["_event"] == "session_update"
    agent.does(database, {"n": 3})
    events = [hear(stream, "monitor_event") for _ in range(3)]
    assert [(event["_event"], event["_id"], event["event"]["data"]) for event in events] == [
        ("monitor_event", "1", {"n": 1}),
        ("monitor_event", "2", {"n": 2}),
        ("monitor_event", "3", {"n": 3}),
    ]


def test_reconnect_with_last_event_id_continues(
    viewers: Viewers, key: dict[str, str], agent: Agent, database: Database
) -> None:
    agent.does(database, *({"n": n} for n in range(5)))
    assert hear_events(viewers.stream(agent.external_id, key, after=2), 5) == [3, 4, 5]
    # A browser requests the same URL again.
    assert hear_events(viewers.stream(agent.external_id, key | {"Last-Event-ID": "4"}, after=2), 5) == [5]


def test_idle_stream_gets_heartbeats(viewers: Viewers, key: dict[str, str], agent: Agent) -> None:
    assert hear(viewers.stream(agent.external_id, key), "heartbeat")["_event"] == "heartbeat"


@pytest.mark.parametrize(
    ("session", "query", "status", "code"),
    [
        ("", {}, 404, "not_found"),
        ("{}", {"after": "x"}, 400, "invalid_input"),
        ("{}", {"after": "-1"}, 400, "invalid_input"),
        ("{}", {"key": "ts_wrong"}, 401, "invalid_api_key"),
    ],
)
def test_invalid_stream_request_gets_api_error(
    viewers: Viewers, site: Site, agent: Agent, session: str, query: dict[str, str], status: int, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        viewers.stream(session.format(agent.external_id), None, **{"key": site.key, **query})
    assert (refused.value.status, json.loads(refused.value.body)["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "“session” must be the id or external id of a session."),
        ("session=", 404, "Session “” does not exist, or you have no access to it."),
    ],
)
def test_stream_without_session_names_the_parameter(
    port: int, key: dict[str, str], query: str, status: int, message: str
) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("GET", f"/live/sse?{query}", headers=key)
    answer = client.getresponse()
    error = json.loads(answer.read())["error"]
    client.close()
    assert (answer.status, error["field"], error["message"]) == (status, "session", message)


def test_missing_or_foreign_key_gives_no_events(viewers: Viewers, site: Site, agent: Agent) -> None:
    with pytest.raises(Refused, match="401"):
        viewers.stream(agent.external_id, {})
    stream = viewers.stream(agent.external_id, {"X-API-Key": another_key(site, "stranger")})
    assert [stream.hear()["type"] for _ in range(3)] == ["waiting", "heartbeat", "heartbeat"]


@pytest.mark.minutes
def test_viewers_beyond_listen_backlog_are_all_served(
    viewers: Viewers, site: Site, key: dict[str, str], agent: Agent
) -> None:
    count = BACKLOG + 60
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * count:
        pytest.skip(f"this system allows a process {hard} open files")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
    try:
        last = [viewers.stream(agent.external_id, key) for _ in range(count)][-1]
        hear(last, "session_update")
        assert site.server.get("/healthz")[0] == 200
    finally:
        for viewer in viewers.connected:
            viewer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_key_in_header_with_underscores_is_ignored(viewers: Viewers, site: Site, agent: Agent) -> None:
    with pytest.raises(Refused, match="401"):
        viewers.stream(agent.external_id, {"X_API_Key": site.key})


def test_revoked_key_ends_stream_and_refuses_next(
    viewers: Viewers, site: Site, agent: Agent, database: Database
) -> None:
    token = another_key(site, "faults")
    stream = viewers.stream(agent.external_id, {"X-API-Key": token})
    hear(stream, "session_update")
    database.execute("UPDATE access_app_apikey SET revoked_at = now() WHERE prefix = %s", [token[:8]])
    assert hear(stream, "error")["_event"] == "refused"
    with pytest.raises(Closed):
        stream.hear()
    with pytest.raises(Refused, match="401"):
        viewers.stream(agent.external_id, {"X-API-Key": token})


def test_key_opens_no_stream_from_a_foreign_address(viewers: Viewers, site: Site, agent: Agent) -> None:
    with pytest.raises(Refused, match="403"):
        viewers.stream(agent.external_id, {"X-API-Key": another_key(site, "faults", "--allow", "203.0.113.9")})
    hear(
        viewers.stream(agent.external_id, {"X-API-Key": another_key(site, "faults", "--allow", "127.0.0.0/8")}),
        "session_update",
    )


def test_deleted_session_ends_stream(viewers: Viewers, key: dict[str, str], agent: Agent, database: Database) -> None:
    stream = viewers.stream(agent.external_id, key)
    hear(stream, "session_update")
    database.execute("UPDATE messages_app_session SET deleted_at = now() WHERE id = %s", [agent.session])
    assert hear(stream, "session_deleted")["sessionId"] == agent.external_id
    with pytest.raises(Closed):
        stream.hear()
