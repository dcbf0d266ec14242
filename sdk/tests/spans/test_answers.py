"""The answer of a run: the text that its root returned, or that of its last request; and the question of a function."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracesite_sdk import records
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span

QUESTION = [{"role": "user", "content": "How warm is it in Shanghai?"}]
ANSWER = "31 degrees in Shanghai"


def span(number: int, kind: str | None, output: Any, parent: int | None = 1, asked: Any = QUESTION) -> Span:
    """Return a span of Langfuse's SDK; the first one is around all others."""
    values = {
        "langfuse.observation.type": kind,
        "langfuse.observation.input": json.dumps(asked),
        "langfuse.observation.output": None if output is None else json.dumps(output),
    }
    return Span(
        trace_id="0af7651916cd43dd8448eb211c80319c",
        span_id=f"{number:016x}",
        parent_id="" if parent is None else f"{parent:016x}",
        name=f"span {number}",
        start=number * 10**9,
        end=(100 if parent is None else number) * 10**9 + 10**8,
        attributes={name: value for name, value in values.items() if value is not None},
    )


def answer_of(*spans: Span) -> records.Message:
    [answer] = [message for message in session_of_trace(spans).messages or () if message.role == "assistant"]
    return answer


@pytest.mark.parametrize("kind", ["agent", "trace", None])
@pytest.mark.parametrize("returned", [ANSWER, {"answer": ANSWER}, "{'answer': '31 degrees in Shanghai'}"])
def test_text_that_the_root_returned_is_the_answer(kind: str | None, returned: Any) -> None:
    answer = answer_of(
        span(1, kind, returned, parent=None),
        span(2, "generation", {"role": "assistant", "content": "Let me look."}),
        span(3, "tool", "31"),
        span(4, "tool", "rain"),
    )
    assert answer.content == ANSWER
    steps = answer.agent_steps or []
    assert [(step.thought, [call.name for call in step.tool_calls or ()]) for step in steps] == [
        ("Let me look.", []),
        (None, ["span 3"]),
        (None, ["span 4"]),
    ]
    assert answer.metadata is not None
    assert (answer.metadata["answer_iteration"], answer.metadata["span_id"]) == (3, f"{1:016x}")


@pytest.mark.parametrize(
    "returned",
    [
        None,
        "",
        "None",
        "Rain, \n31 degrees.",
        {"messages": [*QUESTION, {"role": "assistant", "content": "Sunny."}]},
        {"answer": "Sunny.", "retries": 2},
        "{'answer': 'Sunny.', 'retries': 2}",
        {"city": "Shanghai"},
        "{'messages': [AIMessage(content='Sunny.')]}",
        "[AIMessage(content='Sunny.')]",
        "Result(answer='Sunny.', retries=2)",
        "<plan.Result object at 0x7f0011223344>",
        ["Sunny."],
        True,
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["agent", None])
def test_last_request_gives_the_answer_where_the_root_returned_the_same_or_no_text(
    kind: str | None, returned: Any
) -> None:
    answer = answer_of(
        span(1, kind, returned, parent=None),
        span(2, "tool", "31"),
        span(3, "generation", {"role": "assistant", "content": "Rain, 31 degrees."}),
    )
    assert (answer.content, len(answer.agent_steps or ())) == ("Rain, 31 degrees.", 2)


def test_span_around_an_agent_that_returned_nothing_gives_the_answer() -> None:
    reply = {"role": "assistant", "content": "Let me look."}
    answer = answer_of(
        span(1, None, ANSWER, parent=None),
        span(2, "agent", None),
        span(3, "generation", reply, 2),
        span(4, "tool", "31", 2),
    )
    assert answer.content == ANSWER


def test_root_around_several_runs_is_the_answer_of_none() -> None:
    session = session_of_trace(
        [
            span(1, "span", "Both are done.", parent=None),
            span(2, "agent", "First."),
            span(3, "agent", "Second."),
            span(4, "generation", {"role": "assistant", "content": "Alone."}),
        ]
    )
    answers = [message.content for message in session.messages or () if message.role == "assistant"]
    assert answers == ["First.", "Second.", "Alone."]


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        ({"args": ["How warm?"], "kwargs": {}}, "How warm?"),
        ({"args": [], "kwargs": {"question": "How warm?"}}, "How warm?"),
        ({"args": [QUESTION], "kwargs": {}}, QUESTION[0]["content"]),
        ({"args": ["How warm?", 3], "kwargs": {}}, '{"args":["How warm?",3],"kwargs":{}}'),
        ({"args": ["How warm?"], "kwargs": {"retries": 3}}, '{"args":["How warm?"],"kwargs":{"retries":3}}'),
        ({"args": [], "kwargs": {}}, '{"args":[],"kwargs":{}}'),
    ],
)
def test_only_argument_of_a_function_is_the_question(asked: Any, question: str) -> None:
    session = session_of_trace([span(1, None, ANSWER, parent=None, asked=asked)])
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("user", question),
        ("assistant", ANSWER),
    ]


def test_half_of_a_character_in_json_text_is_kept() -> None:
    """As Python's json writes it: the text of an attribute has the escape."""
    call = {"id": "c1", "name": "search", "arguments": {"q": "half \ud83e"}}
    answer = answer_of(
        span(1, "agent", None, parent=None),
        span(
            2,
            "generation",
            {"role": "assistant", "content": "half \ud83e", "tool_calls": [{"type": "tool_call", **call}]},
        ),
        span(3, "generation", {"role": "assistant", "content": "half \ud83e"}),
    )
    assert answer.content == r"half \ud83e"
    [made] = (answer.agent_steps or [])[0].tool_calls or ()
    assert ((answer.agent_steps or [])[0].thought, made.name, made.args) == (
        r"half \ud83e",
        "search",
        {"q": r"half \ud83e"},
    )
