"""/chains/: runs of an agent as trees of calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import NotFound
from access_app.masked_reading import mask_of
from access_app.readable import ReadableRows
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer, words
from messages_app.sql.pagination import ListRows, page_request, read_page, read_sifted_page
from traces_app.queries.chains import CHAIN_FIELDS, chain, find_chain, rooted_in, summaries
from traces_app.queries.filters import ChainFilterSet
from traces_app.queries.schemas.chains import Chain, ChainPage

from .parameters import PAGING, named_session, readable_by, requested_scope
from .viewset import TraceViewSet


class ChainViewSet(TraceViewSet):
    """Chains: assistant messages with calls. `{chain_id}` is the id of the message, or a tracker's `chain-...` id."""

    tag = "Tool calls"

    @extend_schema(
        parameters=[
            *openapi.filters(ChainFilterSet),
            *openapi.PAGE,
            openapi.fields(CHAIN_FIELDS),
            openapi.PROJECT,
        ],
        responses={200: ChainPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List chains without their calls, newest first.

        A chain is a run with at least one tool call, read as a tree. With `root_tool` a page can be short or even empty
        although `next` leads to more chains.
        """
        parameters = request.query_params
        readable = readable_by(request)
        page = page_request(parameters)
        fields = words(parameters, "fields", CHAIN_FIELDS) or CHAIN_FIELDS
        filters = ChainFilterSet(parameters, mask=mask_of(request), also=PAGING)
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        roots = filters.given.get("root_tool")
        chains = read_sifted_page(rows, page, lambda ids: _rooted(rows, ids, roots)) if roots else read_page(rows, page)
        return list_answer(chains, lambda ids: rows.read(ids, lambda db, own: summaries(db, own, fields)))

    @extend_schema(parameters=[openapi.PROJECT], responses={200: Chain, **openapi.errors(404, 409)})
    def retrieve(self, request: Request, chain_id: str) -> HttpResponseBase:
        """Return one chain with all its calls.

        `root_calls` and the `child_calls` of each call are the tree; `calls` has each call by its id.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        whole = chain(db, str(find_chain(db, requested_scope(request), chain_id).pk))
        if whole is None:
            raise NotFound(_("There is no chain with this id."), code="chain_not_found")
        return answer(whole)


def _rooted(rows: ReadableRows[ListRows], ids: Sequence[UUID], roots: Collection[str]) -> set[UUID]:
    return set().union(*rows.ask(ids, lambda db, own: rooted_in(db, own, roots)))
