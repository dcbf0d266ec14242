"""The parts in which contexts of agents are stored: JSON documents that name others by the hash of their content.

`{"$part": ref}` stands for the value of a part, `{"$list": ref, "tail": [...]}` for a list whose earlier items are in pieces
that each name the piece before them, and `{"$type": name, "value": ...}` for a type that JSON does not have. Without Django,
because the recorder writes them (tracesite/recorder/snapshots.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

TYPE, PART, LIST = "$type", "$part", "$list"
REF = re.compile(r"[0-9a-f]{32}")


class Place(NamedTuple):
    """A part that another one names, and whether it is a piece of a list."""

    ref: str
    is_piece: bool


def ref_of(content: bytes) -> str:
    """Return the name of a part."""
    return blake2b(content, digest_size=16).hexdigest()


def named_in(value: Any, *, is_piece: bool = False) -> Iterator[Place]:
    """Yield the parts that the decoded content of a part names. Raises ValueError if it has not the form of one."""
    if is_piece:
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)):
            raise ValueError("expected a piece of a list: the piece before it, and items")
        before, value = value
        if before is not None:
            yield Place(_ref(before), is_piece=True)
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if PART in value:
                yield Place(_ref(value[PART]), is_piece=False)
            elif LIST in value:
                yield Place(_ref(value[LIST]), is_piece=True)
                waiting.append(value.get("tail"))
            else:
                waiting += value.values()


def _ref(value: Any) -> str:
    if not isinstance(value, str) or not REF.fullmatch(value):
        raise ValueError("expected the name of a part: 32 hexadecimal digits")
    return value


def assembled(
    ref: str,
    part: Callable[[str], bytes],
    typed: Callable[[str, Any], Any] = lambda name, value: {TYPE: name, "value": value},
) -> Any:
    """Return a new copy of the value that begins with a part. `part` returns the content of one, or raises; `typed` makes the
    value of a type that JSON does not have."""

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [value_of(item) for item in value]
        if not isinstance(value, dict):
            return value
        if PART in value:
            return value_of(msgspec.json.decode(part(value[PART])))
        if LIST in value:
            return list_of(value)
        if TYPE in value:
            return typed(value[TYPE], value_of(value["value"]))
        return {key: value_of(item) for key, item in value.items()}

    def list_of(value: Mapping[str, Any]) -> list[Any]:
        pieces = [value["tail"]]
        before = value[LIST]
        while before is not None:
            before, piece = msgspec.json.decode(part(before))
            pieces.append(piece)
        return [value_of(item) for piece in reversed(pieces) for item in piece]

    return value_of(msgspec.json.decode(part(ref)))
