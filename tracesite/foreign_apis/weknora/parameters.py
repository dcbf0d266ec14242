"""Parse the parameters and bodies of WeKnora's clients, as leniently or strictly as its server does."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from django.http import QueryDict
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from messages_app.http.request_body import JSON, media_type_of, read_body
from messages_app.sql.pagination import DEFAULT_LIMIT, PageRequest
from messages_app.timestamps import parse_instant
from traces_app.ingest.decode import invalid, json_of

MAX_MESSAGES = 10_000
"""Most messages of one response. WeKnora has no such limit and its clients take a page shorter than requested for the last
one, so this is far above the page sizes that clients use."""
MAX_SESSIONS = 1000
MAX_SELECTED = 10_000
"""Session ids in one request to delete them."""

T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# Go's zero time, which the client sends for an unset time; in time zones west of Greenwich it falls in the year 0.
_UNSET = re.compile(r"\s*000[01]-")


def page_in(parameters: QueryDict) -> PageRequest | None:
    """Parse `limit` and `before_time` into a page in ascending order; None for a limit of 0."""
    limit = _limit(parameters.get("limit", ""))
    before = _before(parameters.get("before_time", ""))
    if parameters.get("resource_urls", "handle") not in ("", "handle", "public"):
        raise InvalidInput(_("Invalid value. Allowed: %(words)s.") % {"words": "handle, public"})
    if limit == 0:
        return None
    return PageRequest(limit=limit, order="asc", before=before, finish_ties=True)


def body_as(request: Request, type_: type[T]) -> T:
    """Decode the body as `type_`, ignoring unknown fields. Raises InvalidInput and TooLarge.

    Any Content-Type is read as JSON, as in WeKnora's server.
    """
    return converted(json_of(read_body(request, (JSON, media_type_of(request)[0]))[1]), type_)


def converted(value: Any, type_: type[T]) -> T:
    """Convert a decoded value to `type_`. Raises InvalidInput."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise invalid(error, value, type_) from error


def _limit(text: str) -> int:
    """Parse a limit: the default for anything but an integer, the maximum for a negative one."""
    if not _WHOLE.fullmatch(text):
        return DEFAULT_LIMIT
    limit = int(text)
    return MAX_MESSAGES if limit < 0 else min(limit, MAX_MESSAGES)


def _before(text: str) -> datetime | None:
    if not text.strip() or _UNSET.match(text):
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidInput(
            "Invalid time format, please use RFC3339 or RFC3339Nano format", field="before_time"
        ) from error
