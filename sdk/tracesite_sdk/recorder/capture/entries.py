"""Entries: one for each thing that happened, with its values frozen, on the way from the host's threads to the worker.

Freezing makes an entry independent of later changes to the host's objects. A text is immutable and kept as it is; everything
else becomes JSON at once, which costs less than any copy. Only the beginning (`Cut`) is frozen of a value that is longer than
the recorder keeps, so that the agent does not wait for 100 MB to be encoded and then cut.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from tracesite_sdk import results
from tracesite_sdk.recorder.guard import instead_of_failing
from tracesite_sdk.records.request_parts import MESSAGES

T = TypeVar("T")

_DEPTH = 50
_MOST_PLAIN = 100_000
"""Nodes that are visited in one value."""
_MOST_CUT = 50_000
"""The same for a value that is cut: some 20 ms."""
_MOST_MESSAGES = 10_000
"""Messages that are kept of a request that is cut."""
_ENTRY_BYTES = 500
_SMALL = 256
"""Bytes of a value in an entry for which there is hardly any room."""
_SAMPLE = 8
"""Items of a container that are weighed; _SAMPLE_OUTSIDE for the outermost one."""
_SAMPLE_OUTSIDE = 32
_WEIGHED_DEPTH = 4
MARGIN = 64 * 1024
"""Characters that are frozen of a long value beyond the limit, because redaction comes later: the end, where a secret may be
cut in half, is removed after redaction."""
MOST = 2**20 + MARGIN
"""Characters of a value that are frozen by default."""
_encode = msgspec.json.Encoder(
    enc_hook=lambda value: instead_of_failing(f"<{type(value).__name__}>", _fields_of, value)
).encode


class Kind(Enum):
    """The kind of an entry."""

    MESSAGE_START = auto()
    MESSAGE_UPDATE = auto()
    """More about a message, while it goes on."""
    MESSAGE_ANSWER = auto()
    """The answer so far."""
    MESSAGE_END = auto()
    STEP_START = auto()
    STEP_UPDATE = auto()
    """More about a step, while it goes on or after its end."""
    STEP_END = auto()
    CALL_START = auto()
    CALL_UPDATE = auto()
    """More about a call."""
    CALL_RESULT = auto()
    """A result apart from the end of the call."""
    CALL_END = auto()
    EVENT = auto()
    """Any other event of a message, with its fields in `Entry.event`."""


@dataclass
class Losses:
    """Data that is missing from the trace of a message, besides dropped entries. Written by the worker."""

    sampled_out: int = 0
    """Calls that sampling left out."""
    truncated: int = 0
    """Values that were cut."""
    redacted: int = 0
    """Secrets that were removed."""

    def as_json(self) -> dict[str, int]:
        return {name: number for name, number in vars(self).items() if number}


class SessionSubject(Protocol):
    """The part of a session that the worker reads."""

    @property
    def external_id(self) -> str: ...
    @property
    def awaits_name(self) -> bool: ...


class MessageSubject(Protocol):
    """The part of a message that the worker reads and writes."""

    id: str
    number: int
    left_out: bool
    losses: Losses

    @property
    def session(self) -> SessionSubject: ...
    @property
    def sampling_key(self) -> str: ...


class Subject(Protocol):
    """The subject of an entry: a message, a step or a call. A protocol, so that the worker does not import scopes."""

    id: str

    @property
    def message(self) -> MessageSubject: ...
    @property
    def call(self) -> CallSubject | None: ...


class CallSubject(Subject, Protocol):
    """The part of a call that the worker reads and writes."""

    name: str
    left_out: bool

    @property
    def parent(self) -> CallSubject | None: ...


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a value that is too long to be frozen whole."""

    kept: str | bytes
    """A text, or JSON in bytes."""
    size: int
    """Approximate bytes of the whole value."""
    path: str = ""
    """The part of the value that was cut: `.messages`. Empty: its end."""
    has_whole_texts: bool = False
    """Whether whole items were left out, so that no text in it ends in the middle of a secret."""

    def __len__(self) -> int:
        return len(self.kept)


ENDS = (Kind.CALL_END, Kind.CALL_RESULT, Kind.STEP_END, Kind.MESSAGE_END)


class Entry(NamedTuple):
    """One thing that happened."""

    kind: Kind
    number: int
    """Nanoseconds since 1970, UTC, increasing."""
    scope: Subject
    name: str
    """Unique among the entries of the scope."""
    fields: dict[str, Any]
    """The part of the event's data that has no content: ids, names, numbers."""
    content: dict[str, Any]
    """The rest of the data, frozen: values that are bytes are JSON."""
    size: int
    """Approximate bytes in memory."""
    failed: bool = False
    duration_ms: float | None = None
    """Only for ends."""
    event: Mapping[str, Any] | None = None
    """Fields of the event besides those that every event has."""


