"""Kill the primary of two PostgreSQL servers under Patroni while clients write: python -m benchmarks.failover --kills 20

Runs etcd, two Patroni with PostgreSQL 15 (docs/production/patroni.yml) and a server with two workers on loopback addresses, in a
directory that is removed at the end. Needs Debian's patroni and etcd-server. In turns everything of the primary's machine is
killed, and PostgreSQL alone. The clients repeat each request until it is acknowledged; a recorder keeps its events
in its spool until then. The exit status is 0 if in synchronous mode nothing that was acknowledged is lost, in no mode anything
is doubled, and the service answered again within 30 s each time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.faults import findings, recorders, traces
from benchmarks.faults.ledger import Entry, Ledger
from benchmarks.faults.senders import SHARED_MESSAGE, Client, Sender, in_a_session
from benchmarks.faults.site import PREPARE, PROJECT, Server, Site
from sdk.tests.ports import free_port

from .cluster import Cluster, Kind, Mode, is_installed, running

MOST_SECONDS = 30
SENDERS = 3
BEFORE_SECONDS = (1.0, 3.0)
CALLS = 1500
CALL_PAUSE_MS = 2
DRAIN_SECONDS = 900
MODES: tuple[Mode, ...] = ("synchronous", "asynchronous")
KINDS: tuple[Kind, ...] = ("machine", "postgres")


@dataclass
class Campaign:
    """Failovers of one cluster under one server."""

    cluster: Cluster
    site: Site
    mode: Mode
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    away: dict[Kind, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Seconds from each kill to the acknowledgement of a write that was sent after it."""
    agents: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.prefix = f"failover-{self.mode}/"
        self.shared = f"{self.prefix}shared"
        self.senders = [self._sender(str(number)) for number in range(SENDERS)]
        self.probe = self._sender("probe")
        message = {**traces.message(self.dice, SHARED_MESSAGE, steps=1), "content": "a list of tokens"}
        _, answer = self.probe.client.request("POST", "/api/v1/ingest/", in_a_session(self.shared, [message]))
        self.ledger.acknowledge(Entry(session=self.shared, sent=message, id=answer["sessions"][0]["messages"][0]["id"]))

    def round(self, kind: Kind) -> float:
        """Kill the primary, wait until the service writes again and until the cluster is whole. Return the seconds of the first."""
        primary = self.cluster.primary()
        assert primary is not None, "the cluster is whole"
        self._start_agent()
        time.sleep(self.dice.uniform(*BEFORE_SECONDS))
        begin = time.monotonic()
        primary.kill(kind)
        self.probe.once()
        took = time.monotonic() - begin
        self.away[kind].append(took)
        if kind == "machine":
            primary.start()
        self.cluster.wait(self.cluster.is_whole, "the killed server is back as a replica")
        return took

    def run(self, kills: int) -> None:
        stop = threading.Event()
        # Lost data would confuse those that change what they have sent: without replication they only send.
        run = Sender.run if self.mode == "synchronous" else _only_send
        threads = [threading.Thread(target=run, args=[sender, stop]) for sender in self.senders]
        for thread in threads:
            thread.start()
        try:
            for number in range(kills):
                kind = KINDS[number % len(KINDS)]
                took = self.round(kind)
                print(f"  {number + 1}: {kind}, {took:.1f} s; {len(self.ledger.entries)} acknowledged", flush=True)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            for _session, process in self.agents:
                process.wait(timeout=120)

    def calls(self) -> tuple[int, int, int]:
        """Deliver what the recorders have kept; return the numbers of their calls, of lost and of doubled ones."""
        recorders.drain(self.site, self.spool, DRAIN_SECONDS)
        lost = doubled = 0
        for session, _process in self.agents:
            there = recorders.arrived(self.site, session)
            lost += sum(there[number] == 0 for number in range(CALLS))
            doubled += sum(times > 1 for times in there.values())
        return CALLS * len(self.agents), lost, doubled

    @property
    def spool(self) -> Path:
        return self.site.data_dir / "spool"

    def _start_agent(self) -> None:
        session = f"agent-{self.mode}-{len(self.agents)}"
        pause = ["--pause-ms", str(CALL_PAUSE_MS)]
        self.agents.append((session, recorders.agent(self.site, self.spool, session, CALLS, *pause)))

    def _sender(self, name: str) -> Sender:
        client = Client(self.site.server.port, self.site.key, self.ledger)
        dice = random.Random(f"{self.seed}/{name}")
        return Sender(f"{self.prefix}{name}", self.shared, client, self.ledger, dice)


