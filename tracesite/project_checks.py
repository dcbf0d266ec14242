"""Checks of the Django project that has Tracesite among its apps: what is missing, and the line that adds it.

`manage.py check` runs them, and so do `migrate`, `runserver` and `serve`. See docs/django_project.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.apps.config import AppConfig
from django.conf import settings
from django.contrib import admin
from django.core.checks import CheckMessage, Error, Warning
from django.db import router
from django.urls import NoReverseMatch, reverse

from access_app.db import PEOPLE_ARE_HERE, PRIMARY
from access_app.db.reading import ReadingRouter
from access_app.mounting import NAMESPACE

from .admin_site import TracesiteAdminSite

NEEDED_APPS = ("traces_app", "messages_app", "access_app", "django.contrib.humanize", "django.contrib.postgres")
IN_PROJECT = "tracesite.http.in_project.TracesiteMiddleware"
ALONE = ("access_app.audit.requests.AuditMiddleware", "access_app.masked_reading.MaskedReadingMiddleware")
"""Middleware of which the other is made, which a project may name itself."""
BEFORE_OURS = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
)
BACKEND = "access_app.db"
ROUTER = "access_app.db.reading.ReadingRouter"
SEE = "See docs/django_project.md."


def check_project(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    return [*_apps(), *_middleware(), *_database(), *_urls()]


def _apps() -> list[CheckMessage]:
    messages: list[CheckMessage] = [
        Error(
            f"Tracesite needs the app {name}.",
            hint=f'Add "{name}" to INSTALLED_APPS. {SEE}',
            id="tracesite.E015",
        )
        for name in NEEDED_APPS
        if not apps.is_installed(name)
    ]
    if not isinstance(admin.site, TracesiteAdminSite):
        messages.append(
            Error(
                "The admin site of the project has no pages of Tracesite.",
                hint='Put "tracesite.admin_site.TracesiteAdminConfig" in place of "django.contrib.admin" into INSTALLED_APPS, or let '
                f"the default_site of your AdminConfig be a subclass of tracesite.admin_site.TracesiteAdminSite. {SEE}",
                id="tracesite.E016",
            )
        )
    order = [config.name for config in apps.get_app_configs()]
    if "django.contrib.admin" in order and order.index("tracesite") > order.index("django.contrib.admin"):
        messages.append(
            Error(
                "Templates of Django's admin come before those of Tracesite.",
                hint=f'Move "tracesite" before the admin in INSTALLED_APPS. {SEE}',
                id="tracesite.E017",
            )
        )
    if not apps.is_installed("drf_spectacular_sidecar"):
        messages.append(
            Warning(
                "The page that shows the REST API has no scripts.",
                hint=f'Add "drf_spectacular_sidecar" to INSTALLED_APPS. {SEE}',
                id="tracesite.W015",
            )
        )
    return messages


def _middleware() -> list[CheckMessage]:
    names = list(settings.MIDDLEWARE)
    if all(name in names for name in ALONE):
        return []
    if IN_PROJECT not in names:
        return [
            Error(
                "Requests for traces are neither recorded nor masked.",
                hint=f'Add "{IN_PROJECT}" at the end of MIDDLEWARE. {SEE}',
                id="tracesite.E018",
            )
        ]
    late = [name for name in BEFORE_OURS if name in names[names.index(IN_PROJECT) :] or name not in names]
    return [
        Error(
            f"{name} does not come before the middleware of Tracesite, which asks who is logged in.",
            hint=f'Put "{IN_PROJECT}" behind it in MIDDLEWARE. {SEE}',
            id="tracesite.E019",
        )
        for name in late
    ]


def _database() -> list[CheckMessage]:
    database = settings.DATABASES.get(PRIMARY)
    if database is None:
        return [
            Error(
                f"TRACESITE_DATABASE names the database {PRIMARY!r}, which DATABASES does not have.",
                hint=f'Add DATABASES["{PRIMARY}"] with the engine "{BACKEND}". {SEE}',
                id="tracesite.E024",
            )
        ]
    messages: list[CheckMessage] = []
    if not PEOPLE_ARE_HERE and not any(
        isinstance(database_router, ReadingRouter) for database_router in router.routers
    ):
        messages.append(
            Error(
                "Without a router Django looks for the tables of Tracesite in the database 'default'.",
                hint=f'Put "{ROUTER}" first into DATABASE_ROUTERS. {SEE}',
                id="tracesite.E025",
            )
        )
    if database["ENGINE"] != BACKEND:
        messages.append(
            Error(
                f"The database of Tracesite, DATABASES[{PRIMARY!r}], has the engine {database['ENGINE']!r}.",
                hint=f'Set its ENGINE to "{BACKEND}": Django\'s own backend for PostgreSQL, with what Tracesite needs. {SEE}',
                id="tracesite.E020",
            )
        )
    if database.get("ATOMIC_REQUESTS"):
        messages.append(
            Error(
                f"ATOMIC_REQUESTS is on for DATABASES[{PRIMARY!r}]: ingest commits by itself and would fail.",
                hint="Turn it off, and put transaction.atomic around the views that need it. Or give Tracesite an alias of "
                f"its own. {SEE}",
                id="tracesite.E021",
            )
        )
    if not settings.USE_TZ:
        messages.append(
            Error(
                "USE_TZ is off, and all times of traces have a time zone.",
                hint="Set USE_TZ = True.",
                id="tracesite.E022",
            )
        )
    return messages


def _urls() -> list[CheckMessage]:
    try:
        reverse(f"{NAMESPACE}:api")
    except NoReverseMatch:
        return [
            Error(
                "The URLs of Tracesite are not included.",
                hint=f'Add path("traces/", include("tracesite.urls")) to the urlpatterns of {settings.ROOT_URLCONF}. {SEE}',
                id="tracesite.E023",
            )
        ]
    return []
