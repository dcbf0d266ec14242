"""manage.py preview_masking: show what masking rules would remove from stored traces."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.masking import compiled, rules_named
from access_app.models import MaskingKind
from access_app.traces_command import TracesCommand
from traces_app.maintenance.masking import Change, preview_masking

_SHOWN = 20
_CHARACTERS = 120


class Command(TracesCommand):
    help = (
        "Show what the masking rules of a project, or a rule that is not stored yet, would remove from its stored traces. "
        "Changes nothing. Prints the values as they are stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", required=True, metavar="SLUG")
        parser.add_argument("--rule", metavar="NAME", help="only this rule, also one that is disabled or for viewers")
        parser.add_argument("--kind", choices=MaskingKind.values, help="try a rule of this kind, with --value")
        parser.add_argument("--value", help="the preset, key, pattern, path or function to try")
        parser.add_argument(
            "--messages", type=int, help="only so many of the newest messages (default: all, with sessions and spans)"
        )

    def handle(
        self,
        *,
        project: str,
        rule: str | None,
        kind: str | None,
        value: str | None,
        messages: int | None,
        **options: Any,
    ) -> None:
        if (kind is None) != (value is None):
            raise CommandError("--kind and --value belong together.", returncode=2)
        if messages is not None and messages < 1:
            raise CommandError("--messages: expected a number from 1.", returncode=2)
        row = project_named(project)
        try:
            rules = compiled((("preview", kind, value),)) if kind and value else rules_named(row, rule)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        places, removed = Counter[str](), Counter[str]()
        shown = spans = 0
        for batch in preview_masking(self.db, row.pk, rules, messages):
            spans += batch.spans
            for change in batch.changes:
                for receipt in change.receipts:
                    places[receipt.rule] += 1
                    removed[receipt.rule] += receipt.count
                if shown < _SHOWN:
                    self._show(change)
                    shown += 1
        for name in sorted(removed):
            self.stdout.write(f"{name}: {removed[name]} values in {places[name]} places")
        if spans:
            self.stdout.write(f"{spans} spans would be changed.")
        if not removed and not spans:
            self.stdout.write("Nothing would be removed.")

    def _show(self, change: Change) -> None:
        paths = ", ".join(f"{receipt.path} ({receipt.rule})" for receipt in change.receipts)
        self.stdout.write(f"{change.owner_id}  {paths}")
        for _name, before, after in change.differences(_CHARACTERS):
            # Escaped, because a terminal obeys control characters.
            self.stdout.write(f"  - {json.dumps(before, ensure_ascii=False)[1:-1]}")
            self.stdout.write(f"  + {json.dumps(after, ensure_ascii=False)[1:-1]}")
