"""Test that the run of a killed process is ended on the server, and no other run is."""

from __future__ import annotations

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app.interruptions import PROCESS_ENDED, TEXTS
from messages_app.models import Message, Session
from sdk.tests.recorder.processes import KILLED, Machine, interrupted, machine
from traces_app.events.decode import event_from
from traces_app.events.store import record_events
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.redaction.rules import DEFAULT_RULES

__all__ = ["machine"]


@pytest.mark.system
@pytest.mark.django_db
def test_run_of_killed_process_is_closed_and_ended_one_is_not(machine: Machine, project: Project) -> None:
    machine.run(KILLED)
    events = machine.delivered()
    assert interrupted(events) == ["open"]
    assert events[-1]["data"]["interrupted"] == "process_ended", "behind all that the process left"
    assert machine.left() == []
    record_events(primary, project.pk, [redact_event(event_from(one, ""), DEFAULT_RULES) for one in events])
    assert list(
        Message.objects.filter(role="assistant").order_by("pk").values_list("external_id", "error", "health")
    ) == [
        ("done", "", []),
        ("open", TEXTS[PROCESS_ENDED], ["interrupted"]),
    ]
    assert Session.objects.get().status == "aborted"
