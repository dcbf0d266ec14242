"""Snapshots: the context of an agent before a node, and the values of which a context consists.

A context is stored as JSON in parts that are named by their hash, so that equal contents are stored once: long texts, large
dicts, and lists in pieces that each name the piece before them. A list that grows by one item costs that item. Types that JSON
does not have are tagged (`{"$type": "tuple", ...}`) and come back as they were; `Codecs` adds the caller's types. A value that
cannot be kept is replaced, and a note says where and how. Nothing is pickled.
"""

from __future__ import annotations

import base64
import marshal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tracesite_sdk.recorder.capture.entries import text_of, thaw
from tracesite_sdk.recorder.guard import failure_of
from tracesite_sdk.records.snapshot_parts import LIST, PART, TYPE, assembled, outline, ref_of
from tracesite_sdk.redaction.rules import MARKER

_TEXT_PART = 256
"""Characters from which a text is a part."""
_DICT_PART = 512
"""Approximate bytes from which a dict is a part."""
_LIST_PIECE = 256
"""Approximate bytes from which the newest items of a list become a piece."""
_DEPTH = 100
_PROBE = 64
"""Characters by which a text without secrets stands for itself when its surroundings are searched: its key may be secret."""
_MOST_CACHED = 8 * 2**20
"""Approximate bytes of texts and items that are remembered for a session."""
_encode = msgspec.json.Encoder().encode


