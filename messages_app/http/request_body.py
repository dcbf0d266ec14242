"""The body of a request, bounded, and of a media type that is understood."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import BinaryIO

from django.conf import settings
from django.utils.http import parse_header_parameters
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput, TooLarge, UnsupportedMediaType
from messages_app.json_values import BYTES_PER_VALUE, count_values

from .decompression import ENCODINGS, BrokenStreamError, decode

JSON = "application/json"
NDJSON = "application/x-ndjson"

_BLOCK = 1024 * 1024
_FEWEST_VALUES = 100_000
"""JSON values that any request may hold, however small the limit of bytes."""


def most_values() -> int:
    """Return how many JSON values one request may hold: those of a small body may take gigabytes once it is decoded."""
    return max(settings.MAX_BODY_BYTES // BYTES_PER_VALUE, _FEWEST_VALUES)


def read_body(request: Request, accepted: Collection[str] = (JSON,)) -> tuple[str, bytes]:
    """The media type, which is one of `accepted`, and the bytes, without the Content-Encoding that they came in.

    Raises UnsupportedMediaType, InvalidInput for a broken encoding, and TooLarge for more than settings.MAX_BODY_BYTES,
    encoded or not, which is never held in memory, or for more than `most_values` JSON values, which are never decoded.
    """
    media_type, encoding = _form(request, accepted)
    # Not `request.body`: that stays in memory with the request, until the collector of garbage comes by.
    body = b"".join(_blocks(request))
    if encoding != "identity":
        body = _decoded(body, encoding)
    most = most_values()
    if len(body) > most and count_values(body, most) > most:
        raise TooLarge(
            _("The body holds more than the %(most)d JSON values that are accepted; send less at once.")
            % {"most": most}
        )
    return media_type, body


@contextmanager
def kept_body(request: Request, accepted: Collection[str]) -> Iterator[tuple[str, BinaryIO]]:
    """What `read_body` returns, the bytes in a temporary file while they are wanted: a large body lies in no memory, but
    for one that came in a Content-Encoding. Its JSON values are not counted: it may be an archive.

    The file has no name: what is uploaded is not redacted yet, and must not outlive a process that is killed.
    """
    media_type, encoding = _form(request, accepted)
    with TemporaryFile() as file:
        if encoding == "identity":
            for block in _blocks(request):
                file.write(block)
        else:
            file.write(_decoded(b"".join(_blocks(request)), encoding))
        file.flush()
        yield media_type, file


def media_type_of(request: Request) -> tuple[str, dict[str, str]]:
    """Return the media type of the body and its parameters, as Django parses them."""
    return parse_header_parameters(request.META.get("CONTENT_TYPE", ""))


def _form(request: Request, accepted: Collection[str]) -> tuple[str, str]:
    """The media type and the encoding of a body, if both are understood."""
    media_type, parameters = media_type_of(request)
    if media_type not in accepted:
        raise UnsupportedMediaType(
            _("Send the body with the header Content-Type: %(accepted)s.") % {"accepted": _(" or ").join(accepted)},
            field="Content-Type",
        )
    if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType(_("Send the body in UTF-8."), field="Content-Type")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", *ENCODINGS):
        raise UnsupportedMediaType(
            _("Not an encoding that is understood: send the body as it is, or as %(encodings)s.")
            % {"encodings": _(" or ").join(ENCODINGS)},
            field="Content-Encoding",
            headers={"Accept-Encoding": ", ".join(ENCODINGS)},
        )
    return media_type, encoding


def _blocks(request: Request) -> Iterator[bytes]:
    """The body in pieces: asked for all at once, the server puts it together in memory of its own first."""
    if "chunked" in request.headers.get("Transfer-Encoding", "").lower():
        # It announces no length, and Django would take it for empty.
        size = 0
        for block in _read(request.META["wsgi.input"], settings.MAX_BODY_BYTES + 1):
            size += len(block)
            yield block
        if size > settings.MAX_BODY_BYTES:
            raise _too_large()
        return
    announced = _announced(request)
    if announced > settings.MAX_BODY_BYTES:
        if announced <= 2 * settings.MAX_BODY_BYTES:
            _hear_out(request, announced)
        raise _too_large()
    size = 0
    for block in _read(request, announced):
        size += len(block)
        yield block
    if size < announced:
        # Half of a batch of NDJSON is valid, too.
        raise InvalidInput(_("The body is shorter than it was announced to be."), field="Content-Length")


def _announced(request: Request) -> int:
    try:
        return int(request.headers.get("Content-Length") or 0)
    except ValueError:  # servers refuse it; Django takes such a body for empty
        return 0


def _decoded(body: bytes, encoding: str) -> bytes:
    try:
        decoded = decode(body, encoding, settings.MAX_BODY_BYTES)
    except BrokenStreamError as error:
        raise InvalidInput(
            _("The body is no whole %(encoding)s stream; send it again, or without this header.")
            % {"encoding": encoding},
            field="Content-Encoding",
        ) from error
    if decoded is None:
        raise _too_large()
    return decoded


def _read(stream: BinaryIO | Request, most: int) -> Iterator[bytes]:
    remaining = most
    while remaining and (block := stream.read(min(remaining, _BLOCK))):
        remaining -= len(block)
        yield block


def _hear_out(request: Request, announced: int) -> None:
    """Read the body and discard it: most clients listen only when they have sent all, and would miss the response.

    Not where the client asked first.
    """
    if "Expect" not in request.headers:
        for _block in _read(request, announced):
            pass


def _too_large() -> TooLarge:
    return TooLarge(
        _("The body is larger than the %(most)d bytes that are accepted; send less at once.")
        % {"most": settings.MAX_BODY_BYTES}
    )
