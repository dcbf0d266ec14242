"""Takes secrets out of plain values (dict, list, str, and JSON) before they are stored, and says where they were.

Two kinds of places hold secrets: what stands under a telling key (`{"password": "x"}`), and text: JSON inside strings,
singly or doubly encoded, header lines, `name=value`, command-line flags, URLs, and tokens that are known by their shape.

How it works, and why so:

1. Almost every value is clean, so the first pass only looks (`may_hold_secrets`): it asks of all keys of an object at once
   whether they are known to be harmless, and searches all texts at once with a few regular expressions that each begin
   with literal characters, the fastest search that the standard library has: in what of them is ASCII (`Rules.glances`),
   and where that finds something, with more exact ones in all of them (`Rules.hints`). JSON that nobody has decoded, a
   msgspec.Raw, it searches as it is written (`Rules.written`).
2. Only a suspicious value is walked again, rebuilt where it changes, and leaves a `Receipt` for all that was taken out.
3. Keys, and the names that stand before `:` or `=` in text, are judged by one and the same function (`Rules.rule_for`).

It rather takes out too much: what stands under a secret key goes whole, also when it is a dict or a list
(`{"authorization": {"type": "bearer", "value": "x"}}`), and what is nested too deeply to be looked at is dropped.
Plain Python: the recorder runs this in processes without Django.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Raw, json

from .redaction_json import is_json, parts_of_json
from .redaction_rules import DEFAULT_RULES, MARKER, KeyRule, Rules, Shape
from .redaction_text import SecretText, secrets_by_name

MAX_DEPTH: Final = 100
"""Containers nested deeper than this are dropped, so that recursion stays far from Python's limit."""


# What they stand for may be a part of what the patterns look for. Those of quotes, backslashes and whitespace end names and
# secrets in JSON as they do in text.
_HIDING_ESCAPE: Final = re.compile(rb"\\[u/b]")
# Letters in lower-case text, which end a word in the name of a field: İ and the Kelvin sign.
_BETWEEN_LETTERS: Final = ("\u0130".encode(), "\u212a".encode())

# Types of which no value holds other values.
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


_NOT_ASCII: Final = bytes(range(128, 256))

_FEW: Final = 16
"""So many times a rare letter is looked at by itself."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Says that something was taken out, without saying what."""

    path: str
    """Where: `agent_steps[0].tool_calls[1].args.headers.Authorization`; for text, the path of the string it was in."""
    rule: str
    """The name of the KeyRule or Shape that asked for it; `url_password`, `depth` or `failure` otherwise."""


def redact(value: Any, rules: Rules = DEFAULT_RULES, path: str = "") -> tuple[Any, list[Receipt]]:
    """The value without its secrets, and one receipt for each of them, in reading order.

    A clean value comes back as the same object. The argument is never changed: what must change is copied. A second time
    changes nothing. What is not dict, list, tuple or str passes as it is; keys stay. `path` is what the receipts' paths
    begin with. The value must be a tree, as all that JSON can hold; a Raw in it must be JSON that can be decoded, and what
    becomes of it is decoded only where something was taken out. Never raises on one: what cannot be looked at is dropped,
    with a receipt.
    """
    if not may_hold_secrets((value,), rules):
        return value, []
    walk = _Walk(rules)
    try:
        return walk.value(value, path, 0), walk.receipts
    except RecursionError:
        # The caller had used up the stack itself.
        return MARKER, [Receipt(path, "failure")]


def may_hold_secrets(values: Iterable[Any], rules: Rules = DEFAULT_RULES) -> bool:
    """False when `redact` would leave all these values as they are; True when it must look closer.

    One question about many values is much cheaper than many about one each. Of a Raw it is answered as it is written, which
    spares decoding it; where that cannot be done the answer is True.
    """
    harmless = rules.harmless
    texts: list[str] = []
    written: list[bytes] = []
    level = list(values)
    # Values are one level further down than the innermost container that may hold them.
    for _depth in range(MAX_DEPTH + 2):
        # This sees every value that is stored: exact types are asked for first, all of a level at once.
        texts += [node for node in level if type(node) is str]
        nodes = [node for node in level if type(node) not in _LEAVES]
        if not nodes:
            return _are_suspicious(texts, rules) or (bool(written) and _are_written_suspiciously(written, rules))
        level = []
        for node in nodes:
            if isinstance(node, dict):
                if not harmless.issuperset(node) and _has_secret_key(node, rules):
                    return True
                level += node.values()
            elif isinstance(node, (list, tuple)):
                level += node
            elif isinstance(node, Raw):
                written.append(bytes(node))
            elif isinstance(node, str):
                texts.append(node)
    return True


