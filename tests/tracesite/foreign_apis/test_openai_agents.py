"""Traces in the form of the OpenAI Agents SDK; tests/tracesite/sdks runs the SDK itself."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message, Session
from traces_app.models import Span
from traces_app.queries import messages as queries
from tracesite_sdk.spans.openai_traces import span_id_of, trace_id_of

pytestmark = pytest.mark.django_db
URL = "/v1/traces/ingest"
TRACE_ID = "trace_0123456789abcdef0123456789abcdef"


@pytest.fixture
def key() -> str:
    return create_key(Project.objects.create(slug="agents"), "agent", ["write", "read"])[1]


def post(key: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = Client().post(URL, data, content_type="application/json", headers={"Authorization": f"Bearer {key}"})
    return response.status_code, response.json()


def trace(**fields: Any) -> dict[str, Any]:
    return {"object": "trace", "id": TRACE_ID, "workflow_name": "Trips", "group_id": "trip-1", **fields}


def span(id_: str, parent: str | None, seconds: tuple[int, int], /, error: Any = None, **data: Any) -> dict[str, Any]:
    began, ended = (f"2026-11-20T10:00:{second:02}.123456+00:00" for second in seconds)
    about = {"object": "trace.span", "id": id_, "trace_id": TRACE_ID, "parent_id": parent}
    return {**about, "started_at": began, "ended_at": ended, "span_data": data, "error": error}


CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
QUESTION = {"role": "user", "content": "What is the weather?"}
ITEMS = [
    trace(metadata={"user_id": "ada"}),
    span("span_agent", None, (0, 9), type="agent", name="planner", tools=["get_weather"]),
    span("span_turn", "span_agent", (0, 9), type="custom", name="turn", data={"turn": 1}),
    span(
        "span_1", "span_turn", (1, 2), type="generation", model="gpt-5", input=[QUESTION],
        output=[{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        usage={"input_tokens": 10, "output_tokens": 2},
    ),
    span(
        "span_2", "span_turn", (3, 4), type="function", name="get_weather", input='{"city": "Oslo"}', output="no such city",
        error={"message": "Error running tool", "data": {"error": "no such city"}},
    ),
    span(
        "span_3", "span_turn", (5, 6), type="generation", model="gpt-5", usage={"input_tokens": 20, "output_tokens": 3},
        input=[QUESTION, {"role": "assistant", "tool_calls": [CALL]},
               {"role": "tool", "tool_call_id": "c1", "content": "no such city"}],
        output=[{"role": "assistant", "content": "I do not know."}],
    ),
]  # fmt: skip


def rows(slug: str = "agents") -> list[Any]:
    """Return the messages of a project with their steps and calls, and its sessions."""
    ids = Message.objects.filter(project__slug=slug).order_by("pk").values_list("pk", flat=True)
    found = []
    for message in json.loads(msgspec.json.encode(queries.messages(primary, [str(one) for one in ids]))):
        steps = [
            (step["agent_name"], step["model"], [call_of(call) for call in step["tool_calls"]])
            for step in message["agent_steps"]
        ]
        found.append((message["role"], message["content"], message["is_completed"], steps))
    return [*found, *Session.objects.filter(project__slug=slug).values_list("external_id", "end_user")]


def call_of(call: dict[str, Any]) -> tuple[Any, ...]:
    return call["name"], call["args"], call["status"], call["id"]


def test_items_become_messages_steps_and_calls(key: str) -> None:
    assert post(key, {"data": ITEMS}) == (200, {"accepted": 6, "refused": 0, "reasons": []})
    call = ("get_weather", {"city": "Oslo"}, "error", "c1")
    assert rows() == [
        ("user", "What is the weather?", True, []),
        ("assistant", "I do not know.", True, [("planner", "gpt-5", [call]), ("planner", "gpt-5", [])]),
        ("trip-1", "ada"),
    ]
    answer = Message.objects.get(role="assistant")
    assert (answer.input_tokens, answer.output_tokens, answer.metadata["trace_name"]) == (30, 5, "Trips")


@pytest.mark.parametrize("seed", range(3))
def test_items_in_any_order_and_repeated_give_the_same_rows(key: str, seed: int) -> None:
    assert post(key, {"data": ITEMS})[0] == 200
    expected = rows()
    other = create_key(Project.objects.create(slug="other"), "agent", ["write"])[1]
    items = random.Random(seed).sample(ITEMS * 2, len(ITEMS) * 2)
    for item in items:
        assert post(other, {"data": [item]})[0] == 200
    assert rows("other") == expected


def test_trace_without_spans_is_stored_without_messages(key: str) -> None:
    assert post(key, {"data": [trace()]})[1]["accepted"] == 1
    assert (Span.objects.count(), Message.objects.count()) == (1, 0)
    assert post(key, {"data": ITEMS[1:]})[0] == 200
    assert Message.objects.count() == 2


def test_export_keeps_the_original_ids(key: str) -> None:
    post(key, {"data": ITEMS})
    response = Client().get(
        f"/api/v1/sessions/{Session.objects.get().pk}/export/?format=otlp", headers={"Authorization": f"Bearer {key}"}
    )
    text = b"".join(response).decode() if response.streaming else response.content.decode()
    for item in ITEMS:
        assert item["id"] in text
        assert span_id_of(item["id"]) in text


def test_secrets_never_reach_a_table(key: str) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    item = span("span_1", None, (1, 2), type="function", name="pay", input=json.dumps({"api_key": secret}), output="ok")
    assert post(key, {"data": [item]})[0] == 200
    assert secret not in str(list(Span.objects.values_list("content", flat=True)))


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({}, "data[0]: Object missing required field `object`"),
        ({"object": "trace.event"}, "data[0]: Expected “trace” or “trace.span” as `object`, not “trace.event”."),
        ({"object": "trace", "id": 5}, "data[0]: Expected `str`, got `int` - at `$.id`"),
        ({"object": "trace.span", "id": "span_1", "trace_id": TRACE_ID}, "data[0]: Object missing required field `span_data`"),
        (span("span_1", None, (1, 2)) | {"started_at": 7}, "data[0]: Expected `str | null`, got `int` - at `$.started_at`"),
        (5, "data[0]: Expected `object`, got `int`"),
    ],
)  # fmt: skip
def test_invalid_item_is_refused_alone(key: str, item: Any, reason: str) -> None:
    status, answer = post(key, {"data": [item, *ITEMS]})
    assert (status, answer) == (200, {"accepted": 6, "refused": 1, "reasons": [reason]})


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"data": 5}', b"\xff", b"[" * 100_000, b'{"data": [' + b"[" * 9999])
def test_body_without_items_is_a_400_that_names_the_field(key: str, body: bytes) -> None:
    status, answer = post(key, body)
    assert (status, answer["error"]["param"]) == (400, "data")
    assert Span.objects.count() == 0


@pytest.mark.parametrize(
    "time", ["", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2262-04-12"]
)
def test_impossible_time_is_kept_as_it_came(key: str, time: str) -> None:
    item = span("span_1", None, (1, 2), type="function", name="pay", input="{}", output="ok") | {"started_at": time}
    assert post(key, {"data": [item]})[1]["accepted"] == 1
    assert Span.objects.count() == 1


def test_deep_and_large_values_are_accepted(key: str) -> None:
    deep: Any = "end"
    for _ in range(300):
        deep = [deep]
    item = span("span_1", None, (1, 2), type="custom", name="x", data={"deep": deep, "large": 2**63, "nul": "a\0b"})
    assert post(key, {"data": [item]})[1]["accepted"] == 1


def test_unknown_key_is_401_in_the_form_of_openai() -> None:
    status, answer = post("ts_no", {"data": ITEMS})
    assert (status, answer["error"]["type"]) == (401, "invalid_request_error")


def test_ids_are_32_and_16_digits() -> None:
    assert trace_id_of(TRACE_ID) == TRACE_ID.removeprefix("trace_")
    assert len(trace_id_of("trace_mine")) == 32
    assert trace_id_of("trace_" + "0" * 32) != "0" * 32
    assert len(span_id_of("span_0123456789abcdef01234567")) == 16
