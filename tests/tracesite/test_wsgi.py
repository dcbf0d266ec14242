"""Test that requests pass through Django's own handler, its middleware, signals and connection handling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.core.signals import request_started
from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory
from psycopg.conninfo import make_conninfo

from access_app.keys import create_key
from access_app.models import Project
from tests.access_app.db.test_base import backend, end
from tracesite.wsgi import application

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/api/v1/messages/"


@pytest.fixture
def token(db: None) -> str:
    return create_key(Project.objects.create(slug="owner"), "agent", ["read"])[1]


def get(path: str, token: str = "", **headers: str) -> tuple[str, dict[str, str]]:
    """Call the WSGI application as a server does; return the status line and the headers."""
    begun: list[Any] = []
    environ = RequestFactory(headers={"Authorization": f"Bearer {token}", **headers}).get(path).environ
    response: Any = application(environ, lambda status, headers: begun.extend([status, dict(headers)]))
    b"".join(response)
    response.close()
    return begun[0], begun[1]


def mark_answers(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware as a user could add it to the settings."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers["X-Marked"] = "yes"
        return response

    return middleware


def test_middleware_of_the_settings_runs_for_api_keys(token: str, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.mark_answers"]
    response = Client(headers={"Authorization": f"Bearer {token}"}).get(LIST)
    assert (response.status_code, response.headers["X-Marked"]) == (200, "yes")


def test_wsgi_request_sends_djangos_signals(token: str) -> None:
    started: list[object] = []

    def note(**_arguments: object) -> None:
        started.append(True)

    request_started.connect(note)
    try:
        assert get(LIST, token)[0] == "200 OK"
    finally:
        request_started.disconnect(note)
    assert started == [True]


def test_connection_that_ended_is_replaced_by_the_next_request(token: str) -> None:
    before = backend()
    assert get(LIST, token)[0] == "200 OK"
    assert backend() == before
    info = connection.connection.info
    with psycopg.connect(make_conninfo(info.dsn, password=info.password or None), autocommit=True) as other:
        end(other, before)
    assert get(LIST, token)[0] == "200 OK"
    assert backend() != before


def test_connection_left_in_a_transaction_is_closed(token: str) -> None:
    connection.set_autocommit(False)
    backend()
    assert get("/healthz")[0] == "200 OK"
    assert connection.connection is None


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_hsts_is_sent_over_https_alone(token: str, settings: Any, scheme: str) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 60
    response = Client(headers={"Authorization": f"Bearer {token}", "X-Forwarded-Proto": scheme}).get(LIST)
    assert response.status_code == 200
    assert ("Strict-Transport-Security" in response.headers) == (scheme == "https")


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("elsewhere.example", 400)])
def test_host_that_is_not_allowed_is_refused_with_a_key(token: str, host: str, status: int) -> None:
    response = Client(headers={"Authorization": f"Bearer {token}", "Host": host}).get(LIST)
    assert response.status_code == status
