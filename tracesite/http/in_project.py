"""The middleware of Tracesite in a project of others: one line of its MIDDLEWARE, which leaves other requests alone."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string

from access_app.db import REPLICA, project_aliases
from access_app.mounting import NAMESPACE

from .content_policy import POLICY
from .pages import is_page

MIDDLEWARE = (
    "tracesite.http.request_log.RequestIdMiddleware",
    "tracesite.http.compression.CompressionMiddleware",
    "tracesite.http.pages.TimeZone",
    "access_app.audit.requests.AuditMiddleware",
    "access_app.masked_reading.MaskedReadingMiddleware",
)
"""Middleware of each request for us, the outermost first. All else is the project's own: sessions, users, CSRF."""
PROJECTS_MIDDLEWARE = "tracesite.http.project_database.ProjectDatabaseMiddleware"
REPLICA_MIDDLEWARE = "tracesite.http.replica_reading.ReplicaReadingMiddleware"
_APPS = ("access_app_", "messages_app_", "traces_app_")
_PAGES_OF_SITE = frozenset(["index", "app_list", "time_zone", "two_factor"])
"""Pages of the admin, besides those of our models, that show traces or are ours."""

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class TracesiteMiddleware:
    """Record, mask and log the requests for Tracesite. It comes behind the project's AuthenticationMiddleware and messages."""

    def __init__(self, get_response: GetResponse) -> None:
        self.others = get_response
        self.ours = get_response
        with_replica = (REPLICA_MIDDLEWARE,) if REPLICA in settings.DATABASES else ()
        with_projects = (PROJECTS_MIDDLEWARE,) if project_aliases() else ()
        for name in reversed((*MIDDLEWARE, *with_projects, *with_replica)):
            self.ours = import_string(name)(self.ours)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_ours(request):
            return self.others(request)
        response = self.ours(request)
        if is_page(request):
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


def is_ours(request: HttpRequest) -> bool:
    """Return whether the request is for an address below the base path, or for a page of the admin that is ours.

    Django resolves the address once more, 0.1 ms of CPU, because what it found is known only inside of all middleware. Ours is around
    the view: it must also see what becomes of the view's errors.
    """
    try:
        match = resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return False
    if NAMESPACE in match.app_names:
        return True
    name = match.url_name or ""
    if name == "autocomplete":
        name = f"{request.GET.get('app_label')}_"  # the names of rows, of whichever model the request asks for
    return "admin" in match.app_names and (name.startswith(_APPS) or name in _PAGES_OF_SITE)
