"""/sessions/{id}/contexts/: the contexts that events refer to by `contextRef`. Read only."""

from __future__ import annotations

from functools import partial

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from access_app.errors import InvalidInput, NotFound
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer
from messages_app.queries import FoundSession
from messages_app.sql.pagination import page_request, read_page, whole_number
from traces_app.queries.archived import find_session_here
from traces_app.queries.contexts import (
    FoundContext,
    contexts,
    contexts_of,
    conversation,
    find_context,
    variables,
    whole_context,
)
from traces_app.queries.schemas.contexts import ContextPage, Conversation, Variables, WholeContext

from .parameters import requested_scope
from .viewset import TraceViewSet

_MOST_ENTRIES = 2**31 - 1


class ContextViewSet(TraceViewSet):
    """Prompts, conversations, variables and large values. `{ref}` is the `contextRef` of events."""

    tag = "Contexts"

    @extend_schema(
        parameters=[*openapi.PAGE, openapi.PROJECT],
        responses={200: ContextPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request, session_id: str) -> HttpResponseBase:
        """List the contexts of a session, newest run first.

        Each has its kind and size, but no content. A content that several runs use is listed once for each of them.
        """
        db = database(request)
        check_parameters(request.query_params, ("limit", "cursor", "order", "project"))
        page = page_request(request.query_params)
        session = find_session_here(db, requested_scope(request), session_id)
        return list_answer(read_page(contexts_of(db, session.pk), page), partial(contexts, db))

    @extend_schema(
        parameters=[openapi.PROJECT],
        responses={200: WholeContext, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, session_id: str, ref: str) -> HttpResponseBase:
        """Return one context with its whole content.

        Which of the optional fields holds the content depends on its `kind`.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session, found = _found(request, session_id, ref)
        return answer(whole_context(db, found, ref, session))

    @extend_schema(
        operation_id="get_conversation",
        parameters=[
            OpenApiParameter(
                name="last",
                type={"type": "integer", "minimum": 1, "maximum": _MOST_ENTRIES},
                description="Return only this many of the last entries.",
            ),
            openapi.PROJECT,
        ],
        responses={200: Conversation, **openapi.errors(400, 404)},
    )
    def conversation(self, request: Request, session_id: str, ref: str) -> HttpResponseBase:
        """Return the entries of a conversation, in order.

        400 `no_conversation`: the context has no conversation.
        """
        db = database(request)
        check_parameters(request.query_params, ("last", "project"))
        last = whole_number(request.query_params, "last", None, at_least=1, at_most=_MOST_ENTRIES)
        session, found = _found(request, session_id, ref)
        if not found.has_conversation:
            raise InvalidInput(
                _("This context has no conversation. Its kind is “%(kind)s”.") % {"kind": found.kind},
                code="no_conversation",
                field="ref",
            )
        return answer(Conversation(ref=ref, length=found.length, entries=conversation(db, found, session, last)))

    @extend_schema(
        operation_id="get_variables",
        parameters=[
            OpenApiParameter(
                name="keys",
                type={"type": "array", "items": {"type": "string"}},
                explode=False,
                style="form",
                description="Return only these variables, separated by commas. Missing ones are left out.",
            ),
            openapi.PROJECT,
        ],
        responses={200: Variables, **openapi.errors(400, 404)},
    )
    def variables(self, request: Request, session_id: str, ref: str) -> HttpResponseBase:
        """Return the variables of a context by their names.

        400 `no_variables`: the context has no variables.
        """
        db = database(request)
        check_parameters(request.query_params, ("keys", "project"))
        session, found = _found(request, session_id, ref)
        if not found.has_variables:
            raise InvalidInput(
                _("This context has no variables. Its kind is “%(kind)s”.") % {"kind": found.kind},
                code="no_variables",
                field="ref",
            )
        keys = ",".join(request.query_params.getlist("keys"))
        return answer(Variables(ref=ref, variables=variables(db, found, session, keys.split(",") if keys else None)))


def _found(request: Request, session_id: str, ref: str) -> tuple[FoundSession, FoundContext]:
    db = database(request)
    session = find_session_here(db, requested_scope(request), session_id)
    found = find_context(db, session.pk, ref)
    if found is None:
        raise NotFound(_("The session has no context with this reference."), code="context_not_found", field="ref")
    return session, found
