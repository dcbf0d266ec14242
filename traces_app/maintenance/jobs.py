"""Recurring jobs: when each is due, and how its last run ended.

`work` runs all jobs, on as many machines as it is started on; `serve` starts a `work` that runs the continual ones. A job may be killed at any
moment and goes on the next time: see the modules that do the work.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import Error, connections
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from access_app.audit.chain import append_recorded, purge_before
from access_app.audit.record import record
from access_app.conf import conf
from access_app.db import PEOPLE_ARE_HERE, Database, all_databases, primary
from access_app.db.direct import lock_key, session_lock
from access_app.errors import ApiError
from access_app.models import AuditAction
from access_app.people import forget_gone
from messages_app.change_log import trim
from traces_app.ingest.partitions import TABLES
from traces_app.models import JobRun
from traces_app.spans.due import forget_idle
from traces_app.spans.projector import make_due_traces

from .error_patterns import store_patterns
from .job_threads import JobThreads
from .masking_runs import continue_runs
from .retention import apply_retention
from .run_vectors import store_vectors
from .seals.sealing import seal_changed
from .search_index import index_changed
from .stale_runs import abandon, close, stale_runs
from .tool_roll_up import roll_up

RETRY = timedelta(minutes=10)
"""A job that failed or was killed is tried again after so long, if it is not due sooner."""
QUIET = timedelta(minutes=1)
"""Runs of continual jobs that found nothing to do are noted this often."""
_LOOK = QUIET / 4
"""How often a process looks whether such a run is to be noted: not in each run, which may be a single short query itself."""
_REST = timedelta(seconds=2)
"""The shortest pause after a run that failed."""
_LONGEST_PAUSE = timedelta(minutes=1)

IsStopped = Callable[[], bool]
Numbers = Mapping[str, Any]
"""Results of a run by name; those that are no numbers are only for the log."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Something that is done again and again."""

    name: str
    title: Promise
    every: timedelta
    run: Callable[[Database, IsStopped], Numbers]
    """Works in a database. Ends soon after it is told to, if it can take long."""
    is_continual: bool = False
    """Whether `serve` has it run, too. Such a job takes turns by a lock of its own; the others run once at a time."""
    is_of_site: bool = False
    """Whether it runs in the primary alone, and not in each database with traces."""
    is_on: Callable[[], bool] = lambda: True
    setting: str = ""
    """The setting without which it is off."""

    @property
    def lock(self) -> int:
        """The key of the advisory lock of a job that is not continual."""
        return lock_key(f"tracesite job {self.name}")

    @property
    def databases(self) -> tuple[Database, ...]:
        """The databases in which it runs."""
        return (primary,) if self.is_of_site else all_databases()


class JobFailed(Exception):
    """A job could not do its work; the text says why, and what to do."""


_EXPECTED = (Error, ApiError, OSError, JobFailed)
"""Failures of a job that are no errors of the program."""


