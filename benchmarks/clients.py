"""Processes that send or write batches concurrently: clients of the server, or writers of the floor.

They live as long as the measurements. Each encodes its request bodies before the start, so that it uses little CPU while
it is measured: 20 us a request for a client of the server.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import Literal

import psycopg

from . import http_client, processes, span_load
from .event_load import EventLoad
from .floor_events import EventFloor
from .floor_spans import SpanFloor, both
from .workload import Workload

RUN = b"@RUN@"
"""Placeholder of the run in session names. Replacing it makes new messages of the same bodies."""

Way = Literal["HTTP", "COPY", "executemany", "COPY of spans", "COPY of both"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Destination of the data."""

    port: int
    token: str
    database_url: str
    project_id: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """A number of messages of a workload, in requests of `batch`."""

    workload: Workload
    messages: int
    first: int = 0
    batch: int
    way: Way
    run: int
    path = "/api/v1/ingest/"
    content_type = http_client.JSON

    def bodies(self) -> list[bytes]:
        made = _bodies(self.workload, self.first, self.messages, self.batch)
        return [body.replace(RUN, b"%05d" % self.run) for body in made]


@dataclass(frozen=True, kw_only=True)
class SpanJob(Job):
    """The same messages as spans. A floor writes the spans, or the messages too, which it is given beside them."""

    path = "/v1/traces"
    content_type = "application/x-protobuf"

    def bodies(self) -> list[bytes]:
        made = _span_bodies(self.workload, self.first, self.messages, self.batch)
        spans = [body.replace(RUN, b"%05d" % self.run) for body in made]
        return [*map(both, super().bodies(), spans)] if self.way == "COPY of both" else spans


@dataclass(frozen=True, kw_only=True)
class EventJob:
    """A number of events of a session, in requests of `batch`."""

    load: EventLoad
    events: int
    batch: int
    way: Way
    run: int
    path = "/api/v1/events/"
    content_type = http_client.JSON

    def bodies(self) -> list[bytes]:
        return [body.replace(RUN, b"%05d" % self.run) for body in self.load.bodies(self.events, self.batch)]


@lru_cache(maxsize=1)
def _bodies(workload: Workload, first: int, messages: int, batch: int) -> list[bytes]:
    numbers = range(first, first + messages)
    return [workload.batch(numbers[at : at + batch]) for at in range(0, messages, batch)]


@lru_cache(maxsize=1)
def _span_bodies(workload: Workload, first: int, messages: int, batch: int) -> list[bytes]:
    numbers = range(first, first + messages)
    return [
        span_load.request(workload, numbers[at : at + batch], RUN + workload.name[7:8].encode())
        for at in range(0, messages, batch)
    ]


class Crew:
    """Client processes, as a context manager."""

    def __init__(self, size: int, target: Target) -> None:
        self.target = target
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes = []
        for _client_number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_client, args=(theirs, target), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.terminate()

    def prepare(self, jobs: Sequence[Job | EventJob]) -> None:
        """Assign one job to each client and wait until all bodies are encoded."""
        for line, job in zip(self._lines, jobs, strict=False):
            line.send(job)
        self._answers(len(jobs))

    def go(self, clients: int) -> float:
        """Run the assigned jobs. Return the seconds from the start of the first to the end of the last."""
        for line in self._lines[:clients]:
            line.send(None)
        times = self._answers(clients)
        return max(end for _begin, end in times) - min(begin for begin, _end in times)

    def cpu_seconds(self, clients: int) -> float:
        pids = [process.pid for process in self._processes[:clients]]
        return processes.cpu_seconds(pid for pid in pids if pid is not None)

    def _answers(self, clients: int) -> list[tuple[float, float]]:
        answers = []
        for line in self._lines[:clients]:
            answer = line.recv()
            if isinstance(answer, str):
                raise RuntimeError(f"A client failed:\n{answer}")
            answers.append(answer)
        return answers


def _client(line: Connection, target: Target) -> None:
    """Run jobs in a client process until the connection to the parent is closed."""
    head = {"Authorization": f"Bearer {target.token}"}
    # Each writer counts from its own number, so that ids are unique.
    tails = [int.from_bytes(os.urandom(4)) << 28 for _floor in range(2)]
    of_messages = SpanFloor(target.database_url, target.project_id, tail=tails[0])
    of_events = EventFloor(target.database_url, target.project_id, tail=tails[1])
    try:
        while True:
            job: Job | EventJob = line.recv()
            floor = of_messages if isinstance(job, Job) else of_events
            ways: dict[Way, Callable[[bytes], object]] = {
                "COPY": floor.copy,
                "executemany": floor.insert,
                "COPY of spans": of_messages.copy_spans,
                "COPY of both": of_messages.copy_both,
            }
            bodies = job.bodies()
            # A new connection for each run, because it stays with the random worker that accepted it.
            connection = http_client.Connection(target.port)
            if job.way == "HTTP":
                requests = [http_client.post(job.path, head, body, job.content_type) for body in bodies]
                send: Callable[[bytes], object] = connection.send
            else:
                requests = bodies
                send = ways[job.way]
            line.send((0.0, 0.0))
            line.recv()
            begin = monotonic()
            for request in requests:
                send(request)
            line.send((begin, monotonic()))
            connection.close()
    except EOFError:
        of_messages.close()
        of_events.close()
    except (OSError, http_client.HttpError, psycopg.Error) as error:
        line.send(f"{type(error).__name__}: {error}")
