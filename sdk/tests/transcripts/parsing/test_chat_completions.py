"""Answers of chat completions: chunks of any server become the same message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.transcripts.parsing.chat_completions import answer_in, is_chunk, is_finished, is_response, merged


def chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


def test_pieces_are_joined() -> None:
    chunks = [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="Hm"),
        chunk(content="Hel"),
        chunk(content="lo"),
    ]
    assert merged(chunks) == {"id": "1", "role": "assistant", "content": "Hello", "reasoning_content": "Hm"}


@pytest.mark.parametrize(
    "pieces",
    [
        [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}, {"index": 0, "function": {"arguments": "{}"}}],
        # A server that repeats id and name in every chunk.
        [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{"}}, {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "}"}}],
        [{"index": 0, "id": "c1", "function": {"name": "lo"}}, {"index": 0, "id": "", "function": {"name": "ok", "arguments": "{}"}}],
        # A server that sends whole calls without an index.
        [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}],
    ],
)  # fmt: skip
def test_call_in_any_chunks_is_one_call(pieces: list[dict[str, Any]]) -> None:
    message = merged([chunk(tool_calls=[piece]) for piece in pieces])
    assert message["tool_calls"] == [{"type": "function", "id": "c1", "function": {"name": "look", "arguments": "{}"}}]


def test_parallel_calls_in_chunks_are_distinguished() -> None:
    both = [{"index": n, "id": f"c{n}", "function": {"name": "look", "arguments": str(n)}} for n in (0, 1)]
    message = merged([chunk(tool_calls=both)])
    assert [(call["id"], call["function"]["arguments"]) for call in message["tool_calls"]] == [("c0", "0"), ("c1", "1")]


def test_legacy_function_call_is_joined() -> None:
    pieces = [{"name": "look", "arguments": "{"}, {"arguments": "}"}]
    message = merged([chunk(function_call=piece) for piece in pieces])
    assert message["function_call"] == {"name": "look", "arguments": "{}"}


def test_answer_has_usage_and_finish_reason() -> None:
    end = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"total_tokens": 3}}
    chunks = [chunk(content="Hi"), end, usage]
    assert is_finished(chunks)
    assert not is_finished(chunks[:1])
    assert answer_in(chunks) == {
        "id": "1",
        "model": "m",
        "usage": {"total_tokens": 3},
        "role": "assistant",
        "content": "Hi",
        "finish_reason": "stop",
    }


def test_error_is_an_answer() -> None:
    for error, reason in (({"message": "no"}, "no"), ("no", "no"), ({"code": 5}, '{"code":5}')):
        assert answer_in({"status": 500, "body": {"error": error}}) == {
            "role": "assistant",
            "content": None,
            "error": reason,
        }


@pytest.mark.parametrize("value", [None, "text", [], {}, {"choices": []}, {"choices": ["a", "b"]}, [{"role": "user"}]])
def test_other_values_give_none(value: object) -> None:
    assert answer_in(value) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "message", "delta", "tool_calls", "function", "name", "arguments", "index", "id", "content", "function_call", "usage", "finish_reason", "body", "error", "object"]),
        inner | st.just("chat.completion.chunk"),
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(_json)
def test_any_value_is_parsed_without_errors(value: Any) -> None:
    is_response(value)
    is_chunk(value)
    answer_in(value)
    answer_in([chunk(tool_calls=value, content=value), {"object": "chat.completion.chunk", "choices": value}])
    answer_in([{"choices": [{"delta": value, "message": value}]}, chunk(function_call=value)])
