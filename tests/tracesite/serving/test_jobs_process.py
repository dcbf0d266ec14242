"""The process beside the workers that runs the continual jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import processes
from benchmarks.faults.site import Site, running
from sdk.tests.ports import free_port
from tests.waiting import eventually
from traces_app.management.commands.work import NICENESS

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


def jobs_of(site: Site) -> list[int]:
    found = {pid for pid in site.server.family() if "--beside" in processes.command_line(pid)}
    # Without what they start themselves, which has their command line for a moment.
    return [pid for pid in found if pid not in {below for above in found for below in processes.family(above)[1:]}]


def test_jobs_have_one_process_of_low_priority_that_is_started_again(site: Site) -> None:
    eventually(lambda: len(jobs_of(site)) == 1)
    (jobs,) = jobs_of(site)
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, jobs) == NICENESS)
    with site.connect() as connection:
        eventually(lambda: len(connection.execute("SELECT name FROM traces_app_jobrun").fetchall()) > 3)
    os.kill(jobs, signal.SIGKILL)
    eventually(lambda: len(jobs_of(site)) == 1 and jobs_of(site) != [jobs])
    (worker,) = site.server.worker_pids()
    assert os.getpriority(os.PRIO_PROCESS, worker) == 0


def test_reload_starts_jobs_with_the_new_code(site: Site) -> None:
    eventually(lambda: len(jobs_of(site)) == 1)
    (jobs,) = jobs_of(site)
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: not processes.is_running(jobs) and len(jobs_of(site)) == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_end_with_their_server(site: Site, number: signal.Signals) -> None:
    eventually(lambda: len(jobs_of(site)) == 1)
    (jobs,) = jobs_of(site)
    assert site.server.process is not None
    site.server.process.send_signal(number)
    site.server.process.wait()
    eventually(lambda: not processes.is_running(jobs))
    site.server.start()


def test_server_without_background_jobs_has_no_such_process(site: Site) -> None:
    environment = {**site.environment, "TRACESITE_BACKGROUND_JOBS": "false"}
    server = replace(site.server, port=free_port(), environment=environment, process=None)
    server.start()
    try:
        assert len(server.family()) == 2
    finally:
        server.stop()
