"""The tokens and the cost that spans state, in the words of each convention."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tracesite_sdk.normalize.pricing import Tokens, stated_cost, tokens_of
from tracesite_sdk.spans import otlp_json

from .test_model_inputs import GENERATED, request, steps_of

GENAI = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 110,
         "gen_ai.usage.output_tokens": 5}  # fmt: skip
OPENINFERENCE = {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 110,
                 "llm.token_count.completion": 5}  # fmt: skip
LANGFUSE = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m"}
MLFLOW = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.chat.tokenUsage": '{"input_tokens": 110, "output_tokens": 5}'}


@pytest.mark.parametrize(
    ("attributes", "cost"),
    [
        ({**GENAI, "gen_ai.usage.cost": 0.25}, "0.25"),
        ({**GENAI, "operation.cost": 0.125}, "0.125"),
        ({**GENAI, "gen_ai.usage.input_cost": 0.25, "gen_ai.usage.output_cost": "0.5"}, "0.75"),
        ({**GENAI, "gen_ai.usage.cost": "free"}, None),
        ({**GENAI, "gen_ai.usage.cost": -1}, None),
        ({**GENAI, "gen_ai.usage.cost": 0}, None),
        (GENAI, None),
        ({**OPENINFERENCE, "llm.cost.total": 0.5}, "0.5"),
        ({**OPENINFERENCE, "llm.cost.prompt": 0.5, "llm.cost.completion": 0.25}, "0.75"),
        ({**LANGFUSE, "langfuse.observation.cost_details": '{"input": 0.5, "total": 0.625}'}, "0.625"),
        ({**LANGFUSE, "langfuse.observation.cost_details": '{"input": 0.5, "output": 0.25}'}, "0.75"),
        ({**LANGFUSE, "langfuse.observation.cost_details": "broken"}, None),
        ({**MLFLOW, "mlflow.llm.cost": '{"input_cost": 0.5, "output_cost": 0.25, "total_cost": 0.75}'}, "0.75"),
    ],
)
def test_cost_that_a_span_states_is_kept(attributes: dict[str, Any], cost: str | None) -> None:
    step = request(**attributes)
    assert stated_cost(step.cost, step.usage) == (None if cost is None else Decimal(cost))


@pytest.mark.parametrize(
    "attributes",
    [
        {**GENAI, "gen_ai.usage.cache_read.input_tokens": 80, "gen_ai.usage.cache_creation.input_tokens": 20},
        {**OPENINFERENCE, "llm.token_count.prompt_details.cache_read": 80,
         "llm.token_count.prompt_details.cache_write": 20},
        {**LANGFUSE, "langfuse.observation.usage_details":
            '{"input": 10, "output": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 20, "total": 115}'},
        {"gen_ai.system": "Anthropic", "llm.request.type": "chat", "gen_ai.request.model": "m",
         "gen_ai.usage.prompt_tokens": 110, "gen_ai.usage.completion_tokens": 5,
         "gen_ai.usage.cache_read_input_tokens": 80, "gen_ai.usage.cache_creation_input_tokens": 20},
        {"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m", "ai.usage.inputTokens": 110,
         "ai.usage.outputTokens": 5, "ai.usage.cachedInputTokens": 80,
         "ai.usage.inputTokenDetails.cacheWriteTokens": 20},
    ],
)  # fmt: skip
def test_cached_tokens_of_conventions_are_told_apart(attributes: dict[str, Any]) -> None:
    assert tokens_of(request(**attributes).usage) == Tokens(10, 80, 20, 5, 0)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("cache_read_tokens", "cache_write_tokens"),
        ("details.cache_read_tokens", "details.cache_write_tokens"),
        ("details.cache_read_input_tokens", "details.cache_creation_input_tokens"),
        ("input_tokens.cached", "cache_write.input_tokens"),
        ("input_cached_tokens", "cache_creation_tokens"),
        ("input_tokens_details.cached_tokens", "cache_creation_input_tokens"),
    ],
)
def test_cached_tokens_are_found_under_names_of_producers(read: str, written: str) -> None:
    attributes = {**GENAI, f"gen_ai.usage.{read}": 80, f"gen_ai.usage.{written}": 20}
    assert tokens_of(request(**attributes).usage) == Tokens(10, 80, 20, 5, 0)


def test_cached_tokens_that_the_total_adds_are_put_into_the_input() -> None:
    attributes = {**GENAI, "gen_ai.usage.cache_read.input_tokens": 80, "gen_ai.usage.total_tokens": 195}
    usage = request(**attributes).usage
    assert usage is not None and usage["input_tokens"] == 190
    assert tokens_of(usage) == Tokens(110, 80, 0, 5, 0)


@pytest.mark.parametrize("kind", [str, float])
@pytest.mark.parametrize(
    "attributes",
    [
        GENAI,
        OPENINFERENCE,
        {"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m", "ai.usage.inputTokens": 110,
         "ai.usage.outputTokens": 5},
        {"llm.request.type": "chat", "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 110,
         "gen_ai.usage.completion_tokens": 5},
    ],
)  # fmt: skip
def test_counts_that_are_texts_or_doubles_are_counts(attributes: dict[str, Any], kind: type) -> None:
    sent = {name: kind(value) if isinstance(value, int) else value for name, value in attributes.items()}
    assert tokens_of(request(**sent).usage) == Tokens(110, 0, 0, 5, 0)


@pytest.mark.parametrize("kind", [int, str, float])
def test_counts_of_google_adk_are_counts_with_the_prompts_of_tools(kind: type) -> None:
    counts = {"prompt_token_count": 90, "tool_use_prompt_token_count": 20, "candidates_token_count": 5}
    response = {"usage_metadata": {name: kind(count) for name, count in counts.items()}}
    sent = {"gcp.vertex.agent.llm_request": '{"model": "m"}', "gcp.vertex.agent.llm_response": json.dumps(response)}
    assert tokens_of(request(**sent).usage) == Tokens(110, 0, 0, 5, 0)


@pytest.mark.skipif(not GENERATED.exists(), reason="needs ../shared/data")
def test_cost_of_pydantic_ai_is_that_of_its_requests() -> None:
    file = Path(GENERATED, "logfire-pydantic-ai", "json", "001-traces.json")
    spans = otlp_json.decode_traces(file.read_bytes())
    stated = [span.attributes["operation.cost"] for span in spans if "operation.cost" in span.attributes]
    costs = [stated_cost(step.cost, step.usage) for step in steps_of(*spans)]
    assert stated and sorted(cost for cost in costs if cost is not None) == [
        Decimal(str(cost)) for cost in sorted(stated)
    ]
