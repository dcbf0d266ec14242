"""Redact values by their place, and by functions: the rules that need the path of each value.

They come after the search for names and shapes (engine.py). JSON in texts is searched like other values.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .prefilter import place_filter_of
from .rules import MARKER, FunctionRule, PathRule, Rules

logger = logging.getLogger(__name__)

_STEP: Final = re.compile(r"\[\d+\]|[^.\[\]]+")
_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that a function may raise; a value for which it does is redacted."""

Found = tuple[str, str]
"""Path and name of the rule."""


def steps_of(path: str) -> list[str]:
    """Return the steps of the path of a value, with `[*]` for each index."""
    return ["[*]" if step.startswith("[") else step for step in _STEP.findall(path)]


def redact_places(value: Any, rules: Rules, path: str, max_depth: int, first: int = 0) -> tuple[Any, list[Found]]:
    """Return the value without what the path rules and functions remove, and where they did. The value itself is never removed
    by its path, only what is inside it. What is nested deeper than `max_depth` is removed. `first` is the index of its first item."""
    walk = _Walk(rules, path, max_depth, first)
    plain = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
    clean = walk.inside(plain, 0)
    return (value if clean is plain else clean), walk.found


class _Walk:
    def __init__(self, rules: Rules, path: str, max_depth: int, first: int) -> None:
        self.first = first
        self.functions = rules.functions
        self.max_depth = max_depth
        self.found: list[Found] = []
        self.in_text = place_filter_of(rules, None)
        self.by_key: dict[str, list[PathRule]] = {}
        for rule in rules.paths:
            self.by_key.setdefault(rule.key, []).append(rule)
        self.begin = path
        self.trail: list[str | int] = []
        """Keys and indexes to the present value, of which its path is made when it is needed."""
        self.outer = steps_of(path)

    @property
    def path(self) -> str:
        """The path of the present value."""
        path = self.begin
        for step in self.trail:
            path = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step[:64]}" if path else step[:64]
        return path

    def inside(self, value: Any, depth: int) -> Any:
        """Return the value with what is inside it redacted; the same object if nothing is."""
        if isinstance(value, dict | list | tuple):
            if depth > self.max_depth:
                self.found.append((self.path, "depth"))
                return MARKER
            return self.mapping(value, depth) if isinstance(value, dict) else self.sequence(value, depth)
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            value = self.json(value, depth)
        if self.functions and isinstance(value, str | int | float) and value != MARKER:
            for rule in self.functions:
                value = self.ask(rule, value)
        return value

    def mapping(self, mapping: dict[Any, Any], depth: int) -> dict[Any, Any]:
        changed = {}
        for key, item in mapping.items():
            name = str(key)
            self.trail.append(name)
            # Attributes of spans have whole paths as their names: `metadata.customer`.
            last = name.rpartition(".")[2]
            rule = self.rule_of(last) if last in self.by_key and item is not None and item not in ("", MARKER) else None
            if rule is not None:
                self.found.append((self.path, rule.name))
                changed[key] = MARKER
            elif (clean := self.inside(item, depth + 1)) is not item:
                changed[key] = clean
            self.trail.pop()
        return {**mapping, **changed} if changed else mapping

    def rule_of(self, key: str) -> PathRule | None:
        """Return the rule for the value whose path ends with this key, the last step of the trail."""
        below = (step for entry in self.trail for step in (["[*]"] if isinstance(entry, int) else entry.split(".")))
        steps = (*self.outer, *below)
        return next((rule for rule in self.by_key[key] if rule.matches(steps)), None)

    def sequence(self, sequence: Sequence[Any], depth: int) -> Sequence[Any]:
        items = []
        for index, item in enumerate(sequence, 0 if depth else self.first):
            self.trail.append(index)
            items.append(self.inside(item, depth + 1))
            self.trail.pop()
        return items if any(new is not old for new, old in zip(items, sequence, strict=True)) else sequence

    def json(self, text: str, depth: int) -> str:
        if not self.functions and not self.in_text.finds(frozenset(), (text,)):
            return text
        try:
            inside = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return text
        clean = self.inside(inside, depth + 1)
        return text if clean is inside else msgspec.json.encode(clean).decode()

    def ask(self, rule: FunctionRule, value: Any) -> Any:
        path = self.path
        try:
            answer = rule.function(path, value)
        except _FAULTS:
            logger.exception("The masking function %s failed; the value was removed.", rule.name)
            answer = MARKER
        if answer is value or (type(answer) is type(value) and answer == value):
            return value
        self.found.append((path, rule.name))
        # Whatever else it returns may not fit the field.
        return answer if isinstance(answer, str) or type(answer) is type(value) else MARKER
