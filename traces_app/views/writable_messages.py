"""/messages/ and /sessions/{session_id}/messages/: create, change, delete and restore messages."""

from __future__ import annotations

import re

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from msgspec import UNSET
from rest_framework import status
from rest_framework.request import Request
from rest_framework.reverse import reverse

from access_app.errors import Conflict, InvalidInput, NotFound, PreconditionRequired
from access_app.masking import masking_of
from access_app.permissions import may_read
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, read_body
from messages_app.http.responses import answer, no_content
from messages_app.writes import delete_message, restore_message
from traces_app.ingest.changes import change_message
from traces_app.ingest.decode import decode_message_patch, decode_messages
from traces_app.ingest.pipeline import ingest
from traces_app.queries.archived import find_session_here
from traces_app.queries.messages import EVERYTHING, Selection
from traces_app.queries.schemas.messages import Message
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch

from . import examples
from .messages import ETAG, MessageViewSet, message_answer
from .outcomes import refusal_text, sent_messages
from .parameters import requested_message, requested_scope, sender_of

_IDENTITY = Selection(fields=frozenset({"id", "session_id", "external_id", "version"}))
_LIST_OR_ONE = {"oneOf": [{"$ref": "#/components/schemas/SentMessages"}, {"$ref": "#/components/schemas/Message"}]}
_IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description='The ETag of the message as read, with its quotes, such as "3".',
)


class WritableMessageViewSet(MessageViewSet):
    """Messages that can be read and written."""

    @extend_schema(
        parameters=[openapi.PROJECT],
        request={JSON: openapi.one_or_many("MessageInput")},
        responses={
            200: OpenApiResponse(
                _LIST_OR_ONE,
                description="The outcome of a list of messages, or the single message if it already existed.",
            ),
            201: OpenApiResponse(Message, description="The created message."),
            **openapi.errors(400, 404, 409, 413, 415),
        },
        examples=examples.MESSAGES,
    )
    def create(self, request: Request, session_id: str) -> HttpResponseBase:
        """Send one message of a session, or a list of messages.

        One message is answered with 201, or 200 if it exists already; a list with 200. A message with an existing id or
        external id is merged: new parts are added, empty values overwrite nothing.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session = find_session_here(db, requested_scope(request), session_id)
        body = read_body(request)[1]
        sent = decode_messages(body)
        outcome = ingest(db, session.project_id, [records.Session(id=str(session.pk), messages=sent)])[0]
        if outcome.refused:
            raise NotFound(refusal_text(outcome.refused), code=outcome.refused)
        if body.lstrip()[:1] == b"[":
            return answer(sent_messages(outcome.messages, ""))
        one = outcome.messages[0]
        if one.refused:
            raise Conflict(refusal_text(one.refused), code=one.refused)
        assert one.id is not None, "only refused messages have no id"
        created = one.state == "created"
        stored = message_answer(
            db, one.id, _readable(request), code=status.HTTP_201_CREATED if created else status.HTTP_200_OK
        )
        stored.headers["Location"] = reverse("tracesite:message", [one.id], request=request)
        return stored

    @extend_schema(
        parameters=[_IF_MATCH, ETAG, openapi.PROJECT],
        request=records.MessagePatch,
        responses={200: Message, **openapi.errors(400, 404, 409, 412, 413, 415, 428)},
        examples=examples.MESSAGE_CHANGE,
    )
    def partial_update(self, request: Request, message_id: str, session_id: str | None = None) -> HttpResponseBase:
        """Change the given fields of a message.

        Steps and references are merged; other fields are replaced. Send the version that you have read, as `If-Match` or as
        `version` in the body.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        message = requested_message(request, message_id, session_id)
        if_match = _version(request.headers.get("If-Match"))
        patch = decode_message_patch(read_body(request)[1])
        if if_match is None and patch.version is UNSET:
            raise PreconditionRequired(
                _("A version is required. Send “version” in the body, or the ETag in the header If-Match."),
                field="version",
            )
        redacted = redact_message_patch(normalise_patch(patch), masking_of(message.project_id))
        change_message(db, [message.project_id], message.pk, redacted, if_match=if_match)
        return message_answer(db, message.pk, _readable(request))

    @extend_schema(parameters=[openapi.PROJECT], responses={204: None, **openapi.errors(404)})
    def destroy(self, request: Request, message_id: str, session_id: str | None = None) -> HttpResponseBase:
        """Move a message with its trace to the trash.

        `restore/` brings it back until it is purged.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        message = requested_message(request, message_id, session_id)
        delete_message(db, message.pk, by=sender_of(request), session_id=message.session_id)
        return no_content()

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=None,
        responses={200: Message, **openapi.errors(404)},
    )
    def restore(self, request: Request, message_id: str, session_id: str | None = None) -> HttpResponseBase:
        """Restore a deleted message with its trace.

        A message that was deleted with its session is restored with the session.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        message = requested_message(request, message_id, session_id, deleted=True)
        restore_message(db, message.pk, session_id=message.session_id)
        return message_answer(db, message.pk, _readable(request))


def _readable(request: Request) -> Selection:
    """Return the message in the response to a write: all of it, or only the ids if the key may not read."""
    return EVERYTHING if may_read(request) else _IDENTITY


def _version(if_match: str | None) -> int | None:
    """Return the version in an If-Match header; None without one. Raise InvalidInput."""
    if if_match is None:
        return None
    match = re.fullmatch(r'(?:W/)?"([0-9]{1,9})"', if_match.strip(), re.ASCII)
    if match is None:
        raise InvalidInput(
            _('Invalid version. Send the ETag of the message unchanged, with its quotes: If-Match: "3".'),
            field="If-Match",
        )
    return int(match[1])
