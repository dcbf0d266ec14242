"""The SQL of a write: one function a statement, each for any number of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from django.db import connection

from messages_app.models import Message
from messages_app.writes import COUNTERS, Counts

from . import records, rows
from .rows import Stored, Table


def ensure_tools(project_id: int | None, steps: Iterable[records.AgentStep]) -> dict[str, int]:
    """The ids of all tools that the steps name; those that are missing are made, in a statement of their own.

    Outside the transaction of the batch: two batches that first use the same tool must not wait for each other.
    """
    names = sorted({rows.text(call.name) for step in steps for call in step.tool_calls or ()})
    if not names or project_id is None:
        return {}
    with connection.cursor() as cursor:
        found = "SELECT name, id FROM traces_app_tool WHERE project_id = %s AND name = ANY(%s)"
        cursor.execute(found, [project_id, names])
        tool_ids: dict[str, int] = dict(cursor.fetchall())
        missing = [name for name in names if name not in tool_ids]
        if missing:
            cursor.execute(
                "INSERT INTO traces_app_tool (project_id, name, description, category) "
                "SELECT %s, name, '', '' FROM unnest(%s::text[]) AS name ON CONFLICT DO NOTHING",
                [project_id, missing],
            )
            cursor.execute(found, [project_id, missing])
            tool_ids.update(cursor.fetchall())
    return tool_ids


def claim_keys(claims: Mapping[UUID, UUID]) -> dict[UUID, UUID]:
    """Claims identities (MessageKey: key to message id); returns the message ids of those that were claimed before."""
    if not claims:
        return {}
    keys = sorted(claims)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messages_app_messagekey (key, message_id) SELECT * FROM unnest(%s::uuid[], %s::uuid[]) "
            "ON CONFLICT DO NOTHING RETURNING key",
            [keys, [claims[key] for key in keys]],
        )
        fresh = {row[0] for row in cursor.fetchall()}
        if len(fresh) == len(keys):
            return {}
        # An insert of another sender that ours met has committed by now, and is seen.
        cursor.execute(
            "SELECT key, message_id FROM messages_app_messagekey WHERE key = ANY(%s)",
            [[key for key in keys if key not in fresh]],
        )
        return dict(cursor.fetchall())


def lock_messages(message_ids: Collection[UUID]) -> dict[UUID, Message]:
    rows_ = Message.with_deleted.select_for_update(of=("self",)).filter(pk__in=message_ids).order_by("pk")
    return {row.pk: row for row in rows_}


def stored_below(message_ids: list[UUID]) -> dict[UUID, Stored]:
    """Which steps and calls are there below each message."""
    stored = {message_id: Stored() for message_id in message_ids}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT message_id, id, iteration FROM traces_app_agentstep WHERE message_id = ANY(%s)", [message_ids]
        )
        for message_id, step_id, iteration in cursor.fetchall():
            below = stored[message_id]
            below.step_ids.add(step_id)
            below.next_iteration = max(below.next_iteration, iteration + 1)
        cursor.execute(
            "SELECT message_id, id, call_id, status FROM traces_app_toolcall WHERE message_id = ANY(%s)", [message_ids]
        )
        for message_id, row_id, call_id, status in cursor.fetchall():
            stored[message_id].call_ids[row_id] = call_id
            if status == "pending":
                stored[message_id].open_calls.add(row_id)
    return stored


def copy_rows(table: str, columns: str, lines: list[rows.Row]) -> None:
    if not lines:
        return
    lines.sort(key=_id)
    # Django does not know copy(): without the wrapper its errors would be psycopg's own.
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy,
    ):
        for line in lines:
            copy.write_row(line)


def upsert_rows(table: Table, lines: list[rows.Row]) -> bool:
    """Adds rows or fills in those that are there; whether any changed."""
    if not lines:
        return False
    with connection.cursor() as cursor:
        cursor.execute(table.upsert(), [list(column) for column in zip(*sorted(lines, key=_id), strict=True)])
        return bool(cursor.fetchall())


def add_to_sessions(counts: Mapping[UUID, Counts]) -> None:
    """Adds to the counters of sessions whose rows are locked, or are locked here one after the other."""
    added = {session_id: count for session_id, count in sorted(counts.items()) if count}
    if not added:
        return
    values = [[getattr(count, name) for count in added.values()] for name in COUNTERS]
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE messages_app_session AS session SET updated_at = now(), "  # noqa: S608 - built of COUNTERS
            f"{', '.join(f'{name} = session.{name} + added.{name}' for name in COUNTERS)} "
            f"FROM unnest(%s::uuid[], {', '.join('%s::bigint[]' for _name in COUNTERS)}) "
            f"AS added (id, {', '.join(COUNTERS)}) WHERE session.id = added.id",
            [list(added), *values],
        )


def _id(line: rows.Row) -> int:
    # Compared as numbers: UUIDs compare the same, in Python code.
    return int(line[0].int)
