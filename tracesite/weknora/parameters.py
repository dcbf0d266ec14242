"""What requests of WeKnora's clients say, read as its server reads it: leniently here, strictly there."""

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

MOST_MESSAGES = 10_000
"""Of one answer. WeKnora has no such bound, and a page that is shorter than was asked for is the last one to its clients:
so it is far beyond the pages that anybody asks for."""
MOST_SESSIONS = 1000

T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# Go's zero time, which its clients send for a time that was not set; in zones west of Greenwich it lies in the year 0.
_UNSET = re.compile(r"\s*000[01]-")


def page_in(parameters: QueryDict) -> PageRequest | None:
    """The page that `limit` and `before_time` ask for, oldest message first; None for one that holds nothing."""
    limit = _limit(parameters.get("limit", ""))
    before = _before(parameters.get("before_time", ""))
    if parameters.get("resource_urls", "handle") not in ("", "handle", "public"):
        raise InvalidInput(_("Not one of the words that are accepted: %(words)s.") % {"words": "handle, public"})
    if limit == 0:
        return None
    return PageRequest(limit=limit, order="asc", before=before, finish_ties=True)


def body_as(request: Request, type_: type[T]) -> T:
    """The body as `type_`, which passes over fields that it does not have. Raises InvalidInput and TooLarge.

    It is JSON whatever its Content-Type says: so their server takes it.
    """
    return converted(json_of(read_body(request, (JSON, media_type_of(request)[0]))[1]), type_)


def converted(value: Any, type_: type[T]) -> T:
    """Raises InvalidInput."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise invalid(str(error), "") from error


def _limit(text: str) -> int:
    """What is no whole number is the default, and what is negative no limit."""
    if not _WHOLE.fullmatch(text):
        return DEFAULT_LIMIT
    limit = int(text)
    return MOST_MESSAGES if limit < 0 else min(limit, MOST_MESSAGES)


def _before(text: str) -> datetime | None:
    if not text.strip() or _UNSET.match(text):
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidInput(
            "Invalid time format, please use RFC3339 or RFC3339Nano format", field="before_time"
        ) from error
