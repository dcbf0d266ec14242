"""Turns encryption of a project off."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.encryption.keys import end_encryption, note_decrypted
from access_app.encryption.reading import switch_on
from access_app.errors import ApiError
from access_app.traces_command import TracesCommand
from traces_app.maintenance.encrypting import decrypt_stored, wait_for_writers


class Command(TracesCommand, AuditedCommand):
    help = (
        "Turn encryption of a project off: what it receives from now on is stored as it is, and what is stored already is decrypted. "
        "Interrupted, it goes on when it is run again. See docs/security.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", metavar="SLUG")
        parser.add_argument(
            "--yes", action="store_true", help="required: whoever has the disk or a backup can read the project then"
        )
        parser.add_argument(
            "--no-wait", action="store_true", help="do not wait until all servers know it, because none is running"
        )

    def handle(self, *, project: str, yes: bool, no_wait: bool, **options: Any) -> None:
        found = project_named(project)
        if not self.db.is_primary:
            raise CommandError(f"{project} has a database of its own. Encryption is for projects in the primary one.")
        if not yes:
            raise CommandError(
                f"Whoever has the disk or a backup could read {project}. Add --yes if you want that.", returncode=2
            )
        switch_on()
        try:
            end_encryption(found, actor=self.actor)
            self.stdout.write(f"What {project} receives from now on is not encrypted.")
            if not no_wait:
                # Until then another process may encrypt something that this one would have passed.
                wait_for_writers(self.db)
            rows = 0
            for done in decrypt_stored(self.db, found.pk):
                rows = done.rows
                self.stderr.write(f"\r{done.messages} messages, {rows} rows decrypted", ending="")
            note_decrypted(found, actor=self.actor)
        except (ApiError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        self.stderr.write("")
        self.stdout.write(f"{rows} rows were decrypted. Nothing that is stored in {project} is encrypted now.")
