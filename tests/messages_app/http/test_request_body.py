"""Reading the body of a request. Media types are tested over HTTP, in traces_app/views/test_messages.py."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest
from django.test import RequestFactory
from rest_framework.request import Request

from access_app.errors import InvalidInput, RequestTooSlow, TooLarge
from messages_app.http.request_body import JSON, read_body


def request_with(body: bytes, **environ: Any) -> tuple[Request, io.BytesIO]:
    """A request whose body comes from a stream, and the stream."""
    stream = io.BytesIO(body)
    environ = {"CONTENT_TYPE": JSON, "CONTENT_LENGTH": str(len(body)), "wsgi.input": stream, **environ}
    return Request(RequestFactory().generic("POST", "/", **environ)), stream


@pytest.fixture(autouse=True)
def limit(settings: Any) -> None:
    settings.TRACESITE_MAX_BODY_BYTES = 1000


def test_body_of_exactly_the_limit_is_read() -> None:
    request, _stream = request_with(b"x" * 1000)
    assert read_body(request) == (JSON, b"x" * 1000)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_chunked_body_is_read_to_its_end(size: int) -> None:
    request, _stream = request_with(b"x" * size, CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    assert read_body(request) == (JSON, b"x" * size)


def test_chunked_body_is_read_only_up_to_the_limit() -> None:
    request, stream = request_with(b"x" * 5000, CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        read_body(request)
    assert stream.tell() == 1001


def test_too_long_body_is_drained_before_the_response() -> None:
    request, stream = request_with(b"x" * 1001)
    with pytest.raises(TooLarge):
        read_body(request)
    assert stream.tell() == 1001


def test_body_with_expect_header_is_refused_without_reading() -> None:
    request, stream = request_with(b"x" * 1001, HTTP_EXPECT="100-continue")
    with pytest.raises(TooLarge):
        read_body(request)
    assert stream.tell() == 0


@pytest.mark.parametrize("environ", [{}, {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}])
def test_body_above_the_limit_of_its_view_is_refused(environ: dict[str, str]) -> None:
    request, _stream = request_with(b"x" * 10, **environ)
    assert read_body(request, most=10) == (JSON, b"x" * 10)
    for body, packed in ((b"x" * 11, {}), (gzip.compress(bytes(900)), {"HTTP_CONTENT_ENCODING": "gzip"})):
        request, _stream = request_with(body, **environ | packed)
        with pytest.raises(TooLarge, match="larger than 10 bytes"):
            read_body(request, most=10)
    request, _stream = request_with(gzip.compress(bytes(900)), HTTP_CONTENT_ENCODING="gzip")
    with pytest.raises(TooLarge, match="larger than 800 bytes"):
        read_body(request, most=800)


class CutOff(io.BytesIO):
    """A stream whose client leaves after the given bytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if block := super().read(size):
            return block
        raise ConnectionResetError


class TooSlow(io.BytesIO):
    """A stream whose client has sent the given bytes and then kept the server waiting."""

    def read(self, size: int | None = -1, /) -> bytes:
        if block := super().read(size):
            return block
        raise TimeoutError


WITH_LENGTH = {"CONTENT_LENGTH": "9"}
CHUNKED = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}


@pytest.mark.parametrize("environ", [WITH_LENGTH, CHUNKED])
def test_body_that_is_too_slow_is_refused(environ: dict[str, str]) -> None:
    request, _stream = request_with(b"", **{"wsgi.input": TooSlow(b"{}"), **environ})
    with pytest.raises(RequestTooSlow, match="smaller requests"):
        read_body(request)


@pytest.mark.parametrize(("environ", "field"), [(WITH_LENGTH, "Content-Length"), (CHUNKED, "Transfer-Encoding")])
def test_body_that_is_cut_off_is_refused(environ: dict[str, str], field: str) -> None:
    request, _stream = request_with(b"", **{"wsgi.input": CutOff(b"{}"), **environ})
    with pytest.raises(InvalidInput) as refused:
        read_body(request)
    assert refused.value.field == field


def test_body_shorter_than_its_length_is_refused() -> None:
    """By a server that ends a body that was cut off."""
    request, _stream = request_with(b"{}", CONTENT_LENGTH="9")
    with pytest.raises(InvalidInput, match="shorter than its Content-Length"):
        read_body(request)
