"""Test the recorder inside Django, which stores its events in the database of the same process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from access_app.db import primary
from access_app.errors import NotFound
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_message
from tests.traces_app.conftest import NOON
from traces_app.events import database_sink
from traces_app.events.database_sink import SETTINGS_SECONDS, DatabaseSink
from traces_app.models import AgentStep, Event, ToolCall
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.delivery.sinks import Clean, ServerSampling, ServerSettings
from tracesite_sdk.records import ids

pytestmark = pytest.mark.django_db(transaction=True)
THREAD = "tracesite-recorder-database"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def owner(transactional_db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def sink(owner: Project) -> Iterator[DatabaseSink]:
    sink = DatabaseSink("owner", clock=Clock())
    yield sink
    sink.close(time.monotonic() + 60)


def event(**fields: Any) -> Clean:
    document = {"session_id": "s", "message_id": "run", "type": "tool_call_start", **fields}
    return Clean(json.dumps(document).encode())


def call(number: int, **fields: Any) -> Clean:
    return event(id=f"e{number}", number=number, data={"uuid": f"u{number}", "name": "search", **fields})


def test_recorded_run_is_in_the_tables_after_flush(sink: DatabaseSink) -> None:
    recorder = Recorder(sink=sink, strict=True)
    with (
        recorder.session("weather-1", title="Weather", end_user="ada", tags=["a"], metadata={"plan": "free"}),
        recorder.message("Weather in Shanghai?", request_id="req-1") as message,
    ):
        with recorder.step(model="gpt", agent="planner") as step:
            step.thought = "Look it up."
            with recorder.tool_call("get_weather", {"city": "Shanghai", "password": "s3cret-word"}) as tool_call:
                tool_call.result = "31 °C"
        tool_call.update(reflection="Warm.")
        message.content = "31 degrees."
        message.references.append({"id": "r1", "content": "one"})
        message.usage = {"input_tokens": 3, "output_tokens": 2}
    assert recorder.flush(60) == 0
    session = Session.objects.get()
    assert (session.external_id, session.title, session.end_user, session.tags, session.metadata, session.status) == (
        *("weather-1", "Weather", "ada", ["a"], {"plan": "free"}),
        "completed",
    )
    question, run = Message.objects.order_by("pk")
    assert (question.content, run.content, str(run.pk)) == ("Weather in Shanghai?", "31 degrees.", message.id)
    assert (question.request_id, run.request_id, run.usage) == (
        *("req-1", "req-1"),
        {"input_tokens": 3, "output_tokens": 2},
    )
    assert run.metadata == {"recorder": {"redacted": 1}}
    assert [one.reference_id for one in run.references.all()] == ["r1"]
    assert (AgentStep.objects.get().thought, AgentStep.objects.get().model) == ("Look it up.", "gpt")
    stored = ToolCall.objects.select_related("result").get()
    assert stored.args == {"city": "Shanghai", "password": "[redacted]"}
    assert (stored.result.output, stored.status, stored.reflection) == ("31 °C", "success", "Warm.")
    assert run.redactions == [{"path": f"tool_calls[{stored.pk}].args.password", "rule": "password"}]
    recorder.close(60)


def test_batch_sent_twice_is_stored_once(sink: DatabaseSink) -> None:
    events = [call(number) for number in range(20)]
    assert [sink.send(events), sink.send(events), sink.send(events[3:])] == [20, 20, 17]
    assert (ToolCall.objects.count(), Event.objects.count()) == (20, 20)
    assert sink.refused == {}


def test_taken_events_stay_when_the_host_rolls_back(sink: DatabaseSink) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert connection.in_atomic_block
        assert sink.send([call(1)]) == 1
        raise ZeroDivisionError
    assert ToolCall.objects.count() == 1


def test_flush_in_an_event_loop_works(sink: DatabaseSink) -> None:
    async def agent() -> int:
        return sink.send([call(1)])

    assert asyncio.run(agent()) == 1
    assert ToolCall.objects.count() == 1


def test_invalid_event_does_not_affect_others(sink: DatabaseSink) -> None:
    delete_me = str(ids.message_id(NOON, "assistant"))
    sink.send([event(id="first", message_id=delete_me)])
    delete_message(primary, ids.UUID(delete_me), by="test")
    events = [
        call(1),
        Clean(b"{broken"),
        event(id="odd", type="odd"),
        event(id="early", timestamp="yesterday"),
        event(id="gone", message_id=delete_me),
        # A run cannot be the user's message.
        event(id="role", message_id="run:prompt"),
        event(id="asked", type="workflow_execute_start", data={"prompt": "Hello"}),
        call(2),
    ]
    assert sink.send(events[-2:-1]) == 1
    assert sink.send(events) == len(events)
    assert sink.refused == {"invalid_input": 3, "message_deleted": 1, "role_conflict": 1}
    assert {one.external_id for one in Event.objects.filter(message__deleted_at=None)} == {"e1", "asked", "e2"}


def test_lost_connection_is_reopened_without_loss(sink: DatabaseSink) -> None:
    sink.send([call(1)])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        assert len(cursor.fetchall()) >= 1
    assert sink.send([call(2)]) == 1
    assert ToolCall.objects.count() == 2


def test_send_raises_when_all_attempts_fail(sink: DatabaseSink, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def away(*_args: object) -> None:
        attempts.append(1)
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(database_sink, "record_events", away)
        with pytest.raises(OperationalError):
            sink.send([call(1)])
    assert len(attempts) == database_sink.ATTEMPTS
    assert sink.send([call(1)]) == 1


def test_losses_are_reported_when_the_database_is_back(sink: DatabaseSink, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(sink=sink)
    with recorder.session("s"), recorder.message("Hello") as message:
        recorder.flush(60)
        with monkeypatch.context() as patch:
            patch.setattr(database_sink, "_PAUSES", ())
            patch.setattr(database_sink, "record_events", lambda *_args: [][1])
            with recorder.tool_call("search"):
                pass
            recorder.flush(60)
        message.content = "Bye."
    recorder.flush(60)
    run = Message.objects.get(role="assistant")
    assert (run.metadata, run.health) == ({"recorder": {"dropped": 2}}, ["events_dropped"])
    recorder.close(60)


def test_missing_project_is_named(transactional_db: None) -> None:
    sink = DatabaseSink("nobody")
    with pytest.raises(NotFound, match="nobody"):
        sink.send([call(1)])
    assert sink.settings() is None
    Project.objects.create(slug="nobody")
    assert sink.send([call(1)]) == 1
    sink.close(time.monotonic() + 60)


def test_project_settings_are_read_every_30_seconds(sink: DatabaseSink, owner: Project) -> None:
    assert sink.settings() == ServerSettings()
    Project.objects.update(sampling_rate=0.25, sampling_tools={"search": 0.5})
    assert sink.settings() == ServerSettings()
    asked = ServerSettings(sampling=ServerSampling(rate=0.25, tools={"search": 0.5}))
    sink._clock.now = SETTINGS_SECONDS  # type: ignore[attr-defined]
    assert sink.settings() == asked
    Project.objects.update(slug="renamed", sampling_rate=None, sampling_tools={})
    sink._clock.now += SETTINGS_SECONDS  # type: ignore[attr-defined]
    assert sink.settings() == ServerSettings()


def test_sampled_out_tool_is_counted(sink: DatabaseSink, owner: Project) -> None:
    Project.objects.update(sampling_tools={"poll": 0})
    recorder = Recorder(sink=sink, strict=True)
    with recorder.session("s"), recorder.message("Hello"):
        for number in range(5):
            with recorder.tool_call("poll") as call:
                call.result = number
        with recorder.tool_call("poll") as call:
            call.error = "No."
    recorder.flush(60)
    run = Message.objects.get(role="assistant")
    assert [one.status for one in ToolCall.objects.all()] == ["error"]
    assert (run.metadata, run.health) == ({"recorder": {"sampled_out": 5}}, ["sampled"])
    recorder.close(60)


def test_thread_and_connection_end_with_the_sink(sink: DatabaseSink) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == THREAD]

    assert threads() == []
    sink.send([call(1)])
    assert threads() == [THREAD]
    sink.close(time.monotonic() + 60)
    sink.close(time.monotonic() + 60)
    assert threads() == []
    assert (sink.flush(time.monotonic()), sink.send([call(2)]), threads()) == (0, 1, [THREAD])
    parents, tasks = sink._thread, sink._tasks
    sink.after_fork()
    assert (sink.send([call(3)]), sink._thread is parents) == (1, False)
    tasks.put(None)
    assert parents is not None
    parents.join(60)
    assert ToolCall.objects.count() == 3
