"""Traces and spans of the OpenAI Agents SDK become spans like those of OpenTelemetry."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.permissions import project_for_write
from access_app.rest import ApiView
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer
from traces_app.imports.span_store import record_spans
from traces_app.ingest.metrics import count_otlp
from tracesite_sdk.spans.openai_traces import decode_items
from tracesite_sdk.spans.span import InvalidBody


class TraceIngestView(ApiView):
    schema = None

    def post(self, request: Request) -> HttpResponseBase:
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
        outcome = record_spans(project.pk, spans)
        for reason in invalid:
            outcome.refuse(reason)
        count_otlp("traces", accepted=outcome.accepted, refused=outcome.refused)
        return answer({"accepted": outcome.accepted, "refused": outcome.refused, "reasons": outcome.reasons})
