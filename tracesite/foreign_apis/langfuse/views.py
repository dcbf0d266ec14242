"""Ingestion events, each answered for itself, and what an SDK asks to check its keys."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.models import Scope
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import ApiView
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer
from traces_app.ingest.scores import store_named_scores
from traces_app.spans.deliveries import SpanOutcome, record_spans
from tracesite.foreign_apis.authentication import AnyHeaderAuthentication
from tracesite_sdk.spans.langfuse_events import Item, decode_batch, decode_scores
from tracesite_sdk.spans.span import InvalidBody, LogRecord, Span

MULTI_STATUS, CREATED, ACCEPTED, BAD_REQUEST, CONFLICT = 207, 201, 202, 400, 409


class LangfuseView(ApiView):
    authentication_classes = (AnyHeaderAuthentication,)
    schema = None


class IngestionView(LangfuseView):
    def post(self, request: Request) -> HttpResponseBase:
        """Store the valid events; answer 207 with the status of each."""
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        try:
            items = decode_batch(body)
        except InvalidBody as error:
            raise InvalidInput(
                _("The body is not a batch of events: %(reason)s") % {"reason": error}, field="batch"
            ) from error
        spans = [item.delivery for item in items if isinstance(item.delivery, Span)]
        logs = [item.delivery for item in items if isinstance(item.delivery, LogRecord)]
        outcome = record_spans(db, project.pk, spans, logs)
        store_named_scores(db, project.pk, [item.score for item in items if item.score is not None])
        return answer(_statuses(items, outcome), status=MULTI_STATUS)


def _statuses(items: list[Item], outcome: SpanOutcome) -> dict[str, list[dict[str, Any]]]:
    successes: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for item in items:
        reason = outcome.refused_traces.get(item.delivery.trace_id) if item.delivery is not None else None
        if item.error is not None:
            errors.append({"id": item.id, "status": BAD_REQUEST, "message": item.error, "error": "InvalidRequestError"})
        elif reason is not None:
            message = _("Trace %(trace)s is not stored: %(reason)s.")
            about = {"trace": item.delivery.trace_id if item.delivery is not None else "", "reason": reason}
            errors.append({"id": item.id, "status": CONFLICT, "message": message % about, "error": "Conflict"})
        else:
            successes.append({"id": item.id, "status": CREATED})
    return {"successes": successes, "errors": errors}


class ScoresView(LangfuseView):
    def post(self, request: Request) -> HttpResponseBase:
        """Store one score or a list, as SDKs from version 3 on send them.

        A list is answered 202 if all of it is stored, else 207 with the number of both and the errors.
        """
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        try:
            items, is_list = decode_scores(body, timezone.now())
        except InvalidBody as error:
            raise InvalidInput(_("The body is not a score: %(reason)s") % {"reason": error}) from error
        store_named_scores(db, project.pk, [item.score for item in items if item.score is not None])
        statuses = _statuses(items, SpanOutcome())
        if is_list and not statuses["errors"]:
            return answer({"message": "Accepted"}, status=ACCEPTED)
        if is_list:
            counts = {"accepted": len(statuses["successes"]), "rejected": len(statuses["errors"])}
            return answer({**counts, "errors": statuses["errors"]}, status=MULTI_STATUS)
        if statuses["errors"]:
            raise InvalidInput(_("The body is not a score: %(reason)s") % {"reason": statuses["errors"][0]["message"]})
        return answer({"id": items[0].id})


class ProjectsView(LangfuseView):
    required_scope = Scope.WRITE  # as for what the SDK sends

    def get(self, request: Request) -> HttpResponseBase:
        """Return the one project of the key: the SDK's auth check."""
        project = project_for_write(request, None)
        about = {"id": project.slug, "name": project.name or project.slug, "metadata": {}}
        return answer({"data": [{**about, "organization": {"id": "tracesite", "name": "Tracesite"}}]})


class HealthView(ApiView):
    authentication_classes = ()
    permission_classes = ()
    schema = None

    def get(self, request: Request) -> HttpResponseBase:
        return answer({"status": "OK", "version": "3.0.0"})
