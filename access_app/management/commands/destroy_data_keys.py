"""Destroys the data keys of a project, so that nothing can read what they have encrypted."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.encryption.keys import destroy_keys


class Command(AuditedCommand):
    help = (
        "Destroy the data keys of a project for good: its traces, also those in archives and backups of traces, can never be read "
        "again, by nobody. See docs/security.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", metavar="SLUG")
        parser.add_argument("--yes", action="store_true", help="required: there is no way back")

    def handle(self, *, project: str, yes: bool, **options: Any) -> None:
        row = project_named(project)
        if not yes:
            raise CommandError(
                f"Everything that {project} has stored would be unreadable for ever. Add --yes if you want that.",
                returncode=2,
            )
        self.stdout.write(f"{destroy_keys(row, actor=self.actor)} data keys of {project} were destroyed.")
