"""Serve HTTP by processes of gunicorn, with a reload that keeps the process and its listening socket, so that no request fails.

The parent owns the listening socket, which systemd opened (socket activation) or `serve` did. Its workers (`tracesite.serving.worker`)
are forks that run the ASGI application of `tracesite.serving.asgi` by uvicorn, and beside them is the process of the jobs (`tracesite.serving.jobs_process`). The signals of the parent:

- SIGTERM: workers stop accepting, finish the requests in flight within `grace`, close idle connections and exit.
- SIGINT (Ctrl-C): workers exit at once.
- SIGHUP: the parent runs `serve --check` with the code and settings on the disk. If that fails, it logs why and goes on.
  Otherwise it executes itself anew under the same process id and with the same socket. The old workers serve until the
  new ones are ready, and are then stopped as by SIGTERM. gunicorn's own reload cannot be used, because new workers would
  be forks with the old code, and code that does not start would end the server.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from django.conf import settings
from gunicorn.app.base import BaseApplication

from access_app.conf import conf
from access_app.db import Database
from messages_app.sql.batch import REQUEST_MS

from . import children, embedded_postgres
from .jobs_process import JobsProcess
from .worker import BACKLOG, ENDING_SIGNALS, KILL_SECONDS, Worker

if TYPE_CHECKING:
    from .asgi import Site

# The parent replaces a worker that hangs for so long.
HANG_SECONDS = 60
# Open files of a process: each viewer of the live part keeps a connection, and so does whoever sends slowly.
OPEN_FILES = 8_192 + 256
READY = "Ready to serve."
"""What `serve --check` prints if it could serve."""
LIVE = ("with", "without", "only")
"""Whether the workers serve /live/ beside the rest, not at all, or nothing else."""

_HANDOVER = "SERVE_HANDOVER"
_FIRST_OF_SYSTEMD = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Handover:
    """State that a parent passes to itself when it executes itself anew."""

    listener: int
    workers: list[int]
    """Processes that serve until the new workers do."""


def take_over() -> Handover | None:
    """Return the state of the program that was executed anew by SIGHUP; None at a first start."""
    left = os.environ.pop(_HANDOVER, None)
    return None if left is None else Handover(**json.loads(left))


def socket_of_systemd() -> socket.socket | None:
    """Return the listening socket that systemd opened for this process; None if there is none.

    Raises OSError unless it is a single TCP socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    listener = socket.socket(fileno=_FIRST_OF_SYSTEMD)
    if os.environ.get("LISTEN_FDS") != "1" or listener.family not in (socket.AF_INET, socket.AF_INET6):
        raise OSError("systemd must pass exactly one socket, with an address and port in ListenStream=.")
    del os.environ["LISTEN_PID"]  # or gunicorn would take it, too
    return listener


