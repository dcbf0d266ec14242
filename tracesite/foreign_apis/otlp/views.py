"""The three signals of OTLP/HTTP: traces and logs are stored, metrics are counted."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.http import HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from google.rpc.status_pb2 import Status
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import ApiView
from messages_app.http.request_body import JSON, PROTOBUF, media_type_of, read_body
from traces_app.ingest.metrics import Signal, count_otlp
from traces_app.spans.deliveries import SpanOutcome, record_spans
from tracesite.foreign_apis.authentication import AnyHeaderAuthentication
from tracesite_sdk.spans import otlp_json
from tracesite_sdk.spans.span import InvalidBody

from . import protobuf as otlp_protobuf
from .errors import rpc_code

_CODECS: dict[str, Any] = {PROTOBUF: otlp_protobuf, JSON: otlp_json}


class OtlpView(ApiView):
    """The base of the three: a response has the content type of its request."""

    authentication_classes = (AnyHeaderAuthentication,)
    schema = None
    signal: ClassVar[Signal]

    def post(self, request: Request) -> HttpResponseBase:
        media_type, body = read_body(request, (PROTOBUF, JSON))
        codec = _CODECS[media_type]
        try:
            answer = self.store(request, codec, body)
        except InvalidBody as error:
            raise InvalidInput(
                _("The body is not an OTLP request of %(signal)s: %(reason)s")
                % {"signal": self.signal, "reason": error},
                code="invalid_otlp",
            ) from error
        return HttpResponse(answer, content_type=media_type)

    def store(self, request: Request, codec: Any, body: bytes) -> bytes:
        """Store the body and return the answer."""
        raise NotImplementedError

    def handle_exception(self, exc: Exception) -> Any:
        """Return an error as google.rpc.Status in protobuf to a client that sent protobuf."""
        answer = super().handle_exception(exc)
        if media_type_of(self.request)[0] == PROTOBUF and answer.headers.get("Content-Type", "").startswith(JSON):
            return _in_protobuf(answer)
        return answer


def _in_protobuf(answer: Any) -> HttpResponse:
    body = json.loads(answer.content)
    status = Status(code=rpc_code(answer.status_code), message=body.get("message", ""))
    converted = HttpResponse(status.SerializeToString(), status=answer.status_code, content_type=PROTOBUF)
    for name in ("Retry-After", "WWW-Authenticate", "Accept-Encoding"):
        if name in answer.headers:
            converted.headers[name] = answer.headers[name]
    return converted


class TracesView(OtlpView):
    signal: ClassVar[Signal] = "traces"

    def store(self, request: Request, codec: Any, body: bytes) -> bytes:
        db = database(request)
        project = project_for_write(request, None)
        outcome = SpanOutcome()
        spans = codec.decode_traces(body, outcome.refuse)
        record_spans(db, project.pk, spans, outcome=outcome)
        count_otlp(self.signal, accepted=outcome.accepted, refused=outcome.refused)
        return codec.trace_answer(outcome.refused, _reason(outcome))  # type: ignore[no-any-return]


class LogsView(OtlpView):
    signal: ClassVar[Signal] = "logs"

    def store(self, request: Request, codec: Any, body: bytes) -> bytes:
        db = database(request)
        project = project_for_write(request, None)
        outcome = SpanOutcome()
        logs = codec.decode_logs(body, outcome.refuse)
        record_spans(db, project.pk, (), logs, outcome=outcome)
        count_otlp(self.signal, accepted=outcome.accepted, refused=outcome.refused)
        return codec.log_answer(outcome.refused, _reason(outcome))  # type: ignore[no-any-return]


class MetricsView(OtlpView):
    signal: ClassVar[Signal] = "metrics"

    def store(self, request: Request, codec: Any, body: bytes) -> bytes:
        project_for_write(request, None)
        count_otlp(self.signal, accepted=codec.count_metrics(body), refused=0)
        return codec.metric_answer()  # type: ignore[no-any-return]


def _reason(outcome: SpanOutcome) -> str:
    return " ".join(outcome.reasons)
