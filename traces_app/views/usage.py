"""/usage/: what models were used for how much, by model, user or day."""

from __future__ import annotations

from django.http import HttpResponseBase
from rest_framework.request import Request

from access_app.masked_reading import mask_of
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.responses import answer
from messages_app.sql.pagination import page_request
from traces_app.queries.filters import UsageFilterSet
from traces_app.queries.schemas.usage import Usage
from traces_app.queries.usage import usage

from .parameters import readable_by
from .viewset import TraceViewSet


class UsageViewSet(TraceViewSet):
    """The usage and the cost of models."""

    tag = "Statistics"

    @extend_schema(
        parameters=[*openapi.filters(UsageFilterSet), openapi.LIMIT, openapi.PROJECT],
        responses={200: Usage, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request) -> HttpResponseBase:
        """Return the requests to models with their tokens and cost, by model, user or day.

        Deleted messages are left out. The answer has at most `limit` groups, and the total of all. It counts all steps of
        the period, so give one where there are many.
        """
        filters = UsageFilterSet(request.query_params, mask=mask_of(request), also=("limit", "project"))
        limit = page_request(request.query_params).limit
        rows = readable_by(request).rows(filters.found)
        return answer(usage(rows, filters.given.get("group_by", "model"), limit))
