"""The body of a request, bounded, and of a media type that is understood."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import TooLarge, UnsupportedMediaType

JSON = "application/json"
NDJSON = "application/x-ndjson"

_BLOCK = 1024 * 1024


def read_body(request: Request, accepted: Collection[str] = (JSON,)) -> tuple[str, bytes]:
    """The media type, which is one of `accepted`, and the bytes.

    Raises UnsupportedMediaType, and TooLarge for more than settings.MAX_BODY_BYTES: where the length is announced
    before anything is read.
    """
    http_request = request._request
    media_type = http_request.content_type or ""
    if media_type not in accepted:
        raise UnsupportedMediaType(
            _("Send the body with the header Content-Type: %(accepted)s.") % {"accepted": _(" or ").join(accepted)},
            field="Content-Type",
        )
    charset = (http_request.content_params or {}).get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType(_("Send the body in UTF-8."), field="Content-Type")
    if http_request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType(_("Send the body without Content-Encoding."), field="Content-Encoding")
    if "chunked" in http_request.headers.get("Transfer-Encoding", "").lower():
        return media_type, _read_chunked(request)
    try:
        announced = int(http_request.META.get("CONTENT_LENGTH") or 0)
        if announced > settings.MAX_BODY_BYTES:
            raise _too_large()
        return media_type, http_request.body
    except RequestDataTooBig as error:
        raise _too_large() from error


def _read_chunked(request: Request) -> bytes:
    """A body that announces no length; Django would take it for empty."""
    stream = request._request.META["wsgi.input"]
    blocks: list[bytes] = []
    size = 0
    while block := stream.read(_BLOCK):
        size += len(block)
        if size > settings.MAX_BODY_BYTES:
            raise _too_large()
        blocks.append(block)
    return b"".join(blocks)


def _too_large() -> TooLarge:
    return TooLarge(
        _("The body is larger than the %(most)d bytes that are accepted; send less at once.")
        % {"most": settings.MAX_BODY_BYTES}
    )
