"""Middleware that only pages need and that is skipped for API data, where it would take a tenth of a small response.

The API has its own way to everything here: keys instead of cookies, a CSRF check of its own for the sessions of staff,
JSON that no browser shows in a frame or runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from csp.middleware import CSPMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.gzip import GZipMiddleware
from django.utils import timezone

from access_app.mounting import below_base
from messages_app.admin.time_zones import in_utc, zone_of

from .foreign_api import is_api

DOCS = "/api/v1/docs/"
"""Below our base path."""


def is_page(request: HttpRequest) -> bool:
    """Return whether the request is for a page that a browser shows, not for data."""
    return not is_api(request.path_info) or below_base(request.path_info) == DOCS


class _Middleware(Protocol):
    get_response: Any

    def __call__(self, request: HttpRequest) -> Any: ...


class _ForPages:
    """Put before a middleware of Django's kind, keeps it to pages."""

    def __call__(self: _Middleware, request: HttpRequest) -> Any:
        if not is_page(request):
            return self.get_response(request)
        return super().__call__(request)  # type: ignore[safe-super]  # that of the middleware


class ContentSecurityPolicy(_ForPages, CSPMiddleware):
    pass


class Gzip(_ForPages, GZipMiddleware):
    """Compress pages: the first page of a run of 300 steps shrinks from 117 KB to 8 KB.

    Compression of pages invites BREACH: an attacker who makes a browser send many requests, chooses a part of each page
    and sees the length of the responses can guess the rest of the page. Here (1) the session cookie is SameSite=Lax, so that
    another site cannot make the browser load pages as a member of staff, save one at a time in a window that everybody
    sees; (2) Django masks the CSRF token anew in each response; (3) GZipMiddleware adds up to 100 random bytes to each
    response; (4) the page with a new API key answers one POST and cannot be asked for again.
    """


class Csrf(_ForPages, CsrfViewMiddleware):
    pass


class Messages(_ForPages, MessageMiddleware):
    pass


class XFrameOptions(_ForPages, XFrameOptionsMiddleware):
    pass


class TimeZone:
    """Show and read times in the zone that the reader chose; data stay in UTC. Behind Messages, which tells of bad times."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_page(request):
            return self.get_response(request)
        with timezone.override(zone_of(request)):
            return in_utc(request) or self.get_response(request)
