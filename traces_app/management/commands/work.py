"""manage.py work: run the jobs that have to be done again and again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.audit.record import command_actor
from access_app.command import TracesiteCommand
from access_app.db import primary
from traces_app.maintenance.jobs import JOBS, Job, Outcome, State, run_job, start

PATIENCE_SECONDS = 20
"""How long jobs may take to end after a signal; what they had not done, the next run does."""
NICENESS = 10
"""Of the jobs beside a server, so that its requests come first."""


class Command(TracesiteCommand):
    help = (
        "Run the jobs that are due, until Ctrl-C or SIGTERM: index, statistics, seals, closing of stale runs, retention, archive and "
        "others. May run on several machines at once; a job runs once at a time. `serve` has the continual ones in a process of its own, unless "
        "TRACESITE_BACKGROUND_JOBS is off. Exit status: 0 done, 1 a job failed (--once, --job), 2 invalid arguments. Jobs: "
        + ", ".join(job.name for job in JOBS)
        + "."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--once", action="store_true", help="run what is due, one after the other, and end")
        how.add_argument("--job", metavar="NAME", help="run this job now, due or not, and end")
        how.add_argument(
            "--beside",
            type=int,
            metavar="PID",
            help="as `serve` starts it: run the continual jobs alone, at a low priority, until this process, its parent, ends",
        )
        parser.add_argument(
            "--except",
            metavar="NAME",
            dest="left_out",
            action="append",
            default=[],
            help="leave this job to something else, such as a timer that runs it with --job after a backup; may be repeated",
        )

    def handle(self, *, once: bool, job: str | None, beside: int | None, left_out: list[str], **options: Any) -> None:
        if job is not None and left_out:
            raise CommandError("Use either --job or --except.", returncode=2)
        wanted = [job for job in JOBS if job not in [_named("--except", name) for name in left_out]]
        if job is not None:
            self._run([_that_is_on(job)], if_due=False)
        elif once:
            self._run(wanted, if_due=True)
        elif beside is not None:
            os.nice(NICENESS)
            _work([job for job in wanted if job.is_continual], lambda: os.getppid() != beside)
        else:
            _work(wanted, lambda: False)

    def _run(self, jobs: list[Job], *, if_due: bool) -> None:
        failed = []
        for job in jobs:
            if not job.is_on():
                self.stdout.write(f"{job.name}: off until {job.setting} is set")
                continue
            for db in job.databases:
                name = job.name if db == primary else f"{job.name} in {db.alias}"
                outcome = run_job(replace(db, actor=command_actor("work")), job, if_due=if_due)
                if outcome.state is State.FAILED:
                    failed.append(name)
                    self.stderr.write(f"{name}: {outcome.error}")
                else:
                    self.stdout.write(f"{name}: {_in_words(outcome)}")
        if failed:
            raise CommandError(f"Failed: {', '.join(failed)}. The log has more.")


def _named(option: str, name: str) -> Job:
    job = next((job for job in JOBS if job.name == name), None)
    if job is None:
        raise CommandError(f"{option} {name}: use one of {', '.join(job.name for job in JOBS)}.", returncode=2)
    return job


def _that_is_on(name: str) -> Job:
    job = _named("--job", name)
    if not job.is_on():
        raise CommandError(f"--job {name}: this job is off until {job.setting} is set.", returncode=2)
    return job


def _in_words(outcome: Outcome) -> str:
    if outcome.state is not State.DONE:
        return outcome.state.value
    return ", ".join(f"{name} {count:,}" for name, count in outcome.counts.items()) or "nothing to do"


def _work(jobs: Sequence[Job], is_over: Callable[[], bool]) -> None:
    """Run the jobs until a signal, or until it is over, which is asked every second."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = start(stopped, jobs)
        while not (stopped.wait(1) or is_over()):
            pass
        stopped.set()
        thread.join(PATIENCE_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
