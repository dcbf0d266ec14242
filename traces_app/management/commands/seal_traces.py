"""manage.py seal_traces: seal the messages that were written since the last time, or also those that were never sealed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.traces_command import TracesCommand
from traces_app.maintenance.seals.sealing import SealReport, log_unsealed, seal_changed
from traces_app.maintenance.seals.verifying import VerifiedRange
from traces_app.management.row_arguments import add_time_range, time_named


class Command(TracesCommand, AuditedCommand):
    help = (
        "Seal the completed messages that were written since the last time, so that verify_traces shows later changes by "
        "SQL. `serve` does it all the time, unless TRACESITE_BACKGROUND_JOBS is off. Safe to interrupt and to run again. Exit "
        "status: 0 done, 2 invalid arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--unsealed",
            action="store_true",
            help="also seal the messages from before sealing, as they are now; what happened to them before, a seal "
            "cannot show",
        )
        parser.add_argument("--project", metavar="SLUG", help="with --unsealed: only those of this project")
        add_time_range(parser)

    def handle(
        self, *, unsealed: bool, project: str | None, from_: str | None, until: str | None, **options: Any
    ) -> None:
        row = project_named(project) if project is not None else None
        scope = VerifiedRange.between(time_named("--from", from_), time_named("--until", until))
        total = seal_changed(self.db, patience=timedelta(0))
        if unsealed:
            for _noted in log_unsealed(self.db, scope.first, scope.after, row.pk if row else None):
                total = _sum(total, seal_changed(self.db, patience=timedelta(0)))
        self.stdout.write(
            f"Sealed {total.sealed:,} messages, sealed {total.resealed:,} again after changes; {total.removed:,} were "
            f"removed, {total.opened:,} opened again."
        )
        if total.refused:
            self.stderr.write(
                f"{total.refused:,} messages have tokens that Tracesite did not make, and were not sealed."
            )


def _sum(left: SealReport, other: SealReport) -> SealReport:
    counts = {name: value + getattr(other, name) for name, value in vars(left).items() if isinstance(value, int)}
    return SealReport(**counts, newest_batch=other.newest_batch or left.newest_batch)
