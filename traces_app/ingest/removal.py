"""Remove messages with everything below them, and their share of the counters of their sessions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from access_app.db import Database
from messages_app.change_log import Kind, log_changes
from messages_app.models import Message, MessageKey, Reference, Session
from messages_app.writes import NO_RUN_LEFT, Counts
from traces_app.models import AgentStep, Context, ErrorPattern, Event, RunVector, ToolCall, ToolResult
from tracesite_sdk.records import ids

from .sql import add_to_sessions


def remove_messages(db: Database, message_ids: Collection[UUID]) -> None:
    """Remove the messages and their keys, so that the same ones may be stored again. Call it in a transaction.

    Locks are taken in the order of store.py: keys, messages, what is below, sessions last.
    """
    if not message_ids:
        return
    keys = db.rows(MessageKey.objects).filter(message_id__in=message_ids)
    list(keys.order_by("pk").select_for_update().values_list("pk"))
    # The ids of everything below a message have its time, so other months are pruned.
    first = ids.first_id_at(ids.created_at_of(min(message_ids)))
    after = ids.first_id_at(ids.created_at_of(max(message_ids)) + timedelta(microseconds=1))
    messages = db.rows(Message.with_deleted).filter(pk__in=message_ids, pk__gte=first, pk__lt=after)
    rows = list(messages.order_by("pk").select_for_update(of=("self",)))
    removed = {row.pk: row.project_id for row in rows}
    log_changes(db, removed, Kind.FIGURES, sealed=removed)
    calls = db.rows(ToolCall.with_deleted).filter(message_id__in=message_ids, pk__gte=first, pk__lt=after)
    db.rows(ToolResult.objects).filter(pk__in=calls.values("pk"), pk__gte=first, pk__lt=after).delete()
    below: tuple[QuerySet[Any], ...] = (
        db.rows(Event.objects).all(),
        db.rows(Context.objects).all(),
        db.rows(ToolCall.with_deleted).all(),
        db.rows(AgentStep.with_deleted).all(),
        db.rows(Reference.objects).all(),
        db.rows(ErrorPattern.objects).all(),
    )
    for rows_below in below:
        rows_below.filter(message_id__in=message_ids, pk__gte=first, pk__lt=after).delete()
    db.rows(RunVector.objects).filter(pk__in=message_ids, pk__gte=first, pk__lt=after).delete()
    messages.delete()
    keys.delete()
    _take_off(db, rows)


def _take_off(db: Database, rows: Collection[Message]) -> None:
    """Take visible messages off the counters of their sessions. Whether the last run failed stays known, its id does not."""
    counts: dict[UUID, Counts] = {row.session_id: Counts() for row in rows}
    for row in rows:
        if row.deleted_at is None:
            counts[row.session_id] += Counts.of(row)
    sessions = db.rows(Session.with_deleted).filter(pk__in=counts)
    list(sessions.order_by("pk").select_for_update(no_key=True).values_list("pk"))
    add_to_sessions(db, {session_id: -count for session_id, count in sorted(counts.items())})
    sessions.filter(last_run_id__in=[row.pk for row in rows]).update(last_run_id=NO_RUN_LEFT)
