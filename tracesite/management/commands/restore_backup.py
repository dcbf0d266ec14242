"""manage.py restore_backup: restore a backup into an empty database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand, record
from access_app.models import AuditAction
from tracesite.backups import BackupError, missing_migrations, newest, restore


class Command(AuditedCommand):
    help = (
        "Restore a backup into the database of DATABASE_URL, which must be empty: all of it or nothing. First the files are "
        "compared with their SHA-256, at the end the rows of each table are counted. Exit status: 0 done, 1 nothing restored."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "directory",
            metavar="DIR",
            type=Path,
            help="a backup, or a directory with backups, whose newest is restored",
        )

    def handle(self, *, directory: Path, **options: Any) -> None:
        try:
            backup = newest(directory)
            manifest = restore(backup)
        except BackupError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(
                f"{error.filename}: {error.strerror}. The user of Tracesite must be able to read a backup."
            ) from error
        self.stdout.write(f"{backup}: {manifest.rows:,} rows as of {manifest.began:%Y-%m-%d %H:%M:%S} UTC.")
        if not missing_migrations(manifest):
            record(AuditAction.RESTORE, self.actor, object_type="database", detail={"rows": manifest.rows})
        else:
            self.stdout.write("It is of an earlier version. Now run: tracesite migrate")
