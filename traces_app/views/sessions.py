"""/sessions/: create, read, update, delete, restore and export sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, PolymorphicProxySerializer
from msgspec import UNSET, UnsetType
from rest_framework import status
from rest_framework.request import Request
from rest_framework.reverse import reverse

from access_app.errors import Conflict, InvalidInput
from access_app.masked_reading import mask_of
from access_app.masking import masking_of
from access_app.models import Role, Scope
from access_app.permissions import may_read, project_for_write, require_scope
from access_app.readable import ReadableRows
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.roles import access
from access_app.visibility import ProjectScope, visible_to
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer, list_answer, no_content, streamed, words
from messages_app.models import Session
from messages_app.queries import SESSION_FIELDS, find_message, find_session, sessions
from messages_app.sql.pagination import ListRows, page_request, read_page
from messages_app.timestamps import instant_text
from messages_app.writes import delete_session, restore_session
from traces_app.ingest.changes import change_session
from traces_app.ingest.decode import decode_session, decode_session_patch
from traces_app.ingest.pipeline import ingest
from traces_app.queries.archived import find_session_here
from traces_app.queries.filters import SessionFilterSet
from traces_app.queries.messages import messages
from traces_app.queries.schemas.sessions import (
    ArchivedPart,
    FoundSession,
    FoundSessionPage,
    SessionExport,
    SessionWithContexts,
    SessionWithSent,
    SpanExport,
)
from traces_app.queries.search.pages import FoundPage, found_page, indexed_until_in
from traces_app.queries.snapshots import beside_session
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_session_patch

from . import examples
from .outcomes import refusal_text, sent_messages
from .parameters import PAGING, SEARCH, query_in, readable_by, requested_scope, sender_of
from .search import found_place
from .session_exports import EXPORTS
from .viewset import TraceViewSet

REFS_LISTED = 20
_BESIDE = frozenset(
    {"started_at", "ended_at", "context_refs", "snapshots", "snapshot_sums", "forked_from", "archived_parts"}
)
"""Fields that are not columns of a session."""
_ONE_SESSION_FIELDS = SESSION_FIELDS | _BESIDE
_FORMAT = OpenApiParameter(
    "format",
    str,
    enum=list(EXPORTS),
    description=(
        "otlp: the spans that the session was made of; jsonl: a message a line; markdown and text: for people; "
        "openai: the messages of a chat completion. Default: tracesite."
    ),
)
_MESSAGE = OpenApiParameter(
    "message", str, description="With `format=text`: the id of the only message to be exported."
)
_IDENTITY = frozenset({"id", "project", "external_id"})
_EXPORT = PolymorphicProxySerializer(
    component_name="Export",
    serializers=[SessionExport, SpanExport],  # type: ignore[list-item]  # structs, see StructExtension
    resource_type_field_name=None,
)


class SessionViewSet(TraceViewSet):
    """Sessions. `{session_id}` is the id of a session or its external id."""

    tag = "Sessions"

    @extend_schema(
        parameters=[
            *openapi.filters(SessionFilterSet),
            *openapi.PAGE,
            openapi.fields(SESSION_FIELDS),
            openapi.PROJECT,
            SEARCH,
        ],
        responses={200: FoundSessionPage, **openapi.errors(400)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List sessions, newest first.

        With `q`, only sessions with a message that has all terms are listed, and `hits` has the places.
        """
        parameters = request.query_params
        page = page_request(parameters)
        filters = SessionFilterSet(parameters, mask=mask_of(request), also=(*PAGING, "q"))
        in_trash = bool(filters.given.get("deleted"))
        if in_trash:
            require_scope(request, Scope.DELETE)
        rows = readable_by(request, Scope.DELETE if in_trash else None).rows(filters.found)
        fields = words(parameters, "fields", SESSION_FIELDS) or SESSION_FIELDS
        query = query_in(request)
        if query is None:
            return list_answer(
                read_page(rows, page), lambda ids: rows.read(ids, lambda db, own: sessions(db, own, fields))
            )
        until = indexed_until_in(rows)
        results = found_page(rows, query, "session", page)
        return answer(
            FoundSessionPage(
                results=_found_sessions(request, rows, results, fields),
                next=results.page.next,
                previous=results.page.previous,
                searched_to=None if results.searched_to is None else instant_text(results.searched_to),
                indexed_until=None if until is None else instant_text(until),
            )
        )

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=records.Session,
        responses={
            200: OpenApiResponse(SessionWithSent, description="The session already existed and was merged."),
            201: SessionWithSent,
            **openapi.errors(400, 409, 413, 415),
        },
        examples=examples.SESSION,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Create a session, optionally with messages.

        If a session with this `external_id` exists, both are merged (200). `sent` has the outcome of each message.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        record = decode_session(read_body(request)[1])
        project = project_for_write(request, request.query_params.get("project"))
        outcome = ingest(db, project.pk, [record])[0]
        if outcome.refused:
            raise Conflict(refusal_text(outcome.refused), code=outcome.refused)
        assert outcome.id is not None, "only refused sessions have no id"
        session = _one_session(request, outcome.id, _readable_fields(request))
        body = SessionWithSent(
            **{name: getattr(session, name) for name in session.__struct_fields__},
            sent=sent_messages(outcome.messages, "messages"),
        )
        return answer(
            body,
            status=status.HTTP_201_CREATED if outcome.created else status.HTTP_200_OK,
            headers={"Location": reverse("tracesite:session", [outcome.id], request=request)},
        )

    @extend_schema(
        parameters=[openapi.fields(_ONE_SESSION_FIELDS), openapi.PROJECT],
        responses={200: SessionWithContexts, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return one session.

        Its messages are at `messages/`; its counters, duration, tokens and cost are sums over them.
        """
        db = database(request)
        check_parameters(request.query_params, ("fields", "project"))
        fields = words(request.query_params, "fields", _ONE_SESSION_FIELDS) or _ONE_SESSION_FIELDS
        return answer(_one_session(request, find_session_here(db, requested_scope(request), session_id).pk, fields))

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=records.SessionPatch,
        responses={200: SessionWithContexts, **openapi.errors(400, 404, 413, 415)},
        examples=examples.SESSION_CHANGE,
    )
    def partial_update(self, request: Request, session_id: str) -> HttpResponseBase:
        """Change the given fields of a session.

        Omitted fields stay; null empties a field.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session = find_session_here(db, requested_scope(request), session_id)
        patch = decode_session_patch(read_body(request)[1])
        change_session(db, session.pk, redact_session_patch(patch, masking_of(session.project_id)))
        return answer(_one_session(request, session.pk, _readable_fields(request)))

    @extend_schema(parameters=[openapi.PROJECT], responses={204: None, **openapi.errors(404)})
    def destroy(self, request: Request, session_id: str) -> HttpResponseBase:
        """Move a session with all its messages to the trash.

        `restore/` brings it back until it is purged.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session = find_session_here(db, requested_scope(request), session_id)
        delete_session(db, session.pk, by=sender_of(request))
        return no_content()

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=None,
        responses={200: SessionWithContexts, **openapi.errors(404)},
    )
    def restore(self, request: Request, session_id: str) -> HttpResponseBase:
        """Restore a deleted session.

        Its messages come back, except those that were deleted on their own.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session = find_session(db, requested_scope(request), session_id, among="deleted")
        restore_session(db, session.pk)
        return answer(_one_session(request, session.pk, _readable_fields(request)))

    @extend_schema(
        parameters=[openapi.PROJECT, _FORMAT, _MESSAGE],
        responses={
            200: _EXPORT,
            (200, "application/x-ndjson"): OpenApiTypes.STR,
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "text/plain"): OpenApiTypes.STR,
            **openapi.errors(400, 404),
        },
    )
    def export(self, request: Request, session_id: str) -> HttpResponseBase:
        """Export a session with all its messages, oldest first.

        The default is one JSON document, which `POST sessions/` accepts. Other formats: the spans that it was made of, as
        an OTLP request that POST /v1/traces accepts; a message a line; Markdown, or plain text, for people; the messages of
        an OpenAI chat. `message` limits the text to one message.
        """
        db = database(request)
        check_parameters(request.query_params, ("project", "format", "message"))
        chosen = request.query_params.get("format", "tracesite")
        if chosen not in EXPORTS:
            raise InvalidInput(_("Invalid value. Allowed: %(words)s.") % {"words": ", ".join(EXPORTS)}, field="format")
        session = find_session_here(db, requested_scope(request), session_id)
        written = EXPORTS[chosen]
        pieces, name = written.pieces(db, session), f"session-{session.pk}"
        if (wanted := request.query_params.get("message")) is not None:
            if written.of_messages is None:
                raise InvalidInput(_("A single message is exported with format=text."), field="message")
            message = find_message(db, ProjectScope(frozenset([session.project_id])), wanted, session)
            pieces, name = written.of_messages(messages(db, [str(message.pk)])), f"message-{message.pk}"
        headers = {"Content-Disposition": f'attachment; filename="{name}.{written.extension}"'}
        return streamed(pieces, content_type=written.content_type, headers=headers)


def _readable_fields(request: Request) -> frozenset[str]:
    """Return the fields in the response to a write: all, or only the ids if the key may not read."""
    return _ONE_SESSION_FIELDS if may_read(request) else _IDENTITY


def _found_sessions(
    request: Request, rows: ReadableRows[ListRows], results: FoundPage, fields: frozenset[str]
) -> list[FoundSession]:
    ids = [str(session_id) for session_id in results.page.ids]
    hits = {str(session_id): some for session_id, some in results.hits.items()}
    return [
        FoundSession(
            **{name: getattr(session, name) for name in session.__struct_fields__},
            hits=[found_place(request, hit) for hit in hits[session_id]],
        )
        for session_id, session in zip(ids, rows.read(ids, lambda db, own: sessions(db, own, fields)), strict=True)
    ]


def _one_session(
    request: Request, session_id: UUID, fields: frozenset[str] = _ONE_SESSION_FIELDS
) -> SessionWithContexts:
    db = database(request)
    session = sessions(db, [str(session_id)], fields & SESSION_FIELDS)[0]
    beside = beside_session(db, session_id, REFS_LISTED) if fields & _BESIDE else None
    added: dict[str, Any] = {}
    if beside is not None:
        added = {
            "started_at": instant_text(beside.started_at),
            "ended_at": None if beside.ended_at is None else instant_text(beside.ended_at),
            "context_refs": beside.context_refs,
            "snapshots": beside.snapshots,
            "snapshot_sums": beside.sums or UNSET,
            "forked_from": beside.forked_from or UNSET,
            "archived_parts": _archived_parts(request, session_id, beside.archived_parts),
        }
    shown: dict[str, Any] = {name: added[name] if name in fields else UNSET for name in _BESIDE}
    return SessionWithContexts(**{name: getattr(session, name) for name in session.__struct_fields__}, **shown)


def _archived_parts(
    request: Request, session_id: UUID, parts: Sequence[ArchivedPart]
) -> list[ArchivedPart] | UnsetType:
    """Return the parts, with their folders for logins of owners: a path of the server or a bucket is of no use to others."""
    db = database(request)
    if not parts:
        return UNSET
    own = visible_to(db.rows(Session.with_deleted).filter(pk=session_id), access(request).scope(Role.OWNER))
    if request.auth is None and own.exists():
        return list(parts)
    return [ArchivedPart(period=part.period) for part in parts]
