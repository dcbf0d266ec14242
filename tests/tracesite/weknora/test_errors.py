"""Both shapes of an error at once, the plain one without credentials, and the id of the request in every answer."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import question, store

from .conftest import WeKnora, refused

BASE = "/weknora/api/v1"


def answered(client: Client, method: str, path: str, **more: Any) -> tuple[int, Any]:
    response = client.generic(method, path, **more)
    return response.status_code, json.loads(response.content)


@pytest.mark.requirement("000-41")
def test_a_key_opens_it_in_either_header(project: Project) -> None:
    token = create_key(project, "chat", ["read"])[1]
    for header in ("X-API-Key", "Authorization"):
        assert WeKnora(token, header).sessions().total == 0
    # A client may send both, and means the key.
    both = {"X-API-Key": token, "Authorization": "Bearer of.something.else"}
    assert Client(headers=both).get(f"{BASE}/sessions").status_code == 200
    assert (
        Client(headers={"X-API-Key": "", "Authorization": f"Bearer {token}"}).get(f"{BASE}/sessions").status_code == 200
    )


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "Unauthorized: missing authentication"),
        ({"X-API-Key": "ts_wrong"}, "Unauthorized: invalid API key"),
        ({"Authorization": "Bearer ts_wrong"}, "Unauthorized: invalid or expired token"),
        ({"Authorization": "Basic dXNlcg=="}, "Unauthorized: missing authentication"),
    ],
)
def test_without_credentials_the_answer_is_plain(db: None, headers: dict[str, str], text: str) -> None:
    client = Client(headers=headers)
    for method, path in (
        ("GET", "sessions"),
        ("GET", "messages/x/load"),
        ("POST", "sessions/x/stop"),
        ("DELETE", "sessions/batch"),
    ):
        assert answered(client, method, f"{BASE}/{path}") == (401, {"error": text})


def test_a_session_of_the_admin_opens_nothing(admin_client: Client) -> None:
    assert answered(admin_client, "GET", f"{BASE}/sessions")[0] == 401


def test_a_scope_that_is_missing_is_said(project: Project) -> None:
    viewer = WeKnora(create_key(project, "dashboard", ["read"])[1])
    writer = WeKnora(create_key(project, "agent", ["write"])[1])
    session = store(project, question())
    for call in (
        viewer.create,
        lambda: viewer.delete(session.id),
        lambda: viewer.pin(session.id),
        lambda: writer.load(session.id),
    ):
        assert refused(call)[:2] == (403, 1002)
    assert writer.pin(session.id).is_pinned and not writer.pin(session.id, method="delete").is_pinned
    status, code, body = refused(lambda: viewer.stop(session.id, session.messages[0].id))
    assert (status, code, list(body)) == (403, 0, ["error"])


def test_addresses_and_methods_that_are_not_there(weknora: WeKnora, db: None) -> None:
    for method, path, status, code in (
        ("get", "nothing", 404, 1003),
        ("get", "sessions/", 404, 1003),
        ("post", "knowledge-chat/x", 404, 1003),
        ("patch", "sessions/x", 405, 1004),
        ("post", "messages/x/load", 405, 1004),
    ):
        answer_status, said = weknora.raw(method, path)
        body = json.loads(said)
        assert (answer_status, body["success"], body["code"], body["error"]["code"]) == (status, False, code, code)
        assert body["error"]["message"]


def test_a_database_that_is_away_is_said_so(weknora: WeKnora, db: None) -> None:
    weknora.sessions()
    with mock.patch("tracesite.weknora.reading.fetch", side_effect=OperationalError("secret")):
        status, said = weknora.raw("get", "sessions")
    body = json.loads(said)
    assert (status, body["code"], body["error"]["code"], "secret" in said.decode()) == (503, 1008, 1008, False)


def test_what_nobody_foresaw_is_a_500_that_tells_nothing(weknora: WeKnora, db: None) -> None:
    weknora.http.raise_request_exception = False
    with mock.patch("tracesite.weknora.reading.fetch", side_effect=ZeroDivisionError("secret")):
        status, said = weknora.raw("get", "sessions")
    body = json.loads(said)
    assert (status, body["code"], body["error"]["code"], "secret" in said.decode()) == (500, 1007, 1007, False)


def test_a_wrong_host_has_the_shape_too(db: None) -> None:
    response = Client(headers={"Host": "elsewhere.example"}).get(f"{BASE}/sessions")
    assert (response.status_code, response.json()["code"]) == (400, 1000)


@pytest.mark.requirement("002-26")
def test_the_id_of_the_request_comes_back(weknora: WeKnora, db: None) -> None:
    for path, status in (("sessions", 200), ("sessions/x", 404), ("nothing", 404)):
        assert weknora.raw("get", path, headers={"X-Request-ID": "req-7"})[0] == status
        assert weknora.headers["X-Request-ID"] == "req-7"
    weknora.raw("get", "sessions")
    assert len(weknora.headers["X-Request-ID"]) == 32


def test_answers_are_kept_by_no_cache_and_compressed(weknora: WeKnora, project: Project) -> None:
    session = store(project, question(content="word " * 1000))
    weknora.raw("get", f"messages/{session.id}/load", headers={"Accept-Encoding": "gzip"})
    assert (weknora.headers["Cache-Control"], weknora.headers["Content-Encoding"]) == ("private, no-store", "gzip")


def test_where_streams_are_served_elsewhere_it_is_said(weknora: WeKnora, project: Project) -> None:
    session = store(project, question())
    status, said = weknora.raw("get", f"sessions/continue-stream/{session.id}?message_id=x")
    assert (status, json.loads(said)["code"]) == (503, 1008)
    assert "--live" in json.loads(said)["error"]["message"]


def test_our_own_document_knows_nothing_of_it() -> None:
    from tracesite.http.api_root import schema

    assert [path for path in schema()["paths"] if "weknora" in path or "load" in path] == []
