"""manage.py verify_traces: name the messages that were changed behind the back of Tracesite."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import msgspec
from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.models import Project
from access_app.program import program
from access_app.traces_command import TracesCommand
from traces_app.maintenance.seals.chain import faults
from traces_app.maintenance.seals.verifying import Finding, Tally, VerifiedRange, verify
from traces_app.management.row_arguments import add_time_range, time_named


class Command(TracesCommand):
    help = (
        "Verify the seals of completed messages: name every message whose rows were changed, added, moved or removed by "
        "SQL, and the kinds of rows that differ. Prints ids, no content. Changes nothing and can run while agents write. "
        "Exit status: 0 intact, 1 something differs, 2 invalid arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only messages of this project")
        add_time_range(parser)
        parser.add_argument(
            "--strict",
            action="store_true",
            help="also name completed messages without a seal, which SQL may have added; once those from before sealing "
            "are sealed",
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object per line: what differs, then a summary"
        )

    def handle(
        self, *, project: str | None, from_: str | None, until: str | None, strict: bool, json: bool, **options: Any
    ) -> None:
        row = project_named(project) if project is not None else None
        scope = VerifiedRange.between(
            time_named("--from", from_), time_named("--until", until), row.pk if row else None
        )
        slugs = dict(Project.objects.values_list("pk", "slug"))
        tally, differing, is_changed = Tally(), 0, False
        for fault in faults(self.db):
            differing += 1
            is_changed |= not fault.key_id
            self.stdout.write(_as_json(asdict(fault)) if json else str(fault))
        for finding in verify(self.db, scope, tally, self._show_progress, is_strict=strict):
            differing += 1
            is_changed = True
            self.stdout.write(_as_json(asdict(finding)) if json else _in_words(finding, slugs))
        summary = {**asdict(tally), "differing": differing}
        self.stdout.write(_as_json({"summary": summary}) if json else _summary(tally))
        if differing and not is_changed:
            raise CommandError("Seals cannot be verified, because their key is missing.")
        if differing:
            raise CommandError("Something was changed behind the back of Tracesite.")

    def _show_progress(self, tally: Tally) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\r{tally.messages:,} messages", ending="")


def _in_words(finding: Finding, slugs: dict[int, str]) -> str:
    project = slugs.get(finding.project_id or 0, "-")
    detail = f" ({finding.detail})" if finding.detail else ""
    return f"message {finding.message_id} of {project}: {', '.join(finding.kinds)}{detail}"


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _summary(tally: Tally) -> str:
    text = (
        f"Verified {tally.messages:,} messages: {tally.intact:,} intact, {tally.open:,} not completed, {tally.waiting:,} not "
        f"sealed yet, {tally.unsealed:,} without a seal."
    )
    if tally.keyless:
        text += f" {tally.keyless:,} have seals of a key that is missing here."
    if tally.unreadable:
        text += f" {tally.unreadable:,} have seals of columns that this version does not have."
    # Last, so that the command can be copied.
    if tally.unsealed:
        text += f" Seal those from before sealing with: {program()} seal_traces --unsealed"
    return text
