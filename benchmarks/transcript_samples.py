"""Generated transcripts to import: the same conversation again and again, as one JSON document and as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

Json = dict[str, Any]

_THOUGHT = "I look at the file first, then at the tests that use it. " * 2
_ANSWER = (
    "The function returned before the lock was released. I moved the release into a finally block and ran the tests. "
    * 3
)
_OUTPUT = "tests/test_lock.py::test_release PASSED\n" * 60
_TASK = "You maintain a small library. Find out why the lock stays held, and mend it."
_TOOL = "run_tests"
_ARGS = {"path": "tests/test_lock.py", "verbose": True}
_ARGS_TEXT = msgspec.json.encode(_ARGS).decode()

# --- One turn in each format: user message, call, result, answer --------------------------


def _openai_chat(number: int, call_id: str) -> list[Json]:
    function = {"name": _TOOL, "arguments": _ARGS_TEXT}
    return [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {
            "role": "assistant",
            "content": _THOUGHT,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": _OUTPUT},
        {"role": "assistant", "content": _ANSWER},
    ]


def _claude_code(number: int, call_id: str) -> list[Json]:
    use = {"type": "tool_use", "id": call_id, "name": _TOOL, "input": _ARGS}
    about = {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 9}}
    messages = [
        {"role": "user", "content": f"{_TASK} ({number})"},
        {"role": "assistant", "id": f"msg_{number}a", **about, "content": [{"type": "text", "text": _THOUGHT}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": _OUTPUT}]},
        {"role": "assistant", "id": f"msg_{number}b", **about, "content": [{"type": "text", "text": _ANSWER}]},
    ]
    return [
        {
            "type": message["role"],
            "uuid": f"line-{place}",
            "parentUuid": f"line-{place - 1}" if place else None,
            "sessionId": "session",
            "timestamp": _time(place),
            "version": "2.0.0",
            "isSidechain": False,
            "message": message,
        }
        for place, message in enumerate(messages, start=4 * number)
    ]


def _time(second: int) -> str:
    return (
        f"2026-03-{1 + second // 86400 % 28:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
    )


# --- Documents ------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[int, str], list[Json]]] = {"openai_chat": _openai_chat, "claude_code": _claude_code}
LINES = frozenset({"claude_code"})
"""Formats of JSON lines; the others are one JSON value."""


def document(format_name: str, size: int) -> bytes:
    """Return about `size` bytes of one conversation."""
    turn = FORMATS[format_name]
    length = len(msgspec.json.encode(turn(1, "call_1")))
    found = [entry for number in range(max(1, size // length)) for entry in turn(number, f"call_{number}")]
    if format_name in LINES:
        return b"".join(msgspec.json.encode(value) + b"\n" for value in found)
    return msgspec.json.encode(found)


# --- Endless lines ----------------------------------------------------------------------------------------------


def _small_sessions() -> Iterator[bytes]:
    for number in count():
        messages = [*_openai_chat(0, "call_0"), *_openai_chat(1, "call_1")]
        yield msgspec.json.encode({"id": f"s{number}", "messages": messages})


def _one_session() -> Iterator[bytes]:
    for number in count():
        yield from map(msgspec.json.encode, _openai_chat(number, f"call_{number}"))


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {"small-sessions": _small_sessions, "one-session": _one_session}
"""Endless lines of OpenAI chat: a session per line, or a message of one session per line."""


def write(path: Path, shape: str, size: int) -> int:
    """Write lines of a shape until they have `size` bytes. Return their exact size."""
    written = 0
    with path.open("wb") as file:
        for line in SHAPES[shape]():
            written += file.write(line + b"\n")
            if written >= size:
                break
    return written
