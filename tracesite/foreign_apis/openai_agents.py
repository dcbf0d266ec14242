"""The endpoint to which the OpenAI Agents SDK exports its traces. They become spans like those of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponseBase
from django.urls import path
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import ApiView
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer
from traces_app.ingest.metrics import count_otlp
from traces_app.spans.deliveries import record_spans
from tracesite.http.foreign_api import ForeignApi
from tracesite_sdk.spans.openai_traces import decode_items
from tracesite_sdk.spans.span import InvalidBody


class TraceIngestView(ApiView):
    schema = None

    def post(self, request: Request) -> HttpResponseBase:
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        try:
            spans, invalid = decode_items(body)
        except InvalidBody as error:
            raise InvalidInput(
                _('Send {"data": [{"object": "trace" or "trace.span", …}]}: %(reason)s') % {"reason": error},
                field="data",
                code="invalid_traces",
            ) from error
        outcome = record_spans(db, project.pk, spans)
        for reason in invalid:
            outcome.refuse(reason)
        count_otlp("traces", accepted=outcome.accepted, refused=outcome.refused)
        return answer({"accepted": outcome.accepted, "refused": outcome.refused, "reasons": outcome.reasons})


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as OpenAI's API does. The SDK logs it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": field, "code": code}}


OPENAI_AGENTS = ForeignApi(
    base_paths=("/v1/traces/ingest",),
    routes=(path("v1/traces/ingest", TraceIngestView.as_view()),),
    error_body=error_body,
)
