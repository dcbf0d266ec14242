"""Replaces an API key by a new one; both work for some time."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import key_named
from access_app.audit.record import AuditedCommand
from access_app.errors import InvalidInput
from access_app.keys import LONGEST_OVERLAP_HOURS, rotate_key


class Command(AuditedCommand):
    help = "Create the successor of an API key, print it once, and let the old key expire after an overlap."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "key", metavar="PREFIX_OR_ID", help="the beginning of the key, or its id from list_api_keys"
        )
        parser.add_argument(
            "--overlap-hours", type=int, default=24, metavar="N", help="hours for which both keys work (default: 24)"
        )

    def handle(self, *, key: str, overlap_hours: int, **options: Any) -> None:
        if not 0 <= overlap_hours <= LONGEST_OVERLAP_HOURS:
            raise CommandError(
                f"--overlap-hours {overlap_hours} is invalid. Use 0 to {LONGEST_OVERLAP_HOURS}.", returncode=2
            )
        old = key_named(key)
        try:
            _successor, token = rotate_key(old, dt.timedelta(hours=overlap_hours), actor=self.actor)
        except InvalidInput as error:
            raise CommandError(error.message) from error
        self.stderr.write(
            f"API key {old.name!r} of {old.project.slug}: the old one ({old.prefix}...) expires at "
            f"{old.expires_at:%Y-%m-%d %H:%M:%S} UTC. The new one is shown only once:"
        )
        # The token alone on its line of the standard output: TOKEN=$(manage.py rotate_api_key ...).
        self.stdout.write(token)