class State(StrEnum):
    DONE = "done"
    FAILED = "failed"
    NOT_DUE = "not due"
    ELSEWHERE = "runs elsewhere"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run of a job ended."""

    state: State
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


def run_job(
    db: Database,
    job: Job,
    *,
    is_stopped: IsStopped = lambda: False,
    if_due: bool = True,
    notes_quiet: bool = True,
) -> Outcome:
    """Run a job in a database and note how that went; with `if_due` only if it is due. An error of the job is logged and noted, not raised.

    Without `notes_quiet` nothing is noted of a continual job that found nothing to do. Raises Django's database errors if nothing
    can be noted.
    """
    if job.is_continual:
        return _run(db, job, is_stopped, notes_quiet=notes_quiet)
    if if_due and not _is_due(db, job):
        return Outcome(state=State.NOT_DUE)
    with session_lock(db, job.lock) as is_alone:
        if not is_alone:
            return Outcome(state=State.ELSEWHERE)
        if if_due and not _is_due(db, job):  # another process was faster
            return Outcome(state=State.NOT_DUE)
        return _run(db, job, is_stopped)


def start(stopped: threading.Event, jobs: Iterable[Job], *, pause: float | None = None) -> threading.Thread:
    """Run each job when it is due, until `stopped` is set; the thread that is returned ends when no job runs any more.

    A job that takes long, or hangs, holds up no other.
    """
    turns = [_Turn(job=job, pause=pause or min(job.every, _LONGEST_PAUSE).total_seconds()) for job in jobs]
    thread = threading.Thread(target=_run_when_due, args=[stopped, turns], name="jobs", daemon=True)
    thread.start()
    return thread


@dataclass(kw_only=True, eq=False)
class _Turn:
    """When this process runs a job next."""

    job: Job
    pause: float
    """The longest time between two runs, in seconds."""
    at: float = 0
    """By time.monotonic()."""
    is_running: bool = False
    next_note: dict[str, float] = field(default_factory=dict)
    """When it may note a run that found nothing to do, by the alias of the database."""

    def put_off(self, at_least: float = 0) -> None:
        # Processes begin at the same time; later they should not.
        pause = self.pause * random.uniform(0.5, 1)  # noqa: S311 - not a secret
        self.at = time.monotonic() + max(pause, at_least)


def _run_when_due(stopped: threading.Event, turns: Sequence[_Turn]) -> None:
    threads = JobThreads()
    for turn in turns:
        turn.put_off()
    while not stopped.wait(max(0, _next_at(turns) - time.monotonic())):
        for turn in turns:
            if turn.at > time.monotonic():
                continue
            turn.put_off()  # from the end of the run, once that is known
            if turn.is_running or not turn.job.is_on():
                continue
            turn.is_running = True
            try:
                threads.run(partial(_take, turn, stopped))
            except RuntimeError:  # no memory, or no more threads
                logger.exception("a background job could not be started and will be tried again: %s", turn.job.name)
                turn.is_running = False
    threads.end()


def _next_at(turns: Sequence[_Turn]) -> float:
    return min((turn.at for turn in turns), default=threading.TIMEOUT_MAX)


def _take(turn: _Turn, stopped: threading.Event) -> None:
    """Run a job in its databases."""
    pause = 0.0
    try:
        for db in turn.job.databases:
            if _has_failed(turn, db, stopped):
                connections.close_all()  # because of the state in which they may be
                pause = _REST.total_seconds()
    finally:
        turn.put_off(pause)
        turn.is_running = False


def _has_failed(turn: _Turn, db: Database, stopped: threading.Event) -> bool:
    """Run a job in a database; return whether that failed."""
    now = time.monotonic()
    notes_quiet = turn.next_note.get(db.alias, now) <= now
    if notes_quiet:
        turn.next_note[db.alias] = now + _LOOK.total_seconds()
    try:
        outcome = run_job(db, turn.job, is_stopped=stopped.is_set, notes_quiet=notes_quiet)
    except Error:
        logger.warning("a background job could not be noted and will be tried again: %s", turn.job.name, exc_info=True)
        return True
    return outcome.state is State.FAILED


def _is_due(db: Database, job: Job) -> bool:
    return not db.rows(JobRun.objects).filter(pk=job.name, next_at__gt=timezone.now()).exists()


def _run(db: Database, job: Job, is_stopped: IsStopped, *, notes_quiet: bool = True) -> Outcome:
    started_at = timezone.now()
    soon = min(job.every, RETRY)
    if not job.is_continual:
        # Also the time of the next attempt if this process is killed, so that a job that kills it does not do so at once again.
        begun = {"started_at": started_at, "finished_at": None, "next_at": started_at + soon}
        db.rows(JobRun.objects).update_or_create(pk=job.name, defaults=begun)
    try:
        result = job.run(db, is_stopped)
    except Exception as error:
        # Also an error of the program, because it must not end the job for good: it is logged with its traceback,
        # noted as failed, and the job tried again.
        level = logging.WARNING if isinstance(error, _EXPECTED) else logging.ERROR
        logger.log(level, "a background job failed and will be tried again: %s", job.name, exc_info=True)
        outcome = Outcome(state=State.FAILED, error=_in_words(error))
    else:
        counts = {name: count for name, count in result.items() if isinstance(count, int) and count}
        outcome = Outcome(state=State.DONE, counts=counts)
        if counts:
            logger.info("background job: %s", job.name, extra=dict(result))
    now = timezone.now()
    is_quiet = job.is_continual and not outcome.counts and not outcome.error
    if is_quiet and (not notes_quiet or _was_noted_after(db, job, now - QUIET)):
        return outcome
    ended: dict[str, Any] = {
        "started_at": started_at,
        "finished_at": now,
        "next_at": now + soon if outcome.error else max(started_at + job.every, now),
        "error": outcome.error,
        "counts": outcome.counts,
    }
    if not outcome.error:
        ended["succeeded_at"] = now
    db.rows(JobRun.objects).update_or_create(pk=job.name, defaults=ended)
    return outcome


def _was_noted_after(db: Database, job: Job, at: datetime) -> bool:
    return db.rows(JobRun.objects).filter(pk=job.name, finished_at__gt=at).exists()


def _in_words(error: Exception) -> str:
    """Return an error without anything that may be content of traces: the log has the rest."""
    return str(error) if isinstance(error, (ApiError, JobFailed)) else type(error).__name__


# --- The jobs ---------------------------------------------------------------------------------------------------------


def _close_stale_runs(db: Database, is_stopped: IsStopped) -> Numbers:
    before = timezone.now() - timedelta(hours=conf.STALE_RUN_HOURS)
    closed = 0
    for run in stale_runs(db, before):
        if is_stopped():
            break
        closed += close(db, run)
    counts = {"closed": closed, "sessions": abandon(db, before)}
    if any(counts.values()):
        record(AuditAction.CHANGE, db.actor, object_type="message", detail={"job": "close_stale_runs", **counts})
    return counts


def _purge(db: Database, _is_stopped: IsStopped) -> Numbers:
    report = apply_retention(db)
    counts = {name: report.tables[name].rows for name in ("messages", "sessions")}
    if not report.is_empty:
        record(AuditAction.PURGE, db.actor, object_type="session", detail={"job": "purge", **counts})
    return counts


def _archive(db: Database, _is_stopped: IsStopped) -> Numbers:
    try:
        from .archive.archiving import archive  # the extra may be missing
        from .archive.folder import ArchiveError, open_folder
    except ImportError as error:
        raise JobFailed(f"Archives need the package {error.name}, which this installation lacks.") from error
    try:
        report = archive(
            db,
            open_folder(conf.ARCHIVE_TO),
            before=timezone.now() - timedelta(days=conf.ARCHIVE_DAYS),
            drop=True,
        )
    except (ArchiveError, OSError) as error:
        raise JobFailed(str(error)) from error
    return {
        "archived": sum(done.is_new for done in report.archived),
        "messages": report.dropped.tables["messages"].rows,
        "messages_kept": report.messages_kept,
    }


def _purge_audit(db: Database, _is_stopped: IsStopped) -> Numbers:
    removed = purge_before(db.actor, timezone.now() - timedelta(days=conf.AUDIT_DAYS))
    return {"entries": sum(removed.values())}


def _analyze(db: Database, is_stopped: IsStopped) -> Numbers:
    """Update the planner's statistics of partitioned tables, which autovacuum does not."""
    done = 0
    for table in TABLES:
        if is_stopped():
            break
        with db.cursor() as cursor:
            cursor.execute(f"ANALYZE {db.connection.ops.quote_name(table.name)}")
        done += 1
    return {"tables": done}


