"""Names of projects, users and groups on the command line, and numbers."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from .models import PREFIX_LENGTH, ApiKey, KeptStatus, Project, RetentionWay
from .program import program
from .retention import DAYS_FIELDS, EXCEPTION_FIELDS, MOST_DAYS
from .users import user_named

NEVER = "never"
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


def add_retention_arguments(parser: CommandParser, *days: str) -> None:
    """Add the rules for how long a project keeps its data; `days` are the names of the option with the days of live data."""
    parser.add_argument(
        *days,
        dest="retention_days",
        type=_days_or_never,
        metavar="DAYS|never",
        help="days after which `purge --policy` removes messages for good (default: never)",
    )
    parser.add_argument(
        "--trash-days",
        type=_days_or_never,
        metavar="DAYS|never",
        help="days in the trash; never: TRACESITE_TRASH_DAYS decides (default)",
    )
    parser.add_argument(
        "--way",
        dest="retention_way",
        choices=RetentionWay.values,
        help="exact: each message on its day (default); whole: by whole partitions (days, weeks or months), up to one period later, at once",
    )
    parser.add_argument(
        "--keep-tag",
        dest="keep_tags",
        action="append",
        metavar="TAG",
        help="sessions with this tag are kept whatever their age; may be repeated",
    )
    parser.add_argument(
        "--keep-status", dest="keep_statuses", action="append", choices=KeptStatus.values, help="likewise by status"
    )
    parser.add_argument(
        "--keep-score",
        dest="keep_scores",
        action="append",
        metavar="SCORE",
        help="likewise by score, also of a message or call: helpful, 'rating>=4' or 'quality<=0.3'",
    )
    parser.add_argument(
        "--keep-pinned",
        action="store_const",
        const=True,
        help="keep pinned sessions",
    )


def set_retention_fields(project: Project, options: Mapping[str, Any]) -> bool:
    """Set the rules that were given to the project, without saving it; return whether there were any."""
    given = {name: options[name] for name in (*DAYS_FIELDS, *EXCEPTION_FIELDS) if options.get(name) is not None}
    for name, value in given.items():
        setattr(project, name, None if value == NEVER else value)
    return bool(given)


def retention_in_words(project: Project) -> str:
    """Return the rules of a project in English, for commands."""
    if project.retention_days is None:
        live = "kept until somebody deletes it"
    elif project.retention_way == "whole":
        live = f"removed after {project.retention_days} days, in whole periods"
    else:
        live = f"removed after {project.retention_days} days"
    trash = "as TRACESITE_TRASH_DAYS says" if project.trash_days is None else f"removed after {project.trash_days} days"
    kept = [
        *(f"tag {tag}" for tag in project.keep_tags),
        *(f"status {status}" for status in project.keep_statuses),
        *(f"score {score}" for score in project.keep_scores),
        *(["pinned"] if project.keep_pinned else []),
    ]
    return f"Data of {project.slug}: {live}. Trash: {trash}. Sessions that are kept: {', '.join(kept) or 'none'}."


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
    """Return the user of a name, else the group. Raise CommandError with exit status 2 if there is none."""
    if user is not None:
        member = user_named(user)
        if member is None:
            raise CommandError(f"There is no user {user!r}. Create one in the admin under Users.", returncode=2)
        return member
    members = Group.objects.filter(name=group).first()
    if members is None:
        raise CommandError(f"There is no group {group!r}. Create it in the admin under Groups.", returncode=2)
    return members


def key_named(key: str) -> ApiKey:
    """Return the API key that begins like this, or has this id. Raise CommandError with exit status 2."""
    keys = ApiKey.objects.select_related("project")
    if not key.isdecimal() and len(key) < PREFIX_LENGTH:
        raise CommandError(
            f"{key!r} is too short: give the first {PREFIX_LENGTH} characters of the key, or its id. Both are listed by: "
            f"{program()} list_api_keys",
            returncode=2,
        )
    # Whoever has only the key itself, because it leaked, may give it whole.
    matches = list(keys.filter(pk=int(key)) if key.isdecimal() else keys.filter(prefix=key[:PREFIX_LENGTH]))
    if not matches:
        raise CommandError(
            f"No API key has this id or begins with {key[:PREFIX_LENGTH]!r}. List them with: {program()} list_api_keys",
            returncode=2,
        )
    if len(matches) > 1:
        ids = ", ".join(str(each.pk) for each in matches)
        raise CommandError(
            f"Several API keys begin with {key[:PREFIX_LENGTH]!r}. Use one of their ids: {ids}", returncode=2
        )
    return matches[0]


def _days_or_never(text: str) -> int | str:
    if text == NEVER:
        return NEVER
    days = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= days <= MOST_DAYS:
        raise ArgumentTypeError(f"{text!r} is neither a number of days from 1 to {MOST_DAYS} nor {NEVER!r}")
    return days
