"""/search/: the messages that have the terms of a search, and where."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.responses import answer
from messages_app.models import Message
from messages_app.sql.pagination import page_request
from messages_app.timestamps import instant_text
from traces_app.queries import schemas
from traces_app.queries.filters import MessageFilterSet
from traces_app.queries.search.found import Hit
from traces_app.queries.search.pages import FoundPage, found_page, indexed_until
from traces_app.queries.search.places import api_path, page_path

from .parameters import query_in, requested_scope, search_parameter, session_in
from .viewset import TraceViewSet


class SearchViewSet(TraceViewSet):
    """Full-text search over messages and everything below them."""

    @extend_schema(
        parameters=[
            search_parameter(required=True),
            *openapi.filters(MessageFilterSet),
            *openapi.PAGE,
            openapi.PROJECT,
        ],
        responses={200: schemas.SearchPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """Find messages by what they, their steps, calls, results and references say; newest first."""
        parameters = request.query_params
        scope = requested_scope(request)
        page = page_request(parameters)
        filters = MessageFilterSet(parameters, also=("q", "limit", "cursor", "order", "project"))
        query = query_in(request)
        if query is None:
            raise InvalidInput(_("Give the terms to search for."), field="q")
        until = indexed_until()
        found = found_page(filters.found(scope, session_in(request, scope)), query, "message", page)
        return answer(
            schemas.SearchPage(
                results=_results(request, found),
                next=found.page.next,
                previous=found.page.previous,
                searched_to=None if found.searched_to is None else instant_text(found.searched_to),
                indexed_until=None if until is None else instant_text(until),
            )
        )


def _results(request: Request, found: FoundPage) -> list[schemas.SearchResult]:
    messages = Message.with_deleted.select_related("project").only("session_id", "role", "created_at", "project__slug")
    rows = messages.in_bulk(found.page.ids)
    return [
        schemas.SearchResult(
            message_id=str(message_id),
            session_id=str(rows[message_id].session_id),
            project=rows[message_id].project.slug,
            role=rows[message_id].role,
            created_at=instant_text(rows[message_id].created_at),
            hits=[found_place(request, hit) for hit in found.hits[message_id]],
        )
        for message_id in found.page.ids
        if message_id in rows
    ]


def found_place(request: Request, hit: Hit) -> schemas.SearchHit:
    """Return a hit with its addresses."""
    return schemas.SearchHit(
        kind=hit.kind.name.lower(),
        id=str(hit.row_id),
        message_id=str(hit.message_id),
        url=request.build_absolute_uri(api_path(hit)),
        page=request.build_absolute_uri(page_path(hit)),
        field=hit.field,
        before=hit.before,
        match=hit.match,
        after=hit.after,
    )
