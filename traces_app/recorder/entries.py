"""What is handed from the host's threads to the worker: one entry for each thing that happened, with its values frozen.

Freezing is what makes an entry independent of what the host does next with its objects. A text is immutable and kept as it
is; everything else becomes JSON at once, which costs less than any copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from .scopes import Message, Step, ToolCall

_DEPTH = 50
_ENTRY_BYTES = 500
_encode = msgspec.json.Encoder(enc_hook=lambda value: _object(value)).encode


class Kind(Enum):
    """What happened."""

    MESSAGE_START = auto()
    MESSAGE_END = auto()
    STEP_START = auto()
    STEP_SAID = auto()
    """More about a step, while it goes on or after its end."""
    STEP_END = auto()
    CALL_START = auto()
    CALL_SAID = auto()
    """More about a call."""
    CALL_RESULT = auto()
    """A result that came by itself."""
    CALL_END = auto()


class Entry(NamedTuple):
    """Something that happened."""

    kind: Kind
    number: int
    """Nanoseconds since 1970, UTC; each is later than those that its thread made before."""
    scope: Message | Step | ToolCall
    """What it happened to."""
    name: str
    """What tells it from the other entries of its scope."""
    said: dict[str, Any]
    """Of the event's data what has no content: ids, names, numbers."""
    content: dict[str, Any]
    """The rest of the data, frozen: values that are bytes are JSON."""
    size: int
    """About how much memory it takes, in bytes."""
    failed: bool = False
    duration_ms: float | None = None
    """Of an end."""


def freeze(value: Any) -> Any:
    """The value, safe from later changes: texts, numbers and None as they are, everything else as JSON in bytes.

    Never raises on a value: of what JSON cannot say its `repr`, or where that fails its type, is kept.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is int or kind is float:
        return value
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Keys that are no texts, numbers that are too large, cycles, broken characters: slower, and it takes anything.
        return _encode(_plain(value, 0))


def size_of(content: dict[str, Any]) -> int:
    """About how much memory an entry with this content takes, in bytes."""
    size = _ENTRY_BYTES
    for value in content.values():
        kind = type(value)
        if kind is bytes or kind is str:
            size += len(value)
    return size


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if depth >= _DEPTH:
        return f"<{type(value).__name__}, nested too deeply>"
    if isinstance(value, Mapping):
        return {
            key.encode("utf-8", "backslashreplace").decode() if isinstance(key, str) else _text_of(key): _plain(
                item, depth + 1
            )
            for key, item in list(value.items())
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in list(value)]
    try:
        return msgspec.json.decode(_encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _text_of(value)


def _object(value: Any) -> Any:
    """What JSON does not know: a pydantic model as its fields, a message of LangChain too; an exception as its words."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, BaseException):
        return words_of(value)
    return _text_of(value)


def words_of(error: BaseException) -> str:
    """An exception as people read it: `ValueError: no such city`."""
    said = _text_of(error, str)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _text_of(value: Any, by: Any = repr) -> str:
    try:
        text = by(value)
        return (
            text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else f"<{type(value).__name__}>"
        )
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        NameError,
        RuntimeError,
        TypeError,
        ValueError,
    ):
        # A repr of the host's own that fails must not lose the rest of the value.
        return f"<{type(value).__name__}>"
