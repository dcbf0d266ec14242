"""Redact contexts of agents by what they hold, whichever way they are stored (records/snapshot_parts.py).

A part has neither the name nor the path of what it holds, so each is searched as if it stood where the context has it. A value
of a type that JSON does not have is searched without its tag, and a dict that is stored as pairs like any other dict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from tracesite_sdk.records.snapshot_parts import LIST, PART, TYPE, TooLargeContextError, measured, outlines_of, ref_of
from tracesite_sdk.redaction.engine import Receipt, redact
from tracesite_sdk.redaction.rules import MARKER, Rules
from tracesite_sdk.redaction.values import Unread

_DICT = "dict"
"""The type whose values are pairs of keys and items."""
_NONE = object()
_IN_PATHS = re.compile(r"[.\[\]]")
_INDEX = re.compile(r"\[\d+\]")
_LONGEST_STEP = 64
MOST_PLACES = 10_000
"""Places at which the parts of a snapshot may be, and _PLACES_OF_PART more for each of them."""
_PLACES_OF_PART = 10


def redact_context(context: Any, rules: Rules) -> Any:
    """Return a context, which is whole, without what the rules remove."""
    return _Writer(rules).value(context, redact(_plain(context), rules)[0], "")


def redact_parts(parts: Mapping[str, Raw], root: str, rules: Rules) -> tuple[dict[str, Raw], list[Receipt]]:
    """Return those of the parts to which a context leads, without what the rules remove, and the receipts.

    They keep their names, unless rules ask for places: the same part may be at several, and elsewhere in the contexts to come.
    Then its name is of its place, too, but for the root. Raises BrokenPartError, and TooLargeContextError for parts that stand for
    too much or are at too many places.
    """
    measured(root, outlines_of(parts))
    walk = _Walk(parts, rules)
    walk.visit(root, "")
    most = MOST_PLACES + _PLACES_OF_PART * len(parts)
    while walk.waiting:
        walk.redact_next()
        if len(walk.visited) > most:
            raise TooLargeContextError
    return walk.made, walk.receipts


class _Key:
    """Stands for a key of a dict that is no text."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        return str(self.number)


def _plain(value: Any) -> Any:
    """Return a value without its tags. What is in other parts is Unread."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if PART in value or LIST in value:
        return Unread()
    if TYPE in value:
        inner = value["value"]
        return _plain_of_pairs(inner) if value[TYPE] == _DICT and isinstance(inner, list) else _plain(inner)
    return {key: _plain(item) for key, item in value.items()}


def _plain_of_pairs(pairs: list[Any]) -> dict[Any, Any]:
    """Return the dict that is stored as pairs of keys and items."""
    plain: dict[Any, Any] = {}
    for number, (key, item) in enumerate(_pairs(pairs)):
        if isinstance(key, str):
            plain[key] = _plain(item)
        else:
            # The key may hold texts.
            plain[_Key(number)] = _plain(key)
            plain[_Key(number)] = _plain(item)
    return plain


def _pairs(stored: list[Any]) -> list[tuple[Any, Any]]:
    """Return keys and items, of equal keys the last one. Of what is no pair, such as one in a part of its own, the key is _NONE."""
    pairs: dict[Any, tuple[Any, Any]] = {}
    for number, pair in enumerate(stored):
        key, item = pair if isinstance(pair, list) and len(pair) == 2 else (_NONE, pair)
        pairs[key if isinstance(key, str) else number] = (key, item)
    return list(pairs.values())


class _Writer:
    """Write redacted plain values back in the form in which they were stored."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.receipts: list[Receipt] = []

    def value(self, stored: Any, clean: Any, path: str) -> Any:
        """Return the value that is stored with what is left of it; `clean` is what is left of its plain value."""
        if isinstance(stored, list) and isinstance(clean, list):
            return self.items(stored, clean, path, 0)
        if not isinstance(stored, dict):
            return clean
        if TYPE in stored:
            return self.typed(stored, clean, path)
        if isinstance(clean, Unread):
            return self.unread(stored, path, "piece")
        if not isinstance(clean, dict):
            return clean
        # Keys that hold secrets have changed; their order has not.
        pairs = zip(stored.values(), clean.items(), strict=True)
        return {key: self.value(item, left, _below(path, key)) for item, (key, left) in pairs}

    def items(self, stored: list[Any], clean: list[Any], path: str, first: int) -> list[Any]:
        pairs = zip(stored, clean, strict=True)
        return [self.value(item, left, f"{path}[{index}]") for index, (item, left) in enumerate(pairs, first)]

    def typed(self, stored: Mapping[str, Any], clean: Any, path: str) -> Any:
        # Functions get values only.
        name, removed = redact(stored[TYPE], self.rules.without_functions, path)
        self.receipts += removed
        inner = stored["value"]
        if stored[TYPE] == _DICT and isinstance(inner, list) and isinstance(clean, dict):
            value: Any = self.pairs(inner, clean, path)
        elif stored[TYPE] == _DICT and isinstance(clean, Unread) and LIST in inner:
            value = self.unread(inner, path, "pairs")
        else:
            value = self.value(inner, clean, path)
        # A tuple of the letters of a marker is not what was there.
        is_gone = isinstance(inner, list | dict) and not isinstance(value, list | dict)
        return value if is_gone else {TYPE: name, "value": value}

    def pairs(self, stored: list[Any], clean: dict[Any, Any], path: str) -> list[Any]:
        pairs = []
        left = iter(clean.items())
        for number, (key, item) in enumerate(_pairs(stored)):
            name, value = next(left)
            if isinstance(key, str):
                pairs.append([name, self.value(item, value, _below(path, name))])
                continue
            below, of_item = _below(path, str(number)), next(left)[1]
            if key is not _NONE:
                pairs.append([self.value(key, value, below), self.value(item, of_item, below)])
            elif isinstance(of_item, Unread) and LIST in item:
                pairs.append(self.unread(item, path, "pair"))
            else:
                pairs.append(self.value(item, of_item, below))
        return pairs

    def unread(self, stored: Mapping[str, Any], path: str, kind: str) -> Any:
        raise AssertionError("a context that is whole has no parts")


