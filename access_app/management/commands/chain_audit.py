"""Adds new entries of the audit log to their chains."""

from __future__ import annotations

from typing import Any

from access_app.audit.chain import append_recorded
from access_app.command import TracesiteCommand


class Command(TracesiteCommand):
    help = "Add new entries of the audit log to the chain of their project, as `serve` does every ten seconds."

    def handle(self, **options: Any) -> None:
        report = append_recorded()
        self.stdout.write(f"Chained entries: {report.chained}")
        for chain, head in report.heads.items():
            self.stdout.write(f"{chain}: {head}")
