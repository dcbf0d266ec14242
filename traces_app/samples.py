"""Sample sessions for a new installation: real runs of agent SDKs (see sample_transcripts/README.md), made recent.

They were recorded within two minutes. Loaded, the newest began a moment ago and each older one some hours before the
next, so that lists and time filters have something to show; within a session every time keeps its distance from the
others, so durations are those of the recording.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib import resources
from typing import TypeVar

from django.utils import timezone
from msgspec.structs import replace

from access_app.models import Project
from messages_app.models import Session

from . import records
from .decode import decode_ingest
from .ingest import ingest

_NEWEST_AGE = timedelta(minutes=2)
_BETWEEN = timedelta(hours=7, minutes=43)

R = TypeVar("R", bound=records.Record)


def load_samples(project: Project) -> int:
    """Loads the samples that the project does not have, and returns how many; those it has, or had, stay as they are."""
    samples = _read()
    names = [session.external_id for session in samples]
    there = set(
        Session.with_deleted.filter(project=project, external_id__in=names).values_list("external_id", flat=True)
    )
    now = timezone.now()
    fresh = [
        _moved(session, now - _NEWEST_AGE - age * _BETWEEN)
        for age, session in enumerate(samples)
        if session.external_id not in there
    ]
    return sum(outcome.created for outcome in ingest(project.pk, fresh, source="import"))


def _read() -> list[records.Session]:
    """All samples, the newest first."""
    folder = resources.files("traces_app") / "sample_transcripts"
    sessions = [
        session
        for file in folder.iterdir()
        if file.name.endswith(".json")
        for session in decode_ingest(file.read_bytes(), ndjson=False)
    ]
    return sorted(sessions, key=_began, reverse=True)


def _began(session: records.Session) -> datetime:
    assert session.created_at is not None, "every recording says when it began"
    return session.created_at


def _moved(session: records.Session, start: datetime) -> records.Session:
    """The session as if it had begun at `start`."""
    by = start - _began(session)
    messages = [
        replace(_later(message, by, "created_at", "completed_at"), agent_steps=_moved_steps(message.agent_steps, by))
        for message in session.messages or ()
    ]
    return replace(session, created_at=start, messages=messages)


def _moved_steps(steps: list[records.AgentStep] | None, by: timedelta) -> list[records.AgentStep]:
    return [
        replace(
            _later(step, by, "timestamp"),
            tool_calls=[_later(call, by, "started_at", "completed_at") for call in step.tool_calls or ()],
        )
        for step in steps or ()
    ]


def _later(record: R, by: timedelta, *names: str) -> R:
    said = {name: getattr(record, name) for name in names}
    return replace(record, **{name: instant + by for name, instant in said.items() if instant is not None})
