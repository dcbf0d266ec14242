"""Tests of traces_app/maintenance/plain_order.py: what it calls plain has no problem, and what has one is reported by the check."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import F

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.sql import count_below
from traces_app.maintenance.integrity import Tally, check
from traces_app.maintenance.plain_order import verdicts
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from tracesite_sdk.normalize.rollup import Rollup, duration_between
from tracesite_sdk.records import ids

pytestmark = pytest.mark.django_db


def call(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "name": "search", "args": {}, "result": {"output": "3 hits"}, **fields}


def plain(**fields: Any) -> dict[str, Any]:
    """Three steps of a model with tokens: two calls, one with a call in it, and none."""
    said = {"model": "m", "usage": {"input_tokens": 20, "output_tokens": 5}}
    return {
        "external_id": "a1",
        "role": "assistant",
        "content": "Three.",
        "created_at": NOON,
        "completed_at": NOON + timedelta(seconds=2),
        "agent_steps": [
            {"iteration": 0, "tool_calls": [call("a", duration=40), call("b", duration=50)], **said},
            {
                "iteration": 1,
                "tool_calls": [call("c", duration=60, uuid="outer"), call("d", duration=55, parent="outer")],
                **said,
            },
            {"iteration": 2, **said},
        ],
        **fields,
    }


def changed_steps(**fields: Any) -> list[dict[str, Any]]:
    return [{**step, **fields} for step in plain()["agent_steps"]]


def kinds() -> set[str]:
    return {problem.kind for problem in check(primary, tally=Tally())}


def verdict_on(message_id: UUID) -> bool:
    (found,) = verdicts(primary, [message_id])
    return found.is_plain


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"usage": {"promptTokens": 7}},
        {"agent_steps": changed_steps(usage={"prompt_tokens": 3, "completion_tokens": 0}, duration=70)},
        {"agent_steps": changed_steps(usage=None), "completed_at": None},
        {"agent_steps": changed_steps(duration=70), "completed_at": None},
        {"agent_steps": changed_steps(tool_calls=[]), "completed_at": None},
        {"agent_steps": changed_steps(tool_calls=[call("e", result={"success": False, "error": "no"})])},
        {"agent_steps": [], "completed_at": None},
        {"is_completed": False, "completed_at": None, "agent_steps": [{"tool_calls": [call("f", result=None)]}]},
    ],
)
def test_usual_messages_are_plainly_in_order(project: Project, fields: dict[str, Any]) -> None:
    message_id = store(project, plain(**fields)).messages[0].id
    assert message_id
    steps, calls = AgentStep.objects.count(), ToolCall.objects.count()
    assert verdicts(primary, [message_id]) == [(message_id, steps, calls, True)]
    assert kinds() == set()


_MESSAGE, _STEP, _CALL = "messages_app_message", "traces_app_agentstep", "traces_app_toolcall"
_NOWHERE = "'00000000-0000-0000-0000-000000000001'"
_ELSEWHERE = ids.child_id(ids.message_id(NOON + timedelta(seconds=1), "assistant"), "row")


def test_every_damage_of_a_plain_message_is_found(project: Project, stranger: Project) -> None:
    message_id = store(project, plain()).messages[0].id
    assert message_id
    store(project, plain(created_at=NOON + timedelta(seconds=1)), external_id="later")
    assert verdict_on(message_id), "without this, the check reads its rows anyway"
    theirs = f"(SELECT id FROM access_app_project WHERE id = {stranger.pk})"
    missed = []
    for kind, table, change in (
        *(("message_counts", _MESSAGE, f"{name} = 9") for name in Rollup._fields),
        ("message_counts", _MESSAGE, "duration_ms = NULL"),
        ("message_counts", _MESSAGE, "duration_ms = 1999"),
        ("message_counts", _MESSAGE, "completed_at = NULL"),
        ("message_counts", _MESSAGE, """usage = '{"input_tokens": 1}'"""),
        ("message_counts", _STEP, """usage = '{"input_tokens": 21, "output_tokens": 5}'"""),
        ("message_counts", _STEP, "usage = NULL, model = ''"),
        ("message_counts", _STEP, "cost = 1"),
        ("message_counts", _STEP, """metadata = '{"error": "overloaded"}'"""),
        ("message_counts", _CALL, "status = 'error'"),
        ("iterations_missing", _STEP, "iteration = 7"),
        ("input_missing", _STEP, "input_ref = 'ctx_1'"),
        ("call_open", _CALL, "status = 'pending'"),
        ("orphan_result", _MESSAGE, "health = '{other,orphan_result}'"),
        ("step_missing", _CALL, f"step_id = {_NOWHERE}"),
        ("parent_missing", _CALL, f"parent_id = {_NOWHERE}"),
        ("parent_missing", _CALL, f"parent_id = (SELECT id FROM {_CALL} WHERE message_id <> '{message_id}' LIMIT 1)"),
        ("parent_missing", _MESSAGE, "health = '{parent_unknown}'"),
        ("parent_cycle", _CALL, "parent_id = id"),
        ("session_missing", _MESSAGE, f"session_id = {_NOWHERE}"),
        ("project_differs", _MESSAGE, f"project_id = {theirs}"),
        ("project_differs", "messages_app_session", f"project_id = {theirs}"),
        ("project_differs", _CALL, f"project_id = {theirs}"),
        ("project_differs", "traces_app_tool", f"project_id = {theirs}"),
        ("time_differs", _MESSAGE, "created_at = created_at + interval '1 microsecond'"),
        ("time_differs", _MESSAGE, "role = 'user'"),
        ("time_differs", _STEP, f"id = '{_ELSEWHERE}'"),
    ):
        with transaction.atomic(), connection.cursor() as cursor:
            # The same row each time: the last step, which has no calls, and the first call, which has none in it.
            order = {_STEP: "message_id, iteration DESC", _CALL: "message_id, call_id"}.get(table, "id")
            cursor.execute(f"UPDATE {table} SET {change} WHERE id = (SELECT id FROM {table} ORDER BY {order} LIMIT 1)")
            if kind not in kinds():
                missed.append((kind, table, change))
            transaction.set_rollback(True)
    assert missed == []
    with transaction.atomic():
        ToolCall.objects.update(project=stranger)
        Tool.objects.update(project=stranger)
        assert "project_differs" in kinds()
        transaction.set_rollback(True)
    with transaction.atomic():
        AgentStep.objects.filter(iteration=1).update(iteration=2)
        assert "iterations_repeated" in kinds()
        transaction.set_rollback(True)
    open_call = ToolCall.objects.filter(pk=ToolCall.objects.filter(message=message_id).earliest("call_id").pk)
    ToolResult.objects.filter(pk=open_call.get().pk).delete()
    assert kinds() == {"call_without_result"}
    assert not verdict_on(message_id)
    open_call.update(status="pending")
    Message.objects.filter(pk=message_id).update(is_completed=False)
    assert verdict_on(message_id)
    open_call.update(id=_ELSEWHERE)
    assert "time_differs" in kinds()


USAGES: list[dict[str, Any]] = [
    {"input_tokens": 5},
    {"input_tokens": 0, "prompt_tokens": 5},
    {"input_tokens": None, "prompt_tokens": 5},
    {"input_tokens": "5", "promptTokens": 5},
    {"input_tokens": "5"},
    {"input_tokens": -5},
    {"input_tokens": 5.0},
    {"input_tokens": 5.4},
    {"input_tokens": True},
    {"input_tokens": [5]},
    {"input_tokens": 10**12},
    {"input_tokens": 10**12 + 1, "inputTokens": 5},
    {"input_tokens": 10**40},
]


def test_tokens_are_counted_like_those_that_are_stored(project: Project) -> None:
    """Whatever a message says, the check reports it if and only if its rows add up to something else."""
    forms = [*((usage, {"input_tokens": 1}) for usage in USAGES), *((None, usage) for usage in USAGES)]
    counted = {}
    for message_id, (of_message, of_steps) in zip(several(project, len(forms)), forms, strict=True):
        Message.objects.filter(pk=message_id).update(usage=of_message)
        AgentStep.objects.filter(message=message_id).update(usage=of_steps)
        counted[message_id] = count_below(primary, Message.objects.get(pk=message_id)).input_tokens
    assert len(set(counted.values())) == 6
    for said in {0, 3, 10**12 + 1, *counted.values()}:
        Message.objects.update(input_tokens=said, output_tokens=0)
        assert with_wrong_counts() == {message_id for message_id, tokens in counted.items() if tokens != said}


def test_durations_are_rounded_like_those_that_are_stored(project: Project) -> None:
    times = [timedelta(microseconds=number) for number in (-1, 0, 499, 500, 501, 1500, 2500)]
    message_ids = several(project, len(times))
    for message_id, time in zip(message_ids, times, strict=True):
        Message.objects.filter(pk=message_id).update(completed_at=F("created_at") + time)
    rounded = [duration_between(NOON, NOON + time, None) for time in times]
    for said in range(4):
        Message.objects.update(duration_ms=said)
        found = with_wrong_counts()
        assert [message_id in found for message_id in message_ids] == [number != said for number in rounded]


def test_duration_of_a_message_with_some_timed_steps_is_compared(project: Project) -> None:
    timed, *others = plain()["agent_steps"]
    (message,) = store(project, plain(agent_steps=[{**timed, "duration": 70}, *others], completed_at=None)).messages
    stored = Message.objects.get(pk=message.id).duration_ms
    said = [None, 0, 60, 70, 130, 150, 220]
    assert stored in said
    for duration in said:
        Message.objects.update(duration_ms=duration)
        assert with_wrong_counts() == (set() if duration == stored else {message.id})


def several(project: Project, number: int) -> list[UUID]:
    """Store so many plain messages; return their ids."""
    messages = [plain(external_id=str(place), created_at=NOON + timedelta(seconds=place)) for place in range(number)]
    return [message.id for message in store(project, *messages).messages if message.id]


def with_wrong_counts() -> set[UUID | None]:
    return {problem.message_id for problem in check(primary, tally=Tally()) if problem.kind == "message_counts"}
