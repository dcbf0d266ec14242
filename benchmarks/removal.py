"""Purge of a whole expired month, and of single messages relative to plain DELETEs of the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID
from zlib import crc32

from .report import Line, Report, at_most

GONE = (2024, 1)
SHARED = (2024, 3)
"""Month with a message of another project, so that it cannot be dropped whole."""
SESSIONS = 100
RUNS = 3
"""Maximum number of runs, because making the data takes a hundred times as long as purging it."""
BATCH = 500


def measure(report: Report, runs: int, small: int, large: int, rows: int) -> None:
    from access_app.db import primary
    from access_app.models import Project
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods, forget

    project, other = (Project.objects.create(slug=slug) for slug in ("purged", "kept"))
    seconds: dict[int, list[float]] = {small: [], large: []}
    for run in range(runs):
        for size, of_size in seconds.items():
            forget()
            ensure_periods(primary, [Period.month(*GONE)])
            fill(project.pk, Period.month(*GONE), size, SESSIONS, f"month-{run}-{size}")
            of_size.append(_seconds(_purge_month))
    report.add(
        Line(
            name=f"purge a month of {large:,} beside {small:,}",
            unit="ms",
            runs=[took * 1000 for took in seconds[large]],
            floors={f"{small:,}": [took * 1000 for took in seconds[small]]},
            bar=at_most(1.5),
        )
    )
    ensure_periods(primary, [Period.month(*SHARED)])
    fill(other.pk, Period.month(*SHARED), 1, 1, "kept")
    by_rows: list[float] = []
    by_delete: list[float] = []
    for run in range(runs):
        for name, remove, times in (("purge", _purge_rows, by_rows), ("DELETE", _delete_rows, by_delete)):
            fill(project.pk, Period.month(*SHARED), rows, SESSIONS, f"rows-{run}-{name}")
            times.append(rows / _seconds(partial(remove, project.pk)))
    report.add(
        Line(name=f"purge {rows:,} by rows", unit="msg/s", runs=by_rows, floors={"DELETE": by_delete}, better="more")
    )


def _purge_month() -> None:
    from access_app.db import primary
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import PurgeScope

    report = purge(primary, PurgeScope(created_before=datetime(2024, 2, 1, tzinfo=UTC)))
    assert (report.periods, report.tables["sessions"].rows) == (["2024-01"], SESSIONS), report


def _purge_rows(project_id: int) -> None:
    from access_app.db import primary
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import PurgeScope

    report = purge(primary, PurgeScope(created_before=datetime(2024, 4, 1, tzinfo=UTC), project_ids=(project_id,)))
    assert (report.periods, report.tables["sessions"].rows) == ([], SESSIONS), report


def _delete_rows(project_id: int) -> None:
    """Delete the same rows, children first, BATCH messages in a transaction, without tombstones and counters."""
    from django.db import connection, transaction

    from tracesite_sdk.records.ids import first_id_at

    before = datetime(2024, 4, 1, tzinfo=UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM messages_app_message WHERE project_id = %s AND id < %s ORDER BY id",
            [project_id, first_id_at(before)],
        )
        ids = [row[0] for row in cursor.fetchall()]
        for first in range(0, len(ids), BATCH):
            batch = ids[first : first + BATCH]
            values: dict[str, Any] = {
                "ids": batch,
                "first": _with_tail(batch[0], 0),
                "last": _with_tail(batch[-1], 2**64 - 1),
            }
            with transaction.atomic():
                cursor.execute("DELETE FROM messages_app_messagekey WHERE message_id = ANY(%(ids)s)", values)
                cursor.execute(
                    "DELETE FROM traces_app_toolresult WHERE id BETWEEN %(first)s AND %(last)s AND id IN "
                    "(SELECT id FROM traces_app_toolcall WHERE message_id = ANY(%(ids)s) AND id BETWEEN %(first)s AND %(last)s)",
                    values,
                )
                for table in ("traces_app_toolcall", "traces_app_agentstep", "messages_app_reference"):
                    cursor.execute(
                        f"DELETE FROM {table} WHERE message_id = ANY(%(ids)s) AND id BETWEEN %(first)s AND %(last)s",
                        values,
                    )
                cursor.execute(
                    "DELETE FROM messages_app_message WHERE id = ANY(%(ids)s) AND id BETWEEN %(first)s AND %(last)s",
                    values,
                )
        cursor.execute(
            "DELETE FROM messages_app_session AS session WHERE project_id = %s AND id < %s "
            "AND NOT EXISTS (SELECT 1 FROM messages_app_message WHERE session_id = session.id)",
            [project_id, first_id_at(before)],
        )


def _with_tail(message_id: UUID, tail: int) -> UUID:
    return UUID(int=message_id.int >> 64 << 64 | tail)


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def fill(project_id: int, month: Any, messages: int, sessions: int, name: str) -> None:
    """Insert the messages of a month, each with 2 steps, 4 calls and 4 results, 3.4 KB with all indexes."""
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
            INSERT INTO messages_app_messagekey (key, project_id, message_id)
            SELECT md5(%(name)s || '/' || n)::uuid, %(project)s, pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2)
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
            INSERT INTO traces_app_agentstep (id, project_id, message_id, iteration, ordinal, thought, reasoning, agent_name, model,
                metadata, input_ref)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 16 + step), %(project)s, pg_temp.id_at(%(ms)s + n, n + %(salt)s, 2), step, step,
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
            INSERT INTO traces_app_toolresult (id, project_id, output, error, metadata, attachments)
            SELECT pg_temp.id_at(%(ms)s + n, n + %(salt)s, 32 + call), %(project)s, repeat('output ', 30), '', '{}', '[]'
            FROM generate_series(0, %(messages)s - 1) AS n, generate_series(0, 3) AS call
            """,
            values,
        )
