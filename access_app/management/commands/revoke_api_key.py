"""Revokes an API key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access_app.keys import revoke_key
from access_app.models import PREFIX_LENGTH, ApiKey


class Command(BaseCommand):
    help = "Revoke an API key, at once and permanently."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "key", metavar="PREFIX_OR_ID", help="the beginning of the key, or its id from list_api_keys"
        )

    def handle(self, *, key: str, **options: Any) -> None:
        found = self._find(key)
        if revoke_key(found):
            self.stdout.write(f"Revoked the API key {found.name!r} of {found.project.slug}.")
        else:
            self.stdout.write(
                f"The API key {found.name!r} of {found.project.slug} was already revoked at "
                f"{found.revoked_at:%Y-%m-%d %H:%M:%S} UTC."
            )

    def _find(self, key: str) -> ApiKey:
        keys = ApiKey.objects.select_related("project")
        if not key.isdecimal() and len(key) < PREFIX_LENGTH:
            raise CommandError(
                f"{key!r} is too short: give the first {PREFIX_LENGTH} characters of the key, or its id. Both are listed by: "
                "manage.py list_api_keys"
            )
        # Whoever has only the key itself, because it leaked, may give it whole.
        found = list(keys.filter(pk=int(key)) if key.isdecimal() else keys.filter(prefix=key[:PREFIX_LENGTH]))
        if not found:
            raise CommandError(
                f"No API key has this id or begins with {key[:PREFIX_LENGTH]!r}. List them with: manage.py list_api_keys"
            )
        if len(found) > 1:
            ids = ", ".join(str(each.pk) for each in found)
            raise CommandError(f"Several API keys begin with {key[:PREFIX_LENGTH]!r}. Use one of their ids: {ids}")
        return found[0]
