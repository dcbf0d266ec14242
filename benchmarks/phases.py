"""Profile of requests by step: python -m benchmarks profile

The application runs in this process, with a clock around the steps of a request. The time of a step excludes its nested
steps. "here" is the CPU time of this process; the rest is time spent waiting for PostgreSQL. The same requests are also
sent to a server to measure the cost of HTTP. A clock costs 1 us a call. `STEPS` names the timed functions, so it must be
changed when one of them is renamed.
"""

from __future__ import annotations

import io
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any, TypeVar
from unittest import mock

from . import data, http_client
from .clients import RUN
from .ingest import workload_of
from .server import Server, serving
from .workload import COMMON_TOOL

MESSAGES = 2_000
"""Number of messages stored before reading."""
REST = "Django, DRF and all the rest"
HTTP = "HTTP: server and sockets"

T = TypeVar("T")
Request = tuple[str, str, bytes]
"""Method, path and body."""

STEPS = (
    ("access key", "access_app.authentication", "ApiKeyAuthentication.authenticate"),
    ("read the body", "traces_app.views.ingestion", "read_body"),
    ("decode", "traces_app.views.ingestion", "decode_ingest"),
    ("normalise", "traces_app.ingest.pipeline", "normalise"),
    ("redact", "traces_app.ingest.pipeline", "redact"),
    ("tools and sessions: look up", "traces_app.ingest.store", "find_or_make"),
    ("months, tools: make", "traces_app.ingest.store", "ensure_periods"),
    ("sessions: make", "traces_app.ingest.store", "find_sessions"),
    ("sessions: make", "traces_app.ingest.store", "make_sessions"),
    ("identity: ids", "traces_app.ingest.store", "_identify"),
    ("identity: claim keys", "traces_app.ingest.store", "claim_keys"),
    ("plan rows", "traces_app.ingest.rows", "rows_below"),
    ("plan rows", "traces_app.ingest.rows", "message_row"),
    ("plan rows", "traces_app.ingest.store", "_new_rows"),
    ("write and commit at once", "traces_app.ingest.store", "insert_at_once"),
    ("INSERT or COPY", "traces_app.ingest.store", "insert_rows"),
    ("sessions: lock and count", "traces_app.ingest.store", "finish_sessions"),
    ("commit", "django.db.backends.base.base", "BaseDatabaseWrapper.commit"),
    ("store: the rest", "traces_app.ingest.pipeline", "store"),
    ("answer: outcomes", "traces_app.views.ingestion", "sent_sessions"),
    ("filters", "messages_app.http.filters", "ListFilterSet.__init__"),
    ("filters", "traces_app.queries.filters", "MessageFilterSet.found"),
    ("filters", "traces_app.queries.filters", "CallFilterSet.found"),
    ("tools: look up", "traces_app.queries.filters", "tool_ids"),
    ("find the session", "traces_app.views.messages", "find_session_here_in"),
    ("find the message", "traces_app.views.messages", "find_message"),
    ("ids of the page", "traces_app.queries.search.pages", "read_page"),
    ("read", "traces_app.queries.messages", "fetch"),
    ("make structs", "traces_app.views.messages", "messages"),
    ("make structs", "traces_app.views.calls", "calls"),
    ("answer: JSON", "tracesite.http.renderers", "JsonRenderer.render"),
    ("log, count", "tracesite.http.request_log", "_log"),
    ("log, count", "tracesite.http.request_log", "count_request"),
    ("log, count", "traces_app.ingest.metrics", "count_batch"),
    ("log, count", "traces_app.ingest.store", "_log_stored"),
)
"""Name of the step (formatted with the arguments of the function), module, function."""


@dataclass
class Spent:
    """Time in seconds."""

    wall: float = 0.0
    cpu: float = 0.0


