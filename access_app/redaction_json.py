"""Finds secrets in text that is JSON, exactly: results and arguments of tools are mostly this.

What is cut off, or stands in the middle of other text, is left to redaction_text, which guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .redaction_rules import MARKER, KeyRule, Rules
from .redaction_text import SecretText


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


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(r"\s*+:\s*+")
_VALUE_NEXT = re.compile(r'\s*+,\s*+"value"\s*+:\s*+')
# Python writes and reads the last two as well.
_NUMBER = re.compile(r"-?(?:[0-9][-+0-9.eE]*+|Infinity)|NaN")


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
    while string := _STRING.search(text, at):
        at = string.end()
        colon = _COLON.match(text, at)
        if colon is None:
            yield InnerText(string.start(), at, _decode(string), _is_ascii_only(string))
            continue
        rule, start = _rule_of_member(text, _decode(string), colon.end(), rules)
        if rule is not None:
            secret = _secret_at(text, start, rule)
            if secret is not None:
                yield secret
                # The quote after the value is no beginning of a string.
                at = secret.end + (text[start] == '"')


def _rule_of_member(text: str, name: str, start: int, rules: Rules) -> tuple[KeyRule | None, int]:
    """The rule for the member with its value at `start`; for `"name": "Authorization", "value": ...` that of the latter."""
    rule = rules.rule_for(name)
    if rule is None and name in ("name", "key") and (string := _STRING.match(text, start)):
        value = _VALUE_NEXT.match(text, string.end())
        if value:
            return rules.rule_for(_decode(string)), value.end()
    return rule, start


def _secret_at(text: str, start: int, rule: KeyRule) -> SecretText | None:
    """The value that begins at `start`, when it is worth taking out."""
    if string := _STRING.match(text, start):
        secret = SecretText(start + 1, string.end() - 1, rule)
        return None if text[secret.start : secret.end] in ("", MARKER) else secret
    if text[start] in "{[":
        end = _closing_bracket(text, start)
        return SecretText(start, end, rule, quote='"') if text[start + 1 : end - 1].strip() else None
    number = _NUMBER.match(text, start)
    return SecretText(start, number.end(), rule, quote='"') if number and rule.numbers else None


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text, start):
        if found[0] in ("{", "["):
            depth += 1
        elif found[0] in ("}", "]"):
            depth -= 1
            if depth == 0:
                return found.end()
    raise AssertionError("the text is JSON, so what it opens it closes")


def _decode(string: re.Match[str]) -> str:
    text: str = json.loads(string[0]) if "\\" in string[0] else string[0][1:-1]
    return text


def _is_ascii_only(string: re.Match[str]) -> bool:
    return string[0].isascii() or "\\u" in string[0]
