"""Close stale runs and sessions, whose sender is gone for good, so that nothing is "running" for ever.

A run is stale if neither its message nor its events have changed since a time. It is closed by an event, like a run whose
process ended (messages_app.interruptions): viewers see it, its session becomes "aborted", and later data of its sender opens
it again. Runs of paused sessions wait for a person and stay open.

A session without an open message is stale if it says that it is running or planned, or has no messages, and nothing was
written to it since a time. It is marked as abandoned, until the next write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import QuerySet
from django.utils import timezone

from access_app.db import Database
from access_app.masking import masking_of
from messages_app.interruptions import NO_NEWS
from messages_app.models import Session
from traces_app.events.store import record_events
from traces_app.ingest.pipeline import ingest
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records import ids

AT_A_TIME = 100
# Served by the index of open messages, which is small.
_OPEN = """
    SELECT message.id, message.session_id, message.project_id, message.role FROM messages_app_message AS message
    JOIN messages_app_session AS session ON session.id = message.session_id
    WHERE NOT message.is_completed AND message.deleted_at IS NULL AND message.updated_at < %(before)s
        AND message.id > %(after)s AND (%(projects)s::bigint[] IS NULL OR message.project_id = ANY(%(projects)s))
        AND session.deleted_at IS NULL AND session.said_status <> 'paused'
    ORDER BY message.id LIMIT %(most)s
    """
_HAS_NEWS = """
    SELECT EXISTS (
        SELECT 1 FROM traces_app_event
        WHERE session_id = %s AND message_id = %s AND id >= %s AND id < %s AND timestamp >= %s
    )
    """


@dataclass(frozen=True, kw_only=True)
class StaleRun:
    """An open message whose sender has stopped sending."""

    message_id: UUID
    session_id: UUID
    project_id: int
    role: str


def stale_runs(db: Database, before: datetime, project_ids: Collection[int] | None = None) -> Iterator[StaleRun]:
    """Yield the open messages without changes since `before`, oldest first."""
    after = UUID(int=0)
    while True:
        with db.cursor() as cursor:
            projects = None if project_ids is None else list(project_ids)
            cursor.execute(_OPEN, {"before": before, "after": after, "projects": projects, "most": AT_A_TIME})
            rows = cursor.fetchall()
        for message_id, session_id, project_id, role in rows:
            with db.cursor() as cursor:
                cursor.execute(_HAS_NEWS, [session_id, message_id, *ids.range_below(message_id), before])
                (has_news,) = cursor.fetchone()
            if not has_news:
                yield StaleRun(message_id=message_id, session_id=session_id, project_id=project_id, role=role)
        if len(rows) < AT_A_TIME:
            return
        after = rows[-1][0]


def close(db: Database, run: StaleRun) -> bool:
    """Close a stale run; return False if it was refused."""
    if run.role != "assistant":
        # An incomplete user or system message is not a run: it is completed without an error.
        question = records.Message(id=str(run.message_id), role="user", is_completed=True)
        if run.role == "system":
            question = msgspec.structs.replace(question, role="system")
        (stored,) = ingest(db, run.project_id, [records.Session(id=str(run.session_id), messages=[question])])
        return stored.messages[0].refused is None
    now = timezone.now()
    event = records.Event(
        # A new id each time, because a run that continued may become stale again.
        id=f"{run.message_id}.{NO_NEWS}.{int(now.timestamp() * 1_000_000)}",
        session_id=str(run.session_id),
        message_id=str(run.message_id),
        type="workflow_execute_complete",
        timestamp=now,
        level="warn",
        category="system",
        data={"interrupted": NO_NEWS},
    )
    (outcome,) = record_events(db, run.project_id, [redact_event(event, masking_of(run.project_id))])
    return outcome.state == "stored"


def stale_sessions(db: Database, before: datetime, project_ids: Collection[int] | None = None) -> QuerySet[Session]:
    """Return the sessions without an open message that are not over and were not written to since `before`."""
    sessions = db.rows(Session.objects).filter(
        status__in=(Session.Status.RUNNING, Session.Status.PLANNING),
        open_count=0,
        active_at__lt=before,
        updated_at__lt=before,
    )
    return sessions if project_ids is None else sessions.filter(project_id__in=project_ids)


def abandon(db: Database, before: datetime, project_ids: Collection[int] | None = None) -> int:
    """Mark stale sessions as abandoned, some in a transaction; return their number."""
    total = 0
    while True:
        with db.atomic():
            # By id, the order of all writes that lock several sessions.
            locked = stale_sessions(db, before, project_ids).order_by("pk").select_for_update(no_key=True, of=("self",))
            session_ids = list(locked.values_list("pk", flat=True)[:AT_A_TIME])
            db.rows(Session.objects).filter(pk__in=session_ids).update(is_abandoned=True)
        total += len(session_ids)
        if len(session_ids) < AT_A_TIME:
            return total
