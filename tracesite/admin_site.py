"""The admin site: Django's own, with a home page that says what needs attention."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import SimpleAdminConfig
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from access_app.conf import conf

from .rail import list_above, list_of, lists_of, part_of, parts, with_times

SPACELESS_TEXTS = (
    *(gettext_noop("Add %(name)s"), gettext_noop("Add %s"), gettext_noop("Change %s"), gettext_noop("View %s")),
    *(gettext_noop("Change history: %s"), gettext_noop("Add another %(verbose_name)s")),
)
"""Texts of Django that our catalogue replaces, because Chinese has no space between a verb and its object, and none behind a colon."""


class TracesiteAdminSite(AdminSite):
    """The site behind `admin.site` and `admin.register`."""

    index_title = gettext_lazy("All lists and settings")
    """The title of the home page of people who may not see traces; see traces_app.admin.home."""
    password_change_template = "admin/password_change.html"  # noqa: S105 - a template

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the login, and lead those who have two-factor login on to the page that asks for their code."""
        # Imported here, because models cannot be loaded before this site exists.
        from access_app.two_factor import CodeRequired, note_passed

        try:
            return super().login(request, extra_context)
        except CodeRequired as required:
            note_passed(request.session, required.user)
            return redirect(reverse("admin:login_code", query={"next": request.POST.get("next", "")}))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from access_app.models import Role
        from access_app.roles import access
        from access_app.two_factor import is_offered
        from messages_app.admin.filters import remembered_query

        reads_traces = access(request).allows(Role.VIEWER)
        context = super().each_context(request)
        listed = {
            f"{app['app_label']}_{model['object_name'].lower()}_changelist"
            for app in context["available_apps"]
            for model in app["models"]
        }
        times = remembered_query(request)
        found = part_of(request)
        part = found and with_times(found, times)
        part_lists = lists_of(part, listed)
        above, is_form = list_above(request, part_lists)
        return {
            **context,
            "reads_traces": reads_traces,
            "has_single_sign_on": bool(conf.OIDC_ISSUER),
            "has_two_factor": is_offered(),
            "TIME_ZONE": timezone.get_current_timezone_name(),
            "parts": parts(reads_traces, times),
            "part": part,
            "part_lists": part_lists,
            "current_list": list_of(request, part_lists),
            "list_above": above,
            "is_form_of_row": is_form,
        }

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the apps and their models in the same order in every language; Django sorts them by their names."""
        apps = sorted(super().get_app_list(request, app_label), key=lambda app: str(app["app_label"]))
        return [{**app, "models": sorted(app["models"], key=lambda model: str(model["object_name"]))} for app in apps]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        # Imported here, because the pages register themselves with the site, which does not exist before.
        from traces_app.admin.home import home

        return super().index(request, {**home(request), **(extra_context or {})})

    def settings(self, request: HttpRequest) -> TemplateResponse:
        """Show the lists of settings, each with what it is for, and below them those that neither the cards nor the rail lead to."""
        from .settings_cards import cards

        context = self.each_context(request)
        page = {
            "title": _("Settings"),
            "app_list": _without_lists(
                context["available_apps"], {page.url for part in context["parts"] for page in part.lists}
            ),
            "cards": cards(request, context["part_lists"]),
        }
        return TemplateResponse(request, "admin/settings.html", {**context, **page})

    def get_urls(self) -> list[URLPattern | URLResolver]:
        from access_app.login_form import LoginForm
        from access_app.two_factor_pages import CodeLoginView, two_factor
        from messages_app.admin.time_zones import choose_time_zone

        _register_all()
        self.login_form = LoginForm
        # No object here has a public address, and Django's view answers 500 to an id that is not a UUID.
        urls = [url for url in super().get_urls() if getattr(url, "name", None) != "view_on_site"]
        return [
            path("settings/", self.admin_view(self.settings), name="settings"),
            path("time-zone/", self.admin_view(choose_time_zone), name="time_zone"),
            path("login/code/", CodeLoginView.as_view(), name="login_code"),
            path("two-factor/", self.admin_view(two_factor), name="two_factor"),
            *urls,
        ]


class TracesiteAdminConfig(SimpleAdminConfig):
    """In INSTALLED_APPS in place of `django.contrib.admin`. Not in apps.py, where Django would find two configurations."""

    default_site = "tracesite.admin_site.TracesiteAdminSite"


def _without_lists(apps: Iterable[dict[str, Any]], urls: Collection[str]) -> list[dict[str, Any]]:
    """Return the apps of a page of Django with the models whose lists are not at these addresses, with any parameters."""
    known = {url.partition("?")[0] for url in urls}
    left = [{**app, "models": [one for one in app["models"] if one["admin_url"] not in known]} for app in apps]
    return [app for app in left if app["models"]]


def _register_all() -> None:
    """Register the admins of all apps, as AdminConfig does when Django starts. Called with the first URLs, because commands need none."""
    from django.contrib.admin import autodiscover, site

    from access_app.two_factor import is_offered

    autodiscover()
    if not is_offered():
        return
    from django.contrib.auth.models import Group, User
    from django_otp.plugins.otp_static.models import StaticDevice
    from django_otp.plugins.otp_totp.models import TOTPDevice

    from access_app.user_admin import RoleGroupAdmin, TwoFactorUserAdmin

    if site.is_registered(TOTPDevice):
        # Pages of django-otp show and change the keys of everybody's apps.
        site.unregister([StaticDevice, TOTPDevice, User, Group])
        site.register(User, TwoFactorUserAdmin)
        site.register(Group, RoleGroupAdmin)
