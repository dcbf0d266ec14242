"""Tests of messages_app/session_counters.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db.models import F

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements, recount
from messages_app.sql.periods import Period
from traces_app.ingest.partitions import ensure_periods
from tracesite_sdk.records import ids

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def sessions(db: None) -> list[Session]:
    """Store three sessions: with two messages, one of them deleted; with one; with none. All counters are 7."""
    ensure_periods(primary, [Period.of(NOON)])
    project = Project.objects.create(slug="owner")
    wrong = dict.fromkeys(
        ("message_count", "call_count", "failure_count", "input_tokens", "output_tokens", "duration_ms"), 7
    )
    made = [
        Session.objects.create(id=ids.session_id(NOON), project=project, created_at=NOON, updated_at=NOON, **wrong)
        for _ in range(3)
    ]
    for session, deleted_at in ((made[0], None), (made[0], NOON), (made[1], None)):
        Message.objects.create(
            id=ids.message_id(NOON, "assistant"),
            project=project,
            session=session,
            role="assistant",
            call_count=3,
            failure_count=1,
            input_tokens=100,
            output_tokens=20,
            duration_ms=None if session is made[1] else 50,
            created_at=NOON,
            updated_at=NOON,
            deleted_at=deleted_at,
        )
    return made


def counters(session: Session) -> tuple[int, ...]:
    session.refresh_from_db()
    return (
        session.message_count,
        session.call_count,
        session.failure_count,
        session.input_tokens,
        session.output_tokens,
        session.duration_ms,
    )


def test_sessions_are_recounted_from_their_live_messages(sessions: list[Session]) -> None:
    recount(primary, [session.pk for session in sessions[:2]])
    assert [counters(session) for session in sessions] == [(1, 3, 1, 100, 20, 50), (1, 3, 1, 100, 20, 0), (7,) * 6]
    recount(primary, [sessions[2].pk])
    assert counters(sessions[2]) == (0,) * 6
    recount(primary, [])


def test_wrong_counters_are_reported_with_counted_values(sessions: list[Session]) -> None:
    session_ids = [session.pk for session in sessions]
    assert set(disagreements(primary, session_ids)) == set(session_ids)
    recount(primary, session_ids)
    assert disagreements(primary, session_ids) == {}
    Session.objects.filter(pk=session_ids[0]).update(call_count=F("call_count") + 2)
    assert disagreements(primary, session_ids) == {session_ids[0]: {"call_count": (5, 3)}}
    assert disagreements(primary, session_ids[1:]) == {}
