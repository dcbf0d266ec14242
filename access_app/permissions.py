"""Authorization: the scopes of API keys, visible projects, and the target project of a write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from .errors import InvalidInput, NotAuthenticated, NotFound, NotPermitted
from .models import ApiKey, Project, Scope
from .visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope, visible_to

if TYPE_CHECKING:
    # That module loads this one, through the settings.
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """Require the scope of the HTTP method, or the view's `required_scope` if it has one.

    GET, HEAD and OPTIONS need read, DELETE needs delete, all others write. Staff have all scopes; `project_scope` limits
    the rows that they apply to.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = getattr(view, "required_scope", None) or _scope_for(request.method or "")
        require_scope(request, scope)
        return True


def require_scope(request: Request, scope: str) -> None:
    """Raise NotAuthenticated without credentials and NotPermitted when they lack the scope.

    For what depends on more than the method: reading deleted rows needs delete.
    """
    if not (request.user and request.user.is_authenticated):
        raise NotAuthenticated(
            _("An API key is required. Send it as “Authorization: Bearer ts_…” or “X-API-Key: ts_…”.")
        )
    key = request.auth
    if isinstance(key, ApiKey) and scope not in key.scopes:
        raise NotPermitted(
            _("The scope “%(scope)s” is required. The key %(prefix)s… has: %(scopes)s.")
            % {"scope": scope, "prefix": key.prefix, "scopes": ", ".join(key.scopes)},
            code="missing_scope",
        )


def may_read(request: Request) -> bool:
    """Return whether the credentials have the scope `read`.

    An answer to a write shows stored data only where they do: a key that may only write must not read with it.
    """
    key = request.auth
    return not isinstance(key, ApiKey) or Scope.READ in key.scopes


def project_scope(request: Request) -> ProjectScope:
    """Return the projects that the request may see: a key's own, all for superusers, none for other staff."""
    key = request.auth
    if isinstance(key, ApiKey):
        return ProjectScope(frozenset({key.project_id}))
    if request.user and request.user.is_superuser:
        return ALL_PROJECTS
    return NO_PROJECTS


def projects_visible_to(request: Request) -> QuerySet[Project]:
    return visible_to(Project.objects.all(), project_scope(request), field="pk")


def project_for_write(request: Request, slug: str | None, field: str = "project") -> Project:
    """Return the project that a write goes to: the named one, else the only visible one.

    Raise NotFound for a project that does not exist or is not visible to the request, and InvalidInput for `field` when
    no project is named and the number of visible projects is not one.
    """
    key = request.auth
    if isinstance(key, ApiKey) and slug in (None, "", key.project.slug):
        return key.project
    projects = projects_visible_to(request)
    if slug:
        # PostgreSQL takes no NUL, and no slug has one.
        project = None if "\x00" in slug else projects.filter(slug=slug).first()
        if project is None:
            raise NotFound(
                _("Project “%(slug)s” does not exist, or you have no access to it.") % {"slug": slug[:64]}, field=field
            )
        return project
    found = list(projects[:2])
    if len(found) != 1:
        raise InvalidInput(_("“%(field)s” is required: the slug of the project.") % {"field": field}, field=field)
    return found[0]


def _scope_for(method: str) -> str:
    if method in SAFE_METHODS:
        return Scope.READ
    return Scope.DELETE if method == "DELETE" else Scope.WRITE
