"""The server's way of calling Django, which answers as Django's own way does."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults

import psycopg
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from psycopg.conninfo import make_conninfo

from access_app.keys import create_key
from access_app.models import Project
from tests.access_app.db.test_base import backend, end
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.batch import SessionOutcome
from tracesite.wsgi import Application

pytestmark = pytest.mark.django_db(transaction=True)

Said = tuple[str, list[tuple[str, str]], bytes]


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def token(project: Project) -> str:
    return create_key(project, "agent", ["read"])[1]


@pytest.fixture
def weather(project: Project) -> SessionOutcome:
    return store(project, question(), answer())


def call(application: WSGIHandler, path: str, **headers: str) -> tuple[Said, Iterable[bytes]]:
    environ: dict[str, Any] = {
        "PATH_INFO": path.partition("?")[0],
        "QUERY_STRING": path.partition("?")[2],
        "HTTP_X_REQUEST_ID": "r1",
        "wsgi.input": BytesIO(),
        **headers,
    }
    setup_testing_defaults(environ)
    begun: list[Any] = []
    pieces: Any = application(environ, lambda status, headers: begun.extend([status, headers]))
    body = b"".join(pieces)
    if hasattr(pieces, "close"):
        pieces.close()
    # What is not to be kept expires at the moment of the answer.
    said = sorted((name, value) for name, value in begun[1] if name != "Expires")
    return (begun[0], said, body), pieces


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/messages/?limit=1",
        "/api/v1/messages/?limit=x",
        "/api/v1/messages",
        "/api/v1/nowhere/",
        "/readyz",
        "/",
        "/admin/",
        "/static/admin/css/base.css",
        "/nowhere",
    ],
)
def test_answers_are_djangos(weather: SessionOutcome, token: str, path: str) -> None:
    for headers in ({}, {"HTTP_AUTHORIZATION": f"Bearer {token}"}):
        assert call(Application(), path, **headers)[0] == call(WSGIHandler(), path, **headers)[0]


def test_cookies_are_set() -> None:
    ours, djangos = (dict(call(handler(), "/admin/login/")[0][1]) for handler in (Application, WSGIHandler))
    assert ours["Set-Cookie"].startswith(" csrftoken=")
    # Each has a token and a moment of its own.
    assert [part.partition("=")[0] for part in ours["Set-Cookie"].split("; ")] == [
        part.partition("=")[0] for part in djangos["Set-Cookie"].split("; ")
    ]


def test_what_is_streamed_is_passed_on_as_it_is_and_the_rest_is_one_list(weather: SessionOutcome, token: str) -> None:
    key = {"HTTP_AUTHORIZATION": f"Bearer {token}"}
    assert isinstance(call(Application(), "/api/v1/messages/", **key)[1], list)
    ours, pieces = call(Application(), f"/api/v1/sessions/{weather.id}/export/", **key)
    assert ours == call(WSGIHandler(), f"/api/v1/sessions/{weather.id}/export/", **key)[0]
    assert ours[0] == "200 OK"
    assert isinstance(pieces, StreamingHttpResponse)


def test_a_connection_is_looked_at_before_each_request(token: str) -> None:
    key = {"HTTP_AUTHORIZATION": f"Bearer {token}"}
    before = backend()
    assert call(Application(), "/api/v1/messages/", **key)[0][0] == "200 OK"
    assert backend() == before
    info = connection.connection.info
    with psycopg.connect(make_conninfo(info.dsn, password=info.password or None), autocommit=True) as other:
        end(other, before)
    assert call(Application(), "/api/v1/messages/", **key)[0][0] == "200 OK"
    assert backend() != before


def test_a_connection_that_a_request_leaves_in_a_transaction_is_closed() -> None:
    class Careless(Application):
        def get_response(self, request: HttpRequest) -> HttpResponse:
            connection.set_autocommit(False)
            backend()
            return super().get_response(request)

    assert call(Careless(), "/healthz")[0][0] == "200 OK"
    assert connection.connection is None


def test_nobody_else_listens_to_what_is_not_said() -> None:
    heard = {
        name: {receiver.__name__ for receiver in signal._live_receivers(None)[0]}
        for name, signal in {"started": request_started, "finished": request_finished}.items()
    }
    assert heard == {
        "started": {"reset_queries", "close_old_connections"},
        "finished": {"close_caches", "close_old_connections", "reset_urlconf"},
    }
