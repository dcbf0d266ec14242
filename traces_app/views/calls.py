"""/tool-calls/: single calls with their results."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from access_app.errors import NotFound
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer, words
from messages_app.queries import as_uuid
from messages_app.sql.pagination import page_request
from traces_app.models import ToolCall
from traces_app.queries import schemas
from traces_app.queries.filters import CallFilterSet
from traces_app.queries.messages import CALL_FIELDS, calls
from traces_app.queries.search.pages import list_page

from .parameters import PAGING, SEARCH, query_in, requested_scope, session_in
from .viewset import TraceViewSet


class CallViewSet(TraceViewSet):
    """Calls of tools. `{call_id}` is the `uuid` of a call; use the filter `call_id` for the model's id."""

    @extend_schema(
        parameters=[
            SEARCH,
            *openapi.filters(CallFilterSet),
            *openapi.PAGE,
            openapi.fields(CALL_FIELDS),
            openapi.PROJECT,
        ],
        responses={200: schemas.CallPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List calls with their results, newest message first."""
        parameters = request.query_params
        scope = requested_scope(request)
        page = page_request(parameters)
        fields = words(parameters, "fields", CALL_FIELDS) or CALL_FIELDS
        filters = CallFilterSet(parameters, also=(*PAGING, "q"))
        rows = filters.found(scope, session_in(request, scope))
        return list_answer(list_page(rows, query_in(request), "call", page), lambda ids: calls(ids, fields))

    @extend_schema(
        parameters=[openapi.fields(CALL_FIELDS), openapi.PROJECT],
        responses={200: schemas.Call, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, call_id: str) -> HttpResponseBase:
        """Return one call with its result."""
        check_parameters(request.query_params, ("fields", "project"))
        fields = words(request.query_params, "fields", CALL_FIELDS) or CALL_FIELDS
        key = as_uuid(call_id)
        rows = ToolCall.objects.visible_to(requested_scope(request))
        found = calls([str(key)], fields) if key and rows.filter(pk=key).exists() else []
        if not found:
            raise NotFound(
                _("There is no call with this uuid. To search by the id that the model gave, use ?call_id=.")
            )
        return answer(found[0])
