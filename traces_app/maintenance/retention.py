"""Retention: remove what is older than its project says.

The rules are columns of the project (docs/retention.md). Each project is a scope of `purge`, which drops a period once it has
expired in all projects that have messages in it, and removes the rest by rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from access_app.db import Database
from access_app.models import Project, RetentionWay
from access_app.request_database import is_only, projects_in
from access_app.retention import kept_score
from messages_app.models import Message
from messages_app.sql.partitions import periods_of
from messages_app.sql.periods import Period, period_at
from tracesite_sdk.records import ids

from .purge.purging import purge
from .purge.reports import Progress, PurgeReport
from .purge.scopes import Kept, PurgeScope


def apply_retention(
    db: Database, *, report: PurgeReport | None = None, progress: Progress = lambda _: None
) -> PurgeReport:
    """Remove for good what is older than its project allows, and what was in the trash for longer; return what was removed.

    Safe beside readers and writers, and to interrupt and run again. Call it outside a transaction. Raise PeriodInUse like
    `purge`. The audit log is left to the caller, which knows who runs it.
    """
    return purge(db, *scopes_of(db, Project.objects.order_by("pk")), report=report, progress=progress)


@dataclass(frozen=True, kw_only=True)
class NextRemoval:
    """The next removal by the rules of a project with days of live data."""

    project: Project
    due: datetime | None = None
    """The time before which messages go with the next run; None if none is so old."""
    begins: datetime | None = None
    """Otherwise the time from which a message is too old; None if there are no messages."""
    has_exceptions: bool

    @property
    def place(self) -> tuple[Any, ...]:
        """Return the sort key of removals: those that are due come first."""
        return (self.due is None, self.begins is None, self.begins or self.due, self.project.slug)


def next_removals(db: Database, periods: Sequence[Period], **of: Any) -> list[NextRemoval]:
    """Return the projects with days that match `of`, those of which something is due first; `periods` are those of messages, in order.

    Of the projects in the database. One statement, and a look at the first message of each.
    """
    oldest = db.rows(Message.with_deleted).filter(project_id=OuterRef("pk")).order_by("pk").values("pk")[:1]
    removals = []
    projects = db.rows_of(Project.objects.all())  # where the messages are
    if not is_only(db):
        projects = projects.filter(pk__in=list(projects_in(db).values_list("pk", flat=True)))
    for project in projects.filter(retention_days__isnull=False, **of).annotate(oldest_id=Subquery(oldest)):
        first, before = project.oldest_id and ids.created_at_of(project.oldest_id), expired_before(project, periods)
        assert before and project.retention_days, "the project has days"
        is_due = first is not None and first < before
        removals.append(
            NextRemoval(
                project=project,
                due=before if is_due else None,
                begins=None if is_due or first is None else _end_of_life(project, first, periods),
                has_exceptions=kept_of(project) is not None,
            )
        )
    return sorted(removals, key=lambda removal: removal.place)


def scopes_of(db: Database, projects: Iterable[Project]) -> list[PurgeScope]:
    """Return what has to go of each project; projects of which nothing goes are left out."""
    scopes, periods = [], periods_of(db, Message._meta.db_table)
    for project in projects:
        created_before, deleted_before = expired_before(project, periods), trash_expired_before(project)
        if created_before or deleted_before:
            scopes.append(
                PurgeScope(
                    created_before=created_before,
                    deleted_before=deleted_before,
                    project_ids=(project.pk,),
                    kept=kept_of(project),
                )
            )
    return scopes


def expired_before(project: Project, periods: Sequence[Period]) -> datetime | None:
    """Return the time before which messages of a project have to go; None if none goes by age.

    `periods` are those of messages, in order.
    """
    if project.retention_days is None:
        return None
    before = _days_ago(project.retention_days)
    if project.retention_way == RetentionWay.WHOLE:
        return (period_at(periods, before) or Period.of(before)).begins_at
    return before


def trash_expired_before(project: Project) -> datetime | None:
    """Return the time of deletion before which the trash of a project has to go; None if it stays."""
    days = project.days_in_trash()
    return None if days is None else _days_ago(days)


def kept_of(project: Project) -> Kept | None:
    """Return the sessions that a project keeps whatever their age; None if there are no exceptions."""
    kept = Kept(
        tags=tuple(project.keep_tags),
        statuses=tuple(project.keep_statuses),
        scores=tuple(kept_score(text) for text in project.keep_scores),
        pinned=project.keep_pinned,
    )
    return None if kept == Kept() else kept


def _end_of_life(project: Project, created_at: datetime, periods: Sequence[Period]) -> datetime:
    if project.retention_way == RetentionWay.WHOLE:
        created_at = (period_at(periods, created_at) or Period.of(created_at)).ends_at
    return created_at + timedelta(days=project.retention_days or 0)


def _days_ago(days: int) -> datetime:
    """Return the time so many days ago, UTC; no message is older than EARLIEST."""
    now = timezone.now()
    return max(now - timedelta(days=min(days, (now - ids.EARLIEST).days + 1)), ids.EARLIEST)
