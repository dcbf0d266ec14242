"""Run the analytics of the archive on PostgreSQL, DuckDB and Spark: python -m benchmarks.analytics --spark-submit PATH

1 million calls of 100 tools in 90 days (see tool_statistics), with usage and errors, are archived; then each engine computes
the shipped queries, and the figures must be the same. Measured are the time and the bytes of the archive, and the time of each
query. Spark runs on this machine alone, and only if `--spark-submit` names its program.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .scratch import scratch_database
from .tool_statistics import CALLS_A_MESSAGE, DAYS, TOOLS, fill, one, say, timed

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DIGITS = 6
"""Digits of fractions that are compared."""

Found = dict[str, Any]
"""A row by the names of its columns."""

_LIVE = """
    JOIN messages_app_message AS m ON m.id = row.message_id JOIN messages_app_session AS s ON s.id = m.session_id
    WHERE m.deleted_at IS NULL AND s.deleted_at IS NULL"""
# {pattern} is the expression by which the admin groups errors.
POSTGRESQL = {
    "tools": f"""
        SELECT tool.name AS tool, (m.created_at AT TIME ZONE 'UTC')::date AS day, count(*) AS calls,
            count(*) FILTER (WHERE row.status = 'error') AS failures,
            percentile_disc(0.5) WITHIN GROUP (ORDER BY row.duration_ms) AS p50_ms,
            percentile_disc(0.95) WITHIN GROUP (ORDER BY row.duration_ms) AS p95_ms,
            percentile_disc(0.99) WITHIN GROUP (ORDER BY row.duration_ms) AS p99_ms
        FROM traces_app_toolcall AS row JOIN traces_app_tool AS tool ON tool.id = row.tool_id {_LIVE} GROUP BY 1, 2""",
    "models": f"""
        SELECT row.model, count(*) AS steps, sum((row.usage ->> 'input_tokens')::bigint) AS input_tokens,
            sum(row.cost) AS cost, count(*) FILTER (WHERE row.cost IS NULL) AS unpriced
        FROM traces_app_agentstep AS row {_LIVE} GROUP BY 1""",
    "errors": f"""
        SELECT failed.error_pattern, count(*) AS calls, count(DISTINCT row.tool_id) AS tools, min(m.created_at) AS first_seen
        FROM traces_app_toolcall AS row JOIN ({{patterns}}) AS failed (id, error_pattern) ON failed.id = row.id {_LIVE} AND row.status = 'error'
        GROUP BY 1""",
}
_ADDED = (
    """
    UPDATE traces_app_agentstep SET usage = jsonb_build_object('input_tokens', ordinal + iteration * 100 + length(model))
    """,
    """
    INSERT INTO traces_app_toolresult (id, output, error, metadata, attachments)
    SELECT id, '', CASE position % 3 WHEN 0 THEN 'HTTP 503 from ' || md5(id::text) WHEN 1 THEN 'timeout after ' || duration_ms
        ELSE 'KeyError: ''customer_' || duration_ms || '''' END, '{}', '[]' FROM traces_app_toolcall WHERE status = 'error'
    """,
    "VACUUM ANALYZE",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--spark-submit", type=Path, metavar="PATH", help="the program of Spark")
    options = parser.parse_args()
    with scratch_database(durable=False), TemporaryDirectory(prefix="tracesite-archive-") as folder:
        measure(options, folder)


def measure(options: argparse.Namespace, folder: str) -> None:
    from traces_app.maintenance.archive.archiving import archive
    from traces_app.maintenance.archive.folder import open_folder

    make_calls(options.calls)
    (size,) = one("SELECT pg_database_size(current_database())")
    took = timed(lambda: archive(open_folder(folder), before=BEGIN + timedelta(days=2 * DAYS)))
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    say(
        f"archived in {took:.0f} s: {sum(path.stat().st_size for path in files) / 2**20:,.0f} MiB in {len(files)} files, "
        f"{size / 2**20:,.0f} MiB in PostgreSQL"
    )
    for name in POSTGRESQL:
        engines: dict[str, Callable[[], list[Found]]] = {
            "PostgreSQL": partial(in_postgresql, name),
            "DuckDB": partial(by_duckdb, name, folder),
        }
        if options.spark_submit:
            engines["Spark"] = partial(by_spark, name, folder, options.spark_submit)
        answers = {engine: timed_rows(read) for engine, read in engines.items()}
        columns = list(answers["PostgreSQL"][1][0])
        compared = {engine: comparable(rows, columns) for engine, (_took, rows) in answers.items()}
        assert all(rows == compared["PostgreSQL"] for rows in compared.values()), name
        times = ", ".join(f"{engine} {took:.1f} s" for engine, (took, _rows) in answers.items())
        say(f"{name}: {len(compared['PostgreSQL']):,} equal rows; {times}")
    say(f"load {os.getloadavg()[0]:.1f}")


def make_calls(calls: int) -> None:
    from django.db import connection

    from access_app.models import Project
    from messages_app import ids
    from messages_app.models import Session
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods
    from traces_app.models import Tool

    project = Project.objects.create(slug="benchmark")
    tools = Tool.objects.bulk_create(Tool(project=project, name=f"tool {at:03}") for at in range(TOOLS))
    times = dict.fromkeys(("created_at", "updated_at", "active_at"), BEGIN)
    session = Session.objects.create(id=ids.session_id(BEGIN), project=project, external_id="all", **times)
    ensure_periods({Period.of(BEGIN + timedelta(days=day)) for day in range(DAYS + 1)})
    fill(project.pk, session.pk, BEGIN, calls // CALLS_A_MESSAGE, tools[0].pk)
    with connection.cursor() as cursor:
        for statement in _ADDED:
            cursor.execute(statement)


def timed_rows(read: Callable[[], list[Found]]) -> tuple[float, list[Found]]:
    began = time.perf_counter()
    rows = read()
    return time.perf_counter() - began, rows


def in_postgresql(name: str) -> list[Found]:
    from django.db import connection

    from messages_app.sql.batch import Query
    from traces_app.models import ToolResult
    from traces_app.queries.error_patterns import pattern_of

    patterns = Query.of(ToolResult.objects.annotate(error_pattern=pattern_of("error")).values("pk", "error_pattern"))
    parameters = patterns.parameters if name == "errors" else None
    with connection.cursor() as cursor:
        cursor.execute(POSTGRESQL[name].replace("{patterns}", patterns.sql), parameters)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def by_duckdb(name: str, folder: str) -> list[Found]:
    from django.core.management import call_command

    out = io.StringIO()
    call_command("query_archive", folder, "--name", name, "--format", "json", stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def by_spark(name: str, folder: str, program: Path) -> list[Found]:
    from traces_app.maintenance.archive import spark

    done = subprocess.run(
        [program, "--master", "local[2]", "--driver-memory", "2g", spark.__file__, folder, name],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def comparable(rows: list[Found], names: Iterable[str]) -> list[list[object]]:
    """Return the values of these columns, sorted: times in UTC, and fractions to DIGITS digits."""
    return sorted(([_comparable(row[name]) for name in names] for row in rows), key=str)


def _comparable(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return round(float(value), DIGITS)
    except (TypeError, ValueError):
        pass
    try:
        # A day is a time at midnight.
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
    except ValueError:
        return value


if __name__ == "__main__":
    main()
