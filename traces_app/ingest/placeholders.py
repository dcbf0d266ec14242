"""Placeholder calls of results that come before their call in a transcript (see transcripts/conversation.py).

A transcript that was imported when it ended between the result and the call has a placeholder. The whole transcript has the
call with this result instead. Whichever is imported last, only the call is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from access_app.db import Database
from messages_app.models import Message
from tracesite_sdk import records
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import ORPHAN_RESULT

from .rows import Rows, StoredBelow

_STORED = """
    SELECT id, step_id FROM traces_app_toolcall
    WHERE message_id = %s AND id >= %s AND id < %s AND metadata ? %s
    """


@dataclass(frozen=True)
class _Calls:
    """The calls of a message as one of two snapshots has them."""

    ids: Mapping[str, str]
    """The model's call ids, by row id."""
    placeholders: Mapping[str, str]
    """The row ids of steps, by the row ids of their placeholders."""

    def answers(self, other: _Calls) -> bool:
        """Return whether this snapshot has a call instead of a placeholder of the other one."""
        called = {call_id for row_id, call_id in self.ids.items() if row_id not in {*other.ids, *self.placeholders}}
        return any(row_id not in self.ids and other.ids[row_id] in called for row_id in other.placeholders)


def replace_answered(db: Database, row: Message, record: records.Message, own: Rows, stored: StoredBelow) -> bool:
    """Remove the placeholders of a message whose call is known, from its stored rows or from `own`, the rows of its record.
    Return whether no placeholder is left."""
    health = record.health or ()
    if ORPHAN_RESULT not in row.health and ORPHAN_RESULT not in health:
        return False
    before, after = _Calls(stored.call_ids, _stored_placeholders(db, row.pk)), _calls_of(record, own)
    if after.answers(before):
        # The record is a later snapshot, so it has the placeholders that are left, perhaps in another place.
        _delete(db, row.pk, before.placeholders, kept_steps={step.id for step in own.steps})
        return ORPHAN_RESULT not in health
    if before.answers(after):
        # It is an earlier snapshot, so the placeholders that are left are stored, perhaps in another place.
        steps = {*after.placeholders.values()} - stored.step_ids
        own.calls = [call for call in own.calls if call.id not in after.placeholders]
        own.results = [result for result in own.results if result.id not in after.placeholders]
        own.steps = [step for step in own.steps if step.id not in steps]
        return ORPHAN_RESULT not in row.health
    return False


def _stored_placeholders(db: Database, message_id: UUID) -> dict[str, str]:
    with db.cursor() as cursor:
        cursor.execute(_STORED, [message_id, *ids.range_below(message_id), ORPHAN_RESULT])
        return {row_id.hex: step_id.hex for row_id, step_id in cursor.fetchall()}


def _calls_of(record: records.Message, own: Rows) -> _Calls:
    calls = chain.from_iterable(step.tool_calls or () for step in record.agent_steps or ())
    flagged = (ORPHAN_RESULT in (call.metadata or {}) for call in calls)
    placeholders = {row.id: row.step_id for row, is_flagged in zip(own.calls, flagged, strict=True) if is_flagged}
    return _Calls({row.id: row.call_id for row in own.calls}, placeholders)


def _delete(db: Database, message_id: UUID, placeholders: Mapping[str, str], *, kept_steps: Collection[str]) -> None:
    calls = [UUID(row_id) for row_id in placeholders]
    steps = [UUID(step_id) for step_id in {*placeholders.values()}.difference(kept_steps)]
    with db.cursor() as cursor:
        cursor.execute("DELETE FROM traces_app_toolresult WHERE id = ANY(%s)", [calls])
        cursor.execute("DELETE FROM traces_app_toolcall WHERE id = ANY(%s) AND message_id = %s", [calls, message_id])
        cursor.execute("DELETE FROM traces_app_agentstep WHERE id = ANY(%s) AND message_id = %s", [steps, message_id])
