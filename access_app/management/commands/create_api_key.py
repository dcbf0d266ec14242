"""Makes an API key and prints its token, which cannot be had again."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.errors import InvalidInput
from access_app.keys import create_key
from access_app.models import Scope


class Command(AuditedCommand):
    help = "Create an API key for a project and print it once. Only its digest is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", required=True, metavar="SLUG", help="the project of the key")
        parser.add_argument("--name", required=True, help="what uses the key, such as a program or a person")
        parser.add_argument(
            "--scopes",
            default=",".join(Scope.values),
            help="what the key may do, separated by commas (default: %(default)s)",
        )
        parser.add_argument("--expires-days", type=int, metavar="N", help="days until the key expires (default: never)")
        parser.add_argument(
            "--allow",
            action="append",
            default=[],
            metavar="NETWORK",
            help="an IP address or network that may use the key, such as 10.0.0.0/8; repeatable (default: all)",
        )
        parser.add_argument(
            "--requests-per-minute", type=int, metavar="N", help="answer more requests with 429 (default: no limit)"
        )
        parser.add_argument(
            "--masked", action="store_true", help="read what viewers read, masked; only with --scopes read"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *, project: str, name: str, scopes: str, expires_days: int | None, **options: Any) -> None:
        owner = project_named(project)
        if expires_days is not None and expires_days < 1:
            raise CommandError(
                f"--expires-days {expires_days} is invalid. Use a number of days of at least 1.", returncode=2
            )
        try:
            expires_at = None if expires_days is None else timezone.now() + dt.timedelta(days=expires_days)
        except OverflowError as error:
            raise CommandError(f"--expires-days {expires_days} is too large.", returncode=2) from error
        wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
        try:
            key, token = create_key(
                owner,
                name,
                wanted,
                expires_at=expires_at,
                allowed_networks=options["allow"],
                requests_per_minute=options["requests_per_minute"],
                reads_masked=options["masked"],
                actor=self.actor,
            )
        except InvalidInput as error:
            raise CommandError(error.message, returncode=2) from error
        if options["json"]:
            answer = {
                "id": key.pk,
                "project": owner.slug,
                "name": key.name,
                "scopes": key.scopes,
                "expires_at": key.expires_at and key.expires_at.isoformat(),
                "key": token,
            }
            self.stdout.write(json.dumps(answer))
        else:
            # The token alone on its line of the standard output: TOKEN=$(manage.py create_api_key ...).
            self.stderr.write(
                f"API key {key.name!r} of {owner.slug} with the scopes {', '.join(key.scopes)}. It is shown only once:"
            )
            self.stdout.write(token)
