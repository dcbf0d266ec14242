"""Measure ingest where projects are spread over 1, 2 and 3 PostgreSQL servers: python -m benchmarks.project_databases

For each number of servers: as many PostgreSQL 15 of Debian, which do not wait for the disk, `manage.py serve` before them, and a client for each
of six projects, which are spread evenly. Each sends messages of 23 KB, 20 at a time. CPU of the server and of each PostgreSQL a
message, with what their background jobs do meanwhile, and messages a second. All of it shares the cores of this machine, so the rate
shows what the directory costs, not what more machines would bring.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from tests.debian_postgres import postgres, url

from . import http_client, processes, server
from .workload import Workload

PROJECTS = 6
BATCH = 20
MAKE = """
from access_app.keys import create_key
from access_app.models import Project, Scope
from access_app.places import place
for slug in {slugs}:
    project = Project.objects.create(slug=slug)
    place(project)
    print(create_key(project, "benchmark", [Scope.WRITE])[1])
"""
"""What prints a key of each project: a command for each would start Django as often."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--messages", type=int, default=400, help="of each project (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="each with as many messages (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of the server (default: %(default)s)")
    options = parser.parse_args()
    server.DATA_DIR.mkdir(parents=True, exist_ok=True)
    os.environ["TRACESITE_DATA_DIR"] = str(server.DATA_DIR)
    for count in options.servers:
        measure(count, options.messages, options.runs, options.workers)


def measure(count: int, messages: int, runs: int, workers: int) -> None:
    """Print a line for each run, after one that only warms up connections and plans."""
    with ExitStack() as stack:
        homes = [stack.enter_context(postgres()) for _number in range(count)]
        aliases = [f"tenant{number}" for number in range(1, count)]
        projects = [f"p{number}" for number in range(PROJECTS)]
        placed = {project: aliases[number % count - 1] for number, project in enumerate(projects) if number % count}
        os.environ["DATABASE_URL"] = url(homes[0])
        os.environ["DATABASE_PROJECT_URLS"] = " ".join(
            f"{alias}={url(home)}" for alias, home in zip(aliases, homes[1:], strict=True)
        )
        os.environ["TRACESITE_PROJECT_DATABASES"] = ",".join(f"{slug}={alias}" for slug, alias in placed.items())
        manage("migrate")
        for alias in aliases:
            manage("prepare_database", alias)
        tokens = manage("shell", "--no-imports", "-c", MAKE.format(slugs=projects)).split()
        served = stack.enter_context(server.serving(workers))
        masters = [int((home / "data" / "postmaster.pid").read_text().split()[0]) for home in homes]
        for run in range(runs + 1):
            bodies = [bodies_of(project, run, messages) for project in projects]
            before = cpu(served, masters)
            took = send_all(served, tokens, bodies)
            spent = [end - begin for begin, end in zip(before, cpu(served, masters), strict=True)]
            total = messages * PROJECTS
            in_server, *in_postgres = (1000 * seconds / total for seconds in spent)
            if run:
                print(
                    f"{count} PostgreSQL: {total / took:6.1f} messages/s, CPU ms a message: server {in_server:.2f}, PostgreSQL "
                    f"{sum(in_postgres):.2f} ({' + '.join(f'{each:.2f}' for each in in_postgres)}), load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


def manage(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, server.ROOT / "manage.py", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the checks warn that the servers do not wait for the disk
        text=True,
        env={**os.environ, "TRACESITE_LOG_LEVEL": "ERROR"},
    )
    return done.stdout


def bodies_of(project: str, run: int, messages: int) -> list[bytes]:
    workload = Workload(
        name=f"{project}-{run}", begin=datetime(2025, 6, 1, tzinfo=UTC), messages_a_session=20, sessions_at_once=1
    )
    return [workload.batch(range(at, min(at + BATCH, messages))) for at in range(0, messages, BATCH)]


def send_all(served: server.Server, tokens: Sequence[str], bodies: Sequence[Sequence[bytes]]) -> float:
    """Send the bodies of each project by a thread of its own; return the seconds until all are acknowledged."""
    failed: list[BaseException] = []

    def send(token: str, own: Sequence[bytes]) -> None:
        try:
            connection = served.connect()
            for body in own:
                connection.send(http_client.post("/api/v1/ingest/", {"Authorization": f"Bearer {token}"}, body))
            connection.close()
        except (OSError, http_client.HttpError) as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=pair) for pair in zip(tokens, bodies, strict=True)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"A request failed: {failed[0]}")
    return time.monotonic() - began


def cpu(served: server.Server, masters: Sequence[int]) -> list[float]:
    """Return the CPU seconds so far of the server and of each PostgreSQL."""
    return [
        served.cpu_seconds(),
        *(
            processes.cpu_seconds([master], with_ended=True)
            + processes.cpu_seconds(pid for pid in processes.family(master) if pid != master)
            for master in masters
        ),
    ]


if __name__ == "__main__":
    main()
