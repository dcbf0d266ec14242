"""What is handed from the host's threads to the worker: one entry for each thing that happened, with its values frozen.

Freezing is what makes an entry independent of what the host does next with its objects. A text is immutable and kept as it
is; everything else becomes JSON at once, which costs less than any copy. Of a value that is longer than a recorder keeps
only the beginning is frozen (`Cut`), so that the agent does not wait for 100 MB to be encoded that are then cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from . import results
from .guard import instead_of_failing

if TYPE_CHECKING:
    from .scopes import Message, Step, ToolCall

T = TypeVar("T")

_DEPTH = 50
_MOST_PLAIN = 100_000
"""Values that are looked at one by one in a value."""
_MOST_CUT = 50_000
"""The same in a value of which only the beginning is kept: some 20 ms."""
_ENTRY_BYTES = 500
_SMALL = 256
"""Bytes that a value may take in an entry for which there is hardly any room."""
_SAMPLE = 8
"""Items of a container that are weighed; of the outermost _SAMPLE_OUTSIDE."""
_SAMPLE_OUTSIDE = 32
_WEIGHED_DEPTH = 4
MARGIN = 64 * 1024
"""How much more than is kept of a long value is frozen, in characters, because secrets are redacted after that: the end,
where a secret may be cut in half, is removed once it is redacted."""
MOST = 2**20 + MARGIN
"""Characters of a value that are frozen, where nobody says how many."""
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


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a frozen value that is too long."""

    kept: str | bytes
    """A text, or JSON in bytes. What follows was not even frozen."""
    size: int
    """Bytes of the whole value, about."""

    def __len__(self) -> int:
        return len(self.kept)


ENDS = (Kind.CALL_END, Kind.CALL_RESULT, Kind.STEP_END, Kind.MESSAGE_END)


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


def freeze(value: Any, most: int = MOST) -> Any:
    """The value, safe from later changes: texts, numbers and None as they are, everything else as JSON in bytes; of one
    that is longer than `most` characters a `Cut`.

    Never raises on a value: of what JSON cannot say its `repr`, or where that fails its type, is kept.
    """
    kind = type(value)
    if kind is str:
        return value if len(value) <= most else Cut(value[:most], _bytes_of_text(value))
    if value is None or kind is bool or kind is int or kind is float:
        return value
    try:
        weight = _weight(value, 0)
    except RuntimeError:
        weight = 0  # another thread changes it in this moment; encoding it is one step
    if weight > most:
        return _beginning(value, most, weight)
    try:
        frozen = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        frozen = plain(value)
    # The weight is an estimate.
    return frozen if len(frozen) <= most else _beginning(value, most, len(frozen))


def plain(value: Any) -> bytes:
    """The same as JSON for what no encoder takes: keys that are no texts, numbers that are too large, cycles, broken
    characters. Slower, and it takes anything."""
    return _encode(_Plain().value(value, ()))


def result_says_error(entry: Entry) -> bool:
    """Whether the result of a call says that it failed, as the server will read it: there are many ways to say so."""
    if entry.kind not in (Kind.CALL_END, Kind.CALL_RESULT):
        return False
    result = entry.content.get("result")
    if type(result) is Cut:
        result = result.kept
    return results.read(msgspec.json.decode(result) if isinstance(result, bytes) else result).status == "error"


def mended(entry: Entry) -> Entry:
    """The entry, with values in it that JSON can say whatever they were."""
    said = {name: value if isinstance(value, int | float) else text_of(value) for name, value in entry.said.items()}
    content = {name: _mended(value) for name, value in entry.content.items()}
    return entry._replace(said=said, content=content)


def _mended(value: Any) -> Any:
    if type(value) is Cut:
        return replace(value, kept=_sayable(value.kept)) if isinstance(value.kept, str) else value
    return value if isinstance(value, bytes) else plain(value)


def without_values(entry: Entry) -> Entry:
    """The entry without its long values, each of which says how long it was: for when there is no room for them."""
    content = {
        name: Cut("", value.size if type(value) is Cut else len(value))
        if type(value) in (str, bytes, Cut) and len(value) > _SMALL
        else value
        for name, value in entry.content.items()
    }
    return entry._replace(content=content, size=size_of(content))


def thawed(value: Any) -> Any:
    """The value as JSON has it once it is frozen: dicts, lists, texts, numbers, and nobody else's."""
    frozen = freeze(value)
    if type(frozen) is Cut:
        frozen = frozen.kept
    return msgspec.json.decode(frozen) if isinstance(frozen, bytes) else frozen


