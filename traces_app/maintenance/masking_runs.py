"""Apply masking rules to stored traces in the background, when an owner has asked for it.

A run is a row. Its progress is stored after each batch, so that a process may be killed at any moment and another one goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import User
from django.utils import timezone

from access_app.audit.record import origin_of_user
from access_app.audit.trail import Actor
from access_app.db import Database
from access_app.db.direct import lock_key, session_lock
from access_app.masking import RuleRow, compiled
from access_app.models import Project
from access_app.people import with_people
from access_app.request_database import database_of
from traces_app.models import MaskingRun

from .masking import apply_masking

LOCK: Final = lock_key("tracesite masking runs")


@dataclass(kw_only=True)
class MaskingReport:
    """The work of one call."""

    read: int = 0
    changed: int = 0
    finished: int = 0
    """Runs that ended."""


def request_run(project: Project, rules: Sequence[RuleRow], user: User) -> tuple[MaskingRun, bool]:
    """Ask for a run; return it and True. While another one of the project is not finished, return that and False."""
    wanted = {"rules": rules, "requested_by": user, "requested_at": timezone.now()}
    return MaskingRun.objects.get_or_create(project=project, finished_at=None, defaults=wanted)


def continue_runs(db: Database, *, is_stopped: Callable[[], bool] = lambda: False) -> MaskingReport:
    """Do what was asked for, one run after another. Does nothing while another process does."""
    report = MaskingReport()
    waiting = MaskingRun.objects.filter(finished_at=None).order_by("pk")
    if not waiting.exists():
        return report
    with session_lock(db, LOCK) as is_alone:
        if is_alone:
            for run in with_people(waiting, "requested_by"):
                _continue(run, report, is_stopped)
    return report


def _continue(run: MaskingRun, report: MaskingReport, is_stopped: Callable[[], bool]) -> None:
    read, changed, removed = run.read, run.changed, Counter(run.removed)
    try:
        rules = compiled(tuple((name, kind, value) for name, kind, value in run.rules))
    except ValueError as error:  # a function that is no longer allowed
        run.error = str(error)
    else:
        # Who asked for it, if there is such a user still.
        origin = origin_of_user(run.requested_by)
        db = database_of(run.project_id, Actor(lambda: origin))
        for done in apply_masking(db, run.project_id, rules, after=run.reached):
            run.reached = done.reached
            run.read, run.changed, run.removed = read + done.read, changed + done.changed, removed + done.rules
            run.save(update_fields=["reached", "read", "changed", "removed"])
            if is_stopped():
                return
    run.finished_at = timezone.now()
    run.save(update_fields=["finished_at", "error"])
    report.read += run.read - read
    report.changed += run.changed - changed
    report.finished += 1
