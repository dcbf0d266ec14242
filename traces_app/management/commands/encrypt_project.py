"""Turns encryption of a project on, and exchanges its data key."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.encryption.keys import add_key
from access_app.encryption.reading import switch_on
from access_app.errors import ApiError
from access_app.models import Encryption
from access_app.traces_command import TracesCommand
from traces_app.maintenance.encrypting import encrypt_stored, wait_for_writers
from traces_app.models import SnapshotPart


class Command(TracesCommand, AuditedCommand):
    help = (
        "Encrypt a project at rest: what it receives from now on, and what is stored already. Servers must have the master key "
        "before. Interrupted, it goes on when it is run again. See docs/security.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", metavar="SLUG")
        parser.add_argument(
            "--new-key", action="store_true", help="exchange the data key, and encrypt with it what is stored"
        )
        parser.add_argument(
            "--no-wait", action="store_true", help="do not wait until all servers know the key, because none is running"
        )

    def handle(self, *, project: str, new_key: bool, no_wait: bool, **options: Any) -> None:
        found = project_named(project)
        if not self.db.is_primary:
            raise CommandError(f"{project} has a database of its own. Encryption is for projects in the primary one.")
        if self.db.rows(SnapshotPart.objects).filter(project=found).exists():
            raise CommandError(
                f"{project} has snapshots of agents, which cannot be encrypted. Remove their contents first: DELETE "
                "/api/v1/sessions/{id}/snapshots/, or purge."
            )
        switch_on()
        try:
            if new_key or found.encryption != Encryption.ON:
                key = add_key(found, actor=self.actor)
                self.stdout.write(f"Data key {key.version} of {project} encrypts what is received from now on.")
                if not no_wait:
                    # Until then another process may store something that this one would have passed.
                    wait_for_writers(self.db)
            rows = 0
            for done in encrypt_stored(self.db, found.pk):
                rows = done.rows
                self.stderr.write(f"\r{done.messages} messages, {rows} rows encrypted", ending="")
        except (ApiError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        self.stderr.write("")
        self.stdout.write(f"{rows} rows were encrypted. Everything that is stored in {project} is encrypted now.")
