"""Bodies that real SDKs sent: each scenario gives its calls, results, errors, models and tokens."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from traces_app.models import ToolCall

pytestmark = pytest.mark.django_db

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
GENERATED = DATA / "otlp" / "generated"
SCENARIOS = sorted(path.name for path in GENERATED.iterdir()) if GENERATED.exists() else []


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