def serve(
    db: Database,
    listener: socket.socket,
    *,
    workers: int,
    threads: int,
    grace: float,
    live: str,
    handover: Handover | None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight have `grace` seconds to end. `live` is one of LIVE.

    Takes over the listener. Raises SystemExit if the server failed.
    """
    _set_options(listener, live)
    _allow_open_files()
    _hold_signals_while_forking()
    children.hold_forks_while_starting()
    hooks = _hooks(handover.workers if handover else [], workers=workers, live=live)
    _Application(
        {
            "bind": f"fd://{listener.detach()}",
            "backlog": BACKLOG,
            "workers": workers,
            "worker_class": Worker,
            "timeout": HANG_SECONDS,
            "graceful_timeout": int(grace) + KILL_SECONDS,
            "control_socket_disable": True,
            "logconfig_dict": settings.LOGGING,
            **hooks,
        },
        lambda: _load_site(live, threads),
    ).run()


def _hooks(elders: list[int], *, workers: int, live: str) -> dict[str, Callable[..., None]]:
    """Return gunicorn's server hooks. The elders are the processes that serve until the new workers do."""
    jobs = JobsProcess() if conf.BACKGROUND_JOBS and live != "only" else None

    def when_ready(arbiter: Any) -> None:
        """Replace gunicorn's reload, whose workers would be forks with the old code."""
        reloading = threading.Lock()

        def reload(number: int, frame: FrameType | None) -> None:
            if reloading.acquire(blocking=False):
                arguments = (arbiter, elders, jobs, reloading)
                threading.Thread(target=_reload, args=arguments, name="reload", daemon=True).start()

        signal.signal(signal.SIGHUP, reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
        if jobs:
            jobs.start()

    def on_exit(arbiter: Any) -> None:
        if jobs:
            jobs.stop()

    def post_worker_init(worker: Worker) -> None:
        if worker.age <= workers:  # later workers replace some that died; by then the elders are gone
            for pid in elders:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    return {"when_ready": when_ready, "on_exit": on_exit, "post_worker_init": post_worker_init}


def _set_options(listener: socket.socket, live: str) -> None:
    """Set the options that accepted connections inherit."""
    # A worker accepts a connection when its first request arrives, so the request goes to a worker that is free then.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    if live != "without":
        # A client that vanished is given up when it has not acknowledged anything for so long.
        patience_ms = 2_000 * conf.LIVE_HEARTBEAT_SECONDS
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)


class _Application(BaseApplication):
    """The settings of gunicorn and the application, which each worker loads."""

    def __init__(self, options: dict[str, Any], load: Callable[[], Site]) -> None:
        self.options, self.load = options, load
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)


def _load_site(live: str, threads: int) -> Site:
    from access_app.db.base import DatabaseWrapper

    from .asgi import Site  # loads Django's middleware, for which `serve` prepares the directories

    # Commands may take their time.
    DatabaseWrapper.longest_statement_ms = REQUEST_MS
    DatabaseWrapper.avoids_whole_tables = True
    # A batch makes thousands of objects that live until it is written: with Python's own threshold a fifth of the time of
    # an ingest was spent by the garbage collector, which found next to nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    return Site(live=live != "without", rest=live != "only", threads=threads)


def _hold_signals_while_forking() -> None:
    """Let signals that end a worker wait until it handles them.

    Until then it has the handlers of its parent, which would put them into the copy of a queue that nobody reads. The parent,
    which sends them once, waited for the whole grace.
    """
    before: list[set[signal.Signals | int]] = []

    def hold() -> None:
        before.append(signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS))

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.pop())

    os.register_at_fork(before=hold, after_in_parent=release)


def _allow_open_files() -> None:
    """Raise the soft limit of open files to OPEN_FILES, as far as the hard one permits; workers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- Reload -------------------------------------------------------------------------------------------------


def _reload(arbiter: Any, elders: list[int], jobs: JobsProcess | None, reloading: threading.Lock) -> None:
    complaint = _complaint_about_a_start()
    if complaint:
        logger.error("Not restarted; the old processes continue to serve. The new ones failed: %s", complaint)
        reloading.release()
    elif arbiter.LISTENERS:  # else it was stopped meanwhile
        logger.info("Restarting: the old processes serve until the new ones have started.")
        if jobs:
            jobs.stop()
        _execute_anew(Handover(listener=arbiter.LISTENERS[0].fileno(), workers=[*arbiter.WORKERS, *elders]))


def _complaint_about_a_start() -> str:
    """Return why this command, started now, would not serve; empty if it would."""
    check = children.start(
        [sys.executable, *sys.orig_argv[1:], "--check"],
        env=embedded_postgres.environment_of_a_start(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed = check.communicate()[0].strip()
    # Not its exit status, which gunicorn takes if it waits for children first.
    return "" if READY in printed.splitlines() else printed or f"{' '.join(sys.orig_argv)} --check ended without a word"


def _execute_anew(handover: Handover) -> None:
    """Replace this program by the one on the disk. Signals that arrive meanwhile wait until it handles them."""
    os.set_inheritable(handover.listener, True)
    environment = embedded_postgres.environment_of_a_start() | {_HANDOVER: json.dumps(asdict(handover))}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command line
