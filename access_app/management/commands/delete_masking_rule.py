"""Deletes a masking rule of a project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.masking import delete_rule
from access_app.program import program


class Command(AuditedCommand):
    help = "Delete a masking rule of a project. What it has removed stays removed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--project", required=True, metavar="SLUG")

    def handle(self, *, name: str, project: str, **options: Any) -> None:
        if not delete_rule(project_named(project), name, actor=self.actor):
            raise CommandError(
                f"{project} has no masking rule {name!r}. List them with: {program()} list_masking_rules",
                returncode=2,
            )
        self.stdout.write(f"The masking rule {name} of {project} is deleted.")
