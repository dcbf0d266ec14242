"""Storing of events: the same rows for any order, repetition and number of senders."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Reference, Session
from messages_app.writes import delete_message, delete_session
from sdk.tests.length import examples
from tests.traces_app.conftest import NOON, statements_in
from traces_app.events import run_cache
from traces_app.events.batch import EventOutcome
from traces_app.events.feed import events_after
from traces_app.events.store import record_events
from traces_app.maintenance.integrity import Tally, check
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import AgentStep, Context, Event, Score, Tool, ToolCall, ToolResult
from tracesite_sdk import records
from tracesite_sdk.events import contexts, projection
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records import ids
from tracesite_sdk.records.event_types import EVENT_TYPES, EventSpec, EventType
from tracesite_sdk.redaction.rules import DEFAULT_RULES

RUN_ID = str(ids.message_id(NOON, "assistant", 0, ("test", "run")))


def events_of(*documents: dict[str, Any], session: str = "task-1") -> list[records.Event]:
    return [msgspec.convert({"session_id": session, **document}, records.Event) for document in documents]


def send(project: Project, *documents: dict[str, Any], session: str = "task-1") -> list[EventOutcome]:
    return record_events(
        primary, project.pk, [redact_event(event, DEFAULT_RULES) for event in events_of(*documents, session=session)]
    )


def said(number: int, type_: str, agent: str = "", **data: Any) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "number": number,
        "type": type_,
        "agent": agent or None,
        "timestamp": NOON + timedelta(seconds=number),
        "message_id": RUN_ID,
        "data": data,
    }


TRACE = [
    said(1, "workflow_plan_start", prompt="Weather in Shanghai and Atlantis?"),
    said(2, "workflow_plan_complete", workflow={"name": "Weather", "agents": [{"id": "n1"}, {"id": "n2"}]}),
    said(3, "workflow_execute_start"),
    said(4, "agent_start", "n1", agent_name="Researcher"),
    said(5, "prompt_build", "n1", kind="system", length=120),
    said(6, "llm_request_start", "n1", step="s1", model="gpt"),
    said(7, "llm_request_complete", "n1", step="s1", thought="Look it up.", duration=700,
         usage={"input_tokens": 10, "output_tokens": 4}),
    said(8, "tool_call_start", "n1", step="s1", call_id="c1", name="weather", args={}),
    said(9, "tool_call_start", "n1", step="s1", call_id="c1", name="weather", args={"city": "Shanghai"}),
    said(10, "tool_call_start", "n1", call_id="c2", name="weather", args={"city": "Atlantis"}, parent="c1"),
    said(11, "tool_call_complete", "n1", call_id="c1", result="21 °C"),
    said(12, "tool_call_error", "n1", call_id="c2", error="No such city."),
    said(13, "llm_request_complete", "n1", step="s2", thought="Done.", usage={"input_tokens": 20, "output_tokens": 5}),
    said(14, "tool_call_start", "n1", call_id="c3", name="write"),
    said(15, "agent_complete", "n1", result="21 °C in Shanghai."),
    said(16, "agent_start", "n2"),
    said(17, "tool_call_complete", "n2", call_id="c1", name="read", result={"success": True, "data": {"n": 1}}),
    said(18, "agent_error", "n2", error="Gave up."),
    said(19, "tool_call_complete", "n1", call_id="c3", result="written"),
    said(20, "workflow_execute_complete", result="21 °C; there is no Atlantis."),
]  # fmt: skip

SECOND_RUN = str(ids.message_id(NOON + timedelta(seconds=10), "assistant", 0, ("test", "second run")))
PARTS = [{"type": "text", "text": "And in Oslo?"}, {"type": "image", "url": "map.png"}]


def second(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "message_id": SECOND_RUN}


# Two turns with all events that a recorder sends.
RECORDED = [
    said(1, "workflow_execute_start", prompt="Weather in Shanghai?", request_id="req-1", metadata={"try": 1, "app": "cli"},
         session={"title": "Weather", "end_user": "ada", "tags": ["a"], "metadata": {"plan": "free", "n": 1}}),
    # Losses from before the start of the message are reported in another start event.
    {**said(1, "workflow_execute_start", recorder={"dropped": 2, "odd": True, "truncated": -1}), "id": "e1.lost"},
    said(2, "llm_request_start", step="s1", model="gpt", agent_name="planner", metadata={"temperature": 0, "seed": 1},
         request={"messages": [{"role": "user", "content": "Weather in Shanghai?"}], "tools": [{"name": "weather"}]}),
    said(3, "tool_call_start", uuid="u1", call_id="c1", step="s1", name="weather", args={"city": "Shanghai"},
         metadata={"try": 1}),
    said(4, "tool_call_start", uuid="u2", name="inner", args={"text": "x" * 10}, parent="u1",
         truncated=[{"path": "data.args.text", "bytes": 5000}, {"path": 7}],
         redactions=[{"path": "data.args.key", "rule": "key"}, "odd"]),
    said(5, "tool_call_error", uuid="u2", name="inner", error="No.", duration=3.5, metadata={"host": "b"}),
    said(6, "tool_call_complete", uuid="u1", name="weather", result="21 °C", duration=12.25, metadata={"try": 2}),
    said(7, "llm_request_complete", step="s1", thought="Look it up.", reasoning="Long.", usage={"input_tokens": 3},
         duration=99, time_to_first_token=41.6, metadata={"seed": 2}, truncated=[{"path": "data.thought", "bytes": 70000}]),
    said(8, "workflow_execute_complete", result="21 °C.", usage={"input_tokens": 10, "output_tokens": 4}, duration=7500,
         references=[{"id": "r1", "content": "one", "score": 0.5}, {"id": "r2"}, {"id": "r3", "color": "red"}],
         metadata={"try": 2}, recorder={"dropped": 1, "sampled_out": 3, "redacted": 1}, redactions="odd"),
    # A later event does not change the outcome of a call.
    said(9, "tool_call_complete", uuid="u2", reflection="The inner tool is down."),
    said(9, "score", name="right call", value=False, uuid="u2", comment="key sk-ant-REDACTED") | {"id": "e9.c"},
    said(9, "score", name="helpful", value=True, source="person") | {"id": "e9.m"},
    said(9, "score", name="solved", value="half", about="session") | {"id": "e9.s"},
    second(said(10, "workflow_execute_start", prompt=PARTS, request_id="req-2",
                session={"title": "", "description": "Two turns.", "end_user": "bob", "tags": ["b", "c"],
                         "metadata": {"n": 2}},
                truncated=[{"path": "data.prompt[1].url", "bytes": 9}])),
    second(said(11, "workflow_execute_complete", result=[{"type": "text", "text": "Snow."}], error="Cut short.",
                references=[{"id": "r1"}, {"id": "r2"}], redactions=[{"path": "data.result[0].text", "rule": "token"}])),
    # The run ends again with another list, which replaces the first.
    second(said(12, "workflow_execute_complete", references=["A text only."], recorder={"truncated": 4, "failed": 1},
                session={"metadata": {"password": "s3cret-word"}})),
]  # fmt: skip


def rows() -> dict[str, Any]:
    """Return all rows made by the events, except times and numbers of writes."""
    steps = {step.pk: step for step in AgentStep.objects.all()}
    return {
        "session": Session.objects.values_list(
            "external_id", "status", "current_phase", "title", "workflow", "message_count", "call_count", "failure_count",
            "input_tokens", "output_tokens", "duration_ms", "last_event", "description", "end_user", "tags", "metadata",
            "redactions",
        ).get(),
        # The id of the prompt derives from that of the session, which differs each time.
        "messages": list(
            Message.objects.order_by("pk").values_list(
                "role", "content", "is_completed", "completed_at", "error", "health", "metadata", "step_count",
                "call_count", "failure_count", "input_tokens", "output_tokens", "duration_ms", "created_at",
                "content_parts", "request_id", "usage", "redactions",
            )
        ),
        "references": list(
            Reference.objects.order_by("message_id", "position").values_list(
                "message_id", "position", "reference_id", "content", "score", "metadata"
            )
        ),
        "steps": [
            (s.pk, s.iteration, s.ordinal, s.thought, s.agent_name, s.model, s.usage, s.timestamp, s.reasoning, s.duration_ms,
             s.metadata, s.input_ref, s.time_to_first_token_ms)
            for s in sorted(steps.values(), key=lambda s: s.ordinal)
        ],
        "calls": sorted(
            (steps[c.step_id].ordinal, c.position, c.pk, c.call_id, c.tool.name, str(c.parent_id), str(c.args), c.status,
             c.started_at, c.completed_at, c.duration_ms, c.reflection, str(c.metadata))
            for c in ToolCall.objects.select_related("tool")
        ),
        "scores": sorted(
            (score.name, score.number, score.label, score.comment, score.source, score.created_at, str(score.session_id is None),
             str(score.message_id), str(score.call_id), str(score.redactions))
            for score in Score.objects.all()
        ),
        "results": sorted(ToolResult.objects.values_list("pk", "output", "error", "raw"), key=str),
        "events": sorted(Event.objects.values_list("pk", "external_id", "number", "type", "level", "category", "subject")),
    }  # fmt: skip


def expected(project: Project, trace: list[dict[str, Any]]) -> dict[str, Any]:
    send(project, *trace)
    found = rows()
    forget_all()
    return found


def forget_all() -> None:
    tables = [
        *(
            "traces_app_context",
            "traces_app_event",
            "traces_app_toolresult",
            "traces_app_toolcall",
            "traces_app_agentstep",
        ),
        "messages_app_reference",
        "traces_app_score",
        *("messages_app_message", "messages_app_messagekey", "messages_app_session"),
    ]
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")


def test_run_of_all_types_becomes_its_rows(project: Project) -> None:
    effective = {type_ for type_, spec in EVENT_TYPES.items() if spec.stage != "note"}
    assert {one["type"] for one in TRACE} >= effective
    outcomes = send(project, *TRACE)
    assert [(one.state, one.seq) for one in outcomes] == [("stored", seq) for seq in range(1, len(TRACE) + 1)]
    session = Session.objects.get()
    assert (session.external_id, session.status, session.current_phase, session.title) == (
        "task-1", "completed", "complete", "Weather",
    )  # fmt: skip
    prompt, run = Message.objects.order_by("pk")
    assert (prompt.role, prompt.content) == ("user", "Weather in Shanghai and Atlantis?")
    assert (run.pk, run.content, run.is_completed) == (UUID(RUN_ID), "21 °C; there is no Atlantis.", True)
    assert [(s.iteration, s.agent_name, s.thought) for s in AgentStep.objects.order_by("ordinal")] == [
        (0, "n1", "Look it up."), (1, "n1", "Done."), (2, "", ""),
    ]  # fmt: skip
    calls = ToolCall.objects.select_related("tool", "step", "result").order_by("step__ordinal", "position")
    assert [(c.step.ordinal, c.call_id, c.tool.name, c.args, c.status, c.result.output, c.result.error) for c in calls] == [
        (0, "c1", "weather", {"city": "Shanghai"}, "success", "21 °C", ""),
        (0, "c2", "weather", {"city": "Atlantis"}, "error", "", "No such city."),
        (1, "c3", "write", {}, "success", "written", ""),
        (2, "c1", "read", {}, "success", calls[3].result.output, ""),
    ]  # fmt: skip
    assert calls[1].parent_id == calls[0].pk
    assert (session.input_tokens, session.output_tokens, session.call_count, session.failure_count) == (30, 9, 4, 1)


def test_events_of_a_recorder_become_rows(project: Project) -> None:
    send(project, *RECORDED)
    session = Session.objects.get()
    assert (session.title, session.description, session.end_user, session.tags, session.status) == (
        # The status of the last run, whatever arrived last.
        "Weather", "Two turns.", "bob", ["b", "c"], "error",
    )  # fmt: skip
    assert session.metadata == {"plan": "free", "n": 2, "password": "[redacted]"}
    assert session.redactions == [{"path": "metadata.password", "rule": "password"}]
    question, run, asked, failed = Message.objects.order_by("pk")
    assert [one.request_id for one in (question, run, asked, failed)] == ["req-1", "req-1", "req-2", "req-2"]
    assert (asked.content, asked.content_parts, asked.health) == ("And in Oslo?", PARTS, ["truncated"])
    assert asked.metadata == {"truncated": [{"path": "content_parts[1].url", "bytes": 9}]}
    assert (run.content, run.usage, run.duration_ms) == ("21 °C.", {"input_tokens": 10, "output_tokens": 4}, 7500)
    assert run.completed_at == NOON + timedelta(milliseconds=7500)
    assert run.health == ["events_dropped", "sampled", "truncated"]
    assert run.metadata == {
        "try": 2, "app": "cli", "recorder": {"dropped": 3, "sampled_out": 3, "redacted": 1},
    }  # fmt: skip
    assert (failed.content, failed.content_parts, failed.error) == (
        "Snow.", [{"type": "text", "text": "Snow."}], "Cut short.",
    )  # fmt: skip
    assert failed.health == ["events_dropped", "truncated"]
    assert failed.redactions == [{"path": "content_parts[0].text", "rule": "token"}]
    references = Reference.objects.order_by("message_id", "position")
    assert [(r.message_id, r.reference_id, r.content, r.metadata) for r in references] == [
        (run.pk, "r1", "one", {}), (run.pk, "r2", "", {}), (run.pk, "r3", "", {"color": "red"}),
        (failed.pk, "", "A text only.", {}),
    ]  # fmt: skip
    step = AgentStep.objects.get()
    assert (step.reasoning, step.duration_ms, step.time_to_first_token_ms) == ("Long.", 99, 42)
    assert step.metadata == {
        "temperature": 0, "seed": 2, "truncated": [{"path": "thought", "bytes": 70000}],
    }  # fmt: skip
    outer, inner = ToolCall.objects.select_related("result").order_by("position")
    assert (outer.metadata, outer.status, outer.duration_ms) == ({"try": 2}, "success", 12)
    assert inner.metadata == {"host": "b", "truncated": [{"path": "args.text", "bytes": 5000}]}
    assert (inner.status, inner.result.error, inner.reflection) == ("error", "No.", "The inner tool is down.")
    assert inner.completed_at == NOON + timedelta(seconds=5)
    assert run.redactions == [{"path": f"tool_calls[{inner.pk}].args.key", "rule": "key"}]
    assert Event.objects.get(external_id="e4").data["redactions"] == [{"path": "data.args.key", "rule": "key"}]
    assert list(check(primary, tally=Tally())) == []


def test_losses_are_counted_once_however_often_sent(project: Project) -> None:
    lost = {**said(1, "workflow_execute_start", recorder={"dropped": 2, "sampled_out": 1}), "category": "system"}
    send(project, TRACE[0], {**lost, "id": "l1"}, {**lost, "id": "l1"})
    send(project, {**lost, "id": "l1"}, {**lost, "id": "l2"})
    send(project, {**lost, "id": "l1"})
    assert Message.objects.get(role="assistant").metadata == {"recorder": {"dropped": 4, "sampled_out": 2}}


def test_status_of_session_follows_its_last_turn(project: Project) -> None:
    turns = [
        said(1, "workflow_execute_start"),
        said(2, "workflow_execute_complete", error="No."),
        second(said(3, "workflow_execute_start")),
        second(said(4, "workflow_execute_complete")),
        {**said(5, "workflow_execute_start"), "message_id": "third"},
    ]
    seen = []
    for one in turns:
        send(project, one)
        seen.append((Session.objects.get().status, Session.objects.get().current_phase))
    assert seen == [
        ("running", "execute"), ("error", "complete"), ("running", "execute"), ("completed", "complete"),
        ("running", "execute"),
    ]  # fmt: skip
    # A late event of an earlier turn changes nothing.
    send(project, {**said(2, "workflow_execute_complete", result="Late."), "id": "late"})
    assert Session.objects.get().status == "running"


def test_turn_reads_no_events_of_earlier_turns(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    fold = projection.run_state

    def counted(events: list[projection.EventFact]) -> projection.RunState:
        read.append(len(events))
        return fold(events)

    monkeypatch.setattr(projection, "run_state", counted)
    for turn in range(5):
        name, at = f"run {turn}", turn * 10
        send(project, {**said(at + 1, "workflow_execute_start", prompt="Hello"), "message_id": name})
        send(project, {**said(at + 2, "workflow_execute_complete", result="Bye"), "message_id": name})
    assert max(read) == 2
    # A late event of an earlier turn is folded with the events after it.
    read.clear()
    send(project, {**said(5, "workflow_execute_complete", error="No."), "message_id": "run 0"})
    assert (max(read), Session.objects.get().status) == (11, "completed")


def test_edited_session_stays_until_an_event_changes_it(project: Project) -> None:
    send(project, said(1, "workflow_execute_start", session={"title": "Weather"}))
    Session.objects.update(title="My weather")
    send(project, said(2, "workflow_execute_complete"))
    assert Session.objects.get().title == "My weather"
    send(project, second(said(3, "workflow_execute_start", session={"title": "Climate"})))
    assert Session.objects.get().title == "Climate"


def test_run_is_readable_at_every_moment(project: Project) -> None:
    for at, one in enumerate(TRACE, 1):
        send(project, one)
        assert Message.objects.get(role="assistant").is_completed is (at == len(TRACE))
        assert [event.seq for event in events_after(primary, Session.objects.get().pk, 0, 100)] == list(
            range(1, at + 1)
        )


@settings(
    max_examples=examples(10),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@pytest.mark.parametrize("trace", [TRACE, RECORDED], ids=["all types", "recorded"])
def test_any_order_and_repetition_gives_the_same_rows(
    project: Project, trace: list[dict[str, Any]], data: st.DataObject
) -> None:
    forget_all()
    wanted = expected(project, trace)
    order = data.draw(st.permutations(trace + data.draw(st.lists(st.sampled_from(trace), max_size=8))))
    while order:
        size = data.draw(st.integers(1, 8))
        batch, order = order[:size], order[size:]
        send(project, *batch)
    assert rows() == wanted
    assert sorted(Event.objects.values_list("seq", flat=True)) == list(range(1, len(trace) + 1))


@settings(
    max_examples=examples(10),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.django_db(transaction=True)
@given(data=st.data())
def test_processes_with_different_caches_write_the_same_rows(transactional_db: None, data: st.DataObject) -> None:
    project, _made = Project.objects.get_or_create(slug="owner")
    forget_all()
    trace = data.draw(st.sampled_from([TRACE, RECORDED]))
    wanted = expected(project, trace)
    memories = [run_cache.RunCache() for _process in range(2)]
    events = data.draw(st.sampled_from([trace, None])) or data.draw(st.permutations(trace))
    while events:
        size = data.draw(st.integers(1, 6))
        run_cache.use(data.draw(st.sampled_from(memories)))
        send(project, *events[:size])
        events = events[size:]
    assert rows() == wanted


# Calls of two agents without ids: results are matched by order.
WITHOUT_IDS = [
    said(1, "workflow_execute_start"),
    said(2, "llm_request_start", "n1", step="s1"),
    said(3, "tool_call_start", "n1", name="search", args={"q": "first"}),
    said(4, "tool_call_start", "n2", name="search", args={"q": "other"}),
    said(5, "tool_call_complete", "n1", name="search", result={"success": False, "error": "No."}, duration=5),
    said(6, "tool_call_start", "n1", name="search"),
    said(7, "llm_request_start", "n1", step="s2"),
    said(8, "tool_call_start", "n1", name="search", args={"q": "third"}, metadata={"try": 3}),
    said(9, "tool_call_error", "n2", name="search", error="Gone."),
    said(10, "tool_call_complete", "n1", name="search", result={"data": {"rows": [1]}}),
    said(11, "tool_call_complete", "n1", name="search", result="Found."),
    said(12, "tool_call_complete", "n1", name="read", result="Nobody asked."),
    said(13, "workflow_execute_complete"),
]


@settings(
    max_examples=examples(15),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.django_db(transaction=True)
@given(data=st.data())
def test_calls_without_ids_are_paired_in_any_arrival_order(transactional_db: None, data: st.DataObject) -> None:
    project, _made = Project.objects.get_or_create(slug="owner")
    forget_all()
    wanted = expected(project, WITHOUT_IDS)
    memories = [run_cache.RunCache() for _process in range(2)]
    order = data.draw(st.permutations(WITHOUT_IDS + data.draw(st.lists(st.sampled_from(WITHOUT_IDS), max_size=4))))
    while order:
        size = data.draw(st.integers(1, 6))
        run_cache.use(data.draw(st.sampled_from(memories)))
        send(project, *order[:size])
        order = order[size:]
    found = rows()
    # Events are never changed, so their labels show the order of arrival.
    assert {**found, "events": None} == {**wanted, "events": None}
    called = ToolCall.objects.select_related("result").order_by("started_at")
    assert [(call.args, call.status, call.result.error or call.result.output or call.result.data) for call in called] == [
        ({"q": "first"}, "error", "No."), ({"q": "other"}, "error", "Gone."), ({}, "success", {"rows": [1]}),
        ({"q": "third"}, "success", "Found."), ({}, "success", "Nobody asked."),
    ]  # fmt: skip
    assert {problem.kind for problem in check(primary, tally=Tally())} == {"orphan_result"}


@pytest.mark.parametrize("at_once", [1, 3, len(TRACE)])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("trace", [TRACE, RECORDED], ids=["all types", "recorded"])
def test_events_with_referenced_data_give_the_same_rows(
    project: Project, monkeypatch: pytest.MonkeyPatch, trace: list[dict[str, Any]], at_once: int, backwards: bool
) -> None:
    wanted = expected(project, trace)
    monkeypatch.setattr(contexts, "MOST", 20)
    monkeypatch.setattr(contexts, "_WORTH", 1)
    told = trace[::-1] if backwards else trace
    for at in range(0, len(told), at_once):
        send(project, *told[at : at + at_once])
    assert rows() == wanted
    assert Context.objects.filter(kind="value").count() > len(trace) / 2


def test_run_addressed_by_id_has_the_same_question(project: Project) -> None:
    send(project, {"type": "workflow_execute_start", "data": {"prompt": "What now?"}})
    run = Message.objects.get(role="assistant")
    send(project, {"type": "workflow_execute_complete", "message_id": str(run.pk), "data": {"result": "This."}})
    messages = Message.objects.order_by("pk").values_list("role", "external_id", "content", "is_completed")
    assert list(messages) == [("user", "run:prompt", "What now?", True), ("assistant", "run", "This.", True)]


@pytest.mark.django_db(transaction=True)
def test_two_senders_of_the_same_events_write_rows_once() -> None:
    project = Project.objects.create(slug="owner")
    send(project, *TRACE)
    wanted = rows()
    forget_all()
    halves = [TRACE[::-1], TRACE[5:] + TRACE[:8]]

    def tell(events: list[dict[str, Any]]) -> None:
        try:
            for at in range(0, len(events), 3):
                send(project, *events[at : at + 3])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as senders:
        list(senders.map(tell, halves))
    assert rows() == wanted
    assert [event.seq for event in events_after(primary, Session.objects.get().pk, 0, 100)] == list(
        range(1, len(TRACE) + 1)
    )


@pytest.mark.django_db(transaction=True)
def test_two_senders_of_a_conversation_store_it_once(transactional_db: None) -> None:
    project = Project.objects.create(slug="owner")
    messages = [f"message {number}" for number in range(40)]

    def tell(sender: str) -> None:
        try:
            for upto in range(1, len(messages) + 1):
                send(project, {**said(upto, "llm_request_start", messages=messages[:upto]), "id": f"{sender}{upto}"})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as senders:
        list(senders.map(tell, "ab"))
    assert Context.objects.filter(kind="entry").count() == len(messages)
    assert Context.objects.filter(kind="conversation").count() == len(messages)
    assert Event.objects.count() == 2 * len(messages)


@pytest.mark.django_db(transaction=True)
def test_one_notification_per_batch_names_every_session(transactional_db: None) -> None:
    project = Project.objects.create(slug="owner")
    with connection.cursor() as cursor:
        cursor.execute("LISTEN traces_app_events")
        record_events(
            primary,
            project.pk,
            [
                redact_event(event, DEFAULT_RULES)
                for name in ("one", "two")
                for event in events_of(
                    {"type": "agent_start", "id": "a"}, {"type": "agent_start", "id": "b"}, session=name
                )
            ],
        )
        (notice,) = connection.connection.notifies(timeout=60, stop_after=1)
        cursor.execute("UNLISTEN traces_app_events")
    told = {str(session.pk): "1 2" for session in Session.objects.all()}
    assert {part.partition(" ")[0]: part.partition(" ")[2] for part in notice.payload.split(";")} == told


def test_secrets_are_redacted_in_events_and_their_rows(project: Project) -> None:
    send(
        project,
        {"type": "tool_call_start", "data": {"call_id": "c", "name": "login", "args": {"password": "s3cret-word"}}},
    )
    assert ToolCall.objects.get().args == {"password": "[redacted]"}
    event = Event.objects.get()
    assert event.data["args"] == {"password": "[redacted]"}
    assert [receipt["path"] for receipt in event.data["redactions"]] == ["data.args.password"]
    path = f"tool_calls[{ToolCall.objects.get().pk}].args.password"
    assert Message.objects.get().redactions == [{"path": path, "rule": "password"}]


def test_receipts_of_producer_are_kept_beside_ours(project: Project) -> None:
    own = [{"path": "data.prompt", "rule": "mine"}]
    data = {"prompt": "[redacted]", "metadata": {"password": "s3cret-word"}, "redactions": own}
    send(project, {"type": "workflow_execute_start", "id": "e", "message_id": RUN_ID, "data": data})
    found = {"path": "data.metadata.password", "rule": "password"}
    assert Event.objects.get().data["redactions"] == [*own, found]
    question, run = Message.objects.order_by("pk")
    assert (question.redactions, run.redactions) == (
        [{"path": "content", "rule": "mine"}], [{"path": "metadata.password", "rule": "password"}],
    )  # fmt: skip


def test_late_event_changes_a_completed_run(project: Project) -> None:
    send(project, *TRACE[:7], TRACE[-1])
    send(project, *TRACE[7:-1])
    session = Session.objects.get()
    assert (session.status, session.call_count) == ("completed", 4)


def test_event_of_trashed_run_is_refused_and_blocks_nothing(project: Project) -> None:
    send(project, TRACE[0])
    delete_message(primary, UUID(RUN_ID), by="test")
    other = {"type": "agent_start", "id": "other", "message_id": "second"}
    outcomes = send(project, TRACE[6], other, TRACE[7])
    assert [(one.state, one.refused, one.seq) for one in outcomes] == [
        ("refused", "message_deleted", None), ("stored", None, 2), ("refused", "message_deleted", None),
    ]  # fmt: skip
    assert not AgentStep.with_deleted.exists()


@pytest.mark.parametrize("is_remembered", [True, False])
def test_purged_run_is_not_revived(
    project: Project, django_capture_on_commit_callbacks: Any, is_remembered: bool
) -> None:
    with django_capture_on_commit_callbacks(execute=is_remembered):
        send(project, *TRACE[:8])
    delete_message(primary, UUID(RUN_ID), by="test")
    purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(seconds=1)))
    (outcome,) = send(project, TRACE[8])
    assert (outcome.state, outcome.refused) == ("refused", "message_purged")
    assert not AgentStep.with_deleted.exists()
    assert not Event.objects.exists()


def test_purged_session_is_not_revived(project: Project) -> None:
    send(project, TRACE[0])
    delete_session(primary, Session.objects.get().pk, by="test")
    purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(seconds=1)))
    (outcome,) = send(project, TRACE[1])
    assert (outcome.state, outcome.refused) == ("refused", "session_purged")
    assert not Session.with_deleted.exists()
    assert not Event.objects.exists()


def test_names_of_any_length_and_characters_are_accepted(project: Project) -> None:
    odd = "\x00" + "界" * 511
    send(
        project,
        {
            "type": "tool_call_start",
            "agent": odd,
            "id": odd,
            "data": {"call_id": odd * 3, "name": odd * 2, "step": odd * 9},
        },
    )
    assert ToolCall.objects.count() == 1
    (again,) = send(project, {"type": "tool_call_start", "agent": odd, "id": odd, "data": {}})
    assert again.state == "duplicate"


def test_result_without_tool_name_creates_no_tool(project: Project) -> None:
    send(project, *TRACE)
    assert set(Tool.objects.values_list("name", flat=True)) == {"weather", "write", "read"}


def turn(number: int) -> list[dict[str, Any]]:
    """Five events of a step with two calls, the second inside the first and ended by the next step."""
    first, call = 5 * number + 1, {"call_id": f"c{number}", "name": "search"}
    return [
        said(first, "llm_request_complete", "n1", step=f"s{number}", thought="Look.", usage={"input_tokens": 7}),
        said(first + 1, "tool_call_error", "n1", call_id=f"d{number - 1}", name="open", error="Gone."),
        said(first + 2, "tool_call_start", "n1", **call, args={"q": number}),
        said(first + 3, "tool_call_complete", "n1", **call, result="Found."),
        said(first + 4, "tool_call_start", "n1", call_id=f"d{number}", name="open", parent=f"c{number}"),
    ]


def turns(first: int, last: int, session: str) -> list[dict[str, Any]]:
    run = str(ids.message_id(NOON, "assistant", 0, (session, "run")))
    return [one | {"message_id": run} for number in range(first, last) for one in turn(number)]


def rows_read() -> Counter[str]:
    """Return the number of rows of each table that this transaction has read."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT regexp_replace(relname, '_y\\d+m\\d+$', ''), coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) "
            "FROM pg_stat_xact_user_tables"
        )
        read: Counter[str] = Counter()
        for table, rows in cursor.fetchall():
            read[table] += rows
        return read