class Note(NamedTuple):
    """A value that a snapshot does not hold as it was."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The context that nodes were about to use. `Store.context` has its content."""

    id: str
    session_id: str
    """The external id of the session."""
    ts: int
    """Nanoseconds since 1970, UTC."""
    node_ids: tuple[str, ...]
    context_ref: str
    """The name under which the store keeps the context: the hash of its content."""
    notes: tuple[Note, ...] = ()
    redactions: tuple[Mapping[str, Any], ...] = ()
    """Receipts of the secrets that were removed."""
    is_purged: bool = False
    """Whether the content was removed later."""

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the session's index of snapshots."""
        return {
            "id": self.id,
            "ts": datetime.fromtimestamp(self.ts / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "nodeIds": list(self.node_ids),
            "contextRef": self.context_ref,
            "notes": [note._asdict() for note in self.notes],
            "redactions": [dict(receipt) for receipt in self.redactions],
            "purged": self.is_purged,
        }


# --- Values ------------------------------------------------------------------------------------------------------------


class Codec(NamedTuple):
    """Convert values of a type to JSON values and back."""

    type: type
    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class Codecs:
    """The types that a context may hold besides those of JSON."""

    def __init__(self) -> None:
        self._by_type: dict[type, Codec] = {}
        self._by_name: dict[str, Codec] = {}
        for codec in _BUILT_IN:
            self.register(*codec)

    def register(self, type_: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        """Keep values of exactly this type: `encode` returns values that a context may hold, `decode` makes the value of them.
        `name` is stored, so it must stay the same. Raises ValueError if another type has this name."""
        known = self._by_name.get(name)
        if known is not None and known.type is not type_:
            raise ValueError(f"Codecs.register: the name {name!r} is taken by {known.type.__qualname__}.")
        self._by_type[type_] = self._by_name[name] = Codec(type_, name, encode, decode)

    def of(self, type_: type) -> Codec | None:
        return self._by_type.get(type_)

    def decode(self, name: str, value: Any) -> Any:
        """Return the value that was encoded, or the text of a secret that was removed from it. Raises LookupError if the name
        is not registered in this process, or if its decoder fails."""
        codec = self._by_name.get(name)
        if codec is None:
            raise LookupError(f"The snapshot holds a value of type {name!r}: register it with Codecs.register.")
        decoded = failure_of(codec.decode, value)
        if not isinstance(decoded, Exception):
            return decoded
        if isinstance(value, str) and MARKER in value:
            return value
        raise LookupError(f"The decoder of {name!r} failed: {type(decoded).__name__}.") from decoded


def _text_of_bytes(value: bytes) -> dict[str, str]:
    # Readable bytes stay readable, so that secrets in them are found.
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _bytes_of_text(value: Mapping[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"])


_BUILT_IN = (
    Codec(tuple, "tuple", list, tuple),
    Codec(set, "set", list, set),
    Codec(frozenset, "frozenset", list, frozenset),
    Codec(bytes, "bytes", _text_of_bytes, _bytes_of_text),
    Codec(datetime, "datetime", datetime.isoformat, datetime.fromisoformat),
    Codec(date, "date", date.isoformat, date.fromisoformat),
    Codec(Decimal, "decimal", str, Decimal),
    Codec(UUID, "uuid", str, UUID),
    Codec(int, "int", str, int),  # beyond 64 bits
    Codec(float, "float", repr, float),  # NaN and infinity
    # Keys that are no texts, or that begin like a tag.
    Codec(dict, "dict", lambda value: [[key, item] for key, item in value.items()], dict),
)


class Unchanged(NamedTuple):
    """Stands in a plain value for an item of a list that an earlier context of the session had, in the same list."""

    found: Any
    """The item with references to its parts."""
    size: int
    """Its approximate bytes."""
    refs: tuple[str, ...]
    """The parts that it names."""


Recall = Callable[[str, Any], Unchanged | None]
"""Returns what an item of the list at a path was before, if it is known."""


class Plain(NamedTuple):
    """A value in JSON types."""

    value: Any
    notes: list[Note]
    """Notes about values that could not be kept."""
    items: dict[int, str]
    """The paths of the lists in which the dicts with these ids are."""


def plain_of(value: Any, codecs: Codecs, recall: Recall | None = None) -> Plain:
    """Return a deep copy of the value, with Unchanged for the items that are recalled."""
    copying = _Copying(codecs, recall)
    return Plain(copying.copied(value, "", ()), copying.notes, copying.items)


@dataclass
class _Copying:
    codecs: Codecs
    recall: Recall | None
    notes: list[Note] = field(default_factory=list)
    items: dict[int, str] = field(default_factory=dict)

    def copied(self, value: Any, path: str, above: tuple[int, ...]) -> Any:
        kind = type(value)
        if kind is str:
            if value.isascii() or not isinstance(failure_of(str.encode, value), Exception):
                return value
            self.notes.append(Note(path, "A text with characters that UTF-8 cannot hold; they were escaped."))
            return text_of(value)
        if value is None or kind is bool or (kind is int and -(2**63) <= value < 2**64):
            return value
        if kind is float and math.isfinite(value):
            return value
        if id(value) in above or len(above) > _DEPTH:
            reason = "It holds itself" if id(value) in above else "It is nested too deeply"
            self.notes.append(Note(path, f"{reason}; it was replaced by None."))
            return None
        inside = (*above, id(value))
        if kind is dict and all(type(key) is str and not key.startswith("$") and key.isascii() for key in value):
            return {key: self.copied(item, f"{path}.{key}" if path else key, inside) for key, item in value.items()}
        if kind is list:
            return [self._item(item, path, index, inside) for index, item in enumerate(value)]
        codec = self.codecs.of(kind)
        if codec is not None:
            encoded = failure_of(codec.encode, value)
            if not isinstance(encoded, Exception):
                return {TYPE: codec.name, "value": self.copied(encoded, path, inside)}
            self.notes.append(Note(path, f"The encoder of {codec.name!r} failed: {type(encoded).__name__}."))
        plain = thaw(value)
        how = "by its repr" if isinstance(plain, str) else "by its fields"
        self.notes.append(Note(path, f"{kind.__qualname__} has no encoder; it was kept {how}."))
        return self.copied(plain, path, inside)

    def _item(self, item: Any, path: str, index: int, above: tuple[int, ...]) -> Any:
        if type(item) is not dict or self.recall is None:
            return self.copied(item, f"{path}[{index}]", above)
        copy = self.recall(path, item)
        if copy is None:
            copy = self.copied(item, f"{path}[{index}]", above)
            self.items[id(copy)] = path
        return copy


# --- Parts -------------------------------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """A context in parts."""

    ref: str
    """The part with which reading begins."""
    parts: dict[str, bytes]
    """The parts that are not known yet."""


@dataclass
class Parts:
    """The parts of one session that its store has, so that only new ones are made."""

    known: set[str] = field(default_factory=set)
    _texts: dict[str, str] = field(default_factory=dict)
    """Parts of long texts. A text finds its part without being hashed again, if it is the same object."""
    _harmless: set[str] = field(default_factory=set)
    _items: dict[tuple[str, int, bytes], tuple[bytes, Unchanged]] = field(default_factory=dict)
    """Items of lists that hold no secrets: by the path of their list, and the length and end of their content, so that the whole
    of it is compared and not hashed. Most of a context are messages, and most of them were there before."""
    _rules: object = None
    _size: int = 0

    def under(self, rules: object) -> None:
        """Forget what was found harmless by other rules."""
        if self._rules is not rules:
            self._rules, self._harmless, self._items = rules, set(), {}

    def recall(self, path: str, item: Any) -> Unchanged | None:
        """Return what an equal item of this list was before, if the store has its parts."""
        content = _content_of(item)
        if content is None:
            return None
        before, unchanged = self._items.get((path, len(content), content[-_PROBE:]), (None, None))
        return (
            unchanged if unchanged is not None and before == content and self.known.issuperset(unchanged.refs) else None
        )

    def fresh_texts(self, value: Any) -> tuple[Any, list[str]]:
        """Return the value with only the beginnings of long texts, and those long texts that were not found harmless before."""
        fresh: list[str] = []
        return self._probe(value, fresh), fresh

    def harmless(self, texts: Iterable[str]) -> None:
        """Remember that these texts hold no secrets."""
        for text in texts:
            self._remember(text)
            self._harmless.add(text)

    def split(self, value: Any, items: Mapping[int, str] | None = None) -> Encoded:
        """Return a plain value in parts, and remember its `items`, if they hold no secrets."""
        made: dict[str, bytes] = {}
        root, _size = self._split(value, made, items or {})
        return Encoded(self._part(root, made), made)

    def _probe(self, value: Any, fresh: list[str]) -> Any:
        kind = type(value)
        if kind is dict:
            return {key: self._probe(item, fresh) for key, item in value.items()}
        if kind is list:
            return [self._probe(item, fresh) for item in value]
        if kind is str and len(value) >= _TEXT_PART:
            if value not in self._harmless:
                fresh.append(value)
            return value[:_PROBE]
        return None if kind is Unchanged else value

    def _split(self, value: Any, made: dict[str, bytes], items: Mapping[int, str]) -> tuple[Any, int]:
        """Return the value with references, and its approximate size in bytes."""
        kind = type(value)
        if kind is Unchanged:
            return value.found, value.size
        if kind is str:
            if len(value) < _TEXT_PART:
                return value, len(value) + 3
            ref = self._texts.get(value)
            if ref is None or (ref not in self.known and ref not in made):
                ref = self._part(value, made)
                self._remember(value)
                self._texts[value] = ref
            return {PART: ref}, 45
        if kind is dict:
            size, fields = 2, {}
            for key, item in value.items():
                fields[key], more = self._split(item, made, items)
                size += len(key) + more + 4
            split, size = (fields, size) if size < _DICT_PART else ({PART: self._part(fields, made)}, 45)
            if id(value) in items:
                self._remember_item(items[id(value)], value, split, size)
            return split, size
        if kind is list:
            return self._split_list(value, made, items)
        return value, 6

    def _split_list(self, values: Sequence[Any], made: dict[str, bytes], items: Mapping[int, str]) -> tuple[Any, int]:
        before: str | None = None
        tail: list[Any] = []
        size = 2
        for value in values:
            split, more = self._split(value, made, items)
            tail.append(split)
            size += more + 1
            if size >= _LIST_PIECE:
                before = self._part([before, tail], made)
                tail, size = [], 2
        return (tail, size) if before is None else ({LIST: before, "tail": tail}, size + 54)

    def _part(self, value: Any, made: dict[str, bytes]) -> str:
        encoded = _encode(value)
        ref = ref_of(encoded)
        if ref not in self.known:
            made[ref] = encoded
        return ref

    def _remember(self, text: str) -> None:
        if text not in self._texts and text not in self._harmless:
            self._make_room(len(text))

    def _remember_item(self, path: str, item: Any, split: Any, size: int) -> None:
        content = _content_of(item) if _is_json(item) else None
        if content is not None:
            self._make_room(len(content))
            refs = tuple(place.ref for place in outline(split).named)
            self._items[path, len(content), content[-_PROBE:]] = content, Unchanged(split, size, refs)

    def _make_room(self, size: int) -> None:
        self._size += size
        if self._size > _MOST_CACHED:
            self._texts, self._harmless, self._items, self._size = {}, set(), {}, size


def _is_json(value: Any) -> bool:
    """Return whether a plain value was one before, too: without the tags of other types."""
    if type(value) is dict:
        return TYPE not in value and all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if type(value) is list else type(value) is not Unchanged


def _content_of(value: Any) -> bytes | None:
    """Return bytes that are equal for equal values of the same JSON types only; None for most that hold other types.

    They never leave the process. Version 2 has no references, which depend on more than the value.
    """
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return None


def read(ref: str, fetch: Callable[[Sequence[str]], Mapping[str, bytes]], codecs: Codecs) -> Any:
    """Return a new copy of a context. `fetch` returns parts by reference. Raises LookupError if a part is missing."""

    def part(name: str) -> bytes:
        content = fetch([name]).get(name)
        if content is None:
            raise LookupError(f"The snapshot is incomplete: its part {name} is missing.")
        return content

    return assembled(ref, part, codecs.decode)
