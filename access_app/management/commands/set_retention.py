"""Shows or changes how long a project keeps its data."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import add_retention_arguments, project_named, retention_in_words, set_retention_fields
from access_app.audit.record import AuditedCommand, record_project_change
from access_app.projects import project_changed
from access_app.retention import DAYS_FIELDS, EXCEPTION_FIELDS


class Command(AuditedCommand):
    help = (
        "Change how long a project keeps its data, and print it. Rules that are not given stay as they are; those that are "
        "given replace the earlier ones of their kind. Nothing is removed before the next `purge --policy`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", required=True, metavar="SLUG")
        add_retention_arguments(parser, "--days", "--retention")
        parser.add_argument("--keep-nothing", action="store_true", help="remove all earlier exceptions first")

    def handle(self, *, project: str, keep_nothing: bool, **options: Any) -> None:
        row = project_named(project)
        if keep_nothing:
            row.keep_tags, row.keep_statuses, row.keep_scores, row.keep_pinned = [], [], [], False
        if set_retention_fields(row, options) or keep_nothing:
            try:
                row.full_clean()
            except ValidationError as error:
                faults = (f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
                raise CommandError(" ".join(faults), returncode=2) from error
            row.save()
            project_changed(row)
            kept = {name: getattr(row, name) for name in (*DAYS_FIELDS, *EXCEPTION_FIELDS)}
            record_project_change(self.actor, row, {**kept, "keep_pinned": int(row.keep_pinned)})
        self.stdout.write(retention_in_words(row))
