"""The base of all views of traces."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet


class TraceViewSet(ViewSet):
    """Responses hold conversations: no cache may keep them, whatever header the credentials came in."""

    required_scope: str | None = None
    """Set by the URL where the method alone does not decide; see access_app.permissions.HasScope."""

    def finalize_response(  # type: ignore[override]  # the stubs know of no streamed answers
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Cache-Control"] = "private, no-store"
        return answer

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Frees what came and what is answered: DRF leaves two circles, which keep them until Python's collector comes by."""
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
            return answer
        finally:
            self.request.parser_context.clear()  # has the request itself in it
            for method in self.action_map:
                vars(self).pop(method, None)  # the view's own methods once more, as `get` and so on
