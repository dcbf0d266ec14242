"""Measure live sessions with many viewers: python -m benchmarks.live --sockets 200 --sessions 20 --rate 500 --seconds 20

Starts a durable embedded PostgreSQL and a server of one process, in a directory that is removed at the end. Each event is
a separate transaction. Its latency is the time from PostgreSQL's acknowledgement of the commit until a client received it.
The exit status is 0 if every client received every event once and in order.
"""

from __future__ import annotations

import argparse
import selectors
import statistics
import threading
import time
from collections import Counter

from benchmarks import processes
from benchmarks.faults.site import Site, running

from .agents import make_agent
from .publishing import publish
from .viewer import WebSocket

PATIENCE_SECONDS = 10


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.live", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sockets", type=int, default=200, help="Clients (default: %(default)s).")
    parser.add_argument("--sessions", type=int, default=20, help="That they share evenly (default: %(default)s).")
    parser.add_argument("--rate", type=float, default=500, help="Events a second in all (default: %(default)s).")
    parser.add_argument("--seconds", type=float, default=20, help="(default: %(default)s)")
    options = parser.parse_args()
    with running(workers=1) as site:
        return _measure(site, options)


def _measure(site: Site, options: argparse.Namespace) -> int:
    agents = [make_agent(site, f"live-{number}") for number in range(options.sessions)]
    viewers = []
    for number in range(options.sockets):
        viewer = WebSocket(site.server.port, {"X-API-Key": site.key})
        viewer.subscribe(str(agents[number % len(agents)].session))
        viewers.append(viewer)
    (worker,) = site.server.worker_pids()
    before = processes.peak_bytes(worker)
    busy = processes.cpu_seconds([worker])
    receiving = _Receiving(viewers)
    reader = threading.Thread(target=receiving.run)
    reader.start()
    sent = publish(site.url, agents, options.rate, options.seconds)
    took = max(sent.values()) - min(sent.values())
    expected = Counter(session for session, _seq in sent)
    receiving.wait_for(sum(expected[str(agents[n % len(agents)].session)] for n in range(options.sockets)))
    reader.join()
    wrong = [
        number
        for number, seqs in enumerate(receiving.seqs)
        if seqs != list(range(1, expected[str(agents[number % len(agents)].session)] + 1))
    ]
    ways = sorted(max(at - sent[event], 0.0) * 1000 for event, at in receiving.arrivals)
    print(
        f"{options.sockets} sockets on {options.sessions} sessions, {len(sent) / took:.0f} events a second for {took:.0f} s: "
        f"{len(ways)} delivered, {len(wrong)} clients with a gap, a double or a wrong order\n"
        f"  since the event was acknowledged, ms: p50 {statistics.median(ways):.1f}, p99 {ways[len(ways) * 99 // 100]:.1f}, "
        f"max {ways[-1]:.1f}\n"
        f"  server: {(processes.cpu_seconds([worker]) - busy) / took:.0%} of a core, peak of memory "
        f"{before / 2**20:.0f} MB before, {processes.peak_bytes(worker) / 2**20:.0f} MB after",
        flush=True,
    )
    for viewer in viewers:
        viewer.close()
    return bool(wrong)


class _Receiving:
    """Reader of all sockets, in one thread."""

    def __init__(self, viewers: list[WebSocket]) -> None:
        self.viewers = viewers
        self.seqs: list[list[int]] = [[] for _ in viewers]
        self.arrivals: list[tuple[tuple[str, int], float]] = []
        self._until: tuple[int, float] | None = None

    def wait_for(self, events: int) -> None:
        """Wait until so many events were received, or none for a while."""
        self._until = (events, time.monotonic() + PATIENCE_SECONDS)

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        for number, viewer in enumerate(self.viewers):
            selector.register(viewer.socket, selectors.EVENT_READ, number)
        while self._until is None or (len(self.arrivals) < self._until[0] and time.monotonic() < self._until[1]):
            for key, _events in selector.select(0.1):
                viewer = self.viewers[key.data]
                viewer.receive()
                now = time.monotonic()
                for message in viewer.messages():
                    if message["type"] == "monitor_event":
                        event = message["event"]
                        self.seqs[key.data].append(event["seq"])
                        self.arrivals.append(((event["session_id"], event["seq"]), now))


if __name__ == "__main__":
    raise SystemExit(main())
