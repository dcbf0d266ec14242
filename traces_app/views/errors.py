"""/errors/: failed calls, grouped by their errors."""

from __future__ import annotations

from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request

from access_app.masked_reading import mask_of
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.responses import answer
from messages_app.sql.pagination import page_request
from traces_app.queries.error_groups import answer_of, error_groups
from traces_app.queries.filters import ErrorFilterSet
from traces_app.queries.schemas.errors import ErrorGroups

from .parameters import named_session, readable_by
from .viewset import TraceViewSet

_EXAMPLE = OpenApiExample(
    "Timeouts of an hour",
    value={
        "results": [
            {
                "id": "7d2f0b1f4e9b5a6c8d3e2f1a0b9c8d7e",
                "pattern": "timeout after # s, request #",
                "call_count": 3,
                "first_seen_at": "2026-03-01T12:00:00.000000Z",
                "last_seen_at": "2026-03-01T12:40:00.000000Z",
                "tools": [{"name": "search", "project": "default", "call_count": 3}],
                "tool_count": 1,
                "last_example": {
                    "call": "019ca9a5-8000-7000-8000-5d1a7e3f2b8c",
                    "message_id": "019ca9a5-8000-7000-a000-0c4f6e8a1b3d",
                    "session_id": "019ca981-0000-7000-8000-9e7d5c3b1a2f",
                    "tool": "search",
                    "project": "default",
                    "error": "timeout after 31.5 s, request 3f2b8c0e-1111-4222-8333-944455556666",
                    "created_at": "2026-03-01T12:40:00.000000Z",
                },
                "trend": [{"begin": "2026-03-01T12:00:00.000000Z", "call_count": 3}],
                "change": "steady",
            }
        ],
        "group_count": 1,
        "call_count": 3,
        "counted_from": None,
        "trend_step": 3600,
    },
    response_only=True,
)


class ErrorViewSet(TraceViewSet):
    """Groups of equal errors."""

    @extend_schema(
        parameters=[*openapi.filters(ErrorFilterSet), openapi.LIMIT, openapi.PROJECT],
        responses={200: ErrorGroups, **openapi.errors(400, 404)},
        examples=[_EXAMPLE],
    )
    def list(self, request: Request) -> HttpResponseBase:
        """Group failed calls by their errors, without ids, numbers, long quoted values and the variable parts of paths.

        Calls of deleted messages are left out. The answer has at most `limit` groups. The newest failed calls are grouped, 20,000,
        or fewer while the patterns of many long errors are not stored yet; if the range has more, `counted_from` says since when.
        """
        readable = readable_by(request)
        filters = ErrorFilterSet(request.query_params, mask=mask_of(request), also=("limit", "project"))
        limit = page_request(request.query_params).limit
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        return answer(answer_of(error_groups(rows, filters.given.get("sort", "count"), limit)))
