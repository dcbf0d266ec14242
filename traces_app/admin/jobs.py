"""The page of jobs: when each last ran, how that ended, and when it is due again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

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


COUNTS: Mapping[str, Promise] = {
    "archived": gettext_lazy("archived"),
    "chained": gettext_lazy("chained"),
    "changed": gettext_lazy("changed"),
    "closed": gettext_lazy("closed"),
    "embedded": gettext_lazy("embedded"),
    "entries": gettext_lazy("entries"),
    "failed": gettext_lazy("failed"),
    "failures": gettext_lazy("failures"),
    "finished": gettext_lazy("finished"),
    "hours": gettext_lazy("hours"),
    "merged": gettext_lazy("merged"),
    "messages": gettext_lazy("messages"),
    "messages_kept": gettext_lazy("messages kept"),
    "opened": gettext_lazy("opened"),
    "patterns": gettext_lazy("patterns"),
    "read": gettext_lazy("read"),
    "refused": gettext_lazy("refused"),
    "removed": gettext_lazy("removed"),
    "resealed": gettext_lazy("resealed"),
    "rows": gettext_lazy("rows"),
    "runs": gettext_lazy("runs"),
    "sealed": gettext_lazy("sealed"),
    "segments": gettext_lazy("segments"),
    "sessions": gettext_lazy("sessions"),
    "tables": gettext_lazy("tables"),
    "traces": gettext_lazy("traces"),
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
        return ", ".join(f"{COUNTS.get(name, name)} {count:,}" for name, count in counts.items())

    @property
    def every_ms(self) -> float:
        return self.job.every.total_seconds() * 1000

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
        "rows": rows,
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
