"""The page of jobs: when each last ran, how that ended, and when it is due again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, ngettext_lazy

from access_app.admin_roles import Page
from access_app.db import Database
from access_app.program import program
from access_app.readable_pages import each_that_answers
from messages_app.admin.time_zones import with_zone
from traces_app.maintenance.jobs import JOBS, QUIET, Job
from traces_app.models import JobRun

if TYPE_CHECKING:
    JobRunModelAdmin = admin.ModelAdmin[JobRun]
else:
    JobRunModelAdmin = admin.ModelAdmin  # not generic at run time


LATE = timedelta(hours=1)
LATE_CONTINUAL = 5 * QUIET
"""Runs of continual jobs without work are noted only every QUIET."""


COUNTS: Mapping[str, Any] = {
    "archived": ngettext_lazy("%(number)s period archived", "%(number)s periods archived", "count"),
    "chained": ngettext_lazy("%(number)s entry chained", "%(number)s entries chained", "count"),
    "changed": ngettext_lazy("%(number)s changed", "%(number)s changed", "count"),
    "closed": ngettext_lazy("%(number)s run closed", "%(number)s runs closed", "count"),
    "embedded": ngettext_lazy("%(number)s question embedded", "%(number)s questions embedded", "count"),
    "entries": ngettext_lazy("%(number)s entry", "%(number)s entries", "count"),
    "failed": ngettext_lazy("%(number)s trace failed", "%(number)s traces failed", "count"),
    "failures": ngettext_lazy("%(number)s failure", "%(number)s failures", "count"),
    "finished": ngettext_lazy("%(number)s request finished", "%(number)s requests finished", "count"),
    "hours": ngettext_lazy("%(number)s hour", "%(number)s hours", "count"),
    "merged": ngettext_lazy("%(number)s segment merged", "%(number)s segments merged", "count"),
    "messages": ngettext_lazy("%(number)s message", "%(number)s messages", "count"),
    "messages_kept": ngettext_lazy("%(number)s message kept", "%(number)s messages kept", "count"),
    "opened": ngettext_lazy("%(number)s message open again", "%(number)s messages open again", "count"),
    "patterns": ngettext_lazy("%(number)s pattern", "%(number)s patterns", "count"),
    "read": ngettext_lazy("%(number)s read", "%(number)s read", "count"),
    "refused": ngettext_lazy("%(number)s message refused", "%(number)s messages refused", "count"),
    "removed": ngettext_lazy("%(number)s message removed", "%(number)s messages removed", "count"),
    "resealed": ngettext_lazy("%(number)s message sealed again", "%(number)s messages sealed again", "count"),
    "rows": ngettext_lazy("%(number)s row", "%(number)s rows", "count"),
    "runs": ngettext_lazy("%(number)s run", "%(number)s runs", "count"),
    "sealed": ngettext_lazy("%(number)s message sealed", "%(number)s messages sealed", "count"),
    "segments": ngettext_lazy("%(number)s segment", "%(number)s segments", "count"),
    "sessions": ngettext_lazy("%(number)s session", "%(number)s sessions", "count"),
    "tables": ngettext_lazy("%(number)s table", "%(number)s tables", "count"),
    "traces": ngettext_lazy("%(number)s trace", "%(number)s traces", "count"),
}
"""What jobs count, in words."""


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job in a database, with its last run there, if there was one."""

    job: Job
    database: str
    """The alias, if the job runs in several."""
    run: JobRun | None
    now: datetime

    @property
    def is_on(self) -> bool:
        return self.job.is_on()

    @property
    def is_late(self) -> bool:
        """Whether nothing runs it: it is due for LATE (a continual one that does not run now: for LATE_CONTINUAL), or has never run."""
        if self.run is None or not self.is_on:
            return self.is_on
        rests = self.job.is_continual and self.run.finished_at is not None
        return self.run.next_at < self.now - (LATE_CONTINUAL if rests else LATE)

    @property
    def counts(self) -> str:
        counts = {} if self.run is None else self.run.counts
        return ", ".join(
            COUNTS[name] % {"count": count, "number": intcomma(count)} if name in COUNTS else f"{name} {count:,}"
            for name, count in counts.items()
        )

    @property
    def every(self) -> str:
        """Return how often it runs, in words: the jobs that are not continual run every minute at most."""
        minutes = round(self.job.every.total_seconds() / 60)
        if minutes % 60:
            return ngettext("%(number)s minute", "%(number)s minutes", minutes) % {"number": minutes}
        hours = minutes // 60
        return ngettext("%(number)s hour", "%(number)s hours", hours) % {"number": hours}

    @property
    def duration_ms(self) -> float | None:
        if self.run is None or self.run.finished_at is None:
            return None
        return (self.run.finished_at - self.run.started_at).total_seconds() * 1000

    @property
    def next_at(self) -> datetime | None:
        """Return the time at which the job is due; None if it is due already."""
        return None if self.run is None or self.run.next_at <= self.now else self.run.next_at


def job_rows(request: HttpRequest) -> list[JobRow]:
    """Return the jobs of each database that responds."""
    runs = _runs(request)
    now = timezone.now()
    return [
        JobRow(job=job, database=db.alias if len(job.databases) > 1 else "", run=runs[db].get(job.name), now=now)
        for job in JOBS
        for db in job.databases
        if db in runs
    ]


def show_jobs(model_admin: JobRunAdmin, request: HttpRequest) -> HttpResponse:
    """Show the jobs of each database that responds."""
    rows = job_rows(request)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Jobs"),
        "opts": model_admin.opts,
        "next_run": with_zone(_("Next")),
        "sections": [
            (_("Always running"), [row for row in rows if row.job.is_continual], True),
            (_("From time to time"), [row for row in rows if not row.job.is_continual], False),
        ],
        "are_late": any(row.is_late and not row.job.is_continual for row in rows),
        "program": program(),
    }
    return TemplateResponse(request, "admin/traces_app/jobs.html", context)


@admin.register(JobRun)
class JobRunAdmin(JobRunModelAdmin):
    """One page, for superusers, because jobs work on all projects. Nothing is changed here."""

    def get_urls(self) -> list[URLPattern]:
        return [Page("", show_jobs, "changelist").url(self)]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_view_permission(self, request: HttpRequest, obj: JobRun | None = None) -> bool:
        return request.user.is_superuser

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: JobRun | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: JobRun | None = None) -> bool:
        return False


def _runs(request: HttpRequest) -> dict[Database, dict[str, JobRun]]:
    """Return the last runs by job, for each database that responds. The page names those that do not."""
    return each_that_answers(request, lambda db: db.rows(JobRun.objects).in_bulk())
