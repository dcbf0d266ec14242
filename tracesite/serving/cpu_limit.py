"""Replace a worker in which requests take too much CPU time, because no thread of Python can be ended from outside.

A request in a loop without an end would hold its thread for ever, and some of them the whole site: the event loop lives, so
gunicorn takes the worker for a healthy one. Here the worker asks its parent for a reload (tracesite/serving/server.py): new
workers start, the old ones stop accepting and finish the requests in flight within the grace, and their processes end with
all of their threads.

Code in C that does not release the GIL stops this, too. It also stops the event loop, so that gunicorn ends the worker.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from django.urls import Resolver404, resolve

from access_app.conf import conf
from access_app.mounting import route_below_base
from tracesite.http.request_log import clean_for_log

LOOK_SECONDS = 1
PATIENCE_SECONDS = 60
"""How long the parent may take to start new workers, before this one ends without them."""

WsgiApplication = Callable[[dict[str, Any], Any], Any]

logger = logging.getLogger(__name__)


class CpuLimit:
    """The requests in the threads of this worker, and the CPU time that each has used."""

    def __init__(self) -> None:
        self._requests: set[_Request] = set()
        self._ending = threading.Event()
        self._parent = os.getppid()

    def measured(self, application: WsgiApplication) -> WsgiApplication:
        """Return the application, whose requests are measured, each in the thread that calls it."""
        if not hasattr(time, "pthread_getcpuclockid"):  # macOS
            return application

        def serve(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            request = _Request(environ)
            self._requests.add(request)
            try:
                with closing(application(environ, start_response)) as response:
                    for part in response:
                        yield part
                        # A long export makes progress.
                        request.begin()
            finally:
                self._requests.discard(request)

        return serve

    def start(self) -> None:
        """Look at the clocks from now on, in a thread."""
        threading.Thread(target=self._watch, name="cpu-limit", daemon=True).start()

    def end(self) -> None:
        """Look no more, because this worker ends."""
        self._ending.set()

    def _watch(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            if excess := self._excess():
                self._replace(excess)
                return

    def _excess(self) -> str:
        """Return the requests that have used too much CPU time; empty if none has."""
        used = {request: request.cpu_seconds() for request in tuple(self._requests)}
        total, least = sum(used.values()), float(conf.REQUEST_CPU_SECONDS)
        # Threads that spin share one core, and each takes as many times longer as there are.
        if total > 2 * conf.REQUEST_CPU_SECONDS:
            least = min(least, total / len(used) / 2)
        return ", ".join(f"{request} ({seconds:.0f} s)" for request, seconds in used.items() if seconds > least)

    def _replace(self, excess: str) -> None:
        logger.error(
            "Requests take more CPU time than TRACESITE_REQUEST_CPU_SECONDS (%d): %s. New workers are started, and this one ends.",
            conf.REQUEST_CPU_SECONDS,
            excess,
        )
        if os.getppid() == self._parent:
            os.kill(self._parent, signal.SIGHUP)
        if not self._ending.wait(PATIENCE_SECONDS):
            logger.error("No new workers have started; this one ends without them.")
            os.kill(os.getpid(), signal.SIGTERM)


class _Request:
    """A request in this thread, and what the CPU clock of the thread showed when it began."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self._method, self._path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self.begin()

    def begin(self) -> None:
        self._began = time.clock_gettime(self._clock)

    def cpu_seconds(self) -> float:
        """Return the CPU time since it began, or since the last part of its response. Called from any thread."""
        return time.clock_gettime(self._clock) - self._began

    def __str__(self) -> str:
        """The method and the route: a path may hold keys and names."""
        method = clean_for_log(self._method, 16)
        try:
            match = resolve(self._path.encode("latin-1").decode(errors="replace"))
        except Resolver404:
            return f"{method} (no route)"
        return f"{method} /{route_below_base(match)}"
