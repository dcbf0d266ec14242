"""Langfuse exports: their wrappings, how observations become replies and results, and the counts of real files."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import langfuse
from tracesite_sdk.formats.langfuse import NAME, recognises
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import Document

from . import reading


def at(second: float) -> str:
    return f"2026-03-01T12:00:{second:06.3f}Z"


def observation(
    id_: str, kind: str, name: str, start: float, end: float | None = None, **fields: Any
) -> dict[str, Any]:
    return {
        "id": id_,
        "traceId": "t1",
        "type": kind,
        "name": name,
        "startTime": at(start),
        "endTime": at(end if end is not None else start + 1),
        "parentObservationId": "root",
        "level": "DEFAULT",
        **fields,
    }


def asks(*calls: tuple[str, str, dict[str, Any]], content: str | None = None) -> dict[str, Any]:
    """Build the answer of a model with calls."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for id_, name, args in calls
        ],
    }


USER = {"role": "user", "content": "Weather?"}
ASKS = asks(("c1", "weather", {"city": "Oslo"}), ("c2", "weather", {"city": "Rome"}), content="I look.")
TRACE = {
    "id": "t1",
    "timestamp": at(0),
    "name": "chat",
    "projectId": "p",
    "public": False,
    "userId": "li.wei",
    "sessionId": None,
    "tags": ["prod"],
    "input": json.dumps(json.dumps({"question": "Weather?"})),
    "output": "Sunny in both.",
    "metadata": json.dumps({"version": 3}),
    "scores": [{"name": "good", "value": 1}],
}
OBSERVATIONS = [
    observation("root", "SPAN", "run", 0, 9, parentObservationId=None, input={"question": "Weather?"}),
    observation(
        "g1",
        "GENERATION",
        "chat",
        1,
        2,
        input=json.dumps([{"role": "system", "content": "Be kind."}, USER]),
        output=json.dumps(json.dumps(ASKS)),
        model="m-1",
        usageDetails={"input": 7, "output": 3, "total": 10},
    ),
    # The second call was executed first.
    observation("w2", "TOOL", "weather", 3, 3.5, input={"city": "Rome"}, output="sunny"),
    observation("w1", "TOOL", "weather", 3.1, 3.2, input={"city": "Oslo"}, level="ERROR", statusMessage="no network"),
    observation("g2", "GENERATION", "chat", 4, input=[USER, ASKS], output={"role": "assistant", "content": "Sunny."}),
    observation("e1", "EVENT", "cache", 5, output={"hit": True}),
]


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(langfuse, document)


def outline(session: records.Session) -> list[Any]:
    """Return messages as (role, content, steps), steps as (thought, calls)."""
    return [
        (
            message.role,
            message.content,
            [
                (
                    step.thought,
                    [
                        (call.id, call.name, call.status, call.result.output if call.result else None, call.parent)  # type: ignore[union-attr]
                        for call in step.tool_calls or ()
                    ],
                )
                for step in message.agent_steps or ()
            ],
        )
        for message in session.messages or ()
    ]


EXPECTED = [
    ("system", "Be kind.", []),
    ("user", "Weather?", []),
    (
        "assistant",
        "Sunny.",
        [
            (
                "I look.",
                [
                    ("c1", "weather", "error", "no network", None),
                    ("c2", "weather", None, "sunny", None),
                ],
            )
        ],
    ),
]


