"""Roles of people in projects: the one place that decides which rows a login may read or change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy
from rest_framework.request import Request

from access_app.db import PEOPLE_ARE_HERE, primary

from .audit.record import record
from .audit.trail import Actor, actor_of, note_readable
from .models import AuditAction, Membership, Project, Role
from .suggestions import MOST_SUGGESTED, Suggestion
from .visibility import ALL_PROJECTS, ProjectScope, visible_to

ROLE_WORDS: Final[Mapping[Role, Any]] = {
    Role.VIEWER: gettext_lazy("viewer"),
    Role.ANALYST: gettext_lazy("analyst"),
    Role.EDITOR: gettext_lazy("editor"),
    Role.OWNER: gettext_lazy("owner"),
}
"""In one word."""


@dataclass(frozen=True)
class Access:
    """The role of a login in each project."""

    roles: Mapping[int, Role] | None
    """Roles by id of the project; None for superusers, who own every project."""

    def scope(self, role: Role) -> ProjectScope:
        """Return the projects in which the login has this role or a higher one."""
        if self.roles is None:
            return ALL_PROJECTS
        return ProjectScope(frozenset(key for key, held in self.roles.items() if held in role.and_above))

    def allows(self, role: Role, project_id: int | None = None) -> bool:
        """Return whether the login has this role or a higher one in the project; in any project if none is given."""
        if self.roles is None:
            return True
        if project_id is None:
            return any(held in role.and_above for held in self.roles.values())
        return self.roles.get(project_id) in role.and_above


_NONE = Access(roles={})


def access(request: HttpRequest | Request) -> Access:
    """Return the access of the login of a request, read once for each request."""
    # DRF's request has the attributes of Django's, but may have another user: of a key instead of the login.
    user, allowed = getattr(request, "access_of_login", (None, _NONE))
    if user != request.user:
        allowed = access_of(request.user)
        request.access_of_login = request.user, allowed  # type: ignore[union-attr]
        note_readable(actor_of(request), allowed.scope(Role.VIEWER))
    return allowed


def access_of(user: User | AnonymousUser) -> Access:
    """Return the access of a login: none unless it is active staff.

    One query, two if users are in another database, none for superusers.
    """
    if not (user.is_active and user.is_staff):
        return _NONE
    if user.is_superuser:
        return Access(roles=None)
    of_groups = (
        Q(group__user=user.pk) if PEOPLE_ARE_HERE else Q(group__in=list(user.groups.values_list("pk", flat=True)))
    )
    rows = Membership.objects.filter(Q(user=user.pk) | of_groups).values_list("project_id", "role")
    roles: dict[int, Role] = {}
    for project_id, name in rows:
        role, held = Role(name), roles.get(project_id)
        if held is None or role in held.and_above:
            roles[project_id] = role
    return Access(roles)


def is_owned(memberships: Iterable[Membership]) -> bool:
    """Return whether one of these gives the role of an owner to an active user, or to a group of one. At most one query, if they are read with users.

    Who is given a role becomes staff, but not who has it by a group.
    """
    owners = [one for one in memberships if one.role == Role.OWNER]
    if any(one.user is not None and one.user.is_active for one in owners):
        return True
    groups = [one.group_id for one in owners if one.group_id is not None]
    return bool(groups) and get_user_model().objects.filter(groups__in=groups, is_active=True, is_staff=True).exists()


def people_of(access: Access) -> frozenset[int] | None:
    """Return the ids of the users who have a role in any of the projects of a login, and of all superusers; None for a superuser, who
    has something in common with everybody. Two queries."""
    if access.roles is None:
        return None
    members = Membership.objects.filter(project__in=access.roles).values_list("user_id", "group_id")
    users = {user for user, _group in members if user is not None}
    groups = {group for _user, group in members if group is not None}
    of_groups = get_user_model().objects.filter(Q(groups__in=groups) | Q(is_superuser=True))
    return frozenset({*users, *of_groups.values_list("pk", flat=True)})


def suggested_users(known: Access, project: Project) -> list[Suggestion]:
    """Return the names of active users whom a login may know of and who have no role of their own in a project, a few queries."""
    members = project.memberships.exclude(user=None).values_list("user_id", flat=True)
    users = get_user_model().objects.filter(is_active=True).exclude(pk__in=list(members))
    if (people := people_of(known)) is not None:
        users = users.filter(pk__in=people)
    return [(user.username, user.get_full_name()) for user in users.order_by("username")[:MOST_SUGGESTED]]


def suggested_groups(known: Access, project: Project) -> list[Suggestion]:
    """Return the names of groups with a role in another project of a login, but none in this one."""
    of_projects = known.scope(Role.VIEWER)
    groups = visible_to(Membership.objects.exclude(group=None), of_projects).values_list("group_id", flat=True)
    members = project.memberships.exclude(group=None).values_list("group_id", flat=True)
    found = Group.objects.filter(pk__in=set(groups).difference(members)).order_by("name")
    return [(name, "") for name in found.values_list("name", flat=True)[:MOST_SUGGESTED]]


@primary.atomic()
def grant_role(
    project: Project, member: User | Group, role: Role, *, actor: Actor | None = None, before: str = ""
) -> Membership:
    """Give a user or group a role in a project, in place of the one that they have there.

    A user becomes staff, because only staff can log in. `before` is the role that they had, if it is stored no longer.
    """
    holder = {"group": member} if isinstance(member, Group) else {"user": member}
    held = Membership.objects.filter(project=project, **holder).values_list("role", flat=True).first()
    membership, _created = Membership.objects.update_or_create(project=project, **holder, defaults={"role": role})
    becomes_staff = False
    if not isinstance(member, Group) and not member.is_staff:
        member.is_staff = becomes_staff = True
        member.save(update_fields=["is_staff"])
    before = before or held or ""
    record_role(AuditAction.ROLE_GRANT, actor, project, member, role, before=before, becomes_staff=becomes_staff)
    return membership


@primary.atomic()
def revoke_role(project: Project, member: User | Group, *, actor: Actor | None = None) -> bool:
    """Take the role of a user or group in a project away. Return False if they have none."""
    holder = {"group": member} if isinstance(member, Group) else {"user": member}
    held = Membership.objects.filter(project=project, **holder)
    before = held.values_list("role", flat=True).first()
    if before is None:
        return False
    held.delete()
    record_role(AuditAction.ROLE_REVOKE, actor, project, member, before=before)
    return True


def record_role(
    action: AuditAction,
    actor: Actor | None,
    project: Project,
    member: User | Group,
    role: Role | None = None,
    *,
    before: str = "",
    becomes_staff: bool = False,
) -> None:
    """Record a role that was granted, or None for one that was revoked, with the role before it."""
    detail: dict[str, str | dict[str, list[str]]] = {} if role is None else {"role": role.value}
    if before == role:  # a form has stored it
        before = ""
    changes = {"role": [before, role or ""]} if before or becomes_staff else {}
    if becomes_staff:
        changes["is_staff"] = ["false", "true"]
    if changes:
        detail["changes"] = changes
    record(
        action,
        actor,
        project_id=project.pk,
        object_type="group" if isinstance(member, Group) else "user",
        object_id=member.pk,
        object_name=str(member),
        detail=detail,
    )
