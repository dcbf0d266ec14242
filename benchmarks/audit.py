"""Measure what the audit log costs, and masking with it: python -m benchmarks.audit [--masking]

Two servers on one database, one of which records no requests, take the same batches and answer the same reads in turns. CPU is
that of the server and PostgreSQL, which says more than time where others are at work.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from typing import Literal

import psycopg

from . import data, http_client, ingest, processes
from .clients import Crew, Target
from .report import Report
from .server import Server, database, postmaster, serving
from .turns import in_turns, print_turns

Side = Literal["off", "on"]
SIDES: tuple[Side, Side] = ("off", "on")
SETTINGS: dict[Side, str] = {"off": "benchmarks.without_audit", "on": "tracesite.settings"}
SHAPES = {shape.name: shape for shape in ingest.SHAPES if shape.name in ("1x1", "4x20")}
STORED = 1_000
RULES = (
    ("mail", "preset", "email"),
    ("staff", "pattern", r"\bEMP-\d{6}\b"),
    ("person", "key", "national_id"),
    ("customer", "path", "args.customer.name"),
)
"""Masking rules of the project that the recording server writes to, with `--masking`."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="Turns of each side (default: %(default)s).")
    parser.add_argument("--reads", type=int, default=100, help="Requests of a turn of reading (default: %(default)s).")
    parser.add_argument(
        "--masking", action="store_true", help="Only ingest: the server that records also masks by four rules."
    )
    options = parser.parse_args()
    with database() as url, psycopg.connect(url, autocommit=True) as connection:
        project_id, token = data.prepare()
        written: dict[Side, tuple[int, str]] = {
            "off": (project_id, token),
            "on": _masked_project() if options.masking else (project_id, token),
        }
        servers: dict[Side, Server] = {}
        # What both start is started by the environment, so that the processes differ in nothing else.
        os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS["off"]
        with serving(1) as servers["off"]:
            os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS["on"]
            with serving(1) as servers["on"]:
                targets: dict[Side, Target] = {
                    side: Target(
                        port=server.port, token=written[side][1], database_url=url, project_id=written[side][0]
                    )
                    for side, server in servers.items()
                }
                with Crew(4, targets["off"]) as off, Crew(4, targets["on"]) as on:
                    crews: dict[Side, Crew] = {"off": off, "on": on}
                    if not options.masking:
                        _measure_reads(servers, on, connection, project_id, token, options.runs, options.reads)
                    _measure_ingest(crews, servers, connection, options.runs)
        if not options.masking:
            _measure_chaining(connection)
        print(f"load {os.getloadavg()[0]:.1f}")


def _masked_project() -> tuple[int, str]:
    """Create a project with masking rules. Return its id and the token of a key."""
    from access_app.keys import create_key
    from access_app.masking import save_rule
    from access_app.models import Project, Scope

    project = Project.objects.create(slug="masked")
    for name, kind, value in RULES:
        save_rule(project, name, kind, value)
    return project.pk, create_key(project, name="benchmark", scopes=list(Scope))[1]


def _measure_ingest(
    crews: dict[Side, Crew], servers: dict[Side, Server], connection: psycopg.Connection, runs: int
) -> None:
    database_pid = postmaster(connection)
    assert database_pid is not None, "it runs on this machine"

    def cpu(side: Side) -> float:
        pids = [*processes.family(servers[side].pid), *processes.family(database_pid)]
        return processes.cpu_seconds(pids, with_ended=True)

    for shape in SHAPES.values():
        took: dict[Side, list[float]] = {side: [] for side in SIDES}

        def turn(side: Side, shape: ingest.Shape = shape, took: dict[Side, list[float]] = took) -> float:
            crews[side].prepare(list(ingest.jobs(shape, "HTTP")))
            begin = cpu(side)
            took[side].append(crews[side].go(shape.clients))
            return cpu(side) - begin

        name = f"ingest, {shape.clients} x {shape.batch}"
        requests = shape.messages // shape.batch
        print_turns(f"CPU, {name}", in_turns(turn, SIDES, runs), requests)
        # The first turn of each side only warms up.
        print_turns(f"time, {name}", {side: times[1:] for side, times in took.items()}, requests)
        ingest.empty_month(connection)


def _measure_reads(
    servers: dict[Side, Server],
    crew: Crew,
    connection: psycopg.Connection,
    project_id: int,
    token: str,
    runs: int,
    reads: int,
) -> None:
    report = Report(circumstances={"at": datetime.now(UTC).isoformat()})
    stored = data.fill(report, crew, connection, project_id, STORED, 4)
    head = {"Authorization": f"Bearer {token}"}
    cookie = {"Cookie": data.session_cookie()}
    pages = {
        "one message": (f"/api/v1/messages/{stored.message_ids[0]}/", head),
        "page of 50 messages": ("/api/v1/messages/?limit=50", head),
        "list of 50 sessions": ("/api/v1/sessions/?limit=50", head),
        "admin: 50 sessions": ("/admin/messages_app/session/", cookie),
    }
    for name, (path, headers) in pages.items():
        request = http_client.get(path, headers)
        connections = {side: server.connect() for side, server in servers.items()}

        def turn(
            side: Side, request: bytes = request, connections: dict[Side, http_client.Connection] = connections
        ) -> float:
            begin = time.perf_counter()
            for _read in range(reads):
                connections[side].send(request)
            return time.perf_counter() - begin

        print_turns(name, in_turns(turn, SIDES, runs), reads)


def _measure_chaining(connection: psycopg.Connection) -> None:
    from access_app.audit.chain import append_recorded

    count = 10_000
    connection.execute(
        "INSERT INTO access_app_auditentry (time, actor_kind, actor_name, actor_id, action, object_type, object_id, object_name,"
        " address, request_id, result, detail) SELECT now(), 'key', 'agent', '1', 'create', 'ingest', '', '', '127.0.0.1', '',"
        """ 'allowed', '{"route": "ingest", "status": 200}' FROM generate_series(1, %s)""",
        [count],
    )
    begin = time.perf_counter()
    chained = append_recorded().chained
    print(f"chaining: {chained / (time.perf_counter() - begin):,.0f} entries a second")


if __name__ == "__main__":
    main()
