"""Measure the purge of a month with 10,000 and 100,000 messages: python -m benchmarks.purge_month

Each message has 2 steps, 4 calls and 4 results (3.4 KB with all indexes), made by SQL, beside a year of smaller months.
The runs of both sizes alternate. Measured are the command as an operator runs it, and `purge()` alone. The messages belong
to 100 sessions; with --messages-a-session the number of sessions grows with them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from .scratch import scratch_database

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10_000, 100_000)
MONTHS_BESIDE = [(2025, month) for month in range(1, 13)]
GONE = (2024, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--messages-a-session", type=int)
    options = parser.parse_args()
    with scratch_database():
        measure(options.runs, options.messages_a_session)


def measure(runs: int, messages_a_session: int | None) -> None:
    from access_app.models import Project
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods, forget

    project = Project.objects.create(slug="benchmark")
    ensure_periods(Period.month(*month) for month in MONTHS_BESIDE)
    for number, month in enumerate(MONTHS_BESIDE):
        fill(project.pk, Period.month(*month), 1_000, 100, f"stays-{number}")
    seconds: dict[tuple[str, int], list[float]] = {}
    for run in range(runs + 1):
        for size in SIZES:
            for name, way in (("command", command), ("purge()", inside)):
                forget()
                ensure_periods([Period.month(*GONE)])
                fill(
                    project.pk, Period.month(*GONE), size, sessions_of(size, messages_a_session), f"{name}-{run}-{size}"
                )
                begin = time.perf_counter()
                way(sessions_of(size, messages_a_session))
                if run:  # the first one warms up
                    seconds.setdefault((name, size), []).append(time.perf_counter() - begin)
    print(f"{'':8} {'messages':>9} {'sessions':>9} {'median':>9}   all runs (ms)")
    for (name, size), took in sorted(seconds.items()):
        every = ", ".join(f"{second * 1000:.0f}" for second in sorted(took))
        median = statistics.median(took) * 1000
        print(f"{name:8} {size:>9,} {sessions_of(size, messages_a_session):>9,} {median:>6.0f} ms   {every}")
    for name in ("command", "purge()"):
        small, large = (statistics.median(seconds[name, size]) for size in SIZES)
        print(f"{name} takes {large / small:.2f} times as long at {SIZES[1]:,} as at {SIZES[0]:,}")


def sessions_of(messages: int, messages_a_session: int | None) -> int:
    return messages // messages_a_session if messages_a_session else 100


def command(sessions: int) -> None:
    from django.db import connection

    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    arguments = ["--older-than", "2024-02-01", "--yes", "--json"]
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "purge", *arguments],
        env={**os.environ, "DATABASE_URL": url},
        check=True,
        capture_output=True,
    )
    report = json.loads(done.stdout)
    assert (report["months"], report["tables"]["sessions"]["rows"]) == (["2024-01"], sessions), report


def inside(sessions: int) -> None:
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import Scope

    report = purge(Scope(created_before=datetime(2024, 2, 1, tzinfo=UTC)))
    assert (report.periods, report.tables["sessions"].rows) == (["2024-01"], sessions), report


def fill(project_id: int, month: Any, messages: int, sessions: int, name: str) -> None:
    """Insert the messages of a month with their steps, calls, results, keys and sessions."""
    from django.db import connection

    start = month.begins_at + timedelta(days=1)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE OR REPLACE FUNCTION pg_temp.id_at(milliseconds bigint, place bigint, kind int) RETURNS uuid LANGUAGE sql AS
            $$ SELECT (lpad(to_hex(milliseconds), 12, '0') || '7000' || to_hex(8 + kind / 4096)
                       || lpad(to_hex(kind), 3, '0') || lpad(to_hex(place), 12, '0'))::uuid $$
            """
        )
        first_ms = int(start.timestamp() * 1000)
        values = {"project": project_id, "ms": first_ms, "messages": messages, "sessions": sessions, "name": name}
        values |= {"start": start, "salt": crc32(name.encode())}
        cursor.execute(
            """
            INSERT INTO messages_app_session (id, project_id, external_id, title, description, end_user, said_status,
                current_phase, tags, metadata, redactions, message_count, call_count, failure_count, input_tokens,
                output_tokens, duration_ms, created_at, updated_at, deleted_by)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 1), %(project)s, %(name)s || '-' || n, 'Title', '', 'user', 'completed',
                '', ARRAY['tag'], '{}', '[]', 0, 0, 0, 0, 0, 0, %(start)s + n * interval '1 ms', %(start)s, ''
            FROM generate_series(0, %(sessions)s - 1) AS n
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO messages_app_message (id, project_id, session_id, role, external_id, request_id, content,
                is_completed, error, health, redactions, metadata, step_count, call_count, failure_count, input_tokens,
                output_tokens, version, created_at, updated_at, deleted_by)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2), %(project)s,
                pg_temp.id_at(%(ms)s + n %% %(sessions)s, n %% %(sessions)s + %(salt)s, 1), 'assistant', 'm' || n, 'r' || n,
                repeat('content ', 20), true, '', '{}', '[]', '{}', 2, 4, 0, 100, 10, 1,
                %(start)s + n * interval '1 ms', %(start)s, ''
            FROM generate_series(0, %(messages)s - 1) AS n
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO messages_app_messagekey (key, message_id)
            SELECT md5(%(name)s || '/' || n)::uuid, pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2)
            FROM generate_series(0, %(messages)s - 1) AS n
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO traces_app_tool (project_id, name, description, category) VALUES (%(project)s, 'search', '', '')
            ON CONFLICT DO NOTHING
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO traces_app_agentstep (id, message_id, iteration, ordinal, thought, reasoning, agent_name, model, metadata,
                input_ref)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 16 + step), pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2), step, step,
                'thought', '', '', '', '{}', ''
            FROM generate_series(0, %(messages)s - 1) AS n, generate_series(0, 1) AS step
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO traces_app_toolcall (id, project_id, message_id, step_id, tool_id, call_id, position, args,
                reflection, status, metadata)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 32 + call), %(project)s,
                pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2), pg_temp.id_at(%(ms)s + n, n + %(salt)s, 16 + call / 2),
                (SELECT min(id) FROM traces_app_tool), 'call_' || n, call %% 2, '{"query": "weather"}', '', 'success', '{}'
            FROM generate_series(0, %(messages)s - 1) AS n, generate_series(0, 3) AS call
            """,
            values,
        )
        cursor.execute(
            """
            INSERT INTO traces_app_toolresult (id, output, error, metadata, attachments)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 32 + call), repeat('output ', 30), '', '{}', '[]'
            FROM generate_series(0, %(messages)s - 1) AS n, generate_series(0, 3) AS call
            """,
            values,
        )


if __name__ == "__main__":
    main()
