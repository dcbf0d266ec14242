"""Finds secrets in text that is JSON, exactly: results and arguments of tools are mostly this.

What is cut off, or stands in the middle of other text, is left to redaction_text, which guesses.
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
    """A string of the JSON text that is not secret as such, but may hold secrets."""

    start: int
    end: int
    text: str
    ascii_only: bool

    def encode(self, text: str) -> str:
        """Another text, written as this one was."""
        return json.dumps(text, ensure_ascii=self.ascii_only)


# Reads a value from the middle of a text, and says where it ends.
_read_value = json.JSONDecoder().raw_decode
_COLON = re.compile(r"\s*:\s*")
_PAIR = re.compile(r'\s*,\s*(?=")')
_NAME_NEXT = re.compile(r'\s*,\s*"(?:name|key)"\s*:\s*(?=")')
_VALUE_NEXT = re.compile(r'\s*,\s*"value"\s*:\s*')


def is_json(text: str) -> bool:
    """Whether the text is a whole JSON object, array or string."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def parts_of_json(text: str, rules: Rules) -> Iterator[SecretText | InnerText]:
    """The secret values of a JSON text, and all its other string values, from left to right, without overlap."""
    at = 0
    # Between strings, a quote begins the next one.
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
                # The quote after the value is no beginning of a string.
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
    """The rule for the member with its value at `start`; for `"name": "Authorization", "value": ...` that of the latter."""
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
    """Return the value that begins at `start`, when it is worth taking out."""
    value, end = _read_value(text, start)
    if not is_secret(value, rule):
        return None
    return SecretText(start + 1, end - 1, rule) if isinstance(value, str) else SecretText(start, end, rule, quote='"')


def _is_ascii_only(string: str) -> bool:
    return string.isascii() or "\\u" in string
