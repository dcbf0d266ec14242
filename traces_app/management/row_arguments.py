"""Shared parts of commands about traces: arguments and the rows that they name, confirmation, progress."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Never, Protocol, TypeVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q
from django.utils import timezone
from tqdm import tqdm

from access_app.arguments import project_named
from access_app.db import Database
from access_app.models import Project
from messages_app.models import Session, SessionTombstone, session_key
from messages_app.timestamps import instant_text, parse_limit
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.records import ids

_SHOWN = 20


class _State(Protocol):
    """The progress of a run over messages."""

    reached: UUID | None
    """The last message that is done."""


_SomeState = TypeVar("_SomeState", bound=_State)


def add_projects(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--project", action="append", default=[], metavar="SLUG", help="only this project; may be repeated"
    )


def projects_named(project: str | Sequence[str]) -> list[Project]:
    """Return the projects of `add_projects`, each once; call_command may give one slug. Raise CommandError like project_named."""
    return [project_named(slug) for slug in dict.fromkeys([project] if isinstance(project, str) else project)]


def session_named(db: Database, name: str, projects: Sequence[Project]) -> UUID | None:
    """Return the session with this id or external id, in the trash or not; None if it was purged.

    Search in `projects`, or in all if they are empty. Raise CommandError with exit status 2.
    """
    named = db.rows(Session.with_deleted).filter(Q(pk=hyphenated_uuid(name)) | Q(external_id=name))
    if projects:
        named = named.filter(project__in=projects)
    sessions = list(named.select_related("project")[:_SHOWN]) if name else []
    if len(sessions) > 1:
        several = ", ".join(f"{session.pk} in {session.project.slug}" for session in sessions)
        raise CommandError(
            f"Several sessions have the external id {name!r}: {several}. Use the id, or add --project.", returncode=2
        )
    if sessions:
        return sessions[0].pk
    keys = [session_key(project.pk, name) for project in projects or Project.objects.all()]
    if not db.rows(SessionTombstone.objects).filter(key__in=keys).exists():
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


def moment(option: str, value: str | int | None) -> datetime | None:
    """Parse a number of days, a date or an RFC 3339 time into a time in the past."""
    if value is None:
        return None
    text, now = str(value).strip(), timezone.now()
    try:
        if text.isascii() and text.isdigit():
            # Limited to the days since 2000, because no message is older.
            time = now - timedelta(days=min(int(text), (now - ids.EARLIEST).days + 1))
        else:
            time = parse_limit(text)
    except ValueError as error:
        raise CommandError(
            f"{option} {text}: use a number of days, a date such as 2026-01-31 or a time such as 2026-01-31T09:30:00Z.",
            returncode=2,
        ) from error
    if time > now:
        raise CommandError(f"{option} {text} is in the future; 0 means everything until now.", returncode=2)
    return max(time, ids.EARLIEST)


def confirm(command: BaseCommand, summary: str = "") -> None:
    """Show what will be removed, and ask. Raise CommandError if the answer is not yes; with exit status 2 without a terminal."""
    if not sys.stdin.isatty():
        raise CommandError(
            "Confirmation needs a terminal. Use --yes to skip it, or --dry-run to only count.", returncode=2
        )
    if summary:
        command.stderr.write(summary)
    command.stderr.write("This cannot be undone. Type yes to continue: ", ending="")
    command.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was removed.")


def message_bar(total: int | None = None) -> tqdm[Never]:
    """Return a progress bar of messages on standard error."""
    # disable=None shows the bar only on a terminal.
    return tqdm(total=total, unit=" messages", unit_scale=True, disable=None, file=sys.stderr)


def last_of(
    states: Iterable[_SomeState], done: _SomeState, in_words: Callable[[_SomeState], str], from_: str | None
) -> _SomeState:
    """Return the last state of a run, `done` if it has none. Raise CommandError if it is interrupted: where to continue."""
    try:
        for state in states:
            done = state
    except KeyboardInterrupt as error:
        reached = instant_text(ids.created_at_of(done.reached)) if done.reached else from_ or "the beginning"
        raise CommandError(f"Interrupted. {in_words(done)} Continue with: --from {reached}") from error
    return done
