"""manage.py recompute_costs: compute the costs of stored steps by the present prices."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.models import AuditAction
from access_app.traces_command import TracesCommand
from traces_app.maintenance.costs import Recomputed, recompute_costs
from traces_app.management.row_arguments import add_time_range, last_of, time_named


class Command(TracesCommand, AuditedCommand):
    action = AuditAction.CHANGE
    object_type = "message"
    help = (
        "Compute the costs of stored steps anew, by the prices of their days, with the sums of messages and sessions. "
        "Costs that a producer stated stay. Can run while agents write; safe to interrupt and to run again. Exit "
        "status: 0 done, 1 interrupted, 2 invalid arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument(
            "--model", metavar="NAME", help="only steps of this model; with a * at the end: of models that begin so"
        )
        add_time_range(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="count the steps whose cost would change, and change nothing"
        )

    def handle(
        self,
        *,
        project: str | None,
        model: str | None,
        from_: str | None,
        until: str | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        row = project_named(project) if project is not None else None
        first, last = time_named("--from", from_), time_named("--until", until)
        states = recompute_costs(
            self.db, project_id=row.pk if row else None, model=model, from_=first, until=last, dry_run=dry_run
        )
        done = last_of(states, Recomputed(), _in_words, from_)
        self.stdout.write(_in_words(done) + (" Nothing was changed." if dry_run else ""))


def _in_words(done: Recomputed) -> str:
    return f"{done.messages} messages with steps read, the cost of {done.steps} steps changed."
