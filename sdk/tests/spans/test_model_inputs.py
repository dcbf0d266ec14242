"""What the models were asked, by every convention that says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.spans import otlp_json
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.facts import Facts
from tracesite_sdk.spans.span import Span, SpanEvent
from tracesite_sdk.transcripts.parsing.requests import model_input

GENERATED = SHARED / "otlp" / "generated"
START = 1_780_000_000 * 10**9
QUESTION = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}


def steps_of(*spans: Span) -> list[records.AgentStep]:
    return [step for message in session_of_trace(spans).messages or () for step in message.agent_steps or ()]


def request(*events: SpanEvent, **attributes: Any) -> records.AgentStep:
    """Return the step of a span with these attributes."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    span = Span(
        trace_id="a" * 32,
        span_id="b" * 16,
        name="chat",
        start=START,
        end=START + 10**9,
        attributes=named,
        events=[*events],
    )
    (step,) = steps_of(span)
    return step


@pytest.mark.skipif(not GENERATED.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        # steps, and how many of them have messages, tools, parameters and a time to first token
        ("logfire-pydantic-ai", (5, 4, 4, 0, 0)),
        ("native-strands", (3, 3, 0, 0, 0)),
        ("openinference-langgraph", (6, 6, 6, 6, 0)),
        ("openinference-openai-chat", (5, 5, 4, 5, 2)),
        ("traceloop-anthropic", (2, 2, 2, 2, 0)),
        ("traceloop-openai-agents", (5, 5, 4, 5, 0)),
        ("vercel-ai-legacy", (5, 5, 5, 5, 2)),
    ],
)
def test_requests_of_real_sdks_have_their_input(scenario: str, expected: tuple[int, ...]) -> None:
    traces: dict[str, list[Span]] = {}
    for file in sorted((GENERATED / scenario / "json").glob("*-traces.json")):
        for span in otlp_json.decode_traces(file.read_bytes()):
            traces.setdefault(span.trace_id, []).append(span)
    steps = [step for spans in traces.values() for step in steps_of(*spans)]
    inputs = [step.input for step in steps if step.input is not None]
    counts = [sum(bool(getattr(one, name)) for one in inputs) for name in ("messages", "tools", "parameters")]
    assert (len(steps), *counts, sum(step.time_to_first_token is not None for step in steps)) == expected
    assert not any("tools" in (one.parameters or {}) for one in inputs)


