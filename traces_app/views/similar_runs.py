"""/messages/{message_id}/similar/: runs like a run."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import NotFound
from access_app.masked_reading import mask_of
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.visibility import ProjectScope
from messages_app.http import openapi
from messages_app.http.responses import answer
from messages_app.sql.pagination import page_request
from traces_app.queries.filters import SimilarFilterSet
from traces_app.queries.schemas.similar_runs import SimilarRuns
from traces_app.queries.similar_runs import similar_runs

from .parameters import requested_message
from .viewset import TraceViewSet


class SimilarRunViewSet(TraceViewSet):
    """Runs that are like the run `{message_id}`."""

    tag = "Search"

    @extend_schema(
        operation_id="find_similar_runs",
        parameters=[*openapi.filters(SimilarFilterSet), openapi.LIMIT, openapi.PROJECT],
        responses={200: SimilarRuns, **openapi.errors(400, 404)},
    )
    def similar(self, request: Request, message_id: str) -> HttpResponseBase:
        """Find the runs that are most like a run.

        Runs of its project are compared by question, tools and errors, or by errors only. The newest 50,000 runs of the
        range are compared. At most `limit` are returned, the most similar ones first.
        """
        db = database(request)
        parameters = request.query_params
        filters = SimilarFilterSet(parameters, mask=mask_of(request), also=("limit", "project"))
        limit = page_request(parameters).limit
        message = requested_message(request, message_id)
        rows = filters.found(db, ProjectScope(frozenset([message.project_id])))
        similar = similar_runs(
            db,
            message.pk,
            rows,
            limit,
            filters.given.get("by", "everything"),
            is_filtered="has_errors" in filters.given,
        )
        if similar is None:
            raise NotFound(_("There is no run with this id. A run is a message of the assistant."))
        return answer(similar)
