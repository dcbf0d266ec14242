"""One delivery of spans takes time linear in the number of its spans, whatever the shape of their tree."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from sdk.tests import growth, steps
from tracesite_sdk.formats.codex import total_usage
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.facts import below
from tracesite_sdk.spans.media import Media, with_media
from tracesite_sdk.spans.span import DEEPEST, Scope, Span, SpanEvent

SECOND = 10**9
START = 1_780_000_000 * SECOND
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
RETRIEVER = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": '[{"id": "d1", "content": "Oslo"}]'}
WITHOUT_END = {"langfuse.observation.type": "trace"}
PLAIN: dict[str, Any] = {"gen_ai.system": "openai"}


def chat(text: str = "Hello.", **more: Any) -> dict[str, Any]:
    reply = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Hi."}]}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(reply),
        **more,
    }


AGENT = chat(**{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "scout"})


def calling(number: int) -> dict[str, Any]:
    """Return the attributes of a generation that requests a call."""
    part = {"type": "tool_call", "id": f"c{number}", "name": "look", "arguments": {"at": number}}
    return {**chat(), "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}])}


def asking(number: int) -> dict[str, Any]:
    """Return the attribute of a question."""
    return {"gen_ai.input.messages": json.dumps([{"role": "user", "content": f"Number {number}?"}])}


def requested(number: int) -> dict[str, Any]:
    """Return the attributes of a span that names a call which its parent requested."""
    return {"tool.call.id": f"c{number}", "tool.name": "look", "tool.parameters": "{}"}


def span(
    number: int,
    parent: int,
    attributes: dict[str, Any],
    *,
    start: int | None = None,
    end: int | None = None,
    **more: Any,
) -> Span:
    """Return a span; 0 is no parent."""
    start = number if start is None else start
    return Span(
        trace_id="a" * 32,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        start=START + start * SECOND,
        end=START + (start + 1 if end is None else end) * SECOND if end != 0 else 0,
        attributes=attributes,
        **{"name": f"span {number}", **more},
    )


def chain(count: int, attributes: dict[str, Any], first: int = 1) -> list[Span]:
    return [span(number, number - 1, attributes, end=10**6) for number in range(first, first + count)]


def star(
    count: int, attributes: Callable[[int], dict[str, Any]], centre: dict[str, Any] = AGENT, **more: Any
) -> list[Span]:
    leaves = [span(number, 1, attributes(number), **more) for number in range(2, count + 1)]
    return [span(1, 0, centre, end=10**6), *leaves]


def on_stem(count: int, leaf: dict[str, Any], stem: dict[str, Any], **more: Any) -> list[Span]:
    """Return spans beside each other below a chain."""
    half = count // 2
    leaves = [span(number, half, leaf, **more) for number in range(half + 1, count + 1)]
    return [*chain(half, stem), *leaves]


def tree(count: int, branching: int) -> list[Span]:
    """Return spans of all kinds in a tree in which each has so many below it."""
    return [
        span(number, (number - 2) // branching + 1 if number > 1 else 0, any_kind(number), end=10**6)
        for number in range(1, count + 1)
    ]


def any_kind(number: int) -> dict[str, Any]:
    kinds = [AGENT, chat(), TOOL, PLAIN, RETRIEVER, calling(number)]
    return kinds[number % len(kinds)]


def agents_of_ten(count: int) -> list[Span]:
    """Return agents with other questions, one after another, and below each of them requests whose calls are executed."""
    return [
        span(first, 0, AGENT | asking(first), end=first + 10)
        if number == first
        else span(number, first, calling(number) if number % 2 else tool_of(number - 1))
        for first in range(1, count, 10)
        for number in range(first, first + 10)
    ]


def tool_of(number: int) -> dict[str, Any]:
    """Return the attributes of a tool that executes a call."""
    return {**TOOL, "gen_ai.tool.call.id": f"c{number}"}


def calls_of_one_request(count: int, tool: Callable[[int], dict[str, Any]], *, backwards: bool = False) -> list[Span]:
    """Return a request for calls of one tool, and the executions of these."""
    numbers = range(count - 2)
    parts = [{"type": "tool_call", "id": f"c{n}", "name": "look", "arguments": {"at": n}} for n in numbers]
    request = {**chat(), "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])}
    executed = reversed(numbers) if backwards else numbers
    tools = [span(place, 1, tool(number)) for place, number in enumerate(executed, 3)]
    return [span(1, 0, AGENT, end=10**6), span(2, 1, request), *tools]


def calls_with_results_of_one_text(count: int, *, backwards: bool = False) -> list[Span]:
    """Return calls whose tools have neither ids nor arguments, and a request with the results, which are all the same."""
    half = count // 2
    numbers = [*range(2, half + 2)]
    parts = [
        {"type": "tool_call_response", "id": f"c{n}", "response": "ok"}
        for n in (numbers[::-1] if backwards else numbers)
    ]
    last = {**chat(), "gen_ai.input.messages": json.dumps([{"role": "tool", "parts": parts}])}
    return [
        *calls_and(count, lambda _number: {**TOOL, "gen_ai.tool.call.result": "ok"}),
        span(2 * count, 1, last, start=4 * count),
    ]


def seen_by_libraries(count: int, libraries: int, *, by_turns: bool) -> list[Span]:
    """Return generations at one time with one answer and other response ids, of so many libraries."""
    spans = [span(number, 0, chat(**{"gen_ai.response.id": f"r{number}"}), end=10**6) for number in range(1, count + 1)]
    return [
        replace(one, scope=Scope(name=f"library {place % libraries if by_turns else place * libraries // count}"))
        for place, one in enumerate(spans)
    ]


def in_any_order(spans: list[Span]) -> list[Span]:
    return Random(1).sample(spans, len(spans))


def circle(count: int) -> list[Span]:
    """Return a circle of spans with a tail of the same length."""
    half = count // 2
    return [span(1, half, AGENT), *chain(count - 1, AGENT, 2)]


def upside_down(count: int) -> list[Span]:
    """Return spans below a chain whose clock is late, so that each begins after those below it."""
    half = count // 2
    stem = [span(number, number - 1, TOOL, start=2 * count - number, end=10**6) for number in range(1, half + 1)]
    return [*stem, *(span(number, half, chat(), start=number) for number in range(half + 1, count + 1))]


def calls_and(
    count: int, answer: Callable[[int], dict[str, Any]], *, backwards: bool = False, **more: Any
) -> list[Span]:
    """Return generations that request calls, and after them what executes these."""
    half = count // 2
    numbers = range(2, half + 2)
    answers = [
        span(half + place, 1, answer(number), start=count + place, **more)
        for place, number in enumerate(reversed(numbers) if backwards else numbers, 2)
    ]
    return [span(1, 0, AGENT, end=10**6), *(span(number, 1, calling(number)) for number in numbers), *answers]


def events(count: int, first: int = 0) -> list[SpanEvent]:
    """Return events such as log records become."""
    return [SpanEvent(name="gen_ai.choice", time=START + first + number) for number in range(count)]


SHAPES: dict[str, Callable[[int], list[Span]]] = {
    "chain of agents": lambda count: chain(count, AGENT),
    "chain of tools": lambda count: chain(count, TOOL),
    "chain of tools of other names": lambda count: [
        span(number, number - 1, {**TOOL, "gen_ai.tool.name": f"look {number}"}, end=10**6)
        for number in range(1, count + 1)
    ],
    "chain of generations": lambda count: chain(count, chat()),
    "chain of all kinds": lambda count: [
        span(number, number - 1, any_kind(number), end=10**6) for number in range(1, count + 1)
    ],
    "chain of all kinds in any order": lambda count: in_any_order(SHAPES["chain of all kinds"](count)),
    "star of all kinds": lambda count: star(count, any_kind),
    "tree that branches in two": lambda count: tree(count, 2),
    "tree that branches in ten": lambda count: tree(count, 10),
    "tree that branches in two, in any order": lambda count: in_any_order(tree(count, 2)),
    "agents of ten spans": agents_of_ten,
    "agents of ten spans in any order": lambda count: in_any_order(agents_of_ten(count)),
    "agents of ten spans below one": lambda count: [
        span(10**6, 0, PLAIN, start=0, end=10**6),
        *(one if one.parent_id else replace(one, parent_id=f"{10**6:016x}") for one in agents_of_ten(count)),
    ],
    "chain of spans without a meaning": lambda count: chain(count, PLAIN),
    "star of generations": lambda count: star(count, lambda _number: chat()),
    "star of tools": lambda count: star(count, lambda _number: TOOL),
    "star of spans without a meaning": lambda count: star(count, lambda _number: PLAIN, PLAIN),
    "many roots": lambda count: [span(number, 0, chat()) for number in range(1, count + 1)],
    "agents one after another": lambda count: [span(number, 0, AGENT) for number in range(1, count + 1)],
    "agents at a time": lambda count: [span(number, 0, AGENT, end=10**6) for number in range(1, count + 1)],
    "agents that end before they begin": lambda count: [
        span(number, 0, AGENT, end=1) for number in range(1, count + 1)
    ],
    "agents one after another on a stem": lambda count: on_stem(count, AGENT, PLAIN),
    "agents at a time on a stem": lambda count: on_stem(count, AGENT, PLAIN, end=10**6),
    "agents below a chain of retrievers": lambda count: on_stem(
        count, AGENT, {**RETRIEVER, "gen_ai.operation.name": ""}
    ),
    "generations on a stem of tools": lambda count: on_stem(count, chat(), TOOL),
    "generations on a stem of spans without a meaning": lambda count: [
        span(10**6, 0, AGENT, start=0, end=10**6),
        *on_stem(count, chat(), PLAIN),
    ],
    "tools that begin after what is below them": upside_down,
    "circle with a tail": circle,
    "one response, nested": lambda count: chain(count, chat(**{"gen_ai.response.id": "r"})),
    "one response, beside each other": lambda count: star(count, lambda _n: chat(**{"gen_ai.response.id": "r"})),
    "two spans for each response on a stem": lambda count: [
        replace(one, attributes=one.attributes | {"gen_ai.response.id": f"r{number // 2}"})
        for number, one in enumerate(on_stem(count, chat(), PLAIN))
    ],
    "retrievers, nested": lambda count: chain(count, RETRIEVER),
    "retrievers, nested, with others between them": lambda count: [
        span(number, number - 1, RETRIEVER if number % 2 else PLAIN, end=10**6) for number in range(1, count + 1)
    ],
    "retrievers beside each other": lambda count: star(count, lambda _number: RETRIEVER),
    "spans without an end, nested": lambda count: chain(count, WITHOUT_END),
    "spans without an end, beside each other": lambda count: star(count, lambda _n: WITHOUT_END, WITHOUT_END),
    "one answer of other responses, of two libraries by turns": lambda count: seen_by_libraries(
        count, 2, by_turns=True
    ),
    "one answer of other responses, of one library and then another": lambda count: seen_by_libraries(
        count, 2, by_turns=False
    ),
    "one answer, of a library for each span": lambda count: [
        replace(one, scope=Scope(name=f"library {place}"))
        for place, one in enumerate(star(count, lambda _number: chat(), end=10**6))
    ],
    "requested calls": lambda count: [
        span(number, 1 if number > 1 else 0, requested(number) if number > 1 else chat(), name="tool_call.look")
        for number in range(1, count + 1)
    ],
    "calls and tools with their ids": lambda count: calls_and(
        count, lambda n: {**TOOL, "gen_ai.tool.call.id": f"c{n}"}
    ),
    "calls and tools with their ids, backwards": lambda count: calls_and(
        count, lambda n: {**TOOL, "gen_ai.tool.call.id": f"c{n}"}, backwards=True
    ),
    "calls and tools without ids": lambda count: calls_and(count, lambda _number: TOOL),
    "calls and tools with their arguments, backwards": lambda count: calls_and(
        count, lambda n: {**TOOL, "gen_ai.tool.call.arguments": json.dumps({"at": n})}, backwards=True
    ),
    "calls of one request": lambda count: calls_of_one_request(count, tool_of),
    "calls of one request, backwards": lambda count: calls_of_one_request(count, tool_of, backwards=True),
    "calls of one request and tools without ids": lambda count: calls_of_one_request(count, lambda _number: TOOL),
    "calls of one request and tools with their arguments, backwards": lambda count: calls_of_one_request(
        count, lambda n: {**TOOL, "gen_ai.tool.call.arguments": json.dumps({"at": n})}, backwards=True
    ),
    "calls with results of one text": calls_with_results_of_one_text,
    "calls with results of one text, backwards": lambda count: calls_with_results_of_one_text(count, backwards=True),
    "calls and tools of another name": lambda count: calls_and(count, lambda _n: {**TOOL, "gen_ai.tool.name": "go"}),
    "calls and spans without a meaning": lambda count: calls_and(count, lambda _number: PLAIN),
    "calls and spans of their name": lambda count: calls_and(count, lambda _number: PLAIN, name="look"),
    "runs at a time and tools without ids": lambda count: [
        *(span(number, 0, calling(number) | asking(number), start=0, end=10**6) for number in range(1, count // 2 + 1)),
        *(span(count + number, 0, TOOL, start=number) for number in range(1, count // 2 + 1)),
    ],
    "agents of other questions at a time": lambda count: [
        span(number, 0, AGENT | asking(number), end=10**6) for number in range(1, count + 1)
    ],
    "requests of other questions": lambda count: [
        span(number, 0, chat() | asking(number)) for number in range(1, count + 1)
    ],
    "calls of one id": lambda count: star(count, lambda _number: calling(1)),
    "log records for each span": lambda count: star(count, lambda _number: chat(), events=events(5)),
    "deliveries of one span": lambda count: [span(1, 0, chat(), end=number) for number in range(1, count + 1)],
    "pieces of one span": lambda count: [
        span(
            1,
            0,
            {**WITHOUT_END, f"langfuse.trace.metadata.{number}": number},
            revision=number,
            events=events(1, number),
        )
        for number in range(1, count + 1)
    ],
    "spans that announce one": lambda count: [
        span(number, 1, {"logfire.span_type": "pending_span"}) for number in range(2, count + 2)
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_spans_take_about_four_times_as_long(shape: str) -> None:
    few, many = SHAPES[shape](250), SHAPES[shape](1000)
    with steps.at_most(math.inf) as count:
        session_of_trace(few)
    with steps.at_most(5 * count.lines):
        session_of_trace(many)


@pytest.mark.parametrize("shape", [name for name in SHAPES if "chain" in name or "nested" in name])
def test_spans_may_be_nested_deeper_than_python_functions(shape: str) -> None:
    assert session_of_trace(SHAPES[shape](5000)).metadata == {"source": "spans"}


@pytest.mark.parametrize("part", ["0", "a"])
def test_attribute_with_many_dots_is_as_deep_as_a_value_may_be(part: str) -> None:
    found = below({"a." + ".".join([part] * 5000): 1}, "a.")
    for _level in range(DEEPEST):
        assert list(found) == [part]
        found = found[part]
    assert found == {".".join([part] * (5000 - DEEPEST)): 1}


def test_name_and_tags_in_each_message_are_cut() -> None:
    tags = {"langfuse.trace.tags": [f"{number:03}" * 100 for number in range(100)], "langfuse.trace.name": "n" * 1000}
    for message in session_of_trace(star(3, lambda _number: tags)).messages or ():
        about = message.metadata or {}
        assert about["trace_name"] == "n" * 512
        assert about["tags"] == [(f"{number:03}" * 100)[:200] for number in range(50)]


def test_backslashes_before_no_reference_take_linear_time() -> None:
    file = Media(trace_id="a" * 32, media_id="m", content_type="image/png", data="")

    def spans(count: int) -> list[Span]:
        return [span(1, 0, {"text": "\\" * count + "@@@langfuseMedia:"})]

    assert growth.grows_linearly(lambda given: with_media(given, [file]), spans, 40_000, spare=0.02)


def test_usage_with_many_names_takes_linear_time() -> None:
    def usages(count: int) -> list[dict[str, Any]]:
        return [{"details": {f"tokens {number}": 1}} for number in range(count)]

    assert total_usage(usages(2)) == {"details": {"tokens 0": 1, "tokens 1": 1}}
    assert growth.grows_linearly(total_usage, usages, 16_000, spare=0.02)
