"""Measure what a purge by rows costs the writers beside it: python -m benchmarks.beside_purge

Messages of 2 KB in 90 days as in benchmarks.retention. Writers, each a process that sends a message in a session of its own again
and again, run alone and beside an exact purge of a third of the days, in turn. The bar: the 99th percentile at most doubles.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from .retention import START, fill, say
from .scratch import scratch_database

_PROCESSES = multiprocessing.get_context("fork")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with scratch_database():
        measure(options.messages, options.writers, options.runs)


def measure(messages: int, writers: int, runs: int) -> None:
    from access_app.models import Project
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import Scope

    expiring, busy = (Project.objects.create(slug=slug) for slug in ("expiring", "busy"))
    fill(expiring.pk, messages)
    say(f"{messages:,} messages, {writers} writers, load {os.getloadavg()[0]:.1f}")
    ratios = []
    nights = 0
    for _run in range(runs):
        began = time.perf_counter()
        with Writers(writers, busy.pk) as beside:
            first = nights + 1
            while nights < first + 90 // (runs + 1):
                nights += 1
                purge(Scope(created_before=START + timedelta(days=nights), project_ids=(expiring.pk,)))
        took = time.perf_counter() - began
        with Writers(writers, busy.pk) as alone:
            time.sleep(took)
        quantiles = {name: of.quantiles() for name, of in (("alone", alone), ("beside a purge", beside))}
        for name, (count, median, p99) in quantiles.items():
            say(f"{name:16} {count:6,} messages in {took:.0f} s, p50 {median:6.1f} ms, p99 {p99:6.1f} ms")
        ratios.append(quantiles["beside a purge"][2] / quantiles["alone"][2])
    say(f"p99 beside a purge: {statistics.median(ratios):.2f} times that alone (median), load {os.getloadavg()[0]:.1f}")


class Writers:
    """Processes that write until the end of the block."""

    def __init__(self, count: int, project_id: int) -> None:
        self._stopped = _PROCESSES.Event()
        self._found: Any = _PROCESSES.SimpleQueue()
        arguments = (project_id, self._stopped, self._found)
        self._processes = [_PROCESSES.Process(target=_write, args=arguments) for _ in range(count)]
        self._times: list[float] = []

    def __enter__(self) -> Writers:
        from django.db import connections

        connections.close_all()  # before the fork
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        for _process in self._processes:
            self._times += self._found.get()
        for process in self._processes:
            process.join()

    def quantiles(self) -> tuple[int, float, float]:
        """Return the number of writes, and their median and 99th percentile in milliseconds."""
        cuts = statistics.quantiles(self._times, n=100)
        return len(self._times), 1000 * cuts[49], 1000 * cuts[98]


def _write(project_id: int, stopped: Any, found: Any) -> None:
    import msgspec

    from traces_app.ingest.pipeline import ingest
    from traces_app.schema import records

    times = []
    while not stopped.is_set():
        name = f"writer-{os.getpid()}-{len(times)}"
        call = {"id": "c", "name": "search", "args": {"q": "weather"}, "result": {"output": "sunny " * 150}}
        step = {"iteration": 0, "thought": "Look. " * 50, "tool_calls": [call]}
        message = {"external_id": "m", "role": "assistant", "content": "Sunny. " * 90, "agent_steps": [step]}
        message["created_at"] = datetime.now(UTC)
        session = msgspec.convert({"external_id": name, "messages": [message]}, records.Session)
        began = time.perf_counter()
        ingest(project_id, [session], source="live")
        times.append(time.perf_counter() - began)
    found.put(times[5:])  # the first ones open the connection and read the catalogue


if __name__ == "__main__":
    main()
