"""/eko/callbacks/: store callback messages of Eko."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from rest_framework.request import Request

from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, NDJSON, read_body
from messages_app.http.responses import answer
from traces_app.eko.schemas import SentCallbacks
from traces_app.events.decode import items_of
from traces_app.views.examples import body
from traces_app.views.outcomes import event_results, refused_events
from traces_app.views.viewset import TraceViewSet

from .store import CallbackOutcome, record_callbacks

_MESSAGES: list[dict[str, Any]] = [
    {
        "taskId": "task-8",
        "agentName": "Planer",
        "type": "workflow",
        "streamDone": True,
        "workflow": {"name": "Weather"},
    },
    {"taskId": "task-8", "agentName": "Research", "nodeId": "task-8-00", "type": "agent_start"},
    {"taskId": "task-8", "agentName": "Research", "nodeId": "task-8-00", "type": "agent_result", "result": "21 °C"},
]
_EXAMPLES = [
    body("A task", {"messages": _MESSAGES}),
]


class EkoCallbackViewSet(TraceViewSet):
    """Callback messages of Eko."""

    tag = "Send traces"

    @extend_schema(
        operation_id="send_eko_callbacks",
        parameters=[openapi.PROJECT],
        request={
            JSON: {
                "type": "object",
                "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
                "required": ["messages"],
            },
        },
        responses={200: SentCallbacks, **openapi.errors(400, 404, 409, 413, 415)},
        examples=_EXAMPLES,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Send callback messages of Eko.

        Those of versions 2 to 4 and of its debugger are stored as events of their tasks. Send them unchanged and in order;
        a second delivery changes nothing. Several tasks may be mixed. Each task is a session, and `finish` does not end it.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        media_type, content = read_body(request, (JSON, NDJSON))
        messages = items_of(content, "messages", ndjson=media_type == NDJSON)
        del content
        project = project_for_write(request, request.query_params.get("project"))
        return answer(_sent_callbacks(record_callbacks(db, project.pk, messages)))


def _sent_callbacks(outcome: CallbackOutcome) -> SentCallbacks:
    return SentCallbacks(
        results=event_results(outcome.events),
        refused=refused_events(outcome.events, [f"messages[{place}]" for place in outcome.places]),
        ignored=outcome.ignored,
    )
