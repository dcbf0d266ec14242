"""Kill the dependencies of live sessions in the middle of a stream: python -m benchmarks.live.kills --kind process --runs 20

Starts a durable embedded PostgreSQL and a server of one process, in a directory that is removed at the end. In each run
two agents work and four clients follow them, over WebSockets and server-sent events. At a moment derived from the seed,
one of these is killed:

    listener   the connection to PostgreSQL on which the live part receives notifications
    process    the server, with SIGKILL; it is restarted as by systemd
    socket     the connection of one client, by a reset

One notification in four is not sent. The exit status is 0 if every client received every event once and in order.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from typing import Any, Literal, get_args

import psycopg

from benchmarks.faults.site import Site, running

from .agents import make_agent
from .loyal import PATIENCE_SECONDS, Loyal

Kind = Literal["listener", "process", "socket"]
KINDS: tuple[Kind, ...] = get_args(Kind)
AGENTS = 2
TURNS = 40
EVENTS_A_TURN = 3
MOST_PAUSE_SECONDS = 0.03
_KILL_LISTENERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN \"traces_app_events\"'"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.live.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", choices=("all", *KINDS), default="all", help="What is killed (default: each).")
    parser.add_argument("--runs", type=int, default=20, help="Of each kind, with one kill each (default: %(default)s).")
    parser.add_argument("--first", type=int, default=1, help="Number of the first run, to go on from (default: 1).")
    parser.add_argument("--seed", type=int, default=1, help="Of the moments (default: %(default)s).")
    options = parser.parse_args()
    kinds = KINDS if options.kind == "all" else (options.kind,)
    with running(workers=1) as site:
        for kind in kinds:
            began = time.monotonic()
            events = connections = 0
            for number in range(options.first, options.first + options.runs):
                loyal = run(site, kind, number, options.seed)
                if wrong := [one for one in loyal if not one.has_all]:
                    seen = wrong[0].seen
                    print(f"{kind}, run {number}: {len(wrong)} of {len(loyal)} clients with a gap or a double: {seen}")
                    return 1
                events += sum(len(one.seen) for one in loyal)
                connections += sum(one.connections for one in loyal)
            clients = options.runs * AGENTS * 2
            print(
                f"{kind}: {options.runs} of {options.runs} runs whole, {events} events delivered to {clients} clients, once and "
                f"in order; they came back {connections - clients} times; {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return 0


def run(site: Site, kind: Kind, number: int, seed: int) -> list[Loyal]:
    """Return the clients at the end of one run."""
    chance = random.Random(f"{seed} {kind} {number}")
    agents = [make_agent(site, f"{kind}-{seed}-{number}-{agent}") for agent in range(AGENTS)]
    last = TURNS * EVENTS_A_TURN
    loyal = [Loyal(site, agent.external_id, last, streams=streams) for agent in agents for streams in (False, True)]
    for one in loyal:
        one.start()
    killed_in = chance.randrange(TURNS // 4, TURNS * 3 // 4)
    with site.connect() as database:
        for turn in range(TURNS):
            for agent in agents:
                events = [{"turn": turn, "thought": "What the weather is like. " * 8}] * EVENTS_A_TURN
                agent.does(database, *events, tells=chance.random() > 0.25)
            time.sleep(chance.random() * MOST_PAUSE_SECONDS)
            if turn == killed_in:
                kill(site, kind, database, loyal, chance)
        for one in loyal:
            one.join(PATIENCE_SECONDS)
    return loyal


def kill(site: Site, kind: Kind, database: psycopg.Connection[Any], loyal: list[Loyal], chance: random.Random) -> None:
    match kind:
        case "listener":
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (killed := database.execute(_KILL_LISTENERS).fetchall()):
                assert time.monotonic() < deadline, "no connection listens"
                time.sleep(0.01)
            assert killed == [(True,)], "one connection listens"
        case "process":
            process = site.server.process
            assert process is not None, "it was started"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            site.server.start()
        case "socket":
            chance.choice(loyal).cut_off()


if __name__ == "__main__":
    raise SystemExit(main())
