"""Views of WeKnora's API: read parameters as WeKnora does, write responses as its clients decode them.

They read through the queries of the REST API and change data through the write functions that the other views use.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from msgspec import Struct
from rest_framework.request import Request

from access_app.authentication import ApiKeyAuthentication
from access_app.db import Database
from access_app.errors import InvalidInput, NotFound, TooLarge, Unavailable
from access_app.masking import masking_of
from access_app.models import Scope
from access_app.permissions import may_read, project_for_write, project_scope, require_scope
from access_app.request_database import database
from messages_app.http.responses import answer, stream_answer
from messages_app.models import Message
from messages_app.queries import FoundMessage, FoundSession, as_uuid, find_message, find_session
from messages_app.sql.pagination import MAX_LIMIT, MAX_PAGE, read_page, whole_number
from messages_app.writes import clear_session, delete_message, delete_session, delete_sessions, update_session
from traces_app.events.store import record_events
from traces_app.ingest.batch import Refusal
from traces_app.ingest.changes import change_session
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.sql import look_up_sessions
from traces_app.queries.messages import Selection, messages
from traces_app.views.outcomes import refusal_text
from traces_app.views.parameters import sender_of
from traces_app.views.viewset import TraceViewSet
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event, redact_session_patch
from tracesite_sdk.records import health_flags

from .parameters import MAX_SELECTED, MAX_SESSIONS, body_as, converted, page_in
from .reading import first_question, has_events, last_number, messages_in, messages_of, session_page, sessions
from .shapes import STOPPED, WeknoraSession
from .titles import title_from

_REASON = {"reason": "user_requested"}


class KeyBeforeBearer(ApiKeyAuthentication):
    """Prefer X-API-Key over Authorization, as WeKnora's server does when a client sends both."""

    def token_of(self, request: Request) -> str | None:
        return request.headers.get("X-API-Key", "").strip() or super().token_of(request)


class WeKnoraViewSet(TraceViewSet):
    """Base of the views, which Tracesite's own OpenAPI document leaves out."""

    authentication_classes = (KeyBeforeBearer,)
    schema = None


