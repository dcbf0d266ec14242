"""The background jobs of `serve`: statistics of tools, the search index, the vectors of runs, seals, and the chains of
the audit log.

Each job is a thread in every worker; an advisory lock lets one of them work, and the others find nothing to do. A job may be
killed at any moment: see traces_app.maintenance.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import Error, connection

from access_app.audit.chain import append_recorded
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.seals.sealing import seal_marked
from traces_app.maintenance.search_index import index_queued
from traces_app.maintenance.tool_roll_up import roll_up

logger = logging.getLogger(__name__)


class Job(NamedTuple):
    name: str
    run: Callable[..., Any]
    """Takes `is_stopped`, and returns a report with the numbers of what it did."""
    pause: float
    """Seconds between two runs."""


JOBS = (
    Job("roll up tools", roll_up, 60),
    Job("index messages", index_queued, 2),
    Job("store vectors of runs", store_vectors, 2),
    Job("seal messages", seal_marked, 30),
    Job("chain the audit log", append_recorded, 10),
)


def start(stopped: threading.Event, *, pause: float | None = None) -> list[threading.Thread]:
    """Start the threads, which end soon after `stopped` is set."""
    threads = [
        threading.Thread(target=_repeat, args=[stopped, job, pause or job.pause], name=job.name, daemon=True)
        for job in JOBS
    ]
    for thread in threads:
        thread.start()
    return threads


def _repeat(stopped: threading.Event, job: Job, pause: float) -> None:
    # The workers begin at the same time; later they should not.
    while not stopped.wait(pause * random.uniform(0.5, 1)):  # noqa: S311 - not a secret
        try:
            report = vars(job.run(is_stopped=stopped.is_set))
        except Error:
            logger.warning("a background job failed and will be tried again: %s", job.name, exc_info=True)
        else:
            if any(report.values()):
                logger.info("background job: %s", job.name, extra=report)
        finally:
            # Not one of the connections that `serve` counts, so it is not kept.
            connection.close()
