"""A clock that jumps: nothing is refused for it, nothing is doubled, and the order of ids stays the order of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements
from messages_app.writes import delete_message, restore_message
from traces_app.ingest.batch import SessionOutcome
from traces_app.ingest.changes import change_message
from traces_app.ingest.pipeline import ingest
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

RIGHT = datetime(2026, 3, 10, 12, tzinfo=UTC)
# A second back, an hour back, to the start of the computer's time, a month ahead, and right again.
JUMPS = [
    RIGHT,
    RIGHT - timedelta(seconds=1),
    RIGHT - timedelta(hours=1),
    datetime(1970, 1, 1, tzinfo=UTC),
    RIGHT + timedelta(days=31),
    RIGHT + timedelta(minutes=1),
]


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="clocks", name="clocks")


def send(project: Project, *names: str, is_completed: bool = True) -> SessionOutcome:
    messages = [
        records.Message(
            role="assistant",
            external_id=name,
            is_completed=is_completed,
            agent_steps=[records.AgentStep(tool_calls=[records.ToolCall(id=name, name="t", args={})])],
        )
        for name in names
    ]
    (outcome,) = ingest(primary, project.pk, [records.Session(external_id="s", messages=messages)])
    return outcome


def states(outcome: SessionOutcome) -> list[str]:
    return [message.state for message in outcome.messages]


def test_messages_without_times_are_stored_whatever_the_clock_says_and_ids_keep_the_order_of_times(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, now in enumerate(JUMPS):
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        names = [f"{number}.{place}" for place in range(3)]
        assert states(send(project, *names)) == ["created"] * 3
        # The client that did not hear it sends again, at another time of the clock.
        monkeypatch.setattr(timezone, "now", lambda now=now: now + timedelta(days=3))
        assert states(send(project, *names)) == ["unchanged"] * 3

    stored = list(Message.objects.order_by("id"))
    assert len(stored) == 3 * len(JUMPS)
    assert [message.created_at for message in stored] == sorted(message.created_at for message in stored)
    assert all(ids.created_at_of(message.pk) == message.created_at for message in stored)
    assert all(first.pk < second.pk for first, second in pairwise(stored))
    # What was sent together stays together, in the order in which it was sent.
    by_time = sorted(range(len(JUMPS)), key=lambda number: JUMPS[number])
    assert [message.external_id for message in stored] == [f"{n}.{place}" for n in by_time for place in range(3)]
    assert disagreements(primary, [stored[0].session_id]) == {}


def test_a_message_that_was_begun_before_the_clock_went_back_can_be_changed_deleted_and_ended(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: RIGHT)
    message_id = send(project, "open", is_completed=False).messages[0].id
    assert message_id is not None
    monkeypatch.setattr(timezone, "now", lambda: RIGHT - timedelta(hours=1))

    patch = records.MessagePatch(version=1, is_completed=True, content="done")
    changed = change_message(
        primary, [project.pk], message_id, redact_message_patch(normalise_patch(patch), DEFAULT_RULES)
    )
    assert (changed.version, changed.is_completed, changed.content) == (2, True, "done")
    # It seems to have ended before it began: not a time of less than nothing.
    assert changed.duration_ms is None or changed.duration_ms >= 0
    delete_message(primary, message_id, by="a test")
    restore_message(primary, message_id)
    assert Message.objects.get(pk=message_id).version == 4
    assert disagreements(primary, [changed.session_id]) == {}


def test_a_right_client_of_a_server_whose_clock_is_behind_is_not_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(name: str) -> records.Message:
        return records.Message(role="user", external_id=name, created_at=RIGHT)

    # Up to a day the client is believed; beyond it the server's time is taken, and the message says so.
    for behind, flags in ((timedelta(hours=23), []), (timedelta(days=3), ["time_out_of_range"])):
        now = RIGHT - behind
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        (outcome,) = ingest(primary, project.pk, [records.Session(external_id="s", messages=[message(f"{behind}")])])
        assert states(outcome) == ["created"]
        stored = Message.objects.get(pk=outcome.messages[0].id)
        assert (stored.created_at, stored.health) == (now if flags else RIGHT, flags)
    assert Session.objects.get().message_count == 2
