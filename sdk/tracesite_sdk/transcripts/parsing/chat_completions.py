"""Messages of chat completions responses (OpenAI and compatible APIs), whole or as the chunks of a stream.

The message is that of the first choice, with usage, model, `created` and finish reason of the response. Other choices
are kept under `choices`. No function here raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracesite_sdk.normalize.json_values import fields, items, text

_BESIDE = ("id", "model", "created", "usage", "system_fingerprint", "service_tier")
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields whose pieces in the chunks are joined."""


def is_response(value: object) -> bool:
    """Return whether a value is a complete response."""
    choice = _first_choice(value)
    return choice is not None and isinstance(choice.get("message"), dict)


def is_chunk(value: object) -> bool:
    """Return whether a value is a chunk of a streamed response. The last one may have the usage and no choice."""
    if isinstance(value, dict) and value.get("object") == "chat.completion.chunk":
        return True
    choice = _first_choice(value)
    return choice is not None and isinstance(choice.get("delta"), dict)


def is_finished(chunks: Iterable[dict[str, Any]]) -> bool:
    """Return whether the chunks include the end of the response."""
    return any(fields(choice).get("finish_reason") for chunk in chunks for choice in items(chunk.get("choices")))


def answer_in(value: object) -> dict[str, Any] | None:
    """Return the message of a response, of its chunks, or of the body in a line of a batch; of an error, one with `error`.

    Return None for any other value.
    """
    if isinstance(value, list):
        chunks = [chunk for chunk in value if isinstance(chunk, dict)]
        return merged(chunks) if chunks and is_chunk(chunks[0]) else None
    if not isinstance(value, dict):
        return None
    if is_response(value):
        return _answer(value, value["choices"][0]["message"])
    if is_chunk(value):
        return merged([value])
    if isinstance(value.get("body"), dict):
        return answer_in(value["body"])
    if value.get("error") and "choices" not in value and "role" not in value and "messages" not in value:
        return {"role": "assistant", "content": None, "error": reason(value["error"])}
    return None


def reason(error: object) -> str | None:
    """Return the text of an error, which is an object with a message or a text."""
    return text(error.get("message")) or text(error) if isinstance(error, dict) else text(error)


def merged(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the chunks of one response into a message: join the fields that come in pieces, keep the last of the others."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[Any, dict[str, Any]] = {}
    response: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for chunk in chunks:
        response |= {name: chunk[name] for name in _BESIDE if chunk.get(name) is not None}
        for part in items(chunk.get("choices")):
            if not isinstance(part, dict) or part.get("index") not in (None, 0):
                continue
            choice |= {name: value for name, value in part.items() if value is not None}
            for name, value in fields(part.get("delta")).items():
                if name in _JOINED and isinstance(value, str):
                    known = message.get(name)
                    message[name] = (known if isinstance(known, str) else "") + value
                elif name == "tool_calls":
                    for piece in items(value):
                        _add_piece(calls, piece)
                elif name == "function_call" and isinstance(value, dict):
                    message["function_call"] = fields(message.get("function_call"))
                    _add_function(message["function_call"], value)
                elif value is not None:
                    message[name] = value
    if calls:
        message["tool_calls"] = list(calls.values())
    return _answer({**response, "choices": [choice]}, message)


def _add_piece(calls: dict[Any, dict[str, Any]], piece: object) -> None:
    if not isinstance(piece, dict):
        return
    index = piece.get("index")
    if not isinstance(index, int):
        # Some servers send whole calls without an index.
        index = text(piece.get("id")) or (next(reversed(calls)) if calls else 0)
    call = calls.setdefault(index, {"type": "function", "function": {}})
    if not call.get("id") and piece.get("id"):
        # A server that repeats the id means the same call.
        call["id"] = piece["id"]
    if isinstance(piece.get("function"), dict) and isinstance(call.get("function"), dict):
        _add_function(call["function"], piece["function"])


def _add_function(function: dict[str, Any], piece: dict[str, Any]) -> None:
    name, arguments = piece.get("name"), piece.get("arguments")
    if isinstance(name, str) and name != function.get("name"):
        known = function.get("name")
        function["name"] = (known if isinstance(known, str) else "") + name
    if isinstance(arguments, str):
        known = function.get("arguments")
        function["arguments"] = (known if isinstance(known, str) else "") + arguments
    elif arguments is not None:
        function["arguments"] = arguments


def _answer(response: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    choices = response["choices"]
    beside = {name: response[name] for name in _BESIDE if response.get(name) is not None}
    answer = {**beside, **message, "role": message.get("role") or "assistant"}
    if choices[0].get("finish_reason"):
        answer["finish_reason"] = choices[0]["finish_reason"]
    if choices[0].get("logprobs"):
        answer["logprobs"] = choices[0]["logprobs"]
    if len(choices) > 1:
        answer["choices"] = choices[1:]
    return answer


def _first_choice(value: object) -> dict[str, Any] | None:
    choices = value.get("choices") if isinstance(value, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
