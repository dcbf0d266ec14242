"""Any batches from any number of concurrent senders store each message once, complete, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from sdk.tests.length import examples
from tests.traces_app.conftest import NOON, session_of
from traces_app.ingest.pipeline import ingest
from traces_app.models import AgentStep, ToolCall

numbers = count()

texts = st.text(st.characters(codec="utf-8"), max_size=20)
calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["search", "read", "写"]),
        "args": st.dictionaries(texts, st.integers() | texts, max_size=2),
    },
    optional={
        "id": st.sampled_from(["call_1", "call_2"]),
        "duration": st.integers(0, 5000),
        "result": st.fixed_dictionaries({"success": st.booleans(), "output": texts}),
    },
)
steps = st.fixed_dictionaries(
    {"thought": texts, "tool_calls": st.lists(calls, max_size=3)}, optional={"iteration": st.integers(0, 3)}
)


@st.composite
def messages(draw: st.DrawFn, number: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "assistant", "system"]))
    message: dict[str, Any] = {"external_id": f"m{number}", "role": role, "content": f"{number} " + draw(texts)}
    if draw(st.booleans()):
        # Few different times, so that many messages have the same one.
        message["created_at"] = NOON + timedelta(seconds=draw(st.integers(0, 3)))
    if role == "assistant":
        message["agent_steps"] = draw(st.lists(steps, max_size=3))
    return message


@st.composite
def conversations(draw: st.DrawFn) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return batches of (session, message): each message at least once complete, some repeated, some in earlier states, too."""
    sent: list[tuple[str, dict[str, Any]]] = []
    for session in ("one", "two")[: draw(st.integers(1, 2))]:
        for number in range(draw(st.integers(1, 6))):
            message = draw(messages(number))
            if message.get("agent_steps") and draw(st.booleans()):
                early = {**message, "is_completed": False, "content": "", "agent_steps": message["agent_steps"][:1]}
                sent.append((session, early))
            sent += [(session, message)] * draw(st.integers(1, 2))
    sent = draw(st.permutations(sent))
    batches = []
    while sent:
        size = draw(st.integers(1, len(sent)))
        batches.append(sent[:size])
        sent = sent[size:]
    return batches


@pytest.mark.django_db(transaction=True)
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=conversations(), senders=st.integers(1, 3))
def test_any_batches_store_each_message_once_and_in_order(
    transactional_db: None, batches: list[list[tuple[str, dict[str, Any]]]], senders: int
) -> None:
    project, _created = Project.objects.get_or_create(slug="property")
    prefix = f"{next(numbers)}-"
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(lambda batch: send(project, prefix, batch), batches))

    expected: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for batch in batches:
        for session, message in batch:
            if message.get("is_completed", True):
                expected[session][message["external_id"]] = message
    for session, said in expected.items():
        row = Session.objects.get(project=project, external_id=prefix + session)
        stored = list(Message.objects.filter(session=row).order_by("id"))
        assert sorted(message.external_id for message in stored) == sorted(said)
        for message in stored:
            assert_whole(message, said[message.external_id])
        assert_in_order(stored)
        assert (row.message_count, row.call_count, row.failure_count) == (
            len(stored),
            sum(message.call_count for message in stored),
            sum(message.failure_count for message in stored),
        )


def send(project: Project, prefix: str, batch: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Send a request with the sessions of the batch in the order of their first messages."""
    of_session: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for session, message in batch:
        of_session[session].append(message)
    try:
        ingest(
            primary,
            project.pk,
            [session_of(*said, external_id=prefix + session) for session, said in of_session.items()],
        )
    finally:
        connection.close()


def assert_whole(message: Message, said: dict[str, Any]) -> None:
    assert (message.role, message.is_completed, message.version >= 1) == (said["role"], True, True)
    assert message.content == said["content"].replace("\x00", "\\u0000")
    if "created_at" in said:
        assert message.created_at == said["created_at"]
    expected_calls = [call for step in said.get("agent_steps", ()) for call in step["tool_calls"]]
    stored = ToolCall.objects.filter(message=message)
    assert AgentStep.objects.filter(message=message).count() == len(said.get("agent_steps", ())) == message.step_count
    assert stored.count() == len(expected_calls) == message.call_count
    failed = sum("result" in call and not call["result"]["success"] for call in expected_calls)
    assert stored.filter(status="error").count() == failed == message.failure_count
    assert stored.filter(result__isnull=False).count() == sum("result" in call for call in expected_calls)
    assert sorted(call.tool.name for call in stored.select_related("tool")) == sorted(c["name"] for c in expected_calls)


def assert_in_order(stored: list[Message]) -> None:
    places = [(message.created_at, message.role == "assistant") for message in stored]
    assert places == sorted(places)
