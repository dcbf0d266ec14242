"""The admin of users with their two-factor login, for sites where Tracesite logs people in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.audit.trail import actor_of

from .models import AuthenticatorApp
from .two_factor import remove

if TYPE_CHECKING:
    Users = UserAdmin[User]
else:  # not generic at run time
    Users = UserAdmin


class TwoFactorUserAdmin(Users):
    """Django's admin of users, which shows and resets their two-factor login."""

    list_display = ("username", "email", "first_name", "last_name", "is_staff", "has_two_factor")
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
        return super().get_queryset(request).annotate(two_factor=Exists(apps))

    def has_reset_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.is_superuser

    @admin.display(description=gettext_lazy("two-factor login"), boolean=True, ordering="two_factor")
    def has_two_factor(self, user: User) -> bool:
        return bool(user.two_factor)  # type: ignore[attr-defined]  # annotated above

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
