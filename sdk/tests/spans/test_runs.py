"""Which spans of a trace are one run: one question, one answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sdk.tests.spans.test_pairs import agent, chat, part, response, span, tool
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Scope, Span


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def talk_of(*spans: Span) -> list[tuple[Any, ...]]:
    """Return the role and content of each message, and the arguments and outputs of its calls, in any order of the spans."""
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    return [
        (
            message.role,
            message.content,
            *(
                (call.args["n"], call.result.output)  # type: ignore[union-attr]
                for step in message.agent_steps or ()
                for call in step.tool_calls or ()
            ),
        )
        for message in session.messages or ()
    ]


def turn(number: int, parent: int, at: float, n: int, call_id: str | None = None, has_args: bool = True) -> list[Span]:
    """Return a request that calls a tool, the tool, and the request that answers."""
    args, result = {"n": n}, f"result {n}"
    told = [{"role": "tool", "parts": [{"type": "tool_call_response", "name": "book", "response": result}]}]
    return [
        chat(number, parent, at, part(args, call_id), asked=f"Question {n}"),
        tool(number + 1, parent, at + 2, result, args if has_args else None, call_id),
        chat(number + 2, parent, at + 4, said(f"Answer {n}"), asked=f"Question {n}", told=told),
    ]


def turns(*numbers: int) -> list[tuple[Any, ...]]:
    return [
        message
        for n in numbers
        for message in (("user", f"Question {n}"), ("assistant", f"Answer {n}", (n, f"result {n}")))
    ]


ROOT = span(1, 0, 0, "batch", 99)
CHAIN = replace(ROOT, attributes={"openinference.span.kind": "CHAIN"})
KINDS: dict[str, Callable[[int], list[Span]]] = {
    "agents below a root": lambda n: [agent(100 * n, 1, n / 10, 50), *turn(100 * n + 1, 100 * n, n / 10 + 0.05, n)],
    "agents": lambda n: [agent(100 * n, 0, n / 10, 50), *turn(100 * n + 1, 100 * n, n / 10 + 0.05, n)],
    "agents with equal ids": lambda n: [agent(100 * n, 0, n / 10, 50), *turn(100 * n + 1, 100 * n, n / 10 + 0.05, n, "0")],
    "agents whose tools are beside them": lambda n: [
        agent(100 * n, 1, n / 10, 50),
        *(replace(one, parent_id=f"{100 * n if n_ != 1 else 1:016x}")
          for n_, one in enumerate(turn(100 * n + 1, 1, n / 10 + 0.05, n))),
    ],
    "requests below a root": lambda n: turn(100 * n, 1, n / 20, n),
    "requests": lambda n: turn(100 * n, 0, n / 20, n),
    "requests with ids": lambda n: turn(100 * n, 0, n / 20, n, f"c{n}", has_args=False),
    "requests below spans of their own": lambda n: [
        span(100 * n, 1, n / 20, "task", 50), *turn(100 * n + 1, 100 * n, n / 20, n, has_args=False)],
    "requests one after the other": lambda n: turn(100 * n, 1, 10 * n, n),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("root", [ROOT, CHAIN], ids=["root", "chain"])
def test_runs_at_the_same_time_have_their_own_questions_and_answers(kind: str, root: Span) -> None:
    spans = [one for n in (1, 2, 3) for one in KINDS[kind](n)]
    below = [root] if any(one.parent_id == root.span_id for one in spans) else []
    if below and root is CHAIN and kind.endswith("after the other"):
        # A chain is one run unless its parts overlap.
        assert talk_of_any(root, *spans) == [("user", "Question 1"), ("assistant", "Answer 3")]
    else:
        assert talk_of(*below, *spans) == turns(1, 2, 3)


def test_tool_that_any_of_several_runs_may_have_asked_for_is_a_guess() -> None:
    first, second = ([*turn(10 * n, 1, n / 20, n, has_args=False)] for n in (1, 2))
    session = session_of_trace([ROOT, *first, *second])
    assert sorted({flag for message in session.messages or () for flag in message.health or ()}) == ["guessed_result"]


def test_each_of_two_runs_gets_one_of_two_equal_tools() -> None:
    asking = [chat(10 + n, 1, n / 20, part(), asked=f"Question {n}") for n in (1, 2)]
    answering = [chat(20 + n, 1, 2 + n / 20, said(f"Answer {n}"), asked=f"Question {n}") for n in (1, 2)]
    session = session_of_trace([ROOT, *asking, tool(4, 1, 1, "one"), tool(5, 1, 1.2, "two"), *answering])
    answers = [message for message in session.messages or () if message.role == "assistant"]
    calls = [[call for step in answer.agent_steps or () for call in step.tool_calls or ()] for answer in answers]
    assert [[getattr(call.result, "output", None) for call in own] for own in calls] == [["one"], ["two"]]
    assert [message.health for message in answers] == [["guessed_result"], ["guessed_result"]]


def test_request_of_which_nothing_says_the_run_is_a_flagged_step() -> None:
    runs = [one for n in (1, 2) for one in (agent(10 * n, 1, n / 10, 50), chat(
        10 * n + 1, 10 * n, 1, said(f"Answer {n}"), asked=f"Question {n}"))]  # fmt: skip
    silent = chat(30, 1, 2, said("A word"))
    silent.attributes.pop("gen_ai.input.messages")
    session = session_of_trace([ROOT, *runs, silent])
    assert [message.content for message in session.messages or ()] == [
        "Question 1", "Answer 1", "Question 2", "Answer 2"]  # fmt: skip
    answer = (session.messages or ())[-1]
    assert answer.health == ["guessed_result"]
    assert [step.thought for step in answer.agent_steps or () if "guessed_result" in (step.metadata or {})] == [
        "A word"
    ]


def test_agent_without_a_question_does_not_join_parallel_runs() -> None:
    runs = [one for n in (1, 2) for one in (agent(10 * n, 0, n / 10, 50), chat(
        10 * n + 1, 10 * n, n, said(f"Answer {n}"), asked=f"Question {n}"))]  # fmt: skip
    answers = [("user", "Question 1"), ("assistant", "Answer 1"), ("user", "Question 2"), ("assistant", "Answer 2")]
    for at in (0, 0.15, 5):
        talk = talk_of_any(agent(90, 0, at, 60), *runs)
        assert [message for message in talk if message != ("assistant", None)] == answers
    # With one other agent it is one run, also if another one begins when it has ended.
    assert talk_of_any(agent(90, 0, 0, 2.5), *runs[:2], agent(20, 0, 3, 50), replace(runs[3], start=runs[3].start + 2 * 10**9)
        ) == answers  # fmt: skip


def named(name: str, one: Span) -> Span:
    return replace(one, attributes={**one.attributes, "gen_ai.agent.name": name})


Q, DONE = ("user", "Two seats"), "Done."


def copy(number: int, at: float, answer: str, parent: int = 1) -> list[Span]:
    """Return an agent with one request, which works for five seconds."""
    return [agent(number, parent, at, at + 5), chat(number + 1, number, at + 1, said(answer))]


COPIES = [*copy(10, 0, "One"), *copy(20, 0.1, "Two"), *copy(30, 4, "Three")]
APART = [Q, ("assistant", "One"), Q, ("assistant", "Two"), Q, ("assistant", "Three")]


@pytest.mark.parametrize("root", [ROOT, CHAIN, None], ids=["root", "chain", "none"])
def test_copies_of_an_agent_at_the_same_time_are_runs(root: Span | None) -> None:
    assert talk_of_any(*([root] if root else []), *COPIES) == APART


@pytest.mark.parametrize(
    "root",
    [
        replace(
            ROOT, attributes={"openinference.span.kind": "CHAIN", "input.value": "Two seats", "output.value": "Two"}
        ),
        named("vote", agent(1)),
    ],
    ids=["chain", "agent"],
)
def test_copies_below_what_compares_their_answers_are_one_run(root: Span) -> None:
    assert [message[0] for message in talk_of_any(root, *COPIES)] == ["user", "assistant"]


@pytest.mark.parametrize(
    "second",
    [
        [named("b", agent(20, 1, 0.1, 5))],
        [replace(agent(20, 1, 0.1, 5), scope=Scope(name="other"))],
        [replace(agent(20, 1, 0.1, 5), attributes={"gen_ai.operation.name": "invoke_agent"})],
    ],
    ids=["another name", "another library", "no name"],
)
def test_agents_of_one_question_that_are_no_copies_are_one_run(second: list[Span]) -> None:
    spans = [ROOT, *copy(10, 0, "One"), *second, chat(21, 20, 2, said("Two"))]
    assert talk_of_any(*spans) == [Q, ("assistant", "Two")]


def test_agent_that_a_copy_hands_over_to_belongs_to_it() -> None:
    spans = [ROOT]
    for n, at in (10, 0), (20, 0.1), (30, 0.2):
        call, told = part({}, f"h{n}", "transfer_to_b"), [response("b", f"h{n}")]
        asking = {"role": "assistant", "parts": [call]}
        spans += [agent(n, 1, at, at + 4), chat(n + 1, n, at + 1, call)]
        spans += [
            named("b", agent(n + 2, 1, at + 4, at + 8)),
            chat(n + 3, n + 2, at + 5, said(f"{n}"), told=[asking, *told]),
        ]
    # A fourth copy begins when the first one has handed over.
    spans += copy(40, 4.05, "Four")
    assert talk_of_any(*spans) == [
        message for answer in ("10", "20", "30", "Four") for message in (Q, ("assistant", answer))
    ]


def test_agent_tried_again_while_another_one_works_is_in_its_run() -> None:
    spans = [ROOT, *copy(10, 0, "One"), named("b", agent(20, 1, 1, 20)), chat(21, 20, 2, said("Two"))]
    assert talk_of_any(*spans, *copy(30, 6, "Three")) == [Q, ("assistant", "Three")]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param(
            [agent(1, 0, 0, 5), chat(2, 1, 1, part({"n": 1}, "c")), named("b", agent(3, 0, 4, 9)), chat(4, 3, 6)],
            [Q, ("assistant", DONE)],
            id="hand-off",
        ),
        pytest.param(
            [chat(2, 0, 1, status="error"), replace(chat(3, 0, 1.05), status="error"), chat(4, 0, 3)],
            [Q, ("assistant", DONE)],
            id="retries",
        ),
        pytest.param(
            [agent(1), chat(2, 1, 1, part({"n": 1}, "c")), agent(3, 1, 2, 8), agent(4, 1, 2, 8),
             chat(5, 3, 3, said("East"), asked="Look east"), chat(6, 4, 3, said("West"), asked="Look west"), chat(7, 1, 9)],
            [Q, ("assistant", DONE)],
            id="sub-agents",
        ),
        pytest.param(
            [span(1, 0, 0, "pipeline", 9, input__value="Which trips?"), chat(2, 1, 1, said("East"), asked="Look east"),
             chat(3, 1, 1, said("West"), asked="Look west"), chat(4, 1, 3, said("Both"), asked="Sum up")],
            [("user", "Which trips?"), ("assistant", "Both")],
            id="span around all requests has the question",
        ),
        pytest.param(
            [chat(1, 0, 1, said("A plan"), asked="Plan"), chat(2, 0, 2, part({"n": 1}, "c"), asked="Go on", told=[
                {"role": "assistant", "parts": [said("A plan")]}]), chat(3, 0, 3, said("End"), asked="Look at the output")],
            [("user", "Plan"), ("assistant", "End")],
            id="steps of plain code",
        ),
    ],
)  # fmt: skip
def test_one_run_stays_one(spans: list[Span], expected: list[Any]) -> None:
    assert [message[:2] for message in talk_of_any(*spans)] == expected


def talk_of_any(*spans: Span) -> list[tuple[Any, ...]]:
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    return [(message.role, message.content) for message in session.messages or ()]


def test_next_turn_of_a_conversation_in_one_trace_is_a_run() -> None:
    first = turn(10, 0, 1, 1, "c1")
    told = [{"role": "assistant", "parts": [said("Answer 1")]}, {"role": "user", "parts": [said("Question 2")]}]
    second = chat(20, 0, 9, said("Answer 2"), asked="Question 1", told=told)
    assert talk_of(*first, second) == [*turns(1), ("user", "Question 2"), ("assistant", "Answer 2")]
    assert json.loads(second.attributes["gen_ai.input.messages"])[0]["parts"] == [said("Question 1")]


EMBEDDING = {"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 9}


@pytest.mark.parametrize("other", [lambda at: span(90, 1, at, "embed", **EMBEDDING), lambda at: tool(90, 1, at, "done", {})],
                         ids=["embedding", "tool"])  # fmt: skip
@pytest.mark.parametrize("at", [0.1, 60], ids=["before", "after"])
def test_embedding_or_tool_beside_an_agent_is_no_run(other: Callable[[float], Span], at: float) -> None:
    talking = {"openinference.span.kind": "AGENT", "input.value": "Two seats", "output.value": "Booked."}
    worker = span(2, 1, 1, "worker", 50, **talking)
    assert talk_of_any(ROOT, worker, other(at)) == [Q, ("assistant", "Booked.")]
    later = [agent(4, 1, 70, 80), chat(5, 4, 71, asked="Three seats")]
    session = session_of_trace([ROOT, worker, other(at), *later])
    assert [message.content for message in session.messages or ()] == ["Two seats", "Booked.", "Three seats", DONE]
    assert [len(message.agent_steps or ()) for message in session.messages or ()] == [0, 1, 0, 1]
    assert [message.health for message in session.messages or ()] == [None, ["guessed_result"], None, None]
