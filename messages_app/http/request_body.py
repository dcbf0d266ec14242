"""Read the body of a request, with limits to its size and a check of its media type."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import BinaryIO

from django.http import HttpRequest
from django.utils.http import parse_header_parameters
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.conf import conf
from access_app.errors import InvalidInput, RequestTooSlow, TooLarge, UnsupportedMediaType
from tracesite_sdk.records.value_counts import BYTES_PER_VALUE, count_values

from .decompression import ENCODINGS, BrokenStreamError, decode

JSON = "application/json"
NDJSON = "application/x-ndjson"
PROTOBUF = "application/x-protobuf"

SMALL_BODY = 4096
"""Bytes of a body that is read before it is known who sends it."""

_BLOCK = 1024 * 1024
_FEWEST_VALUES = 100_000
"""JSON values that any request may hold, even with a small MAX_BODY_BYTES."""


def most_values() -> int:
    """Return the maximum number of JSON values in a request: those of a small body may take gigabytes once decoded."""
    return max(conf.MAX_BODY_BYTES // BYTES_PER_VALUE, _FEWEST_VALUES)


def read_body(request: Request, accepted: Collection[str] = (JSON,), *, most: int | None = None) -> tuple[str, bytes]:
    """Return the media type, which is one of `accepted`, and the bytes with the Content-Encoding removed.

    Raise UnsupportedMediaType, InvalidInput for a broken encoding, and TooLarge for more than `most` bytes
    (conf.MAX_BODY_BYTES if it is None or larger), encoded or not, which are never held in memory, or for more than
    `most_values` JSON values, which are never decoded. Those of protobuf are for its decoder to count. Raise RequestTooSlow for a
    body that the server no longer waits for.
    """
    media_type, encoding = _media_type_and_encoding(request, accepted)
    limit = conf.MAX_BODY_BYTES if most is None else min(most, conf.MAX_BODY_BYTES)
    # Not `request.body`, which stays in memory with the request until a garbage collection.
    body = b"".join(_blocks(request, limit))
    if encoding != "identity":
        body = _decoded(body, encoding, limit)
    values = most_values()
    if media_type != PROTOBUF and len(body) > values and count_values(body, values) > values:
        raise TooLarge(
            _("The body has more than %(most)d JSON values. Split it into several requests.") % {"most": values}
        )
    return media_type, body


def read_small_body(request: Request) -> bytes:
    """Return a body of JSON for a view that does not know yet who sends it: it may hold neither memory nor a thread.

    Raise what `read_body` raises: TooLarge for more than SMALL_BODY bytes, of which no more are read, and UnsupportedMediaType
    for any Content-Encoding.
    """
    _media_type, encoding = _media_type_and_encoding(request, (JSON,))
    if encoding != "identity":
        raise UnsupportedMediaType(
            _("Send the body uncompressed."), field="Content-Encoding", headers={"Accept-Encoding": "identity"}
        )
    return b"".join(_blocks(request, SMALL_BODY))


@contextmanager
def kept_body(request: Request, accepted: Collection[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Read the body like `read_body`, but into a temporary file, which is closed on exit.

    Only a body with a Content-Encoding is held in memory. JSON values are not counted, because the body may be an archive.
    The file has no name, because it is not redacted and must not outlive a killed process.
    """
    media_type, encoding = _media_type_and_encoding(request, accepted)
    with TemporaryFile() as file:
        if encoding == "identity":
            for block in _blocks(request, conf.MAX_BODY_BYTES):
                file.write(block)
        else:
            body = b"".join(_blocks(request, conf.MAX_BODY_BYTES))
            file.write(_decoded(body, encoding, conf.MAX_BODY_BYTES))
        file.flush()
        yield media_type, file


def media_type_of(request: Request) -> tuple[str, dict[str, str]]:
    """Return the media type of the body and its parameters, as Django parses them."""
    return parse_header_parameters(request.META.get("CONTENT_TYPE", ""))


