"""Programs are answered by a shorter way, which nobody can tell from the longer one."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.batch import SessionOutcome
from tracesite.http.api_middleware import ApiMiddleware, _parameters

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


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests that went the shorter way."""
    taken: list[str] = []
    answer_shortly = ApiMiddleware._answer

    def answer(middleware: ApiMiddleware, request: HttpRequest) -> HttpResponseBase:
        taken.append(request.path)
        return answer_shortly(middleware, request)

    monkeypatch.setattr(ApiMiddleware, "_answer", answer)
    return taken


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
        ("get", LIST, {"Accept-Language": "zh-hans" + ", fr;q=0.5" * 50}),
        ("get", f"{LIST}?tool=a%00b", {}),
        ("get", f"{LIST}?fields=id%2Crole&limit=1", {}),
        ("get", f"{LIST}?tool=get_weather&tool=a+b&tool=%E5%A4%A9&tool=%ff", {}),
        ("get", f"{LIST}?limit=1&limit=2", {}),
        ("get", f"{LIST}?limit&=x&&a=b;c", {}),
        ("get", f"{LIST}?%E9=1", {"Content-Type": "text/plain; charset=latin-1"}),
        ("get", f"{LIST}?limit=1", {"Content-Type": "text/plain; charset=cp037"}),
        ("get", f"{LIST}?{'&'.join(f'p{number}=1' for number in range(200))}", {}),
        ("get", f"{LIST}?{'&'.join(f'p{number}=1' for number in range(2000))}", {}),
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
    weather: SessionOutcome, token: str, short_ways: list[str], method: str, path: str, headers: dict[str, str]
) -> None:
    path = path.format(session=weather.id, message=weather.messages[0].id)
    sent: dict[str, Any] = {"Authorization": f"Bearer {token}", "X-Request-ID": "r1", **headers}

    # A cookie, of whatever kind, is for browsers: it leads to the longer way.
    longer = said(getattr(Client(), method)(path, headers={**sent, "Cookie": "theme=dark"}))
    assert not short_ways
    client = Client()
    for again in range(1, 3):
        assert said(getattr(client, method)(path, headers=sent)) == longer
        assert len(short_ways) == again
    assert longer[0] < 500


@given(query=st.text(st.sampled_from("ab=&;+%20E5C天\x00"), max_size=40) | st.text(max_size=20))
def test_parameters_are_what_django_reads(query: str) -> None:
    found = _parameters(query)
    assert found is None or dict(found.lists()) == dict(QueryDict(query).lists())
    assert (found is None) == (not query.isascii())


def test_a_host_that_was_let_pass_lets_no_other_pass(token: str, short_ways: list[str]) -> None:
    client = Client(headers={"Authorization": f"Bearer {token}"})
    said_of = [
        client.get(path, headers={"Host": host}).status_code
        for host in ("localhost", "elsewhere.example", "localhost", "elsewhere.example", "localhost:8000", "")
        for path in (LIST, "/api/v1/messages")
    ]
    assert said_of == [200, 301, 400, 400, 200, 301, 400, 400, 200, 301, 400, 400]
    assert len(short_ways) == len(said_of)


@pytest.mark.parametrize("is_redirected", [False, True])
def test_https_is_spoken_of_alike(token: str, settings: Any, is_redirected: bool) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 60
    settings.SECURE_SSL_REDIRECT = is_redirected
    for scheme in ("http", "https"):
        sent = {"Authorization": f"Bearer {token}", "X-Request-ID": "r1", "X-Forwarded-Proto": scheme}
        longer = said(Client().get(LIST, headers={**sent, "Cookie": "theme=dark"}))
        assert said(Client().get(LIST, headers=sent)) == longer
        assert longer[0] == (301 if is_redirected and scheme == "http" else 200)
        assert ("Strict-Transport-Security" in longer[1]) == (scheme == "https")


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
