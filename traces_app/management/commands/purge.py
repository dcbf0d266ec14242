"""manage.py purge: remove sessions, messages and their traces for good, by age or by time in the trash."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand
from access_app.audit.trail import note_counts
from access_app.models import AuditAction
from messages_app.sql.partitions import MonthInUse
from messages_app.timestamps import instant_text
from traces_app.maintenance.purge import Report, Scope, purge, survey
from traces_app.management.row_arguments import (
    add_projects,
    confirm,
    message_bar,
    moment,
    projects_named,
    session_named,
)

NO_AGE = (
    "Choose what to purge: --older-than DAYS|DATE (by age, in the trash or not), --deleted-longer-than "
    "DAYS|DATE or --trash (by time in the trash), or both. To purge a single session, delete it, then run: purge "
    "--session ID --deleted-longer-than 0."
)


class Command(AuditedCommand):
    action = AuditAction.PURGE
    object_type = "session"
    help = (
        "Permanently remove sessions, and messages with their steps, calls, results and references. Safe "
        "to interrupt and to run again, also while agents write. Digests of ids, without content, are "
        "kept for 30 days, so that senders cannot restore removed data. Tools are kept. With both ages, "
        "rows that match either are removed. Exit status: 0 done, 1 not done or only partly, 2 invalid "
        "arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            metavar="DAYS|DATE",
            help=(
                "messages created before this time, in the trash or not, and sessions started before it "
                "that have no messages left. A number of days, a date (00:00 UTC) or a time such as "
                "2026-01-31T09:30:00Z; the time itself is excluded. Months that are removed completely "
                "are dropped at once."
            ),
        )
        parser.add_argument(
            "--deleted-longer-than",
            metavar="DAYS|DATE",
            help="sessions and messages that were moved to the trash before this time",
        )
        parser.add_argument(
            "--trash",
            action="store_true",
            help="sessions and messages that are in the trash for longer than TRACESITE_TRASH_DAYS; nothing if that is 0",
        )
        add_projects(parser)
        parser.add_argument(
            "--session",
            metavar="ID",
            help="only this session: its id, or its external id (with --project if several sessions have it)",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be removed")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(
        self,
        *,
        older_than: str | int | None,
        deleted_longer_than: str | int | None,
        trash: bool,
        project: str | list[str],
        session: str | None,
        dry_run: bool,
        yes: bool,
        json: bool,
        **options: Any,
    ) -> None:
        if trash and deleted_longer_than is not None:
            raise CommandError("Use either --trash or --deleted-longer-than.", returncode=2)
        if trash and settings.TRASH_DAYS:
            deleted_longer_than = settings.TRASH_DAYS
        if older_than is None and deleted_longer_than is None:
            if trash:
                self.stderr.write("TRACESITE_TRASH_DAYS is 0: what is in the trash is kept.")
                return
            raise CommandError(NO_AGE, returncode=2)
        projects = projects_named(project)
        slugs = [found.slug for found in projects]
        wanted = session_named(session, projects) if session is not None else None
        if session is not None and wanted is None:
            self.stderr.write(f"Session {session!r} is already purged.")
            return
        scope = Scope(
            created_before=moment("--older-than", older_than),
            deleted_before=moment("--deleted-longer-than", deleted_longer_than),
            project_ids=tuple(found.pk for found in projects) or None,
            session_id=wanted,
        )
        counted = survey(scope) if dry_run or not yes else None
        if dry_run:
            assert counted is not None, "a dry run counts"
            self._print(scope, slugs, counted, json=json, verb="Would remove")
            return
        if counted is not None and not counted.is_empty:
            confirm(self, _in_words(scope, slugs, counted, "This will remove"))
        report = Report()
        total = counted.tables["messages"].rows if counted else None
        try:
            with message_bar(total) as bar:
                purge(scope, report=report, progress=bar.update)
        except MonthInUse as error:
            self._print(scope, slugs, report, json=json, verb="Removed so far", is_complete=False)
            raise CommandError(f"{error} Run the same command again later to remove the rest.") from error
        note_counts(messages=report.tables["messages"].rows, sessions=report.tables["sessions"].rows)
        self._print(scope, slugs, report, json=json, verb="Removed")

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


def _in_words(scope: Scope, projects: list[str], report: Report, verb: str) -> str:
    named = " or ".join(
        f"{condition} {limit:%Y-%m-%dT%H:%M:%SZ}"
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
        lines.append(f"  {report.bytes_freed:,} bytes of disk space freed")
    if report.bytes_reusable:
        lines.append(f"  about {report.bytes_reusable:,} bytes of rows, reusable by the database after its next VACUUM")
    if report.tombstones_forgotten:
        lines.append(f"  {report.tombstones_forgotten:,} tombstones of earlier purges")
    return "\n".join(lines)
