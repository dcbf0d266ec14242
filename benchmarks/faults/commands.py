"""Management commands of a site, each in a process that is forked from one that has loaded Django: to load it takes seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FORK = """
import json, os, sys
from tracesite.serving import embedded_postgres
embedded_postgres.ensure()
import django
django.setup()
import tracesite.urls
from tracesite.__main__ import main
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in enumerate((os.devnull, asked["stdout"], asked["stderr"])):
            os.dup2(os.open(path, os.O_RDWR), number)
        sys.argv = ["manage.py", *asked["arguments"]]
        main()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """Runs commands one after the other, with one environment. The first waits until Django is loaded."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raise TimeoutExpired if it takes more than `timeout` seconds, and kill it."""
        with self._lock, tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
            process = self._started()
            asked = {"arguments": arguments, "stdout": stdout.name, "stderr": stderr.name}
            assert process.stdin and process.stdout, "they are pipes"
            print(json.dumps(asked), file=process.stdin, flush=True)
            killer = threading.Timer(timeout, self._kill)
            killer.start()
            status = process.stdout.readline()
            killer.cancel()
            command = ["manage.py", *arguments]
            if not status and process.wait() == -signal.SIGKILL:
                raise subprocess.TimeoutExpired(command, timeout, stdout.read(), stderr.read())
            return subprocess.CompletedProcess(command, int(status or 1), stdout.read(), stderr.read())

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _FORK],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process

    def _kill(self) -> None:
        assert self._process is not None, "it runs"
        os.killpg(self._process.pid, signal.SIGKILL)
