"""The one way in: records are normalised, redacted and written, whoever brings them."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils import timezone

from . import records
from .batch import SessionOutcome, Source
from .normalise import normalise
from .redaction import redact
from .writes import store


def ingest(project_id: int, sessions: Sequence[records.Session], *, source: Source = "live") -> list[SessionOutcome]:
    """Stores sessions with their messages in one transaction; see `writes.store` for what `source` means."""
    now = timezone.now()
    return store(project_id, [redact(normalise(session, now=now)) for session in sessions], source=source)
