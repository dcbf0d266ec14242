"""The conversation as messages of chat completions, which many formats and wires contain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .conversation import QUESTION, Call, Conversation, Request


def chat_messages(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Return the question, and the answers of the model with their results."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for request in requests:
        messages += [chat_answer(request), *map(chat_result, request.results)]
    return messages


def chat_answer(request: Request) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.args)}}
        for call in request.calls
    ]
    return {"role": "assistant", "content": request.text, **({"tool_calls": calls} if calls else {})}


def chat_result(call: Call) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": call.output}


def chat_usage(request: Request) -> dict[str, Any]:
    return {
        "prompt_tokens": request.input,
        "prompt_tokens_details": {"cached_tokens": request.cached},
        "completion_tokens": request.output,
        "total_tokens": request.input + request.output,
    }


def exchanges(conversation: Conversation) -> Iterator[tuple[Request, list[dict[str, Any]], dict[str, Any]]]:
    """Yield each request with the messages that it sends, and its answer."""
    for number, request in enumerate(conversation.requests):
        yield request, chat_messages(conversation.requests[:number]), chat_answer(request)
