"""/search/: the messages that have the terms of a search, and where."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.masked_reading import mask_of
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.responses import answer
from messages_app.models import Message
from messages_app.sql.pagination import page_request
from messages_app.timestamps import instant_text
from traces_app.queries.filters import MessageFilterSet
from traces_app.queries.schemas.search import SearchHit, SearchPage, SearchResult
from traces_app.queries.search.found import Hit
from traces_app.queries.search.pages import FoundPage, found_messages, found_page, indexed_until_in
from traces_app.queries.search.places import api_path, page_path

from .parameters import named_session, query_in, readable_by, search_parameter
from .viewset import TraceViewSet


class SearchViewSet(TraceViewSet):
    """Full-text search over messages and everything below them."""

    tag = "Search"

    @extend_schema(
        operation_id="search",
        parameters=[
            search_parameter(required=True),
            *openapi.filters(MessageFilterSet),
            *openapi.PAGE,
            openapi.PROJECT,
        ],
        responses={200: SearchPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """Search messages and everything below them, newest first.

        A message is found if it has all terms of `q` in its text, its steps, calls, results or references. `hits` has one
        place for each term.
        """
        parameters = request.query_params
        readable = readable_by(request)
        page = page_request(parameters)
        filters = MessageFilterSet(parameters, mask=mask_of(request), also=("q", "limit", "cursor", "order", "project"))
        query = query_in(request)
        if query is None:
            raise InvalidInput(_("Give the terms to search for."), field="q")
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        until = indexed_until_in(rows)
        results = found_page(rows, query, "message", page)
        return answer(
            SearchPage(
                results=_results(request, rows.read(results.page.ids, found_messages), results),
                next=results.page.next,
                previous=results.page.previous,
                searched_to=None if results.searched_to is None else instant_text(results.searched_to),
                indexed_until=None if until is None else instant_text(until),
            )
        )


def _results(request: Request, messages: Sequence[Message], results: FoundPage) -> list[SearchResult]:
    return [
        SearchResult(
            message_id=str(message.pk),
            session_id=str(message.session_id),
            project=message.project.slug,
            role=message.role,
            created_at=instant_text(message.created_at),
            hits=[found_place(request, hit) for hit in results.hits[message.pk]],
        )
        for message in messages
    ]


def found_place(request: Request, hit: Hit) -> SearchHit:
    """Return a hit with its addresses."""
    return SearchHit(
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
