"""Merge a message that is sent again into its row and the rows below it: new values are added, and empty ones change nothing.

`merge` is a step of `store`. A PATCH (changes.py) makes the fields itself and writes with the same functions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from msgspec.structs import replace

from access_app.db import Database
from access_app.errors import Conflict
from messages_app.interruptions import is_continued, is_interrupted, reopen
from messages_app.models import Message
from messages_app.writes import Counts
from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import tokens
from tracesite_sdk.normalize.redacted import receipts_as_json
from tracesite_sdk.normalize.rollup import Rollup, completion, duration_between
from tracesite_sdk.records import pg_text
from tracesite_sdk.records.health_flags import EMPTY_TOOL_NAME, INTERRUPTED, ORPHAN_RESULT

from .batch import Context, PendingMessage
from .made_rows import rows_of_inputs
from .placeholders import replace_answered
from .prices import price_steps
from .rows import Rows, StoredBelow, rows_below
from .sessions import active_at
from .sql import COUNTED, count_below, lock_with_touched, save_counts, stored_below, upsert_rows
from .tables import CALLS, REFERENCES, RESULTS, STEPS


def merge(db: Database, context: Context, messages: Sequence[PendingMessage]) -> None:
    """Merge messages that exist: fill in their fields, and insert or fill in the rows below them."""
    if not messages:
        return
    stored, below = lock_with_touched(
        db, [message.id for message in messages if message.id is not None], context.touched
    )
    unknown = [message_id for message_id in stored if message_id not in below]
    if unknown:
        below |= stored_below(db, unknown)
    for message in messages:
        assert message.id is not None, "_identify gave it"
        row = stored.get(message.id)
        if row is None:
            message.refuse("message_purged")
        elif row.deleted_at is not None:
            message.refuse("message_deleted")
        else:
            _merge_one(db, context, message, row, below[message.id])


def _merge_one(db: Database, context: Context, message: PendingMessage, row: Message, stored: StoredBelow) -> None:
    record = message.record
    if record.role != row.role:
        raise Conflict(
            _("The role of a message cannot change from %(stored)s to %(given)s.")
            % {"stored": row.role, "given": record.role},
            field=f"messages[{message.place}].role",
            code="role_conflict",
        )
    own = rows_below(
        row.pk,
        context.project_id,
        record.knowledge_references or (),
        record.agent_steps or (),
        context.tool_ids,
        stored,
        prices=context.prices,
    )
    if EMPTY_TOOL_NAME in (record.health or ()):
        record = replace(record, health=without_known(record.health or (), context, own, stored))
    if touched := context.touched.get(row.pk):
        own.assign_positions(touched.ordinals, touched.positions)
    before = Counts.of(row)
    message.was_completed = row.is_completed
    resumed: dict[str, Any] = {}
    if INTERRUPTED in (record.health or ()):
        if row.is_completed:
            # It has ended meanwhile, or was closed before.
            message.state = "unchanged"
            return
        record = replace(record, error=row.error or record.error)
    elif is_interrupted(row) and (record.is_completed or is_continued(row, context.latest_event_at.get(row.pk))):
        resumed = reopen(row)
    if row.is_completed and context.source == "live" and has_new(own, stored):
        message.refuse("message_completed")
        return
    # A late, unfinished snapshot of a completed message can only add results. Events are excluded, because each of their
    # batches is the fold of everything that has arrived.
    is_late = row.is_completed and not record.is_completed and context.source != "events"
    changed = {} if is_late or _is_earlier(context, record, row) else _merged_fields(context, record, row)
    changed = {**resumed, **changed}
    if context.source == "import" and not is_late and replace_answered(db, row, record, own, stored):
        flags = sorted({*changed.pop("health", row.health)} - {ORPHAN_RESULT})
        changed |= {"health": flags} if flags != row.health else {}
    receipts = [receipt for receipt in receipts_as_json(message.receipts) if receipt not in row.redactions]
    if receipts:
        changed["redactions"] = row.redactions + receipts
    has_changed, counted = write_merge(db, context, row, changed, own, stored, only_open=is_late)
    if not has_changed:
        message.state = "unchanged"
        return
    message.state = "updated"
    message.session.counts += finish_message(db, context, row, changed, stored, counted, before)
    if context.source != "events":
        # An import carries the times of past activity; a live sender reports current activity.
        news = active_at(record, context.now) if context.source == "import" else context.now
        message.session.counts += Counts(active_at=news)


def _merged_fields(context: Context, record: records.Message, row: Message) -> dict[str, Any]:
    """Return the columns of a stored message that a record changes. Empty fields change nothing."""
    given: dict[str, Any] = {
        "request_id": pg_text.text(record.request_id),
        "content": pg_text.text(record.content if isinstance(record.content, str) else ""),
        "content_parts": record.content_parts,
        "usage": record.usage,
        "error": pg_text.text(record.error),
        "completed_at": record.completed_at,
        "is_completed": record.is_completed,
        "health": sorted({*row.health, *(record.health or ())}),
        "metadata": {**row.metadata, **(record.metadata or {})},
    }
    changed = {name: pg_text.storable(value) for name, value in given.items() if value and value != getattr(row, name)}
    if context.source == "import":
        taken_back = _retracted_fields(record, row)
        changed |= {name: value for name, value in taken_back.items() if value != getattr(row, name)}
        if taken_back.get("metadata") == row.metadata:
            changed.pop("metadata", None)
    if changed.get("is_completed") and record.completed_at is None:
        # It was open until now. A live sender that gives no duration reports the completion as it happens.
        at = completion(record, row.created_at) or (context.now if context.source == "live" else None)
        if at is not None:
            changed["completed_at"] = at
    return changed


def _is_earlier(context: Context, record: records.Message, row: Message) -> bool:
    """Return whether an import brings an earlier snapshot of a message than the stored one.

    It is earlier if its completion is; with the same completion time, if its content is a beginning of the stored one.
    """
    if context.source != "import" or record.completed_at is None or row.completed_at is None:
        return False
    if record.completed_at != row.completed_at:
        return record.completed_at < row.completed_at
    content = pg_text.text(record.content if isinstance(record.content, str) else "")
    return bool(content) and content != row.content and row.content.startswith(content)


def _retracted_fields(record: records.Message, row: Message) -> dict[str, Any]:
    """Return the fields that an import retracts: an earlier snapshot ended with a text that looked like the answer and
    turns out to be the thought of a step with calls."""
    steps = (step for step in record.agent_steps or () if row.content and step.tool_calls)
    step = next((step for step in steps if pg_text.text(step.thought) == row.content), None)
    if step is None:
        return {}
    of_step = {"model": step.model, "agent_name": step.agent_name, "reasoning_content": step.reasoning_content}
    of_step |= step.metadata or {}
    kept = {name: value for name, value in row.metadata.items() if value != of_step.get(name)}
    changed: dict[str, Any] = {"metadata": pg_text.storable({**kept, **(record.metadata or {})})}
    if not record.content:
        changed |= {"content": "", "content_parts": None, "usage": record.usage}
    return changed


def has_new(own: Rows, stored: StoredBelow) -> bool:
    """Return whether there are steps or calls that are not stored yet."""
    return any(row.id not in stored.step_ids for row in own.steps) or any(
        row.id not in stored.call_ids for row in own.calls
    )


def without_known(flags: Collection[str], context: Context, own: Rows, stored: StoredBelow) -> list[str]:
    """Return the flags without EMPTY_TOOL_NAME if it concerns existing calls only, which keep their name or have the flag."""
    nameless = str(context.tool_ids.get(""))
    is_new = any(line.tool_id == nameless and line.id not in stored.call_ids for line in own.calls)
    return [flag for flag in flags if is_new or flag != EMPTY_TOOL_NAME or context.source == "events"]


def write_merge(
    db: Database,
    context: Context,
    row: Message,
    changed: dict[str, Any],
    own: Rows,
    stored: StoredBelow,
    *,
    only_open: bool,
) -> tuple[bool, Rollup | None]:
    """Write the rows below a message and add their flags to `changed`; return whether anything changed, and the new totals of
    the rows in its write scope.

    With `only_open`, only results of open calls are written, and the rest of the message stays.
    """
    if only_open:
        own.steps = []
        own.calls = [line for line in own.calls if line.id in stored.open_calls]
        own.results = [line for line in own.results if line.id in stored.open_calls]
        own.inputs = []
    context.inputs.update(rows_of_inputs(db, context, row.session_id, row.pk, own))
    flags = {*changed.get("health", row.health), *own.flags}
    if flags != set(row.health):
        changed["health"] = sorted(flags)
    tables = ((REFERENCES, own.references), (STEPS, own.steps), (CALLS, own.calls), (RESULTS, own.results))
    written = [(table, table.encrypted(lines, context.data_key)) for table, lines in tables if lines]
    has_changed, counted = upsert_rows(db, written, row.pk, context.touched.get(row.pk))
    # The records of events are folds of everything that is known of a step.
    merged = [step_id for step_id in own.to_price if context.source != "events" and step_id.hex in stored.step_ids]
    if has_changed and own.steps and merged and price_steps(db, row, merged, context.prices):
        counted = None
    return has_changed or bool(changed), counted if written else stored.totals


def finish_message(
    db: Database,
    context: Context,
    row: Message,
    changed: dict[str, Any],
    stored: StoredBelow,
    counted: Rollup | None,
    before: Counts,
) -> Counts:
    """Write the message row with its new totals; return the change of the session's counters, in which `before` is included.

    `stored` are the rows below it before the write, `counted` the new totals of the rows in its write scope."""
    for name, value in changed.items():
        setattr(row, name, value)
    touched = context.touched.get(row.pk)
    is_as_counted = (row.step_count, row.call_count) == (touched.step_count, touched.call_count) if touched else False
    # If a message has its own tokens, the sum of its steps is not stored.
    # Which steps have a cost is not counted, so if one loses its cost, all are added up again.
    is_countable = (
        stored.totals is None or counted is None or not (stored.totals.cost is not None and counted.cost is None)
    )
    # Nor is whether the request of the answer is the one without a cost: that changes with the first step of a model.
    is_first = counted is not None and bool(counted.unpriced_count or counted.cost is not None)
    is_countable = is_countable and not (row.cost is None and row.unpriced_count <= 1 and is_first)
    is_same_answer = changed.keys().isdisjoint({"usage", "error", "is_completed"})
    if counted and stored.totals and is_as_counted and is_countable and is_same_answer:
        counts = _counted_on(row, stored.totals, counted)
    else:
        counts = count_below(db, row)
    row.duration_ms = duration_between(row.created_at, row.completed_at, counts.duration_ms)
    row.step_count, row.call_count, row.failure_count = counts.step_count, counts.call_count, counts.failure_count
    row.model_error_count = counts.model_error_count
    row.input_tokens, row.output_tokens = counts.input_tokens, counts.output_tokens
    row.cost, row.unpriced_count = counts.cost, counts.unpriced_count
    row.version += 1
    row.updated_at = context.now
    if changed:
        row.save(update_fields=[*changed, *COUNTED])
    else:
        save_counts(db, row)
    return Counts.of(row) + -before


def _counted_on(row: Message, before: Rollup, after: Rollup) -> Rollup:
    """Return the totals of a message, given those of its write scope before and after the write."""
    input_tokens, output_tokens = tokens(row.usage)
    if not (input_tokens or output_tokens):
        input_tokens = row.input_tokens + after.input_tokens - before.input_tokens
        output_tokens = row.output_tokens + after.output_tokens - before.output_tokens
    is_known = row.duration_ms is not None or after.duration_ms is not None
    duration_ms = (row.duration_ms or 0) + (after.duration_ms or 0) - (before.duration_ms or 0)
    has_cost = row.cost is not None or after.cost is not None
    cost = (row.cost or 0) + (after.cost or Decimal(0)) - (before.cost or 0)
    return Rollup(
        step_count=row.step_count + after.step_count - before.step_count,
        call_count=row.call_count + after.call_count - before.call_count,
        failure_count=row.failure_count + after.failure_count - before.failure_count,
        model_error_count=row.model_error_count + after.model_error_count - before.model_error_count,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        # For a completed message this is not the sum of its steps, and is not used.
        duration_ms=duration_ms if is_known else None,
        cost=cost if has_cost else None,
        unpriced_count=row.unpriced_count + after.unpriced_count - before.unpriced_count,
    )
