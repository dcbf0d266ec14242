"""Requests and responses of megabytes are freed at their end, without waiting for a garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from io import BytesIO
from wsgiref.util import setup_testing_defaults

import pytest

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.views.viewset import TraceViewSet
from tracesite.wsgi import application

BATCH = b'{"sessions": [{"external_id": "s", "messages": [{"role": "user", "content": "hi"}]}]}'


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/messages/", b"", "200"),
        ("HEAD", "/api/v1/sessions/", b"", "200"),
        ("GET", "/api/v1/tool-calls/", b"", "200"),
        ("POST", "/api/v1/ingest/", BATCH, "200"),
        ("POST", "/api/v1/ingest/", b"{", "400"),
        ("GET", "/api/v1/messages/1/", b"", "404"),
        ("PUT", "/api/v1/messages/", b"", "405"),
    ],
)
def test_view_does_not_outlive_its_request(
    transactional_db: None, no_collector: None, method: str, path: str, body: bytes, status: str
) -> None:
    project = Project.objects.create(slug="clean")
    store(project, question(), answer())
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "HTTP_AUTHORIZATION": f"Bearer {create_key(project, 'agent', ['read', 'write'])[1]}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }
    setup_testing_defaults(environ)
    before = views()
    answered: list[str] = []
    response = application(environ, lambda said, _headers: answered.append(said))
    assert answered[0].startswith(status)
    del response
    assert views() == before


def views() -> list[TraceViewSet]:
    # By type, because isinstance() would evaluate lazy objects.
    return [one for one in gc.get_objects() if issubclass(type(one), TraceViewSet)]
