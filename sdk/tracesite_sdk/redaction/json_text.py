"""Exact search for secrets in JSON text, the usual form of tool arguments and results.

Truncated JSON and JSON in the middle of other text are left to text.py, which guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .rules import LONG_NAME, KeyRule, Rules
from .text import SecretText
from .values import is_secret, is_secret_of_pair


@dataclass(frozen=True, slots=True)
class InnerText:
    """String in JSON text that is not a secret as a whole but may contain one."""

    start: int
    end: int
    text: str
    ascii_only: bool

    def encode(self, text: str) -> str:
        """Return another text as a JSON string, ASCII-only like the original."""
        return json.dumps(text, ensure_ascii=self.ascii_only)


# Decodes the value at a position and returns it with its end.
_read_value = json.JSONDecoder().raw_decode
_COLON = re.compile(r"\s*:\s*")
_PAIR = re.compile(r'\s*,\s*(?=")')
_NAME_NEXT = re.compile(r'\s*,\s*"(?:name|key)"\s*:\s*(?=")')
_VALUE_NEXT = re.compile(r'\s*,\s*"value"\s*:\s*')


def is_json(text: str) -> bool:
    """Return whether the text is a complete JSON object, array or string."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def parts_of_json(text: str, rules: Rules) -> Iterator[SecretText | InnerText]:
    """Yield the secret values of a JSON text and its other string values, in order, without overlap."""
    at = 0
    # Outside strings, a quote begins one.
    while (quote := text.find('"', at)) >= 0:
        string, at = _read_value(text, quote)
        colon = _COLON.match(text, at)
        if colon is None:
            secret = _second_of_pair(text, string, quote, at, rules)
            if secret is not None:
                yield secret
                at = secret.end + 1
                continue
            yield InnerText(quote, at, string, _is_ascii_only(text[quote:at]))
            continue
        if len(string) >= LONG_NAME:
            yield InnerText(quote, at, string, _is_ascii_only(text[quote:at]))
        rule, start = _rule_of_member(text, string, colon.end(), rules)
        if rule is not None:
            secret = _secret_at(text, start, rule)
            if secret is not None:
                yield secret
                # Skip the closing quote, which begins no string.
                at = secret.end + (text[start] == '"')


def _second_of_pair(text: str, name: str, quote: int, end: int, rules: Rules) -> SecretText | None:
    """Return the second string of `["Cookie", "a=b"]`, when the first is a secret name and the second looks like a secret."""
    following = _PAIR.match(text, end)
    if following is None or not text[max(0, quote - 64) : quote].rstrip().endswith("["):
        return None
    rule = rules.rule_for(name)
    if rule is None:
        return None
    start = following.end()
    value, after = _read_value(text, start)
    if not text[after : after + 64].lstrip().startswith("]") or not is_secret_of_pair(value, rule):
        return None
    return SecretText(start + 1, after - 1, rule)


def _rule_of_member(text: str, name: str, start: int, rules: Rules) -> tuple[KeyRule | None, int]:
    """Return the rule for the member whose value begins at `start`, and the start of the value to redact.

    For `"name": "Authorization", "value": ...` that is the value of the second member.
    """
    rule = rules.rule_for(name)
    if rule is None and name == "value" and text[start] == '"':
        _value, end = _read_value(text, start)
        beside = _NAME_NEXT.match(text, end)
        if beside:
            return rules.rule_for(_read_value(text, beside.end())[0]), start
    if rule is None and name in ("name", "key") and text[start] == '"':
        string, end = _read_value(text, start)
        value = _VALUE_NEXT.match(text, end)
        if value:
            return rules.rule_for(string), value.end()
    return rule, start


def _secret_at(text: str, start: int, rule: KeyRule) -> SecretText | None:
    """Return the value that begins at `start` if it is a secret."""
    value, end = _read_value(text, start)
    if not is_secret(value, rule):
        return None
    return SecretText(start + 1, end - 1, rule) if isinstance(value, str) else SecretText(start, end, rule, quote='"')


def _is_ascii_only(string: str) -> bool:
    return string.isascii() or "\\u" in string
