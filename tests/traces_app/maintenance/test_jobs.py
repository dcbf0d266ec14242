"""The jobs that have to be done again and again: `work`, the continual ones of `serve`, their page and their metrics."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.db.direct import connection_parameters
from access_app.models import AuditAction, AuditEntry, Project
from messages_app.change_log import Reader, unread
from messages_app.models import Message, Session
from sdk.tests.paths import ROOT
from tests.admin_pages import html_of, text_of
from tests.traces_app.conftest import answer, store
from traces_app.admin.jobs import COUNTS
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.jobs import JOBS, RETRY, start
from traces_app.models import JobRun, SearchSegment, ToolPeriod

DOCS = ROOT / "docs" / "production.md"
TIMES = ("started_at", "finished_at", "succeeded_at", "next_at")
BY_NAME = {job.name: job for job in JOBS}


def work(*arguments: str) -> dict[str, str]:
    """What the command says of each job."""
    out = StringIO()
    call_command("work", *arguments, stdout=out)
    return dict(line.split(": ", 1) for line in out.getvalue().splitlines())


def stale_run(project: Project) -> None:
    store(project, answer(is_completed=False))
    Message.objects.update(updated_at=timezone.now() - timedelta(hours=25))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def noted(name: str) -> JobRun:
    return JobRun.objects.get(pk=name)


@pytest.mark.django_db(transaction=True)
def test_continual_jobs_store_hours_and_index_messages(project: Project) -> None:
    calls = [{"name": "search", "result": {"output": "x"}}]
    created_at = timezone.now() - timedelta(hours=9)
    message = {"role": "assistant", "created_at": created_at, "agent_steps": [{"iteration": 0, "tool_calls": calls}]}
    store(project, {"external_id": "a", **message})
    stopped = threading.Event()
    continual = [job for job in JOBS if job.is_continual]
    thread = start(stopped, continual, pause=0.05)
    wait_until(
        lambda: ToolPeriod.objects.filter(project=project).exists() and not unread(primary, Reader.SEARCH).exists()
    )
    stopped.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not unread(primary, Reader.SEARCH).exists()
    assert SearchSegment.objects.count() == 1
    assert ToolPeriod.objects.filter(project=project, unit="hour", calls=1).count() == 1
    assert noted("index_search").counts["messages"] == 1
    assert set(JobRun.objects.filter(error="").values_list("pk", flat=True)) == {job.name for job in continual}


@pytest.mark.django_db(transaction=True)
def test_work_once_runs_what_is_due_and_notes_it(project: Project, staff: Client) -> None:
    stale_run(project)
    said = work("--once")
    on = [job.name for job in JOBS if job.is_on()]
    assert [name for name in said if not said[name].startswith("off ")] == on
    assert (said["close_stale_runs"], said["analyze"]) == ("closed 1", f"tables {len(TABLES)}")
    assert said["purge_audit"] == "off until TRACESITE_AUDIT_DAYS is set"
    assert list(said) == [job.name for job in JOBS]
    run = noted("close_stale_runs")
    assert (run.counts, run.error, run.next_at) == ({"closed": 1}, "", run.started_at + timedelta(minutes=10))
    assert AuditEntry.objects.get(action=AuditAction.CHANGE, actor_name="work").detail == {
        "job": "close_stale_runs",
        "closed": 1,
        "sessions": 0,
    }
    again = work("--once", "--except", "purge")
    assert list(again) == [job.name for job in JOBS if job.name != "purge"]
    assert again["close_stale_runs"] == "not due"
    assert work("--job", "close_stale_runs") == {"close_stale_runs": "nothing to do"}
    page = text_of(staff.get("/admin/traces_app/jobrun/"))
    assert re.search(
        r"Tell the database how large its tables are, so that it finds rows fast succeeded \d+ tables .* 24 hours", page
    )
    assert "Remove old entries of the audit log never run 24 hours off by a setting of the server" in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "ago", "ended", "expected"),
    [
        ("index_search", timedelta(seconds=70), True, ["succeeded"]),
        ("index_search", timedelta(minutes=6), True, ["late", "succeeded"]),
        ("index_search", timedelta(minutes=6), False, ["running, or killed"]),
        ("close_stale_runs", timedelta(minutes=6), True, ["succeeded"]),
        ("close_stale_runs", timedelta(hours=2), True, ["late", "succeeded"]),
    ],
)
def test_job_that_is_due_says_whether_it_is_late(
    staff: Client, name: str, ago: timedelta, ended: bool, expected: list[str]
) -> None:
    at = timezone.now() - ago
    JobRun.objects.create(name=name, started_at=at, finished_at=at if ended else None, next_at=at)
    page = html_of(staff.get("/admin/traces_app/jobrun/"))
    row = page.partition(f'title="{name}"')[2].partition("</tr>")[0]
    assert re.findall(r'class="badge[^>]*>([^<]+)<', row) == expected


@pytest.mark.django_db(transaction=True)
def test_page_of_jobs_has_a_word_for_every_count(
    project: Project, staff: Client, settings: Any, tmp_path: Path
) -> None:
    settings.TRACESITE_ARCHIVE_TO = str(tmp_path)
    for job in JOBS:
        counts = {name for name, count in job.run(primary, lambda: False).items() if isinstance(count, int)}
        assert counts <= set(COUNTS), job.name
    JobRun.objects.create(name="chain_audit", counts={"chained": 5000}, **dict.fromkeys(TIMES, timezone.now()))
    assert "succeeded 5,000 entries chained" in text_of(staff.get("/admin/traces_app/jobrun/"))
    staff.cookies["django_language"] = "zh-hans"
    assert "已链接 5,000 条记录" in text_of(staff.get("/admin/traces_app/jobrun/"))


@pytest.mark.django_db(transaction=True)
def test_job_that_fails_is_shown_and_stops_no_other(
    project: Project, staff: Client, settings: Any, tmp_path: Path
) -> None:
    Session.objects.filter(pk=store(project, answer()).id).update(deleted_at=timezone.now() - timedelta(days=9))
    settings.TRACESITE_ARCHIVE_TO, settings.TRACESITE_TRASH_DAYS = "memory://ann:secret@archive", 8
    with pytest.raises(CommandError, match=r"^Failed: archive\. The log has more\.$"):
        work("--once")
    run = noted("archive")
    assert run.error.startswith("The URL of the archive must not have a password")
    assert (run.succeeded_at, run.next_at) == (None, run.finished_at and run.finished_at + RETRY)
    assert noted("purge").counts == {"messages": 1, "sessions": 1}
    assert not Session.with_deleted.exists()
    page = text_of(staff.get("/admin/traces_app/jobrun/"))
    assert "Archive old periods failed The URL of the archive must not have a password" in page
    settings.TRACESITE_METRICS_TOKEN = "a-token-of-the-tests"
    lines = Client().get("/metrics", headers={"Authorization": "Bearer a-token-of-the-tests"}).content.decode()
    assert 'tracesite_job_success{job="archive"} 0.0' in lines
    assert 'tracesite_job_success{job="purge"} 1.0' in lines
    assert 'tracesite_job_overdue_seconds{job="archive"} 0.0' in lines
    # It succeeds once the reason is gone.
    settings.TRACESITE_ARCHIVE_TO = str(tmp_path)
    assert work("--job", "archive") == {"archive": "nothing to do"}
    assert (noted("archive").error, noted("archive").succeeded_at) == ("", noted("archive").finished_at)


@pytest.mark.django_db(transaction=True)
def test_program_error_of_job_is_noted_and_tried_again(staff: Client, settings: Any) -> None:
    may_go_on = threading.Event()
    runs: list[int] = []

    def run(_db: Any, _is_stopped: Any) -> dict[str, int]:
        runs.append(len(runs))
        if runs[-1]:
            may_go_on.wait(120)
        return {"done": 1 // runs[-1]}  # only the first run divides by zero

    settings.TRACESITE_METRICS_TOKEN = "a-token-of-the-tests"
    stopped = threading.Event()
    thread = start(stopped, [replace(BY_NAME["index_search"], run=run)], pause=0.02)
    wait_until(lambda: len(runs) == 2)
    assert "failed ZeroDivisionError" in text_of(staff.get("/admin/traces_app/jobrun/"))
    lines = Client().get("/metrics", headers={"Authorization": "Bearer a-token-of-the-tests"}).content.decode()
    assert 'tracesite_job_success{job="index_search"} 0.0' in lines
    may_go_on.set()
    stopped.set()
    thread.join(60)
    assert (noted("index_search").error, noted("index_search").counts) == ("", {"done": 1})


@pytest.mark.django_db(transaction=True)
def test_job_runs_once_at_a_time(project: Project) -> None:
    stale_run(project)
    with psycopg.connect(**connection_parameters(primary)) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [BY_NAME["close_stale_runs"].lock])
        assert work("--job", "close_stale_runs") == {"close_stale_runs": "runs elsewhere"}
        other.execute("SELECT pg_advisory_unlock_all()")
    assert work("--job", "close_stale_runs") == {"close_stale_runs": "closed 1"}
    assert len({job.lock for job in JOBS}) == len(JOBS)


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_two_processes_run_each_due_job_once(project: Project, tmp_path: Path) -> None:
    """Two `work --once` that begin at the same moment: each job is done by one of them, and nothing is done twice."""
    stale_run(project)
    store(project, answer(created_at=datetime(2024, 1, 10, tzinfo=UTC), usage={}), external_id="old")
    trashed = store(project, answer(external_id="gone"), external_id="trashed").id
    Session.objects.filter(pk=trashed).update(deleted_at=timezone.now() - timedelta(days=90))
    environment = os.environ | {"TRACESITE_ARCHIVE_TO": str(tmp_path), "TRACESITE_ARCHIVE_DAYS": "600"}
    environment["TRACESITE_TRASH_DAYS"] = "30"
    for name in {"DATABASE_URL", "DATABASE_DIRECT_URL"} & set(environment):
        environment[name] = urlsplit(environment[name])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    command = [sys.executable, "manage.py", "work", "--once"]
    with transaction.atomic(), connection.cursor() as cursor:
        # Both wait here to note their first job, so that they come to the others at the same time.
        cursor.execute("LOCK TABLE traces_app_jobrun IN ACCESS EXCLUSIVE MODE")
        processes = [
            subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE) for _ in range(2)
        ]

        def both_wait() -> bool:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE relation = 'traces_app_jobrun'::regclass AND NOT granted"
            )
            return cursor.fetchone() == (2,)

        wait_until(both_wait)
    said = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    outcomes = [dict(line.split(": ", 1) for line in text.splitlines()) for text in said]
    once = {"close_stale_runs", "archive", "purge", "analyze"}
    for name in once:
        both = {outcome[name] for outcome in outcomes}
        assert len(both) == 2, name
        assert both & {"not due", "runs elsewhere"}, name
    runs = {run.name: run for run in JobRun.objects.all()}
    assert {run.error for run in runs.values()} == {""}
    assert runs["close_stale_runs"].counts == {"closed": 1}
    assert runs["archive"].counts == {"archived": 1, "messages": 1}
    assert runs["purge"].counts == {"messages": 1, "sessions": 1}
    done = AuditEntry.objects.filter(actor_name="work").exclude(action=AuditAction.SEAL)
    # Closed, archived, dropped, purged.
    assert sorted(done.values_list("action", flat=True)) == ["change", "export", "purge", "purge"]
    assert Message.objects.count() == 1
    for check in ("verify_traces", "check_traces"):
        call_command(check, stdout=StringIO())


@pytest.mark.django_db(transaction=True)
def test_work_goes_on_until_a_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def end_work() -> None:
        wait_until(lambda: signal.getsignal(signal.SIGTERM) is not before)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=end_work)
    other.start()
    call_command("work")
    other.join()
    assert not [thread for thread in threading.enumerate() if thread.name in ("jobs", "job")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--job", "tidy"], "--job tidy: use one of make_messages"),
        (["--job", "archive"], "off until TRACESITE_ARCHIVE_TO is set"),
        (["--once", "--except", "tidy"], "--except tidy: use one of make_messages"),
        (["--job", "purge", "--except", "purge"], "Use either --job or --except"),
    ],
)
def test_job_that_cannot_run_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        work(*arguments)


def test_docs_list_every_job() -> None:
    section = DOCS.read_text().partition("\n## Jobs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`( \*)? \|", section, re.M)
    assert rows == [(job.name, " *" if job.is_continual else "") for job in JOBS]
