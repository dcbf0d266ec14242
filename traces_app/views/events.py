"""/events/: store events as they happen; list the events of a session after any number."""

from __future__ import annotations

from typing import Any, get_args

from django.http import HttpResponseBase, QueryDict
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.masking import masking_of
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, NDJSON, read_body
from messages_app.http.responses import answer
from messages_app.sql.pagination import whole_number
from traces_app.events.decode import decode_events
from traces_app.events.feed import events_after
from traces_app.events.store import record_events
from traces_app.queries.archived import find_session_here
from traces_app.queries.schemas.events import EventPage
from traces_app.queries.schemas.outcomes import SentEvents
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records.event_types import EVENT_TYPES, Category, Level

from . import examples
from .outcomes import sent_events
from .parameters import requested_scope
from .viewset import TraceViewSet

MOST_EVENTS = 1000
DEFAULT_EVENTS = 100
_WORDS: dict[str, tuple[str, ...]] = {
    "type": tuple(EVENT_TYPES),
    "level": get_args(Level),
    "category": get_args(Category),
}
_LAST = 2**63 - 1


def _number(name: str, description: str, **schema: Any) -> OpenApiParameter:
    return OpenApiParameter(name=name, type={"type": "integer", **schema}, description=description)


_PARAMETERS = [
    _number("after", "Return events after this number, the last `seq` received.", minimum=0, default=0),
    _number("limit", "Maximum number of events.", minimum=1, maximum=MOST_EVENTS, default=DEFAULT_EVENTS),
    *(
        OpenApiParameter(
            name=name,
            type={"type": "array", "items": {"type": "string", "enum": list(words)}},
            explode=True,
            description=f"Only events with this {name}; repeated: with any of them.",
        )
        for name, words in _WORDS.items()
    ),
    openapi.PROJECT,
]


class EventViewSet(TraceViewSet):
    """Events of any number of sessions."""

    tag = "Send traces"

    @extend_schema(
        operation_id="send_events",
        parameters=[openapi.PROJECT],
        request=records.Events,
        responses={200: SentEvents, **openapi.errors(400, 404, 409, 413, 415)},
        examples=examples.EVENTS,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Send events while an agent works.

        They create and update steps, calls and results. They may come in any order and any number of times. Invalid data:
        400, and nothing is stored. Valid events for deleted or purged sessions and messages are listed under `refused`, and
        the rest is stored. With `Content-Type: application/x-ndjson` the body is one event a line.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        media_type, body = read_body(request, (JSON, NDJSON))
        events = decode_events(body, ndjson=media_type == NDJSON)
        del body  # may be 64 MB
        project = project_for_write(request, request.query_params.get("project"))
        rules = masking_of(project.pk)
        return answer(sent_events(record_events(db, project.pk, [redact_event(event, rules) for event in events])))


class SessionEventViewSet(TraceViewSet):
    """The events of a session."""

    tag = "Sessions"

    @extend_schema(parameters=_PARAMETERS, responses={200: EventPage, **openapi.errors(400, 404)})
    def list(self, request: Request, session_id: str) -> HttpResponseBase:
        """List the events of a session in order.

        To read later events, repeat the request with the last `seq` that you received as `after`.
        """
        db = database(request)
        parameters = request.query_params
        check_parameters(parameters, ("after", "limit", *_WORDS, "project"), repeatable=tuple(_WORDS))
        after = whole_number(parameters, "after", 0, at_least=0, at_most=_LAST)
        limit = whole_number(parameters, "limit", DEFAULT_EVENTS, at_least=1, at_most=MOST_EVENTS)
        types, levels, categories = (_words(parameters, name) for name in _WORDS)
        session = find_session_here(db, requested_scope(request), session_id)
        events = events_after(db, session.pk, after, limit, types=types, levels=levels, categories=categories)
        return answer(EventPage(results=events, next=events[-1].seq if len(events) == limit else None))


def _words(parameters: QueryDict, name: str) -> tuple[str, ...]:
    given = tuple(filter(None, parameters.getlist(name)))
    for word in given:
        if word not in _WORDS[name]:
            raise InvalidInput(_("Unknown value. Allowed: %(words)s.") % {"words": ", ".join(_WORDS[name])}, field=name)
    return given
