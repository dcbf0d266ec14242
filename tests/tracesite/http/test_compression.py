"""Test which responses are compressed, in the encodings that a client accepts."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from backports import zstd
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.batch import SessionOutcome
from tracesite.http.compression import CompressionMiddleware, chosen_encoding

LARGE = json.dumps({"text": "all work and no play " * 100}).encode()


@pytest.fixture
def weather(project: Project) -> SessionOutcome:
    return store(project, question(), answer(content="Rain. " * 800_000))


@pytest.fixture
def client(project: Project) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read', 'write'])[1]}"})


def answered(response: HttpResponseBase, accept: str = "gzip") -> HttpResponseBase:
    """Return the response after the middleware, to a request that accepts `accept`."""
    request: HttpRequest = RequestFactory().get("/", headers={"Accept-Encoding": accept})
    return CompressionMiddleware(lambda _request: response)(request)


def body(response: HttpResponseBase) -> bytes:
    if isinstance(response, StreamingHttpResponse):
        return b"".join(response)  # type: ignore[arg-type]  # not an asynchronous one
    assert isinstance(response, HttpResponse)
    return response.content


def plain(response: HttpResponseBase) -> bytes:
    """Return the decompressed body."""
    decode = {"zstd": zstd.decompress, "gzip": gzip.decompress, "": bytes}[response.headers.get("Content-Encoding", "")]
    return decode(body(response))


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("GZIP ; Q=0.8", "gzip"),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "gzip"),
        ("br", None),
        ("gzip;q=0", None),
        ("gzip;q=0.4, identity;q=0.5", None),
        ("identity, gzip", "gzip"),
        ("gzip;q=nan", None),
        ("gzip;q=-1", None),
        ("gzip;q=", None),
        (",;,=;q,\x00", None),
    ],
)
def test_encoding_follows_the_weights_of_accept_encoding(accept: str, chosen: str | None) -> None:
    assert chosen_encoding(accept) == chosen


@pytest.mark.parametrize("accept", ["gzip", "zstd"])
def test_large_response_is_compressed_if_accepted(client: Client, weather: SessionOutcome, accept: str) -> None:
    path = f"/api/v1/messages/{weather.messages[1].id}/"
    as_it_is, compressed = client.get(path), client.get(path, headers={"Accept-Encoding": accept})

    assert len(as_it_is.content) > 4_800_000
    assert len(compressed.content) < 50_000
    assert plain(compressed) == as_it_is.content
    assert {name: compressed.headers[name] for name in ("Content-Encoding", "Content-Length", "ETag")} == {
        "Content-Encoding": accept,
        "Content-Length": str(len(compressed.content)),
        "ETag": 'W/"1"',
    }
    assert (as_it_is.headers["ETag"], "Content-Encoding" in as_it_is.headers) == ('"1"', False)
    for each in (as_it_is, compressed):
        assert "Accept-Encoding" in each.headers["Vary"]


@pytest.mark.parametrize("accept", ["gzip", "zstd"])
def test_export_is_compressed_while_streaming(client: Client, weather: SessionOutcome, accept: str) -> None:
    path = "/api/v1/sessions/weather/export/"
    as_it_is, compressed = client.get(path), client.get(path, headers={"Accept-Encoding": accept})

    assert compressed.streaming
    assert (compressed.headers["Content-Encoding"], "Content-Length" in compressed.headers) == (accept, False)
    assert plain(compressed) == body(as_it_is)


def test_etag_of_a_compressed_response_is_accepted_as_if_match(client: Client, weather: SessionOutcome) -> None:
    path = f"/api/v1/messages/{weather.messages[1].id}/"
    etag = client.get(path, headers={"Accept-Encoding": "gzip"}).headers["ETag"]

    changed = client.patch(path, {"error": "late"}, content_type="application/json", headers={"If-Match": etag})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)


def test_page_is_gzipped_with_random_padding(client: Client) -> None:
    pages = [client.get("/admin/login/", headers={"Accept-Encoding": "gzip, zstd"}) for _attempt in range(20)]
    for page in pages:
        assert (page.status_code, page.headers["Content-Encoding"]) == (200, "gzip")
        assert b"csrfmiddlewaretoken" in gzip.decompress(page.content)
        assert "Accept-Encoding" in page.headers["Vary"]
    # BREACH reads lengths: Django adds up to 100 random bytes.
    lengths = {len(page.content) for page in pages}
    assert max(lengths) - min(lengths) > 20


def test_page_guards_against_breach_are_on(client: Client, settings: Any) -> None:
    login = [client.get("/admin/login/").content for _attempt in range(2)]
    tokens = {re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page)[1] for page in login}  # type: ignore[index]
    assert len(tokens) == 2
    assert settings.SESSION_COOKIE_SAMESITE == "Lax"


def test_page_is_plain_when_browser_does_not_accept_gzip(client: Client) -> None:
    assert "Content-Encoding" not in client.get("/admin/login/", headers={"Accept-Encoding": "br"}).headers


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"{}", {}),
        (LARGE, {"Content-Type": "text/html"}),
        (LARGE, {"Content-Type": "text/event-stream"}),
        (LARGE, {"Content-Encoding": "br"}),
        (LARGE, {"Content-Encoding": "identity"}),
    ],
)
def test_small_encoded_or_other_responses_are_not_compressed(content: bytes, headers: dict[str, str]) -> None:
    before = {"Content-Type": "application/json", **headers}
    response = answered(HttpResponse(content, headers=before))
    assert (body(response), dict(response.headers)) == (content, before)


def test_partial_response_is_not_compressed() -> None:
    response = answered(HttpResponse(LARGE, status=206, content_type="application/json"))
    assert body(response) == LARGE


def test_stream_is_forwarded_before_it_ends() -> None:
    noise = zlib.compress(json.dumps(list(range(300_000))).encode()).hex().encode()
    read = []

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(noise), 1000):
            read.append(start)
            yield noise[start : start + 1000]

    response = answered(StreamingHttpResponse(pieces(), content_type="application/json"))
    assert isinstance(response, StreamingHttpResponse)
    stream = iter(response)
    compressed = next(stream)
    assert len(read) * 1000 < len(noise) / 4
    compressed += b"".join(stream)
    assert gzip.decompress(compressed) == noise
