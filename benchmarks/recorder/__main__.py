"""Measure the recorder beside OpenTelemetry: python -m benchmarks.recorder [--help]

OpenTelemetry's SDK is not a dependency of the project. Install it beside the recorder, which needs only msgspec:

    python -m venv /tmp/otel && /tmp/otel/bin/pip install msgspec opentelemetry-sdk
    /tmp/otel/bin/python -m benchmarks.recorder

Without it the recorder is measured alone. With `openai` installed, requests of a recorded client are measured too. Needs two cores to itself and about a minute.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

import msgspec

from benchmarks.report import Line, Report, at_least, at_most

from .contents import Content, contents
from .sides import FLUSH_SECONDS, HAS_OPENAI, HAS_OPENTELEMETRY, Bare, Client, Decorated, OpenTelemetry, Side, Traced

T = TypeVar("T")

MADE = "with, events made"
SIDES = {
    "with": Traced,
    "decorator": Decorated,
    MADE: lambda: Traced(counting=True),
    "disabled": lambda: Traced(enabled=False),
    "none": Bare,
}
CLIENT, CLIENT_CALLS = "client", "client, with a call"
"""Beside a decorated function."""
CLIENTS = {CLIENT: Client, CLIENT_CALLS: lambda: Client(calls=True)} if HAS_OPENAI else {}
PEER = "opentelemetry"
PEER_TO_JSON = "opentelemetry, JSON made"
BURST = 20_000
MEMORY_CALLS = 1000


class Turn(msgspec.Struct):
    """Costs of one turn of one side, in microseconds per call."""

    p50: float
    p99: float
    most: float
    cpu: float
    """CPU of the whole process until everything was flushed."""
    cpu_here: float
    """CPU of the agent's thread during its calls."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25, help="Turns of each side (default: %(default)s).")
    parser.add_argument("--calls", type=int, default=1000, help="Calls of a turn (default: %(default)s).")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write all figures there.")
    parser.add_argument("--memory-of", choices=("with", PEER), help=argparse.SUPPRESS)
    parser.add_argument("--burst-of", choices=("with", PEER), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        side = OpenTelemetry() if options.memory_of == PEER else Traced(delay_ms=60_000)
        print(msgspec.json.encode(memory_of(side)).decode())
        return
    if options.burst_of:
        side = Traced(counting=True) if options.burst_of == "with" else OpenTelemetry()
        print(msgspec.json.encode(burst_of(side)).decode())
        return
    report = Report(circumstances=_circumstances(options.calls, options.rounds))
    print("\n".join(f"{name}: {value}" for name, value in report.circumstances.items()), "\n", flush=True)
    measure(report, options.rounds, options.calls)
    print(f"\n{report.table()}")
    if options.json:
        options.json.write_bytes(report.as_json())


def made(name: str) -> Side:
    return OpenTelemetry(to_json=name == PEER_TO_JSON) if name.startswith(PEER) else {**SIDES, **CLIENTS}[name]()


def measure(report: Report, rounds: int, calls: int) -> None:
    names = [*SIDES, *CLIENTS, *([PEER, PEER_TO_JSON] if HAS_OPENTELEMETRY else [])]
    turns = turns_of({name: made(name) for name in names}, rounds, calls)
    for name in SIDES:
        of_side(report, name, turns)
    of_clients(report, turns)
    of_children(report)


def of_clients(report: Report, turns: dict[str, list[Turn]]) -> None:
    """Report requests of a recorded client beside calls of a decorated function."""
    for name in CLIENTS:
        bar = at_most(2) if name == CLIENT else None
        for title, figure in (("p50", "p50"), ("CPU", "cpu")):
            mine = [getattr(turn, figure) for turn in turns[name]]
            floors = {"decorator": [getattr(turn, figure) for turn in turns["decorator"]]}
            line = Line(name=f"{name}: {title} of a request", unit="us", runs=mine, floors=floors, bar=bar)
            report.add(line)


def of_side(report: Report, name: str, turns: dict[str, list[Turn]]) -> None:
    """Report a side beside the peer that does the same work, if it is installed."""
    mine = turns[name]
    peer = PEER_TO_JSON if name == MADE else PEER
    theirs = turns.get(peer, [])
    bar = at_most(0.4) if name == "with" and theirs else None
    more = {"p99": median([turn.p99 for turn in mine]), "max": max(turn.most for turn in mine)}
    here = {"in the agent's thread": median([turn.cpu_here for turn in mine])}
    if theirs:
        more["its p99"] = median([turn.p99 for turn in theirs])
        more["its max"] = max(turn.most for turn in theirs)
        here["of it"] = median([turn.cpu_here for turn in theirs])
    for title, figures, others, beside in (
        ("p50", [turn.p50 for turn in mine], [turn.p50 for turn in theirs], more),
        ("CPU", [turn.cpu for turn in mine], [turn.cpu for turn in theirs], here),
    ):
        floors = {peer: others} if theirs else {}
        line = Line(name=f"{name}: {title} of a call", unit="us", runs=figures, floors=floors, bar=bar, beside=beside)
        report.add(line)


def turns_of(sides: dict[str, Side], rounds: int, calls: int) -> dict[str, list[Turn]]:
    """Measure all sides in turns, so that load on the machine affects all; the first round is a warm-up."""
    content = contents()
    for side in sides.values():
        if isinstance(side, Client):
            for one in content:
                side.prepare(one)
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            turn = turn_of(side, content, calls)
            if number:
                turns[name].append(turn)
    return turns


def turn_of(side: Side, content: list[Content], calls: int) -> Turn:
    gc.collect()
    clock = time.perf_counter_ns
    took = []
    began = time.process_time_ns()
    began_here = time.thread_time_ns()
    with side.run():
        for number in range(calls):
            one = content[number % len(content)]
            before = clock()
            side.call(one)
            took.append(clock() - before)
    here = time.thread_time_ns() - began_here
    side.flush()
    cpu = time.process_time_ns() - began
    cuts = quantiles(took, n=100)
    return Turn(
        p50=cuts[49] / 1000,
        p99=cuts[98] / 1000,
        most=max(took) / 1000,
        cpu=cpu / calls / 1000,
        cpu_here=here / calls / 1000,
    )


# --- In separate processes --------------------------------------------------------------------------------------


class Memory(msgspec.Struct):
    """Memory per call that the worker has not taken yet."""

    bytes: float
    blocks: float
    """Approximate number of live objects."""
    rss_mb: float
    """Growth of the process over 20,000 calls with a flush after each thousand."""


class Burst(msgspec.Struct):
    kept: int
    """Number of calls kept of 20,000 without a pause."""
    seconds: float


def of_children(report: Report) -> None:
    mine = _child("--memory-of", "with", Memory)
    peer = _child("--memory-of", PEER, Memory) if HAS_OPENTELEMETRY else None
    for name, unit in (("bytes", "B"), ("blocks", ""), ("rss_mb", "MB")):
        floors = {PEER: [getattr(peer, name)]} if peer else {}
        title = {"bytes": "memory of a waiting call", "blocks": "objects of a waiting call", "rss_mb": "RSS"}[name]
        report.add(Line(name=f"with: {title}", unit=unit, runs=[getattr(mine, name)], floors=floors))
    for name in ("with", *([PEER] if HAS_OPENTELEMETRY else [])):
        burst = _child("--burst-of", name, Burst)
        report.add(
            Line(
                name=f"{name}: kept of a burst of {BURST:,}",
                unit="",
                runs=[burst.kept],
                better="more",
                bar=at_least(BURST) if name == "with" else None,
                beside={"seconds": burst.seconds},
            )
        )


def memory_of(side: Side) -> Memory:
    content = contents()
    turn_of(side, content, 200)
    before = _rss_mb()
    for _turn in range(BURST // 1000):
        turn_of(side, content, 1000)
    grown = _rss_mb() - before
    # At most the size of OpenTelemetry's queue, and faster than either worker wakes up.
    gc.collect()
    gc.disable()
    with side.run():
        tracemalloc.start()
        blocks = sys.getallocatedblocks()
        for number in range(MEMORY_CALLS):
            side.call(content[number % len(content)])
        size, _peak = tracemalloc.get_traced_memory()
        blocks = sys.getallocatedblocks() - blocks
        tracemalloc.stop()
    side.flush()
    return Memory(bytes=size / MEMORY_CALLS, blocks=blocks / MEMORY_CALLS, rss_mb=grown)


def burst_of(side: Side) -> Burst:
    content = contents()
    began = time.perf_counter()
    with side.run():
        for number in range(BURST):
            side.call(content[number % len(content)])
        took = time.perf_counter() - began
    side.flush()
    # OpenTelemetry also counts the span around the calls.
    return Burst(kept=min(side.kept(), BURST), seconds=took)


def _child(option: str, name: str, type_: type[T]) -> T:
    command = [sys.executable, "-m", "benchmarks.recorder", option, name]
    done = subprocess.run(command, check=True, capture_output=True, timeout=2 * FLUSH_SECONDS)
    return msgspec.json.decode(done.stdout, type=type_)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _circumstances(calls: int, rounds: int) -> dict[str, str]:
    peer = (
        f"opentelemetry-sdk {version('opentelemetry-sdk')}"
        if HAS_OPENTELEMETRY
        else "opentelemetry-sdk is not installed"
    )
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}",
        "beside": peer,
        "of each side": f"{rounds} turns of {calls} calls",
    }


if __name__ == "__main__":
    main()
