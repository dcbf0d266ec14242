"""manage.py close_stale_runs: close runs whose sender stopped sending long ago."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from access_app.audit.record import AuditedCommand
from access_app.conf import conf
from access_app.models import AuditAction
from access_app.traces_command import TracesCommand
from traces_app.maintenance.stale_runs import abandon, close, stale_runs, stale_sessions
from traces_app.management.row_arguments import add_projects, projects_named


class Command(TracesCommand, AuditedCommand):
    action = AuditAction.CHANGE
    object_type = "message"
    help = (
        "Close open runs, and sessions that are running without one, that have received no data for some hours. Runs become "
        "completed with the flag `interrupted` and a reason, and their sessions aborted. They continue if their "
        "sender returns. Runs of paused sessions stay open, because they wait for a person. Safe to "
        "interrupt and to run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            metavar="HOURS",
            help=f"hours without data (default: TRACESITE_STALE_RUN_HOURS, {conf.STALE_RUN_HOURS})",
        )
        add_projects(parser)
        parser.add_argument("--dry-run", action="store_true", help="only count the runs that would be closed")

    def handle(self, *, older_than: str | int | None, project: str | list[str], dry_run: bool, **options: Any) -> None:
        hours = _hours(conf.STALE_RUN_HOURS if older_than is None else older_than)
        projects = [each.pk for each in projects_named(project)] or None
        before = timezone.now() - timedelta(hours=hours)
        count = sum(1 for run in stale_runs(self.db, before, projects) if dry_run or close(self.db, run))
        # Afterwards, because sessions whose runs were closed are not open any more.
        others = stale_sessions(self.db, before, projects).count() if dry_run else abandon(self.db, before, projects)
        verb = "Would close" if dry_run else "Closed"
        runs = "run" if count == 1 else "runs"
        self.stdout.write(f"{verb} {count:,} {runs} without data for {hours:g} hours.")
        if others:
            sessions = "session" if others == 1 else "sessions"
            self.stdout.write(f"{verb} {others:,} {sessions} without an open run.")


def _hours(value: str | int) -> float:
    try:
        hours = float(value)
    except ValueError:
        hours = -1.0
    if not 0 < hours <= 1_000_000:
        raise CommandError(f"--older-than {value}: use a number of hours above 0.", returncode=2)
    return hours
