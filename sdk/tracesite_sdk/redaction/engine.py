"""Redact plain values (dict, list, str and JSON) before they are stored, with a receipt for each redaction.

Secrets are found in two places: under the key of a mapping (`{"password": "x"}`), and in text: JSON in strings, encoded
once or several times, header lines, `name=value`, command-line flags, URLs, and tokens of a known shape.

The algorithm:

1. Almost every text is clean, so a first pass only finds those that need a closer look (`suspects_of`). It compares all
   keys of a mapping at once with those known to be harmless, and searches the texts of many values at once with a filter
   that is derived from the rules (prefilter.py). Undecoded JSON, a msgspec.Raw, is searched without decoding it.
2. Only a value with a suspicious text or key is walked again, in which only these texts are looked at. It is rebuilt where
   it changes, with a `Receipt` for each path and rule.
3. One function judges keys and the names before a separator in text (`Rules.rule_for`), another the values behind them
   (values.py), because a name alone is no proof, least of all in source code.

The value of a secret key is redacted whole, even a dict or list (`{"authorization": {"type": "bearer", "value": "x"}}`).
A value that is nested too deeply to search is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import Raw, json

from .json_text import InnerText, is_json, parts_of_json
from .places import redact_places, steps_of
from .prefilter import Text, filter_of, place_filter_of
from .rules import DEFAULT_RULES, MARKER, KeyRule, Rules, Shape
from .text import SecretText, secrets_by_name
from .values import Unread, is_secret, is_secret_of_pair

MAX_DEPTH: Final = 100
"""Containers nested deeper than this are dropped, so that recursion stays far from Python's limit."""

_TOGETHER: Final = 16
"""Groups of values that are searched at once."""
_PARTS_TOGETHER: Final = 100
"""Strings of a JSON text that are searched at once: one search takes 13 us, and the strings are in memory."""
_ESCAPE: Final = re.compile(r"\\u00([2-7][0-9a-fA-F])")

# Types without nested values.
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Receipt:
    """Record of a redaction, without the secret itself."""

    path: str
    """Path such as `agent_steps[0].tool_calls[1].args.headers.Authorization`; for text, the path of its string."""
    rule: str
    """Name of the KeyRule or Shape that matched; `depth` or `failure` otherwise."""
    count: int = 1
    """Number of secrets that the rule redacted there."""

    def as_json(self) -> dict[str, Any]:
        """Return the stored form of the receipt, which has a count only above 1."""
        stored: dict[str, Any] = {"path": self.path, "rule": self.rule}
        return stored | {"count": self.count} if self.count > 1 else stored


