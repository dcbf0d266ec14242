"""Read times and look up the rows that are named on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.db.models import Q

from access_app.models import Project
from messages_app.models import Session, SessionTombstone, session_key
from messages_app.timestamps import parse_limit
from traces_app.normalize.records import hyphenated_uuid

_SHOWN = 20


def session_named(name: str, projects: Sequence[Project]) -> UUID | None:
    """Return the session with this id or external id, in the trash or not; None if it was purged.

    Search in `projects`, or in all if they are empty. Raise CommandError with exit status 2.
    """
    named = Session.with_deleted.filter(Q(pk=hyphenated_uuid(name)) | Q(external_id=name))
    if projects:
        named = named.filter(project__in=projects)
    found = list(named.select_related("project")[:_SHOWN]) if name else []
    if len(found) > 1:
        several = ", ".join(f"{session.pk} in {session.project.slug}" for session in found)
        raise CommandError(
            f"Several sessions have the external id {name!r}: {several}. Use the id, or add --project.", returncode=2
        )
    if found:
        return found[0].pk
    keys = [session_key(project.pk, name) for project in projects or Project.objects.all()]
    if not SessionTombstone.objects.filter(key__in=keys).exists():
        raise CommandError(f"There is no session {name!r}.", returncode=2)
    return None


def add_time_range(parser: CommandParser) -> None:
    parser.add_argument("--from", metavar="TIME", dest="from_", help="only messages from this date (00:00 UTC) or time")
    parser.add_argument("--until", metavar="TIME", help="only messages before this date or time")


def time_named(option: str, value: str | None) -> datetime | None:
    """Return the time of an option, None if it is not given. Raise CommandError with exit status 2."""
    if value is None:
        return None
    try:
        return parse_limit(value)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", returncode=2) from error