class Clock:
    """Clock of nested steps; the time of a step excludes those inside it."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self._open: list[tuple[str, Spent]] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def with_clock(*args: Any, **kwargs: Any) -> Any:
            step = name.format(*args) if "{" in name else name
            if self._open and self._open[-1][0] == step:  # recursion
                return function(*args, **kwargs)
            inside = Spent()
            self._open.append((step, inside))
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                self._open.pop()
                own = self.spent.setdefault(step, Spent())
                own.wall += wall - inside.wall
                own.cpu += cpu - inside.cpu
                if self._open:
                    self._open[-1][1].wall += wall
                    self._open[-1][1].cpu += cpu

        return with_clock


def profile(url: str, messages: int, repeats: int) -> None:
    import psycopg

    from .clients import Crew, Target
    from .report import Report

    project_id, token = data.prepare()
    with serving(1) as server, psycopg.connect(url, autocommit=True) as database:
        target = Target(port=server.port, token=token, database_url=url, project_id=project_id)
        with Crew(2, target) as crew:
            data_set = data.fill(Report(circumstances={}), crew, database, project_id, messages, 2)
        work = workload_of(0)
        runs = count(1)
        for batch in (20, 1):
            bodies = [work.batch(range(first, first + batch)) for first in range(0, batch * repeats, batch)]
            _profile(
                f"ingest of {batch}",
                server,
                token,
                partial(_renamed, bodies, runs),
            )
        some = [*data_set.session_ids] * (1 + repeats // len(data_set.session_ids))
        pages = [("GET", f"/api/v1/sessions/{session_id}/messages/?limit=50", b"") for session_id in some[:repeats]]
        _profile("a nested page of 50", server, token, lambda: pages)
        ones = [("GET", f"/api/v1/messages/{message_id}/", b"") for message_id in data_set.message_ids[:repeats]]
        _profile("one message", server, token, lambda: ones)
        failed = [("GET", f"/api/v1/tool-calls/?tool={COMMON_TOOL}&status=error&limit=50", b"")] * repeats
        _profile("failed calls of a tool, 50", server, token, lambda: failed)


def _renamed(bodies: list[bytes], runs: Iterator[int]) -> list[Request]:
    """Return requests with new messages."""
    run = b"%05d" % next(runs)
    return [("POST", "/api/v1/ingest/", body.replace(RUN, run)) for body in bodies]


def _profile(name: str, server: Server, token: str, requests: Callable[[], list[Request]]) -> None:
    """Send requests in turns to the server and to the application in this process, after a warm-up of as many."""
    from django.core.wsgi import get_wsgi_application

    application = get_wsgi_application()
    head = {"Authorization": f"Bearer {token}"}
    connection = server.connect()
    over_http: list[float] = []
    here: list[dict[str, Spent]] = []
    clock = Clock()
    with _clocks(clock):
        call = clock.timed(REST, lambda environ: _call(application, environ))
        for _round in ("warming up", "measured"):
            over_http.clear()
            here.clear()
            for (method, path, body), again in zip(requests(), requests(), strict=True):
                request = http_client.post(path, head, body) if method == "POST" else http_client.get(path, head)
                begin = time.perf_counter()
                connection.send(request)
                over_http.append(time.perf_counter() - begin)
                clock.spent = {}
                call(_environ(token, *again))
                here.append(clock.spent)
    connection.close()
    spent = _averages(_quicker_half(here, lambda of_call: sum(own.wall for own in of_call.values())))
    total = statistics.mean(_quicker_half(over_http, float))
    spent[HTTP] = Spent(total - sum(own.wall for own in spent.values()))
    _print(name, spent, total)


def _quicker_half(measured: list[T], seconds: Callable[[T], float]) -> list[T]:
    """Return the faster half, because other load on the machine only ever slows calls down."""
    return sorted(measured, key=seconds)[: (len(measured) + 1) // 2]


def _averages(calls: Sequence[dict[str, Spent]]) -> dict[str, Spent]:
    steps = dict.fromkeys(step for of_call in calls for step in of_call)
    nothing = Spent()
    return {
        step: Spent(
            sum(of_call.get(step, nothing).wall for of_call in calls) / len(calls),
            sum(of_call.get(step, nothing).cpu for of_call in calls) / len(calls),
        )
        for step in steps
    }


def _print(name: str, spent: dict[str, Spent], total: float) -> None:
    print(f"\n{name}: {total * 1000:.2f} ms over HTTP\n{'':36} {'ms':>7} {'here':>7} {'share':>6}")
    for step, own in spent.items():
        here = f"{own.cpu * 1000:7.2f}" if own.cpu else " " * 7
        print(f"  {step:34} {own.wall * 1000:7.2f} {here} {own.wall / total:6.1%}")


@contextmanager
def _clocks(clock: Clock) -> Any:
    with ExitStack() as stack:
        for name, module, path in STEPS:
            *outer, function = path.split(".")
            owner = import_module(module)
            for part in outer:
                owner = getattr(owner, part)
            stack.enter_context(mock.patch.object(owner, function, clock.timed(name, getattr(owner, function))))
        # Log lines are formatted as in a server and then discarded.
        devnull = stack.enter_context(open(os.devnull, "w"))
        root = logging.getLogger()
        level, root.level = root.level, logging.INFO
        stack.callback(root.setLevel, level)
        for handler in root.handlers:
            if isinstance(handler, logging.StreamHandler):
                stack.callback(handler.setStream, handler.setStream(devnull))
        yield


def _environ(token: str, method: str, target: str, body: bytes) -> dict[str, Any]:
    path, _, query = target.partition("?")
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _call(application: Callable[..., Any], environ: dict[str, Any]) -> None:
    statuses: list[str] = []
    answer = application(environ, lambda status, headers, error=None: statuses.append(status))
    b"".join(answer)
    answer.close()
    assert statuses[0].startswith("20"), statuses
