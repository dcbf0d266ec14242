"""The routes: parameters are read as WeKnora reads them, answers are written as its clients decode them.

All reading is that of the REST API, and everything is changed by writes that other parts use, too.
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
from access_app.errors import InvalidInput, NotFound, Unavailable
from access_app.models import Scope
from access_app.permissions import may_read, project_for_write, project_scope, require_scope
from messages_app.http.responses import answer, stream_answer
from messages_app.models import Message
from messages_app.queries import FoundMessage, FoundSession, as_uuid, find_message, find_session
from messages_app.sql.pagination import MAX_LIMIT, MAX_PAGE, read_page, whole_number
from messages_app.writes import clear_session, delete_message, delete_session, delete_sessions, update_session
from traces_app.events.store import record_events
from traces_app.ingest.batch import Refusal
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.sql import look_up
from traces_app.ingest.store import change_session
from traces_app.normalize.redaction import redact_event, redact_session_patch
from traces_app.queries.messages import Selection, messages
from traces_app.schema import records
from traces_app.views.outcomes import refusal_text
from traces_app.views.parameters import sender_of
from traces_app.views.viewset import TraceViewSet

from .parameters import MOST_SESSIONS, body_as, converted, page_in
from .reading import first_question, has_events, last_number, messages_in, messages_of, session_page, sessions
from .shapes import STOPPED, Session
from .titles import title_from

_REASON = {"reason": "user_requested"}


class KeyBeforeBearer(ApiKeyAuthentication):
    """Clients that send both headers mean the key: their server looks at the other one only where there is none."""

    def token_of(self, request: Request) -> str | None:
        return request.headers.get("X-API-Key", "").strip() or super().token_of(request)


class WeKnoraViewSet(TraceViewSet):
    """Views of another API than ours, which our OpenAPI document leaves out."""

    authentication_classes = (KeyBeforeBearer,)
    schema = None


class MessageViewSet(WeKnoraViewSet):
    """Messages. `session_id` is the id of a session or its external id, everywhere."""

    def load(self, request: Request, session_id: str) -> HttpResponseBase:
        """The newest messages of a session, or the newest before a time; oldest first."""
        wanted = page_in(request.query_params)
        session = find_session(project_scope(request), session_id)
        if wanted is None:
            return _success(data=[])
        page = read_page(messages_in(session), wanted)
        if page.tie is None and len(page.ids) <= MAX_LIMIT:
            return _success(data=list(messages_of(page)))
        # Written while it is read, so that it never lies in memory.
        return stream_answer(b'{"success":true,"data":', messages_of(page), b"}")

    def destroy(self, request: Request, session_id: str, message_id: str) -> HttpResponseBase:
        session, message = _find(request, session_id, message_id)
        delete_message(message.pk, by=sender_of(request), session_id=session.pk)
        return _success(message="Message deleted successfully")


class _NewSession(Struct):
    title: str | None = None
    description: str | None = None


class _Chosen(Struct):
    ids: list[str] | None = None
    delete_all: bool | None = None


class _Said(Struct):
    role: str | None = None
    content: str | None = None


class _Title(Struct):
    messages: list[_Said]


class _Stop(Struct):
    message_id: str


class SessionViewSet(WeKnoraViewSet):
    def list(self, request: Request) -> HttpResponseBase:
        """Pinned ones first, then those that changed last."""
        parameters = request.query_params
        number = whole_number(parameters, "page", 0, at_most=MAX_PAGE) or 1
        size = whole_number(parameters, "page_size", 0, at_most=MOST_SESSIONS) or 20
        found, total = session_page(project_scope(request), parameters, number=number, size=size)
        return _success(data=found, total=total, page=number, page_size=size)

    def create(self, request: Request) -> HttpResponseBase:
        """Makes a session. Fields that are not known here are kept in its metadata."""
        said = body_as(request, dict[str, Any])
        known = converted(said, _NewSession)
        more = {name: value for name, value in said.items() if name not in ("id", "title", "description") and value}
        record = records.Session(title=known.title, description=known.description, metadata=more or None)
        outcome = ingest(project_for_write(request, None).pk, [record])[0]
        return answer({"success": True, "data": _session(outcome.id)}, status=201)

    def retrieve(self, request: Request, session_id: str) -> HttpResponseBase:
        session = find_session(project_scope(request), session_id)
        return _success(data=_session(session.pk))

    def update(self, request: Request, session_id: str) -> HttpResponseBase:
        """Writes title and description: the one that is missing is emptied."""
        session = find_session(project_scope(request), session_id)
        said = body_as(request, _NewSession)
        change_session(
            session.pk, redact_session_patch(records.SessionPatch(title=said.title, description=said.description))
        )
        return _success(data=_session(session.pk) if may_read(request) else {"id": str(session.pk)})

    def destroy(self, request: Request, session_id: str) -> HttpResponseBase:
        session = find_session(project_scope(request), session_id)
        delete_session(session.pk, by=sender_of(request))
        return _success(message="Session deleted successfully")

    def destroy_many(self, request: Request) -> HttpResponseBase:
        """Deletes the sessions that are named, or all of the project."""
        chosen = body_as(request, _Chosen)
        project = project_for_write(request, None)
        ids = None
        if not chosen.delete_all:
            if not chosen.ids:
                raise InvalidInput(_("Name the sessions in “ids”, or say “delete_all”: true."), field="ids")
            names = [name for name in chosen.ids if name and "\x00" not in name]
            known = look_up(project.pk, (), [key for name in names if (key := as_uuid(name))], names).sessions
            ids = [
                session_id for session_id, _name, is_deleted, owner in known if owner == project.pk and not is_deleted
            ]
        if not delete_sessions(project.pk, ids, by=sender_of(request)) and ids is not None:
            raise NotFound(_("There is no session of this id."), code="session_not_found", field="ids")
        return _success(message=f"{'All sessions' if ids is None else 'Sessions'} deleted successfully")

    def clear(self, request: Request, session_id: str) -> HttpResponseBase:
        """Deletes the messages of a session and keeps it."""
        session = find_session(project_scope(request), session_id)
        clear_session(session.pk, by=sender_of(request))
        return _success(message="Session messages cleared successfully")

    def pin(self, request: Request, session_id: str) -> HttpResponseBase:
        return self._pin(request, session_id, is_pinned=True)

    def unpin(self, request: Request, session_id: str) -> HttpResponseBase:
        return self._pin(request, session_id, is_pinned=False)

    def generate_title(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return the title that is there, else one made of what the user said first: this reads as well as writes."""
        require_scope(request, Scope.READ)
        session = find_session(project_scope(request), session_id)
        said = body_as(request, _Title).messages
        title = _session(session.pk).title
        if not title:
            asked = next((one.content for one in said if one.role == Message.Role.USER and one.content), None)
            title = title_from(asked or first_question(session.pk))
            if not title:
                raise InvalidInput(_("No user has said anything yet that a title could be made of."), field="messages")
            change_session(session.pk, redact_session_patch(records.SessionPatch(title=title)))
            title = _session(session.pk).title
        return _success(data=title)

    def stop(self, request: Request, session_id: str) -> HttpResponseBase:
        """Ends an answer that is being made. What there is of it stays."""
        message_id = body_as(request, _Stop).message_id
        session, message = _find(request, session_id, message_id)
        found = messages([str(message.pk)], Selection(fields=frozenset({"role", "is_completed"})))
        if found and found[0].is_completed:
            return _success(message="Message already completed")
        by = sender_of(request)
        if not found:
            refused: Refusal | None = "message_purged"
        elif has_events(session.pk, message.pk):
            refused = _stop_by_event(session, message, by)
        else:
            refused = _stop_by_record(session, message, found[0].role, by)
        if refused:
            raise NotFound(refusal_text(refused), code=refused)
        return _success(message="Generation stopped")

    def continue_stream(self, request: Request, session_id: str) -> HttpResponseBase:
        """Where the live part is elsewhere: a stream would hold a thread for as long as the answer takes."""
        find_session(project_scope(request), session_id)
        raise Unavailable(
            _("Streams are served by the live part (serve --live): have the proxy send this address there."),
            code="live_elsewhere",
        )

    def _pin(self, request: Request, session_id: str, *, is_pinned: bool) -> HttpResponseBase:
        session = find_session(project_scope(request), session_id)
        update_session(session.pk, {"pinned_at": timezone.now() if is_pinned else None})
        return _success(is_pinned=is_pinned)


