"""Requests that only read go to the replica; whoever has just written reads what was written. See docs/scaling.md.

A response to a request that may have written says how far the primary had written by then: in a header for programs, in a cookie
for people. Who sends it back reads from the replica only if that has come as far.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from django.conf import settings
from django.db import Error, connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from access_app.conf import conf
from access_app.db import REPLICA
from access_app.db.replica import note_failure, usable_replica, written_position

logger = logging.getLogger(__name__)

HEADER = "Tracesite-Written"
COOKIE = "tracesite_written"
COOKIE_SPARE_SECONDS = 30
"""The cookie lasts for so long beyond the lag with which a replica is left out anyway."""
RETRIED_WITHIN_SECONDS = 15.0
"""A read that failed on the replica is tried on the primary unless it took longer: its client may have gone."""
_READS = frozenset({"GET", "HEAD"})
_TOKEN = re.compile(r"[0-9a-f]{1,16}")
_UNKNOWN = 2**64 - 1
"""A position that no replica reaches, so that the primary is read."""


class ReplicaReadingMiddleware:
    """In the settings only if there is a replica."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method not in _READS:
            response = self.get_response(request)
            _say_written(request, response)
            return response
        if not usable_replica(_written_before(request)):
            return self.get_response(request)
        began = time.monotonic()
        request.reads_from_replica = True  # type: ignore[attr-defined]  # read only by access_app.request_database
        response = self.get_response(request)
        failed = response.status_code == 503 and connections[REPLICA].errors_occurred
        if failed and time.monotonic() - began < RETRIED_WITHIN_SECONDS:
            # The replica was stopped, or cancelled a statement that was in the way of what it replays.
            logger.warning("a read failed on the replica and goes to the primary")
            connections[REPLICA].close()
            note_failure()
            request.reads_from_replica = False  # type: ignore[attr-defined]
            return self.get_response(request)
        return response


def _written_before(request: HttpRequest) -> int:
    """Return the position that the client brings; one that cannot be read counts as unknown."""
    given = [token for token in (request.headers.get(HEADER), request.COOKIES.get(COOKIE)) if token]
    return max((int(token, 16) if _TOKEN.fullmatch(token) else _UNKNOWN for token in given), default=0)


def _say_written(request: HttpRequest, response: HttpResponseBase) -> None:
    try:
        position = written_position()
    except Error:
        # The response is about what was committed; without the primary the position is unknown.
        position = _UNKNOWN
    response.headers[HEADER] = token = f"{position:x}"
    if settings.SESSION_COOKIE_NAME in request.COOKIES:
        response.set_cookie(
            COOKIE,
            token,
            max_age=conf.REPLICA_MAX_LAG_SECONDS + COOKIE_SPARE_SECONDS,
            secure=conf.HTTPS,
            httponly=True,
            samesite="Lax",
        )
