"""manage.py prepare_database ALIAS: make a database ready for the traces of projects."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser

from access_app.audit.record import AuditedCommand
from access_app.db import project_aliases
from access_app.db.earlier_migrations import TOO_OLD, is_too_old
from access_app.models import AuditAction
from access_app.program import program
from traces_app.maintenance.moving import NotEmpty, prepare


class Command(AuditedCommand):
    action = AuditAction.CHANGE
    object_type = "database"
    help = (
        "Make a database ready for the traces of projects: apply all migrations to it, and note it in the primary. Run it again "
        "after each upgrade, before `serve`. See docs/scaling.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("alias", metavar="ALIAS", help="of DATABASE_PROJECT_URLS, or of DATABASES")

    def handle(self, *, alias: str, verbosity: int, **options: Any) -> None:
        if alias not in project_aliases():
            known = ", ".join(project_aliases()) or "none"
            raise CommandError(f"{alias!r} is no alias of a database for projects. There are: {known}.", returncode=2)
        if is_too_old(alias):
            raise CommandError(str(TOO_OLD))
        call_command("migrate", database=alias, interactive=False, verbosity=verbosity - 1, skip_checks=True)
        try:
            prepare(alias)
        except NotEmpty as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{alias} is ready. Move a project there with: {program()} move_project SLUG {alias}")
