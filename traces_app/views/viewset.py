"""The base of all views of traces."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from rest_framework.request import Request

from access_app.rest import ApiViewSet


class TraceViewSet(ApiViewSet):
    """Prevents caching, because responses hold conversations, whatever header carries the credentials."""

    required_scope: str | None = None
    """Set by the URL if the method alone does not determine it; see access_app.permissions.HasScope."""

    def finalize_response(  # type: ignore[override]  # the stubs know of no streamed answers
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Cache-Control"] = "private, no-store"
        return answer

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Free request and response at once: two reference cycles of DRF would keep them until a garbage collection."""
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
            return answer
        finally:
            self.request.parser_context.clear()  # contains the request
            for method in self.action_map:
                vars(self).pop(method, None)  # bound methods of the view, as `get` and so on
