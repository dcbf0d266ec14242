"""Adds new entries of the audit log to their chains."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from access_app.audit.chain import append_recorded


class Command(BaseCommand):
    requires_system_checks = []  # `check` and `serve` run them: they import all views
    help = "Add new entries of the audit log to the chain of their project, as `serve` does every ten seconds."

    def handle(self, **options: Any) -> None:
        report = append_recorded()
        self.stdout.write(f"Chained entries: {report.chained}")
        for chain, head in report.heads.items():
            self.stdout.write(f"{chain}: {head}")
