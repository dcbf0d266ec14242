"""Names of projects, users and groups on the command line."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from .models import Project

_PROJECTS_SHOWN = 10


def add_member_arguments(parser: CommandParser) -> None:
    parser.add_argument("--project", required=True, metavar="SLUG")
    member = parser.add_mutually_exclusive_group(required=True)
    member.add_argument("--user", metavar="NAME", help="the name that the user logs in with")
    member.add_argument("--group", metavar="NAME", help="all users of this group")


def project_named(slug: str) -> Project:
    """Return the project with this slug. Raise CommandError with exit status 2."""
    project = Project.objects.filter(slug=slug).first()
    if project is None:
        raise CommandError(f"There is no project {slug!r}. {_projects_in_words()}", returncode=2)
    return project


def _projects_in_words() -> str:
    slugs = list(Project.objects.order_by("slug").values_list("slug", flat=True)[: _PROJECTS_SHOWN + 1])
    if not slugs:
        return "There are no projects yet; create one with: manage.py create_project SLUG"
    more = ", ..." if len(slugs) > _PROJECTS_SHOWN else ""
    return f"Existing projects: {', '.join(slugs[:_PROJECTS_SHOWN])}{more}"


def find_member(user: str | None, group: str | None) -> User | Group:
    """Return the user of a name, else the group. Raise CommandError if there is none."""
    if user is not None:
        found = User.objects.filter(username=user).first()
        if found is None:
            raise CommandError(f"There is no user {user!r}. Create one in the admin under Users.")
        return found
    members = Group.objects.filter(name=group).first()
    if members is None:
        raise CommandError(f"There is no group {group!r}. Create it in the admin under Groups.")
    return members
