"""manage.py purge: remove sessions, messages and their traces for good, by age or by time in the trash."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from tqdm import tqdm

from messages_app import ids
from messages_app.sql.partitions import MonthInUse
from messages_app.timestamps import instant_text, parse_instant
from traces_app.maintenance.purge import Report, Scope, purge, survey
from traces_app.management.row_arguments import project_named, session_named

NO_AGE = (
    "Say what is to go: --older-than DAYS|DATE (by age, live and trashed), --deleted-longer-than DAYS|DATE (by time in "
    "the trash), or both. To remove one session whole: delete it, then purge --session ID --deleted-longer-than 0."
)

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Command(BaseCommand):
    help = (
        "Removes messages with their steps, calls, results and references, and sessions, for good. Safe to interrupt and "
        "to run again, also while agents are writing. What it leaves are digests of ids, without content, for 30 days: "
        "until then senders cannot bring back what was removed. Tools stay. With both ages, what either names goes. "
        "Exit status: 0 done, 1 not done or not all of it, 2 called wrongly."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            metavar="DAYS|DATE",
            help="messages made before this, in the trash or not, and sessions begun before it that have no message left; "
            "a number of days, a date (its beginning, UTC) or a time like 2026-01-31T09:30:00Z. What is of exactly that "
            "time stays. Months of which everything goes are dropped whole, at once.",
        )
        parser.add_argument(
            "--deleted-longer-than",
            metavar="DAYS|DATE",
            help="sessions (whole) and messages that were put into the trash before this",
        )
        parser.add_argument(
            "--project", action="append", default=[], metavar="SLUG", help="only of this project; may be repeated"
        )
        parser.add_argument(
            "--session",
            metavar="ID",
            help="only of this session: its id, or its external id (with --project where unclear)",
        )
        parser.add_argument("--dry-run", action="store_true", help="count what would go, change nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(
        self,
        *,
        older_than: str | int | None,
        deleted_longer_than: str | int | None,
        project: str | list[str],
        session: str | None,
        dry_run: bool,
        yes: bool,
        json: bool,
        **options: Any,
    ) -> None:
        if older_than is None and deleted_longer_than is None:
            raise CommandError(NO_AGE, returncode=2)
        slugs = [project] if isinstance(project, str) else list(dict.fromkeys(project))
        projects = [project_named(slug) for slug in slugs]
        wanted = session_named(session, projects) if session is not None else None
        if session is not None and wanted is None:
            self.stderr.write(f"The session {session!r} was purged already.")
            return
        scope = Scope(
            created_before=_moment("--older-than", older_than),
            deleted_before=_moment("--deleted-longer-than", deleted_longer_than),
            project_ids=tuple(found.pk for found in projects) or None,
            session_id=wanted,
        )
        counted = survey(scope) if dry_run or not yes else None
        if dry_run:
            assert counted is not None, "a dry run counts"
            self._print(scope, slugs, counted, json=json, verb="Would remove")
            return
        if counted is not None and not counted.is_empty:
            self._ask(scope, slugs, counted)
        report = Report()
        total = counted.tables["messages"].rows if counted else None
        try:
            # disable=None shows the bar only on a terminal.
            with tqdm(total=total, unit=" messages", unit_scale=True, disable=None, file=sys.stderr) as bar:
                purge(scope, report=report, progress=bar.update)
        except MonthInUse as error:
            self._print(scope, slugs, report, json=json, verb="Removed so far", is_complete=False)
            raise CommandError(f"{error} The rest is left: run the same command again later.") from error
        self._print(scope, slugs, report, json=json, verb="Removed")

    def _ask(self, scope: Scope, projects: list[str], counted: Report) -> None:
        if not sys.stdin.isatty():
            raise CommandError(
                "There is no terminal to ask on: repeat it with --yes, or look first with --dry-run.", returncode=2
            )
        self.stderr.write(_in_words(scope, projects, counted, "This will remove"), ending="\n")
        self.stderr.write("There is no way back. Type yes to go on: ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was removed.")

    def _print(
        self, scope: Scope, projects: list[str], report: Report, *, json: bool, verb: str, is_complete: bool = True
    ) -> None:
        if not json:
            self.stdout.write(_in_words(scope, projects, report, verb))
            return
        answer = {
            "dry_run": verb == "Would remove",
            "is_complete": is_complete,
            "older_than": scope.created_before and instant_text(scope.created_before),
            "deleted_longer_than": scope.deleted_before and instant_text(scope.deleted_before),
            "projects": projects or None,
            "session": scope.session_id,
            **asdict(report),
            "bytes_freed": report.bytes_freed,
            "bytes_reusable": report.bytes_reusable,
        }
        self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())


def _moment(option: str, value: str | int | None) -> datetime | None:
    """Parse a number of days, a date or an RFC 3339 time into a time in the past."""
    if value is None:
        return None
    text, now = str(value).strip(), timezone.now()
    try:
        if text.isascii() and text.isdigit():
            # Limited to the days since 2000, because no message is older.
            found = now - timedelta(days=min(int(text), (now - ids.EARLIEST).days + 1))
        elif _DATE.fullmatch(text):
            found = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            found = parse_instant(text)
    except ValueError as error:
        raise CommandError(
            f"{option} {text}: give a number of days, a date like 2026-01-31 or a time like 2026-01-31T09:30:00Z.",
            returncode=2,
        ) from error
    if found > now:
        raise CommandError(f"{option} {text} lies in the future; 0 means everything up to now.", returncode=2)
    return max(found, ids.EARLIEST)


def _in_words(scope: Scope, projects: list[str], report: Report, verb: str) -> str:
    named = " or ".join(
        f"{condition} {instant_text(limit)}"
        for condition, limit in (("made before", scope.created_before), ("deleted before", scope.deleted_before))
        if limit
    )
    where = (
        f"session {scope.session_id}"
        if scope.session_id
        else f"project {', '.join(projects)}"
        if projects
        else "all projects"
    )
    lines = [f"{verb} what was {named} in {where}:"]
    if report.is_empty:
        lines.append("  nothing")
    if report.months:
        lines.append(f"  whole months: {', '.join(report.months)}")
    for name, table in report.tables.items():
        if table.rows:
            lines.append(f"  {name:<10} {'about ' if table.is_estimate else ''}{table.rows:,}")
    if report.bytes_freed:
        lines.append(f"  {report.bytes_freed:,} bytes on disk, given back")
    if report.bytes_reusable:
        lines.append(
            f"  about {report.bytes_reusable:,} bytes of rows, to be reused by the database after its next VACUUM"
        )
    if report.tombstones_forgotten:
        lines.append(f"  {report.tombstones_forgotten:,} tombstones of earlier purges")
    return "\n".join(lines)
