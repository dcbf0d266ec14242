"""Server on a socket that stays open, as under systemd, and the two ways to restart it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks import processes
from benchmarks.faults.site import ROOT, Site, SiteError, running
from sdk.tests.ports import free_port

Kind = Literal["reload", "restart"]
KINDS: tuple[Kind, ...] = ("reload", "restart")
RESTART_SECONDS = 180

# As systemd does: the socket is descriptor 3, and the variables name the process that may use it.
_AS_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@dataclass
class Supervised:
    """`manage.py serve` with an inherited socket."""

    site: Site
    listener: socket.socket
    workers: int = 2
    options: tuple[str, ...] = ()
    program: str = "manage.py"
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def log(self) -> Path:
        return self.site.server.log

    def start(self) -> None:
        """Start without waiting, because clients wait on the socket until it serves."""
        command = [self.program, "serve", "--workers", str(self.workers), *self.options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _AS_SYSTEMD, str(self.listener.fileno()), *command],
                cwd=ROOT,
                env=self.site.environment,
                pass_fds=[self.listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def restart(self, kind: Kind) -> float:
        """Replace all serving processes. Return the seconds that this took."""
        begin = time.monotonic()
        if kind == "restart":
            self.stop()
            self.start()
            self.wait_for_workers()
        else:
            old = self.wait_for_workers()
            self._process.send_signal(signal.SIGHUP)
            self.wait_for_workers(instead_of=old)
        return time.monotonic() - begin

    def stop(self) -> None:
        """Stop the server as systemd does. Raise SiteError if it does not exit cleanly."""
        self._process.terminate()
        if self._process.wait(timeout=RESTART_SECONDS) != 0:
            raise SiteError(f"Exit status {self._process.returncode}:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait_for_workers(self, instead_of: Collection[int] = ()) -> list[int]:
        """Wait until new workers serve and none of `instead_of` does. Return the workers."""
        begin = time.monotonic()
        # Read both at once, because a process that calls exec has no command line for a moment.
        while len(serving := self._serving()) < self.workers or not set(instead_of).isdisjoint(serving):
            self._wait(begin, "The new processes do not serve, or the old ones did not end")
        return serving

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "it was started"
        return self.process

    def _serving(self) -> list[int]:
        """Return old and new workers, which are forks, without the check before a reload, which calls exec."""
        program = processes.command_line(self._process.pid)
        # A process has no command line during exec and after its end.
        below = processes.family(self._process.pid)[1:] if program else []
        return [pid for pid in below if processes.command_line(pid) == program]

    def _wait(self, begin: float, complaint: str) -> None:
        if self._process.poll() is not None or time.monotonic() - begin > RESTART_SECONDS:
            others = [line for line in self.log.read_text().splitlines() if "GET /healthz" not in line]
            raise SiteError("\n".join([f"{complaint}:", *others[-20:]]))
        time.sleep(0.1)  # to look at all processes of a machine takes milliseconds


@contextmanager
def supervised(*, workers: int = 2, options: tuple[str, ...] = ()) -> Iterator[Supervised]:
    with running(serve=False) as site, socket.create_server(("127.0.0.1", free_port()), backlog=1024) as listener:
        site = replace(site, server=replace(site.server, port=listener.getsockname()[1]))
        server = Supervised(site, listener, workers, options)
        try:
            server.start()
            server.wait_for_workers()
            yield server
        finally:
            server.kill()
