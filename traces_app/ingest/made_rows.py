"""The rows of a message as its record has them, whatever is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from access_app.db import Database
from messages_app.interruptions import reason_of
from messages_app.writes import Counts, Run
from tracesite_sdk.normalize.rollup import Rollup
from tracesite_sdk.records import pg_text
from tracesite_sdk.records.health_flags import INTERRUPTED

from . import context_rows
from .batch import Context, PendingMessage
from .rows import Rows, StoredBelow, message_row, rows_below
from .sessions import active_at
from .tables import CONTEXTS, Row


@dataclass(frozen=True, kw_only=True)
class MadeRows:
    """Everything that is to be stored of a message. Only the inputs are encrypted where the project is."""

    line: Row
    """The row of the message."""
    below: Rows
    inputs: Mapping[str, Row]
    """The rows of what the models were asked, by id."""
    counts: Counts
    """What it adds to the counters of its session."""


def made_rows(db: Database, context: Context, message: PendingMessage) -> MadeRows:
    """Return the rows of a message that has an id and a session."""
    assert message.id is not None and message.session.id is not None
    record = message.record
    below = rows_below(
        message.id,
        context.project_id,
        record.knowledge_references or (),
        record.agent_steps or (),
        context.tool_ids,
        StoredBelow(),
        prices=context.prices,
    )
    line, totals = message_row(
        message.id, context.project_id, message.session.id, record, below, message.receipts, context.now
    )
    return MadeRows(
        line=line,
        below=below,
        inputs=rows_of_inputs(db, context, message.session.id, message.id, below),
        counts=_counts(context, message, totals),
    )


def rows_of_inputs(db: Database, context: Context, session_id: UUID, message_id: UUID, below: Rows) -> dict[str, Row]:
    """Return the rows of what the models were asked that the batch does not have yet, each once."""
    rows: dict[str, Row] = {}
    for asked in below.inputs:
        new = [
            row
            for row in context_rows.rows_of(db, context.project_id, session_id, message_id, asked, context.now)
            if row.id not in context.inputs and row.id not in rows
        ]
        rows.update((row.id, row) for row in CONTEXTS.encrypted(new, context.data_key))
    return rows


def _counts(context: Context, message: PendingMessage, totals: Rollup) -> Counts:
    record = message.record
    assert message.id is not None
    has_error = pg_text.text(record.error) != ""
    is_closed = record.is_completed and INTERRUPTED in (record.health or ())
    interruption = reason_of(record.metadata or {}) if is_closed else ""
    return Counts.of_totals(
        totals,
        is_completed=bool(record.is_completed),
        has_error=has_error,
        last_run=Run(message.id, has_error, interruption) if record.role == "assistant" else None,
        active_at=None if context.source == "events" else active_at(record, context.now),
    )
