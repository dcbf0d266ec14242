"""manage.py apply_masking: remove from stored traces what masking rules find."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.masking import rules_named
from access_app.traces_command import TracesCommand
from traces_app.maintenance.masking import Masked, apply_masking
from traces_app.management.row_arguments import add_time_range, last_of, time_named


class Command(TracesCommand, AuditedCommand):
    help = (
        "Remove from the stored messages and sessions of a project what its masking rules for new data find, for good. "
        "Look at preview_masking first. Can run while agents write; safe to interrupt and to run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", required=True, metavar="SLUG")
        parser.add_argument("--rule", metavar="NAME", help="only this rule, also one that is disabled or for viewers")
        add_time_range(parser)

    def handle(self, *, project: str, rule: str | None, from_: str | None, until: str | None, **options: Any) -> None:
        found = project_named(project)
        try:
            rules = rules_named(found, rule)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        states = apply_masking(
            self.db, found.pk, rules, from_=time_named("--from", from_), until=time_named("--until", until)
        )
        done = last_of(states, Masked(), _in_words, from_)
        self.stdout.write(_in_words(done))


def _in_words(done: Masked) -> str:
    removed = ", ".join(f"{name}: {count}" for name, count in sorted(done.rules.items())) or "none"
    return f"{done.read} messages and sessions read, {done.changed} changed. Removed values: {removed}."
