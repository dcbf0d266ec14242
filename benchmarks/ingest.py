"""Ingest over HTTP relative to the floor: messages per second, CPU per message, memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import psycopg

from . import http_client, processes
from .clients import RUN, Crew, EventJob, Job, SpanJob, Target, Way
from .report import Bar, Line, Report, at_least, at_most
from .server import Server, postmaster
from .workload import Workload

MONTH = (2025, 6)
"""Month of all messages; it is emptied between shapes."""
FLOORS: tuple[Way, ...] = ("COPY", "executemany")
OF_SPANS: tuple[Way, ...] = ("COPY of spans",)
OF_BOTH: tuple[Way, ...] = ("COPY of both",)
LARGE_BATCHES = 3
WORKER_BYTES = 300_000_000

run_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Concurrent clients and messages per request; each client sends its share of `messages`."""

    clients: int
    batch: int
    messages: int
    bar: Bar | None = None

    @property
    def name(self) -> str:
        return f"{self.clients}x{self.batch}"

    def scaled(self, scale: float) -> Shape:
        """Return a shape with about `scale` times the messages, in whole batches, at least one per client."""
        at_once = self.clients * self.batch
        return replace(self, messages=max(1, round(self.messages * scale / at_once)) * at_once)


SHAPES = (
    Shape(clients=1, batch=1, messages=240, bar=at_least(0.4)),
    Shape(clients=4, batch=1, messages=480),
    Shape(clients=1, batch=20, messages=800),
    Shape(clients=4, batch=20, messages=1600, bar=at_least(0.5)),
    Shape(clients=1, batch=100, messages=800),
    Shape(clients=4, batch=100, messages=1600),
)
"""Measured shapes, each with enough messages for a run of one or two seconds."""
SPAN_SHAPES = (
    Shape(clients=1, batch=1, messages=240, bar=at_least(0.2)),
    Shape(clients=4, batch=20, messages=1600, bar=at_least(0.4)),
)
SPANS_UNTIL_READ = at_least(0.2)


def measure(
    report: Report, crew: Crew, server: Server, shapes: Sequence[Shape], runs: int, database: psycopg.Connection
) -> None:
    for shape in shapes:
        report.add(_measure_shape(crew, server, shape, runs, database))
        empty_month(database)


def measure_spans(
    report: Report, crew: Crew, server: Server, shapes: Sequence[Shape], runs: int, database: psycopg.Connection
) -> None:
    """Measure the same messages sent as OTLP spans, in requests of as many traces: until the spans are acknowledged, beside the floor
    that stores them, and until the messages can be read, beside the one that stores both."""
    for shape in shapes:
        waits: list[float] = []
        ways = (*OF_SPANS, *OF_BOTH)
        line = in_turns(
            crew,
            server,
            shape.clients,
            shape.messages,
            partial(_span_jobs, shape),
            runs,
            database,
            ways,
            after_each=lambda waits=waits: waits.append(_seconds_until_made(database)),  # type: ignore[misc]
        )
        line = replace(line, unit="msg/s")
        name = f"OTLP, {shape.clients} x {shape.batch}"
        of_spans = {way: line.floors[way] for way in OF_SPANS}
        report.add(replace(line, name=f"{name}, acknowledged", floors=of_spans, bar=shape.bar))
        # The first way of each run is ours, and the first run is not counted.
        ours = waits[:: 1 + len(ways)][1:]
        made = [shape.messages / (shape.messages / rate + wait) for rate, wait in zip(line.runs, ours, strict=True)]
        of_both = {way: line.floors[way] for way in OF_BOTH}
        bar = SPANS_UNTIL_READ if shape.clients > 1 else None
        report.add(replace(line, name=f"{name}, can be read", runs=made, floors=of_both, bar=bar, beside={}))
        empty_month(database)


def _seconds_until_made(database: psycopg.Connection) -> float:
    """Wait until the messages of all traces are made, and return how long that took."""
    began = time.monotonic()
    while database.execute("SELECT 1 FROM traces_app_duetrace WHERE due_at IS NOT NULL LIMIT 1").fetchone():
        time.sleep(0.01)
    return time.monotonic() - began