def _success(**fields: Any) -> HttpResponseBase:
    return answer({"success": True, **fields})


def _session(session_id: UUID | None) -> Session:
    """Raises NotFound for one that was removed meanwhile."""
    found = sessions([str(session_id)])
    if not found:
        raise NotFound(_("There is no session of this id."), code="session_not_found")
    return found[0]


def _find(request: Request, session_id: str, message_id: str) -> tuple[FoundSession, FoundMessage]:
    scope = project_scope(request)
    session = find_session(scope, session_id)
    return session, find_message(scope, message_id, session)


def _stop_by_event(session: FoundSession, message: FoundMessage, by: str) -> Refusal | None:
    """A run that is told by events ends with one, which everybody who looks is told; the producer's own may follow."""
    last = last_number(session.pk, message.pk)
    event = records.Event(
        session_id=str(session.pk),
        message_id=str(message.pk),
        id=f"stop:{message.pk}",
        type="workflow_execute_complete",
        # Behind what its producer numbered; where it numbers nothing, the order of arrival says that.
        number=None if last is None else min(last + 1, 2**63 - 1),
        data={"status": "aborted", "by": by, **_REASON},
    )
    (outcome,) = record_events(session.project_id, [redact_event(event)])
    return outcome.refused


def _stop_by_record(session: FoundSession, message: FoundMessage, role: records.Role, by: str) -> Refusal | None:
    record = records.Message(
        id=str(message.pk), role=role, is_completed=True, metadata={STOPPED: {"by": by, **_REASON}}
    )
    (outcome,) = ingest(session.project_id, [records.Session(id=str(session.pk), messages=[record])])
    return outcome.refused or outcome.messages[0].refused
