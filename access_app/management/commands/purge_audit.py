"""Removes old entries of the audit log, and records that."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from access_app.audit.chain import purge_before
from access_app.audit.record import AuditedCommand
from access_app.conf import conf


class Command(AuditedCommand):
    help = (
        "Remove entries of the audit log that are older than a number of days. An entry records it, and verify_audit "
        "goes on from there."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=int,
            metavar="DAYS",
            help="at least 1 (default: TRACESITE_AUDIT_DAYS; nothing if that is 0)",
        )

    def handle(self, *, older_than: int | None, **options: Any) -> None:
        if older_than is None and not conf.AUDIT_DAYS:
            self.stderr.write("TRACESITE_AUDIT_DAYS is 0: all entries are kept.")
            return
        older_than = conf.AUDIT_DAYS if older_than is None else older_than
        if not 1 <= older_than <= 36_500:
            raise CommandError(
                f"--older-than {older_than} is invalid. Use a number of days from 1 to 36500.", returncode=2
            )
        removed = purge_before(self.actor, timezone.now() - dt.timedelta(days=older_than))
        for chain, count in removed.items():
            self.stdout.write(f"{chain}: {count} entries removed")
        if not removed:
            self.stdout.write("Nothing was removed.")
