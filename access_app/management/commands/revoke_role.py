"""Takes the role of a user or a group in a project away."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import add_member_arguments, find_member, project_named
from access_app.audit.record import AuditedCommand
from access_app.program import program
from access_app.roles import revoke_role


class Command(AuditedCommand):
    help = "Take the role of a user or a group in a project away. Their live connections end at once."

    def add_arguments(self, parser: CommandParser) -> None:
        add_member_arguments(parser)

    def handle(self, *, project: str, user: str | None, group: str | None, **options: Any) -> None:
        if not revoke_role(project_named(project), find_member(user, group), actor=self.actor):
            raise CommandError(f"{user or group} has no role in {project}. List the roles with: {program()} list_roles")
        self.stdout.write(f"{user or group} has no role in {project} any more.")
