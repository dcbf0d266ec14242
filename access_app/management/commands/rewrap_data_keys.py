"""Wraps the data keys of projects with another master key."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand
from access_app.encryption.keys import rewrap_keys
from access_app.errors import ApiError


class Command(AuditedCommand):
    help = (
        "Wrap the data keys of all projects with the first master key; afterwards the others are not needed any more. No trace is "
        "written. See docs/security.md."
    )

    def handle(self, **options: Any) -> None:
        try:
            changed = rewrap_keys(actor=self.actor)
        except (ApiError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{changed} data keys were wrapped anew.")
