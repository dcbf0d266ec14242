"""The part of AgentOps' API beside OTLP that its SDK calls: a token for the key, and uploads.

Uploads are taken but not kept: the SDK's copy of what the process printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.http import HttpResponseBase
from django.urls import path
from django.utils.translation import gettext as _
from msgspec import Struct
from rest_framework.request import Request

from access_app.audit.trail import actor_of
from access_app.errors import InvalidInput, NotAuthenticated
from access_app.keys import admitted_key
from access_app.logins import client_address
from access_app.permissions import project_for_write
from access_app.rest import ApiView
from messages_app.http.request_body import read_body, read_small_body
from messages_app.http.responses import answer
from tracesite.http.foreign_api import ForeignApi


class TokenRequest(Struct):
    api_key: str


class TokenView(ApiView):
    """Answer with the key as the token, by which the SDK then sends its spans to /v1/traces."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def post(self, request: Request) -> HttpResponseBase:
        body = read_small_body(request)
        try:
            token = msgspec.json.decode(body, type=TokenRequest).api_key
        except (msgspec.DecodeError, ValueError) as error:
            raise InvalidInput(
                _('Send {"api_key": "ts_…"}: %(reason)s') % {"reason": error}, field="api_key"
            ) from error
        key = admitted_key(token, client_address(request), actor=actor_of(request))
        if key is None:
            raise NotAuthenticated(
                _("Invalid API key: unknown, expired or revoked. Set AGENTOPS_API_KEY to a key of Tracesite."),
                code="invalid_api_key",
            )
        return answer({"token": token, "project_id": key.project.slug, "project_prem_status": "pro"})


class UploadView(ApiView):
    schema = None

    def post(self, request: Request) -> HttpResponseBase:
        project_for_write(request, None)
        _media_type, body = read_body(request)
        return answer({"url": "", "size": len(body)})


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK reads it."""
    return {"error": f"{field}: {message}" if field else message}


AGENTOPS = ForeignApi(
    base_paths=("/v3/auth/", "/v4/"),
    routes=(
        path("v3/auth/token", TokenView.as_view()),
        path("v4/logs/upload/", UploadView.as_view()),
        path("v4/objects/upload/", UploadView.as_view()),
    ),
    error_body=error_body,
)
