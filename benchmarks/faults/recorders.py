"""Recorded data when the server is down or the agent is killed: python -m benchmarks.faults.recorders

Starts a separate embedded PostgreSQL and a server. The agents are real processes. At the end each call must be stored
once, or must have ended within the time before the kill that the recorder documents. The exit status is 0 if so.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import msgspec

from .agents import Watched
from .site import ROOT, Site, running

OUTAGES = ("refused", "silent", "503")
DELAY_MS = 50.0
"""Default delay of the recorder."""
EXIT_SECONDS = 2.0
SLACK_MS = 60.0
"""Allowed delay of the worker's wake-up on a busy machine."""
PAUSED_MS = 20.0
"""Between two calls: an agent that calls nothing for longer is not let run by the machine."""


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Agent whose server was down while it worked."""

    kind: str
    watched: Watched
    exit_seconds: float
    left: int
    """Number of calls that are missing or duplicated after the server is back."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Agent that was killed right after its last call."""

    seed: int
    worked: int
    lost: int
    oldest_lost_ms: float
    """Time that the agent was at work from the end of the oldest lost call to the kill."""
    doubled: int


# --- Agents ---------------------------------------------------------------------------------------------------------


def agent(site: Site, spool: Path, session: str, calls: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.faults.agents", "--url", f"http://127.0.0.1:{site.server.port}"]
    command += ["--key", site.key, "--spool", str(spool), "--session", session, "--calls", str(calls), *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def drain(site: Site, spool: Path, seconds: int = 180) -> None:
    """Deliver the spool, as a later process of the recorder does."""
    command = [sys.executable, "-m", "tracesite_sdk", "drain", "--url", f"http://127.0.0.1:{site.server.port}"]
    command += ["--key", site.key, "--spool", str(spool), "--timeout", str(seconds)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=seconds + 20)


def arrived(site: Site, session: str) -> Counter[int]:
    """Return how often each call of a session is stored with its end. Raise ValueError for a duplicate event."""
    with site.connect() as connection:
        calls = connection.execute(
            """SELECT (c.args->>'number')::int, c.status FROM traces_app_toolcall c
               JOIN messages_app_message m ON m.id = c.message_id JOIN messages_app_session s ON s.id = m.session_id
               WHERE s.external_id = %s""",
            [session],
        ).fetchall()
        events = connection.execute(
            """SELECT count(*), count(DISTINCT e.external_id) FROM traces_app_event e
               JOIN messages_app_session s ON s.id = e.session_id WHERE s.external_id = %s""",
            [session],
        ).fetchone()
    if events is None or events[0] != events[1]:
        raise ValueError(f"{session}: {events} events and different ones")
    return Counter(number for number, status in calls if status == "success")


# --- Unavailable servers ---------------------------------------------------------------------------------------


@contextmanager
def nobody(kind: str, port: int) -> Iterator[None]:
    """Simulate an unavailable server: a closed port, a server that never responds, or one that returns 503."""
    with contextlib.ExitStack() as stack:
        if kind == "silent":
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(16)
        elif kind == "503":
            server = ThreadingHTTPServer(("127.0.0.1", port), _Unavailable)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        yield


class _Unavailable(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


# --- Trials -----------------------------------------------------------------------------------------------------


def outages(
    site: Site, directory: Path, calls: int, *, pause_ms: float = 1, kinds: tuple[str, ...] = OUTAGES
) -> list[Outage]:
    """Run an agent in each kind of outage, then restart the server and count missing calls."""
    site.server.stop()
    seen = {}
    for kind in kinds:
        with nobody(kind, site.server.port):
            process = agent(site, directory / kind, f"outage-{kind}-{calls}", calls, "--pause-ms", str(pause_ms))
            with process:
                output, _error = process.communicate(timeout=300)
                seen[kind] = msgspec.json.decode(output, type=Watched), time.monotonic()
    site.server.start()
    found = []
    for kind, (watched, ended_at) in seen.items():
        drain(site, directory / kind)
        there = arrived(site, f"outage-{kind}-{calls}")
        found.append(
            Outage(
                kind=kind,
                watched=watched,
                exit_seconds=ended_at - watched.done_at,
                left=sum(there[number] != 1 for number in range(calls)) + (len(there) != calls),
            )
        )
    return found


def kills(site: Site, directory: Path, seeds: range, *, is_away: bool = False, longest_ms: float = 1500) -> list[Kill]:
    """Run agents one after the other that are killed after some time.

    Each also delivers the spool of its predecessors, and a last agent delivers the rest.
    """
    if is_away:
        site.server.stop()
    directory.mkdir(exist_ok=True)
    for seed in seeds:
        chance = random.Random(seed)
        pause = chance.choice((0.1, 0.5, 2))
        calls = int(chance.uniform(100, longest_ms) / pause)
        log = directory / f"{seed}.log"
        options = ["--seed", str(seed), "--pause-ms", str(pause), "--delay-ms", str(DELAY_MS), "--kill", str(log)]
        with agent(site, directory / "spool", f"{directory.name}-{seed}", calls, *options) as process:
            assert process.wait(timeout=200) == -9, "it kills itself"
    if is_away:
        site.server.start()
    drain(site, directory / "spool")
    return [_outcome(site, seed, directory / f"{seed}.log") for seed in seeds]


def _outcome(site: Site, seed: int, log: Path) -> Kill:
    *worked, (_word, killed_at) = [line.split() for line in log.read_text().splitlines()]
    there = arrived(site, f"{log.parent.name}-{seed}")
    lost = [place for place, (number, _at) in enumerate(worked) if there[int(number)] == 0]
    times = [int(at) / 1_000_000 for _number, at in worked] + [int(killed_at) / 1_000_000]
    since_oldest = pairwise(times[lost[0] :]) if lost else ()
    return Kill(
        seed=seed,
        worked=len(worked),
        lost=len(lost),
        oldest_lost_ms=sum(min(after - before, PAUSED_MS) for before, after in since_oldest),
        doubled=sum(times > 1 for times in there.values()),
    )


# --- Command line ----------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.recorders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--parts", nargs="+", choices=("outages", "burst", "kills"), default=("outages", "burst", "kills")
    )
    parser.add_argument("--calls", type=int, default=5000, help="Of an agent in an outage (default: %(default)s).")
    parser.add_argument("--kills", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="Of the moments (default: %(default)s).")
    options = parser.parse_args()
    problems = []
    with running() as site:
        if "outages" in options.parts:
            for one in outages(site, site.data_dir / "outages", options.calls):
                print(_said(one), flush=True)
                if one.left or one.watched.dropped or one.exit_seconds > EXIT_SECONDS + 0.5 or one.watched.p99 > 1000:
                    problems.append(one.kind)
        if "burst" in options.parts:
            for one in outages(site, site.data_dir / "burst", 20_000, pause_ms=0, kinds=("refused",)):
                print("burst:", _said(one), flush=True)
                if one.left or one.watched.dropped:
                    problems.append("burst")
        if "kills" in options.parts:
            half = options.seed + options.kills // 2
            for is_away, seeds in (
                (False, range(options.seed, half)),
                (True, range(half, options.seed + options.kills)),
            ):
                found = kills(site, site.data_dir / f"kills-{is_away}", seeds, is_away=is_away)
                print(
                    f"kills, server {'away' if is_away else 'there'}: {len(found)} agents, {sum(one.worked for one in found)} "
                    f"calls, {sum(one.lost for one in found)} lost, the oldest {max(one.oldest_lost_ms for one in found):.1f} ms "
                    f"before the kill, {sum(one.doubled for one in found)} doubled",
                    flush=True,
                )
                for one in found:
                    print(f"  {one}", flush=True)
                problems += [
                    f"kill {one.seed}" for one in found if one.doubled or one.oldest_lost_ms > DELAY_MS + SLACK_MS
                ]
    print(f"Not as it should be: {', '.join(problems)}" if problems else "All is as it should be.")
    return 1 if problems else 0


def _said(outage: Outage) -> str:
    watched = outage.watched
    return (
        f"{outage.kind}: p50 {watched.p50:.1f} us, p99 {watched.p99:.1f} us, max {watched.most:.0f} us a call; "
        f"exit {outage.exit_seconds:.2f} s; {watched.dropped} dropped, {outage.left} not there once"
    )


if __name__ == "__main__":
    sys.exit(main())
