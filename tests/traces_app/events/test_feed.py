"""The events of a session, in order and after any number."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Session
from messages_app.writes import delete_message, delete_session
from tests.traces_app.conftest import answer, store
from traces_app.events.feed import events_after
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.purge.surveys import survey
from traces_app.models import Event

pytestmark = pytest.mark.django_db


def add(session: Session, message_id: Any, seq: int, **fields: Any) -> None:
    Event.objects.create(
        id=message_id,
        project_id=session.project_id,
        session=session,
        message_id=message_id,
        seq=seq,
        **{
            "external_id": f"e{seq}",
            "type": "agent_start",
            "level": "info",
            "category": "execution",
            "timestamp": session.created_at,
            "data": {"n": seq},
            **fields,
        },
    )


@pytest.fixture
def run(project: Project) -> tuple[Session, Any]:
    (message,) = store(project, answer()).messages
    session = Session.objects.get()
    add(session, message.id, 1)
    return session, message.id


def test_event_of_session_without_external_id_names_our_id(run: tuple[Session, Any]) -> None:
    session, _message_id = run
    Session.objects.filter(pk=session.pk).update(external_id="")
    (event,) = events_after(primary, session.pk, 0, 10)
    assert event.session_name == str(session.pk)


def test_event_is_read_with_all_of_its_fields(run: tuple[Session, Any]) -> None:
    session, message_id = run
    (event,) = events_after(primary, session.pk, 0, 10)
    assert msgspec.json.decode(msgspec.json.encode(event)) == {
        "id": str(message_id),
        "session_id": str(session.pk),
        "sessionId": session.external_id,
        "message_id": str(message_id),
        "seq": 1,
        "external_id": "e1",
        "type": "agent_start",
        "level": "info",
        "category": "execution",
        "timestamp": session.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "data": {"n": 1},
    }


def test_events_are_read_after_a_number_and_of_a_kind(run: tuple[Session, Any]) -> None:
    session, _message_id = run
    assert events_after(primary, session.pk, 1, 10) == []
    assert events_after(primary, session.pk, 0, 10, types=["agent_error"]) == []
    assert (
        len(events_after(primary, session.pk, 0, 10, types=["agent_start"], levels=["info"], categories=["execution"]))
        == 1
    )


def test_events_of_a_message_in_the_trash_are_not_read(run: tuple[Session, Any]) -> None:
    session, message_id = run
    delete_message(primary, message_id, by="test")
    assert events_after(primary, session.pk, 0, 10) == []


def test_events_are_in_the_month_of_their_message(run: tuple[Session, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM traces_app_event")
        assert cursor.fetchall() == [("traces_app_event_y2026m03",)]


def test_purge_of_message_removes_its_events(run: tuple[Session, Any]) -> None:
    session, message_id = run
    delete_message(primary, message_id, by="test")
    report = purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(seconds=1)))
    assert (report.tables["events"].rows, report.tables["messages"].rows) == (1, 1)
    assert not Event.objects.exists()


def test_purge_of_session_removes_its_events(run: tuple[Session, Any]) -> None:
    session, _message_id = run
    delete_session(primary, session.pk, by="test")
    later = timezone.now() + timedelta(seconds=1)
    counted = survey(primary, PurgeScope(deleted_before=later))
    assert counted.tables["events"].rows == 1
    purge(primary, PurgeScope(deleted_before=later))
    assert not Event.objects.exists()
