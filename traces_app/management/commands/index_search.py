"""manage.py index_search: bring the search index, the vectors of runs and the patterns of errors up to date, or build a month of it again."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.traces_command import TracesCommand
from messages_app.sql.periods import Period
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.search_index import IndexReport, index_changed, reindex

PAUSE_SECONDS = 1


class Command(TracesCommand):
    help = (
        "Index the messages that were written since the last time, for the search, for similar runs and for groups of errors. `serve` does it all the time, unless "
        "TRACESITE_BACKGROUND_JOBS is off. Safe to interrupt, to run again, and to run several times at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--follow", action="store_true", help="Go on until Ctrl-C or SIGTERM.")
        how.add_argument(
            "--rebuild",
            type=_month,
            metavar="YYYY-MM",
            help="Build the index of a month again; searches find everything meanwhile.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rebuild"]:
            self._tell(reindex(self.db, options["rebuild"]))
        elif options["follow"]:
            while True:
                report = index_changed(self.db)
                if report.messages:
                    self._tell(report)
                store_vectors(self.db)
                store_patterns(self.db)
                time.sleep(PAUSE_SECONDS)
        else:
            self._tell(index_changed(self.db, patience=timedelta(0)))
            store_vectors(self.db, patience=timedelta(0))
            store_patterns(self.db, patience=timedelta(0))

    def _tell(self, report: IndexReport) -> None:
        self.stdout.write(
            f"Indexed {report.messages:,} messages with {report.rows:,} rows in {report.segments:,} segments; "
            f"merged {report.merged:,} segments."
        )


def _month(text: str) -> Period:
    match = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", text)
    if match is None:
        raise CommandError(f"{text!r} is not a month. Write it as 2026-03.", returncode=2)
    return Period.month(int(match[1]), int(match[2]))
