"""Test that the strict decoder accepts and rejects the same values as the Go client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .strict import Message, NotDecodable, Session, StreamResponse, decode, frames_of

TIME = "2026-03-01T12:00:00Z"


def message_with(**fields: Any) -> str:
    return json.dumps({"created_at": TIME, "updated_at": TIME, **fields})


def call_with(**fields: Any) -> str:
    return message_with(agent_steps=[{"timestamp": TIME, "tool_calls": [fields]}])


@pytest.mark.parametrize(
    "body",
    [
        call_with(args=["a"]),
        call_with(args="a"),
        call_with(duration=12.5),
        call_with().replace("[{}]", '[{"duration": 12.0}]'),
        call_with(result={"data": [1]}),
        call_with(result={"output": {"a": 1}}),
        message_with(created_at=""),
        message_with(created_at="2026-03-01T12:00:00"),
        message_with(created_at="2026-03-01 12:00:00Z"),
        message_with(created_at="2026-02-30T12:00:00Z"),
        message_with(knowledge_references=[{"metadata": {"page": 3}}]),
        message_with(knowledge_references=[{"match_type": "vector"}]),
        message_with(knowledge_references=["doc"]),
        message_with(id=7),
        "no JSON",
    ],
)
def test_decode_with_wrong_types_raises(body: str) -> None:
    with pytest.raises(NotDecodable):
        decode(body, Message)


@pytest.mark.parametrize("tenant", ["1", "550e8400-e29b-41d4-a716-446655440000", -1])
def test_decode_with_invalid_tenant_raises(tenant: Any) -> None:
    with pytest.raises(NotDecodable):
        decode(json.dumps({"tenant_id": tenant}), Session)


@pytest.mark.parametrize(
    "body",
    [
        message_with(id=None, created_at=None, agent_steps=None, is_completed=None),
        message_with(unknown={"a": [1.5]}, role="tool"),
        message_with(created_at="2026-03-01T12:00:00.123456789+08:00"),
        call_with(args=None, result=None, duration=12),
        message_with(agent_steps=[{"timestamp": TIME, "tool_calls": None}]),
    ],
)
def test_decode_accepts_values_that_client_accepts(body: str) -> None:
    decode(body, Message)


def test_frames_of_reads_lines_like_client() -> None:
    frame = '{"id":"r","response_type":"answer","content":"a"}'
    good = f"event:message\ndata:{frame}\n\n"
    dropped = f"event: message\ndata:{frame}\n\nevent:other\ndata:{frame}\n\ndata:{frame}\n\n: sign of life\n\n"
    stream = (
        dropped + good + f"id: 7\nretry: 1\r\nevent:message\ndata:x\ndata:{frame}\n\nevent:message\ndata:x"
    ).encode()
    assert frames_of(stream) == [StreamResponse(id="r", response_type="answer", content="a")] * 2
    with pytest.raises(NotDecodable):
        frames_of(b'event:message\ndata:{"id":7}\n\n')
    with pytest.raises(NotDecodable):
        frames_of(b"event:message\ndata:" + b"x" * 65_536 + b"\n\n")
