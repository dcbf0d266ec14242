"""Whoever sends no key cannot make the server read a large body: every route, with every method that takes one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from django.test import Client

from messages_app.http.request_body import SMALL_BODY
from tests.test_access_matrix import routes
from tracesite.http.arriving_bodies import MOST_BYTES, with_arrived_bodies
from tracesite.http.foreign_api import is_api

MEBIBYTE = 1024 * 1024
BODIES: dict[str, dict[str, Any]] = {
    "plain": {"CONTENT_LENGTH": str(MEBIBYTE)},
    "gzip": {"CONTENT_LENGTH": str(MEBIBYTE), "HTTP_CONTENT_ENCODING": "gzip"},
    "small gzip": {"CONTENT_LENGTH": "100", "HTTP_CONTENT_ENCODING": "gzip"},
    "chunked": {"HTTP_TRANSFER_ENCODING": "chunked"},
}


class Endless:
    """A body of which it is counted how much was read."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def read(self, size: int = MEBIBYTE) -> bytes:
        self.bytes_read += size
        return b" " * size

    readline = read


def with_bodies() -> Iterator[tuple[str, str]]:
    """Yield each route with each of its methods that may have a body; 1 is a text, too."""
    for path, method in routes():
        if method != "GET":
            yield re.sub(r"<[^>]*>", "1", path), method


def test_stranger_makes_no_view_read_a_large_body(db: None) -> None:
    wrong, tried = [], 0
    for path, method in filter(lambda route: is_api(route[0]), with_bodies()):
        for name, headers in BODIES.items():
            for kind in ("application/json", "multipart/form-data; boundary=b", "application/x-protobuf"):
                body = Endless()
                environ = {
                    "PATH_INFO": path,
                    "REQUEST_METHOD": method,
                    "CONTENT_TYPE": kind,
                    "wsgi.input": body,
                    **headers,
                }
                answer = Client().request(**environ)
                tried += 1
                if body.bytes_read > SMALL_BODY + 1 or (body.bytes_read and answer.status_code not in (413, 415)):
                    wrong.append((path, method, name, kind, answer.status_code, body.bytes_read))
    assert wrong == []
    assert tried > 500


def test_large_form_of_a_stranger_reaches_no_page() -> None:
    answers = {path: _status(path) for path, _method in with_bodies() if not is_api(path)}
    assert "/admin/login/" in answers
    assert {path: status for path, status in answers.items() if status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE} == {}


def _status(path: str) -> int:
    """Return the status of the answer to a form that is too large, which the application must not see."""
    statuses = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope)

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"content-length", b"%d" % (MOST_BYTES + 1))]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(with_arrived_bodies(application, 1)(scope, None, send))
    return int(statuses[0])


@pytest.mark.parametrize("name", BODIES)
def test_token_of_a_large_or_encoded_body_is_refused(name: str, db: None) -> None:
    body = Endless()
    environ = {"PATH_INFO": "/v3/auth/token", "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
    answer = Client().request(**environ, **BODIES[name], **{"wsgi.input": body})
    if "gzip" in name:
        assert (answer.status_code, answer.json()["error"]) == (415, "Content-Encoding: Send the body uncompressed.")
        assert (answer.headers["Accept-Encoding"], body.bytes_read) == ("identity", 0)
    else:
        assert (answer.status_code, "4096 bytes" in answer.json()["error"]) == (413, True)
        assert body.bytes_read == (SMALL_BODY + 1 if name == "chunked" else 0)
