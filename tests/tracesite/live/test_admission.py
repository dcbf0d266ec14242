"""Test that the admin login gives access to /live/ for pages of this site only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent, make_agent
from benchmarks.live.viewer import Closed, Refused

from .conftest import Viewers, another_key, hear

pytestmark = pytest.mark.system

_LOG_IN = """
from django.contrib.auth.models import Permission, User
from django.test import Client
user, _ = User.objects.get_or_create(username={name!r}, defaults=dict(is_staff={staff}, is_superuser={superuser}))
user.user_permissions.set(Permission.objects.filter(codename__in={permissions!r}))
client = Client()
client.force_login(user)
print(client.cookies["sessionid"].value)
"""


def cookie_of(
    site: Site, name: str, *, staff: bool = True, superuser: bool = False, permissions: Sequence[str] = ()
) -> dict[str, str]:
    script = _LOG_IN.format(name=name, staff=staff, superuser=superuser, permissions=list(permissions))
    key = site.manage("shell", "-v", "0", "-c", script).split()[-1]
    return {"Cookie": f"csrftoken=x; sessionid={key}"}


@pytest.fixture(scope="module")
def boss(site: Site) -> dict[str, str]:
    return cookie_of(site, "boss", superuser=True)


def test_same_origin_page_may_subscribe_with_session_cookie(
    viewers: Viewers,
    boss: dict[str, str],
    agent: Agent,
    port: int,
    database: psycopg.Connection[tuple[object, ...]],
) -> None:
    socket = viewers.socket(boss | {"Origin": f"http://127.0.0.1:{port}"})
    socket.subscribe(str(agent.session))
    assert hear(socket, "session_update")["data"]["status"] == "running"
    assert hear(viewers.stream(str(agent.session), boss), "session_update")["data"]["status"] == "running"
    entries = database.execute(
        "SELECT actor_kind, action, object_type, object_id <> '', project_id IS NOT NULL, address"
        " FROM access_app_auditentry WHERE actor_name = 'boss' AND detail ->> 'route' = 'live'"
    )
    assert entries.fetchall() == [("user", "read", "session", True, True, "127.0.0.1")] * 2


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
def test_foreign_page_may_not_subscribe_with_session_cookie(
    viewers: Viewers, boss: dict[str, str], agent: Agent, origin: str
) -> None:
    socket = viewers.socket(boss | ({"Origin": origin} if origin else {}))
    socket.subscribe(str(agent.session))
    assert hear(socket, "error")["error"]["code"] == "not_authenticated"
    elsewhere = {"Origin": origin} if origin else {"Sec-Fetch-Site": "cross-site"}
    with pytest.raises(Refused, match="401"):
        viewers.stream(str(agent.session), boss | elsewhere)


def test_login_without_admin_access_may_not_subscribe(viewers: Viewers, site: Site, agent: Agent) -> None:
    for name, staff, status in (("clerk", True, 404), ("guest", False, 401)):
        with pytest.raises(Refused) as refused:
            viewers.stream(str(agent.session), cookie_of(site, name, staff=staff))
        assert refused.value.status == status


def test_view_permission_alone_gives_no_stream(viewers: Viewers, site: Site, agent: Agent, port: int) -> None:
    cookie = cookie_of(site, "reader", permissions=["view_session", "view_message"])
    with pytest.raises(Refused, match="404"):
        viewers.stream(str(agent.session), cookie)
    socket = viewers.socket(cookie | {"Origin": f"http://127.0.0.1:{port}"})
    socket.subscribe(str(agent.session))
    assert hear(socket, "error")["error"]["code"] == "not_found"


def test_viewer_and_masked_key_get_masked_events(
    viewers: Viewers, site: Site, port: int, database: psycopg.Connection[Any]
) -> None:
    reader = cookie_of(site, "onlooker")
    key = another_key(site, "clinic")
    agent = make_agent(site, "masked-task", key=key)
    site.manage("grant_role", "--project", "clinic", "--user", "onlooker", "--role", "viewer")
    rule = ("set_masking_rule", "staff", "--project", "clinic", "--kind", "pattern", "--when", "read")
    site.manage(*rule, "--value", "EMP-[0-9]+")
    masked = {"X-API-Key": another_key(site, "clinic", "--scopes", "read", "--masked")}
    agent.does(database, {"text": "by EMP-1", "deep": [{"who": "EMP-2"}]})

    shown = {"text": "by [redacted]", "deep": [{"who": "[redacted]"}]}
    streams = [viewers.stream(str(agent.session), headers) for headers in (reader, masked)]
    socket = viewers.socket(reader | {"Origin": f"http://127.0.0.1:{port}"})
    socket.subscribe(str(agent.session))
    for viewer in (*streams, socket):
        assert hear(viewer, "monitor_event")["event"]["data"] == shown
    agent.does(database, {"text": "and EMP-3"})
    for viewer in (*streams, socket):
        assert hear(viewer, "monitor_event")["event"]["data"] == {"text": "and [redacted]"}
    plain = viewers.stream(str(agent.session), {"X-API-Key": key})
    assert hear(plain, "monitor_event")["event"]["data"]["text"] == "by EMP-1"
    # Other rules end the connections; the next one masks by them.
    site.manage(*rule, "--value", "EMP-[0-9]")
    for viewer in (*streams, socket):
        assert hear(viewer, "error")["error"]["code"] == "access_ended"


def test_logout_ends_streams_of_login(
    viewers: Viewers, site: Site, agent: Agent, port: int, database: psycopg.Connection[tuple[object, ...]]
) -> None:
    cookie = cookie_of(site, "leaver", superuser=True)
    stream = viewers.stream(str(agent.session), cookie)
    hear(stream, "session_update")
    database.execute("UPDATE auth_user SET is_active = false WHERE username = 'leaver'")
    assert hear(stream, "error")["error"]["code"] == "access_ended"  # within 10 s
    with pytest.raises(Closed):
        stream.hear()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("GET", f"/live/sse?session={agent.session}", headers=cookie)
    assert client.getresponse().status == 401
    client.close()


def test_secrets_do_not_reach_streams(viewers: Viewers, site: Site, port: int) -> None:
    secret, headers = "ghp_" + "16C7e42F292c" * 3, {"X-API-Key": site.key, "Content-Type": "application/json"}
    agent = make_agent(site, "told-task")
    socket = viewers.socket(headers)
    socket.subscribe(str(agent.session))
    stream = viewers.stream(str(agent.session), headers)
    call = {"call_id": "c", "name": "find", "args": {"q": secret}, "output": secret, "error": secret, secret: secret}
    types = ("agent_start", "prompt_build", "tool_call_start", "tool_call_error", "agent_error", "agent_complete")
    events = [{"session_id": "told-task", "id": type_, "type": type_, "data": call} for type_ in types]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/api/v1/events/", json.dumps({"events": events}), headers)
    answer = connection.getresponse()
    assert (answer.status, secret.encode() in answer.read()) == (200, False)
    connection.close()
    for viewer in (socket, stream):
        heard = [viewer.hear()]
        while heard[-1].get("event", {}).get("type") != "agent_complete":
            heard.append(viewer.hear())
        text = json.dumps(heard)
        assert "[redacted]" in text
        assert secret not in text