def size_of(content: dict[str, Any]) -> int:
    """About how much memory an entry with this content takes, in bytes."""
    size = _ENTRY_BYTES
    for value in content.values():
        kind = type(value)
        if kind is bytes or kind is str or kind is Cut:
            size += len(value)
    return size


def _weight(value: Any, depth: int) -> int:
    """About how many characters of JSON a value takes. Of large containers a few items are looked at, so that this costs
    less than a microsecond for the arguments of most calls."""
    kind = type(value)
    items: Any
    if kind is dict:
        items = value.values()
        total = 8
    elif kind is list or kind is tuple or kind is set or kind is frozenset:
        items = value
        total = 2
    elif kind is str or kind is bytes or kind is bytearray:
        return len(value)
    else:
        fields = instead_of_failing(None, _fields, value)
        return _weight(fields, depth) if fields else 8
    count = len(items)
    if depth > _WEIGHED_DEPTH:
        return total * count
    sampled = count
    if count > _SAMPLE and (depth or count > _SAMPLE_OUTSIDE):
        sampled = _SAMPLE if depth else _SAMPLE_OUTSIDE
        items = islice(items, sampled)
    total *= sampled
    for item in items:
        kind = type(item)
        if kind is str:
            total += len(item)
        elif kind is not int and kind is not float and kind is not bool and item is not None:
            total += _weight(item, depth + 1)
    return total if sampled == count else total * count // sampled


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object that is encoded by its fields: a dataclass, a pydantic model."""
    kind = type(value)
    if not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "model_dump")):
        return None
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return fields if type(fields) is dict else None


def _bytes_of_text(text: str) -> int:
    """The bytes of a long text, about: to count them costs as much as to encode it."""
    if text.isascii():
        return len(text)
    start = text[:MARGIN]
    return len(text) * len(start.encode("utf-8", "replace")) // len(start)


def _beginning(value: Any, most: int, size: int) -> Cut | bytes:
    """The beginning of a value that seems too long, as JSON: complete in itself, without what does not fit."""
    plain = _Plain(_MOST_CUT, most)
    beginning = _encode(plain.value(value, ()))
    return Cut(beginning, max(size, len(beginning))) if plain.is_cut else beginning


class _Plain:
    """Makes one value plain, as much of it as is worth it: a graph of objects may hold itself a million times."""

    def __init__(self, most: int = _MOST_PLAIN, characters: int | None = None) -> None:
        self.left = most
        self.characters = characters
        """How many more there is room for; None where that does not matter."""
        self.is_cut = False

    def value(self, value: Any, above: tuple[int, ...]) -> Any:
        kind = type(value)
        self.left -= 1
        if self.characters is not None:
            value = self._within(value, self.characters)
            self.characters -= 4 + (len(value) if kind in (str, bytes, bytearray) else 0)
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
        if self.characters is not None:
            value = _fields(value) or value
        if isinstance(value, Mapping):
            named = list(islice(value.items(), max(0, self.left + 1)))
            # Two keys may read alike: what is said last stays, as in JSON.
            return {self._key(key): self.value(item, above) for key, item in self._while_there_is_room(named)}
        if isinstance(value, list | tuple | set | frozenset):
            items = list(islice(value, max(0, self.left + 1)))
            return [self.value(item, above) for item in self._while_there_is_room(items)]
        if isinstance(value, int):
            return self.value(int(value), above)
        read = instead_of_failing(None, _read_again, value)
        return _text_of(value) if read is None else read

    def _key(self, key: Any) -> str:
        text = _sayable(key) if isinstance(key, str) else _text_of(key)
        if self.characters is not None:
            text = self._within(text, self.characters)
            self.characters -= len(text) + 4
        return text

    def _within(self, value: Any, characters: int) -> Any:
        """A text that is not longer than that; whatever else as it is."""
        if isinstance(value, str):
            room = max(0, characters)
        elif isinstance(value, bytes | bytearray):
            room = max(0, characters) * 3 // 4  # in base64
        else:
            return value
        if len(value) <= room:
            return value
        self.is_cut = True
        return value[:room]

    def _while_there_is_room(self, items: list[T]) -> Iterator[T]:
        for item in items:
            if self.left <= 0 or (self.characters is not None and self.characters <= 0):
                self.is_cut = True
                return
            yield item


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
    if not said and type(error).__name__ == "CancelledError":
        # asyncio does not say to what it cancels why it does.
        said = "cancelled from outside, as by a timeout"
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
