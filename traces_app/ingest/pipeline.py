"""The entry point for all records: normalise, redact, store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone
from msgspec.structs import replace

from access_app.audit.trail import note_counts
from access_app.db import Database
from access_app.masking import masking_of
from messages_app.interruptions import reason_of, text_of
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.normalize.redacted import redact
from tracesite_sdk.records.health_flags import INTERRUPTED

from . import metrics
from .batch import SessionOutcome, Source, WriteScope
from .scores import store_scores_of
from .store import store


def ingest(
    db: Database,
    project_id: int,
    sessions: Sequence[records.Session],
    *,
    source: Source = "live",
    touched: Mapping[UUID, WriteScope] | None = None,
    latest_event_at: Mapping[UUID, datetime] | None = None,
    digests: Mapping[UUID, bytes] | None = None,
) -> list[SessionOutcome]:
    """Store sessions with their messages in one transaction, then their scores; see `store.store` for the parameters."""
    started = time.perf_counter()
    now = timezone.now()
    batch = []
    rules = masking_of(project_id)
    for session in sessions:
        batch.append(redact(_with_interruptions(normalise(session, now=now)), rules))
        # Messages without times get different ones, because pages by time cannot end between messages of one time.
        now += timedelta(microseconds=len(session.messages or ()))
    outcomes = store(
        db, project_id, batch, source=source, touched=touched, latest_event_at=latest_event_at, digests=digests
    )
    for session, outcome in zip(sessions, outcomes, strict=True):
        if session.scores:
            store_scores_of(db, project_id, session, outcome)
    note_counts(db.actor, project_id, sessions=len(batch), messages=sum(len(outcome.messages) for outcome in outcomes))
    metrics.count_batch(batch, outcomes, source=source, seconds=time.perf_counter() - started)
    return outcomes


def _with_interruptions(session: records.Session) -> records.Session:
    """Give the interrupted runs of a session an error, so that none looks as if it had ended well."""
    messages = session.messages or []
    if not any(INTERRUPTED in (message.health or ()) and not message.error for message in messages):
        return session
    closed = [
        replace(message, error=message.error or text_of(reason_of(message.metadata or {})))
        if INTERRUPTED in (message.health or ()) and message.is_completed
        else message
        for message in messages
    ]
    return replace(session, messages=closed)
