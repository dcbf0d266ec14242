"""Programs are answered by a shorter way, which nobody can tell from the longer one."""

from __future__ import annotations

from typing import Any

import pytest
from django.http.response import HttpResponseBase
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.batch import SessionOutcome

LIST = "/api/v1/messages/"


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def token(project: Project) -> str:
    return create_key(project, "agent", ["read", "write"])[1]


@pytest.fixture
def weather(project: Project) -> SessionOutcome:
    return store(project, question(), answer(content="Rain. " * 1000))


def said(response: HttpResponseBase) -> tuple[int, dict[str, str], bytes]:
    content = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined, arg-type]
    return response.status_code, dict(response.headers), content


@pytest.mark.requirement("002-26")
@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("get", LIST, {}),
        ("head", LIST, {}),
        ("options", LIST, {}),
        ("get", f"{LIST}?tool=get_weather&limit=1", {"Accept-Encoding": "zstd"}),
        ("get", f"{LIST}{{message}}/", {"Accept-Encoding": "gzip", "Accept-Language": "zh-hans"}),
        ("get", "/api/v1/sessions/{session}/export/", {}),
        ("get", LIST, {"Accept": "text/html"}),
        ("get", f"{LIST}?limit=x", {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}),
        ("get", f"{LIST}00000000-0000-7000-8000-000000000000/", {"Accept-Language": "fr"}),
        ("get", "/api/v1/messages", {}),
        ("post", "/api/v1/messages", {}),
        ("get", "/api/v1/nowhere/", {}),
        ("get", f"/api/v1/messages/{'x' * 200}/", {}),
        ("delete", LIST, {}),
        ("delete", f"{LIST}{{message}}/", {}),
        ("post", "/api/v1/ingest/", {}),
        ("get", LIST, {"Authorization": "Bearer ts_wrong"}),
        ("get", LIST, {"Host": "elsewhere.example"}),
        ("get", "/api/v1/", {}),
        ("get", "/api/v1/schema/", {"Accept-Encoding": "gzip"}),
        ("get", "/weknora/api/v1/messages/{session}/load", {}),
        ("get", "/weknora/api/v1/nowhere", {}),
    ],
)
def test_answers_are_those_of_the_longer_way(
    weather: SessionOutcome, token: str, method: str, path: str, headers: dict[str, str]
) -> None:
    path = path.format(session=weather.id, message=weather.messages[0].id)
    sent: dict[str, Any] = {"Authorization": f"Bearer {token}", "X-Request-ID": "r1", **headers}

    # A cookie, of whatever kind, is for browsers: it leads to the longer way.
    longer = said(getattr(Client(), method)(path, headers={**sent, "Cookie": "theme=dark"}))
    for _again in range(2):
        assert said(getattr(Client(), method)(path, headers=sent)) == longer


def test_an_unforeseen_failure_is_answered_and_logged_alike(
    monkeypatch: pytest.MonkeyPatch, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("traces_app.views.messages.MessageViewSet.list", fail)
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}", "X-Request-ID": "r1"})
    longer = said(client.get(LIST, headers={"Cookie": "theme=dark"}))

    assert said(client.get(LIST)) == longer
    assert longer[0] == 500
    assert [record.exc_info is not None for record in caplog.records if record.name == "django.request"] == [True] * 2


def test_a_session_of_staff_and_a_request_without_a_key_are_left_to_the_longer_way(
    admin_client: Client, project: Project
) -> None:
    assert admin_client.get(LIST).status_code == 200
    refused = Client().get(LIST)

    assert refused.status_code == 401
    assert "Cookie" in refused.headers["Vary"]
