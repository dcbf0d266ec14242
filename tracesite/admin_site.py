"""The admin site: Django's own, with a home page that says what needs attention."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path


class TracesiteAdminSite(AdminSite):
    """The site behind `admin.site` and `admin.register`."""

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        # Imported here, because models cannot be loaded before this site exists.
        from access_app.models import Role
        from access_app.roles import access

        return {**super().each_context(request), "reads_traces": access(request).allows(Role.ANALYST)}

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        # Imported here, because the pages register themselves with the site, which does not exist before.
        from traces_app.admin.home import home

        return super().index(request, {**home(request), **(extra_context or {})})

    def get_urls(self) -> list[URLPattern | URLResolver]:
        from messages_app.admin.time_zones import choose_time_zone

        # No object here has a public address, and Django's view answers 500 to an id that is not a UUID.
        urls = [url for url in super().get_urls() if getattr(url, "name", None) != "view_on_site"]
        return [path("time-zone/", self.admin_view(choose_time_zone), name="time_zone"), *urls]


class TracesiteAdminConfig(AdminConfig):
    """In INSTALLED_APPS in place of `django.contrib.admin`. Not in apps.py, where Django would find two configurations."""

    default_site = "tracesite.admin_site.TracesiteAdminSite"
