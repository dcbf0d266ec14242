"""The admin for members of projects: they see the rows of their projects, and the pages and actions that their role allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from access_app.request_database import database

from .audit.trail import actor_of, note_objects
from .db import Rows
from .db.reading import is_of_traces
from .models import AuditAction, Role
from .roles import access
from .visibility import ProjectScope, visible_to

if TYPE_CHECKING:
    AnyModelAdmin = admin.ModelAdmin[Any]
else:  # not generic at run time
    AnyModelAdmin = admin.ModelAdmin


@dataclass(frozen=True)
class Page:
    """A page of an admin beside Django's own ones. Only those who may view the admin's rows get it."""

    route: str
    """Below the address of the list."""
    view: Callable[..., HttpResponseBase]
    """Takes the admin, the request and the parameters of the route."""
    name: str
    """The action of the page in one word, which the audit log uses: see `access_app.audit.requests`."""
    checks_csrf: bool = False
    """Whether the view does Django's check of CSRF itself, because that reads the body of a form."""

    def url(self, model_admin: AnyModelAdmin) -> URLPattern:
        """Return the route of the page, whose name is that of the model and of the page."""

        def show(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
            if not model_admin.has_view_permission(request):
                raise PermissionDenied
            return self.view(model_admin, request, **parameters)

        view = model_admin.admin_site.admin_view(csrf_exempt(show) if self.checks_csrf else show)
        return path(self.route, view, name=url_name(model_admin, self.name))


def url_name(model_admin: AnyModelAdmin, page: str) -> str:
    """Return the name of the URL of a page, without the namespace of the admin."""
    return f"{model_admin.opts.app_label}_{model_admin.opts.model_name}_{page}"


class RoleAdmin(AnyModelAdmin):
    """Admin of rows that belong to projects. Django's own permissions, which know no projects, do not count here."""

    pages: ClassVar[Sequence[Page]] = ()

    project_path: ClassVar[str] = "project_id"
    """The lookup from a row to the id of its project."""
    view_role: ClassVar[Role] = Role.VIEWER
    change_role: ClassVar[Role | None] = None
    """The role that may change a row; None: nobody. So with `add_role`."""
    add_role: ClassVar[Role | None] = None

    def get_urls(self) -> list[URLPattern]:
        return [*(page.url(self) for page in self.pages), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if is_of_traces(self.model):
            rows = database(request).rows_of(rows)
        return visible_to(rows, self.scope(request), self.project_path)

    def rows_of(self, request: HttpRequest, manager: Rows) -> Rows:
        """Return a manager of the model for the rows in the database of the request."""
        return database(request).rows(manager)

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

    def has_editor_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether actions with the permission "editor" are offered; so with "owner"."""
        return self.allows(request, Role.EDITOR, obj)

    def has_owner_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allows(request, Role.OWNER, obj)

    def allows(self, request: HttpRequest, role: Role | None, obj: Any = None) -> bool:
        """Return whether the reader has the role in the project of a row; without a row, in any project."""
        if role is None:
            return False
        if obj is None:
            return access(request).allows(role)
        self.note(request, obj)
        return access(request).allows(role, getattr(obj, self.project_path))

    def note(self, request: HttpRequest, obj: Any, action: AuditAction | None = None) -> None:
        """Note a row for the audit log; with an action, that it was written."""
        project_id = getattr(obj, self.project_path)
        note_objects(actor_of(request), self.opts.model_name or "", [obj.pk], project_id=project_id, action=action)
