"""The admin of users and groups with their roles, for sites where Tracesite logs people in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import Group, Permission, User
from django.contrib.postgres.expressions import ArraySubquery
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import JSONObject
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.audit.changes import note_changes
from access_app.audit.trail import actor_of

from .admin import MembersTable, OfProject, RolesFormSet, record_members, with_words
from .models import AuthenticatorApp, Membership, Project, Role
from .moments import ago
from .roles import ROLE_WORDS, access
from .two_factor import remove
from .visibility import visible_to

if TYPE_CHECKING:
    Users = UserAdmin[User]
    Groups = GroupAdmin
    RoleModelForm = forms.ModelForm[Membership]
else:  # not generic at run time
    Users, Groups, RoleModelForm = UserAdmin, GroupAdmin, forms.ModelForm

LISTED = 5
PERMISSIONS = gettext_lazy(
    "Permissions are those to manage users and groups. What somebody may do with traces is a role in a project."
)
_PERMITTED = ("user", "group")
"""The models whose permissions count; those of the others are roles."""


class NamedRoles(RolesFormSet):
    """The roles of a user or group, whose fields need a name: the key from a role to its holder leads nowhere back."""

    @classmethod
    def get_default_prefix(cls) -> str:
        return "roles"


class RoleForm(OfProject, RoleModelForm):
    """A role of a user or group. Its project stays, because a role in another project is another one."""

    class Meta:
        model = Membership
        fields = ("project", "role")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.fields["project"].disabled = True

    def validate_unique(self) -> None:
        """Check what is stored of the holder; of one that is new there is nothing, and its key is not known yet."""
        holder = self.instance.user or self.instance.group
        if holder is None or holder.pk is not None:
            super().validate_unique()


class RoleInline(MembersTable):
    """Roles of a user in the projects that the reader owns."""

    fk_name = "user"
    form = RoleForm
    formset = NamedRoles
    fields = ("project", "role")
    verbose_name = gettext_lazy("role")
    verbose_name_plural = gettext_lazy("roles")
    add_text = gettext_lazy("Add a role")

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        """Return an empty row for whoever is new: without a role nobody sees anything."""
        return 1 if obj is None else super().get_extra(request, obj, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        rows = super().get_queryset(request).select_related("project").order_by("project__slug")
        return visible_to(rows, access(request).scope(Role.OWNER))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "project":
            kwargs["queryset"] = visible_to(Project.objects.all(), access(request).scope(Role.OWNER), "pk")
            kwargs["empty_label"] = _("Choose a project")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class AdministratorFilter(admin.BooleanFieldListFilter):
    """The filter of superusers, which are called as on their pages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = _("administrator")


