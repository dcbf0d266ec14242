"""The parts in which contexts of agents are stored: JSON documents that name others by the hash of their content.

`{"$part": ref}` stands for the value of a part, `{"$list": ref, "tail": [...]}` for a list whose earlier items are in pieces
that each name the piece before them, and `{"$type": name, "value": ...}` for a type that JSON does not have. The recorder
writes them (recorder/snapshots/parts.py).

A few bytes of parts may stand for any number of values, because each part may name others many times. So what a context would
be is measured before it is built: `outline` looks at one part, and `measured` adds up what the parts name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

TYPE, PART, LIST = "$type", "$part", "$list"
REF = re.compile(r"[0-9a-f]{32}")
VALUE_BYTES = 32
"""The size of each value besides its JSON: `[]` takes 2 bytes of JSON, and 56 of memory."""
MOST_SIZE = 128 * 2**20
"""The size of a context with all of its values: its JSON, and VALUE_BYTES for each. A context that a request could bring as a single value
of 64 MiB has no more."""
MOST_DEPTH = 128
"""Levels of a context. Recorders keep 101."""


class TooLargeContextError(ValueError):
    """A context has more than MOST_SIZE."""


class BrokenPartError(ValueError):
    """A part of a context is none."""

    def __init__(self, reason: str, ref: str) -> None:
        super().__init__(reason)
        self.ref = ref


class NamedPart(NamedTuple):
    """A part that another one names, and whether it is a piece of a list."""

    ref: str
    is_piece: bool
    depth: int
    """Levels above it in the part that names it."""


class Outline(NamedTuple):
    """The size and depth of a part without the parts that it names."""

    size: int
    """Its JSON, and VALUE_BYTES for each of its values."""
    depth: int
    """Its levels."""
    named: list[NamedPart]
    """The parts that it names, as often as it does."""
    before: str | None = None
    """The piece before it, if it is a piece of a list. Whether it is one only the part that names it knows."""
    is_piece: bool = False
    """Whether it has the form of a piece."""

    def below(self) -> list[str]:
        """Return the parts that it names, each once."""
        if not self.named:
            return [] if self.before is None else [self.before]
        return sorted({place.ref for place in self.named} | ({self.before} if self.before else set()))


class Measure(NamedTuple):
    """The size and depth of a part with all parts that it names."""

    size: int
    depth: int
    is_known: bool
    """Whether all parts were known; otherwise there may be more."""


def ref_of(content: bytes) -> str:
    """Return the name of a part."""
    return blake2b(content, digest_size=16).hexdigest()


def outline(value: Any, length: int = 0) -> Outline:
    """Return the outline of a part's decoded content, which has so many bytes. Raises ValueError if it has not the form of one."""
    is_piece = isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)
    before = value[0] if is_piece else None
    is_piece = is_piece and (before is None or (isinstance(before, str) and REF.fullmatch(before) is not None))
    named: list[NamedPart] = []
    count = depth = 0
    level = [value]
    while level:
        if depth > MOST_DEPTH:
            raise ValueError(_TOO_DEEP)
        count += len(level)
        below: list[Any] = []
        for node in level:
            # Every value that is stored passes here, so exact types are compared.
            kind = type(node)
            if kind is list:
                below += node
            elif kind is dict:
                if PART in node:
                    # A part that is nothing but the name of another is a level, so that there is an end of them.
                    named.append(NamedPart(_ref(node, PART), is_piece=False, depth=max(1, depth)))
                elif LIST in node:
                    named.append(NamedPart(_ref(node, LIST), is_piece=True, depth=depth))
                    below += node["tail"]
                elif TYPE in node:
                    below.append(_typed(node))
                else:
                    below += node.values()
        level = below
        depth += 1
    return Outline(length + VALUE_BYTES * count, depth - 1, named, before if is_piece else None, is_piece)


def outlines_of(parts: Mapping[str, msgspec.Raw | bytes]) -> dict[str, Outline]:
    """Return the outline of each part. Raises BrokenPartError."""
    outlines = {}
    for ref, content in parts.items():
        try:
            outlines[ref] = outline(msgspec.json.decode(content), len(content))
        except ValueError as error:
            raise BrokenPartError(str(error), ref) from error
    return outlines


def measured(ref: str, outlines: Mapping[str, Outline], most: int = MOST_SIZE) -> dict[str, Measure]:
    """Return what a part and all that it names are. Parts without an outline are unknown, and count nothing.

    It takes time for each part once, however often it is named. Raises TooLargeContextError, and BrokenPartError for a piece that
    is none, for parts that name themselves, and for too many levels.
    """
    measures: dict[str, Measure] = {}
    opened: dict[str, Outline] = {}
    waiting = [ref]
    while waiting:
        name = waiting[-1]
        if name in measures:
            waiting.pop()
        elif name in opened:
            measures[name] = _sum(name, opened[name], measures, most)
            waiting.pop()
        elif name not in outlines:
            measures[name] = Measure(0, 0, is_known=False)
        else:
            opened[name] = outlines[name]
            for place in opened[name].named:
                if place.is_piece and not outlines.get(place.ref, _ANY).is_piece:
                    raise BrokenPartError("expected a piece of a list: the piece before it, and items", place.ref)
            waiting += [below for below in opened[name].below() if below not in measures]
    return measures


_ANY = Outline(0, 0, [], is_piece=True)
_TOO_DEEP = f"expected at most {MOST_DEPTH} levels"


def _sum(name: str, of: Outline, measures: Mapping[str, Measure], most: int) -> Measure:
    size, depth, is_known = of.size, of.depth, True
    places = of.named if of.before is None else [*of.named, NamedPart(of.before, is_piece=True, depth=0)]
    for place in places:
        below = measures.get(place.ref)
        if below is None:
            raise BrokenPartError("expected parts that do not name themselves", name)
        size += below.size
        depth = max(depth, place.depth + below.depth)
        is_known = is_known and below.is_known
    if size > most:
        raise TooLargeContextError
    if depth > MOST_DEPTH:
        raise BrokenPartError(_TOO_DEEP, name)
    return Measure(size, depth, is_known)


def _ref(tagged: Mapping[str, Any], tag: str) -> str:
    """Return the part that is named. Raises ValueError for another form."""
    ref = tagged[tag]
    if not isinstance(ref, str) or not REF.fullmatch(ref):
        raise ValueError("expected the name of a part: 32 hexadecimal digits")
    if tag == PART and len(tagged) != 1:
        raise ValueError(f"expected nothing beside {PART}")
    if tag == LIST and not (len(tagged) == 2 and isinstance(tagged.get("tail"), list)):
        raise ValueError(f"expected a list `tail`, and nothing else, beside {LIST}")
    return ref


def _typed(tagged: Mapping[str, Any]) -> Any:
    if not (len(tagged) == 2 and "value" in tagged and isinstance(tagged[TYPE], str)):
        raise ValueError(f"expected a name as {TYPE}, and `value` beside it")
    return tagged["value"]


def assembled(
    ref: str,
    part: Callable[[str], bytes],
    typed: Callable[[str, Any], Any] = lambda name, value: {TYPE: name, "value": value},
) -> Any:
    """Return a new copy of the value that begins with a part. `part` returns the content of one, or raises; `typed` makes the
    value of a type that JSON does not have.

    For parts that are trusted, or were measured before.
    """

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
