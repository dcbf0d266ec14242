"""What is handed from the host's threads to the worker: one entry for each thing that happened, with its values frozen.

Freezing is what makes an entry independent of what the host does next with its objects. A text is immutable and kept as it
is; everything else becomes JSON at once, which costs less than any copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from . import results
from .guard import instead_of_failing

if TYPE_CHECKING:
    from .scopes import Message, Step, ToolCall

_DEPTH = 50
_MOST_PLAIN = 100_000
"""Values that are looked at one by one in a value."""
_ENTRY_BYTES = 500
_encode = msgspec.json.Encoder(enc_hook=lambda value: _object(value)).encode


class Kind(Enum):
    """What happened."""

    MESSAGE_START = auto()
    MESSAGE_SAID = auto()
    """More about a message, while it goes on."""
    MESSAGE_ANSWER = auto()
    """The answer as it stands."""
    MESSAGE_END = auto()
    STEP_ASKED = auto()
    """A model was asked; whether that becomes a step is not known."""
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
    TOLD = auto()
    """Something else about a message: `Entry.event` says what."""


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
    event: Mapping[str, Any] | None = None
    """Fields of the event besides those that every event has."""


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
        return plain(value)


def plain(value: Any) -> bytes:
    """The same as JSON for what no encoder takes: keys that are no texts, numbers that are too large, cycles, broken
    characters. Slower, and it takes anything."""
    return _encode(_Plain().value(value, ()))


def result_says_error(entry: Entry) -> bool:
    """Whether the result of a call says that it failed, as the server will read it: there are many ways to say so."""
    if entry.kind not in (Kind.CALL_END, Kind.CALL_RESULT):
        return False
    result = entry.content.get("result")
    return results.read(msgspec.json.decode(result) if isinstance(result, bytes) else result).status == "error"


def mended(entry: Entry) -> Entry:
    """The entry, with values in it that JSON can say whatever they were."""
    said = {name: value if isinstance(value, int | float) else text_of(value) for name, value in entry.said.items()}
    content = {name: value if isinstance(value, bytes) else plain(value) for name, value in entry.content.items()}
    return entry._replace(said=said, content=content)


def thawed(value: Any) -> Any:
    """The value as JSON has it once it is frozen: dicts, lists, texts, numbers, and nobody else's."""
    frozen = freeze(value)
    return msgspec.json.decode(frozen) if isinstance(frozen, bytes) else frozen


def size_of(content: dict[str, Any]) -> int:
    """About how much memory an entry with this content takes, in bytes."""
    size = _ENTRY_BYTES
    for value in content.values():
        kind = type(value)
        if kind is bytes or kind is str:
            size += len(value)
    return size


class _Plain:
    """Makes one value plain, as much of it as is worth it: a graph of objects may hold itself a million times."""

    def __init__(self) -> None:
        self.left = _MOST_PLAIN

    def value(self, value: Any, above: tuple[int, ...]) -> Any:
        kind = type(value)
        self.left -= 1
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else _text_of(value)
        if kind is str:
            return _sayable(value)
        if self.left < 0 or len(above) >= _DEPTH:
            return f"<{kind.__name__}, nested too deeply>"
        if id(value) in above:
            return f"<{kind.__name__}, which holds itself>"
        # Objects of the host may do anything when they are looked at.
        return instead_of_failing(f"<{kind.__name__}>", self.members, value, (*above, id(value)))

    def members(self, value: Any, above: tuple[int, ...]) -> Any:
        if isinstance(value, Mapping):
            named = list(islice(value.items(), self.left))
            # Two keys may read alike: what is said last stays, as in JSON.
            return {
                _sayable(key) if isinstance(key, str) else _text_of(key): self.value(item, above) for key, item in named
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item, above) for item in list(islice(value, self.left))]
        if isinstance(value, int):
            return self.value(int(value), above)
        read = instead_of_failing(None, _read_again, value)
        return _text_of(value) if read is None else read


def _read_again(value: Any) -> Any:
    return msgspec.json.decode(_encode(value))


def _object(value: Any) -> Any:
    """What JSON does not know: a pydantic model as its fields, a message of LangChain too; an exception as its words."""
    return instead_of_failing(f"<{type(value).__name__}>", _fields_of, value)


def _fields_of(value: Any) -> Any:
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


def text_of(value: Any) -> str:
    """What has to be a text and may be anything: an id that is a number, a broken name."""
    return _sayable(value) if type(value) is str else _text_of(value, str)


def _text_of(value: Any, by: Callable[[Any], str] = repr) -> str:
    # A repr of the host's own that fails must not lose the rest of the value.
    text = instead_of_failing(None, by, value)
    return _sayable(text) if isinstance(text, str) else f"<{type(value).__name__}>"


def _sayable(text: str) -> str:
    """The text without the halves of characters that UTF-8 cannot say."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