def measure_large_batches(report: Report, server: Server, target: Target, size: int) -> None:
    """Measure the memory of a worker that receives batches of `size` bytes."""
    workload = workload_of(0)
    messages = max(1, size // len(workload.batch([0])))
    body = workload.batch(range(messages))
    head = {"Authorization": f"Bearer {target.token}"}
    connection = server.connect()
    for pid in server.workers:
        processes.forget_peak(pid)
    before = max(processes.peak_bytes(pid) for pid in server.workers)
    for _batch in range(LARGE_BATCHES):
        run = b"%05d" % next(run_numbers)
        connection.send(http_client.post("/api/v1/ingest/", head, body.replace(RUN, run)))
    connection.close()
    peaks = [processes.peak_bytes(pid) / 1e6 for pid in server.workers]
    report.add(
        Line(
            name=f"peak memory of a worker, batches of {size / 1e6:.2g} MB",
            unit="MB",
            runs=[max(peaks)],
            bar=at_most(WORKER_BYTES / 1e6),
            beside={"MB before": before / 1e6},
        )
    )


ATTEMPTS = 20


def empty_month(database: psycopg.Connection) -> None:
    """Truncate the month to save disk space. Identities stay, because every run has new ones."""
    year, month = MONTH
    tables = database.execute(
        "SELECT string_agg(format('%%I', relname), ', ') FROM pg_class WHERE relkind = 'r' AND relname LIKE %s",
        [f"%\\_y{year:04}m{month:02}"],
    ).fetchone()
    assert tables is not None, "an aggregate has one row"
    for _attempt in range(ATTEMPTS):
        try:
            database.execute(f"TRUNCATE {tables[0]}")
            return
        except psycopg.errors.DeadlockDetected:
            # The background jobs of the server read these tables in another order.
            time.sleep(0.5)
    raise SystemExit(f"The month could not be emptied: {ATTEMPTS} deadlocks with the background jobs of the server.")


def _measure_shape(crew: Crew, server: Server, shape: Shape, runs: int, database: psycopg.Connection) -> Line:
    line = in_turns(crew, server, shape.clients, shape.messages, lambda way: list(jobs(shape, way)), runs, database)
    return replace(line, name=f"ingest, {shape.clients} x {shape.batch}", unit="msg/s", bar=shape.bar)


def in_turns(
    crew: Crew,
    server: Server,
    clients: int,
    size: int,
    jobs: Callable[[Way], Sequence[Job | EventJob]],
    runs: int,
    database: psycopg.Connection,
    floors: Sequence[Way] = FLOORS,
    after_each: Callable[[], None] = lambda: None,
) -> Line:
    """Measure jobs of `size` messages or events in total, over HTTP and by each way of the floor in turns; `after_each` is not timed."""
    seconds: dict[Way, list[float]] = {"HTTP": [], **{way: [] for way in floors}}
    cpu = {way: [0.0, 0.0, 0.0] for way in seconds}
    above = postmaster(database)
    for pid in server.workers:
        processes.forget_peak(pid)
    for run in range(runs + 1):
        for way in seconds:
            crew.prepare(jobs(way))
            before = _cpu(crew, server, clients, above)
            took = crew.go(clients)
            after = _cpu(crew, server, clients, above)
            after_each()
            # The first run only warms up connections and plans.
            if run:
                seconds[way].append(took)
                cpu[way] = [sum_ + end - begin for sum_, begin, end in zip(cpu[way], before, after, strict=True)]
    line = Line(
        name="",
        unit="",
        better="more",
        runs=[size / took for took in seconds["HTTP"]],
        floors={way: [size / took for took in seconds[way]] for way in floors},
    )
    each = 1000 / runs / size
    in_server, in_database, in_clients = (part * each for part in cpu["HTTP"])
    by_floor = next(sum(cpu[way]) * each for way in floors if way == line.best_floor)
    beside = {
        "CPU ms of each: server": in_server,
        "PostgreSQL": in_database if above else None,
        "clients": in_clients,
        "floor in all": by_floor if above else None,
        "peak MB a worker": max(processes.peak_bytes(pid) for pid in server.workers) / 1e6,
    }
    return replace(line, beside=beside)


def jobs(shape: Shape, way: Way, kind: type[Job] = Job) -> Iterator[Job]:
    for client in range(shape.clients):
        yield kind(
            workload=workload_of(client),
            messages=shape.messages // shape.clients,
            batch=shape.batch,
            way=way,
            run=next(run_numbers),
        )


def _span_jobs(shape: Shape, way: Way) -> list[Job]:
    return list(jobs(shape, way, SpanJob))


def workload_of(client: int) -> Workload:
    begin = datetime(*MONTH, 1, tzinfo=UTC) + timedelta(days=client)
    return Workload(name=f"client-{client}-run-{RUN.decode()}", begin=begin, messages_a_session=20, sessions_at_once=1)


def _cpu(crew: Crew, server: Server, clients: int, above: int | None) -> tuple[float, float, float]:
    """Return the CPU seconds so far of the server, of PostgreSQL (0 if it is remote) and of the clients."""
    database = 0.0
    if above is not None:
        own = processes.cpu_seconds([above], with_ended=True)
        database = own + processes.cpu_seconds(pid for pid in processes.family(above) if pid != above)
    return server.cpu_seconds(), database, crew.cpu_seconds(clients)