def _only_send(sender: Sender, stop: threading.Event) -> None:
    while not stop.is_set():
        sender.once()


@contextmanager
def served(mode: Mode) -> Iterator[tuple[Cluster, Site]]:
    """Run a cluster and a server on it until the end of the block."""
    home = Path(tempfile.mkdtemp(prefix="tracesite-failover-", dir="/tmp"))
    try:
        home.chmod(0o755)
        data = home / "server"
        data.mkdir()
        (home / "cluster").mkdir()
        with running(home / "cluster", mode) as cluster:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACESITE_")} | {
                "DATABASE_URL": cluster.url,
                "TRACESITE_DATA_DIR": str(data),
                "TRACESITE_LOG_LEVEL": "WARNING",
                "DJANGO_SETTINGS_MODULE": "tracesite.settings",
            }
            server = Server(port=free_port(), log=data / "server.log", environment=environment)
            site = Site(data_dir=data, url=cluster.url, server=server, environment=environment)
            site.key = json.loads(site.python("-c", PREPARE, PROJECT).splitlines()[-1])["key"]
            try:
                server.start()
                yield cluster, site
            finally:
                server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def campaign(mode: Mode, kills: int, seed: int) -> list[str]:
    """Run one campaign, print what was found, and return the problems."""
    print(f"{mode}:", flush=True)
    with served(mode) as (cluster, site):
        one = Campaign(cluster, site, mode, seed)
        one.run(kills)
        calls, lost_calls, doubled_calls = one.calls()
        with site.connect() as connection:
            differences = findings.differences(connection, one.ledger, one.prefix)
            contradictions = findings.contradictions(connection)
        errors = site.server.log.read_text().count('"level":"ERROR"')
    lost = [each for each in differences if "is lost" in each]
    others = [each for each in differences if "is lost" not in each]
    times = [
        f"{kind} {min(took):.1f}, {median(took):.1f}, {max(took):.1f} s" for kind, took in one.away.items() if took
    ]
    print(
        f"  {kills} kills, without service (least, median, most): {'; '.join(times)}",
        f"  {len(one.ledger.entries)} messages acknowledged, {len(lost)} lost; {calls} recorded calls, {lost_calls} lost; "
        f"{doubled_calls} calls doubled; answers: {dict(one.ledger.answers)}; {errors} errors in the log",
        *(f"  - {each}" for each in [*lost[:5], *others[:5], *contradictions, *one.ledger.faults[:5]]),
        sep="\n",
        flush=True,
    )
    problems = [*others, *contradictions, *one.ledger.faults]
    if mode == "synchronous":
        problems += [*lost, *(["calls are lost"] if lost_calls else [])]
    if doubled_calls:
        problems.append("calls are doubled")
    if max(max(took, default=0) for took in one.away.values()) > MOST_SECONDS:
        problems.append(f"the service was away for more than {MOST_SECONDS} s")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("both", *MODES), default="both")
    parser.add_argument("--kills", type=int, default=20, help="In each mode (default: %(default)s).")
    parser.add_argument("--seed", type=int, default=1, help="Of what is sent (default: %(default)s).")
    options = parser.parse_args()
    if not is_installed():
        print("Patroni or etcd is not installed: apt install patroni etcd-server postgresql-15", file=sys.stderr)
        return 2
    modes: tuple[Mode, ...] = MODES if options.mode == "both" else (options.mode,)
    problems = [problem for mode in modes for problem in campaign(mode, options.kills, options.seed)]
    print("Not as it should be." if problems else "All is as it should be.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
