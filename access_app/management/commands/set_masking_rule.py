"""Adds or changes a masking rule of a project."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.masking import save_rule
from access_app.models import MaskingKind, MaskingMoment


class Command(AuditedCommand):
    help = "Add a masking rule to a project, in place of the one with the same name."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the rule in the receipts of traces")
        parser.add_argument("--project", required=True, metavar="SLUG")
        parser.add_argument("--kind", required=True, choices=MaskingKind.values)
        parser.add_argument("--value", required=True, help="the preset, key, pattern, path or function")
        parser.add_argument(
            "--when",
            choices=MaskingMoment.values,
            default=MaskingMoment.STORE,
            help="before data is stored (default), or only when a viewer reads it",
        )
        parser.add_argument("--disabled", action="store_true", help="store the rule without applying it")

    def handle(
        self, *, name: str, project: str, kind: str, value: str, when: str, disabled: bool, **options: Any
    ) -> None:
        try:
            rule = save_rule(
                project_named(project), name, kind, value, when=when, enabled=not disabled, actor=self.actor
            )
        except ValidationError as error:
            faults = (f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
            raise CommandError(" ".join(faults), returncode=2) from error
        self.stdout.write(f"The masking rule {rule.name} of {project} is {'stored' if disabled else 'applied'} now.")