def snake(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the names of the tables."""
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): value for name, value in row.items()}


WRAPPINGS: dict[str, Any] = {
    "as downloaded": {"trace": TRACE, "observations": OBSERVATIONS},
    "with the observations twice": {"trace": TRACE | {"observations": OBSERVATIONS}, "observations": OBSERVATIONS},
    "a trace of the API": TRACE | {"observations": OBSERVATIONS, "htmlPath": "/p"},
    "a list of traces": [TRACE | {"observations": OBSERVATIONS}],
    "a page of observations": {"data": OBSERVATIONS, "meta": {"page": 1}},
    "lines of observations": reading.lines(OBSERVATIONS),
    "lines of both, in any order": reading.lines(
        [*OBSERVATIONS[3:], TRACE | {"observations": ["g1"]}, *OBSERVATIONS[:3]]
    ),
    "rows of the tables": reading.lines([snake(row) for row in [TRACE, *OBSERVATIONS]]),
    "a session of the API": {"id": "s", "traces": [TRACE | {"observations": OBSERVATIONS}]},
}


@pytest.mark.parametrize("document", WRAPPINGS.values(), ids=WRAPPINGS)
def test_all_wrappings_give_the_same_session(document: Document) -> None:
    assert recognises(document)
    (session,), left_out = read(document)
    assert left_out == []
    assert (session.external_id, outline(session)) == ("t1", EXPECTED)


def test_observations_give_times_model_usage_and_duration() -> None:
    (session,), _left_out = read(WRAPPINGS["as downloaded"])
    message = (session.messages or [])[2]
    (step,) = message.agent_steps or ()
    assert (step.model, step.usage, str(step.timestamp), step.duration) == (
        "m-1",
        {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
        "2026-03-01 12:00:01+00:00",
        1000,
    )
    assert [(str(call.started_at)[17:], str(call.completed_at)[17:], call.duration) for call in step.tool_calls or ()] == [
        ("03.100000+00:00", "03.200000+00:00", 100),
        ("03+00:00", "03.500000+00:00", 500),
    ]  # fmt: skip
    assert str(message.completed_at) == "2026-03-01 12:00:05+00:00"


def test_handoff_with_a_tool_name_of_its_own_is_one_call() -> None:
    rows = [
        observation("root", "SPAN", "run", 0, 9, parentObservationId=None),
        observation("a1", "AGENT", "front desk", 0, 4),
        observation(
            "g1", "GENERATION", "chat", 1, input=[USER], output=asks(("h1", "escalate", {})), parentObservationId="a1"
        ),
        observation("h", "TOOL", "handoff to Lawyer", 3, 3.5, parentObservationId="a1"),
        observation("a2", "AGENT", "Lawyer", 4, 9),
        observation(
            "g2",
            "GENERATION",
            "chat",
            5,
            input=[USER],
            output={"role": "assistant", "content": "Sue."},
            parentObservationId="a2",
        ),
    ]
    ((session,), _skipped) = read({"trace": TRACE, "observations": rows})
    steps = (step for message in session.messages or () for step in message.agent_steps or ())
    assert [(call.id, call.name, call.status) for step in steps for call in step.tool_calls or ()] == [
        ("h1", "escalate", None)
    ]


def test_counts_of_characters_are_no_tokens() -> None:
    row = {"usage": {"input": 400, "output": 20, "total": 420, "unit": "CHARACTERS"}}
    assert langfuse._usage(row) == {"input_characters": 400, "output_characters": 20, "total_characters": 420}
    assert langfuse._usage({**row, "usageDetails": {"input": 7}}) == {"input_tokens": 7}


def test_fields_without_column_are_metadata() -> None:
    (session,), _left_out = read(WRAPPINGS["as downloaded"])
    assert (session.end_user, session.tags, session.title) == ("li.wei", ["prod"], "Weather?")
    ((trace,)) = (session.metadata or {})["traces"]
    assert trace == {
        "id": "t1",
        "timestamp": at(0),
        "name": "chat",
        "projectId": "p",
        "public": False,
        "userId": "li.wei",
        "tags": ["prod"],
        "scores": [{"name": "good", "value": 1}],
        "input": {"question": "Weather?"},
        "output": "Sunny in both.",
        "metadata": {"version": 3},
        "observations": [
            {"id": "root", "type": "SPAN", "startTime": at(0), "endTime": at(9), "name": "run"},
            {
                "id": "e1",
                "type": "EVENT",
                "startTime": at(5),
                "endTime": at(6),
                "parentObservationId": "root",
                "name": "cache",
                "output": {"hit": True},
            },
        ],
    }


def _session() -> list[Any]:
    first = TRACE | {"sessionId": "s1", "observations": OBSERVATIONS}
    history = [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "Sunny."}]
    thanks = {"role": "user", "content": "Thanks."}
    reply = observation(
        "g9", "GENERATION", "chat", 20, input=[*history, thanks], output={"role": "assistant", "content": "Welcome."}
    )
    second = {**TRACE, "id": "t2", "timestamp": at(19), "sessionId": "s1", "observations": [reply | {"traceId": "t2"}]}
    return [first, second]


SESSION = _session()
"""Two traces of one session."""


def test_traces_of_session_are_ordered_by_time() -> None:
    first, second = SESSION
    (session,), left_out = read([second, first])
    assert left_out == []
    assert session.external_id == "s1"
    assert outline(session) == [*EXPECTED, ("user", "Thanks.", []), ("assistant", "Welcome.", [])]
    ids = {message.external_id for message in session.messages or ()}
    for trace in (first, second):
        (alone,), _left_out = read([trace])
        assert {message.external_id for message in alone.messages or ()} <= ids


def test_trace_without_session_has_earlier_turns() -> None:
    history = [
        USER,
        ASKS,
        {"role": "tool", "tool_call_id": "c2", "content": "sunny"},
        {"role": "user", "content": "And?"},
    ]
    reply = observation("g1", "GENERATION", "chat", 1, input=history, output="Both sunny.")
    (session,), _left_out = read([TRACE, reply])
    assert outline(session) == [
        ("user", "Weather?", []),
        ("assistant", None, [("I look.", [("c1", "weather", "pending", None, None), ("c2", "weather", None, "sunny", None)])]),
        ("user", "And?", []),
        ("assistant", "Both sunny.", []),
    ]  # fmt: skip


def test_tool_without_generation_is_a_call_of_its_own() -> None:
    tool = observation("w1", "TOOL", "execute_tool weather", 2, input={"city": "Oslo"}, output="sunny")
    (session,), _left_out = read({"trace": TRACE, "observations": [tool]})
    assert outline(session) == [
        ("user", "Weather?", []),
        ("assistant", "Sunny in both.", [(None, [("w1", "weather", None, "sunny", None)])]),
    ]


def test_observation_named_like_open_call_is_its_result() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["ToolMessage"], "kwargs": {"content": "dark", "tool_call_id": "c2", "status": "error"}}  # fmt: skip
    document = [TRACE, *OBSERVATIONS[:2], observation("n1", "SPAN", "weather", 3, output=json.dumps(message))]
    (session,), _left_out = read(document)
    assert outline(session)[2][2] == [
        ("I look.", [("c1", "weather", "pending", None, None), ("c2", "weather", "error", "dark", None)])
    ]


def test_call_id_takes_precedence_over_arguments() -> None:
    said = {"attributes": {"gen_ai.tool.call.id": "c2", "gen_ai.tool.name": "weather"}}
    tool = observation(
        "w1", "TOOL", "running tool", 3, input={"city": "Oslo"}, output="sunny", metadata=json.dumps(said)
    )
    (session,), _left_out = read([TRACE, *OBSERVATIONS[:2], tool])
    assert outline(session)[2][2] == [
        ("I look.", [("c1", "weather", "pending", None, None), ("c2", "weather", None, "sunny", None)])
    ]


def test_result_only_in_next_input_is_read() -> None:
    history = [
        USER,
        ASKS,
        {"role": "weather", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "sun"},
    ]
    reply = observation("g2", "GENERATION", "chat", 4, input=history, output="Done.")
    (session,), _left_out = read([TRACE, *OBSERVATIONS[:2], reply])
    assert outline(session)[2] == (
        "assistant",
        "Done.",
        [("I look.", [("c1", "weather", None, "rain", None), ("c2", "weather", None, "sun", None)])],
    )


def test_generation_below_tool_is_a_sub_agent() -> None:
    prompt = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Find Oslo"}]
    below = [
        observation("a", "AGENT", "researcher", 3.1, parentObservationId="w2"),
        observation("g5", "GENERATION", "chat", 3.2, parentObservationId="a", input=prompt, output=asks(("c9", "find", {}))),
        observation("f1", "TOOL", "find", 3.3, parentObservationId="a", output="found"),
    ]  # fmt: skip
    (session,), _left_out = read([TRACE, *OBSERVATIONS, *below])
    assert [message.role for message in session.messages or ()] == ["system", "user", "assistant"]
    steps = (session.messages or [])[2].agent_steps or []
    assert [(step.agent_name, step.iteration) for step in steps] == [(None, 0), ("researcher", 0)]
    (call,) = steps[1].tool_calls or ()
    assert (call.id, call.parent, call.status) == ("c9", "c2", None)
    assert (steps[1].metadata or {})["prompt"] == ["You search.", "Find Oslo"]


def test_generation_around_another_is_dropped() -> None:
    outer = observation("o", "GENERATION", "ai.generateText", 0.5, 3, input={"prompt": "Weather?"}, output="Sunny.")
    inner = observation("i", "GENERATION", "doGenerate", 1, 2, parentObservationId="o", input=[USER], output="Sunny.")
    (session,), _left_out = read([TRACE, outer, inner])
    assert outline(session) == [("user", "Weather?", []), ("assistant", "Sunny.", [])]


AGNO = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}}]}  # fmt: skip


def test_wrapper_with_more_output_is_the_reply() -> None:
    outer = observation("o", "GENERATION", "OpenAIChat.invoke", 0.5, 3, input=[USER], output=AGNO)
    inner = observation("i", "GENERATION", "chat m", 1, 2, parentObservationId="o", input=[USER], output="None")
    search = observation("s", "TOOL", "search", 4, 5, output="Sunny.")
    answer = observation("a", "GENERATION", "OpenAIChat.invoke", 6, 8, input=[USER], output={"role": "assistant", "content": "Sunny."})  # fmt: skip
    empty = observation("b", "GENERATION", "chat m", 6.5, 7, parentObservationId="a", input=[USER], output=None)
    (session,), _left_out = read([TRACE, outer, inner, search, answer, empty])
    assert outline(session) == [
        ("user", "Weather?", []),
        ("assistant", "Sunny.", [(None, [("c1", "search", None, "Sunny.", None)])]),
    ]


def test_wrapper_of_several_generations_is_dropped() -> None:
    outer = observation("o", "GENERATION", "generateText", 0.5, 9, input=[USER], output=AGNO)
    inner = [
        observation(f"i{n}", "GENERATION", "doGenerate", n, parentObservationId="o", input=[USER], output="None")
        for n in (1, 2)
    ]
    (session,), _left_out = read([TRACE, outer, *inner])
    assert [call for message in session.messages or () for step in message.agent_steps or () for call in step.tool_calls or ()] == []  # fmt: skip


def test_calls_in_text_are_answered_by_tool_spans() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": f"{n}Tool", "arguments": "{}"}} for n in "AB"]
    requested = observation("g1", "GENERATION", "llm.chat", 1, input=[USER], output={"role": "assistant", "content": json.dumps(calls)})  # fmt: skip
    spans = [observation(f"s{n}", "SPAN", f"tool.{n}Tool", 3, output=f"{n} is done") for n in "BA"]
    (session,), _left_out = read([TRACE, requested, *spans])
    assert outline(session)[1][2] == [
        (None, [("cA", "ATool", None, "A is done", None), ("cB", "BTool", None, "B is done", None)])
    ]


@pytest.mark.parametrize(
    "output", ["{'role': 'assistant', 'text': \"It's 29 °C.\"}", {"text": "It's 29 °C."}, "It's 29 °C."]
)
def test_trace_with_empty_generations_has_output_as_answer(output: Any) -> None:
    generation = observation("g1", "GENERATION", "chat", 1, input=None, output=None)
    (session,), _left_out = read([{**TRACE, "output": json.dumps(output)}, generation])
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("user", "Weather?"),
        ("assistant", "It's 29 °C."),
    ]


@pytest.mark.parametrize(
    "contents", ["Weather?", {"role": "user", "parts": [{"text": "Weather?"}]}, [{"parts": [{"text": "Weather?"}]}]]
)
def test_gemini_contents_may_be_a_single_text(contents: Any) -> None:
    requested = {"model": "gemini-2.5-flash", "contents": contents}
    got = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Sunny."}]}}]}
    generation = observation("g1", "GENERATION", "chat", 1, input=json.dumps(requested), output=got)
    (session,), _left_out = read([{**TRACE, "input": json.dumps(json.dumps(requested))}, generation])
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("user", "Weather?"),
        ("assistant", "Sunny."),
    ]


def test_failed_generation_is_an_error() -> None:
    failed = observation("g1", "GENERATION", "chat", 1, input=[USER], level="ERROR", statusMessage="429")
    (session,), _left_out = read([TRACE, failed])
    assert (session.status, (session.messages or [])[-1].error) == ("error", "429")


def test_other_fields_of_request_and_response_are_kept() -> None:
    sent = {"messages": [USER], "tools": [{"name": "weather"}], "tool_choice": "auto"}
    got = {"object": "response", "id": "resp_1", "output": [{"type": "message", "role": "assistant", "content": "Hi."}]}
    (session,), _left_out = read([TRACE, observation("g1", "GENERATION", "chat", 1, input=sent, output=got)])
    answer = (session.messages or [])[-1]
    assert answer.content == "Hi."
    assert {name: (answer.metadata or {})[name] for name in ("request", "response")} == {
        "request": {"tools": [{"name": "weather"}], "tool_choice": "auto"},
        "response": {"object": "response", "id": "resp_1"},
    }


def test_unknown_messages_of_request_are_context_of_reply() -> None:
    history = [
        USER,
        {"role": "assistant", "content": "An example."},
        {"role": "tool", "tool_call_id": "c7", "content": "x"},
    ]
    reply = observation("g2", "GENERATION", "chat", 4, input=history, output="Done.")
    (session,), _left_out = read([TRACE, *OBSERVATIONS[:4], reply])
    assert ((session.messages or [])[2].metadata or {})["context"] == [
        {"role": "assistant", "content": "An example."},
        {"role": "tool", "call_id": "c7", "content": "x"},
    ]


def test_trace_alone_gives_input_and_output() -> None:
    rows = [TRACE, {**TRACE, "id": "t2", "input": {"args": [1]}, "output": {"answer": "One."}}, TRACE | {"id": "t3", "input": None, "output": None}]  # fmt: skip
    sessions, left_out = read(rows)
    assert [outline(session) for session in sessions] == [
        [("user", "Weather?", []), ("assistant", "Sunny in both.", [])],
        [("user", '{"args":[1]}', []), ("assistant", "One.", [])],
    ]
    assert left_out == [("[2]", "a trace without messages")]


@given(st.integers(0, len(OBSERVATIONS)))
def test_grown_trace_keeps_ids(count: int) -> None:
    whole = {message.external_id for message in read([TRACE, *OBSERVATIONS])[0][0].messages or ()}
    (start,), _left_out = read([{**TRACE, "output": None}, *OBSERVATIONS[:count]])
    assert {message.external_id for message in start.messages or ()} <= whole


def test_invalid_parts_are_reported_with_their_places() -> None:
    document = [{"trace": TRACE, "observations": [*OBSERVATIONS, 5, {"type": "SPAN"}]}, "text"]
    assert read(document)[1] == [
        ("[0].observations[6]", "not an observation: no id"),
        ("[0].observations[7]", "not an observation: no id"),
        ("[1]", "neither a Langfuse trace nor an observation"),
    ]


def test_circular_parents_are_followed_once() -> None:
    circle = [
        observation("a", "GENERATION", "x", 1, parentObservationId="b", output="A"),
        observation("b", "TOOL", "y", 1, parentObservationId="a", output="B"),
    ]
    assert len(read([TRACE, *circle])[0]) == 1


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["role", "content", "parts", "id", "type", "name", "input", "output", "tool_calls", "traces", "data", "trace", "observations", "attributes", "level", "messages"]),
        inner | st.sampled_from(["user", "assistant", "GENERATION", "TOOL", "ERROR", "g1", "c1"]),
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(
    _json,
    st.sampled_from(OBSERVATIONS),
    st.sampled_from(sorted({key for row in OBSERVATIONS for key in row} | {"sessionId"})),
)
@example("", OBSERVATIONS[0], "id")
@example("t" * 600, OBSERVATIONS[0], "traceId")
def test_read_mangled_document_never_raises(inner: Any, row: dict[str, Any], key: str) -> None:
    changed = [row | {key: inner} if other is row else other for other in OBSERVATIONS]
    for document in (inner, {"trace": TRACE, "observations": inner}, {"trace": TRACE | {key: inner}, "observations": changed}, {"data": changed}):  # fmt: skip
        recognises(document)
        for session in read(document)[0]:
            assert session.external_id


# --- Real files -------------------------------------------------------------------------------------------------------

EXPECTED_CALLS: dict[str, dict[str, tuple[int, int]]] = {
    "claude-agent-2025-12-22": {"mcp__weather__get_weather": (2, 2)},
    # Its handler writes tools as spans, which the independent count omits.
    "langgraph-js-2025-10-30": {"get_weather": (1, 1)},
    "microsoft-agent-2025-12-17": {"get_weather": (1, 1)},
    "openai-agents-2025-09-30": {"get_weather": (1, 1)},
    # Models of Pydantic AI call final_result to give structured output; the call has no result.
    "pydantic-ai-tools-2025-12-04": {
        "get_pun_suggestion": (1, 1),
        "get_dad_joke_suggestion": (1, 1),
        "get_one_liner_suggestion": (1, 1),
        "final_result": (1, 0),
    },
    "vercel-aisdk-2025-11-17": {"getWeather": (1, 1)},
}


@pytest.mark.parametrize("name", EXPECTED_CALLS)
def test_real_files_match_independent_tool_counts(name: str) -> None:
    path = SHARED / "langfuse" / f"{name}.trace.json"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    document = json.loads(path.read_text())
    found_format = format_of(document)
    assert found_format is not None
    assert found_format.NAME == NAME
    sessions, left_out = read(document)
    assert left_out == []
    expected = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[f"langfuse/{path.name}"]
    calls = [
        call
        for session in sessions
        for message in session.messages or ()
        for step in message.agent_steps or ()
        for call in step.tool_calls or ()
    ]
    assert len(sessions) == expected["traces"]
    tools = {name.removeprefix("running tool: "): count for name, count in expected["tool_observations"].items()}
    answered = Counter(call.name for call in calls if call.result is not None)
    assert answered == (tools or {"get_weather": 1})
    requested = Counter(call.name for call in calls)
    assert {name: (requested[name], answered[name]) for name in requested} == EXPECTED_CALLS[name]
    kept = sum(len(trace.get("observations", ())) for trace in (sessions[0].metadata or {})["traces"])
    replies = sum(1 for row in document["observations"] if row["type"] == "GENERATION") - name.startswith("vercel")
    assert kept == expected["observations"] - replies - sum(answered.values())
