"""The one way in: records are normalised, redacted and written, whoever brings them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from traces_app.normalize.records import normalise
from traces_app.normalize.redaction import redact
from traces_app.schema import records

from . import metrics
from .batch import SessionOutcome, Source, Touched
from .store import store


def ingest(
    project_id: int,
    sessions: Sequence[records.Session],
    *,
    source: Source = "live",
    touched: Mapping[UUID, Touched] | None = None,
    heard_at: Mapping[UUID, datetime] | None = None,
) -> list[SessionOutcome]:
    """Stores sessions with their messages in one transaction; see `writes.store` for the rest."""
    started = time.perf_counter()
    now = timezone.now()
    batch = []
    for session in sessions:
        batch.append(redact(normalise(session, now=now)))
        # No two messages without times share one: pages by time do not stop between messages of one time.
        now += timedelta(microseconds=len(session.messages or ()))
    outcomes = store(project_id, batch, source=source, touched=touched, heard_at=heard_at)
    metrics.count_batch(batch, outcomes, source=source, seconds=time.perf_counter() - started)
    return outcomes
