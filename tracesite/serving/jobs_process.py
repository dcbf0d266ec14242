"""The process beside the workers that runs the continual jobs: `serve` starts it, watches over it, and stops it.

It has a low priority, so that requests come first. It is not a fork of the parent: that would begin in a process with threads, and a
reload would leave the old code running.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

from . import children, embedded_postgres

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 5
"""Between its end, which nobody wanted, and the next start."""
STOP_SECONDS = 5
"""How long jobs may take to end; they may be killed at any moment."""


class JobsProcess:
    """`work --beside`, from `start` to `stop`."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        threading.Thread(target=self._watch, name="jobs", daemon=True).start()

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopped.set()
        with self._starting:
            process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()

    def _watch(self) -> None:
        while True:
            with self._starting:
                if self._stopped.is_set():
                    return
                try:
                    self._process = _start()
                except OSError:  # no memory, or no more processes
                    logger.exception("The background jobs could not be started.")
            if self._process is not None:
                self._process.wait()
            if self._stopped.wait(PAUSE_SECONDS):
                return
            logger.warning("The process of the background jobs has ended, and is started again.")


def _start() -> subprocess.Popen[str]:
    program = [sys.executable, *sys.orig_argv[1 : sys.orig_argv.index("serve")]]
    return children.start(
        [*program, "work", "--beside", str(os.getpid())],
        env=embedded_postgres.environment_of_a_start(),
        process_group=0,  # Ctrl-C is for the parent, which stops it
    )
