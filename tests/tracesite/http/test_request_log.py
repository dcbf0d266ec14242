"""Test that each request has one id, in its response and all its log lines, and writes one line of its own."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tests.tracesite.conftest import LogLines
from tracesite.http.request_ids import current_request_id
from tracesite.http.request_log import clean_for_log

pytestmark = pytest.mark.urls("tests.tracesite.urls")

MESSAGE = "/api/sessions/s-1/messages/m-2/"


@pytest.fixture
def token(db: None) -> str:
    project = Project.objects.create(slug="owner")
    return create_key(project, "agent", ["read"])[1]


def test_request_id_is_in_the_response_and_every_log_line(client: Client, token: str, log_lines: LogLines) -> None:
    answer = client.get(MESSAGE, headers={"X-API-Key": token, "X-Request-ID": "trace:7.a_b-C"})

    assert answer.headers["X-Request-ID"] == "trace:7.a_b-C"
    assert [(line["logger"], line["request_id"]) for line in log_lines()] == [
        ("tests.tracesite.urls", "trace:7.a_b-C"),
        ("tracesite.http.request_log", "trace:7.a_b-C"),
    ]


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\tb", "<script>", "a;b"])
def test_invalid_request_id_is_replaced(client: Client, given: str) -> None:
    ids = [client.get("/plain/ok/", headers={"X-Request-ID": given}).headers["X-Request-ID"] for _ in range(2)]

    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in ids)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("path", ["/nowhere", "/api/nowhere/", "/plain/unforeseen/", "/api/raise/unforeseen/"])
def test_failed_responses_carry_request_id(path: str) -> None:
    client = Client(raise_request_exception=False)

    assert client.get(path, headers={"X-Request-ID": "r1"}).headers["X-Request-ID"] == "r1"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "/", "/healthz", "/readyz", "/nowhere/", "/admin", "/admin/login/", "/admin/jsi18n/", "/api/v1/", "/api/v1/docs/",
        "/api/v1/schema/", "/api/v1/messages", "/api/v1/messages/", "/api/public/projects", "/info", "/v1/traces",
    ],
)  # fmt: skip
def test_no_response_is_kept_by_caches(client: Client, admin_client: Client, path: str) -> None:
    for caller in (client, admin_client):
        assert "no-store" in caller.get(path).headers["Cache-Control"]


def test_request_is_logged_in_one_line_with_its_outcome(client: Client, token: str, log_lines: LogLines) -> None:
    client.get(MESSAGE + "?q=private&cursor=private", headers={"X-API-Key": token, "X-Request-ID": "r1"})

    line = log_lines()[-1]
    assert isinstance(line.pop("duration_ms"), int)
    assert re.fullmatch(rf"GET {MESSAGE} 200 \d+ ms", line.pop("message"))
    line.pop("time")
    assert line == {
        "level": "INFO",
        "logger": "tracesite.http.request_log",
        "request_id": "r1",
        "method": "GET",
        "path": MESSAGE,
        "route": "message-detail",
        "status": 200,
        "session_id": "s-1",
        "message_id": "m-2",
        "project": "owner",
    }


def test_log_holds_no_content_query_string_or_key(token: str, log_lines: LogLines) -> None:
    client = Client(raise_request_exception=False)
    for path in (MESSAGE, "/api/raise/ours/", "/api/raise/unforeseen/", "/plain/unforeseen/", "/nowhere/"):
        client.get(path + "?q=private", headers={"X-API-Key": token})

    text = str(log_lines())
    for private in ("private", "the secret of the message", token):
        assert private not in text


def test_refused_request_is_logged_once(client: Client, db: None, log_lines: LogLines) -> None:
    client.get(MESSAGE)
    client.get("/api/nowhere/")

    assert [(line["logger"], line["status"]) for line in log_lines()] == [
        ("tracesite.http.request_log", 401),
        ("tracesite.http.request_log", 404),
    ]


def test_logged_ids_from_the_url_are_cleaned(client: Client, token: str, log_lines: LogLines) -> None:
    path = "/api/sessions/s%0Aroot%20logged%20in/messages/m%1B[31m%E2%80%AE%00/"

    client.get(path, headers={"X-API-Key": token})

    line = log_lines()[-1]
    assert line["session_id"] == "s?root logged in"
    assert line["message_id"] == "m?[31m??"
    assert line["path"] == "/api/sessions/s?root logged in/messages/m?[31m??/"
    assert line["message"].isprintable()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain - 中文 é", "plain - 中文 é"),
        ("a\nb\r\nc\x00d\x1b[31me", "a?b??c?d?[31me"),
        ("line\u2028and\u2029paragraph\x85", "line?and?paragraph?"),
        ("\u202egnp.exe\u200b\ufeff", "?gnp.exe??"),
        ("\ud800", "?"),
        ("x" * 500, "x" * 200),
        ("/api/v1/sessions/ts_" + "aB3_" * 10 + "xyz/", "/api/v1/sessions/[redacted]/"),
        ("x" * 180 + "/ts_" + "aB3_" * 10 + "xyz/", "x" * 180 + "/[redacted]/"),
    ],
)
def test_log_text_is_one_printable_line(text: str, clean: str) -> None:
    assert clean_for_log(text) == clean
    assert clean_for_log(clean) == clean


def test_unknown_method_is_cleaned_in_log(client: Client, log_lines: LogLines) -> None:
    client.generic("GET\nX" + "Y" * 50, "/plain/ok/")

    assert log_lines()[-1]["method"] == "GET?X" + "Y" * 11


def test_request_id_outside_requests_is_empty(client: Client) -> None:
    client.get("/plain/ok/")

    assert current_request_id() is None


def test_concurrent_requests_keep_their_own_ids(token: str, log_lines: LogLines) -> None:
    def ask(number: int) -> None:
        for _ in range(5):
            client = Client()
            answer: Any = client.get("/plain/ok/", headers={"X-Request-ID": f"r{number}"})
            assert answer.headers["X-Request-ID"] == f"r{number}"

    threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(line["request_id"] for line in log_lines()) == sorted([f"r{number}" for number in range(4)] * 5)


def test_request_line_hides_key_in_path(client: Client, token: str, log_lines: LogLines) -> None:
    client.get(f"/api/sessions/{token}/messages/m/", headers={"X-API-Key": token})

    assert token.startswith("ts_")
    assert token not in str(log_lines()[-1])
