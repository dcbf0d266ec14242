"""Store contexts: those of events and of the inputs of steps.

A context belongs to its run (message); its id is derived from the run and its reference, so that storing needs no lookup.
The entries of conversations and inputs belong to their session and period instead: a conversation that grows from run to
run takes the space of its longest state, and a period can still be dropped whole. They are inserted last, while the row of
their session is locked, so that a purge, which removes the entries that nothing refers to any more (`remove_unused`) under
the same lock, and a sender that refers to one of them again, wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from access_app.db import Database
from access_app.db.statements import prepared_cursor
from messages_app.sql.periods import Length, Period
from traces_app import models
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.records.shared_values import Context

from . import tables
from .partitions import period_in_one_partition
from .sql import insert_rows


def rows_of(
    db: Database, project_id: int, session_id: UUID, message_id: UUID, context: Context, first_used_at: datetime
) -> Iterable[tables.Row]:
    """Return the rows of a context of a run: its entries, then itself."""
    period = period_in_one_partition(db, ids.created_at_of(message_id))
    first_of_period = ids.first_id_at(period.begins_at).int
    entries = None
    if context.entries is not None:
        entries = [ids.child_hex(first_of_period, session_id.int, entry.ref) for entry in context.entries]
        for entry, row_id in zip(context.entries, entries, strict=True):
            yield _row(row_id, project_id, session_id, None, entry, None, first_used_at)
    own_id = models.Context.id_of(message_id, context.ref).hex
    yield _row(own_id, project_id, session_id, message_id, context, entries, first_used_at)


def add(db: Database, rows: Iterable[tables.Row]) -> None:
    """Insert the rows that do not exist yet, in a transaction that has locked their sessions."""
    wanted = {row.id: row for row in rows}
    if not wanted:
        return
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(
            "SELECT id FROM traces_app_context WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s",
            [list(wanted), min(wanted), max(wanted)],
        )
        for (known,) in cursor.fetchall():
            del wanted[known.hex]
    insert_rows(db, [(tables.CONTEXTS, list(wanted.values()))])


def remove_unused(db: Database, session_ids: Collection[UUID], first: UUID, last: UUID) -> tuple[int, int]:
    """Remove the entries of sessions that no context refers to any more, in the months between two ids of messages.

    Return their number and size. The sessions must be locked.
    """
    # Of the months, because the entries may be in any period at their beginning.
    begin, end = (Period.of(ids.created_at_of(context_id), Length.MONTH) for context_id in (first, last))
    with prepared_cursor(db.connection) as cursor:
        cursor.execute(_REMOVE_UNUSED, [list(session_ids), begin.first_id, end.after_id] * 2)
        ((rows, size),) = cursor.fetchall()
        return rows, size


# A join, because the planner gives up hashing a NOT IN that does not fit into work_mem.
_REMOVE_UNUSED = """
    WITH used AS MATERIALIZED (
        SELECT DISTINCT unnest(entries) AS id FROM traces_app_context
        WHERE session_id = ANY(%s) AND id >= %s AND id < %s AND kind <> 'entry'
    ), gone AS (
        DELETE FROM traces_app_context AS entry
        WHERE session_id = ANY(%s) AND id >= %s AND id < %s AND kind = 'entry' AND message_id IS NULL
        AND NOT EXISTS (SELECT 1 FROM used WHERE used.id = entry.id)
        RETURNING 24 + pg_column_size(content) AS size
    )
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone
    """


def _row(
    row_id: str,
    project_id: int,
    session_id: UUID,
    message_id: UUID | None,
    context: Context,
    entries: list[str] | None,
    first_used_at: datetime,
) -> tables.Row:
    return tables.CONTEXTS.Row(
        id=row_id,
        project_id=str(project_id),
        session_id=session_id.hex,
        message_id=message_id and message_id.hex,
        ref=context.ref,
        kind=context.kind,
        length=str(context.length),
        size=str(context.size),
        content=context.content,
        entries=None if entries is None else pg_text.array(entries),
        created_at=first_used_at.isoformat(),
    )