def freeze(value: Any, most: int = MOST, cut: Callable[[Any, int, int], Cut | bytes] | None = None) -> Any:
    """Return the value, safe from later changes: texts, numbers and None unchanged, anything else as JSON in bytes, and a
    `Cut` if it is longer than `most` characters, by default of its beginning.

    Never raises: a value without a JSON form is replaced by its `repr`, or where that fails by its type.
    """
    kind = type(value)
    if kind is str:
        return value if len(value) <= most else Cut(value[:most], _bytes_of_text(value))
    if value is None or kind is bool or kind is int or kind is float:
        return value
    try:
        weight = _weight(value, 0)
    except RuntimeError:
        weight = 0  # another thread changes it at this moment; encoding it is one step
    if weight > most:
        return (cut or _beginning)(value, most, weight)
    try:
        frozen = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        frozen = plain(value)
    # The weight is an estimate.
    return frozen if len(frozen) <= most else (cut or _beginning)(value, most, len(frozen))


def freeze_request(value: Any, most: int = MOST) -> Any:
    """Return a request to a model like `freeze`. One that is too long keeps its first message and the newest ones, because
    earlier requests of the conversation hold the others."""
    frozen = freeze(value, most, _cut_request)
    if type(frozen) is bytes and len(frozen) > most - MARGIN:
        return _cut_request(value, most, len(frozen))
    return frozen


def _cut_request(value: Any, most: int, size: int) -> Cut | bytes:
    return instead_of_failing(None, _newest_messages, value, size, most - MARGIN) or _beginning(value, most, size)


def _newest_messages(request: Any, size: int, most: int) -> Cut | None:
    name = ""
    if isinstance(request, Mapping):
        name = next((name for name in MESSAGES if isinstance(request.get(name), list | tuple)), "")
    messages = request[name] if name else request
    if not isinstance(messages, list | tuple) or len(messages) < 2:
        return None
    others = _within(({key: value for key, value in request.items() if key != name}) if name else {}, most // 2)
    if others is None:
        return None
    first = _within(messages[0], most // 4)
    newest: list[msgspec.Raw] = []
    room = most - len(others) - len(name) - 8 - (len(first) + 1 if first is not None else 0)
    for index in range(len(messages) - 1, max(0, len(messages) - _MOST_MESSAGES), -1):
        message = _within(messages[index], room)
        if message is None:
            break
        newest.append(msgspec.Raw(message))
        room -= len(message) + 1
    if not newest:
        return None
    kept = [*([msgspec.Raw(first)] if first is not None else ()), *reversed(newest)]
    if not name:
        return Cut(_encode(kept), size, has_whole_texts=True)
    fields = msgspec.json.decode(others, type=dict[str, msgspec.Raw])
    return Cut(_encode({**fields, name: kept}), size, f".{name}", has_whole_texts=True)


def _within(value: Any, most: int) -> bytes | None:
    """Return a value as JSON, None if that is longer than `most` bytes."""
    frozen = freeze(value, max(most, 0))
    if type(frozen) is Cut:
        return None
    encoded = frozen if isinstance(frozen, bytes) else _encode(frozen)
    return encoded if len(encoded) <= most else None


def plain(value: Any) -> bytes:
    """Encode a value that msgspec refuses: keys that are no texts, numbers that are too large, cycles, broken characters.
    Slower than `freeze`, and takes anything."""
    return _encode(_Plain().value(value, ()))


def result_says_error(entry: Entry) -> bool:
    """Return whether the result of a call is an error by the server's rules (normalize/tool_results.py)."""
    if entry.kind not in (Kind.CALL_END, Kind.CALL_RESULT):
        return False
    result = entry.content.get("result")
    if type(result) is Cut:
        result = result.kept
    return results.read(msgspec.json.decode(result) if isinstance(result, bytes) else result).status == "error"


def repaired(entry: Entry) -> Entry:
    """Return the entry with every value replaced by one that JSON can hold."""
    fields = {name: value if isinstance(value, int | float) else text_of(value) for name, value in entry.fields.items()}
    content = {name: _repaired(value) for name, value in entry.content.items()}
    return entry._replace(fields=fields, content=content)


def _repaired(value: Any) -> Any:
    if type(value) is Cut:
        return replace(value, kept=_valid_utf8(value.kept)) if isinstance(value.kept, str) else value
    return value if isinstance(value, bytes) else plain(value)


def without_values(entry: Entry) -> Entry:
    """Return the entry with its long values replaced by their sizes, for a queue that is nearly full."""
    content = {
        name: Cut("", value.size if type(value) is Cut else len(value))
        if type(value) in (str, bytes, Cut) and len(value) > _SMALL
        else value
        for name, value in entry.content.items()
    }
    return entry._replace(content=content, size=size_of(content))


def thaw(value: Any) -> Any:
    """Return a copy of the value in plain dicts, lists, texts and numbers, as it is once it is frozen."""
    frozen = freeze(value)
    if type(frozen) is Cut:
        frozen = frozen.kept
    return msgspec.json.decode(frozen) if isinstance(frozen, bytes) else frozen


def size_of(content: dict[str, Any]) -> int:
    """Return the approximate bytes of an entry with this content in memory."""
    size = _ENTRY_BYTES
    for value in content.values():
        kind = type(value)
        if kind is bytes or kind is str or kind is Cut:
            size += len(value)
    return size


def _weight(value: Any, depth: int) -> int:
    """Return the approximate number of characters of a value as JSON. Samples a few items of a large container, so that this
    costs less than a microsecond for the arguments of most calls."""
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
    """Return the fields of an object that is encoded by its fields: a dataclass, a pydantic model."""
    kind = type(value)
    if not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "model_dump")):
        return None
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return fields if type(fields) is dict else None


