"""Bodies of requests for the OpenAPI document. A test sends each of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiExample

from messages_app.http.request_body import JSON
from tracesite_sdk.records.snapshot_parts import ref_of

_QUESTION = {
    "external_id": "q-1",
    "role": "user",
    "content": "How is the weather in Shanghai?",
    "created_at": "2026-03-01T12:00:00Z",
}
_CALLS: list[dict[str, Any]] = [
    {
        "id": "call_1",
        "name": "get_weather",
        "args": {"city": "Shanghai"},
        "duration": 41,
        "result": {"success": True, "output": "21 °C, clear", "data": {"celsius": 21}},
    },
    {
        "id": "call_2",
        "name": "get_air_quality",
        "args": {"city": "Shanghai"},
        "duration": 3000,
        "result": {"success": False, "error": "The station did not answer."},
        "reflection": "Answer without it.",
    },
]
_ANSWER = {
    "external_id": "a-1",
    "role": "assistant",
    "content": "21 °C and clear. Air quality is not known.",
    "agent_steps": [
        {
            "iteration": 0,
            "model": "gpt-5-mini",
            "thought": "Look both up at once.",
            "tool_calls": _CALLS,
            "usage": {"input_tokens": 210, "output_tokens": 34},
            "cost": 0.00012,
            "timestamp": "2026-03-01T12:00:01Z",
        }
    ],
    "created_at": "2026-03-01T12:00:01Z",
    "completed_at": "2026-03-01T12:00:05Z",
}
_SESSION = {
    "external_id": "weather-1",
    "title": "Weather in Shanghai",
    "end_user": "user-17",
    "tags": ["weather"],
    "messages": [_QUESTION, _ANSWER],
}
_UNFINISHED = {
    "external_id": "a-2",
    "role": "assistant",
    "is_completed": False,
    "agent_steps": [
        {
            "iteration": 0,
            "thought": "Look it up.",
            "tool_calls": [{"id": "call_3", "name": "get_weather", "args": {"city": "Beijing"}}],
        }
    ],
}
_FINISH = {
    "version": 1,
    "content": "18 °C, light rain.",
    "agent_steps": [
        {
            "iteration": 0,
            "tool_calls": [
                {"id": "call_3", "name": "get_weather", "duration": 38, "result": {"output": "18 °C, light rain"}}
            ],
        }
    ],
    "is_completed": True,
}


def body(name: str, value: Any, media_type: str = JSON) -> OpenApiExample:
    return OpenApiExample(name, value=value, request_only=True, media_type=media_type)


INGEST = [
    body("A session with a question and its answer", {"sessions": [_SESSION]}),
]
_EVENTS: list[dict[str, Any]] = [
    {"session_id": "task-7", "type": "workflow_execute_start", "data": {"prompt": "How is the weather in Shanghai?"}},
    {
        "session_id": "task-7",
        "type": "llm_request_start",
        "agent": "researcher",
        "data": {
            "step": "s1",
            "model": "gpt-5-mini",
            "conversation": [{"role": "user", "content": "How is the weather in Shanghai?"}],
            "variables": {"city": "Shanghai"},
            "tools": [{"name": "get_weather"}, {"name": "get_forecast"}],
        },
    },
    {
        "session_id": "task-7",
        "type": "llm_request_complete",
        "agent": "researcher",
        "data": {"step": "s1", "thought": "Look it up.", "usage": {"input_tokens": 210, "output_tokens": 34}},
    },
    {
        "session_id": "task-7",
        "type": "tool_call_start",
        "agent": "researcher",
        "data": {"step": "s1", "call_id": "call_1", "name": "get_weather", "args": {"city": "Shanghai"}},
    },
    {
        "session_id": "task-7",
        "type": "tool_call_complete",
        "agent": "researcher",
        "data": {"call_id": "call_1", "result": "21 °C, clear", "duration": 41},
    },
    {"session_id": "task-7", "type": "workflow_execute_complete", "data": {"result": "21 °C and clear."}},
]
EVENTS = [
    body("A complete run", {"events": _EVENTS}),
]
SESSION = [body("A session with a question and its answer", _SESSION)]
SESSION_CHANGE = [body("End of the session", {"status": "completed", "tags": ["weather", "answered"]})]
MESSAGES = [
    body("A run in progress", _UNFINISHED),
    body("Several messages", [{**_QUESTION, "external_id": "q-3"}, {**_ANSWER, "external_id": "a-3"}]),
]
MESSAGE_CHANGE = [
    body("The result of a call, and the answer", _FINISH),
    body("A note", {"version": 1, "metadata": {"reviewed_by": "user-3"}}),
]
SCORE = [
    body(
        "The opinion of a person",
        {"external_id": "rating-1", "name": "helpful", "value": True, "source": "person", "session_id": "weather-1"},
    ),
    body(
        "A number of an evaluator, for a trace that may arrive later",
        {
            "external_id": "eval-1",
            "name": "faithfulness",
            "value": 0.92,
            "comment": "Every sentence is in a source.",
            "source": "evaluator",
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
        },
    ),
    body(
        "Several scores",
        [
            {"name": "helpful", "value": True, "trace_id": "0af7651916cd43dd8448eb211c80319c"},
            {"name": "tone", "value": "friendly", "trace_id": "0af7651916cd43dd8448eb211c80319c"},
        ],
    ),
]
SCORE_CHANGE = [body("A second look", {"value": False, "comment": "The second source says otherwise."})]
_CONTEXT = {"messages": [{"role": "user", "content": "How is the weather in Shanghai?"}]}
SNAPSHOT = [
    body(
        "The context before a node, in one part",
        {
            "session_id": "weather-1",
            "snapshot": {
                "id": "snapshot-1",
                "ts": 1_772_366_400_000_000_000,
                "node_ids": ["plan"],
                "context_ref": ref_of(msgspec.json.encode(_CONTEXT)),
            },
            "parts": {ref_of(msgspec.json.encode(_CONTEXT)): _CONTEXT},
        },
    ),
]
_TRANSCRIPT: list[dict[str, Any]] = [
    {"role": "user", "content": "How is the weather in Shanghai?"},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Shanghai"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 °C, clear"},
    {"role": "assistant", "content": "21 °C and clear."},
]
IMPORT = [
    body("OpenAI chat messages", _TRANSCRIPT),
    body("A file", msgspec.json.encode(_TRANSCRIPT).decode(), "application/octet-stream"),
    body("A form", {"file": msgspec.json.encode(_TRANSCRIPT).decode(), "dry_run": True}, "multipart/form-data"),
]


MESSAGE_ID = "019ca979-f3e8-7f09-8000-000000000001"
CALL_ID = "019ca979-f3e8-7f09-8000-000000000002"
SCORE_ID = "019ca979-f3e8-7f09-8000-000000000003"
CONTEXT_REF = "ctx_5d1a7e3f2b8c9d0e"
"""Ids in the answers, which have others for each recording."""


@cache
def _answers() -> dict[str, Any]:
    """Return the answers by operation, as tests/tracesite/http/test_examples.py recorded them. Read with the first document."""
    answers: dict[str, Any] = msgspec.json.decode(Path(__file__).with_name("answers.json").read_bytes())
    return answers


def response_examples(operation_id: str) -> list[OpenApiExample]:
    """Return the answer to the request of the examples, if the operation answers with JSON."""
    found = _answers()
    if operation_id not in found:
        return []
    return [OpenApiExample("Answer", value=found[operation_id], response_only=True)]
