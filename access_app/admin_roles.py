"""The admin for members of projects: they see the rows of their projects, and the actions that their role allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from .audit.trail import note_objects
from .models import AuditAction, Role
from .roles import access
from .visibility import ProjectScope, visible_to

if TYPE_CHECKING:
    AnyModelAdmin = admin.ModelAdmin[Any]
else:  # not generic at run time
    AnyModelAdmin = admin.ModelAdmin


class RoleAdmin(AnyModelAdmin):
    """Admin of rows that belong to projects. Django's own permissions, which know no projects, do not count here."""

    project_path: ClassVar[str] = "project_id"
    """Where the rows carry the id of their project."""
    view_role: ClassVar[Role] = Role.VIEWER
    change_role: ClassVar[Role | None] = None
    """Who may change a row; None: nobody. So with `add_role`."""
    add_role: ClassVar[Role | None] = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return visible_to(super().get_queryset(request), self.scope(request), self.project_path)

    def scope(self, request: HttpRequest, role: Role | None = None) -> ProjectScope:
        """Return the projects in which the reader has a role, by default the one that is needed to view rows."""
        return access(request).scope(role or self.view_role)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return access(request).allows(self.view_role)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allows(request, self.view_role, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.allows(request, self.add_role)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allows(request, self.change_role, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def allows(self, request: HttpRequest, role: Role | None, obj: Any = None) -> bool:
        """Return whether the reader has the role in the project of a row; without a row, in any project."""
        if role is None:
            return False
        if obj is None:
            return access(request).allows(role)
        self.note(obj)
        return access(request).allows(role, getattr(obj, self.project_path))

    def note(self, obj: Any, action: AuditAction | None = None) -> None:
        """Note a row for the audit log; with an action, that it was written."""
        project_id = getattr(obj, self.project_path)
        note_objects(self.opts.model_name or "", [obj.pk], project_id=project_id, action=action)
