"""Revokes an API key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import key_named
from access_app.audit.record import AuditedCommand
from access_app.keys import revoke_key


class Command(AuditedCommand):
    help = "Revoke an API key, at once and permanently."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "key", metavar="PREFIX_OR_ID", help="the beginning of the key, or its id from list_api_keys"
        )

    def handle(self, *, key: str, **options: Any) -> None:
        row = key_named(key)
        if revoke_key(row, actor=self.actor):
            self.stdout.write(f"Revoked the API key {row.name!r} of {row.project.slug}.")
        else:
            self.stdout.write(
                f"The API key {row.name!r} of {row.project.slug} was already revoked at "
                f"{row.revoked_at:%Y-%m-%d %H:%M:%S} UTC."
            )
