"""Finds secrets in text by the names before them: JSON in strings, header lines, `name=value`, flags of commands.

JSON text stays valid JSON, and what is not a secret keeps every byte. Where text is ambiguous, rather more is taken out.
Linear in the length of the text: repetitions give nothing back or are bounded (redaction_rules says how), and what was
read once is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .redaction_rules import MARKER, KeyRule, Rules


@dataclass(frozen=True, slots=True)
class SecretText:
    """The place of a secret value in a text."""

    start: int
    end: int
    rule: KeyRule
    quote: str = ""
    """What the marker must stand in, where the value had no quotes of its own: a number, object or array of JSON."""


# A name goes on over these; between quotes over spaces, too.
_NAME_END = re.compile(r"[\w.\-]*")
_QUOTED_NAME_END = re.compile(r""" [\w .\-]{0,64}(?=\\{0,64}["'])""")
_SEPARATOR = re.compile(r"""(?P<quote>\\{0,64}["'])?\s*(?:=>|:=|={1,3}(?!=)|[:：](?!:))""")
# {"name": "Authorization", "value": "Bearer x"}
_VALUE_OF_NAME = re.compile(r"""(?P<quote>\\{0,64}["'])\s*,\s*\\{0,64}["']value\\{0,64}["']\s*:""")
_FLAG = re.compile(r"--[A-Za-z]")
_FLAG_SEPARATOR = re.compile(r"(?P<quote>(?!))?[ \t]+(?=[^\s-])")
_SPACE = re.compile(r"[ \t]*")
_SPACE_AND_LINES = re.compile(r"\s*")
# The letters are those of Python's literals: b"x".
_OPENING_QUOTE = re.compile(r"""(?:[bBrRuUfF]{1,2}(?=["']))?(?P<run>\\{0,64})(?P<quote>["'])""")
_QUOTE = re.compile(r"""(?<!\\)(?P<run>\\*)(?P<quote>["'])""")
_QUOTE_OR_BRACKET = re.compile(r"""(?<!\\)(?P<run>\\*)(?P<quote>["'])|[{}\[\]]""")
_NUMBER = re.compile(r"[+-]?\d[\w.+-]*")
# No values: nothing, yes and no, and the types that stand behind the names of parameters in source code.
_NO_VALUE = re.compile(
    r"""(?:null|none|nil|undefined|true|false|str|string|bytes|int|bool)(?=[\s,;&"'\\)}\]>|]|\Z)""", re.IGNORECASE
)
# The next ones match a piece, and _end_of_pieces goes on from there: a piece per match of bounded memory.
# In JSON a line also ends at the quote that ends the string, and at a written \n.
_LINE = re.compile(r"[^\r\n]*")
_LINE_IN_DOUBLE_QUOTES = re.compile(r"""(?:[^\r\n"\\]+|\\+(?![\\nr"])){0,500}""")
_LINE_IN_SINGLE_QUOTES = re.compile(r"""(?:[^\r\n'\\]+|\\+(?![\\nr'])){0,500}""")
# A comma, semicolon or ampersand ends a word only where a space or another name follows it.
_CHARACTERS = r"""[^\s"'\\,;&<]+|[,;&](?!\s|\Z|[\w.\-]{0,64}[:=])|<(?!/)"""
_WORD = rf"{_CHARACTERS}|\\+"
_WORD_IN_JSON = rf"""{_CHARACTERS}|\\+(?![\\nrt"'])"""
# After a colon the next word belongs to the value, too: `password: token: abc`.
_WORDS = re.compile(rf"(?:{_WORD}|(?<=:)[ \t]+(?={_WORD})){{0,500}}")
_WORDS_IN_JSON = re.compile(rf"(?:{_WORD_IN_JSON}|(?<=:)[ \t]+(?={_WORD_IN_JSON})){{0,500}}")
# These close a sentence or a bracket around the value more often than they are its last character.
_CLOSERS = ")]}>.,;!?"


def lower(text: str) -> str:
    """The text in lower case, character by character: the one that would become longer (İ) is first made a plain I."""
    return text.replace("İ", "I").lower()


def secrets_by_name(text: str, rules: Rules) -> Iterator[SecretText]:
    """The values in a text that stand behind secret names, from left to right, without overlap."""
    low = lower(text)
    in_json = text.lstrip()[:1] in ("{", "[", '"')
    read = taken = 0
    for word in rules.words.finditer(low):
        if word.start() < read:
            continue
        start = _name_start(text, word.start(), taken)
        end = read = _match_end(_NAME_END, text, word.end())
        separator = _separator(text, end)
        if separator is None and (longer := _QUOTED_NAME_END.match(text, end)):
            end = longer.end()
            separator = _separator(text, end)
        if separator is None and _FLAG.match(text, max(start, text.rfind(" ", start, word.start()) + 1)):
            separator = _FLAG_SEPARATOR.match(text, end)
        if separator is None:
            continue
        rule = rules.rule_for(text[start:end])
        if rule is None:
            continue
        secret = _value(text, start, separator, rule, in_json)
        if secret is not None:
            yield secret
            read = taken = secret.end


def _separator(text: str, at: int) -> re.Match[str] | None:
    return _SEPARATOR.match(text, at) or _VALUE_OF_NAME.match(text, at)


def _name_start(text: str, at: int, earliest: int) -> int:
    """Where the name begins that has a telling word at `at`: at most 64 characters before, over spaces."""
    earliest = max(earliest, at - 64)
    start = at
    while start > earliest and ((char := text[start - 1]).isalnum() or char in "_.- "):
        start -= 1
    if start > 0 and text[start - 1] == "\\":
        # The rest of an escape is no part of the name: \napi_key, \u00e9api_key.
        escape = 5 if text[start] == "u" else 1 if text[start] in "nrtbf" else 0
        start = min(start + escape, at)
    return start


def _value(text: str, name_start: int, separator: re.Match[str], rule: KeyRule, in_json: bool) -> SecretText | None:
    """The value behind a separator; None when there is none, or none worth taking out."""
    name_quote: str | None = separator["quote"]
    at = _match_end(_SPACE if name_quote is None else _SPACE_AND_LINES, text, separator.end())

    opening = _OPENING_QUOTE.match(text, at)
    if opening:
        start, run, quote = opening.end(), len(opening["run"]), opening["quote"]
        if name_quote is None and in_json and quote == '"' and (run == 0 or text[start : start + 1] in ("", *",}]:")):
            # A name without quotes stands inside of a JSON string, and this quote ends it.
            return None
        if name_quote and run < len(name_quote) - 1:
            # A quote of a level further out ends the string in which the name stands.
            return None
        return _unless_marked(text, start, _closing_quote(text, start, quote, run, in_json), rule)

    if text[at : at + 1] in ("{", "[") and not text.startswith(MARKER, at) and (name_quote or not in_json):
        end = _closing_bracket(text, at, name_quote or "", in_json)
        if not text[at + 1 : end - 1].strip():
            # Before anything after it is read: the next name would read the same again.
            return None
        if name_quote is None:
            end += len(text[end : _end_of_pieces(_WORDS, text, end)].rstrip(_CLOSERS))
        return SecretText(at, end, rule, quote=name_quote or "")

    if _NO_VALUE.match(text, at):
        return None

    if name_quote and (number := _NUMBER.match(text, at)):
        return SecretText(at, number.end(), rule, quote=name_quote) if rule.numbers else None

    if rule.whole_line:
        before = text[name_start - 1 : name_start]
        if before == "'":
            line = _LINE_IN_SINGLE_QUOTES
        elif before == '"' or in_json:
            line = _LINE_IN_DOUBLE_QUOTES
        else:
            line = _LINE
        return _unless_marked(text, at, _end_of_pieces(line, text, at), rule)

    end = _end_of_pieces(_WORDS_IN_JSON if in_json else _WORDS, text, at)
    secret = _unless_marked(text, at, end, rule)
    without_closers = at + len(text[at:end].rstrip(_CLOSERS))
    return secret and SecretText(at, without_closers, rule) if without_closers > at else None


def _unless_marked(text: str, start: int, end: int, rule: KeyRule) -> SecretText | None:
    if start == end or (text.startswith(MARKER, start) and not text[start + len(MARKER) : end].strip(_CLOSERS + " \t")):
        return None
    return SecretText(start, end, rule)


def _closing_quote(text: str, start: int, quote: str, run: int, in_json: bool) -> int:
    r"""Where the string ends that a quote with `run` backslashes before it began; the end of the text when it does not.

    JSON inside of JSON doubles: on the first level strings stand between ", on the second between \", then between \\\".
    So a quote ends a string of its level when the backslashes before it, and the quote itself counted as one more, are
    an odd multiple of what stands at the beginning.
    """
    unit = run + 1
    for found in _QUOTE.finditer(text, start):
        count = len(found["run"]) + 1
        if found["quote"] == quote:
            if count % unit:
                # A quote of a level further out: the string was cut off.
                return found.end("run") if count > unit else found.start()
            if count // unit % 2:
                return found.end("run") - run
        elif in_json and found["quote"] == '"' and count == 1:
            return found.start()
    return len(text)


def _closing_bracket(text: str, start: int, name_quote: str, in_json: bool) -> int:
    """Where the object or array ends that begins at `start`; the end of the text when it does not."""
    depth = 0
    read = start
    for found in _QUOTE_OR_BRACKET.finditer(text, start):
        if found.start() < read:
            continue
        quote = found["quote"]
        if quote is None:
            depth += 1 if found[0] in "{[" else -1
            if depth == 0:
                return found.end()
        elif not name_quote or quote == name_quote[-1]:
            run = len(found["run"])
            if name_quote and (run + 1) % len(name_quote):
                # A quote of a level further out: the object was cut off.
                return found.end("run")
            read = _closing_quote(text, found.end(), quote, run, in_json) + run + 1
    return len(text)


def _end_of_pieces(pattern: re.Pattern[str], text: str, at: int) -> int:
    while (end := _match_end(pattern, text, at)) > at:
        at = end
    return at


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found, "the patterns that are used here match the empty string, too"
    return found.end()
