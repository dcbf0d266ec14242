"""manage.py purge: remove sessions, messages and their traces for good, by age or by time in the trash."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand
from access_app.audit.trail import note_counts
from access_app.conf import conf
from access_app.db import Database
from access_app.models import AuditAction, Project
from access_app.traces_command import TracesCommand
from messages_app.sql.partitions import PeriodInUse
from messages_app.timestamps import instant_text
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.reports import PurgeReport
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.purge.surveys import survey
from traces_app.maintenance.retention import scopes_of, trash_expired_before
from traces_app.management.row_arguments import (
    add_projects,
    confirm,
    message_bar,
    moment,
    projects_named,
    session_named,
)

NO_AGE = (
    "Choose what to purge: --policy (what is older than its project says), --older-than DAYS|DATE (by age, in the trash or "
    "not), --deleted-longer-than DAYS|DATE or --trash (by time in the trash), or both ages. To purge a single session, delete it, then run: purge "
    "--session ID --deleted-longer-than 0."
)


class Command(TracesCommand, AuditedCommand):
    action = AuditAction.PURGE
    object_type = "session"
    help = (
        "Permanently remove sessions, and messages with their steps, calls, results and references. Safe "
        "to interrupt and to run again, also while agents write. Digests of ids, without content, are "
        "kept for 30 days, so that senders cannot restore removed data. Tools are kept. With both ages, "
        "rows that match either are removed. Exit status: 0 done, 1 not done or only partly, 2 invalid "
        "arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--policy",
            action="store_true",
            help=(
                "what is older than its project allows, live or in the trash, except what the project keeps; see "
                "set_retention. Not together with the other options that choose."
            ),
        )
        parser.add_argument(
            "--older-than",
            metavar="DAYS|DATE",
            help=(
                "messages created before this time, in the trash or not, and sessions started before it "
                "that have no messages left. A number of days, a date (00:00 UTC) or a time such as "
                "2026-01-31T09:30:00Z; the time itself is excluded. Periods that are removed completely "
                "are dropped at once."
            ),
        )
        parser.add_argument(
            "--deleted-longer-than",
            metavar="DAYS|DATE",
            help="sessions and messages that were moved to the trash before this time",
        )
        parser.add_argument(
            "--trash",
            action="store_true",
            help=(
                "sessions and messages that are in the trash for longer than the days of their project, or else "
                "TRACESITE_TRASH_DAYS; nothing if that is 0"
            ),
        )
        add_projects(parser)
        parser.add_argument(
            "--session",
            metavar="ID",
            help="only this session: its id, or its external id (with --project if several sessions have it)",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be removed")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(
        self, *, project: str | list[str], policy: bool, dry_run: bool, yes: bool, json: bool, **options: Any
    ) -> None:
        projects = projects_named(project)
        choice = _by_policy(self.db, projects, options) if policy else self._by_age(projects, options)
        if choice is None:
            return
        if not choice.scopes:
            self.stderr.write("No project has days. Set them with set_retention, or on the page of the project.")
        counted = survey(self.db, *choice.scopes) if dry_run or not yes else None
        if dry_run:
            assert counted is not None, "a dry run counts"
            self._print(choice, counted, json=json, verb="Would remove")
            return
        if counted is not None and not counted.is_empty:
            confirm(self, _in_words(choice, counted, "This will remove"))
        report = PurgeReport()
        total = counted.tables["messages"].rows if counted else None
        try:
            with message_bar(total) as bar:
                purge(self.db, *choice.scopes, report=report, progress=bar.update)
        except PeriodInUse as error:
            self._print(choice, report, json=json, verb="Removed so far", is_complete=False)
            raise CommandError(f"{error} Run the same command again later to remove the rest.") from error
        note_counts(self.actor, messages=report.tables["messages"].rows, sessions=report.tables["sessions"].rows)
        self._print(choice, report, json=json, verb="Removed")

    def _by_age(self, projects: list[Project], options: Mapping[str, Any]) -> _Choice | None:
        """Return the choice by age and time in the trash; None, after saying so, if there is nothing to choose."""
        older_than, longer, trash = (options[name] for name in ("older_than", "deleted_longer_than", "trash"))
        if trash and longer is not None:
            raise CommandError("Use either --trash or --deleted-longer-than.", returncode=2)
        if trash and conf.TRASH_DAYS:
            longer = conf.TRASH_DAYS
        has_own_days = trash and Project.objects.filter(trash_days__isnull=False).exists()
        if older_than is None and longer is None and not has_own_days:
            if trash:
                self.stderr.write("TRACESITE_TRASH_DAYS is 0: what is in the trash is kept.")
                return None
            raise CommandError(NO_AGE, returncode=2)
        session = options["session"]
        wanted = session_named(self.db, session, projects) if session is not None else None
        if session is not None and wanted is None:
            self.stderr.write(f"Session {session!r} is already purged.")
            return None
        choice = _Choice(
            created_before=moment("--older-than", older_than),
            deleted_before=moment("--deleted-longer-than", longer),
            projects=tuple(each.slug for each in projects),
            session_id=wanted,
        )
        if has_own_days:
            within = (
                self.db.rows_of(Project.objects.all()).filter(session__pk=wanted)
                if wanted
                else projects or Project.objects.all()
            )
            return replace(choice, by_project="trash", scopes=_trash_of_each(choice, within))
        scope = PurgeScope(
            created_before=choice.created_before,
            deleted_before=choice.deleted_before,
            project_ids=tuple(each.pk for each in projects) or None,
            session_id=wanted,
        )
        return replace(choice, scopes=(scope,))

    def _print(self, choice: _Choice, report: PurgeReport, *, json: bool, verb: str, is_complete: bool = True) -> None:
        if not json:
            self.stdout.write(_in_words(choice, report, verb))
            return
        answer = {
            "dry_run": verb == "Would remove",
            "is_complete": is_complete,
            "policy": choice.by_project == "policy",
            "older_than": choice.created_before and instant_text(choice.created_before),
            "deleted_longer_than": choice.deleted_before and instant_text(choice.deleted_before),
            "projects": choice.projects or None,
            "session": choice.session_id,
            **asdict(report),
            "bytes_freed": report.bytes_freed,
            "bytes_reusable": report.bytes_reusable,
        }
        self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """The scope to purge, and the option that names it."""

    scopes: tuple[PurgeScope, ...] = ()
    by_project: Literal["policy", "trash", ""] = ""
    """Whether each project has times of its own: all of them, or those of the trash."""
    created_before: datetime | None = None
    deleted_before: datetime | None = None
    projects: tuple[str, ...] = ()
    session_id: UUID | None = None


def _by_policy(db: Database, projects: list[Project], options: Mapping[str, Any]) -> _Choice:
    others = ("older_than", "deleted_longer_than", "session")
    if options["trash"] or any(options[name] is not None for name in others):
        raise CommandError("Use --policy alone, or with --project.", returncode=2)
    return _Choice(
        scopes=tuple(scopes_of(db, projects or Project.objects.order_by("pk"))),
        by_project="policy",
        projects=tuple(each.slug for each in projects),
    )


def _trash_of_each(choice: _Choice, projects: Iterable[Project]) -> tuple[PurgeScope, ...]:
    """Return a scope for each project from which something may go, with the time of its own trash."""
    before = {project.pk: trash_expired_before(project) for project in projects}
    return tuple(
        PurgeScope(
            created_before=choice.created_before,
            deleted_before=deleted_before,
            project_ids=(project_id,),
            session_id=choice.session_id,
        )
        for project_id, deleted_before in before.items()
        if choice.created_before or deleted_before
    )


def _in_words(choice: _Choice, report: PurgeReport, verb: str) -> str:
    made, deleted = (
        [f"{condition} {limit:%Y-%m-%dT%H:%M:%SZ}"] if limit else []
        for condition, limit in (("made before", choice.created_before), ("deleted before", choice.deleted_before))
    )
    conditions = [*made, *deleted]
    if choice.by_project == "policy":
        conditions = ["older than its project allows"]
    elif choice.by_project == "trash":
        conditions = [*made, "in the trash for longer than its project allows"]
    where = (
        f"session {choice.session_id}"
        if choice.session_id
        else f"project {', '.join(choice.projects)}"
        if choice.projects
        else "all projects"
    )
    lines = [f"{verb} what was {' or '.join(conditions)} in {where}:"]
    if report.is_empty:
        lines.append("  nothing")
    if report.periods:
        lines.append(f"  whole periods: {', '.join(report.periods)}")
    for name, table in report.tables.items():
        if table.rows:
            lines.append(f"  {name:<10} {'about ' if table.is_estimate else ''}{table.rows:,}")
    if report.bytes_freed:
        lines.append(f"  {report.bytes_freed:,} bytes of disk space freed")
    if report.bytes_reusable:
        lines.append(f"  about {report.bytes_reusable:,} bytes of rows, reusable by the database after its next VACUUM")
    if report.tombstones_forgotten:
        lines.append(f"  {report.tombstones_forgotten:,} tombstones of earlier purges")
    return "\n".join(lines)
