"""/ingest/: batches of sessions with their messages and traces."""

from __future__ import annotations

from django.http import HttpResponseBase
from rest_framework.request import Request

from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, NDJSON, read_body
from messages_app.http.responses import answer
from traces_app.ingest.decode import decode_ingest
from traces_app.ingest.pipeline import ingest
from traces_app.queries.schemas.outcomes import SentSessions

from . import examples
from .outcomes import sent_sessions
from .viewset import TraceViewSet

_SESSION = {"$ref": "#/components/schemas/SessionInput"}


class IngestViewSet(TraceViewSet):
    """Sessions with their messages."""

    tag = "Send traces"

    @extend_schema(
        operation_id="ingest",
        parameters=[openapi.PROJECT],
        request={
            JSON: {
                "type": "object",
                "properties": {
                    "sessions": {
                        "type": "array",
                        "items": _SESSION,
                        "description": "Each with its `external_id`, or with the `id` of an existing session.",
                    }
                },
                "required": ["sessions"],
            },
        },
        responses={200: SentSessions, **openapi.errors(400, 404, 409, 413, 415)},
        examples=examples.INGEST,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Send sessions with their messages, steps, calls and results.

        This is the way to send whole runs, one or many at once. Sessions and messages that exist are merged. Invalid data:
        400, and nothing is stored. Valid data for deleted, purged or completed targets is listed under `refused`, and the
        rest is stored. With `Content-Type: application/x-ndjson` the body is one session a line.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        media_type, body = read_body(request, (JSON, NDJSON))
        batch = decode_ingest(body, ndjson=media_type == NDJSON)
        del body  # may be 64 MB
        project = project_for_write(request, request.query_params.get("project"))
        return answer(sent_sessions(ingest(db, project.pk, batch)))
