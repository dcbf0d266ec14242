"""Test that a server stores each event that the HTTP sink delivers once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project, Scope
from messages_app.models import Session
from messages_app.writes import delete_session
from sdk.tests.recorder.sending import Sinks, burst, sinks, soon
from traces_app.models import Event, ToolCall
from tracesite_sdk.recorder.delivery.sinks import Clean

__all__ = ["sinks"]


def call_events(session: str, names: Sequence[str]) -> list[Clean]:
    """A call with its result for each name."""
    lines = []
    for number, name in enumerate(names):
        shared = b'"session_id":"%s","message_id":"run-1","data":{"uuid":"%s","name":"search"' % (
            session.encode(),
            name.encode(),
        )
        lines.append(b'{"id":"%s.s","type":"tool_call_start","number":%d,%s}}' % (name.encode(), 2 * number, shared))
        lines.append(
            b'{"id":"%s.e","type":"tool_call_complete","number":%d,%s,"result":"found"}}'
            % (name.encode(), 2 * number + 1, shared)
        )
    return [Clean(line) for line in lines]


@pytest.mark.django_db(transaction=True)
def test_tracesite_stores_events_and_knows_duplicates(live_server: Any, sinks: Sinks) -> None:
    project = Project.objects.create(slug="owner")
    _key, token = create_key(project, "agent", [Scope.WRITE])
    names = [f"call-{number}" for number in range(30)]
    sent = call_events("weather-1", names)
    poison = Clean(b'{"id":"p","session_id":"weather-1","type":"no_such_type"}')
    sink = sinks.to(live_server.url, key=token)
    assert sink.send([*sent[:20], poison, *sent[20:]]) == 61
    assert sink.flush(soon()) == 0
    assert (Event.objects.count(), ToolCall.objects.filter(status="success").count()) == (60, 30)
    assert sink.send(sent) == 60
    assert sink.flush(soon()) == 0
    report = sink.report()
    assert (report.delivered, report.duplicates, report.refused) == (60, 60, {"invalid_input": 1})
    delete_session(primary, Session.objects.get().pk, by="test")
    sink.send(call_events("weather-1", ["late"]))
    assert sink.flush(soon()) == 0
    assert sink.report().refused == {"invalid_input": 1, "session_deleted": 2}
    assert Event.objects.count() == 60
    sink.close(soon())


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_burst_and_clean_exit_leave_nothing_behind(live_server: Any, sinks: Sinks) -> None:
    project = Project.objects.create(slug="owner")
    _key, token = create_key(project, "agent", [Scope.WRITE])
    _took, log = burst(live_server.url, token, sinks, 4000)
    assert ToolCall.objects.filter(status="success").count() == 4000
    assert Event.objects.count() == 8002
    assert log == ""
    assert sinks.files() == []