@pytest.fixture
def plans_of_a_server(db: None) -> None:
    """Plan by index, as the connections of a server do: what the planner knows of tables this small changes while a test runs."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; DISCARD PLANS")


def test_batch_costs_the_same_however_long_the_run(
    project: Project, plans_of_a_server: None, django_capture_on_commit_callbacks: Any
) -> None:
    before = {"short": 2, "long": 400}
    for session, number in before.items():
        history = turns(0, number, session)
        size = min(200, len(history) // 2)
        for at in range(0, len(history), size):
            with django_capture_on_commit_callbacks(execute=True):
                send(project, *history[at : at + size], session=session)
    with connection.cursor() as cursor:
        # Otherwise the planner guesses from what earlier tests left of the indexes, and may take one that leads through the whole run.
        cursor.execute(
            "ANALYZE traces_app_event, traces_app_agentstep, traces_app_toolcall, messages_app_message; DISCARD PLANS"
        )
    statements, read = {}, {}
    for session, number in before.items():
        batch = turns(number, number + 4, session)
        with CaptureQueriesContext(connection) as queries:
            earlier = rows_read()
            send(project, *batch, session=session)
            read[session] = rows_read() - earlier
        statements[session] = [query.split(" ", 1)[0] for query in statements_in(queries)]
    assert statements["long"] == statements["short"]
    # By which index a row is found is up to the planner. What reads the run reads at least a row for each of its 400 turns.
    assert {table: rows for table, rows in (read["long"] - read["short"]).items() if rows > 100} == {}
    assert Message.objects.order_by("-call_count").first().call_count == 2 * 404 + 1


def send_as(project: Project, type_: EventType, *documents: dict[str, Any]) -> None:
    """Send events, with `type_` for those of type "a_note", which the schema does not have."""
    names = [one["type"] for one in documents]
    events = events_of(
        *({**one, "type": name.replace("a_note", "prompt_build")} for one, name in zip(documents, names, strict=True))
    )
    typed = [
        replace(event, type=type_) if name == "a_note" else event for event, name in zip(events, names, strict=True)
    ]
    record_events(primary, project.pk, [redact_event(event, DEFAULT_RULES) for event in typed])


@pytest.fixture
def call_note(monkeypatch: pytest.MonkeyPatch) -> EventType:
    """Declare an event type that is a note on a call."""
    name: Any = "tool_retried"
    monkeypatch.setitem(EVENT_TYPES, name, EventSpec("call", "note", None, "tool", "warn"))
    return name  # type: ignore[no-any-return]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_note_on_a_call_adds_to_it_and_ends_nothing(
    project: Project, call_note: EventType, order: tuple[int, ...]
) -> None:
    sent = [
        said(1, "tool_call_start", "n1", call_id="c1", name="search", args={"q": "x"}),
        said(2, "a_note", "n1", call_id="c1", reflection="Again.", metadata={"tries": 2}),
        said(3, "tool_call_complete", "n1", call_id="c1", result="found"),
    ]
    send_as(project, call_note, *sent[:2])
    call = ToolCall.objects.get()
    assert (call.status, call.started_at, call.completed_at) == ("pending", sent[0]["timestamp"], None)
    assert (call.reflection, call.metadata) == ("Again.", {"tries": 2})
    assert not ToolResult.objects.exists()
    forget_all()
    for at in order:
        send_as(project, call_note, sent[at])
    call = ToolCall.objects.get()
    assert (call.status, call.started_at, call.completed_at) == (
        "success", sent[0]["timestamp"], sent[2]["timestamp"],
    )  # fmt: skip
    assert (call.tool.name, call.reflection, call.metadata, call.result.output) == (
        "search", "Again.", {"tries": 2}, "found",
    )  # fmt: skip
    assert Message.objects.get().health == []


def test_note_alone_makes_no_result_without_a_call(project: Project, call_note: EventType) -> None:
    send_as(project, call_note, said(1, "a_note", "n1", call_id="c1", name="search"))
    call = ToolCall.objects.get()
    assert (call.status, call.started_at, call.completed_at, call.metadata) == ("pending", None, None, {})
    assert Message.objects.get().health == []


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_note_without_a_call_id_pairs_with_no_call(
    project: Project, call_note: EventType, order: tuple[int, ...]
) -> None:
    sent = [
        said(1, "tool_call_start", "n1", name="search", args={"q": "x"}),
        said(2, "a_note", "n1", name="search", reflection="Again."),
        said(3, "tool_call_complete", "n1", name="search", result="found"),
    ]
    for at in order:
        send_as(project, call_note, sent[at])
    call = ToolCall.objects.get()
    assert (call.call_id, call.status, call.reflection, call.result.output) == ("#0 search", "success", "", "found")
    assert call.started_at == sent[0]["timestamp"]
    note = Event.objects.get(type=call_note)
    assert (note.subject, "call_id" in note.data) == ("", False)
