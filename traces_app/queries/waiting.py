"""The calls that a paused session waits for."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from access_app.db import Database
from traces_app.models import ToolCall
from tracesite_sdk.records import ids

MOST_CALLS = 100


def waiting_calls(db: Database, runs: Collection[UUID]) -> dict[UUID, list[ToolCall]]:
    """Return the calls without a result of each of some runs (ids of messages), with their tools, in reading order; the
    first MOST_CALLS of them together. One query."""
    if not runs:
        return {}
    first, last = ids.range_below(min(runs))[0], ids.range_below(max(runs))[1]
    calls = (
        db.rows(ToolCall.with_deleted)
        .filter(message_id__in=list(runs), status=ToolCall.Status.PENDING, pk__gte=first, pk__lt=last)
        .select_related("tool")
        .only("message_id", "tool__name")
        .order_by("pk")[:MOST_CALLS]
    )
    by_message: dict[UUID, list[ToolCall]] = {}
    for call in calls:
        by_message.setdefault(call.message_id, []).append(call)
    return by_message
