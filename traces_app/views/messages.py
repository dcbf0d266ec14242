"""/messages/ and /sessions/{session_id}/messages/: read messages with their traces. For writes see writable_messages.py."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from msgspec import UNSET
from msgspec.structs import replace
from rest_framework import status
from rest_framework.request import Request

from access_app.db import Database
from access_app.errors import InvalidInput, NotFound
from access_app.masked_reading import mask_of
from access_app.models import Scope
from access_app.permissions import require_scope
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.visibility import NO_PROJECTS
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer
from messages_app.queries import FoundSession
from messages_app.sql.pagination import page_request
from traces_app.queries.archived import find_session_here_in
from traces_app.queries.filters import MessageFilterSet, SessionMessageFilterSet
from traces_app.queries.messages import EVERYTHING, EXPANDABLE, INPUTS, MESSAGE_FIELDS, Selection, messages
from traces_app.queries.schemas.messages import Message, MessagePage
from traces_app.queries.search.pages import list_page

from .parameters import (
    BY_TIME,
    SEARCH,
    named_session,
    query_in,
    readable_by,
    requested_message,
    selection_in,
)
from .viewset import TraceViewSet

_ONE_EXPANDABLE = (*EXPANDABLE, INPUTS)
_ONE = [openapi.fields(MESSAGE_FIELDS), openapi.expand(_ONE_EXPANDABLE, unless_given=(INPUTS,)), openapi.PROJECT]
ETAG = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The version of the message, in quotes.",
    response=[200],
)


class MessageViewSet(TraceViewSet):
    """Messages of one session (`session_id`: its id or external id) or of all sessions."""

    tag = "Messages"

    @extend_schema(
        parameters=[
            SEARCH,
            *openapi.filters(MessageFilterSet),
            *openapi.PAGE,
            *openapi.BY_TIME,
            *_ONE,
        ],
        responses={200: MessagePage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request, session_id: str | None = None) -> HttpResponseBase:
        """List messages with their traces.

        An assistant message is one run of an agent, with its steps, calls and results; `expand=none` leaves them out. Of
        one session: the newest page, in it the oldest message first. Of all sessions: newest first.
        """
        parameters = request.query_params
        readable = readable_by(request)
        selection = selection_in(parameters)
        page = page_request(parameters, by_time=True, newest_page_first=session_id is not None)
        filter_set = SessionMessageFilterSet if session_id else MessageFilterSet
        filters = filter_set(parameters, mask=mask_of(request), also=(*BY_TIME, "q"))
        session: FoundSession | None
        if session_id:
            session, readable = find_session_here_in(readable, session_id)
        else:
            session, readable = named_session(request, readable, among="any" if filters.in_trash else "alive")
        if filters.in_trash:
            require_scope(request, Scope.DELETE)
            deletable = readable_by(request, Scope.DELETE)
            readable = readable.map(lambda db, _scope: deletable.by_db.get(db, NO_PROJECTS))
        if page.number is not None and not readable.is_one:
            raise InvalidInput(
                _("“project” is required: your projects are in several databases, whose pages have no numbers."),
                field="project",
            )
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        listed = list_page(rows, query_in(request), "message", page)
        return list_answer(listed, lambda ids: rows.read(ids, lambda db, own: messages(db, own, selection)))

    @extend_schema(parameters=[*_ONE, ETAG], responses={200: Message, **openapi.errors(400, 404)})
    def retrieve(self, request: Request, message_id: str, session_id: str | None = None) -> HttpResponseBase:
        """Return one message with its trace.

        The header `ETag` is its version, which a change has to name.
        """
        db = database(request)
        check_parameters(request.query_params, ("fields", "expand", "project"))
        selection = selection_in(request.query_params, _ONE_EXPANDABLE)
        message = requested_message(request, message_id, session_id)
        return message_answer(db, message.pk, selection)


def message_answer(
    db: Database, message_id: UUID, selection: Selection = EVERYTHING, code: int = status.HTTP_200_OK
) -> HttpResponse:
    """Return the response with the selected parts of a message and its ETag. Raise NotFound."""
    answers = messages(db, [str(message_id)], Selection(fields=selection.fields | {"version"}, expand=selection.expand))
    if not answers:
        raise NotFound(_("There is no message with this id."), code="message_not_found")
    message = answers[0] if "version" in selection.fields else replace(answers[0], version=UNSET)
    return answer(message, status=code, headers={"ETag": f'"{answers[0].version}"'})
