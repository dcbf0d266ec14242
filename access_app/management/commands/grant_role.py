"""Gives a user or a group a role in a project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import add_member_arguments, find_member, project_named
from access_app.audit.record import AuditedCommand
from access_app.models import Role
from access_app.roles import grant_role


class Command(AuditedCommand):
    help = "Give a user or a group a role in a project, in place of the one that they have there."

    def add_arguments(self, parser: CommandParser) -> None:
        add_member_arguments(parser)
        parser.add_argument("--role", required=True, choices=Role.values, help="each role includes those before it")

    def handle(self, *, project: str, user: str | None, group: str | None, role: str, **options: Any) -> None:
        membership = grant_role(project_named(project), find_member(user, group), Role(role), actor=self.actor)
        self.stdout.write(f"{membership.user or membership.group} is {role} of {project} now.")
