"""Every position that a value can have in a snapshot: in parts of their own, in pieces of lists, and in types that JSON does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tracesite_sdk.recorder.snapshots.parts import Codecs, Encoded, Parts, plain_of

LONG = "word " * 60
"""More than a text that is stored in its parent."""
WIDE = {f"filler_{number}": "word " * 6 for number in range(20)}
"""More than a dict that is stored in its parent."""

POSITIONS: dict[str, Callable[[str], Any]] = {
    "short": lambda text: text,
    "long": lambda text: f"{LONG}{text} {LONG}",
    "of dict": lambda text: {"inner": text},
    "of wide dict": lambda text: {"inner": text, **WIDE},
    "long of wide dict": lambda text: {"inner": f"{LONG}{text}", **WIDE},
    "of list": lambda text: [text, "a"],
    "of pieces": lambda text: [*(f"{number} word word word" for number in range(40)), text],
    "first of pieces": lambda text: [text, *(f"{number} word word word" for number in range(40))],
    "long of pieces": lambda text: [*(f"{number} {LONG}" for number in range(9)), f"{LONG}{text}"],
    "dicts of pieces": lambda text: [{"inner": text, "number": number, "more": "word " * 20} for number in range(9)],
    "of tuple": lambda text: (1, f"{text} {LONG}", [text]),
    "of set": lambda text: {text},
    "of bytes": lambda text: f"{text} {LONG}".encode(),
    "of dict with numbers": lambda text: {7: text, "名": [text], "inner": {"deep": text, 8: {9: text}}},
    "of key": lambda text: {(1, text): "a"},
    "of wide dict with numbers": lambda text: {7: text, "inner": f"{LONG}{text}", **WIDE},
    "of json": lambda text: msgspec.json.encode({"inner": {"deep": [text]}}).decode(),
    "of long json": lambda text: msgspec.json.encode({"inner": [text], "long": LONG}).decode(),
}
"""What a recorder stores in different ways, with a text in it."""


def encoded(context: Any, parts: Parts | None = None) -> Encoded:
    """Return a context as a recorder sends it; only with the parts that are not in `parts`."""
    made = (Parts() if parts is None else parts).split(plain_of(context, Codecs()).value)
    if parts is not None:
        parts.known |= made.parts.keys()
    return made
