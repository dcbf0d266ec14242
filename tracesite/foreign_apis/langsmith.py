"""LangSmith's own protocol: its SDKs, and with them LangChain and LangGraph, send their runs here.

Runs are pieces of spans: stored, merged and shown as all spans are. Source: langchain-ai/langsmith-sdk,
python/langsmith/client.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpResponseBase
from django.urls import path
from django.utils.translation import gettext as _
from rest_framework.request import Request

from access_app.conf import conf
from access_app.errors import InvalidInput, NotFound
from access_app.masking import masking_of
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import ApiView
from messages_app.http.request_body import JSON, media_type_of, read_body
from messages_app.http.responses import answer
from traces_app.ingest.scores import change_score, store_named_scores
from traces_app.models import Score
from traces_app.spans.deliveries import record_spans
from tracesite.http.foreign_api import ForeignApi
from tracesite_sdk.normalize.redacted import redact_score_patch
from tracesite_sdk.spans import langsmith_runs
from tracesite_sdk.spans.langsmith_runs import Decoded
from tracesite_sdk.spans.pieces import InvalidItem
from tracesite_sdk.spans.span import InvalidBody

from .authentication import AnyHeaderAuthentication

PREFIXES = ("", "api/", "langsmith/")
"""The possible ends of LANGSMITH_ENDPOINT; a self-hosted LangSmith is at /api."""
MULTIPART = "multipart/form-data"
ACCEPTED = 202


class InfoView(ApiView):
    """The first request of the SDK: which endpoints there are, and how much fits into one request."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def get(self, request: Request) -> HttpResponseBase:
        return answer(
            {
                "version": "0.12.0",
                "batch_ingest_config": {
                    "use_multipart_endpoint": True,
                    "size_limit": 100,
                    "size_limit_bytes": min(conf.MAX_BODY_BYTES, 20 * 1024 * 1024),
                    "scale_up_qsize_trigger": 1000,
                    "scale_up_nthreads_limit": 4,
                    "scale_down_nempty_trigger": 4,
                },
                "instance_flags": {"zstd_compression_enabled": True},
            }
        )


class LangSmithView(ApiView):
    authentication_classes = (AnyHeaderAuthentication,)
    schema = None


class MultipartView(LangSmithView):
    def post(self, request: Request) -> HttpResponseBase:
        boundary = media_type_of(request)[1].get("boundary", "")
        return _stored(request, MULTIPART, lambda body: langsmith_runs.decode_multipart(body, boundary))


class BatchView(LangSmithView):
    def post(self, request: Request) -> HttpResponseBase:
        return _stored(request, JSON, langsmith_runs.decode_batch)


class RunsView(LangSmithView):
    def post(self, request: Request) -> HttpResponseBase:
        return _stored(request, JSON, lambda body: langsmith_runs.decode_run(body, "post"), is_single=True)


class RunView(LangSmithView):
    def patch(self, request: Request, run_id: str) -> HttpResponseBase:
        return _stored(request, JSON, lambda body: langsmith_runs.decode_run(body, "patch", run_id), is_single=True)


class FeedbackView(LangSmithView):
    def post(self, request: Request) -> HttpResponseBase:
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        try:
            score, value = langsmith_runs.decode_feedback(body)
        except (InvalidBody, InvalidItem) as error:
            raise InvalidInput(_("The body is not a feedback: %(reason)s") % {"reason": error}) from error
        store_named_scores(db, project.pk, [score])
        return answer(value)


class FeedbackChangeView(LangSmithView):
    def patch(self, request: Request, feedback_id: str) -> HttpResponseBase:
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        try:
            change, value = langsmith_runs.decode_feedback_change(body)
        except (InvalidBody, InvalidItem) as error:
            raise InvalidInput(_("The body is not a feedback: %(reason)s") % {"reason": error}) from error
        score = (
            db.rows(Score.objects).filter(project_id=project.pk, external_id=feedback_id.replace("\x00", "")).first()
        )
        if score is None:
            raise NotFound(_("There is no score with this id."), code="score_not_found")
        change_score(db, score.pk, redact_score_patch(change, masking_of(project.pk)))
        return answer({**value, "id": feedback_id})


def _stored(
    request: Request, media_type: str, decode: Callable[[bytes], Decoded], *, is_single: bool = False
) -> HttpResponseBase:
    """Store the valid runs of a request, and name the others; a single run that is refused is an error."""
    db = database(request)
    project = project_for_write(request, None)
    _media_type, body = read_body(request, (media_type,))
    try:
        decoded = decode(body)
    except InvalidBody as error:
        raise InvalidInput(
            _("The body is not a request with runs: %(reason)s") % {"reason": error}, code="invalid_runs"
        ) from error
    outcome = record_spans(db, project.pk, decoded.spans)
    store_named_scores(db, project.pk, decoded.feedback)
    errors = langsmith_runs.refused([*decoded.errors, *outcome.reasons])
    if errors and is_single:
        raise InvalidInput(" ".join(errors), code="invalid_run")
    return answer({"message": "Runs accepted", **({"errors": errors} if errors else {})}, status=ACCEPTED)


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK shows it."""
    return {"detail": f"{field}: {message}" if field else message}


LANGSMITH = ForeignApi(
    base_paths=tuple(f"/{prefix}{name}" for prefix in PREFIXES for name in ("info", "runs", "feedback")),
    routes=tuple(
        path(prefix + route, view.as_view())
        for prefix in PREFIXES
        for route, view in (
            ("info", InfoView),
            ("runs", RunsView),
            ("runs/batch", BatchView),
            ("runs/multipart", MultipartView),
            ("runs/<str:run_id>", RunView),
            ("feedback", FeedbackView),
            ("feedback/<str:feedback_id>", FeedbackChangeView),
        )
    ),
    error_body=error_body,
)