def _media_type_and_encoding(request: Request, accepted: Collection[str]) -> tuple[str, str]:
    media_type, parameters = media_type_of(request)
    if media_type not in accepted:
        raise UnsupportedMediaType(
            _("Unsupported media type. Send the body as Content-Type: %(accepted)s.")
            % {"accepted": _(" or ").join(accepted)},
            field="Content-Type",
        )
    if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType(_("Send the body in UTF-8."), field="Content-Type")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", *ENCODINGS):
        raise UnsupportedMediaType(
            _("Unsupported encoding. Send the body uncompressed, or as %(encodings)s.")
            % {"encodings": _(" or ").join(ENCODINGS)},
            field="Content-Encoding",
            headers={"Accept-Encoding": ", ".join(ENCODINGS)},
        )
    return media_type, encoding


def _blocks(request: Request, limit: int) -> Iterator[bytes]:
    """Yield the body in blocks, because for a single read the server would first hold all of it in memory.

    Raise TooLarge for more than `limit` bytes, RequestTooSlow, and InvalidInput for a body that is cut off, because half of an
    NDJSON batch is valid, too.
    """
    stream: BinaryIO | Request
    is_chunked = "chunked" in request.headers.get("Transfer-Encoding", "").lower()
    if is_chunked:
        # Without a Content-Length Django treats the body as empty.
        stream, most = request.META["wsgi.input"], limit + 1
        cut_off = InvalidInput(_("The body ends before its last chunk."), field="Transfer-Encoding")
    else:
        stream, most = request, refuse_too_large(request, limit)
        cut_off = InvalidInput(_("The body is shorter than its Content-Length."), field="Content-Length")
    size = 0
    try:
        for block in _read(stream, most):
            size += len(block)
            yield block
    except OSError as error:
        # Django's UnreadablePostError has the server's error as its cause.
        raise _too_slow() if isinstance(error.__cause__ or error, TimeoutError) else cut_off from error
    if size < most and not is_chunked:  # a server that does not raise
        raise cut_off
    if size > limit:
        raise _too_large(limit)


def refuse_too_large(request: Request | HttpRequest, limit: int) -> int:
    """Return the Content-Length of a request. Raise TooLarge if it is above the limit."""
    length = _content_length(request)
    if length > limit:
        # Most clients read the response only after they have sent the body. One with `Expect` asks first. A body that is much
        # too large is not waited for: where the limit is low, anybody may send it.
        if length <= 2 * limit and "Expect" not in request.headers:
            with suppress(OSError):  # too slow or cut off, but above all too large
                for _block in _read(request, length):
                    pass
        raise _too_large(limit)
    return length


def _content_length(request: Request | HttpRequest) -> int:
    try:
        return int(request.headers.get("Content-Length") or 0)
    except ValueError:  # servers reject it; Django treats such a body as empty
        return 0


def _decoded(body: bytes, encoding: str, limit: int) -> bytes:
    try:
        decoded = decode(body, encoding, limit)
    except BrokenStreamError as error:
        raise InvalidInput(
            _("The body is not a complete %(encoding)s stream. Send it again, or uncompressed without this header.")
            % {"encoding": encoding},
            field="Content-Encoding",
        ) from error
    if decoded is None:
        raise _too_large(limit)
    return decoded


def _read(stream: BinaryIO | Request | HttpRequest, most: int) -> Iterator[bytes]:
    remaining = most
    while remaining and (block := stream.read(min(remaining, _BLOCK))):
        remaining -= len(block)
        yield block


def _too_slow() -> RequestTooSlow:
    return RequestTooSlow(
        _("The body arrived too slowly. Send it again in smaller requests, or over a faster connection.")
    )


def _too_large(limit: int) -> TooLarge:
    if limit < conf.MAX_BODY_BYTES:
        return TooLarge(
            _("The body is larger than %(most)d bytes, which is the most for this request.") % {"most": limit}
        )
    return TooLarge(_("The body is larger than %(most)d bytes. Split it into several requests.") % {"most": limit})
