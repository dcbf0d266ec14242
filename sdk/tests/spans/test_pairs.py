"""Which result belongs to which call: by id, by the spans around them, by arguments, and only then by order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span

SECOND = 10**9


def span(number: int, parent: int, at: float, name: str, until: float | None = None, **attributes: Any) -> Span:
    """Return a span; 0 is no parent, and `__` in the name of an attribute is a dot."""
    named = {key.replace("__", "."): value for key, value in attributes.items() if value is not None}
    return Span(
        trace_id="c" * 32,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=name,
        start=1_790_000_000 * SECOND + int(at * SECOND),
        end=1_790_000_000 * SECOND + int((until or at + 0.1) * SECOND),
        attributes=named,
    )


def agent(number: int, parent: int = 0, at: float = 0, until: float = 90) -> Span:
    return span(
        number, parent, at, "invoke_agent", until, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="a"
    )


def part(args: Any = None, call_id: str | None = None, name: str = "book") -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "arguments": args or {}} | ({"id": call_id} if call_id else {})


def response(output: Any, call_id: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": output}]}


def chat(
    number: int, parent: int, at: float, *parts: dict[str, Any], asked: str = "Two seats", told: Any = (), **more: Any
) -> Span:
    """Return a request that calls tools, or says "Done." if it calls none; `told` follows the question in its input."""
    said = parts or ({"type": "text", "content": "Done."},)
    messages = [{"role": "user", "parts": [{"type": "text", "content": asked}]}, *told]
    values = {"gen_ai__input__messages": messages, "gen_ai__output__messages": [{"role": "assistant", "parts": said}]}
    dumped = {name: json.dumps(value) for name, value in values.items()}
    return span(number, parent, at, "chat", gen_ai__operation__name="chat", **dumped, **more)


def tool(
    number: int,
    parent: int,
    at: float,
    result: str | None,
    args: Any = None,
    call_id: str | None = None,
    name: str = "book",
) -> Span:
    return span(
        number,
        parent,
        at,
        f"execute_tool {name}",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=name,
        gen_ai__tool__call__id=call_id,
        gen_ai__tool__call__arguments=json.dumps(args) if args is not None else None,
        gen_ai__tool__call__result=result,
    )


def calls_of(*spans: Span) -> list[records.ToolCall]:
    """Return the calls of a trace, in any order of its spans."""
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    return [
        call
        for message in session.messages or ()
        for step in message.agent_steps or ()
        for call in step.tool_calls or ()
    ]


def pairs_of(*spans: Span) -> list[tuple[Any, Any, bool]]:
    """Return the arguments, the output and whether it was guessed, of each call of a trace."""
    return [
        (call.args, call.result.output if isinstance(call.result, records.ToolResult) else None,
         "guessed_result" in (call.metadata or {}))
        for call in calls_of(*spans)
    ]  # fmt: skip


LEFT, RIGHT = {"row": "left"}, {"row": "right"}


@pytest.mark.parametrize("ids", [(None, None), ("call_0", "call_0"), ("c1", "c2")], ids=["no ids", "one id", "ids"])
def test_tools_in_another_order_get_their_results_by_arguments(ids: tuple[str | None, str | None]) -> None:
    asked = [part(LEFT, ids[0]), part(RIGHT, ids[1])]
    of_tools = (None, None) if ids[0] != ids[1] else ids
    assert pairs_of(
        agent(1),
        chat(2, 1, 1, *asked),
        tool(3, 1, 2, "is right", {"row": "right"}, of_tools[1]),
        tool(4, 1, 3, "is left", {"row": "left"}, of_tools[0]),
        chat(5, 1, 4),
    ) == [(LEFT, "is left", False), (RIGHT, "is right", False)]


def test_one_id_of_two_tools_is_decided_by_their_names() -> None:
    assert pairs_of(
        chat(2, 0, 1, part(LEFT, "0", "go"), part(LEFT, "0", "stay")),
        tool(3, 0, 2, "stayed", None, "0", "stay"),
        tool(4, 0, 3, "went", None, "0", "go"),
    ) == [(LEFT, "went", False), (LEFT, "stayed", False)]


@pytest.mark.parametrize("ids", [(None, None), ("0", "0")], ids=["no ids", "one id"])
@pytest.mark.parametrize("args", [None, {"row": "any"}])
def test_two_sub_agents_at_a_time_have_their_own_results(ids: tuple[str | None, str | None], args: Any) -> None:
    of_call = args or {}
    assert pairs_of(
        agent(1),
        agent(10, 1, 1, 50),
        agent(20, 1, 1.1, 50),
        chat(11, 10, 2, part(of_call, ids[0])),
        chat(21, 20, 2.1, part(of_call, ids[1])),
        tool(22, 20, 3, "of the second", args, ids[1]),
        tool(12, 10, 4, "of the first", args, ids[0]),
        chat(13, 10, 5),
        chat(23, 20, 6),
    ) == [(of_call, "of the first", False), (of_call, "of the second", False)]


def test_pairs_of_the_next_request_win_over_a_guess() -> None:
    asked = [part(LEFT, "c1"), part(RIGHT, "c2")]
    told = [{"role": "assistant", "parts": asked}, response("is left", "c1"), response('{"is": "right"}', "c2")]
    around = [agent(1), chat(2, 1, 1, *asked), chat(5, 1, 4, told=told)]
    right = [(LEFT, "is left", False), (RIGHT, '{"is": "right"}', False)]
    assert pairs_of(*around, tool(3, 1, 2, '{"is": "right"}'), tool(4, 1, 3, "is left")) == right
    # Nothing tells the tools apart: their times are guessed, but not what the model was told.
    unknown = [(args, output, True) for args, output, _guessed in right]
    assert pairs_of(*around, tool(3, 1, 2, "3 bytes"), tool(4, 1, 3, "4 bytes")) == unknown
    assert pairs_of(*around, tool(3, 1, 2, None), tool(4, 1, 3, None)) == unknown


def test_result_by_order_only_is_flagged() -> None:
    spans = (
        agent(1),
        chat(2, 1, 1, part(LEFT), part(RIGHT)),
        tool(3, 1, 2, "one"),
        tool(4, 1, 3, "two"),
        chat(5, 1, 4),
    )
    assert pairs_of(*spans) == [(LEFT, "one", True), (RIGHT, "two", True)]
    (_question, answer) = session_of_trace(spans).messages or ()
    assert answer.health == ["guessed_result"]
    # One call at a time leaves nothing to guess.
    assert pairs_of(
        chat(2, 0, 1, part(LEFT)), tool(3, 0, 2, "one"), chat(4, 0, 3, part(LEFT)), tool(5, 0, 4, "two")
    ) == [
        (LEFT, "one", False),
        (LEFT, "two", False),
    ]


def test_result_without_id_in_the_input_of_later_requests_counts_once() -> None:
    def told(*outputs: str) -> list[Any]:
        return [
            {"role": "tool", "parts": [{"type": "tool_call_response", "name": "book", "response": output}]}
            for output in outputs
        ]

    assert pairs_of(
        chat(2, 0, 1, part(LEFT)),
        chat(3, 0, 2, part(RIGHT), told=told("one")),
        chat(4, 0, 3, told=told("one", "two")),
    ) == [(LEFT, "one", False), (RIGHT, "two", False)]


def test_steps_below_a_tool_without_id_are_those_of_its_call() -> None:
    calls = calls_of(
        agent(1),
        chat(2, 1, 1, part(LEFT), part(RIGHT)),
        tool(3, 1, 2, "is right", RIGHT),
        chat(4, 3, 2.01, part({}, name="look"), asked="Find it"),
        tool(5, 3, 2.02, "there", {}, name="look"),
        tool(6, 1, 3, "is left", LEFT),
        chat(7, 1, 4),
    )
    by_args = {json.dumps(call.args): call for call in calls}
    assert by_args["{}"].parent == by_args[json.dumps(RIGHT)].uuid is not None
