"""Restart a Tracesite under load and report failures of its clients: python -m benchmarks.restart --restarts 20

Starts a separate embedded PostgreSQL and a server with two workers, in a directory that is removed at the end. The exit
status is 0 if no request failed and all acknowledged data was found complete, once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from benchmarks.faults import findings

from . import wrk
from .load import Load
from .restarts import KINDS, Kind, Supervised, supervised


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.restart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("all", *KINDS), default="all", help="SIGHUP, or stop and start (both).")
    parser.add_argument("--restarts", type=int, default=5, help="Of each kind (default: %(default)s).")
    parser.add_argument("--seconds", type=float, default=2, help="Between two restarts (default: %(default)s).")
    parser.add_argument("--seed", type=int, default=1, help="Of what is sent (default: %(default)s).")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    kinds: tuple[Kind, ...] = KINDS if options.kind == "all" else (options.kind,)
    with supervised() as server:
        problems = [problem for kind in kinds for problem in _under_our_load(server, kind, options)]
        if wrk.is_installed():
            problems += [problem for kind in kinds for problem in _under_wrk(server, kind, options)]
        else:
            print("wrk is not installed: left out")
    return bool(problems)


def _under_our_load(server: Supervised, kind: Kind, options: argparse.Namespace) -> list[str]:
    load = Load(server.port, server.site.key, f"{kind}/", options.seed)
    begin = time.monotonic()
    load.start()
    try:
        took = _restart(server, kind, options)
    finally:
        load.stop()
    with server.site.connect() as connection:
        problems = load.ledger.faults + findings.problems(connection, load.ledger, f"{kind}/")
    rate = load.ledger.answers.total() / (time.monotonic() - begin)
    print(
        f"{kind}, our clients: {options.restarts} times, each {min(took):.1f} to {max(took):.1f} s; {rate:.0f} answers a second, "
        f"the slowest batch {load.slowest:.1f} s; {len(load.ledger.entries)} messages acknowledged",
        *(problems or ["no request failed, all is whole"]),
        sep="\n  - ",
        flush=True,
    )
    return problems


def _under_wrk(server: Supervised, kind: Kind, options: argparse.Namespace) -> list[str]:
    process = wrk.start(server, options.restarts * (options.seconds + 5) + options.seconds)
    try:
        took = _restart(server, kind, options)
    except BaseException:
        process.kill()
        raise
    answers, acknowledged, problems = wrk.finish(process, server)
    print(
        f"{kind}, wrk: {options.restarts} times, each {min(took):.1f} to {max(took):.1f} s; {answers} answers; "
        f"{acknowledged} messages acknowledged",
        *(problems or ["no request failed, all is whole"]),
        sep="\n  - ",
        flush=True,
    )
    return problems


def _restart(server: Supervised, kind: Kind, options: argparse.Namespace) -> list[float]:
    took = []
    for _ in range(options.restarts):
        time.sleep(options.seconds)
        took.append(server.restart(kind))
    time.sleep(options.seconds)
    return took


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # runs the cleanup


if __name__ == "__main__":
    sys.exit(main())
