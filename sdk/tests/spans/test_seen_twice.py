"""What two spans have seen is there once: a request, a handoff, a tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sdk.tests.spans.test_pairs import LEFT, RIGHT, agent, calls_of, chat, part, response, span, tool
from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Scope, Span

TOKENS: dict[str, Any] = {"gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 3}


def by(library: str, one: Span, *, until: float = 0.0) -> Span:
    return replace(one, scope=Scope(name=library), end=one.end + int(until * 10**9))


def steps_of(*spans: Span) -> list[tuple[Any, ...]]:
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    return [
        ([(call.id, call.name) for call in step.tool_calls or ()], step.usage)
        for message in session.messages or ()
        for step in message.agent_steps or ()
    ]


@pytest.mark.parametrize(
    "answer", [[part({"n": 1}, "c1")], [part({"n": 1})], []], ids=["call", "call without id", "text"]
)
@pytest.mark.parametrize("parent", [1, 9, 0], ids=["sibling", "elsewhere", "outside"])
def test_request_that_two_libraries_have_seen_is_one_step(answer: list[Any], parent: int) -> None:
    outer = by("langchain", chat(2, 1, 1, *answer), until=0.05)
    inner = by("openai", chat(3, parent, 1.01, *answer, **TOKENS))
    spans = [agent(1), span(9, 1, 0.5, "chain", 8), outer, inner]
    calls = [(None if "id" not in call else "c1", "book") for call in answer]
    assert steps_of(*spans) == [(calls, {"input_tokens": 7, "output_tokens": 3})]


def test_request_without_content_that_two_libraries_have_seen_is_one_step() -> None:
    one = span(2, 1, 1, "chat m", gen_ai__operation__name="chat", **TOKENS)
    assert len(steps_of(agent(1), by("a", one), by("b", replace(one, span_id=f"{3:016x}")))) == 1


def request(number: int, library: str, answer: str | None = "Yes", *, parent: int = 1, **more: Any) -> Span:
    """Return a request of two seconds."""
    said = [{"type": "text", "content": answer}] if answer is not None else []
    asked = chat(number, parent, 1 + number / 1000, *said, **TOKENS, **more)
    gone = [] if said else ["gen_ai.input.messages", "gen_ai.output.messages"]
    attributes = {name: value for name, value in asked.attributes.items() if name not in gone}
    return by(library, replace(asked, attributes=attributes), until=2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (request(2, "a", asked="Is it safe?"), request(3, "b", asked="Is it polite?")),
        (request(2, "a", gen_ai__request__model="gpt-4o"), request(3, "b", gen_ai__request__model="gpt-4o-mini")),
        (request(2, "a"), by("b", chat(3, 1, 1, {"type": "text", "content": "Yes"}, gen_ai__usage__input_tokens=8), until=2)),
        (replace(request(2, "", asked="q"), name="check_a"), replace(request(3, "", asked="q"), name="check_b")),
        (request(2, "a", gen_ai__system_instructions='[{"type": "text", "content": "Judge safety"}]'),
         request(3, "b", gen_ai__system_instructions='[{"type": "text", "content": "Judge tone"}]')),
        (request(2, "a", None), request(3, "b", None, parent=9)),
        (request(2, "a", None, parent=0), request(3, "b", None, parent=0)),
    ],
    ids=["question", "model", "tokens", "span name", "instructions", "no content", "no content or parent"],
)  # fmt: skip
def test_parallel_requests_of_one_answer_are_two_steps(one: Span, other: Span) -> None:
    assert len(steps_of(agent(1), span(9, 1, 0.5, "chain", 8), one, other)) == 2


@pytest.mark.parametrize("models", [("openai/gpt-4o", "gpt-4o-2024-08-06"), ("gpt-4", "gpt-4-0613"), ("gpt-4o", None)])
def test_request_with_its_model_named_in_two_ways_is_one_step(models: tuple[str | None, str | None]) -> None:
    seen = [request(2 + n, "ab"[n], gen_ai__request__model=model) for n, model in enumerate(models)]
    assert len(steps_of(agent(1), *seen)) == 1


@pytest.mark.parametrize(
    ("libraries", "steps"),
    [("aabb", 2), ("abab", 2), ("abba", 2), ("abc", 1), ("aabbcc", 2), ("aab", 2), ("aaa", 3)],
)
def test_each_library_sees_a_request_once(libraries: str, steps: int) -> None:
    seen = [request(2 + number, library) for number, library in enumerate(libraries)]
    assert len(steps_of(agent(1), *seen)) == steps


def test_request_around_another_is_the_same_one() -> None:
    outer = [by("a", chat(number, 1, number / 100, asked="q"), until=2) for number in (2, 3)]
    inner = [by("b", chat(number, number - 2, number / 100, asked="q", **TOKENS), until=1.9) for number in (5, 4)]
    inner[0], inner[1] = replace(inner[0], start=inner[1].start - 10**6), inner[1]
    assert len(steps_of(agent(1), *outer, *inner)) == 2


@pytest.mark.parametrize(
    "other",
    [
        by("langchain", chat(3, 1, 1)),
        by("openai", chat(3, 1, 5)),
        by("openai", chat(3, 1, 1, {"type": "text", "content": "Other."})),
        by("openai", chat(3, 1, 1, gen_ai__response__id="r2")),
    ],
    ids=["same library", "another time", "another answer", "another response"],
)
def test_requests_that_differ_are_two_steps(other: Span) -> None:
    one = by("langchain", chat(2, 1, 1, gen_ai__response__id="r1"))
    assert len(steps_of(agent(1), one, other)) == 2


def test_handoff_is_the_call_that_the_model_asked_for() -> None:
    told = [response('{"assistant": "Billing agent"}', "h1")]
    (call,) = calls_of(
        agent(1),
        chat(2, 1, 1, part({}, "h1", "transfer_to_billing_agent")),
        span(3, 1, 2, "handoff to Billing agent", openinference__span__kind="TOOL"),
        agent(4, 1, 3, 9),
        chat(5, 4, 4, told=told),
    )
    assert (call.id, call.name) == ("h1", "transfer_to_billing_agent")
    assert call.result is not None and call.result.output == '{"assistant": "Billing agent"}'  # type: ignore[union-attr]


def handoff(number: int, parent: int, at: float, to: str = "Billing agent") -> Span:
    return span(number, parent, at, f"handoff to {to}", openinference__span__kind="TOOL")


def javascript(one: Span) -> Span:
    to = one.name.removeprefix("handoff to ")
    agents = {"input.value": json.dumps({"from_agent": "a", "to_agent": to}), "input.mime_type": "application/json"}
    return replace(one, name="handoff", attributes={**one.attributes, "tool.name": f"handoff_to_{to}", **agents})


def joined(*spans: Span) -> list[tuple[Any, ...]]:
    """Return the id and name of each call, and whether a span has its result."""
    calls = calls_of(agent(1), *spans)
    found = [(call.id, call.name, call.result) for call in calls]
    return [
        (id_, name, isinstance(it, records.ToolResult) and "span_id" in (it.metadata or {})) for id_, name, it in found
    ]


ESCALATE = part({"why": "late"}, "h1", "escalate")
OWN_HANDOFF = ("0000000000000009", "handoff to Billing agent", True)


@pytest.mark.parametrize("form", [lambda one: one, javascript], ids=["python", "javascript"])
@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([chat(2, 1, 1, ESCALATE)], [("h1", "escalate", True)], id="only call"),
        pytest.param(
            [chat(2, 1, 1, part({}, "c1"), ESCALATE), tool(3, 1, 2, "booked", {})],
            [("c1", "book", True), ("h1", "escalate", True)],
            id="beside a tool",
        ),
        pytest.param(
            [chat(2, 1, 1, part({}, "c0", "hosted")), chat(4, 1, 2, ESCALATE)],
            [("c0", "hosted", False), ("h1", "escalate", True)],
            id="earlier call without a span",
        ),
        pytest.param(
            [chat(2, 1, 1, part({}, "c1"), ESCALATE), tool(3, 1, 2, "booked", {}), agent(4, 3, 2.01, 2.09),
             chat(5, 4, 2.02, part({}, "c5", "nested"))],
            [("c1", "book", True), ("h1", "escalate", True), ("c5", "nested", False)],
            id="agent as a tool",
        ),
        pytest.param(
            [chat(2, 1, 1, ESCALATE, part({}, "c1")), tool(3, 1, 7, "booked", {}, "c1")],
            [("h1", "escalate", True), ("c1", "book", True)],
            id="tool that runs later",
        ),
    ],
)  # fmt: skip
def test_handoff_is_the_only_open_call_of_its_last_request(
    spans: list[Span], expected: list[Any], form: Callable[[Span], Span]
) -> None:
    assert joined(*spans, form(handoff(9, 1, 5))) == expected


@pytest.mark.parametrize(
    "spans",
    [
        [chat(2, 1, 1, ESCALATE, part({}, "c1"))],
        [chat(2, 1, 1, part({}, "c1")), tool(3, 1, 2, "booked", {})],
        [chat(2, 1, 6, ESCALATE)],
    ],
    ids=["several calls", "executed call", "later request"],
)
def test_handoff_without_one_open_call_is_a_call_of_its_own(spans: list[Span]) -> None:
    calls = joined(*spans, handoff(9, 1, 5))
    assert OWN_HANDOFF in calls
    assert [is_executed for _id, name, is_executed in calls if name == "escalate"] in ([], [False])


def test_two_handoffs_with_one_tool_name_have_their_own_calls() -> None:
    spans = [agent(1, 0, 0, 4), chat(2, 1, 1, ESCALATE), handoff(3, 1, 2), agent(4, 0, 3.9, 9)]
    spans += [chat(5, 4, 5, part({}, "h2", "escalate")), handoff(6, 4, 6, "Lawyer")]
    spans[3] = replace(spans[3], attributes={**spans[3].attributes, "gen_ai.agent.name": "b"})
    assert [(call.id, (call.result.metadata or {})["span_id"]) for call in calls_of(*spans)] == [  # type: ignore[union-attr]
        ("h1", f"{3:016x}"), ("h2", f"{6:016x}")]  # fmt: skip


def test_tool_with_the_name_of_a_handoff_is_executed_for_its_call() -> None:
    call = part({"to_agent": "human"}, "c1", "handoff_to_human")
    ran = tool(9, 1, 5, "called", {"to_agent": "human"}, name="handoff_to_human")
    assert joined(chat(2, 1, 1, call, ESCALATE), ran) == [("c1", "handoff_to_human", True), ("h1", "escalate", False)]


def test_tool_that_two_libraries_have_seen_is_one_call() -> None:
    spans = [agent(1), chat(2, 1, 1, part({}, "c1")), tool(3, 1, 2, "two", {}, "c1"), tool(4, 1, 2.01, "two", {}, "c1")]
    assert [(call.id, call.status) for call in calls_of(*spans)] == [("c1", None)]


@pytest.mark.parametrize(
    "other",
    [
        tool(5, 3, 2.05, "two", RIGHT, "call_0", "search"),
        tool(5, 3, 2.05, "two", LEFT, "call_0", "search"),
        tool(5, 3, 2.05, "one", LEFT, "call_0", "book"),
    ],
    ids=["arguments", "output", "name"],
)
def test_tools_of_two_agents_with_one_id_are_two_calls(other: Span) -> None:
    spans = [agent(1), agent(2, 1, 1, 50), agent(3, 1, 1, 50), tool(4, 2, 2, "one", LEFT, "call_0", "search"), other]
    results = [call.result.output for call in calls_of(*spans) if isinstance(call.result, records.ToolResult)]
    assert results == ["one", "one" if "book" in other.name else "two"]


@pytest.mark.parametrize(("args", "output"), [(LEFT, "one"), (None, "one"), (LEFT, None)])
def test_tool_without_request_that_two_libraries_have_seen_is_one_call(args: Any, output: str | None) -> None:
    seen = [tool(4, 1, 2, "one", LEFT, "call_0"), tool(5, 1, 2.05, output, args, "call_0")]
    assert len(calls_of(agent(1), *seen)) == 1
