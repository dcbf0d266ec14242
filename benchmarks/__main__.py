"""Measure Tracesite relative to its floor: python -m benchmarks [--help]

Needs two cores to itself and about five minutes. Prints each line as soon as it is measured, and the table at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from . import data, events, imports, ingest, reads, removal, sizes
from .clients import Crew, Target
from .floor_reads import Floor
from .report import Report
from .server import database, serving

PARTS = ("sizes", "reads", "admin", "ingest", "spans", "events", "memory", "imports", "purge")
SHAPES = {shape.name: shape for shape in ingest.SHAPES}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000, help="Stored and read (default: %(default)s).")
    parser.add_argument("--runs", type=int, default=5, help="Of which the median counts (default: %(default)s).")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="Of the server (default: one a core).")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="Measure only these.")
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="Of ingest: clients x messages a request."
    )
    parser.add_argument("--scale", type=float, default=1, help="Of the sizes of ingest, memory and purge (default: 1).")
    parser.add_argument("--seconds", type=float, default=0.3, help="Of a turn of reading (default: %(default)s).")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write all figures there.")
    options = parser.parse_args()
    with database() as url, psycopg.connect(url, autocommit=True) as connection:
        report = Report(circumstances=_circumstances(connection, options.workers))
        print("\n".join(f"{name}: {value}" for name, value in report.circumstances.items()), "\n", flush=True)
        measure(report, options, url, connection)
    print(f"\n{report.table()}")
    if options.json:
        options.json.write_bytes(report.as_json())


def measure(report: Report, options: argparse.Namespace, url: str, connection: psycopg.Connection) -> None:
    parts = set(options.parts)
    project_id, token = data.prepare()
    head = {"Authorization": f"Bearer {token}"}
    scale: float = options.scale
    shapes = [SHAPES[name].scaled(scale) for name in options.shapes]
    clients = max(
        shape.clients for shape in (*shapes, *(events.SHAPES if "events" in parts else ()), *ingest.SPAN_SHAPES)
    )
    with serving(options.workers) as server:
        target = Target(port=server.port, token=token, database_url=url, project_id=project_id)
        with Crew(clients, target) as crew:
            if parts & {"sizes", "reads", "admin"}:
                data_set = data.fill(report, crew, connection, project_id, options.messages, clients)
                floor = Floor(url)
                if "sizes" in parts:
                    sent = data.bytes_sent(data_set.workload, options.messages)
                    months = data.months_of(data_set.workload, options.messages)
                    sizes.measure(report, connection, months, options.messages, sent)
                if "reads" in parts:
                    reads.measure(report, server, floor, data_set, head, options.runs, options.seconds)
                if "admin" in parts:
                    reads.measure_admin(
                        report, server, floor, data_set, data.session_cookie(), options.runs, options.seconds
                    )
                floor.close()
            if "ingest" in parts:
                ingest.measure(report, crew, server, shapes, options.runs, connection)
            if "spans" in parts:
                scaled = [shape.scaled(scale) for shape in ingest.SPAN_SHAPES]
                ingest.measure_spans(report, crew, server, scaled, options.runs, connection)
            if "events" in parts:
                events.measure(report, crew, server, scale, options.runs, connection)
    if "memory" in parts:
        with serving(1) as server:
            target = Target(port=server.port, token=token, database_url=url, project_id=project_id)
            ingest.measure_large_batches(report, server, target, int(50_000_000 * min(1, scale)))
        ingest.empty_month(connection)
    if "imports" in parts:
        imports.measure(report, min(options.runs, 3), int(3_000_000 * min(1, scale)))
    if "purge" in parts:
        small, large, rows = (int(size * scale) for size in (10_000, 100_000, 10_000))
        removal.measure(report, min(options.runs, removal.RUNS), small, large, rows)


def _circumstances(connection: psycopg.Connection, workers: int) -> dict[str, str]:
    """Return the conditions that the figures depend on."""
    names = ("server_version", "synchronous_commit", "fsync", "shared_buffers", "max_wal_size")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f} at the start",
        "Python": platform.python_version(),
        "server": f"{workers} workers",
        "PostgreSQL": ", ".join(
            f"{name} {value}"
            for name in names
            for (value,) in [connection.execute(f"SHOW {name}").fetchone() or ("?",)]
        ),
    }


if __name__ == "__main__":
    main()
