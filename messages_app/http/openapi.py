"""Parameters and errors of the OpenAPI document that all lists share. In English, like the rest of the document."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from messages_app.sql.pagination import DEFAULT_LIMIT, MAX_LIMIT, MAX_PAGE

from .filters import ListFilterSet, NamesFilter
from .schemas import ErrorAnswer

MEANINGS = {
    400: "The request is not valid; `field` names the wrong part. `too_slow`: its search was stopped, narrow it.",
    404: "There is no such thing, or it is deleted, or it belongs to a project that is not yours.",
    409: "The request conflicts with the current state.",
    412: "`If-Match` is not the version that the message has now.",
    413: "The body is too large.",
    415: "The body is not of a media type, or of an encoding, that is understood.",
    428: "Neither `If-Match` nor `version` names the version that is to be changed.",
}


def _parameter(name: str, schema: dict[str, Any], description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name=name, type=schema, description=description, **more)


PAGE = [
    _parameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        "How many results a page has.",
    ),
    _parameter("cursor", {"type": "string"}, "The `next` or `previous` of an answer: the page that lies there."),
    _parameter(
        "order",
        {"type": "string", "enum": ["asc", "desc"]},
        "asc: from the oldest on. desc: from the newest on. Without it a list is answered newest first; the messages of "
        "one session are read from the newest page on, each page answered oldest first.",
    ),
]
BY_TIME = [
    _parameter(
        "before_time",
        {"type": "string", "format": "date-time"},
        "The page of messages before this time (strictly), with up to nanoseconds and any offset; `created_at` of the "
        "oldest message of a page leads to the page before it. A page that is not reached by a cursor never ends "
        "between messages of equal time: it holds all of them, beyond `limit` if it must.",
    ),
    _parameter(
        "page",
        {"type": "integer", "minimum": 0, "maximum": MAX_PAGE},
        "The page by number, from 1 at the oldest message; 0 is 1. Then `next` and `previous` are numbers. Slow for "
        "high numbers; not together with limit, cursor, order and before_time.",
    ),
    _parameter(
        "page_size",
        {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
        f"How many messages a numbered page has; 0 is {DEFAULT_LIMIT}.",
    ),
]
PROJECT = _parameter(
    "project", {"type": "string"}, "The slug of a project. Needed where more than one is open to the credentials."
)


def fields(allowed: Collection[str]) -> OpenApiParameter:
    return _list_of_words(
        "fields",
        allowed,
        "Only these fields, separated by commas; the others are left out, also those that the schema requires.",
    )


def expand(allowed: Collection[str]) -> OpenApiParameter:
    return _list_of_words(
        "expand",
        [*allowed, "none"],
        "The parts that are nested in a message, separated by commas: results lie in calls, and calls in steps. "
        "Without it everything is.",
    )


def filters(filter_set: type[ListFilterSet]) -> list[OpenApiParameter]:
    return [
        _parameter(name, one.schema, str(one.extra.get("help_text", "")), explode=isinstance(one, NamesFilter) or None)
        for name, one in filter_set.base_filters.items()
    ]


def errors(*statuses: int) -> dict[int, OpenApiResponse]:
    return {status: OpenApiResponse(ErrorAnswer, description=MEANINGS[status]) for status in statuses}


def _list_of_words(name: str, allowed: Collection[str], description: str) -> OpenApiParameter:
    schema = {"type": "array", "items": {"type": "string", "enum": sorted(allowed)}}
    return _parameter(name, schema, description, explode=False, style="form")
