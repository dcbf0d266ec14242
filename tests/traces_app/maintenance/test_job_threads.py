"""The threads in which `work` runs jobs: how many they are, and the connections that they keep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection

from access_app.db import primary
from access_app.db.direct import connection_parameters
from tests.waiting import eventually
from traces_app.maintenance import job_threads
from traces_app.maintenance.job_threads import JobThreads
from traces_app.maintenance.jobs import JOBS, Job, run_job, start
from traces_app.models import JobRun

pytestmark = pytest.mark.django_db(transaction=True)
QUICK = next(job for job in JOBS if job.name == "trim_log")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks wait for an idle thread, and threads keep their connections, for longer than a machine pauses."""
    monkeypatch.setattr(job_threads, "A_MOMENT", 60)
    monkeypatch.setattr(job_threads, "KEPT_SECONDS", 600)


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    with psycopg.connect(**connection_parameters(primary), autocommit=True) as other:
        yield other


@pytest.fixture
def started() -> Iterator[Callable[..., None]]:
    """Start jobs as `work` does; afterwards they end."""
    stopped = threading.Event()
    threads: list[threading.Thread] = []
    yield lambda *jobs: threads.append(start(stopped, jobs, pause=0.02))
    stopped.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def backend() -> int:
    """Return the process of PostgreSQL behind the connection of this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (number,) = cursor.fetchone()
    return int(number)


def noting(name: str, into: list[int]) -> Job:
    """Return a job that notes the process of PostgreSQL of each run."""

    def run(_db: Any, _is_stopped: Any) -> dict[str, int]:
        into.append(backend())
        return {}

    return replace(QUICK, name=name, run=run)


def is_connected(other: psycopg.Connection, process: int) -> bool:
    return other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [process]).fetchone() is not None


def test_short_jobs_share_one_connection(started: Callable[..., None], other: psycopg.Connection) -> None:
    first: list[int] = []
    second: list[int] = []
    started(noting("first", first), noting("second", second))
    eventually(lambda: min(len(first), len(second)) > 5)
    (process,) = {*first, *second}
    assert process != backend()
    assert is_connected(other, process)


def test_job_that_hangs_holds_up_no_other(started: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_threads, "A_MOMENT", 0.01)
    may_end = threading.Event()
    hanging: list[int] = []
    others: list[int] = []

    def hang(_db: Any, _is_stopped: Any) -> dict[str, int]:
        hanging.append(backend())
        may_end.wait(120)
        return {}

    try:
        started(replace(QUICK, name="hangs", run=hang), noting("first", others), noting("second", others))
        eventually(lambda: bool(hanging))
        others.clear()
        eventually(lambda: len(others) > 10)
        assert len(hanging) == 1
        assert hanging[0] not in others
    finally:
        may_end.set()


def test_broken_connection_is_replaced_before_the_next_task(other: psycopg.Connection) -> None:
    seen: list[int] = []
    threads = JobThreads()
    try:
        for number in (1, 2, 3):
            threads.run(lambda: seen.append(backend()))
            eventually(lambda number=number: len(seen) == number)
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [seen[-1]])
    finally:
        threads.end()
    assert len(set(seen)) == 3


def test_connection_of_failed_run_is_not_kept(started: Callable[..., None]) -> None:
    seen: list[int] = []

    def run(_db: Any, _is_stopped: Any) -> dict[str, int]:
        seen.append(backend())
        raise ZeroDivisionError

    started(replace(QUICK, name="fails", run=run))
    eventually(lambda: len(seen) > 1)
    assert seen[0] != seen[1]


def test_idle_thread_gives_up_its_connection(other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_threads, "KEPT_SECONDS", 0.1)
    seen: list[int] = []
    ran_in: set[threading.Thread] = set()

    def task() -> None:
        seen.append(backend())
        ran_in.add(threading.current_thread())

    threads = JobThreads()
    try:
        for number in (1, 2):
            threads.run(task)
            eventually(lambda number=number: len(seen) == number and not is_connected(other, seen[-1]))
    finally:
        threads.end()
    assert len(ran_in) == 1
    assert not any(thread.is_alive() for thread in ran_in)


def test_quiet_run_that_notes_nothing_is_one_query(django_assert_num_queries: Any) -> None:
    job = noting("quick", [])
    with django_assert_num_queries(1):
        run_job(primary, job, notes_quiet=False)
    assert not JobRun.objects.exists()
    run_job(primary, job)
    assert JobRun.objects.get().error == ""


def test_quiet_runs_are_noted_once(started: Callable[..., None]) -> None:
    seen: list[int] = []
    started(noting("quick", seen))
    eventually(lambda: len(seen) > 1)
    noted = JobRun.objects.get()
    eventually(lambda: len(seen) > 10)
    assert JobRun.objects.get().started_at == noted.started_at
