"""One id per request, from the header to every log line and back, and the one line that each request logs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from secrets import token_hex

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from access_app.mounting import view_of
from tracesite.metrics.registry import count_request
from tracesite_sdk.redaction.engine import redact

from . import request_ids

logger = logging.getLogger(__name__)

# The valid form of a caller's X-Request-ID. Anything else is replaced, as are secrets, because the id is logged and echoed as it is.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

# URL arguments that have a field of their own in the log line of a request.
LOGGED_IDS = ("session_id", "message_id", "call_id", "chain_id")


class RequestIdMiddleware:
    """Set the id of the request. It must be the first middleware, so that all log lines and all responses have the id.

    For the same reason it forbids caches to keep a response that does not say itself how long it may be kept.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if REQUEST_ID.fullmatch(given) and redact(given)[0] == given else token_hex(16)
        request.request_id = request_id  # type: ignore[attr-defined]
        token = request_ids.current.set(request_id)
        started = time.perf_counter()
        try:
            response = self.get_response(request)
            response.headers["X-Request-ID"] = request_id
            response.headers.setdefault("Cache-Control", "no-store")
            seconds = time.perf_counter() - started
            _log(request, response.status_code, round(seconds * 1000))
            count_request(request, response.status_code, seconds)
            return response
        finally:
            request_ids.current.reset(token)


def clean_for_log(text: str, limit: int = 200) -> str:
    """Return the text on one line, without secrets, which callers put into paths by mistake. Unprintable characters (line
    ends, escapes, writing directions) become `?`, and the text is truncated."""
    # Before it is cut: half a secret would be logged otherwise.
    text = str(redact(text)[0])[:limit]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def _log(request: HttpRequest, status: int, duration_ms: int) -> None:
    """Log one line for the request, without content and without the query string."""
    path = clean_for_log(request.path)
    method = clean_for_log(request.method or "", 16)
    match = request.resolver_match
    fields: dict[str, str | int] = {
        "method": method,
        "path": path,
        "route": view_of(match) if match else "",
        "status": status,
        "duration_ms": duration_ms,
    }
    arguments = match.kwargs if match else {}
    for name in LOGGED_IDS:
        if name in arguments:
            fields[name] = clean_for_log(str(arguments[name]))
    # The ApiKey that the request came with. Its class is not imported: the settings name this module before there are models.
    key = getattr(request, "auth", None)
    if key is not None:
        fields["project"] = key.project.slug
    logger.info("%s %s %s %s ms", method, path, status, duration_ms, extra=fields)
