"""/tool-calls/: single calls with their results."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.audit.trail import note_objects
from access_app.errors import NotFound
from access_app.masked_reading import mask_of
from access_app.readable import Parts
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.visibility import ProjectScope
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer, words
from messages_app.queries import as_uuid
from messages_app.sql.pagination import page_request
from traces_app.models import ToolCall
from traces_app.queries.error_groups import answer_of, error_groups, pattern_of_call
from traces_app.queries.filters import CallFilterSet, SimilarErrorFilterSet
from traces_app.queries.messages import CALL_FIELDS, calls
from traces_app.queries.schemas.calls import Call, CallPage
from traces_app.queries.schemas.errors import ErrorGroups
from traces_app.queries.search.pages import list_page, mark_of_status

from .parameters import PAGING, SEARCH, named_session, query_in, readable_by, requested_scope
from .viewset import TraceViewSet


class CallViewSet(TraceViewSet):
    """Calls of tools. `{call_id}` is the `uuid` of a call; use the filter `call_id` for the model's id."""

    tag = "Tool calls"

    @extend_schema(
        parameters=[
            SEARCH,
            *openapi.filters(CallFilterSet),
            *openapi.PAGE,
            openapi.fields(CALL_FIELDS),
            openapi.PROJECT,
        ],
        responses={200: CallPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List tool calls with their results, newest message first.

        Combine filters to find the calls that matter, such as `tool=get_weather&status=error`.
        """
        parameters = request.query_params
        readable = readable_by(request)
        page = page_request(parameters)
        fields = words(parameters, "fields", CALL_FIELDS) or CALL_FIELDS
        filters = CallFilterSet(parameters, mask=mask_of(request), also=(*PAGING, "q"))
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        mark = mark_of_status(filters.given.get("status"))
        listed = list_page(rows, query_in(request), "call", page, mark)
        return list_answer(listed, lambda ids: rows.read(ids, lambda db, own: calls(db, own, fields)))

    @extend_schema(
        parameters=[openapi.fields(CALL_FIELDS), openapi.PROJECT],
        responses={200: Call, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, call_id: str) -> HttpResponseBase:
        """Return one tool call with its result.

        Beside the call it has the ids of its session, message and step.
        """
        db = database(request)
        check_parameters(request.query_params, ("fields", "project"))
        fields = words(request.query_params, "fields", CALL_FIELDS) or CALL_FIELDS
        answers = calls(db, [str(_find(request, call_id).pk)], fields)
        if not answers:
            raise _no_call()
        return answer(answers[0])

    @extend_schema(
        operation_id="find_similar_errors",
        tags=["Search"],
        parameters=[*openapi.filters(SimilarErrorFilterSet), openapi.LIMIT, openapi.PROJECT],
        responses={200: ErrorGroups, **openapi.errors(400, 404)},
    )
    def similar(self, request: Request, call_id: str) -> HttpResponseBase:
        """Find errors like that of a failed call.

        Returns the group of its error and the groups of its project that are like it, as `/errors/` does. The most similar
        ones come first, each with its `score`; those below 0.3 are left out.
        """
        db = database(request)
        parameters = request.query_params
        filters = SimilarErrorFilterSet(parameters, mask=mask_of(request), also=("limit", "project"))
        limit = page_request(parameters).limit
        call = _find(request, call_id)
        pattern = pattern_of_call(db, call.pk)
        if pattern is None:
            raise NotFound(_("This call has not failed."))
        scope = ProjectScope(frozenset([call.project_id]))
        rows = Parts({db: scope}).rows(lambda db, scope: filters.found(db, scope, None))
        return answer(answer_of(error_groups(rows, "count", limit, like=pattern)))


def _find(request: Request, call_id: str) -> ToolCall:
    db = database(request)
    key = as_uuid(call_id)
    rows = db.rows(ToolCall.objects).visible_to(requested_scope(request)).only("project_id")
    call = rows.filter(pk=key).first() if key else None
    if call is None:
        raise _no_call()
    note_objects(db.actor, "toolcall", [call.pk], project_id=call.project_id)
    return call


def _no_call() -> NotFound:
    return NotFound(_("There is no call with this uuid. To search by the id that the model gave, use ?call_id=."))
