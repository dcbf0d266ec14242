"""Counters of requests, and the metrics of all workers as one text for Prometheus.

`serve` forks its workers, and any of them answers a scrape for all: each keeps its numbers in files of a
directory that all of them read (the multiprocess mode of prometheus-client, mmapped, so counting makes no system call
that waits). Under any other WSGI server the numbers are those of the process that answers, unless that server
is given PROMETHEUS_MULTIPROC_DIR, as prometheus-client documents it. This module adds to that mode:

* it decides when it is first imported, which here is long before `serve` knows that it serves: metrics have labels
  only, their children are made when something is first counted, and `share_between_workers` comes before that;
* files are filled with zeros before they are mapped: on a full disk a write to a hole would kill the worker (SIGBUS);
* a new worker goes on in the files of a dead one, so that counts stay and files do not become more;
* there are no gauges of workers, so no number of a dead one is shown as if it lived.

Counting a request takes 3 us (5 with a body), 1.5 (2.5) in a single process; measured with timeit on 2 cores. A scrape takes
2 to 50 ms for them (four workers that have used every route), and 10 for the database (40 with five years of months).
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.http import HttpRequest
from prometheus_client import Counter, Histogram, Metric, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from access_app.mounting import view_of
from traces_app.ingest import metrics as ingest_metrics
from traces_app.ingest.metrics import REGISTRY
from tracesite.processes import is_running

logger = logging.getLogger(__name__)

SHARED = "PROMETHEUS_MULTIPROC_DIR"

# Methods that are counted by name; all others, which senders make up, are OTHER.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

REQUESTS = Counter(
    "tracesite_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=REGISTRY
)
REQUEST_SECONDS = Histogram(
    "tracesite_http_request_duration_seconds",
    "Time until the response started.",
    ["route"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)
BODY_BYTES = Histogram(
    "tracesite_http_request_body_bytes",
    "Content-Length of request bodies.",
    ["route"],
    buckets=[1024 * 4**power for power in range(9)],  # 1 KiB to 64 MiB
    registry=REGISTRY,
)

# Bytes per file and worker. A series takes up to 250; 60 routes have 1,000 series of histograms and 300 of counters.
_FILES = {"counter": 256 * 1024, "histogram": 512 * 1024}


def count_request(request: HttpRequest, status: int, seconds: float) -> None:
    """Count a request by the name of its route: no text of a sender becomes a label."""
    match = request.resolver_match
    route = view_of(match) if match else "none"
    method = request.method or ""
    _requests(method if method in METHODS else "OTHER", route, status).inc()
    _request_seconds(route).observe(seconds)
    length = request.META.get("CONTENT_LENGTH")
    if length and length.isascii() and length.isdigit() and length != "0":
        _body_bytes(route).observe(int(length))


def render(others: Iterable[Metric]) -> bytes:
    """Return the metrics of all workers, and `others`, in Prometheus' text format 0.0.4."""
    ingest_metrics.begin_at_zero()
    return generate_latest(_Collected([*_numbers(), *others]))


def share_between_workers(home: Path) -> None:
    """Reset all counters; processes that are forked from now on add up, in a directory below `home`.

    Directories of servers that have ended are removed. A server that executes itself anew goes on in its own directory,
    which it finds in its environment. Where the disk does not let us, each worker counts for itself, and a warning is logged.
    """
    if SHARED not in os.environ:  # else we were executed anew and have counted nothing yet
        ingest_metrics.forget()
        for metric in (REQUESTS, REQUEST_SECONDS, BODY_BYTES):
            metric.clear()
        for children in (_requests, _request_seconds, _body_bytes):
            children.cache_clear()
    try:
        directory = _directory(home)
    except OSError as error:
        logger.warning("no disk space for shared metrics, so each worker counts for itself: %s", error.strerror)
        return
    os.environ[SHARED] = str(directory)
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]  # the package is typed in part
    parent = os.getpid()

    def in_child() -> None:
        if os.getppid() == parent:
            _prepare_worker(directory)

    os.register_at_fork(after_in_child=in_child)


@dataclass(frozen=True)
class _Collected(Collector):
    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


@cache
def _requests(method: str, route: str, status: int) -> Counter:
    return REQUESTS.labels(method, route, status)


@cache
def _request_seconds(route: str) -> Histogram:
    return REQUEST_SECONDS.labels(route)


@cache
def _body_bytes(route: str) -> Histogram:
    return BODY_BYTES.labels(route)


def _numbers() -> list[Metric]:
    if SHARED not in os.environ:
        return list(REGISTRY.collect())
    for _attempt in range(3):
        try:
            return list(MultiProcessCollector(None).collect())  # type: ignore[no-untyped-call]
        except FileNotFoundError:  # a new worker has just taken it over
            continue
    raise FileNotFoundError("the files of metrics come and go: workers die faster than they are read")


# --- The files of the workers ---------------------------------------------------------------------------------


def _directory(home: Path) -> Path:
    """Return the directory in our environment, else a new one in `home`, locked as long as we or a worker live. Remove unlocked ones."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(home / "lock", "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for old in home.iterdir():
            if old.is_dir() and not _is_held(old):
                shutil.rmtree(old)
        given = os.environ.get(SHARED)
        directory = Path(given) if given and Path(given).is_dir() else Path(tempfile.mkdtemp(dir=home))
        # Never closed: the kernel releases the lock when this process and all its forks have ended. Process ids would mean
        # nothing in another container.
        fcntl.flock(_open_holder(directory), fcntl.LOCK_SH)
    return directory


def _is_held(directory: Path) -> bool:
    descriptor = _open_holder(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open_holder(directory: Path) -> int:
    return os.open(directory / "held", os.O_RDWR | os.O_CREAT, 0o600)


def _prepare_worker(directory: Path) -> None:
    try:
        for kind, size in _FILES.items():
            _make_file(directory, kind, size)
    except OSError as error:
        logger.warning("no disk space for shared metrics, so this worker counts for itself: %s", error.strerror)
        del os.environ[SHARED]
        values.ValueClass = values.MutexValue


def _make_file(directory: Path, kind: str, size: int) -> None:
    own = directory / f"{kind}_{os.getpid()}.db"
    for left in directory.glob(f"{kind}_*.db"):
        if left == own:
            return
        if not is_running(int(left.stem.removeprefix(f"{kind}_"))):
            try:
                left.rename(own)
            except FileNotFoundError:  # another new worker was quicker
                continue
            return
    draft = own.with_suffix(".draft")
    try:
        draft.write_bytes(bytes(size))
        draft.rename(own)  # no reader meets half a file
    finally:
        draft.unlink(missing_ok=True)
