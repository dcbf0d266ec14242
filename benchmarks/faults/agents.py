"""Agent process that records tool calls, to be observed or killed: python -m benchmarks.faults.agents

Prints the durations of its calls as JSON. With --kill it ends itself by SIGKILL right after its last call, and leaves the
end times of its calls in a file.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from pathlib import Path
from statistics import quantiles

import msgspec

from tracesite_sdk import Recorder


class Watched(msgspec.Struct):
    """Durations of the calls in microseconds, and the counts of their events in the process."""

    p50: float
    p99: float
    most: float
    dropped: int
    done_at: float
    """Time at which the work ended and the exit began, on the monotonic clock, which processes share."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.agents", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--spool", type=Path, required=True)
    parser.add_argument("--session", required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--pause-ms", type=float, default=0, help="Between two calls, on the average.")
    parser.add_argument("--delay-ms", type=float, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", type=Path, metavar="LOG")
    options = parser.parse_args()
    recorder = Recorder(options.url, key=options.key, spool=options.spool, delay_ms=options.delay_ms)
    log = os.open(options.kill, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if options.kill else None
    chance = random.Random(options.seed)
    took = []
    with recorder.session(options.session), recorder.message("What is there to do?"):
        for number in range(options.calls):
            args = {"number": number, "query": "x" * 250}
            result = "All is well. " * 110
            began = time.perf_counter_ns()
            with recorder.tool_call("work", args) as call:
                call.result = result
            took.append(time.perf_counter_ns() - began)
            if log is not None:
                os.write(log, b"%d %d\n" % (number, time.monotonic_ns()))
            if options.pause_ms:
                time.sleep(chance.random() * 2 * options.pause_ms / 1000)
        if log is not None:
            os.write(log, b"killed %d\n" % time.monotonic_ns())
            os.kill(os.getpid(), signal.SIGKILL)
    cuts = quantiles(took, n=100)
    watched = Watched(
        p50=cuts[49] / 1000,
        p99=cuts[98] / 1000,
        most=max(took) / 1000,
        dropped=recorder.report().dropped,
        done_at=time.monotonic(),
    )
    print(msgspec.json.encode(watched).decode(), flush=True)


if __name__ == "__main__":
    main()
