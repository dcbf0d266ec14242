"""What the models of steps were asked, as events say it: one input for each step, whatever their order, and stored once."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.length import examples
from traces_app.maintenance.integrity import Tally, check
from traces_app.models import AgentStep, Context, Event
from traces_app.queries.contexts import inputs
from tracesite_sdk.events import contexts

from .test_store import forget_all, said, send

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
SECRET = "sk-ant-api03-" + "Ab3dE" * 18 + "-x9AA"


def conversation(length: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {'x' * 200}"} for n in range(length)]


def start(number: int, step: str = "s1", **data: Any) -> dict[str, Any]:
    return said(number, "llm_request_start", "n1", step=step, model="gpt", **data)


def end(number: int, step: str = "s1", **data: Any) -> dict[str, Any]:
    return said(number, "llm_request_complete", "n1", step=step, **data)


def asked() -> list[Any]:
    """Return the inputs of all steps, in order, as they are read; None for a step without one."""
    steps = list(AgentStep.objects.order_by("ordinal"))
    found = inputs(primary, [(str(step.message_id), step.input_ref) for step in steps if step.input_ref])
    return [
        msgspec.json.decode(msgspec.json.encode(found[(str(step.message_id), step.input_ref)]))
        if step.input_ref
        else None
        for step in steps
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"request": {"messages": conversation(2), "tools": TOOLS, "temperature": 0, "max_tokens": None}},
            {"messages": conversation(2), "tools": TOOLS, "parameters": {"temperature": 0}},
        ),
        (
            {"request": {"system": "Plan.", "messages": conversation(1), "max_tokens": 9}},
            {"messages": conversation(1), "system": "Plan.", "parameters": {"max_tokens": 9}},
        ),
        (
            {"request": {"instructions": "Plan.", "input": conversation(1), "tools": TOOLS}},
            {"messages": conversation(1), "system": "Plan.", "tools": TOOLS},
        ),
        ({"request": conversation(3)}, {"messages": conversation(3)}),
        ({"request": "Hello?"}, {"messages": [{"role": "user", "content": "Hello?"}]}),
        (
            {"messages": conversation(1), "system": "Plan.", "tools": TOOLS, "parameters": {"top_p": 1}},
            {"messages": conversation(1), "system": "Plan.", "tools": TOOLS, "parameters": {"top_p": 1}},
        ),
        ({"conversation": conversation(1)}, {"messages": conversation(1)}),
        ({"request": [[]], "conversation": "", "messages": conversation(1)}, {"messages": conversation(1)}),
        ({"request": {"messages": [], "temperature": None}}, None),
        ({"request": [[]], "messages": [[]]}, None),
        ({"request": 7}, {"messages": [7]}),
        ({}, None),
    ],
)
def test_request_of_any_shape_becomes_input(project: Project, data: dict[str, Any], expected: Any) -> None:
    send(project, start(1, **data))
    send(project, end(2, thought="Hm."))
    assert asked() == [expected]
    assert list(check(primary, tally=Tally())) == []


def test_input_is_the_last_request_in_any_arrival_order(project: Project) -> None:
    events = [
        start(1, request={"messages": conversation(1), "tools": TOOLS}),
        start(2, request={"messages": conversation(3)}),
        end(3, thought="Hm.", usage={"input_tokens": 3}, time_to_first_token=412.4),
        end(4, thought="Hm!", timeToFirstToken="soon"),
    ]
    for order in permutations(events):
        for one in order:
            send(project, one)
        assert asked() == [{"messages": conversation(3)}]
        assert AgentStep.objects.get().time_to_first_token_ms == 412
        forget_all()


def test_request_in_the_end_of_a_step_is_its_input(project: Project) -> None:
    send(project, end(2, thought="Hm.", request={"messages": conversation(2), "top_p": 1}))
    send(project, start(1))
    assert asked() == [{"messages": conversation(2), "parameters": {"top_p": 1}}]
    # Of the end of a request, other fields hold its response.
    send(project, end(4, "s2", messages=conversation(3), tools=TOOLS))
    assert asked()[1] is None


@pytest.mark.parametrize("name", ["messages", "input", ""])
def test_conversation_that_grows_is_stored_once(project: Project, name: str) -> None:
    tools = [{**TOOLS[0], "description": "y" * contexts.MOST}] if name else []
    for n in range(10):
        messages = conversation(n + 1)
        request = {name: messages, "tools": tools} if name else messages
        # Half of the requests are sent with the end of their step.
        send(project, start(2 * n + 1, f"s{n}", **({"request": request} if n % 2 else {})))
        send(project, end(2 * n + 2, f"s{n}", thought="Hm.", **({} if n % 2 else {"request": request})))
        send(project, {**end(2 * n, f"s{n}", thought="Late."), "id": f"late {n}"})
    assert [len(one["messages"]) for one in asked()] == list(range(1, 11))
    assert Context.objects.filter(kind="entry").count() == 10 + len(tools)
    values = Context.objects.filter(kind="value").count()
    assert values == len(tools), "the rest of the request is in the events by reference"
    assert Event.objects.get(external_id="e19").data["conversationLength"] == 10
    assert list(check(primary, tally=Tally())) == []


def test_secret_in_request_is_redacted_with_path_of_input(project: Project) -> None:
    request = {"input": [{"role": "user", "content": f"My key is {SECRET}"}], "instructions": SECRET, "api_key": SECRET}
    send(project, start(1, request=request))
    assert SECRET not in repr(list(Context.objects.values_list("content")) + list(Event.objects.values_list("data")))
    step = AgentStep.objects.get()
    assert sorted(one["path"] for one in Message.objects.get().redactions) == [
        f"agent_steps[{step.pk}].input.{path}" for path in ("messages[0].content", "parameters.api_key", "system")
    ]


def test_cut_request_is_said_at_its_step(project: Project) -> None:
    cuts = [{"path": path, "bytes": 9} for path in ("data.request", "data.request[0].content", "data.messages[1]")]
    send(project, start(1, request=conversation(1), truncated=cuts))
    step = AgentStep.objects.get()
    paths = [one["path"] for one in step.metadata["truncated"]]
    assert paths == ["input", "input.messages[0].content", "input.messages[1]"]
    assert Message.objects.get().health == ["truncated"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["messages", "input", "system", "tools", "role", "contextRef", "x"]), below)
    ),
    max_leaves=9,
)
_NAMES = ("request", "messages", "conversation", "system", "tools", "parameters", "time_to_first_token")


@settings(
    max_examples=examples(25),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.lists(st.dictionaries(st.sampled_from(_NAMES), _JSON), min_size=2, max_size=3))
# A batch of LangChain without a message says nothing, and what says nothing hides no other field.
@example(data=[{"request": [1]}, {"request": [[]]}])
@example(data=[{"request": [1]}, {}, {"request": {"messages": [[]]}}])
@example(data=[{"request": [1]}, {}, {"request": {"x": None}, "messages": [2]}])
@example(data=[{"request": [1]}, {}, {"conversation": "", "messages": [2]}])
@example(data=[{"request": [1]}, {"request": [[]], "messages": [2]}])
def test_any_values_give_the_same_input_in_both_orders(project: Project, data: list[dict[str, Any]]) -> None:
    events = [(start, end, start)[n](n, **fields) for n, fields in enumerate(data)]
    found = []
    for order in (events, events[::-1]):
        for one in order:
            send(project, one)
        found.append((asked(), AgentStep.objects.get().time_to_first_token_ms))
        assert list(check(primary, tally=Tally())) == []
        forget_all()
    assert found[0] == found[1]
