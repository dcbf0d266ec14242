"""Names of projects, users and groups on the command line, and numbers."""

from __future__ import annotations

from argparse import ArgumentTypeError

from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from .models import PREFIX_LENGTH, ApiKey, Project
from .program import program

_PROJECTS_SHOWN = 10


def add_member_arguments(parser: CommandParser) -> None:
    parser.add_argument("--project", required=True, metavar="SLUG")
    member = parser.add_mutually_exclusive_group(required=True)
    member.add_argument("--user", metavar="NAME", help="the name that the user logs in with")
    member.add_argument("--group", metavar="NAME", help="all users of this group")


def positive_number(text: str) -> int:
    """Read a whole number from 1 on, as the `type` of an argument."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def project_named(slug: str) -> Project:
    """Return the project with this slug. Raise CommandError with exit status 2."""
    project = Project.objects.filter(slug=slug).first()
    if project is None:
        raise CommandError(f"There is no project {slug!r}. {_projects_in_words()}", returncode=2)
    return project


def _projects_in_words() -> str:
    slugs = list(Project.objects.order_by("slug").values_list("slug", flat=True)[: _PROJECTS_SHOWN + 1])
    if not slugs:
        return f"There are no projects yet; create one with: {program()} create_project SLUG"
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


def key_named(key: str) -> ApiKey:
    """Return the API key that begins like this, or has this id. Raise CommandError."""
    keys = ApiKey.objects.select_related("project")
    if not key.isdecimal() and len(key) < PREFIX_LENGTH:
        raise CommandError(
            f"{key!r} is too short: give the first {PREFIX_LENGTH} characters of the key, or its id. Both are listed by: "
            f"{program()} list_api_keys"
        )
    # Whoever has only the key itself, because it leaked, may give it whole.
    found = list(keys.filter(pk=int(key)) if key.isdecimal() else keys.filter(prefix=key[:PREFIX_LENGTH]))
    if not found:
        raise CommandError(
            f"No API key has this id or begins with {key[:PREFIX_LENGTH]!r}. List them with: {program()} list_api_keys"
        )
    if len(found) > 1:
        ids = ", ".join(str(each.pk) for each in found)
        raise CommandError(f"Several API keys begin with {key[:PREFIX_LENGTH]!r}. Use one of their ids: {ids}")
    return found[0]