def counted(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Return one receipt for each path and rule, with the sum of their counts, in their order."""
    counts: dict[tuple[str, str], int] = {}
    for receipt in receipts:
        key = receipt.path, receipt.rule
        counts[key] = counts.get(key, 0) + receipt.count
    return [Receipt(path, rule, count) for (path, rule), count in counts.items()]


class Suspects(NamedTuple):
    """The places of a group of values where secrets may be. False if there are none."""

    texts: Set[int]
    """The ids of the texts to look at, also of keys, integers and undecoded JSON, perhaps of other groups, too. The id of an
    object that is gone may pass to another, which is then looked at for nothing."""
    inside: bool
    """Whether the containers must be walked: for such a text, the name of a secret, or values that are nested too deeply."""
    places: bool
    """Whether path rules or functions may match."""

    def __bool__(self) -> bool:
        return self.inside or self.places

    def may_be_in(self, value: Any) -> bool:
        """Return whether one of these values, or a value in one of them, may hold secrets."""
        return self.places or id(value) in self.texts or (self.inside and isinstance(value, (dict, list, tuple)))


def suspects_of(
    groups: Iterable[Iterable[Any]], rules: Rules = DEFAULT_RULES, outside: frozenset[str] | None = None
) -> Iterator[Suspects]:
    """Yield for each group of values where `redact` must look closer. It holds for these very objects, not for equal ones.

    One call for many groups is much cheaper than many calls. A Raw is searched without decoding it. `outside` are the names
    that the paths of these values consist of; None: any.
    """
    left = iter(groups)
    while contents := [_content_of(values, rules) for values in islice(left, _TOGETHER)]:
        texts = [text for content in contents for text in content.texts]
        ids = {id(texts[index]) for index in filter_of(rules).hits(texts)}
        for content in contents:
            inside = content.is_secret or not ids.isdisjoint(map(id, content.texts))
            yield Suspects(ids, inside, places=_may_have_places(content, rules, outside))


def may_hold_secrets(
    values: Iterable[Any], rules: Rules = DEFAULT_RULES, outside: frozenset[str] | None = None
) -> bool:
    """Return False if `redact` would change none of these values, True if it must look closer."""
    (suspects,) = suspects_of((values,), rules, outside)
    return bool(suspects)


def redact(
    value: Any, rules: Rules = DEFAULT_RULES, path: str = "", first: int = 0, suspects: Suspects | None = None
) -> tuple[Any, list[Receipt]]:
    """Return the value without its secrets, and a receipt for each path and rule, in reading order.

    A clean value is returned as the same object; the argument is never modified. Redacting is idempotent. Values other
    than dict, list, tuple, str and Raw are returned unchanged; keys are kept unless they hold a secret. The paths of
    receipts begin with `path`; `first` is the index of the first item of a list, if it is the rest of a longer one; `suspects` are
    those of a group that has the value. The value must be a tree, as JSON is; a Raw must hold valid JSON, and is decoded in the
    result only if something in it was redacted. Raise nothing: a value that cannot be searched is dropped with a receipt.
    """
    if suspects is None:
        (suspects,) = suspects_of(((value,),), rules, frozenset(steps_of(path)) if rules.paths else None)
    if not suspects.may_be_in(value):
        return value, []
    walk = _Walk(rules, suspects.texts, first)
    try:
        clean = walk.value(value, path, 0) if suspects.inside else value
        if suspects.places:
            clean, of_places = redact_places(clean, rules, path, MAX_DEPTH, first)
            walk.receipts += [Receipt(path, rule) for path, rule in of_places]
        return clean, counted(walk.receipts)
    except RecursionError:
        # The caller had used up most of the stack before.
        return MARKER, [Receipt(path, "failure")]


class _Content(NamedTuple):
    """What the filters search in values."""

    texts: list[Text]
    keys: set[str]
    """The keys of path rules that decoded values have."""
    is_secret: bool
    """Whether a key is that of a secret, or values are nested too deeply."""


def _may_have_places(content: _Content, rules: Rules, outside: frozenset[str] | None) -> bool:
    if rules.functions or not rules.paths:
        return bool(rules.functions)
    if outside is not None:
        # Few different sets, so that their filters stay in the cache.
        outside &= rules.path_keys
    return place_filter_of(rules, outside).finds(content.keys, content.texts)


def _content_of(values: Iterable[Any], rules: Rules) -> _Content:
    harmless = rules.harmless
    path_keys = rules.path_keys
    texts: list[Text] = []
    keys: set[str] = set()
    is_secret = False
    level = list(values)
    # The values of the innermost allowed container are one level below it.
    for _depth in range(MAX_DEPTH + 2):
        # Every stored value passes here, so exact types are checked first, for a whole level at once.
        texts.extend([node for node in level if type(node) is str])
        if rules.integers:
            texts.extend([node for node in level if type(node) is int])
        nodes = [node for node in level if type(node) not in _LEAVES]
        if not nodes:
            return _Content(texts, keys, is_secret)
        level = []
        for node in nodes:
            if isinstance(node, dict):
                if path_keys:
                    keys.update(path_keys.intersection(node))
                    for key in node:
                        if isinstance(key, str) and "." in key:
                            keys.update(path_keys.intersection(key.split(".")))
                if not harmless.issuperset(node):
                    is_secret = is_secret or _has_secret_key(node, rules)
                    texts.extend([key for key in node if isinstance(key, str) and rules.searches(key)])
                level += node.values()
            elif isinstance(node, (list, tuple)):
                is_secret = is_secret or (len(node) == 2 and _rule_of_pair(node, rules) is not None)
                level += node
            elif isinstance(node, (str, Raw)):
                texts.append(node)
    return _Content(texts, keys, is_secret=True)


def _has_secret_key(mapping: dict[Any, Any], rules: Rules) -> bool:
    for key, item in mapping.items():
        rule = rules.rule_for(key) if isinstance(key, str) else None
        if rule is not None and is_secret(item, rule):
            return True
    return "value" in mapping and _rule_of_named_value(mapping, rules) is not None


# --- The walk through a suspicious value ----------------------------------------------------------------------


class _Walk:
    """Copy of one value without its secrets, with the receipts."""

    def __init__(self, rules: Rules, suspects: Set[int], first: int) -> None:
        self.rules = rules
        self.suspects = suspects
        self.first = first
        self.quick = filter_of(rules)
        self.receipts: list[Receipt] = []

    def value(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, (dict, list, tuple)):
            if depth > MAX_DEPTH:
                return self.drop(path, "depth")
            return self.mapping(value, path, depth) if isinstance(value, dict) else self.sequence(value, path, depth)
        if id(value) not in self.suspects:
            return value
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, Raw):
            return self.raw(value, path, depth)
        if self.rules.integers and type(value) is int:
            text = str(value)
            return value if self.text(text, path) is text else MARKER
        return value

    def raw(self, raw: Raw, path: str, depth: int) -> Any:
        decoded = json.decode(raw)
        (inside,) = suspects_of(((decoded,),), self.rules)
        around, self.suspects = self.suspects, inside.texts
        clean = self.value(decoded, path, depth)
        self.suspects = around
        return raw if clean is decoded else clean

    def mapping(self, mapping: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        changed: dict[Any, Any] | None = None
        named = _rule_of_named_value(mapping, self.rules) if "value" in mapping else None
        names = self.names_of(mapping, path)
        for key, item in mapping.items():
            rule = self.rules.rule_for(key) if isinstance(key, str) else None
            if rule is None and key == "value":
                rule = named
            if rule is None and self.passes(item):
                continue
            # Receipts are shown to everybody who sees the place.
            below = _below(path, names.get(key, key))
            if rule is not None and is_secret(item, rule):
                clean: Any = self.drop(below, rule.name)
            else:
                clean = self.value(item, below, depth + 1)
            if clean is not item:
                changed = dict(mapping) if changed is None else changed
                changed[key] = clean
        return _renamed(mapping if changed is None else changed, names)

    def passes(self, item: Any) -> bool:
        """Return whether an item is kept, wherever it is."""
        return type(item) in _LEAVES and id(item) not in self.suspects

    def names_of(self, mapping: dict[Any, Any], path: str) -> dict[str, str]:
        """Return the keys that hold secrets, as in `{"ghp_...": 1}`, and what is left of them."""
        return {
            key: clean
            for key in mapping
            if id(key) in self.suspects and self.rules.searches(key) and (clean := self.text(key, path)) is not key
        }

    def sequence(self, sequence: list[Any] | tuple[Any, ...], path: str, depth: int) -> list[Any] | tuple[Any, ...]:
        changed: list[Any] | None = None
        of_pair = _rule_of_pair(sequence, self.rules) if len(sequence) == 2 else None
        for index, item in enumerate(sequence):
            if of_pair is None and self.passes(item):
                continue
            below = f"{path}[{index if depth else index + self.first}]"
            clean = self.drop(below, of_pair.name) if of_pair and index else self.value(item, below, depth + 1)
            if clean is not item:
                changed = list(sequence) if changed is None else changed
                changed[index] = clean
        if changed is None:
            return sequence
        return changed if isinstance(sequence, list) else tuple(changed)

    def text(self, text: str, path: str) -> str:
        """Return a suspicious text without its secrets."""
        # Only patterns of users may match so little.
        if len(text) <= 4 and not self.quick.of_users:
            return text
        if "\\u00" in text:
            # Programs also write escapes in text that is not JSON.
            plain = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
            if plain != text:
                clean = self.text(plain, path) if self.quick.hits([plain]) else plain
                return text if clean is plain else clean
        if is_json(text):
            return self.json(text, path)
        low = text.lower()
        shapes = [
            shape
            for shape, anchors in self.rules.shapes_by_anchors
            if not anchors or any(map(low.__contains__, anchors))
        ]
        for shape in shapes:
            if shape.before_names:
                text = self.shape(shape, text, path)
        text = self.names(text, path)
        for shape in shapes:
            if not shape.before_names:
                text = self.shape(shape, text, path)
        return text

    def shape(self, shape: Shape, text: str, path: str) -> str:
        group = shape.pattern.groupindex.get("secret", 0)
        return _with_changes(
            text,
            [
                (match.start(group), match.end(group), self.drop(path, shape.name))
                for match in shape.pattern.finditer(text)
                if match[group] and match[group] != MARKER and (shape.accept is None or shape.accept(match[group]))
            ],
        )

    def names(self, text: str, path: str) -> str:
        secrets = secrets_by_name(text, self.rules)
        return _with_changes(text, [(secret.start, secret.end, self.mark(secret, path)) for secret in secrets])

    def json(self, text: str, path: str) -> str:
        changes: list[tuple[int, int, str]] = []
        parts = parts_of_json(text, self.rules)
        while some := list(islice(parts, _PARTS_TOGETHER)):
            suspects = self.quick.hits([part.text if isinstance(part, InnerText) else "" for part in some])
            for index, part in enumerate(some):
                if isinstance(part, SecretText):
                    changes.append((part.start, part.end, self.mark(part, path)))
                elif index in suspects and (inner := self.text(part.text, path)) is not part.text:
                    changes.append((part.start, part.end, part.encode(inner)))
        return _with_changes(text, changes)

    def mark(self, secret: SecretText, path: str) -> str:
        return f"{secret.quote}{self.drop(path, secret.rule.name)}{secret.quote}"

    def drop(self, path: str, rule: str) -> str:
        self.receipts.append(Receipt(path, rule))
        return MARKER


def _renamed(mapping: dict[Any, Any], names: dict[str, str]) -> dict[Any, Any]:
    if not names:
        return mapping
    renamed: dict[Any, Any] = {}
    # All keys may become the same, so each goes on from the number of the last one.
    numbers: dict[Any, int] = {}
    for key, item in mapping.items():
        name = plain = names.get(key, key)
        while name in renamed:
            numbers[plain] = number = numbers.get(plain, 1) + 1
            name = f"{plain} {number}"
        renamed[name] = item
    return renamed


def _with_changes(text: str, changes: list[tuple[int, int, str]]) -> str:
    """Return the text with replacements (start, end, new text), which must be in order."""
    if not changes:
        return text
    parts: list[str] = []
    done = 0
    for start, end, new_text in changes:
        parts += [text[done:start], new_text]
        done = end
    return "".join([*parts, text[done:]])


def _rule_of_pair(pair: Sequence[Any], rules: Rules) -> KeyRule | None:
    """Return the rule for the second of `["Cookie", "a=b"]`."""
    name, value = pair
    if not isinstance(name, str) or not isinstance(value, str | Unread) or len(name) > 64:
        return None
    rule = rules.rule_for(name)
    return rule if rule is not None and is_secret_of_pair(value, rule) else None


def _rule_of_named_value(mapping: dict[Any, Any], rules: Rules) -> KeyRule | None:
    """Return the rule for the value of `{"name": "Authorization", "value": "Bearer x"}`, a common form of headers."""
    for key in ("name", "key"):
        name = mapping.get(key)
        if isinstance(name, str):
            rule = rules.rule_for(name)
            if rule is not None and is_secret(mapping["value"], rule):
                return rule
    return None


def _below(path: str, key: object) -> str:
    name = str(key)
    if len(name) > 64:
        name = name[:63] + "…"
    return f"{path}.{name}" if path else name
