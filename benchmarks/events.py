"""Events per second over HTTP, relative to the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import psycopg

from .clients import Crew, EventJob, Way
from .event_load import EventLoad
from .ingest import empty_month, in_turns, run_numbers, workload_of
from .report import Report
from .server import Server


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Concurrent clients and events per request. Each client sends the events of its own session."""

    clients: int
    batch: int
    events: int
    events_a_run: int = 100

    @property
    def name(self) -> str:
        long = f", runs of {self.events_a_run:,}" if self.events_a_run != Shape.events_a_run else ""
        return f"events, {self.clients} x {self.batch}{long}"

    def scaled(self, scale: float) -> Shape:
        at_once = self.clients * self.batch
        return replace(self, events=max(1, round(self.events * scale / at_once)) * at_once)


SHAPES = (
    Shape(clients=1, batch=1, events=200),
    Shape(clients=4, batch=1, events=400),
    Shape(clients=1, batch=20, events=1_000),
    Shape(clients=4, batch=20, events=2_000),
    Shape(clients=1, batch=20, events=2_000, events_a_run=2_000),
)


def measure(report: Report, crew: Crew, server: Server, scale: float, runs: int, database: psycopg.Connection) -> None:
    for shape in (shape.scaled(scale) for shape in SHAPES):
        line = in_turns(crew, server, shape.clients, shape.events, partial(_jobs, shape), runs, database)
        report.add(replace(line, name=shape.name, unit="ev/s"))
        empty_month(database)


def _jobs(shape: Shape, way: Way) -> Sequence[EventJob]:
    """Return jobs with new sessions."""
    return [
        EventJob(
            load=EventLoad(work=workload_of(client), events_a_run=shape.events_a_run),
            events=shape.events // shape.clients,
            batch=shape.batch,
            way=way,
            run=next(run_numbers),
        )
        for client in range(shape.clients)
    ]
