"""The admin of users with their two-factor login, for sites where Tracesite logs people in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import JSONObject
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.audit.trail import actor_of

from .models import AuthenticatorApp, Membership, Role
from .roles import access
from .two_factor import remove
from .visibility import visible_to

if TYPE_CHECKING:
    Users = UserAdmin[User]
else:  # not generic at run time
    Users = UserAdmin

PROJECTS_LISTED = 5
_ROLES: Mapping[Role, Any] = {
    Role.VIEWER: gettext_lazy("viewer"),
    Role.ANALYST: gettext_lazy("analyst"),
    Role.EDITOR: gettext_lazy("editor"),
    Role.OWNER: gettext_lazy("owner"),
}
"""In one word."""


class TwoFactorUserAdmin(Users):
    """Django's admin of users, which shows and resets their two-factor login."""

    list_display = ("username", "full_name", "email", "roles", "last_login_at", "has_two_factor")
    empty_value_display = "—"
    actions = ("reset_two_factor",)
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (gettext_lazy("Personal info"), {"fields": ("first_name", "last_name", "email")}),
        (gettext_lazy("Permissions"), {"fields": ("is_active", "is_staff", "is_superuser")}),
        (
            gettext_lazy("Groups and permissions"),
            {
                "classes": ("collapse",),
                "fields": ("groups", "user_permissions"),
                "description": gettext_lazy(
                    "Permissions are those to manage users and groups. What somebody may do with traces is a role in a "
                    "project: see its page."
                ),
            },
        ),
        (gettext_lazy("Important dates"), {"classes": ("collapse",), "fields": ("last_login", "date_joined")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        apps = AuthenticatorApp.objects.filter(user=OuterRef("pk"), confirmed=True)
        # As on the pages of projects, owners see members.
        members = visible_to(Membership.objects.order_by("project__slug"), access(request).scope(Role.OWNER))
        held = members.filter(Q(user=OuterRef("pk")) | Q(group__user=OuterRef("pk")))
        held_roles = ArraySubquery(held.values(held=JSONObject(project="project__slug", role="role")))
        return super().get_queryset(request).annotate(two_factor=Exists(apps), held_roles=held_roles)

    def has_reset_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.is_superuser

    @admin.display(description=gettext_lazy("name"), ordering="first_name")
    def full_name(self, user: User) -> str | None:
        return user.get_full_name() or None

    @admin.display(description=gettext_lazy("roles"))
    def roles(self, user: User) -> str:
        """Return the role in each project that the reader owns, the highest of several; without one in words what they are."""
        if not user.is_active:
            return _quiet(_("inactive"))
        if user.is_superuser:
            return _("superuser")
        if not user.is_staff:
            return _quiet(_("not staff"))
        highest: dict[str, Role] = {}
        for one in user.held_roles:  # type: ignore[attr-defined]  # annotated above
            project, role = one["project"], Role(one["role"])
            if project not in highest or role in highest[project].and_above:
                highest[project] = role
        words = [f"{project}: {_ROLES[role]}" for project, role in highest.items()]
        if more := len(words[PROJECTS_LISTED:]):
            words[PROJECTS_LISTED:] = [ngettext("and %(number)s more", "and %(number)s more", more) % {"number": more}]
        return " · ".join(words) or _quiet(_("staff"))

    @admin.display(description=gettext_lazy("last login"), ordering="last_login")
    def last_login_at(self, user: User) -> datetime | str:
        return user.last_login or _quiet(_("never"))

    @admin.display(description=gettext_lazy("two-factor login"), ordering="two_factor")
    def has_two_factor(self, user: User) -> str:
        return _("on") if user.two_factor else _quiet(_("off"))  # type: ignore[attr-defined]  # annotated above

    @admin.action(description=gettext_lazy("Reset two-factor login of selected users"), permissions=["reset"])
    def reset_two_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Let users log in by password alone, because they lost their app and recovery codes."""
        reset = [user for user in queryset if remove(user, actor=actor_of(request))]
        for user in reset:
            self.log_change(request, user, _("Two-factor login was reset."))
        count = len(reset)
        text = ngettext(
            "Two-factor login of %(count)d user was reset.", "Two-factor login of %(count)d users was reset.", count
        ) % {"count": count}
        self.message_user(request, text, messages.SUCCESS if reset else messages.WARNING)


def _quiet(word: str) -> str:
    return format_html('<span class="quiet">{}</span>', word)