class MessageViewSet(WeKnoraViewSet):
    """Messages. In all views `session_id` is the id of a session or its external id."""

    def load(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return the newest messages of a session, or the newest before a time, in ascending order."""
        db = database(request)
        wanted = page_in(request.query_params)
        session = find_session(db, project_scope(request), session_id)
        if wanted is None:
            return _success(data=[])
        page = read_page(messages_in(db, session), wanted)
        if page.tie is None and len(page.ids) <= MAX_LIMIT:
            return _success(data=list(messages_of(db, page)))
        # Streamed, so that a long page is never held in memory.
        return stream_answer(b'{"success":true,"data":', messages_of(db, page), b"}")

    def destroy(self, request: Request, session_id: str, message_id: str) -> HttpResponseBase:
        db = database(request)
        session, message = _find(request, session_id, message_id)
        delete_message(db, message.pk, by=sender_of(request), session_id=session.pk)
        return _success(message="Message deleted successfully")


class _NewSession(Struct):
    title: str | None = None
    description: str | None = None


class _SessionSelection(Struct):
    ids: list[str] | None = None
    delete_all: bool | None = None


class _TitleMessage(Struct):
    role: str | None = None
    content: str | None = None


class _TitleRequest(Struct):
    messages: list[_TitleMessage]


class _StopRequest(Struct):
    message_id: str


class SessionViewSet(WeKnoraViewSet):
    def list(self, request: Request) -> HttpResponseBase:
        """Return a page of sessions: pinned ones first, then the most recently changed."""
        db = database(request)
        parameters = request.query_params
        number = whole_number(parameters, "page", 0, at_most=MAX_PAGE) or 1
        size = whole_number(parameters, "page_size", 0, at_most=MAX_SESSIONS) or 20
        found, total = session_page(db, project_scope(request), parameters, number=number, size=size)
        return _success(data=found, total=total, page=number, page_size=size)

    def create(self, request: Request) -> HttpResponseBase:
        """Create a session. Unknown fields are kept in its metadata."""
        db = database(request)
        fields = body_as(request, dict[str, Any])
        known = converted(fields, _NewSession)
        more = {name: value for name, value in fields.items() if name not in ("id", "title", "description") and value}
        record = records.Session(title=known.title, description=known.description, metadata=more or None)
        outcome = ingest(db, project_for_write(request, None).pk, [record])[0]
        return answer({"success": True, "data": _session(db, outcome.id)}, status=201)

    def retrieve(self, request: Request, session_id: str) -> HttpResponseBase:
        db = database(request)
        session = find_session(db, project_scope(request), session_id)
        return _success(data=_session(db, session.pk))

    def update(self, request: Request, session_id: str) -> HttpResponseBase:
        """Replace title and description; a missing one is emptied."""
        db = database(request)
        session = find_session(db, project_scope(request), session_id)
        new = body_as(request, _NewSession)
        change = records.SessionPatch(title=new.title, description=new.description)
        change_session(db, session.pk, redact_session_patch(change, masking_of(session.project_id)))
        return _success(data=_session(db, session.pk) if may_read(request) else {"id": str(session.pk)})

    def destroy(self, request: Request, session_id: str) -> HttpResponseBase:
        db = database(request)
        session = find_session(db, project_scope(request), session_id)
        delete_session(db, session.pk, by=sender_of(request))
        return _success(message="Session deleted successfully")

    def destroy_many(self, request: Request) -> HttpResponseBase:
        """Delete the sessions in `ids`, or all sessions of the project."""
        db = database(request)
        chosen = body_as(request, _SessionSelection)
        project = project_for_write(request, None)
        ids = None
        if not chosen.delete_all:
            if not chosen.ids:
                raise InvalidInput(_("Send the session ids in “ids”, or “delete_all”: true."), field="ids")
            if len(chosen.ids) > MAX_SELECTED:
                raise TooLarge(
                    _("The body has more than %(most)d session ids. Split it into several requests.")
                    % {"most": MAX_SELECTED},
                    field="ids",
                )
            names = [name for name in chosen.ids if name and "\x00" not in name]
            keys = [key for name in names if (key := as_uuid(name))]
            known = look_up_sessions(db, project.pk, keys, names).sessions
            ids = [
                session_id for session_id, _name, is_deleted, owner in known if owner == project.pk and not is_deleted
            ]
        if not delete_sessions(db, project.pk, ids, by=sender_of(request)) and ids is not None:
            raise NotFound(_("There is no session with this id."), code="session_not_found", field="ids")
        return _success(message=f"{'All sessions' if ids is None else 'Sessions'} deleted successfully")

    def clear(self, request: Request, session_id: str) -> HttpResponseBase:
        """Delete the messages of a session but not the session."""
        db = database(request)
        session = find_session(db, project_scope(request), session_id)
        clear_session(db, session.pk, by=sender_of(request))
        return _success(message="Session messages cleared successfully")

    def pin(self, request: Request, session_id: str) -> HttpResponseBase:
        return self._pin(request, session_id, is_pinned=True)

    def unpin(self, request: Request, session_id: str) -> HttpResponseBase:
        return self._pin(request, session_id, is_pinned=False)

    def generate_title(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return the session's title; if it has none, derive one from the first user message and store it.

        Needs the scope `read` as well as `write`, because the response shows stored text.
        """
        db = database(request)
        require_scope(request, Scope.READ)
        session = find_session(db, project_scope(request), session_id)
        given = body_as(request, _TitleRequest).messages
        title = _session(db, session.pk).title
        if not title:
            question = next(
                (message.content for message in given if message.role == Message.Role.USER and message.content), None
            )
            title = title_from(question or first_question(db, session.pk))
            if not title:
                raise InvalidInput(_("The session has no user message to generate a title from."), field="messages")
            change_session(
                db,
                session.pk,
                redact_session_patch(records.SessionPatch(title=title), masking_of(session.project_id)),
            )
            title = _session(db, session.pk).title
        return _success(data=title)

    def stop(self, request: Request, session_id: str) -> HttpResponseBase:
        """Mark an unfinished answer as stopped. The part received so far is kept."""
        db = database(request)
        message_id = body_as(request, _StopRequest).message_id
        session, message = _find(request, session_id, message_id)
        found = messages(db, [str(message.pk)], Selection(fields=frozenset({"role", "is_completed"})))
        if found and found[0].is_completed:
            return _success(message="Message already completed")
        by = sender_of(request)
        if not found:
            refused: Refusal | None = "message_purged"
        elif has_events(db, session.pk, message.pk):
            refused = _stop_by_event(db, session, message, by)
        else:
            refused = _stop_by_record(db, session, message, found[0].role, by)
        if refused:
            raise NotFound(refusal_text(refused), code=refused)
        return _success(message="Generation stopped")

    def continue_stream(self, request: Request, session_id: str) -> HttpResponseBase:
        """Refuse with 503: only the live part streams, because here a stream would hold a thread until its end."""
        db = database(request)
        find_session(db, project_scope(request), session_id)
        raise Unavailable(
            _("Streams are served by the live server (serve --live). Route this URL to it in the proxy."),
            code="live_elsewhere",
        )

    def _pin(self, request: Request, session_id: str, *, is_pinned: bool) -> HttpResponseBase:
        db = database(request)
        session = find_session(db, project_scope(request), session_id)
        update_session(db, session.pk, {"pinned_at": timezone.now() if is_pinned else None})
        return _success(is_pinned=is_pinned)


def _success(**fields: Any) -> HttpResponseBase:
    return answer({"success": True, **fields})


def _session(db: Database, session_id: UUID | None) -> WeknoraSession:
    """Read a session. Raises NotFound if it was removed meanwhile."""
    found = sessions(db, [str(session_id)])
    if not found:
        raise NotFound(_("There is no session with this id."), code="session_not_found")
    return found[0]


def _find(request: Request, session_id: str, message_id: str) -> tuple[FoundSession, FoundMessage]:
    db = database(request)
    scope = project_scope(request)
    session = find_session(db, scope, session_id)
    return session, find_message(db, scope, message_id, session)


def _stop_by_event(db: Database, session: FoundSession, message: FoundMessage, by: str) -> Refusal | None:
    """End a run made of events with an event, which all viewers receive. The producer's own end event may follow."""
    last = last_number(db, session.pk, message.pk)
    event = records.Event(
        session_id=str(session.pk),
        message_id=str(message.pk),
        id=f"stop:{message.pk}",
        type="workflow_execute_complete",
        # After the producer's numbers; without numbers the order of arrival puts it last.
        number=None if last is None else min(last + 1, 2**63 - 1),
        data={"status": "aborted", "by": by, **_REASON},
    )
    (outcome,) = record_events(db, session.project_id, [redact_event(event, masking_of(session.project_id))])
    return outcome.refused


def _stop_by_record(
    db: Database, session: FoundSession, message: FoundMessage, role: records.Role, by: str
) -> Refusal | None:
    record = records.Message(
        id=str(message.pk),
        role=role,
        is_completed=True,
        health=[health_flags.STOPPED],
        metadata={STOPPED: {"by": by, **_REASON}},
    )
    (outcome,) = ingest(db, session.project_id, [records.Session(id=str(session.pk), messages=[record])])
    return outcome.refused or outcome.messages[0].refused
