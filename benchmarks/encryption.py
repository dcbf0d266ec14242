"""Measure what encryption at rest costs: python -m benchmarks.encryption

One server that has a master key, and two projects in one database, one of them encrypted, which take the same batches and answer the
same reads in turns. CPU is that of the server and PostgreSQL, which says more than time where others are at work. With --without-key the server has no master key, and both projects are plain: what is then different is noise.
"""

from __future__ import annotations

import argparse
import os
from base64 import b64encode
from datetime import UTC, datetime
from typing import Literal

import psycopg

from . import data, http_client, ingest, processes, workload
from .clients import Crew, Target
from .report import Report
from .server import database, postmaster, serving
from .turns import in_turns, print_turns

Side = Literal["plain", "encrypted"]
SIDES: tuple[Side, Side] = ("plain", "encrypted")
SHAPES = [shape for shape in ingest.SHAPES if shape.name in ("1x1", "4x20")]
STORED = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encryption", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="Turns of each side (default: %(default)s).")
    parser.add_argument("--reads", type=int, default=30, help="Requests of a turn of reading (default: %(default)s).")
    parser.add_argument("--without-key", action="store_true", help="The server has no master key.")
    options = parser.parse_args()
    if not options.without_key:
        os.environ["TRACESITE_MASTER_KEY"] = b64encode(os.urandom(32)).decode()
    with database() as url, psycopg.connect(url, autocommit=True) as connection:
        projects: dict[Side, tuple[int, str]] = {"plain": data.prepare(), "encrypted": _second_project()}
        if not options.without_key:
            _encrypt(projects["encrypted"][0])
        with serving(1) as server:
            targets = {
                side: Target(port=server.port, token=token, database_url=url, project_id=project_id)
                for side, (project_id, token) in projects.items()
            }
            with Crew(4, targets["plain"]) as plain, Crew(4, targets["encrypted"]) as encrypted:
                crews: dict[Side, Crew] = {"plain": plain, "encrypted": encrypted}
                report = Report(circumstances={"at": datetime.now(UTC).isoformat()})
                requests: dict[Side, dict[str, bytes]] = {}
                for side, (project_id, token) in projects.items():
                    stored = data.fill(report, crews[side], connection, project_id, STORED, 4)
                    requests[side] = {
                        "one message": _get(f"/api/v1/messages/{stored.message_ids[0]}/", token),
                        "nested page of 50": _get("/api/v1/messages/?limit=50", token),
                        "list of 50 sessions": _get("/api/v1/sessions/?limit=50", token),
                    }
                (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
                print(f"database: {size / 2**20:.0f} MB", flush=True)
                link = server.connect()
                database_pid = postmaster(connection)
                assert database_pid is not None, "it runs on this machine"

                def cpu() -> float:
                    pids = [*processes.family(server.pid), *processes.family(database_pid)]
                    return processes.cpu_seconds(pids, with_ended=True)

                for name in requests["plain"]:

                    def read(side: Side, name: str = name) -> float:
                        begin = cpu()
                        for _read in range(options.reads):
                            link.send(requests[side][name])
                        return cpu() - begin

                    print_turns(f"CPU, {name}", in_turns(read, SIDES, options.runs), options.reads)
                for shape in SHAPES:

                    def write(side: Side, shape: ingest.Shape = shape) -> float:
                        crews[side].prepare(list(ingest.jobs(shape, "HTTP")))
                        begin = cpu()
                        crews[side].go(shape.clients)
                        return cpu() - begin

                    seconds = in_turns(write, SIDES, options.runs)
                    print_turns(f"CPU, ingest, {shape.clients} x {shape.batch}", seconds, shape.messages // shape.batch)
                    ingest.empty_month(connection)
        print(f"load {os.getloadavg()[0]:.1f}")


def _second_project() -> tuple[int, str]:
    from access_app.keys import create_key
    from access_app.models import Project, Scope
    from traces_app.models import Tool

    project = Project.objects.create(slug="second")
    Tool.objects.bulk_create([Tool(project=project, name=name) for name in workload.TOOLS])
    return project.pk, create_key(project, name="benchmark", scopes=list(Scope))[1]


def _encrypt(project_id: int) -> None:
    from access_app.encryption.keys import add_key
    from access_app.models import Project

    add_key(Project.objects.get(pk=project_id))


def _get(path: str, token: str) -> bytes:
    return http_client.get(path, {"Authorization": f"Bearer {token}"})


if __name__ == "__main__":
    main()
