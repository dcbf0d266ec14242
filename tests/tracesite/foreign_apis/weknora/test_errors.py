"""Test error bodies: the combined shape, the plain one without credentials, and the request id in every response."""

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


def test_key_is_accepted_in_either_header(project: Project) -> None:
    token = create_key(project, "chat", ["read"])[1]
    for header in ("X-API-Key", "Authorization"):
        assert WeKnora(token, header).sessions().total == 0
    # X-API-Key counts if a client sends both.
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
def test_request_without_valid_key_gets_plain_401(db: None, headers: dict[str, str], text: str) -> None:
    client = Client(headers=headers)
    for method, path in (
        ("GET", "sessions"),
        ("GET", "messages/x/load"),
        ("POST", "sessions/x/stop"),
        ("DELETE", "sessions/batch"),
    ):
        assert answered(client, method, f"{BASE}/{path}") == (401, {"error": text})


def test_admin_login_gives_no_access(admin_client: Client) -> None:
    assert answered(admin_client, "GET", f"{BASE}/sessions")[0] == 401


def test_missing_scope_is_named_in_403(project: Project) -> None:
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


def test_unknown_path_and_method_get_error_shape(weknora: WeKnora, db: None) -> None:
    for method, path, status, code in (
        ("get", "nothing", 404, 1003),
        ("get", "sessions/", 404, 1003),
        ("post", "knowledge-chat/x", 404, 1003),
        ("patch", "sessions/x", 405, 1004),
        ("post", "messages/x/load", 405, 1004),
    ):
        answer_status, content = weknora.raw(method, path)
        body = json.loads(content)
        assert (answer_status, body["success"], body["code"], body["error"]["code"]) == (status, False, code, code)
        assert body["error"]["message"]


def test_database_outage_is_503(weknora: WeKnora, db: None) -> None:
    weknora.sessions()
    with mock.patch("tracesite.foreign_apis.weknora.reading.fetch", side_effect=OperationalError("secret")):
        status, content = weknora.raw("get", "sessions")
    body = json.loads(content)
    assert (status, body["code"], body["error"]["code"], "secret" in content.decode()) == (503, 1008, 1008, False)


def test_unexpected_error_is_500_without_details(weknora: WeKnora, db: None) -> None:
    weknora.http.raise_request_exception = False
    with mock.patch("tracesite.foreign_apis.weknora.reading.fetch", side_effect=ZeroDivisionError("secret")):
        status, content = weknora.raw("get", "sessions")
    body = json.loads(content)
    assert (status, body["code"], body["error"]["code"], "secret" in content.decode()) == (500, 1007, 1007, False)


def test_invalid_host_gets_error_shape(db: None) -> None:
    response = Client(headers={"Host": "elsewhere.example"}).get(f"{BASE}/sessions")
    assert (response.status_code, response.json()["code"]) == (400, 1000)


def test_request_id_is_returned(weknora: WeKnora, db: None) -> None:
    for path, status in (("sessions", 200), ("sessions/x", 404), ("nothing", 404)):
        assert weknora.raw("get", path, headers={"X-Request-ID": "req-7"})[0] == status
        assert weknora.headers["X-Request-ID"] == "req-7"
    weknora.raw("get", "sessions")
    assert len(weknora.headers["X-Request-ID"]) == 32


def test_responses_are_compressed_and_not_cached(weknora: WeKnora, project: Project) -> None:
    session = store(project, question(content="word " * 1000))
    weknora.raw("get", f"messages/{session.id}/load", headers={"Accept-Encoding": "gzip"})
    assert (weknora.headers["Cache-Control"], weknora.headers["Content-Encoding"]) == ("private, no-store", "gzip")


def test_continue_stream_without_live_is_503(weknora: WeKnora, project: Project) -> None:
    session = store(project, question())
    status, content = weknora.raw("get", f"sessions/continue-stream/{session.id}?message_id=x")
    assert (status, json.loads(content)["code"]) == (503, 1008)
    assert "--live" in json.loads(content)["error"]["message"]


def test_openapi_document_omits_weknora() -> None:
    from tracesite.http.api_root import schema

    assert [path for path in schema()["paths"] if "weknora" in path or "load" in path] == []
