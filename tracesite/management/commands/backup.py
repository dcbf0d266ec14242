"""manage.py backup: make a checked backup of the whole database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from access_app.arguments import positive_number
from access_app.audit.record import AuditedCommand
from access_app.db import project_aliases
from access_app.models import AuditAction
from tracesite.backups import BackupError, back_up


class Command(AuditedCommand):
    action = AuditAction.EXPORT
    object_type = "database"
    help = (
        "Make a backup of the whole database in a new directory below DIR, with the programs of PostgreSQL. It is of one moment, "
        "consistent while agents write, and has all that was acknowledged before the command began. It is checked by "
        "restoring it into a database of its own, which is then dropped. Settings, the secret key and databases of projects "
        "are not in it. "
        "Exit status: 0 done, 1 no backup."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", metavar="DIR", type=Path, help="where backups are kept; made if it is missing")
        parser.add_argument(
            "--keep", metavar="N", type=positive_number, help="remove older backups in DIR than the N newest"
        )
        parser.add_argument(
            "--jobs", metavar="N", type=positive_number, default=2, help="tables at a time (default: %(default)s)"
        )
        parser.add_argument(
            "--no-verify",
            action="store_true",
            help="do not restore it as a check, which takes as long again, as much space, and the right to create databases",
        )

    def handle(self, *, directory: Path, keep: int | None, jobs: int, no_verify: bool, **options: Any) -> None:
        try:
            path, manifest = back_up(directory, jobs=jobs, verify=not no_verify, keep=keep)
        except (BackupError, OSError) as error:
            raise CommandError(str(error)) from error
        checked = "not restored as a check" if no_verify else "restored as a check"
        self.stdout.write(f"{path}: {manifest.rows:,} rows in {manifest.size:,} bytes, {checked}.")
        if others := project_aliases():
            self.stderr.write(
                f"Not in it are the databases of projects: {', '.join(others)}. Back up each with pg_dump. See "
                "docs/scaling.md."
            )
