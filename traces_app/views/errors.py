"""/errors/: failed calls, grouped by their errors."""

from __future__ import annotations

from django.http import HttpResponseBase
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


class ErrorViewSet(TraceViewSet):
    """Groups of equal errors."""

    tag = "Statistics"

    @extend_schema(
        parameters=[*openapi.filters(ErrorFilterSet), openapi.LIMIT, openapi.PROJECT],
        responses={200: ErrorGroups, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List the errors of failed calls in groups.

        Errors are in one group if they differ only in ids, numbers, long quoted values and the variable parts of paths.
        Calls of deleted messages are left out. The answer has at most `limit` groups. The newest failed calls are grouped,
        20,000, or fewer while the patterns of many long errors are not stored yet; if the range has more, `counted_from`
        says since when.
        """
        readable = readable_by(request)
        filters = ErrorFilterSet(request.query_params, mask=mask_of(request), also=("limit", "project"))
        limit = page_request(request.query_params).limit
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        return answer(answer_of(error_groups(rows, filters.given.get("sort", "count"), limit)))
