"""Bodies that real SDKs sent: each scenario gives its calls, results, errors, models and tokens."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.db.models import Sum
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.paths import SHARED
from traces_app.models import AgentStep, ToolCall

pytestmark = pytest.mark.django_db

DATA = SHARED
GENERATED = DATA / "otlp" / "generated"
SCENARIOS = sorted(path.name for path in GENERATED.iterdir()) if GENERATED.exists() else []


REQUESTS: dict[str, tuple[Counter[str], int, int]] = {
    "load-dev": (Counter({"gpt-4.1-mini-2025-04-14": 30, "gpt-4.1-mini": 1}), 8441, 600),
    "logfire-pydantic-ai": (Counter({"gpt-4.1-2025-04-14": 4, "gpt-4.1": 1}), 1105, 80),
    "native-strands": (Counter({"gpt-4.1": 3}), 598, 60),
    "openinference-langgraph": (Counter({"gpt-4.1-mini-2025-04-14": 6}), 2014, 120),
    "openinference-openai-chat": (Counter({"gpt-4.1-2025-04-14": 4, "": 1}), 1145, 80),
    "otelgenai-openai-chat": (Counter({"gpt-4.1-2025-04-14": 4, "gpt-4.1": 1}), 1145, 80),
    "traceloop-anthropic": (Counter({"claude-sonnet-4-5": 2}), 481, 60),
    "traceloop-openai-agents": (Counter({"gpt-4.1": 3, "gpt-4.1-mini": 2}), 2006, 100),
    "vercel-ai-legacy": (Counter({"mock-gpt": 5}), 44, 28),
}
"""Requests by model, input and output tokens, counted in the attributes of the spans. Not counted are spans that sum up those
below them (Strands, the AI SDK), and the second of two libraries that saw one request (Anthropic)."""


@pytest.fixture
def key() -> str:
    return create_key(Project.objects.create(slug="otlp"), "agent", ["read", "write"])[1]


@pytest.mark.skipif(not SCENARIOS, reason="needs ../shared/data")
@pytest.mark.parametrize("encoding", ["json", "pb"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_posted_bodies_give_the_expected_calls(scenario: str, encoding: str, key: str) -> None:
    expected = json.loads((DATA / "EXPECTED_COUNTS.json").read_text())[
        f"otlp/generated/{scenario}/{encoding}/ (all POST bodies)"
    ]
    for file in sorted((GENERATED / scenario / encoding).glob("*-traces.*")):
        if file.name.endswith("headers.json"):
            continue
        headers: dict[str, Any] = {"Authorization": f"Bearer {key}"}
        kind = "application/json" if encoding == "json" else "application/x-protobuf"
        if encoding == "pb":
            headers["Content-Encoding"] = "gzip"
        answer = Client().post("/v1/traces", file.read_bytes(), content_type=kind, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"{}" if encoding == "json" else b"")
    calls = ToolCall.objects.select_related("tool", "result")
    executed = [call for call in calls if hasattr(call, "result") and "span_id" in call.result.metadata]
    assert Counter(call.tool.name for call in executed) == expected["tool_calls_by_name"]
    failed = Counter(call.tool.name for call in executed if call.status == "error")
    assert failed == expected["errors_by_tool"]
    models, input_tokens, output_tokens = REQUESTS[scenario]
    steps = AgentStep.objects.exclude(model="", usage=None, input_ref="")
    assert Counter(step.model for step in steps) == models
    tokens = Message.objects.aggregate(input=Sum("input_tokens"), output=Sum("output_tokens"))
    assert (tokens["input"], tokens["output"]) == (input_tokens, output_tokens)
