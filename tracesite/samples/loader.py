"""Sample sessions for a new installation: real runs of agent SDKs (see recordings/README.md), shifted to recent times.

Most are sessions in the form of an ingest request (.json); one holds the events that our own recorder sent (.ndjson). history.py
adds what came before them, replayed.py a run that failed with its replay, and traced.py a run that came as spans.

The sessions were recorded within two minutes. Once loaded, the newest began two minutes ago and each older one some hours
before the next, so that lists and time filters have something to show. All times of a session are shifted alike, so
durations are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from typing import TypeVar

from django.utils import timezone
from msgspec.structs import replace

from access_app.db import Database
from access_app.masking import masking_of
from access_app.models import Project
from messages_app.models import Session
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from traces_app.ingest.decode import decode_ingest
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.scores import PlacedScore, place_named, store_scores
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event, redact_score

from .history import earlier_sessions, judgements
from .replayed import SESSION as REPLAYED
from .replayed import load_replayed
from .traced import SESSION as TRACED
from .traced import load_traced

_NEWEST_AGE = timedelta(minutes=2)
_BETWEEN = timedelta(hours=7, minutes=43)
_REPLAYED_AGE = timedelta(hours=4, minutes=10)
_TRACED_AGE = timedelta(hours=6, minutes=5)

R = TypeVar("R", bound=records.Record)


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """The events of one session."""

    external_id: str
    created_at: datetime
    events: Sequence[records.Event]


def load_samples(db: Database, project: Project) -> int:
    """Load the samples that the project never had and return their number. Existing and deleted ones are not touched."""
    sessions = [session for content in _files(".json") for session in decode_ingest(content, ndjson=False)]
    samples: list[records.Session | _Recording] = [*sessions, *_recordings()]
    samples.sort(key=_began, reverse=True)
    now = timezone.now()
    earlier = earlier_sessions(now)
    names = [REPLAYED, TRACED, *(sample.external_id for sample in (*samples, *earlier))]
    there = set(
        db.rows(Session.with_deleted)
        .filter(project=project, external_id__in=names)
        .values_list("external_id", flat=True)
    )
    # Newest first.
    fresh = [
        (sample, now - _NEWEST_AGE - age * _BETWEEN)
        for age, sample in enumerate(samples)
        if sample.external_id not in there
    ]
    missing = [session for session in earlier if session.external_id not in there]
    recorded = [_shift_session(sample, start) for sample, start in fresh if isinstance(sample, records.Session)]
    ingest(db, project.pk, [*recorded, *missing], source="import")
    rules = masking_of(project.pk)
    for sample, start in fresh:
        if isinstance(sample, _Recording):
            by = start - sample.created_at
            events = [redact_event(_shift_times(event, by, "timestamp"), rules) for event in sample.events]
            record_events(db, project.pk, events)
    names_of_missing = {session.external_id for session in missing}
    judged = [score for score in judgements(now) if score.session_id in names_of_missing]
    store_scores(
        db, project.pk, [PlacedScore(redacted=redact_score(score, rules), place=place_named(score)) for score in judged]
    )
    replayed = 0
    if REPLAYED not in there:
        load_replayed(db, project, now - _REPLAYED_AGE)
        replayed = 2
    if TRACED not in there:
        load_traced(db, project, now - _TRACED_AGE)
    return len(fresh) + len(missing) + replayed + int(TRACED not in there)


def _recordings() -> Iterator[_Recording]:
    for content in _files(".ndjson"):
        events = decode_events(content, ndjson=True)
        times = [event.timestamp for event in events if event.timestamp is not None]
        yield _Recording(external_id=events[0].session_id, created_at=min(times), events=events)


def _files(ending: str) -> Iterator[bytes]:
    folder = resources.files("tracesite.samples") / "recordings"
    return (file.read_bytes() for file in folder.iterdir() if file.name.endswith(ending))


def _began(sample: records.Session | _Recording) -> datetime:
    assert sample.created_at is not None, "every recording has created_at"
    return sample.created_at


def _shift_session(session: records.Session, start: datetime) -> records.Session:
    """Return the session shifted so that it begins at `start`."""
    by = start - _began(session)
    messages = [
        replace(
            _shift_times(message, by, "created_at", "completed_at"), agent_steps=_shift_steps(message.agent_steps, by)
        )
        for message in session.messages or ()
    ]
    return replace(session, created_at=start, messages=messages)


def _shift_steps(steps: list[records.AgentStep] | None, by: timedelta) -> list[records.AgentStep]:
    return [
        replace(
            _shift_times(step, by, "timestamp"),
            tool_calls=[_shift_times(call, by, "started_at", "completed_at") for call in step.tool_calls or ()],
        )
        for step in steps or ()
    ]


def _shift_times(record: R, by: timedelta, *names: str) -> R:
    times = {name: getattr(record, name) for name in names}
    return replace(record, **{name: instant + by for name, instant in times.items() if instant is not None})
