"""/tools/: the tools of a project, with statistics of their calls."""

from __future__ import annotations

from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from messages_app.http import openapi
from messages_app.http.responses import list_answer
from messages_app.sql.pagination import page_request, read_page
from traces_app.queries import schemas
from traces_app.queries.filters import ToolFilterSet
from traces_app.queries.tools import tools

from .parameters import requested_scope
from .viewset import TraceViewSet


class ToolViewSet(TraceViewSet):
    """Tools. A tool is created at its first call."""

    @extend_schema(
        parameters=[*openapi.filters(ToolFilterSet), *openapi.PAGE, openapi.PROJECT],
        responses={200: schemas.ToolPage, **openapi.errors(400)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List tools with statistics of their calls, newest tool first. The times limit the calls that are counted."""
        page = page_request(request.query_params)
        filters = ToolFilterSet(request.query_params, also=("limit", "cursor", "order", "project"))
        rows = filters.found(requested_scope(request))
        return list_answer(read_page(rows, page), lambda ids: tools([int(key) for key in ids], filters.ids))
