"""The base of all views of traces."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from rest_framework.request import Request

from access_app.models import ApiKey
from access_app.request_database import database
from access_app.rest import ApiViewSet
from traces_app.queries.due_traces import wait_for_traces

LONGEST_WAIT = 10
"""Seconds. A request that waits keeps a thread of its worker."""
# https://www.rfc-editor.org/rfc/rfc7240#section-4.3
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


class TraceViewSet(ApiViewSet):
    """Prevents caching, because responses hold conversations, whatever header carries the credentials."""

    required_scope: str | None = None
    """Set by the URL if the method alone does not determine it; see access_app.permissions.HasScope."""
    has_waited = False
    """Whether the answer has everything that was sent before the request."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let who reads wait for the messages of what was sent before, if the header `Prefer: wait=SECONDS` says so."""
        super().initial(request, *args, **kwargs)
        wish = _WAIT.search(request.headers.get("Prefer", ""))
        if wish and request.method == "GET":
            # A replica may not have them yet.
            request.reads_from_replica = False  # type: ignore[attr-defined]  # read by access_app.request_database
            projects = {request.auth.project_id} if isinstance(request.auth, ApiKey) else None
            self.has_waited = wait_for_traces(database(request), projects, min(int(wish[1]), LONGEST_WAIT))

    def finalize_response(  # type: ignore[override]  # the stubs know of no streamed answers
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Cache-Control"] = "private, no-store"
        if self.has_waited:
            answer.headers["Preference-Applied"] = "wait"
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