class _Walk(_Writer):
    """The way from the root of a context through its parts.

    Each part is a `value`, a `piece` of a list, a piece of the `pairs` of a dict, or a piece of one `pair`.
    """

    def __init__(self, parts: Mapping[str, Raw], rules: Rules) -> None:
        super().__init__(rules)
        self.parts = parts
        self.by_place = bool(rules.paths or rules.functions)
        self.made: dict[str, Raw] = {}
        self.visited: set[tuple[str, str]] = set()
        """Names of parts, and what they are."""
        self.waiting: list[tuple[str, str, str, str]] = []
        """Their names, what they are called in `parts`, their paths, and what they are."""
        self.counts: dict[str, int] = {}
        """The items of a list up to the end of a piece."""

    def visit(self, ref: str, path: str, kind: str = "value") -> str:
        """Return the name of a part, which is redacted later."""
        name = ref
        if self.by_place and (path or kind != "value"):
            name = ref_of(msgspec.json.encode([ref, _INDEX.sub("[*]", path), kind]))
        if (name, kind) not in self.visited and ref in self.parts:
            self.visited.add((name, kind))
            self.waiting.append((name, ref, path, kind))
        return name

    def redact_next(self) -> None:
        name, ref, path, kind = self.waiting.pop()
        receipts = len(self.receipts)
        sent = self.made.get(name, self.parts[ref])
        stored = msgspec.json.decode(sent)
        if kind == "value":
            clean, removed = redact(_plain(stored), self.rules, path)
            self.receipts += removed
            content = self.value(stored, clean, path)
        else:
            before, items = stored
            earlier = None if before is None else self.visit(before, path, kind)
            content = [earlier, self.rest(items, path, before, kind)]
        is_as_sent = len(self.receipts) == receipts and not self.by_place
        self.made[name] = sent if is_as_sent else Raw(msgspec.json.encode(content))

    def unread(self, stored: Mapping[str, Any], path: str, kind: str) -> Any:
        if PART in stored:
            return {PART: self.visit(stored[PART], path)}
        before = stored[LIST]
        return {LIST: self.visit(before, path, kind), "tail": self.rest(stored["tail"], path, before, kind)}

    def rest(self, items: list[Any], path: str, before: str | None, kind: str) -> list[Any]:
        """Return the items of a list that follow a piece, without what the rules remove."""
        if kind == "pair" and before is None and len(items) == 2:
            ((key, item),) = self.rest([items], path, None, "pairs")
            return [key, item]
        if kind == "pair":
            # The key is elsewhere.
            self.receipts += [Receipt(path, "failure")] if items else []
            return [MARKER] * len(items)
        if kind == "pairs":
            clean, removed = redact(_plain_of_pairs(items), self.rules, path)
            self.receipts += removed
            return self.pairs(items, clean, path) if isinstance(clean, dict) else [[MARKER, MARKER]]
        first = self.count(before)
        clean, removed = redact(_plain(items), self.rules, path, first)
        self.receipts += removed
        # Redaction that fails leaves a marker in place of all.
        return self.items(items, clean, path, first) if isinstance(clean, list) else [clean]

    def count(self, ref: str | None) -> int:
        """Return the number of items up to the end of a piece, of those that were sent."""
        chain: list[tuple[str, int]] = []
        earlier = ref
        while earlier is not None and earlier in self.parts and earlier not in self.counts:
            before, items = msgspec.json.decode(self.parts[earlier])
            chain.append((earlier, len(items)))
            earlier = before
        total = 0 if earlier is None else self.counts.get(earlier, 0)
        for name, length in reversed(chain):
            total += length
            self.counts[name] = total
        return total


def _below(path: str, key: str) -> str:
    """Return the path of what is under a key. The signs of paths in a key are replaced, so that it is one step."""
    step = _IN_PATHS.sub("_", key)[:_LONGEST_STEP] or "_"
    return f"{path}.{step}" if path else step