def _trim(db: Database, _is_stopped: IsStopped) -> Numbers:
    forget_idle(db)
    return {"rows": trim(db)}


def _forget_people(_db: Database, _is_stopped: IsStopped) -> Numbers:
    return {"rows": forget_gone()}


JOBS: tuple[Job, ...] = (
    Job(
        name="make_messages",
        title=_("Make the messages of traces"),
        every=timedelta(seconds=0.2),
        run=lambda db, is_stopped: vars(make_due_traces(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="index_search",
        title=_("Index messages for the search"),
        every=timedelta(seconds=2),
        run=lambda db, is_stopped: vars(index_changed(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="store_vectors",
        title=_("Store vectors of runs, to find similar ones"),
        every=timedelta(seconds=2),
        run=lambda db, is_stopped: vars(store_vectors(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="store_patterns",
        title=_("Store the patterns of errors, to group them"),
        every=timedelta(seconds=2),
        run=lambda db, is_stopped: vars(store_patterns(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="trim_log",
        title=_("Tidy up the log of changes"),
        every=timedelta(seconds=10),
        run=_trim,
        is_continual=True,
    ),
    Job(
        name="chain_audit",
        is_of_site=True,
        title=_("Chain the audit log, so that changes show"),
        every=timedelta(seconds=10),
        run=lambda _db, is_stopped: vars(append_recorded(is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="seal_traces",
        title=_("Seal messages, so that changes show"),
        every=timedelta(seconds=30),
        run=lambda db, is_stopped: vars(seal_changed(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="apply_masking",
        is_of_site=True,
        title=_("Apply masking rules to stored traces where an owner asked for it"),
        every=timedelta(seconds=10),
        run=lambda db, is_stopped: vars(continue_runs(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="roll_up_tools",
        title=_("Add up the statistics of tools"),
        every=timedelta(minutes=1),
        run=lambda db, is_stopped: vars(roll_up(db, is_stopped=is_stopped)),
        is_continual=True,
    ),
    Job(
        name="close_stale_runs",
        title=_("Close runs whose sender is gone"),
        every=timedelta(minutes=10),
        run=_close_stale_runs,
    ),
    Job(
        name="archive",
        title=_("Archive old periods"),
        every=timedelta(days=1),
        run=_archive,
        is_on=lambda: bool(conf.ARCHIVE_TO),
        setting="TRACESITE_ARCHIVE_TO",
    ),
    Job(
        name="purge",
        title=_("Remove what is older than its project allows"),
        every=timedelta(days=1),
        run=_purge,
    ),
    Job(
        name="purge_audit",
        is_of_site=True,
        title=_("Remove old entries of the audit log"),
        every=timedelta(days=1),
        run=_purge_audit,
        is_on=lambda: conf.AUDIT_DAYS > 0,
        setting="TRACESITE_AUDIT_DAYS",
    ),
    Job(
        name="forget_people",
        is_of_site=True,
        title=_("Remove what belonged to users and groups that are gone from their database"),
        every=timedelta(hours=1),
        run=_forget_people,
        is_on=lambda: not PEOPLE_ARE_HERE,
        setting="TRACESITE_DATABASE",
    ),
    Job(
        name="analyze",
        title=_("Tell the database how large its tables are, so that it finds rows fast"),
        every=timedelta(days=1),
        run=_analyze,
    ),
)