def test_genai_request_has_tools_parameters_and_first_chunk() -> None:
    step = request(
        gen_ai__operation__name="chat",
        gen_ai__request__model="m",
        gen_ai__input__messages='[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]',
        gen_ai__system_instructions='[{"type": "text", "content": "Be kind."}]',
        gen_ai__tool__definitions=msgspec.json.encode([TOOL]).decode(),
        gen_ai__request__temperature=0.5,
        gen_ai__response__time_to_first_chunk=0.25,
    )
    assert step.input == records.ModelInput(
        messages=[
            {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
            {"role": "user", "parts": [{"type": "text", "content": "Hi"}]},
        ],
        tools=[TOOL],
        parameters={"temperature": 0.5},
    )
    assert step.time_to_first_token == 250


def test_flattened_tools_and_first_chunk_of_openllmetry_are_read() -> None:
    step = request(
        SpanEvent(name="llm.content.completion.chunk", time=START + 80 * 10**6),
        SpanEvent(name="llm.content.completion.chunk", time=START + 90 * 10**6),
        **{
            "llm.request.type": "chat",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Hi",
            "llm.request.functions.0.name": "search",
            "llm.request.functions.0.parameters": '{"type": "object"}',
        },
    )
    assert step.input == records.ModelInput(
        messages=QUESTION, tools=[{"name": "search", "parameters": {"type": "object"}}]
    )
    assert step.time_to_first_token == 80


def test_langfuse_generation_has_parameters_and_first_token() -> None:
    step = request(
        **{
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": msgspec.json.encode({"messages": QUESTION, "tools": [TOOL]}).decode(),
            "langfuse.observation.model.parameters": '{"temperature": 1}',
            "langfuse.observation.completion_start_time": '"2026-05-28T20:26:40.120Z"',
        }
    )
    assert step.input == records.ModelInput(messages=QUESTION, tools=[TOOL], parameters={"temperature": 1})
    assert step.time_to_first_token == 120


def test_batch_of_langchain_is_one_conversation() -> None:
    step = request(
        SpanEvent(name="new_token", time=START + 7 * 10**6),
        **{
            "langsmith.span.kind": "llm",
            "langsmith.run.id": "r",
            "langsmith.run.inputs": {"messages": [QUESTION]},
            "langsmith.run.extra.invocation_params": {"model": "m", "tools": [TOOL]},
        },
    )
    assert step.input == records.ModelInput(messages=QUESTION, tools=[TOOL], parameters={"model": "m"})
    assert step.time_to_first_token == 7


@pytest.mark.parametrize("given", [-1, True, "soon", 1e12, {"$double": "NaN"}])
def test_impossible_time_to_first_chunk_is_left_out(given: Any) -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.response.time_to_first_chunk": given}
    assert request(**attributes, **{"gen_ai.input.messages": QUESTION}).time_to_first_token is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Hi", records.ModelInput(messages=QUESTION)),
        (QUESTION[0], records.ModelInput(messages=QUESTION)),
        ({"question": "Hi"}, records.ModelInput(messages=[{"question": "Hi"}])),
        ({"system": "Be kind."}, records.ModelInput(system="Be kind.")),
        ({"input": QUESTION, "instructions": "x", "top_p": 1}, records.ModelInput(messages=QUESTION, system="x", parameters={"top_p": 1})),
        ({"prompt": "Hi", "stop": ["\n"]}, records.ModelInput(messages=QUESTION, parameters={"stop": ["\n"]})),
    ],
)  # fmt: skip
def test_request_of_any_shape_becomes_input(given: Any, expected: records.ModelInput) -> None:
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    assert request(**{"langfuse.observation.type": "generation", "langfuse.observation.input": text}).input == expected


@pytest.mark.parametrize(
    "attribute",
    [
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.streaming.time_to_first_token",
    ],
)
def test_seconds_to_first_chunk_are_read_by_every_name(attribute: str) -> None:
    step = request(**{"gen_ai.operation.name": "chat", attribute: 0.25})
    assert step.time_to_first_token == 250


def test_first_chunk_event_is_the_first_token() -> None:
    chunks = [
        SpanEvent(name="gen_ai.content.completion.chunk", time=START + (place + 1) * 10**7, attributes={})
        for place in range(3)
    ]
    assert request(*chunks, **{"gen_ai.operation.name": "chat"}).time_to_first_token == 10


def test_flattened_functions_of_agentops_are_tools_not_parameters() -> None:
    step = request(
        **{
            "gen_ai.operation.name": "chat",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.functions.0.name": "search",
            "gen_ai.request.functions.0.parameters": '{"type": "object"}',
        }
    )
    assert step.input == records.ModelInput(
        tools=[{"name": "search", "parameters": {"type": "object"}}], parameters={"temperature": 0.2}
    )


def test_constructed_messages_of_langchain_are_their_fields() -> None:
    written = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "Hi", "type": "human"},
    }
    other = {"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"a": 1}}
    found = model_input([[written, other]])
    assert found is not None
    assert found.messages == [{"content": "Hi", "type": "human"}, other]


def test_empty_value_does_not_hide_what_is_missing() -> None:
    """A tool that failed has an empty output, by LangSmith, and its error."""
    assert Facts(output={}, error="gone").filled_by(Facts()) == Facts(error="gone")
    assert Facts(output={}).filled_by(Facts(output="x")) == Facts(output="x")
