"""Lists the masking rules of projects."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import project_named
from access_app.command import TracesiteCommand
from access_app.models import MaskingMoment, MaskingRule


class Command(TracesiteCommand):
    help = "List the masking rules of projects."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument("--json", action="store_true", help="print JSON, one rule a line")

    def handle(self, *, project: str | None, **options: Any) -> None:
        rules = MaskingRule.objects.select_related("project").order_by("project__slug", "id")
        if project is not None:
            rules = rules.filter(project=project_named(project))
        for each in rules:
            row = {
                "project": each.project.slug,
                "name": each.name,
                "kind": each.kind,
                "value": each.value,
                "when": each.when,
                "enabled": each.enabled,
            }
            state = "  (when a viewer reads)" if each.when == MaskingMoment.READ else ""
            state += "" if each.enabled else "  (disabled)"
            text = f"{row['project']}  {row['name']}  {row['kind']}  {row['value']}{state}"
            self.stdout.write(json.dumps(row) if options["json"] else text)