class RecordsRoles:
    """A form of somebody with roles, whose changes and roles come into the audit log."""

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the field; of permissions with those that count."""
        if db_field.name in ("permissions", "user_permissions"):
            counting = Permission.objects.filter(content_type__app_label="auth", content_type__model__in=_PERMITTED)
            kwargs["queryset"] = counting.select_related("content_type")
        return super().formfield_for_manytomany(db_field, request, **kwargs)  # type: ignore[misc] # mixin

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)  # type: ignore[misc] # mixin
        note_changes(actor_of(request), obj, form)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)  # type: ignore[misc] # mixin
        record_members(actor_of(request), formset)


class TwoFactorUserAdmin(RecordsRoles, Users):
    """Django's admin of users: their roles in projects first, and their two-factor login, which it resets."""

    list_display = ("username", "full_name", "email", "roles", "last_login_at", "has_two_factor", "state")
    sortable_by = list_display
    list_filter = ("is_active", ("is_superuser", AdministratorFilter), "groups")
    empty_value_display = "—"
    actions = ("reset_two_factor",)
    add_form = UserCreationForm  # whoever logs in elsewhere is made by the first login
    add_form_template = None
    change_form_template = "admin/access_app/user/change_form.html"
    inlines = (RoleInline,)
    add_fieldsets = ((None, {"fields": ("username", "email", "password1", "password2")}),)
    fieldsets = (
        (
            None,
            {
                "fields": (
                    *("username", ("first_name", "last_name"), "email"),
                    ("last_login_at", "has_two_factor", "joined_at"),
                )
            },
        ),
        (gettext_lazy("Access"), {"fields": (("is_active", "is_staff", "is_superuser"),)}),
        (
            gettext_lazy("Groups and permissions"),
            {
                "classes": ("collapse",),
                "fields": ("groups", "user_permissions"),
                "description": PERMISSIONS,
            },
        ),
    )
    readonly_fields = ("last_login_at", "has_two_factor", "joined_at", "roles_of_groups")

    # --- One user ---------------------------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Return the sections, the closed one with what is set in it, and what the groups of the user may do."""
        found = super().get_fieldsets(request, obj)
        if obj is None:
            return found
        person, (label, allowed), permissions = found
        if _words_of_roles(obj, of_groups=True):
            allowed = {**allowed, "fields": (*allowed["fields"], "roles_of_groups")}
        return [
            person,
            (label, allowed),
            with_words(permissions, _words_of_permissions(obj.groups.all(), obj.user_permissions)),
        ]

    def get_form(self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form; Django's texts about access know nothing of projects."""
        labels = {
            "is_active": _("May log in"),
            "is_staff": _("May use this site"),
            "is_superuser": _("Administrator"),
        }
        texts = {
            "is_active": _("Unselect this instead of deleting the user, so that the name stays in the audit log."),
            "is_staff": _("With the roles above. Whoever gets a role may."),
            "is_superuser": _("A superuser: owns every project, and manages users, prices and jobs."),
        }
        return super().get_form(request, obj, change=change, **{"labels": labels, "help_texts": texts, **kwargs})

    def get_inlines(self, request: HttpRequest, obj: User | None) -> tuple[Any, ...]:
        """Return the roles, but of superusers: they have every one."""
        return () if obj is not None and obj.is_superuser else (RoleInline,)

    # --- Many users -------------------------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns in which users differ."""
        confirmed = AuthenticatorApp.objects.filter(confirmed=True)
        differ = User.objects.aggregate(
            full_name=models.Count("pk", filter=~Q(first_name="", last_name="")),
            email=models.Count("pk", filter=~Q(email="")),
            has_two_factor=models.Count("pk", filter=Q(pk__in=confirmed.values("user"))),
            state=models.Count("pk", filter=Q(is_active=False)),
        )
        return [name for name in self.list_display if differ.get(str(name), 1)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        apps = AuthenticatorApp.objects.filter(user=OuterRef("pk"), confirmed=True)
        held_roles = _held_roles(request, Q(user=OuterRef("pk")) | Q(group__user=OuterRef("pk")))
        return super().get_queryset(request).annotate(two_factor=Exists(apps), held_roles=held_roles)

    def has_reset_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.is_superuser

    @admin.display(description=gettext_lazy("name"), ordering="first_name")
    def full_name(self, user: User) -> str | None:
        return user.get_full_name() or None

    @admin.display(description=gettext_lazy("roles"))
    def roles(self, user: User) -> str:
        """Return the role in each project that the reader owns, the highest of several; without one in words what they are."""
        if user.is_superuser:
            return _("administrator")
        roles = _first(_words_of_roles(user))
        if user.is_staff:
            return roles or _quiet(_("none"))
        words = _quiet(_("may not use this site"))
        return format_html("{} · {}", roles, words) if roles else words

    @admin.display(description=gettext_lazy("roles of groups"))
    def roles_of_groups(self, user: User) -> str:
        return _first(_words_of_roles(user, of_groups=True))

    @admin.display(description=gettext_lazy("last login"), ordering="last_login")
    def last_login_at(self, user: User) -> SafeString:
        return _quiet(_("never")) if user.last_login is None else ago(user.last_login)

    @admin.display(description=gettext_lazy("joined"))
    def joined_at(self, user: User) -> SafeString:
        return ago(user.date_joined)

    @admin.display(description=gettext_lazy("two-factor login"), ordering="two_factor")
    def has_two_factor(self, user: User) -> str:
        return _("on") if user.two_factor else _quiet(_("off"))  # type: ignore[attr-defined]  # annotated above

    @admin.display(description=gettext_lazy("status"), ordering="is_active")
    def state(self, user: User) -> str:
        return _quiet(_("active")) if user.is_active else format_html('<span class="badge">{}</span>', _("inactive"))

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


class GroupRoleInline(RoleInline):
    """Roles that the members of a group get by it, in the projects that the reader owns."""

    fk_name = "group"


class RoleGroupAdmin(RecordsRoles, Groups):  # type: ignore[misc] # mixin
    """Django's admin of groups: the roles that they give first, and the permissions folded."""

    list_display = ("name", "roles", "members")
    change_form_template = "admin/access_app/roles_first.html"
    empty_value_display = "—"
    inlines = (GroupRoleInline,)
    fieldsets = (
        (
            None,
            {"fields": ("name", "members"), "description": gettext_lazy("Members are chosen on the pages of users.")},
        ),
        (
            gettext_lazy("Permissions"),
            {
                "classes": ("collapse",),
                "fields": ("permissions",),
                "description": PERMISSIONS,
            },
        ),
    )
    readonly_fields = ("members",)

    def get_fieldsets(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """Return the sections, the closed one with what is set in it."""
        (label, named), permissions = super().get_fieldsets(request, obj)
        if obj is None:
            return [(label, {**named, "fields": ("name",)}), permissions]
        return [(label, named), with_words(permissions, _words_of_permissions((), obj.permissions))]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        users = User.objects.filter(groups=OuterRef("pk")).order_by("username")
        return (
            super()
            .get_queryset(request)
            .annotate(
                held_roles=_held_roles(request, Q(group=OuterRef("pk"))),
                usernames=ArraySubquery(users.values("username")),
            )
        )

    @admin.display(description=gettext_lazy("roles"))
    def roles(self, group: Group) -> str:
        return _first(_words_of_roles(group))

    @admin.display(description=gettext_lazy("members"))
    def members(self, group: Group) -> str:
        names: list[str] = group.usernames  # type: ignore[attr-defined]  # annotated above
        return _first(names, between=", ") or _quiet(_("nobody yet"))


def _held_roles(request: HttpRequest, of_row: Q) -> ArraySubquery:
    """Return the expression for the roles of a row in the projects that the reader owns: as on the pages of projects, owners see members."""
    members = visible_to(Membership.objects.order_by("project__slug"), access(request).scope(Role.OWNER))
    return ArraySubquery(
        members.filter(of_row).values(held=JSONObject(project="project__slug", role="role", of_group="group"))
    )


def _words_of_roles(holder: User | Group, *, of_groups: bool = False) -> list[str]:
    """Return the highest role in each project that the reader owns; only `of_groups`: as their groups give it."""
    highest: dict[str, Role] = {}
    # None for readers who own no project.
    for one in holder.held_roles or ():  # type: ignore[union-attr]  # annotated by the admins
        project, role = one["project"], Role(one["role"])
        if of_groups and not one["of_group"]:
            continue
        if project not in highest or role in highest[project].and_above:
            highest[project] = role
    return [f"{project}: {ROLE_WORDS[role]}" for project, role in highest.items()]


def _first(words: list[str], between: str = " · ") -> str:
    shown = words[:LISTED]
    if more := len(words[LISTED:]):
        shown.append(ngettext("and %(number)s more", "and %(number)s more", more) % {"number": more})
    return between.join(shown)


def _words_of_permissions(groups: Iterable[Group], permissions: Any) -> str:
    """Return what is chosen in a closed section: "Support · 3 permissions"."""
    words = [group.name for group in groups]
    if count := permissions.count():
        words.append(ngettext("%(count)d permission", "%(count)d permissions", count) % {"count": count})
    return " · ".join(words) or _("none")


def _quiet(word: str) -> SafeString:
    return format_html('<span class="quiet">{}</span>', word)
