"""manage.py roll_up_tools: add up the calls of tools for their statistics."""

from __future__ import annotations

from typing import Any

from access_app.traces_command import TracesCommand
from traces_app.maintenance.tool_roll_up import roll_up


class Command(TracesCommand):
    help = (
        "Add up the calls of tools in hours that have passed, so that their statistics do not read every call. `serve` does "
        "it each minute, unless TRACESITE_BACKGROUND_JOBS is off. Safe to interrupt, to run again, and to run several times at once."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        report = roll_up(self.db)
        self.stdout.write(f"Stored {report.hours:,} new hours; computed {report.changed:,} changed hours again.")
