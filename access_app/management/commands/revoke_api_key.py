"""Revokes an API key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access_app.keys import revoke_key
from access_app.models import ApiKey


class Command(BaseCommand):
    help = "Revokes an API key, at once and for good."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", metavar="PREFIX_OR_ID", help="what the key begins with, or its id in list_api_keys")

    def handle(self, *, key: str, **options: Any) -> None:
        found = self._find(key)
        if revoke_key(found):
            self.stdout.write(f"The key {found.name!r} of {found.project.slug} is revoked.")
        else:
            self.stdout.write(f"The key {found.name!r} of {found.project.slug} had been revoked at {found.revoked_at}.")

    def _find(self, key: str) -> ApiKey:
        keys = ApiKey.objects.select_related("project")
        # Whoever has only the key itself, because it leaked, may give it whole.
        found = list(keys.filter(pk=int(key)) if key.isdecimal() else keys.filter(prefix=key[:8]))
        if not found:
            raise CommandError(f"No key has the id or begins with {key[:8]!r}. See: manage.py list_api_keys")
        if len(found) > 1:
            ids = ", ".join(str(each.pk) for each in found)
            raise CommandError(f"Several keys begin with {key[:8]!r}. Give an id: {ids}")
        return found[0]
