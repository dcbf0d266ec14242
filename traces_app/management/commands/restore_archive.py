"""manage.py restore_archive: bring archived periods, projects or sessions back into the database."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from access_app.audit.record import AuditedCommand
from access_app.traces_command import TracesCommand
from traces_app.management.archive_arguments import archive_errors, check_period, require_extra
from traces_app.management.row_arguments import message_bar


class Command(TracesCommand, AuditedCommand):
    needs_project = True
    help = (
        "Bring what is archived back into the database, as the same rows: all of it, or that of a project, a period and a session. "
        "The files are compared with their SHA-256 first. Messages that the database has stay as they are. The archive keeps its "
        "files. Exit status: 0 done, 1 not done or only partly, 2 invalid arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", metavar="DIR|URL", help="the folder of the archive, as in `archive --to`")
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument(
            "--period",
            metavar="PERIOD",
            help="only this month, such as 2026-01, or a week or day of it that was archived by itself",
        )
        parser.add_argument("--session", metavar="ID", help="only this session: its id, or its external id")

    def handle(
        self, *, folder: str, project: str | None, period: str | None, session: str | None, **options: Any
    ) -> None:
        require_extra()
        from traces_app.maintenance.archive.folder import open_folder  # the extra may be missing
        from traces_app.maintenance.archive.restoring import restore

        period = check_period(period)
        with archive_errors(), message_bar() as bar:
            report = restore(
                self.db, open_folder(folder), project=project, period=period, session=session, progress=bar.update
            )
        for slug, period in report.restored:
            self.stdout.write(f"Read {period} of {slug}")
        for name, rows in report.rows.items():
            if rows:
                self.stdout.write(f"  {name:<12} {rows:,} restored")
        if report.messages_there:
            self.stdout.write(f"  {report.messages_there:,} messages stay as the database has them")
