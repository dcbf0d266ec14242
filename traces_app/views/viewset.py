"""What all views of traces have in common."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet


class TraceViewSet(ViewSet):
    """Answers hold what agents and people said: no cache may keep them, whatever header the credentials came in."""

    required_scope: str | None = None
    """Set by the URL where the method does not say it all; see access_app.permissions.HasScope."""

    def finalize_response(  # type: ignore[override]  # the stubs know of no streamed answers
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Cache-Control"] = "private, no-store"
        # It leads from the request to the request: with it the body would stay until the collector of garbage comes by.
        request.parser_context.clear()
        return answer

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        # DRF gives the view its own methods once more, as `get` and so on: with them it would stay too, and with it the answer.
        for method in self.action_map:
            vars(self).pop(method, None)
        return answer
