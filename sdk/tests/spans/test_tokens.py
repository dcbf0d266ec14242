"""Tokens and costs of spans that are no requests: they count where no request below has tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sdk.tests.spans.test_pairs import chat, span
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.span import Span

OTEL = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100}  # fmt: skip
OPENINFERENCE = {"llm.model_name": "m", "llm.token_count.prompt": 1000, "llm.token_count.completion": 100}
LANGFUSE = {
    "langfuse.observation.model.name": "m",
    "langfuse.observation.usage_details": '{"input": 1000, "output": 100}',
}
TALK = {"input.value": "Hi", "output.value": "Ho"}
SPENT = {"input_tokens": 1000, "output_tokens": 100}


def steps_of(*spans: Span) -> tuple[list[Any], list[Any]]:
    """Return the roles and contents of messages, and the model and usage of steps."""
    session = session_of_trace(spans)
    assert session == session_of_trace(spans[::-1])
    messages = session.messages or ()
    steps = [step for message in messages for step in message.agent_steps or ()]
    return [(message.role, message.content) for message in messages], [(step.model, step.usage) for step in steps]


def around(attributes: dict[str, Any], number: int = 1, parent: int = 0) -> Span:
    return span(number, parent, 0, "worker", 9, **attributes)


REQUEST = chat(2, 1, 1, gen_ai__request__model="m", gen_ai__usage__input_tokens=7)


@pytest.mark.parametrize(
    "spending",
    [
        OTEL | TALK,
        OTEL | TALK | {"gen_ai.operation.name": "invoke_workflow"},
        {"openinference.span.kind": "AGENT", **OPENINFERENCE, **TALK},
        {"openinference.span.kind": "CHAIN", **OPENINFERENCE, **TALK},
        {"langfuse.observation.type": "agent", **LANGFUSE, **TALK},
        {"traceloop.span.kind": "workflow", "gen_ai.response.model": "m", "gen_ai.usage.prompt_tokens": 1000,
         "gen_ai.usage.completion_tokens": 100, **TALK},
    ],
)  # fmt: skip
def test_tokens_of_an_agent_count_if_no_request_below_has_any(spending: dict[str, Any]) -> None:
    messages, steps = steps_of(around(spending))
    assert messages == [("user", "Hi"), ("assistant", "Ho")]
    assert steps == [("m", SPENT)]
    assert steps_of(around(spending), REQUEST)[1] == [("m", {"input_tokens": 7})]
    # The innermost span that has them.
    assert steps_of(around(spending), around(spending, 3, 1))[1] == [("m", SPENT)]
    assert steps_of(around(spending), around(spending, 3, 1), chat(4, 3, 1))[1] == [("m", SPENT), (None, None)]


@pytest.mark.parametrize(
    "spending",
    [OTEL | {"gen_ai.usage.cost": 0.25}, {"langfuse.observation.type": "agent", "langfuse.observation.cost_details": '{"total": 0.25}'}],
)  # fmt: skip
def test_cost_of_an_agent_counts_if_no_request_below_has_any(spending: dict[str, Any]) -> None:
    ((_model, usage),) = steps_of(around(spending | TALK))[1]
    assert usage["cost"] == 0.25


def test_span_below_a_request_counts_nothing_twice() -> None:
    raw = span(3, 2, 1.01, "raw", gen_ai__usage__input_tokens=7)
    assert steps_of(around(TALK), REQUEST, raw)[1] == [("m", {"input_tokens": 7})]


@pytest.mark.parametrize(
    "embedding",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e", "gen_ai.usage.input_tokens": 9},
        {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "e", "llm.token_count.prompt": 9,
         "input.value": "some text", "output.value": json.dumps([[0.1, 0.2]])},
        {"ai.operationId": "ai.embed.doEmbed", "ai.model.id": "e", "ai.usage.tokens": 9},
        {"langfuse.observation.type": "embedding", "langfuse.observation.model.name": "e",
         "langfuse.observation.usage_details": '{"input": "9"}', "langfuse.observation.input": "some text"},
    ],
)  # fmt: skip
def test_tokens_of_embeddings_count(embedding: dict[str, Any]) -> None:
    session = session_of_trace([span(1, 0, 0, "embed", **embedding, session__id="s1")])
    assert session.external_id == "s1"
    assert steps_of(span(1, 0, 0, "embed", **embedding)) == ([("assistant", None)], [("e", {"input_tokens": 9})])
    messages, steps = steps_of(span(1, 0, 0, "main", 9), span(3, 1, 0.5, "embed", **embedding), REQUEST)
    assert messages == [("user", "Two seats"), ("assistant", "Done.")]
    assert steps == [("e", {"input_tokens": 9}), ("m", {"input_tokens": 7})]
    # One below the other is the same.
    nested = span(4, 3, 0.5, "request", **embedding)
    assert steps_of(span(1, 0, 0, "main", 9), span(3, 1, 0.5, "embed", **embedding), nested, REQUEST)[1] == steps


def test_embedding_with_a_cost_asks_and_answers_nothing() -> None:
    embedding = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e", "gen_ai.usage.output_tokens": 0}
    spent = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.cost": 0.25}
    messages, steps = steps_of(span(1, 0, 0, "embed", **embedding, **spent, **TALK))
    assert messages == [("assistant", None)]
    assert steps == [("e", {"input_tokens": 9, "output_tokens": 0, "cost": 0.25})]


@pytest.mark.parametrize("counts", ['{"input": "1000", "output": "100"}', '{"input": 1000.0}', '{"input": 1000}'])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ({"langfuse.observation.type": "chain", "langfuse.observation.input": "Hi", "langfuse.observation.output": "Ho"},
         "langfuse.observation.usage_details"),
        ({"mlflow.spanType": '"CHAIN"', "mlflow.spanInputs": '"Hi"', "mlflow.spanOutputs": '"Ho"'},
         "mlflow.chat.tokenUsage"),
    ],
    ids=["langfuse", "mlflow"],
)  # fmt: skip
def test_chain_with_tokens_has_its_question(kind: dict[str, Any], name: str, counts: str) -> None:
    sent = counts.replace('"input"', '"input_tokens"').replace('"output"', '"output_tokens"')
    messages, steps = steps_of(span(1, 0, 0, "root", 9, **kind, **{name: sent}))
    assert messages == [("user", "Hi"), ("assistant", "Ho")]
    assert steps == [(None, SPENT if "output" in counts else {"input_tokens": 1000})]


def test_tokens_of_an_agent_do_not_hide_behind_an_embedding_or_a_tool() -> None:
    embedding = span(3, 1, 0.5, "embed", **{"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 9})
    search = span(4, 1, 2, "search", **{"mlflow.spanType": '"TOOL"', "mlflow.chat.tokenUsage": '{"input_tokens": 9}'})
    steps = steps_of(around(OTEL | TALK), embedding, search)[1]
    assert steps[:2] == [("m", SPENT), (None, {"input_tokens": 9})]
    assert [usage for _model, usage in steps[2:] if usage] == []
    assert steps_of(around(OTEL | TALK), embedding, REQUEST)[1] == [
        (None, {"input_tokens": 9}),
        ("m", {"input_tokens": 7}),
    ]


def test_cost_of_an_agent_within_an_agent_counts_once() -> None:
    inner = OTEL | {"gen_ai.usage.cost": 0.25, "gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    steps = steps_of(around(OTEL | TALK | {"gen_ai.usage.cost": 0.25}), around(inner, 3, 1))[1]
    assert [usage for _model, usage in steps] == [{"cost": 0.25}]