def _bytes_of_text(text: str) -> int:
    """Return the approximate bytes of a long text. Counting them would cost as much as encoding it."""
    if text.isascii():
        return len(text)
    start = text[:MARGIN]
    return len(text) * len(start.encode("utf-8", "replace")) // len(start)


def _beginning(value: Any, most: int, size: int) -> Cut | bytes:
    """Return the beginning of a value that seems too long, as complete JSON without the items that do not fit."""
    plain = _Plain(_MOST_CUT, most)
    beginning = _encode(plain.value(value, ()))
    return Cut(beginning, max(size, len(beginning))) if plain.is_cut else beginning


def beginning(value: Any, most: int, without: int = 0) -> bytes:
    """Return the beginning of a plain value as complete JSON of at most `most` bytes, without its last `without` characters."""
    room = most
    if without:
        whole = _Plain(characters=sys.maxsize)
        whole.value(value, ())
        assert whole.characters is not None, "it was given"
        room = max(0, min(most, sys.maxsize - whole.characters - without))
    while True:
        made = _encode(_Plain(_MOST_CUT, room).value(value, ()))
        if len(made) <= most or not room:
            return made
        # Some characters take more than one byte.
        room = min(room - 1, room * most // len(made))


class _Plain:
    """Converts one value to plain JSON values, within limits, because a graph of objects may contain itself a million times."""

    def __init__(self, most: int = _MOST_PLAIN, characters: int | None = None) -> None:
        self.left = most
        self.characters = characters
        """Characters that are left; None for no limit."""
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
            return _valid_utf8(value)
        if self.left < 0 or len(above) >= _DEPTH:
            return f"<{kind.__name__}, nested too deeply>"
        if id(value) in above:
            return f"<{kind.__name__}, which holds itself>"
        # Reading an object of the host may run any code.
        return instead_of_failing(f"<{kind.__name__}>", self.members, value, (*above, id(value)))

    def members(self, value: Any, above: tuple[int, ...]) -> Any:
        if self.characters is not None:
            value = _fields(value) or value
        if isinstance(value, Mapping):
            named = list(islice(value.items(), max(0, self.left + 1)))
            # Two keys may become the same text: the last one wins, as in JSON.
            return {self._key(key): self.value(item, above) for key, item in self._while_there_is_room(named)}
        if isinstance(value, list | tuple | set | frozenset):
            items = list(islice(value, max(0, self.left + 1)))
            return [self.value(item, above) for item in self._while_there_is_room(items)]
        if isinstance(value, int):
            return self.value(int(value), above)
        read = instead_of_failing(None, lambda: msgspec.json.decode(_encode(value)))
        return _text_of(value) if read is None else read

    def _key(self, key: Any) -> str:
        text = _valid_utf8(key) if isinstance(key, str) else _text_of(key)
        if self.characters is not None:
            text = self._within(text, self.characters)
            self.characters -= len(text) + 4
        return text

    def _within(self, value: Any, characters: int) -> Any:
        """Return a text cut to this length; any other value unchanged."""
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


def _fields_of(value: Any) -> Any:
    """Return a JSON form of a type that JSON does not have: a pydantic model by its fields, an exception by its text."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, BaseException):
        return error_text(value)
    return _text_of(value)


def error_text(error: BaseException) -> str:
    """Return an exception as people read it: `ValueError: no such city`."""
    text = _text_of(error, str)
    if not text and type(error).__name__ == "CancelledError":
        # asyncio does not give the reason of a cancellation.
        text = "cancelled from outside, as by a timeout"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(value: Any) -> str:
    """Convert any value to a text that UTF-8 can hold: an id that is a number, a broken name."""
    return _valid_utf8(value) if type(value) is str else _text_of(value, str)


def _text_of(value: Any, by: Callable[[Any], str] = repr) -> str:
    # A repr of the host that fails must not lose the rest of the value.
    text = instead_of_failing(None, by, value)
    return _valid_utf8(text) if isinstance(text, str) else f"<{type(value).__name__}>"


def _valid_utf8(text: str) -> str:
    """Escape surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
