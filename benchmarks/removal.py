"""Purge of a whole expired month, and of single messages relative to plain DELETEs of the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from .purge_month import fill, inside
from .report import Line, Report, at_most

GONE = (2024, 1)
SHARED = (2024, 3)
"""Month with a message of another project, so that it cannot be dropped whole."""
SESSIONS = 100
RUNS = 3
"""Maximum number of runs, because making the data takes a hundred times as long as purging it."""
BATCH = 500


def measure(report: Report, runs: int, small: int, large: int, rows: int) -> None:
    from access_app.models import Project
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods, forget

    project, other = (Project.objects.create(slug=slug) for slug in ("purged", "kept"))
    seconds: dict[int, list[float]] = {small: [], large: []}
    for run in range(runs):
        for size, of_size in seconds.items():
            forget()
            ensure_periods([Period.month(*GONE)])
            fill(project.pk, Period.month(*GONE), size, SESSIONS, f"month-{run}-{size}")
            of_size.append(_seconds(lambda: inside(SESSIONS)))
    report.add(
        Line(
            name=f"purge a month of {large:,} beside {small:,}",
            unit="ms",
            runs=[took * 1000 for took in seconds[large]],
            floors={f"{small:,}": [took * 1000 for took in seconds[small]]},
            bar=at_most(1.5),
        )
    )
    ensure_periods([Period.month(*SHARED)])
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


def _purge_rows(project_id: int) -> None:
    from traces_app.maintenance.purge.purging import purge
    from traces_app.maintenance.purge.scopes import Scope

    report = purge(Scope(created_before=datetime(2024, 4, 1, tzinfo=UTC), project_ids=(project_id,)))
    assert (report.periods, report.tables["sessions"].rows) == ([], SESSIONS), report


def _delete_rows(project_id: int) -> None:
    delete_messages(project_id, datetime(2024, 4, 1, tzinfo=UTC))


def delete_messages(project_id: int, before: datetime) -> int:
    """Delete the messages of a project from before a time, children first, 500 in a transaction, and its sessions without
    messages: no tombstones, and the counters of sessions that stay are not corrected. Return the number of messages."""
    from django.db import connection, transaction

    from messages_app.ids import first_id_at

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
    return len(ids)


def _with_tail(message_id: UUID, tail: int) -> UUID:
    return UUID(int=message_id.int >> 64 << 64 | tail)


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
