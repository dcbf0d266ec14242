"""Authorization: the scopes of API keys, visible projects, and the target project of a write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from access_app.db import primary
from access_app.places import aliases_of, refuse_several
from access_app.request_database import is_only, use_alias, use_database_of

from .audit.trail import actor_of, note_scope
from .errors import InvalidInput, NotAuthenticated, NotFound, NotPermitted
from .models import ApiKey, Project, Role, Scope
from .roles import access
from .visibility import ProjectScope, visible_to

if TYPE_CHECKING:
    # That module loads this one, through the settings.
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """Require the scope of the HTTP method, or the view's `required_scope` if it has one.

    GET, HEAD and OPTIONS need read, DELETE needs delete, all others write. Logins have the scopes of their roles;
    `project_scope` limits the rows that they apply to.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        require_scope(request, _needed_scope(request, view))
        return True


ROLE_OF_SCOPE = {Scope.READ: Role.VIEWER, Scope.WRITE: Role.EDITOR, Scope.DELETE: Role.EDITOR}
"""The role that a login needs for what a key needs a scope for."""


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
    role = ROLE_OF_SCOPE[Scope(scope)]
    if key is None and not access(request).allows(role):
        raise NotPermitted(
            _("The role “%(role)s” is required. An owner of the project or a superuser can give it to you.")
            % {"role": role.value},
            code="missing_role",
        )


def may_read(request: Request) -> bool:
    """Return whether the credentials have the scope `read`.

    An answer to a write shows stored data only where they do: a key that may only write must not read with it.
    """
    key = request.auth
    return not isinstance(key, ApiKey) or Scope.READ in key.scopes


def owned_projects(request: Request) -> ProjectScope:
    """Return the projects that a login owns. Raise NotPermitted for a login that owns none, and for every key."""
    if request.auth is not None or not access(request).allows(Role.OWNER):
        raise NotPermitted(
            _("Log in as an owner of the project or as a superuser. API keys have no access."), code="missing_role"
        )
    scope = access(request).scope(Role.OWNER)
    note_scope(actor_of(request), scope)
    return scope


def project_scope(request: Request, scope: str | None = None, *, in_several: bool = False) -> ProjectScope:
    """Return the projects that the request may act on: a key's own; those in which a login has the role for `scope`.

    `scope` defaults to the one that the method or the view needs. Raise InvalidInput if they are in several databases, unless
    the request reads them `in_several`.
    """
    key = request.auth
    if isinstance(key, ApiKey):
        return ProjectScope(frozenset({key.project_id}))
    needed = scope or _needed_scope(request, request.parser_context["view"])
    allowed = access(request).scope(ROLE_OF_SCOPE[Scope(needed)])
    note_scope(actor_of(request), allowed)
    if not (in_several or names_database(request)):
        refuse_several(allowed)
    return allowed


def choose_database(request: Request, view: APIView) -> None:
    """Let a request without a project read and write where all projects are that it may act on, if that is one database."""
    if is_only(primary) or names_database(request):
        return
    found = aliases_of(access(request).scope(ROLE_OF_SCOPE[Scope(_needed_scope(request, view))]))
    if len(found) == 1:
        use_alias(request, *found)


def names_database(request: Request) -> bool:
    """Return whether the request says in which database it reads and writes: by its key, the project, or ids in its path."""
    given = isinstance(request.auth, ApiKey) or request.query_params.get("project")
    return bool(given) or getattr(request, "is_in_one_database", False)


def projects_visible_to(request: Request) -> QuerySet[Project]:
    return visible_to(Project.objects.all(), project_scope(request), field="pk")


def project_in(request: Request | HttpRequest, scope: ProjectScope, slug: str, field: str = "project") -> Project:
    """Return the project with this slug. Raise NotFound, for `field`, if it does not exist or is not in the scope."""
    # PostgreSQL takes no NUL, and no slug has one.
    project = None if "\x00" in slug else visible_to(Project.objects.all(), scope, field="pk").filter(slug=slug).first()
    if project is None:
        raise NotFound(
            _("Project “%(slug)s” does not exist, or you have no access to it.") % {"slug": slug[:64]}, field=field
        )
    note_scope(actor_of(request), ProjectScope(frozenset({project.pk})))
    return project


def project_for_write(request: Request, slug: str | None, field: str = "project") -> Project:
    """Return the project that a write goes to: the named one, else the only visible one.

    Raise NotFound for a project that does not exist or is not visible to the request, and InvalidInput for `field` when
    no project is named and the number of visible projects is not one.
    """
    key = request.auth
    if isinstance(key, ApiKey) and slug in (None, "", key.project.slug):
        return key.project
    if slug:
        project = project_in(request, project_scope(request), slug, field)
        use_database_of(request, project.pk)
        return project
    projects = list(projects_visible_to(request)[:2])
    if len(projects) != 1:
        raise InvalidInput(_("“%(field)s” is required: the slug of the project.") % {"field": field}, field=field)
    note_scope(actor_of(request), ProjectScope(frozenset({projects[0].pk})))
    use_database_of(request, projects[0].pk)
    return projects[0]


def _needed_scope(request: Request, view: APIView) -> str:
    required: str | None = getattr(view, "required_scope", None)
    if required is not None:
        return required
    if request.method in SAFE_METHODS:
        return Scope.READ
    return Scope.DELETE if request.method == "DELETE" else Scope.WRITE
