"""manage.py query_archive: run SQL over an archive."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from access_app.command import TracesiteCommand
from traces_app.management.archive_arguments import archive_errors, check_period, require_extra

ANALYTICS = ("tools", "models", "errors")
"""The files in traces_app/maintenance/archive/analytics."""


class Command(TracesiteCommand):
    help = (
        "Run SQL over an archive with DuckDB and print the result. The views are the datasets: sessions, messages, references, "
        "steps, tools, calls, results, events, contexts, spans, scores, snapshots and their parts, with the columns project and period. "
        "Exit status: 0 done, 1 error, 2 invalid arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", metavar="DIR|URL", help="the folder of the archive, as in `archive --to`")
        parser.add_argument(
            "sql", metavar="SQL", nargs="?", help="such as: SELECT tool, count(*) FROM calls GROUP BY ALL"
        )
        parser.add_argument(
            "--name",
            choices=ANALYTICS,
            help="in place of SQL: tools (calls, failures and durations of each tool by day), models (tokens and cost of each) "
            "or errors (groups of equal errors)",
        )
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument(
            "--period",
            metavar="PERIOD",
            help="only this month, such as 2026-01, or a week or day of it that was archived by itself",
        )
        parser.add_argument(
            "--format",
            choices=["table", "csv", "json"],
            default="table",
            help="table: for people, at most 10,000 rows; csv, json: all rows, json with an object a line (default: %(default)s)",
        )

    def handle(
        self,
        *,
        folder: str,
        sql: str | None,
        name: str | None,
        project: str | None,
        period: str | None,
        format: str,
        **options: Any,
    ) -> None:
        if (sql is None) == (name is None):
            raise CommandError("Give either SQL or --name.", returncode=2)
        require_extra()
        import duckdb  # the extra may be missing

        from traces_app.maintenance.archive.folder import open_folder
        from traces_app.maintenance.archive.querying import analytics, archive_views, written_as

        period = check_period(period)
        query = analytics(name) if name else sql or ""
        with archive_errors(), archive_views(open_folder(folder), project=project, period=period) as database:
            try:
                for line in written_as(format, database, query):
                    self.stdout.write(line)
            except duckdb.Error as error:
                raise CommandError(str(error)) from error
