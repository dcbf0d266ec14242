"""manage.py move_project SLUG ALIAS: move the traces of a project to another database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.db import PRIMARY, all_aliases
from access_app.errors import ApiError
from access_app.models import ProjectDatabase
from traces_app.maintenance.moving import move


class Command(AuditedCommand):
    help = (
        "Move the traces of a project to another database while agents write: meanwhile senders get 503 with Retry-After and keep "
        "what they have. Compares all rows before the old ones go. Interrupted, it goes on when it is run again; with the "
        "database where the project is, an interrupted move is taken back. See docs/scaling.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", metavar="SLUG")
        parser.add_argument("alias", metavar="ALIAS", help="the alias of the database")

    def handle(self, *, project: str, alias: str, **options: Any) -> None:
        row = project_named(project)
        ready = {PRIMARY, *ProjectDatabase.objects.values_list("alias", flat=True)}.intersection(all_aliases())
        if alias not in ready:
            raise CommandError(f"{alias!r} is no database that is ready: {', '.join(sorted(ready))}.", returncode=2)
        try:
            done = move(self.actor, row, alias)
        except ApiError as error:
            raise CommandError(str(error)) from error
        if done.source != alias:
            self.stdout.write(
                f"Moved {sum(done.rows.values()):,} rows, of {done.rows['messages_app_message']:,} messages, from {done.source} to "
                f"{alias}. Senders waited for {done.read_only_seconds:.1f} s."
            )
        else:
            self.stdout.write(f"{project} is in {alias}.")
        self.stdout.write(f"Removed {done.removed:,} rows elsewhere.")
