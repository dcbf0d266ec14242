"""Test that a run of an enabled agent is on the server."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from access_app.db import primary
from access_app.models import Project
from sdk.tests.recorder.host_agents import Agent, Listener
from traces_app.events.database_sink import DatabaseSink
from traces_app.models import AgentStep, Context, Event, ToolCall
from traces_app.queries.contexts import inputs
from tracesite_sdk import Recorder


@pytest.mark.django_db(transaction=True)
def test_recorded_agent_is_on_the_server() -> None:
    Project.objects.create(slug="owner")
    recorder = Recorder(sink=DatabaseSink("owner"))
    agent = recorder.enable(Agent(Listener()), session="task-1")
    agent.run("How is it?")
    assert recorder.close(60) == 0
    assert list(ToolCall.objects.values_list("tool__name", flat=True)) == ["get_weather"]
    asked = AgentStep.objects.get(model="gpt-5-mini")
    assert asked.pk == ToolCall.objects.get().step_id
    key = str(asked.message_id), asked.input_ref
    whole = msgspec.json.decode(msgspec.json.encode(inputs(primary, [key])[key]))
    assert [one["role"] for one in whole["messages"]] == ["user"]
    prompts = Event.objects.filter(type="prompt_build").order_by("seq")
    # The counters match the stored rows.
    assert [(event.data["kind"], event.data["length"]) for event in prompts] == [("system", 18), ("user", 40)]
    kinds = Counter(Context.objects.values_list("kind", flat=True))
    assert kinds == {"prompt": 2, "conversation": 1, "input": 1, "entry": 1}, (
        "the prompts, and what the model was asked"
    )
