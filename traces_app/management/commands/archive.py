"""manage.py archive: write periods that have ended to Parquet files, and drop them from the database."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

import msgspec
from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand
from access_app.traces_command import TracesCommand
from messages_app.sql.partitions import PeriodInUse
from traces_app.management.archive_arguments import archive_errors, require_extra
from traces_app.management.row_arguments import add_projects, message_bar, moment, projects_named

if TYPE_CHECKING:
    from traces_app.maintenance.archive.archiving import ArchiveReport, Plan
    from traces_app.maintenance.archive.folder import Folder

_NOTHING = "Nothing to archive: no period that ended before that time has traces."


class Command(TracesCommand, AuditedCommand):
    names_projects = True
    help = (
        "Archive the periods (days, weeks or months) that ended before a time as Parquet files in a folder or object store, one dataset for each table, "
        "by project and period, with a manifest. Everything is read back and compared. A period that has not changed since it "
        "was archived there is not written again. Safe to interrupt and to run again, also while agents write. "
        "Exit status: 0 done, 1 not done or only partly, 2 invalid arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            metavar="DAYS|DATE",
            required=True,
            help="periods that ended before this time: a number of days, a date (00:00 UTC) or a time such as 2026-01-31T09:30:00Z",
        )
        parser.add_argument(
            "--to",
            metavar="DIR|URL",
            required=True,
            help="where archives are kept: a directory, or a URL of a store such as s3://bucket/traces (needs s3fs)",
        )
        add_projects(parser)
        parser.add_argument(
            "--drop",
            action="store_true",
            help="then remove from the database what is archived, at once where a whole period goes",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only list what would be written, and with --drop what would be removed",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(
        self,
        *,
        older_than: str | int,
        to: str,
        project: str | list[str],
        drop: bool,
        dry_run: bool,
        json: bool,
        **options: Any,
    ) -> None:
        require_extra()
        from traces_app.maintenance.archive.archiving import ArchiveReport, archive, plan  # the extra may be missing
        from traces_app.maintenance.archive.folder import open_folder

        before = moment("--older-than", older_than)
        assert before is not None, "it is required"
        projects = projects_named(project)
        report = ArchiveReport()
        with archive_errors(f"--to {to}"):
            folder = open_folder(to)
            if dry_run:
                self._print_plan(folder, plan(self.db, folder, before=before, projects=projects), drop=drop, json=json)
                return
            try:
                with message_bar() as bar:
                    archive(
                        self.db, folder, before=before, projects=projects, drop=drop, report=report, progress=bar.update
                    )
            except PeriodInUse as error:
                self._print(folder, report, json=json)
                raise CommandError(f"{error} Run the same command again later to drop the rest.") from error
        self._print(folder, report, json=json)

    def _print(self, folder: Folder, report: ArchiveReport, *, json: bool) -> None:
        if json:
            answer = {
                "url": folder.url,
                "dry_run": False,
                "archived": [
                    {
                        "project": done.project.slug,
                        "period": str(done.period),
                        "is_new": done.is_new,
                        "rows": {name: file.rows for name, file in done.manifest.tables.items()},
                        "bytes": done.manifest.size,
                    }
                    for done in report.archived
                ],
                "dropped_periods": report.dropped.periods,
                "dropped": {name: table.rows for name, table in report.dropped.tables.items()},
                "messages_kept": report.messages_kept,
            }
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())
            return
        if not report.archived:
            self.stdout.write(_NOTHING)
        for done in report.archived:
            state = "archived" if done.is_new else "is archived already, unchanged"
            self.stdout.write(
                f"{done.period} of {done.project.slug} {state}: {done.manifest.rows:,} rows in {done.manifest.size:,} bytes "
                f"in {folder.url}"
            )
        if report.dropped.periods:
            self.stdout.write(f"Dropped at once: {', '.join(report.dropped.periods)}")
        dropped = {name: table for name, table in report.dropped.tables.items() if table.rows}
        for name, table in dropped.items():
            self.stdout.write(f"  {name:<12} {'about ' if table.is_estimate else ''}{table.rows:,} removed")
        if report.messages_kept:
            self.stdout.write(
                f"{report.messages_kept:,} messages stay, because they have changed since. Run the same command again."
            )

    def _print_plan(self, folder: Folder, plan: Plan, *, drop: bool, json: bool) -> None:
        messages = sum(planned.messages for planned in plan.periods)
        if json:
            answer = {
                "url": folder.url,
                "dry_run": True,
                "archived": [
                    {
                        "project": planned.project.slug,
                        "period": str(planned.period),
                        "is_new": planned.is_new,
                        "rows": {"messages": planned.messages},
                    }
                    for planned in plan.periods
                ],
                "dropped_periods": [str(period) for period in plan.dropped_at_once] if drop else [],
                "dropped": {"messages": messages if drop else 0},
            }
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())
            return
        if not plan.periods:
            self.stdout.write(_NOTHING)
            return
        for planned in plan.periods:
            state = f"would be archived in {folder.url}" if planned.is_new else "is archived already, unchanged"
            self.stdout.write(f"{planned.period} of {planned.project.slug} {state}: {planned.messages:,} messages")
        if drop:
            if plan.dropped_at_once:
                self.stdout.write(f"Would drop at once: {', '.join(map(str, plan.dropped_at_once))}")
            self.stdout.write(
                f"Would remove from the database: {messages:,} messages, what is below them, and sessions without other messages"
            )