def _has_secret_key(mapping: dict[Any, Any], rules: Rules) -> bool:
    for key, item in mapping.items():
        rule = rules.rule_for(key) if isinstance(key, str) else None
        if rule is not None and _is_secret(item, rule):
            return True
    return "value" in mapping and _rule_of_named_value(mapping, rules) is not None


# --- The walk through a suspicious value ----------------------------------------------------------------------


class _Walk:
    """Rebuilds one value without its secrets and collects the receipts."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.receipts: list[Receipt] = []

    def value(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, (dict, list, tuple)):
            if depth > MAX_DEPTH:
                return self.drop(path, "depth")
            return self.mapping(value, path, depth) if isinstance(value, dict) else self.sequence(value, path, depth)
        if isinstance(value, Raw):
            decoded = json.decode(value)
            clean = self.value(decoded, path, depth)
            return value if clean is decoded else clean
        return value

    def mapping(self, mapping: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        changed: dict[Any, Any] | None = None
        named = _rule_of_named_value(mapping, self.rules) if "value" in mapping else None
        for key, item in mapping.items():
            rule = self.rules.rule_for(key) if isinstance(key, str) else None
            if rule is None and key == "value":
                rule = named
            below = _below(path, key)
            if rule is not None and _is_secret(item, rule):
                clean: Any = self.drop(below, rule.name)
            else:
                clean = self.value(item, below, depth + 1)
            if clean is not item:
                changed = dict(mapping) if changed is None else changed
                changed[key] = clean
        return mapping if changed is None else changed

    def sequence(self, sequence: list[Any] | tuple[Any, ...], path: str, depth: int) -> list[Any] | tuple[Any, ...]:
        changed: list[Any] | None = None
        for index, item in enumerate(sequence):
            clean = self.value(item, f"{path}[{index}]", depth + 1)
            if clean is not item:
                changed = list(sequence) if changed is None else changed
                changed[index] = clean
        if changed is None:
            return sequence
        return changed if isinstance(sequence, list) else tuple(changed)

    def text(self, text: str, path: str) -> str:
        if len(text) <= 4 or not _are_suspicious([text], self.rules):
            return text
        if is_json(text):
            return self.json(text, path)
        for shape in self.rules.shapes:
            if shape.before_names:
                text = self.shape(shape, text, path)
        text = self.names(text, path)
        for shape in self.rules.shapes:
            if not shape.before_names:
                text = self.shape(shape, text, path)
        return text

    def shape(self, shape: Shape, text: str, path: str) -> str:
        group = "secret" if "secret" in shape.pattern.groupindex else 0
        return _with_changes(
            text,
            [
                (match.start(group), match.end(group), self.drop(path, shape.name))
                for match in shape.pattern.finditer(text)
                if match[group] != MARKER
            ],
        )

    def names(self, text: str, path: str) -> str:
        found = secrets_by_name(text, self.rules)
        return _with_changes(text, [(secret.start, secret.end, self.mark(secret, path)) for secret in found])

    def json(self, text: str, path: str) -> str:
        changes: list[tuple[int, int, str]] = []
        for part in parts_of_json(text, self.rules):
            if isinstance(part, SecretText):
                changes.append((part.start, part.end, self.mark(part, path)))
            else:
                inner = self.text(part.text, path)
                if inner is not part.text:
                    changes.append((part.start, part.end, part.encode(inner)))
        return _with_changes(text, changes)

    def mark(self, secret: SecretText, path: str) -> str:
        return f"{secret.quote}{self.drop(path, secret.rule.name)}{secret.quote}"

    def drop(self, path: str, rule: str) -> str:
        self.receipts.append(Receipt(path, rule))
        return MARKER


def _with_changes(text: str, changes: list[tuple[int, int, str]]) -> str:
    """The text with other words from place to place; the changes come from left to right."""
    if not changes:
        return text
    parts: list[str] = []
    done = 0
    for start, end, words in changes:
        parts += [text[done:start], words]
        done = end
    return "".join([*parts, text[done:]])


def _is_secret(item: Any, rule: KeyRule) -> bool:
    """Whether what stands under a secret name is worth taking out; nothing, yes and no are not."""
    if item is None or isinstance(item, bool):
        return False
    if isinstance(item, (str, dict, list, tuple)):
        return len(item) > 0 and item != MARKER
    if isinstance(item, (int, float)):
        return rule.numbers
    return True


def _rule_of_named_value(mapping: dict[Any, Any], rules: Rules) -> KeyRule | None:
    """The rule for the value of `{"name": "Authorization", "value": "Bearer x"}`, as headers and attributes are often listed."""
    for key in ("name", "key"):
        name = mapping.get(key)
        if isinstance(name, str):
            rule = rules.rule_for(name)
            if rule is not None and _is_secret(mapping["value"], rule):
                return rule
    return None


def _are_suspicious(texts: list[str], rules: Rules) -> bool:
    # Step by step, for of a text of 50 MB no more than two copies at a time are to be there.
    low = _ascii("\n".join(texts))
    low = low.lower()
    if not _is_worth_a_look(low, rules):
        return False
    del low
    letters = _lower_ascii("\n".join(texts))
    return any(hint.search(letters) for hint in rules.hints)


def _are_written_suspiciously(written: list[bytes], rules: Rules) -> bool:
    """The same for JSON, however deeply it is nested. In it stand the texts, the names of fields, and nothing more that the
    patterns could take for either. True also where something may hide what it stands for."""
    low = b"\n".join(written).lower()
    if b"\\" in low and _HIDING_ESCAPE.search(low):
        return True
    is_ascii = low.isascii()
    # For one byte a text is searched at the speed of memory.
    if not is_ascii and any(letter[:1] in low and letter in low for letter in _BETWEEN_LETTERS):
        return True
    has_words = False
    for pattern in rules.written:
        for found in pattern.finditer(low):
            if found.lastindex is not None:
                return True
            has_words = True
    if has_words or b"@" in low:
        if not is_ascii:
            low = low.replace("：".encode(), b":").translate(None, _NOT_ASCII)
        if _is_worth_a_look(low, rules):
            return True
    # A name may stand anywhere beside its value.
    return b'"value"' in low and rules.words.search(low.decode("ascii", "ignore")) is not None


def _is_worth_a_look(low: bytes, rules: Rules) -> bool:
    for glance in rules.glances:
        if glance.search(low):
            return True
    for letter, glance in rules.rare_glances:
        # A single letter is searched for at the speed of memory. Where there are many, the pattern is quicker by itself.
        left = _FEW
        at = low.find(letter)
        while at >= 0 and left:
            if glance.match(low, at):
                return True
            left -= 1
            at = low.find(letter, at + 1)
        if at >= 0 and glance.search(low, at):
            return True
    return b"@" in low and rules.at_glance.search(low) is not None


def _ascii(text: str) -> bytes:
    """What of a text is ASCII or becomes it: the wide colon, and what is an ASCII letter in lower case."""
    if not text.isascii():
        text = text.replace("\u0130", "I").replace("\u212a", "K").replace("：", ":")
    return text.encode("ascii", "ignore")


def _lower_ascii(text: str) -> str:
    """The text with its ASCII letters in lower case, and with those others that become ASCII letters: İ and the Kelvin
    sign. Hints look for nothing else, and of a text with one Chinese character lower() takes three times as long."""
    if text.isascii():
        return text.lower()
    text = text.replace("\u0130", "I").replace("\u212a", "K")
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _below(path: str, key: object) -> str:
    name = str(key)
    if len(name) > 64:
        name = name[:63] + "…"
    return f"{path}.{name}" if path else name
