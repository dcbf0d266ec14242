"""Turns the two-factor login of a user off."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import find_member
from access_app.audit.record import AuditedCommand
from access_app.two_factor import remove


class Command(AuditedCommand):
    help = "Let a user who lost app and recovery codes log in by password alone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME", help="the name that the user logs in with")

    def handle(self, *, user: str, **options: Any) -> None:
        member = find_member(user, None)
        assert not isinstance(member, Group), "no group was named"
        if not remove(member, actor=self.actor):
            raise CommandError(f"{user} has no two-factor login.")
        self.stdout.write(f"{user} now logs in by password alone, and can set up two-factor login again.")
