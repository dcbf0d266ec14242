"""Parameters and errors of the OpenAPI document that all lists share. In English, like the rest of the document."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from messages_app.sql.pagination import DEFAULT_LIMIT, MAX_LIMIT, MAX_PAGE

from .filters import ListFilterSet, NamesFilter
from .schemas import A_DATE_IS_MIDNIGHT, INSTANT_OR_DATE, ErrorAnswer

MEANINGS = {
    400: "Invalid request; `field` names the invalid part. Code `too_slow`: the search was stopped; narrow it.",
    404: "Not found, deleted, or in a project that the credentials cannot access.",
    409: "The request conflicts with the current state.",
    412: "`If-Match` is not the current version of the message.",
    413: "The body, or what was asked for, is too large.",
    415: "Unsupported media type or encoding of the body.",
    428: "`If-Match` or `version` is required.",
}


def _parameter(name: str, schema: dict[str, Any], description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name=name, type=schema, description=description, **more)


LIMIT = _parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    "Results per page.",
)
PAGE = [
    LIMIT,
    _parameter("cursor", {"type": "string"}, "`next` or `previous` from a response: return that page."),
    _parameter(
        "order",
        {"type": "string", "enum": ["asc", "desc"]},
        "asc: oldest first. desc: newest first. Default: newest first; for the messages of one session "
        "the newest page, with each page oldest first.",
    ),
]
BY_TIME = [
    _parameter(
        "before_time",
        INSTANT_OR_DATE,
        "Return the newest messages before this time (exclusive), with up to nanoseconds and any offset. "
        f"{A_DATE_IS_MIDNIGHT} "
        "`created_at` of the oldest message of a page returns the previous page. Without a cursor, a "
        "page never ends between messages of equal time: it has all of them, even beyond `limit`.",
    ),
    _parameter(
        "page",
        {"type": "integer", "minimum": 0, "maximum": MAX_PAGE},
        "Page number; 1 has the oldest messages, 0 means 1. `next` and `previous` are then numbers. Slow "
        "for high numbers; cannot be combined with limit, cursor, order and before_time.",
    ),
    _parameter(
        "page_size",
        {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
        f"Messages per numbered page; 0 means {DEFAULT_LIMIT}.",
    ),
]
PROJECT = _parameter(
    "project", {"type": "string"}, "The slug of a project. Required if the credentials have access to several."
)


def fields(allowed: Collection[str]) -> OpenApiParameter:
    return _list_of_words(
        "fields",
        allowed,
        "Return only these fields, separated by commas or repeated. Other fields are left out, even if the schema requires them.",
    )


def expand(allowed: Collection[str], unless_given: Collection[str] = ()) -> OpenApiParameter:
    """Return the parameter; those `unless_given` are not nested by default."""
    default = f"all but {', '.join(unless_given)}" if unless_given else "all"
    return _list_of_words(
        "expand",
        [*allowed, "none"],
        "The parts to nest in a message, separated by commas. Results are nested in calls, and calls in "
        f"steps. Default: {default}.",
    )


def filters(filter_set: type[ListFilterSet]) -> list[OpenApiParameter]:
    return [
        _parameter(
            name,
            filter_.schema,
            str(filter_.extra.get("help_text", "")),
            explode=isinstance(filter_, NamesFilter) or None,
        )
        for name, filter_ in filter_set.base_filters.items()
    ]


def one_or_many(component: str) -> dict[str, Any]:
    one = {"$ref": f"#/components/schemas/{component}"}
    return {"oneOf": [one, {"type": "array", "items": one}]}


def errors(*statuses: int) -> dict[int, OpenApiResponse]:
    return {status: OpenApiResponse(ErrorAnswer, description=MEANINGS[status]) for status in statuses}


def _list_of_words(name: str, allowed: Collection[str], description: str) -> OpenApiParameter:
    schema = {"type": "array", "items": {"type": "string", "enum": sorted(allowed)}}
    return _parameter(name, schema, description, explode=False, style="form")
