"""Measure retention of 90 days: python -m benchmarks.retention

1 million messages of 2 KB in 90 days, 10 in a session, each with a step, a call and a result, made by SQL. Nights expire in
turn by `purge` (exact), by plain DELETEs of the same rows in the same tables, and by `purge` with exceptions. Then the rest of
the first month expires at once (whole months). `--keep` keeps the database, and a later run goes on with the next nights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from .removal import delete_messages
from .scratch import scratch_database
from .search import cpu_of_both

START = datetime(2026, 7, 1, tzinfo=UTC)
DAYS = 90
MESSAGES_A_SESSION = 10
CHUNK = 50_000
FLOOR = "DELETE"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--nights", type=int, default=3, help="nights of each way")
    parser.add_argument("--without-month", action="store_true", help="do not drop a month at the end")
    parser.add_argument("--keep", action="store_true", help="keep the database")
    options = parser.parse_args()
    with scratch_database(keep=options.keep):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    from access_app.models import Project
    from messages_app.models import Message
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import Kept, Scope

    project, is_new = Project.objects.get_or_create(slug="benchmark")
    if is_new:
        began = time.perf_counter()
        fill(project.pk, options.messages)
        say(f"{options.messages:,} messages made in {time.perf_counter() - began:.0f} s")
    ((size,),) = rows("SELECT pg_database_size(current_database())")
    say(f"{size / 2**20:,.0f} MB in the database, load {os.getloadavg()[0]:.1f}")

    def by_purge(before: datetime, kept: Kept | None = None) -> int:
        report = purge(Scope(created_before=before, project_ids=(project.pk,), kept=kept))
        return report.tables["messages"].rows

    kept = Kept(tags=("golden",), statuses=("error",), pinned=True)
    ways: dict[str, Callable[[datetime], int]] = {
        "exact": by_purge,
        FLOOR: lambda before: delete_messages(project.pk, before),
        "exact, with exceptions": lambda before: by_purge(before, kept),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    first = Message.with_deleted.order_by("pk").values_list("created_at", flat=True)[0]
    night = (first - START).days
    for _run in range(options.nights):
        for name, way in ways.items():
            night += 1
            began, cpu = time.perf_counter(), cpu_of_both()
            removed = way(START + timedelta(days=night))
            took, cpu = time.perf_counter() - began, cpu_of_both() - cpu
            rates[name].append(removed / took)
            costs[name].append(cpu * 1e6 / removed)
            say(
                f"{name:24} {removed:,} in {took:5.2f} s, {removed / took:6,.0f} a second, {costs[name][-1]:4,.0f} us of CPU each"
            )
    for name, found in rates.items() if options.nights else ():
        rate, cost = statistics.median(found), statistics.median(costs[name])
        say(
            f"{name:24} median {rate:6,.0f} a second, {rate / statistics.median(rates[FLOOR]):.2f} of the floor; "
            f"{cost:4,.0f} us of CPU each, {statistics.median(costs[FLOOR]) / cost:.2f} of the floor"
        )
    if not options.without_month:
        end = datetime(first.year, first.month + 1, 1, tzinfo=UTC)
        began = time.perf_counter()
        report = purge(Scope(created_before=end, project_ids=(project.pk,)))
        took, removed = time.perf_counter() - began, report.tables["messages"].rows
        say(
            f"whole month {report.periods}: {removed:,} messages in {took:.2f} s, {report.bytes_freed / 2**20:,.0f} MB freed"
        )
    say(f"load {os.getloadavg()[0]:.1f}")


def fill(project_id: int, messages: int) -> None:
    """Insert the messages with everything below them, and their keys and sessions."""
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods

    apart = timedelta(days=DAYS) / messages
    ensure_periods({Period.of(START + timedelta(days=day)) for day in range(DAYS + 1)})
    first, apart_ms = int(START.timestamp() * 1000), int(apart / timedelta(milliseconds=1))
    execute(
        f"""
        CREATE OR REPLACE FUNCTION pg_temp.id_at(n bigint, kind int) RETURNS uuid LANGUAGE sql IMMUTABLE AS
        $$ SELECT (lpad(to_hex({first} + n * {apart_ms}), 12, '0') || '70008' || lpad(to_hex(kind), 3, '0')
                   || lpad(to_hex(n), 12, '0'))::uuid $$
        """
    )
    execute(
        "CREATE OR REPLACE FUNCTION pg_temp.text_of(n bigint, lines int) RETURNS text LANGUAGE sql AS "
        "$$ SELECT string_agg(md5((n * 100 + line)::text), ' ') FROM generate_series(1, lines) AS line $$"
    )
    execute(
        "INSERT INTO traces_app_tool (project_id, name, description, category) VALUES (%(project)s, 'search', '', '')",
        {"project": project_id},
    )
    for begin in range(0, messages, CHUNK):
        values = {
            "project": project_id,
            "begin": begin,
            "end": min(begin + CHUNK, messages),
            "each": MESSAGES_A_SESSION,
        }
        values |= {"start": START, "apart": apart}
        for statement in _FILL:
            execute(statement, values)
    execute("ANALYZE")


_FILL = (
    """
    INSERT INTO messages_app_session (id, project_id, external_id, title, description, end_user, said_status,
        current_phase, tags, metadata, redactions, message_count, call_count, failure_count, input_tokens,
        output_tokens, duration_ms, created_at, updated_at, deleted_by)
    SELECT pg_temp.id_at(n, 1), %(project)s, 'session-' || n, 'Title', '', 'user', '', '', ARRAY['tag'], '{}', '[]',
        %(each)s, %(each)s, 0, 100 * %(each)s, 10 * %(each)s, 0, %(start)s + n * %(apart)s, %(start)s, ''
    FROM generate_series(%(begin)s::bigint, %(end)s - 1, %(each)s) AS n
    """,
    """
    INSERT INTO messages_app_message (id, project_id, session_id, role, external_id, request_id, content, is_completed,
        error, health, redactions, metadata, step_count, call_count, failure_count, input_tokens, output_tokens, version,
        created_at, updated_at, deleted_by)
    SELECT pg_temp.id_at(n, 2), %(project)s, pg_temp.id_at(n / %(each)s * %(each)s, 1), 'assistant', 'm' || n, 'r' || n,
        pg_temp.text_of(n, 20), true, '', '{}', '[]', '{}', 1, 1, 0, 100, 10, 1, %(start)s + n * %(apart)s, %(start)s, ''
    FROM generate_series(%(begin)s::bigint, %(end)s - 1) AS n
    """,
    """
    INSERT INTO messages_app_messagekey (key, message_id)
    SELECT md5('key/' || n)::uuid, pg_temp.id_at(n, 2) FROM generate_series(%(begin)s::bigint, %(end)s - 1) AS n
    """,
    """
    INSERT INTO traces_app_agentstep (id, message_id, iteration, ordinal, thought, reasoning, agent_name, model, metadata,
        input_ref)
    SELECT pg_temp.id_at(n, 16), pg_temp.id_at(n, 2), 0, 0, pg_temp.text_of(n, 5), '', '', 'm-1', '{}', ''
    FROM generate_series(%(begin)s::bigint, %(end)s - 1) AS n
    """,
    """
    INSERT INTO traces_app_toolcall (id, project_id, message_id, step_id, tool_id, call_id, position, args, reflection,
        status, metadata)
    SELECT pg_temp.id_at(n, 32), %(project)s, pg_temp.id_at(n, 2), pg_temp.id_at(n, 16),
        (SELECT min(id) FROM traces_app_tool), 'call_' || n, 0, '{"query": "weather"}', '', 'success', '{}'
    FROM generate_series(%(begin)s::bigint, %(end)s - 1) AS n
    """,
    """
    INSERT INTO traces_app_toolresult (id, output, error, metadata, attachments)
    SELECT pg_temp.id_at(n, 32), pg_temp.text_of(n, 30), '', '{}', '[]'
    FROM generate_series(%(begin)s::bigint, %(end)s - 1) AS n
    """,
)


def execute(statement: str, values: dict[str, Any] | None = None) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def rows(statement: str) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
