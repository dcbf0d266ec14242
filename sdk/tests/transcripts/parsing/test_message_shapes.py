"""Messages in the shapes of all SDKs, parsed to the same result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.transcripts.parsing.message_shapes import ParsedMessage, decoded, joined, messages_in

ARGS = {"city": "Oslo"}
TEXT_ARGS = '{"city":"Oslo"}'


def outline(messages: list[ParsedMessage]) -> list[Any]:
    """Return messages as (role, text, calls, results), calls without ids if the SDK has none."""
    return [
        (
            one.role,
            one.content,
            [(call.id, call.name, decoded(call.args)) for call in one.calls],
            [(next(iter(result.call_ids), None), result.output, result.failed) for result in one.results],
        )
        for one in messages
    ]


def constructor(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", name], "kwargs": kwargs}


CONVERSATION = [
    ("system", "Be kind.", [], []),
    ("user", "Weather?", [], []),
    ("assistant", "I look.", [("c1", "weather", ARGS)], []),
    ("tool", None, [], [("c1", "sunny", None)]),
    ("assistant", "Sunny.", [], []),
]

SHAPES: dict[str, Any] = {
    "OpenAI chat": [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": TEXT_ARGS}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny."},
    ],
    "LangChain, dumped": [
        {"type": "system", "content": "Be kind."},
        {"type": "human", "content": "Weather?"},
        {
            "type": "ai",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGS},
            ],
            "tool_calls": [{"id": "c1", "name": "weather", "args": ARGS, "type": "tool_call"}],
        },
        {"type": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"type": "ai", "content": "Sunny."},
    ],
    "LangChain, serialised, in a batch": [
        [
            constructor("SystemMessage", content="Be kind."),
            constructor("HumanMessage", content="Weather?"),
            constructor(
                "AIMessageChunk", content="I look.", tool_calls=[{"id": "c1", "name": "weather", "args": ARGS}]
            ),
            constructor("ToolMessage", content="sunny", tool_call_id="c1"),
            constructor("AIMessage", content="Sunny."),
        ]
    ],
    "LangChain, with data": {
        "messages": [
            {"type": "system", "data": {"content": "Be kind."}},
            {"type": "human", "data": {"content": "Weather?"}},
            {
                "type": "ai",
                "data": {"content": "I look.", "tool_calls": [{"id": "c1", "name": "weather", "args": ARGS}]},
            },
            {"type": "tool", "data": {"content": "sunny", "tool_call_id": "c1"}},
            {"type": "ai", "data": {"content": "Sunny."}},
        ]
    },
    "gen_ai conventions": [
        {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": ARGS},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]},
    ],
    "AI SDK": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": ARGS},
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c1",
                    "toolName": "weather",
                    "output": {"type": "text", "value": "sunny"},
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
    ],
}


@pytest.mark.parametrize("value", SHAPES.values(), ids=SHAPES)
def test_conversation_is_the_same_in_all_shapes(value: object) -> None:
    assert outline(messages_in(value)) == CONVERSATION


BODIES: dict[str, tuple[Any, list[Any]]] = {
    "Anthropic": (
        {
            "system": [{"type": "text", "text": "Be kind."}],
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": ARGS}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True},
                        {"type": "text", "text": "Go on."},
                    ],
                },
            ],
        },
        [
            ("system", "Be kind.", [], []),
            ("user", "Weather?", [], []),
            ("assistant", None, [("c1", "weather", ARGS)], []),
            ("user", "Go on.", [], [("c1", "no", True)]),
        ],
    ),
    "Bedrock": (
        {
            "system": [{"text": "Be kind."}],
            "messages": [
                {"role": "user", "content": [{"text": "Weather?"}]},
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": ARGS}}]},
                {
                    "role": "user",
                    "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "no"}], "status": "error"}}],
                },
            ],
        },
        [
            ("system", "Be kind.", [], []),
            ("user", "Weather?", [], []),
            ("assistant", None, [("c1", "weather", ARGS)], []),
            ("user", None, [], [("c1", [{"text": "no"}], True)]),
        ],
    ),
    "Gemini": (
        {
            "system_instruction": {"parts": [{"text": "Be kind."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Weather?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": ARGS}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"sky": "blue"}}}]},
            ],
        },
        [
            ("system", "Be kind.", [], []),
            ("user", "Weather?", [], []),
            ("assistant", None, [(None, "weather", ARGS)], []),
            ("user", None, [], [(None, {"sky": "blue"}, None)]),
        ],
    ),
    "a prompt": (
        {"system": "Be kind.", "prompt": "Weather?"},
        [("system", "Be kind.", [], []), ("user", "Weather?", [], [])],
    ),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES)
def test_requests_are_read(body: object, expected: list[Any]) -> None:
    assert outline(messages_in(body)) == expected


RESPONSES: dict[str, Any] = {
    "OpenAI chat": {
        "model": "m",
        "usage": {"prompt_tokens": 1},
        "choices": [
            {"message": {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": TEXT_ARGS}}]}},
            {"message": {"role": "assistant", "content": "Another choice."}},
        ],
    },
    "OpenAI Responses": {
        "object": "response",
        "model": "m",
        "instructions": "Be kind.",
        "usage": {"prompt_tokens": 1},
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": TEXT_ARGS, "id": "fc_1"},
        ],
    },
    "Anthropic": {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGS}],
        "usage": {"prompt_tokens": 1},
    },
    "Bedrock": {
        "model": "m",
        "usage": {"prompt_tokens": 1},
        "output": {"message": {"role": "assistant", "content": [{"text": "I look."}, {"toolUse": {"toolUseId": "c1", "name": "weather", "input": ARGS}}]}},
    },
    "Gemini": {
        "modelVersion": "m",
        "usageMetadata": {"prompt_tokens": 1},
        "candidates": [{"content": {"role": "model", "parts": [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "weather", "args": ARGS}}]}}],
    },
    "LangChain": {
        "generations": [[{"text": "I look.", "message": {"type": "ai", "content": "I look.", "model": "m", "usage_metadata": {"prompt_tokens": 1}, "tool_calls": [{"id": "c1", "name": "weather", "args": ARGS}]}}]],
    },
    "AI SDK": {
        "model": "m",
        "usage": {"prompt_tokens": 1},
        "output": {"text": "I look.", "toolCalls": [{"toolCallId": "c1", "toolName": "weather", "input": TEXT_ARGS}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_response_is_one_message_with_model_and_usage(response: object) -> None:
    said = joined(messages_in(response, "assistant"))
    assert said is not None
    assert outline([said]) == [("assistant", "I look.", [("c1", "weather", ARGS)], [])]
    assert (said.model, said.usage) == ("m", {"prompt_tokens": 1})


def test_calls_alone_are_an_assistant_message() -> None:
    asked = [{"toolCallId": "c1", "toolName": "weather", "input": TEXT_ARGS}]
    assert outline(messages_in(asked)) == [("assistant", None, [("c1", "weather", ARGS)], [])]


def test_thoughts_are_separate_and_other_parts_are_kept() -> None:
    image = {"type": "image", "source": {"data": "iVBO"}}
    (one,) = messages_in(
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "See"}, image]}
    )  # fmt: skip
    assert (one.reasoning, one.content) == ("Hm.", [{"type": "text", "text": "See"}, image])


def test_part_of_user_interface_is_call_and_result() -> None:
    part = {"type": "tool-weather", "toolCallId": "c1", "state": "output-error", "input": ARGS, "errorText": "no"}
    assert outline(messages_in({"role": "assistant", "parts": [part]})) == [
        ("assistant", None, [("c1", "weather", ARGS)], [("c1", "no", True)])
    ]


def test_unknown_role_is_the_name_of_a_tool() -> None:
    (one,) = messages_in([{"role": "weather", "content": "sunny"}])
    (result,) = one.results
    assert (one.role, result.name, result.output) == ("tool", "weather", "sunny")


@pytest.mark.parametrize(
    "value", [None, "text", 5, [], {}, {"content": "role"}, {"args": [1]}, ["a"], {"role": "admin"}]
)
def test_other_values_give_no_messages(value: object) -> None:
    assert messages_in(value) == []


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_json_in_json_is_read_layer_by_layer(layers: int) -> None:
    value: Any = {"a": "1"}
    for _layer in range(layers):
        value = json.dumps(value)
    assert decoded(value) == {"a": "1"}
    assert decoded("not {json") == "not {json"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "parts", "type", "text", "tool_calls", "function", "name", "arguments", "args", "id", "kwargs", "data", "messages", "output", "choices", "message", "generations", "candidates", "toolUse", "toolResult", "functionCall", "functionResponse", "toolCallId", "toolName", "input", "result", "state", "reasoning", "summary", "prompt", "system", "usage", "model", "status", "additional_kwargs", "invalid_tool_calls"]
        ),
        inner
        | st.sampled_from(["user", "assistant", "tool", "constructor", "ai", "text", "tool_use", "tool-call", "tool-x", "thinking", "reasoning", "function_call"]),
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(_json)
def test_any_value_is_parsed_without_errors(value: Any) -> None:
    joined(messages_in(value))
    for kind in ("role", "type"):
        messages_in({kind: "ai", "content": value, "parts": value})


def test_nesting_without_end_is_not_followed() -> None:
    value: Any = []
    for _level in range(900):
        value = [value]
    assert messages_in(value) == []
