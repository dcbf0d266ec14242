"""Search for secrets in text by the names before them: JSON in strings, YAML, env files, headers, commands, source code.

JSON text stays valid JSON, and all bytes outside of secrets are kept. A name is not enough: the value must look like a
secret, the more so the less its place is reserved for values (values.py). The time is linear in the length of the text,
because repetitions are bounded or cannot backtrack, and no part is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .rules import MARKER, KeyRule, Rules
from .values import Look, ValueSyntax, credentials, holds_secret, look


@dataclass(frozen=True, slots=True)
class SecretText:
    """Position of a secret value in a text."""

    start: int
    end: int
    rule: KeyRule
    quote: str = ""
    """Quote to put around the marker if the value has none: a number, object or array of JSON."""


@dataclass(frozen=True, slots=True)
class _Name:
    """Secret name in a text, with its separator."""

    start: int
    end: int
    rule: KeyRule
    at: int
    """Position at which the value may begin."""
    quote: str | None
    """The quote that ends the name, with its backslashes."""
    sign: str
    """Kind of separator: `=`, `:`, `|`, `flag`, `element`, `pair`, `space`, `is`."""
    spaced: bool
    """Whether there are spaces around the sign."""
    attribute: bool = False
    """Whether the value is an attribute beside the name: `name="password" value="x"`."""


_JSON_BEGIN = re.compile(r"""\s*(?:\{\s*(?:["}\\]|\Z)|\[\s*(?:["{\[\]\\0-9-]|\Z)|")""")
_NAME_END = re.compile(r"[\w.\-]{0,160}")
_PROSE_END = re.compile(r" [\w .\-]{0,64}")
# Markdown marks and quote at the end of a name, and the separator.
_SIGN = re.compile(
    r"""
    [*_`\])]{0,3}(?P<quote>\\{0,64}["'])?[*_`\])]{0,3}
    (?:
      (?P<typed>[ \t]{0,8}:[ \t]{0,8}&?(?:'\w{1,20}\ )?(?:str|string|bytes|char|any|Optional|Final|ClassVar|Secret\w{1,10}|typing)\b[\w.\[\]|,&' ]{0,60}=)(?!=)
      |(?P<space>[ \t]{0,64}(?:\r?\n[ \t]{0,64})?)(?P<sign>=>|:=|={1,3}|:|：|\|)
      |(?<=["'])\s{0,64},\s{0,64}\\{0,64}["']value\\{0,64}["']\s{0,64}(?P<beside>:)
      |(?<=["'])\s{1,64}value\s{0,8}(?P<attribute>=)
      |(?<=["'])\s{0,64}(?P<pair>,)
      |(?P<element>(?:[ \t][^<>\n]{0,100})?>)
      |(?P<item></\w{1,20}>\s{0,64}<\w{1,20}>)
      |(?P<apart>[ \t])(?=\\{0,64}["'`])
      |[ ](?P<is>is)[ ]
      |[ ](?P<to>to)[ ](?=["'`])
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS: Final = {"typed": ":=", "beside": ":", "attribute": "flag", "item": "element", "apart": "space", "to": "space"}
# The same after a word of a language without spaces.
_FOREIGN_SIGN = re.compile(
    r"""(?P<quote>[`*】」』]{0,3}\\{0,64}["']?)[*_`]{0,3}(?P<space>[ \t]{0,8})(?P<sign>=|:|：|\||是|为|為|】|</?[^<>\n]{0,60}>|>)"""
)
_FLAG = re.compile(r"--[A-Za-z][\w\-]{0,64}")
_FLAG_SPACE = re.compile(r"[ \t]+(?=[^\s-])")
_SPACE = re.compile(r"[ \t]*")
_SPACE_AND_LINES = re.compile(r"\s*")
_MARKS = re.compile(r"[*_]{1,3}[ \t]*")
# The letters are prefixes of Python literals: b"x".
_OPENING_QUOTE = re.compile(r"""(?:[bBrRuUfF]{1,2}(?=["']))?(?P<run>\\{0,64})(?P<quote>["'`])""")
_QUOTE = re.compile(r"""(?<!\\)(?P<run>\\*)(?P<quote>["'])""")
_JSON_QUOTE = re.compile(r'(?<!\\)(?:\\\\){0,64}"')
_QUOTE_OR_BRACKET = re.compile(r"""(?<!\\)(?P<run>\\*)(?P<quote>["'])|[{}\[\]]""")
_NUMBER = re.compile(r"[+-]?\d[\w.+-]*|-?(?:Infinity|NaN)")
# The next patterns match one piece, which bounds the memory of a match; _end_of_pieces repeats them.
# In JSON a line also ends at the quote that ends the string, and at an escaped \n.
_LINE = re.compile(r"""(?:[^\r\n"'\\<]+|\\+(?![nr"'\\])|(?<==)"[^"\r\n]{0,4096}"|<(?!/)){0,500}""")
# A comma, semicolon or ampersand ends a word only where a space or another name follows it.
_CHARACTERS = r"""[^\s"'\\,;&<`\u3000-\u9fff\uff00-\uffef]+|[,;&](?!\s|\Z|[\w.\-]{0,64}[:=])|<(?!/)|`(?=\w)"""
_WORD = rf"{_CHARACTERS}|\\+"
_WORD_IN_JSON = rf"""{_CHARACTERS}|\\+(?![\\nrt"'])"""
_WORDS = re.compile(rf"(?:{_WORD}){{0,500}}")
_WORDS_IN_JSON = re.compile(rf"(?:{_WORD_IN_JSON}){{0,500}}")
# A value with a nested name belongs to both names: `password: token: abc`.
_NAMED_VALUE = re.compile(r"""[A-Za-z][\w\-]{0,40}:[ \t]+""")
# Content of an XML element.
_CONTENT = re.compile(r"\s{0,64}(?:<!\[CDATA\[)?(?P<value>[^<>\s][^<>\n]{0,8192}?)(?:\]\]>)?\s{0,64}</")
# YAML: a block, or the value on a line of its own.
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[ \t]*\r?\n")
_NEXT_LINE = re.compile(r"[ \t]*\r?\n[ \t]+(?P<value>[^\s:#\"'{\[-][^\s:\"']{0,256})[ \t]*(?=\r?\n|\Z)")
_BLOCK_LINE = re.compile(r"[ \t]*(?P<rest>[^\r\n]*)(?:\r?\n|\Z)")
_LITERAL = re.compile(r"""(["'])([^"'\\]{1,512})\\{0,64}\1""")
_SCHEMA = re.compile(
    r"""\s*\\{0,64}["']?(?:type|\$ref|anyOf|oneOf|allOf|description|title)\\{0,64}["']?\s*:""",
)
_EMPTY = re.compile(r"[\[{]\s{0,600}[\]}]")
_PEEK: Final = 600
"""Number of characters of a value that are examined. Only secrets are read to their end, so that each name takes bounded
time."""
# Characters that usually close a sentence or bracket around the value and do not belong to it.
_CLOSERS: Final = ")]}>.,;!?*。，；）】」"
# Context before a name after which only a value can follow: a URL query, a connection string, an environment line,
# arguments of docker, lines of a diff.
_BEFORE_GIVEN = re.compile(
    r"(?:^|[\n;?&]|\\n|(?:^|\s)(?:export|set|setx|env|ENV|ARG|-e|--env|--build-arg|-D)[ \t]+|^[ \t]*[-+>#$][ \t]*|\$env:)\Z"
)
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_CONFIG_NAME = re.compile(
    r"[^\W\dA-Z][^\WA-Z]*(?:[.\-][^\WA-Z]+)*\Z|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z|[a-z]+(?:[A-Z][a-z0-9]+)+\Z|[A-Z]\w*(?:-[A-Z]\w*)+\Z|[a-z]+ [a-z]+\Z"
)
_BEFORE_LINE = re.compile(r"(?:^|\n|\\n|[\"'])[ \t]*(?:[-+>#$*][ \t]+|[-+])?\Z")
_AFTER_LINE = re.compile(r"[ \t]{0,64}(?:#|\r|\n|\Z|\\n|\\r|\"|')")
# Words after the value of a flag that show a sentence, not a command.
_PROSE_AFTER = re.compile(r"[ \t]+[a-z]{2,20}[ \t,.][^-|;&]")
_DECLARES = re.compile(
    r"\b(?:const|let|var|val|final|auto|my|local|self|this|def|func|fn|String|char|static|public|private)\b[^\n=]{0,64}\Z|\.\Z"
)
_FILE_LINE = re.compile(r"\d+(?:[:\s,)\]]|\Z)")
_FILE_NAME = re.compile(r"\.[A-Za-z]{1,5}\Z")


def lower(text: str) -> str:
    """Return the text in lower case with the same length: İ, which would become longer, is replaced by I first."""
    return text.replace("İ", "I").lower()


def secrets_by_name(text: str, rules: Rules) -> Iterator[SecretText]:
    """Yield the values behind secret names in a text, in order, without overlap."""
    in_json = _JSON_BEGIN.match(text) is not None
    read = taken = counted = quotes = 0
    for word in rules.words.finditer(lower(text)):
        if word.start() < read:
            continue
        rule = rules.foreign.get(word[0])
        if rule is not None:
            name = _foreign_name(text, word, rule)
        else:
            start = _name_start(text, word.start(), taken)
            end = _match_end(_NAME_END, text, word.end())
            name = _name(text, start, end, word.start(), rules)
            read = end if name is None else read
        if name is None:
            continue
        read = max(read, name.end)
        if in_json and name.start > counted:
            quotes += len(_JSON_QUOTE.findall(text, counted, name.start))
            counted = name.start
        # A name between two strings is not inside JSON: `"x" password: "hunter2"`.
        secret = _value(text, name, in_json and (name.quote is not None or quotes % 2 == 1))
        if secret is not None:
            yield secret
            read = taken = secret.end


# --- Names -----------------------------------------------------------------------------------------------------


def _name(text: str, start: int, end: int, word: int, rules: Rules) -> _Name | None:
    """Return the name that ends at `end` or some words later; None if no value can follow or it is not secret."""
    match = _SIGN.match(text, end)
    if match is None or not _fits(text, start, match):
        flag = max(start, text.rfind(" ", start, word) + 1)
        # The hyphens of a flag are part of its name.
        if _FLAG.match(text, flag) and (space := _FLAG_SPACE.match(text, end)):
            rule = rules.rule_for(text[flag:end])
            return _Name(flag, end, rule, space.end(), None, "flag", False) if rule else None
        if (prose := _PROSE_END.match(text, end)) is None:
            return None
        end = prose.end()
        match = _SIGN.match(text, end)
        if match is None or not _fits(text, start, match):
            return None
    if text[max(0, start - 1) : start] == "/" and match["quote"]:
        # The path of a file: "../internals/shared-key"
        return None
    rule = rules.rule_for(text[start:end])
    if rule is None:
        return None
    kind = match.lastgroup or "sign"
    for group in ("sign", "typed", "beside", "attribute", "pair", "element", "item", "apart", "is", "to"):
        if match[group] is not None:
            kind = group
    sign = match["sign"] if kind == "sign" else _SIGNS.get(kind, kind)
    if _FLAG.match(text, max(start, text.rfind(" ", start, word) + 1)) and sign == "=":
        sign = "flag"
    if sign == "：":
        sign = ":"
    return _Name(start, end, rule, match.end(), match["quote"], sign, bool(match["space"]), kind == "attribute")


def _fits(text: str, start: int, match: re.Match[str]) -> bool:
    """Return whether a sign can separate a name from a value."""
    after = text[match.end() : match.end() + 1]
    if match["sign"] is not None:
        if "\n" in match["space"] and not match["quote"]:
            return False
        if match["sign"] == ":" or match["sign"] == "：":
            return after not in (":", "：")
        return not (match["sign"][-1] == "=" and after == "=")
    if match["element"] is not None:
        return text[max(0, start - 1) : start] == "<" or "<" in text[max(0, start - 12) : start]
    return True


def _foreign_name(text: str, word: re.Match[str], rule: KeyRule) -> _Name | None:
    match = _FOREIGN_SIGN.match(text, word.end())
    if match is None:
        return None
    quote = match["quote"].lstrip("`*】」』") or None
    sign = match["sign"]
    sign = "element" if sign[-1] == ">" else "|" if sign == "|" else "=" if sign == "=" else ":"
    return _Name(word.start(), word.end(), rule, match.end(), quote, sign, True)


def _name_start(text: str, at: int, earliest: int) -> int:
    """Return the start of the name around the word at `at`: at most 64 characters before it, including spaces."""
    earliest = max(earliest, at - 64)
    start = at
    while start > earliest and ((char := text[start - 1]).isalnum() or char in "_.- "):
        start -= 1
    if start > 0 and text[start - 1] == "\\":
        # Exclude the characters of an escape: \napi_key, \u00e9api_key.
        escape = 5 if text[start] == "u" else 1 if text[start] in "nrtbf" else 0
        start = min(start + escape, at)
    return start


# --- Values ----------------------------------------------------------------------------------------------------


def _value(text: str, name: _Name, in_json: bool) -> SecretText | None:
    """Return the value behind a name, or None if it does not look like a secret."""
    rule, quote = name.rule, name.quote
    at = _match_end(_SPACE if quote is None else _SPACE_AND_LINES, text, name.at)
    if marks := _MARKS.match(text, at):
        at = marks.end()
    if text.startswith(MARKER, at):
        return None
    if name.sign == "element" and text[name.at - 1] == ">":
        content = _CONTENT.match(text, name.at)
        held = content is not None and holds_secret(content["value"], rule, ValueSyntax.GIVEN, literal=True)
        return SecretText(*content.span("value"), rule) if content and held else None
    opening = _OPENING_QUOTE.match(text, at)
    if opening:
        return _quoted(text, name, opening, in_json)
    if name.sign in ("pair", "space"):
        return None
    if name.attribute and text[at : at + 1] == "{":
        return None
    if text[at : at + 1] in ("{", "[") and (quote or not in_json):
        return _bracketed(text, name, at, in_json)
    if quote and (number := _NUMBER.match(text, at)) and text[number.end() : number.end() + 1] in ("", *",}] \t\r\n\\"):
        return SecretText(at, number.end(), rule, quote=quote) if rule.numbers else None
    if name.sign == ":" and not quote and not rule.weak and (block := _block(text, name, at)):
        return block
    if rule.header:
        return _header(text, name, at, in_json)
    return _word(text, name, at, in_json)


def _quoted(text: str, name: _Name, opening: re.Match[str], in_json: bool) -> SecretText | None:
    start, run, quote = opening.end(), len(opening["run"]), opening["quote"]
    begins_a_string = text[name.start - 1 : name.start] == quote and not text[name.start : name.start + 1].isspace()
    if name.quote is None and quote != "`" and name.sign == ":" and begins_a_string:
        # The quote ends the string that the name begins: 'Password:'
        return None
    if name.quote is None and in_json and quote == '"' and (run == 0 or text[start : start + 1] in ("", *",}]:")):
        # The name is inside a JSON string, which this quote ends.
        return None
    if name.quote and run < len(name.quote) - 1:
        # The quote belongs to an outer level and ends the string that contains the name.
        return None
    place = ValueSyntax.MEMBER if name.quote and name.sign in (":", "=>") else ValueSyntax.QUOTED
    if name.sign in ("pair", "space", "|", "is"):
        place = ValueSyntax.LOOSE
    elif name.sign in ("flag", "element"):
        place = ValueSyntax.GIVEN
    head = text[start : start + _PEEK]
    value = head.partition("`")[0] if quote == "`" else head[: _closing_quote(head, 0, quote, run, in_json)]
    if value == MARKER or not holds_secret(value, name.rule, place, literal=name.sign not in ("pair", "space")):
        return None
    if quote == "`":
        return SecretText(start, start + len(value), name.rule)
    return SecretText(start, _closing_quote(text, start, quote, run, in_json), name.rule)


def _bracketed(text: str, name: _Name, at: int, in_json: bool) -> SecretText | None:
    head = text[at + 1 : at + _PEEK]
    # Checked before the search for the closing bracket, which each of many names would repeat.
    if _EMPTY.match(text, at):
        return None
    if name.quote is None:
        if text[at] == "{" or not _is_list(head.partition("]")[0], name.rule):
            return None
    elif not _holds_values(head, name.rule, text[at]):
        return None
    end = _closing_bracket(text, at, name.quote or "", in_json)
    if name.quote is None:
        end += len(text[end : _end_of_pieces(_WORDS, text, end)].rstrip(_CLOSERS))
    return SecretText(at, end, name.rule, quote=name.quote or "")


def _word(text: str, name: _Name, at: int, in_json: bool) -> SecretText | None:
    words = _WORDS_IN_JSON if in_json else _WORDS
    # The value may belong to a name between: `password: token: abc`.
    nested = _NAMED_VALUE.match(text, at) if name.sign in (":", "=") else None
    start = nested.end() if nested else at
    end = _match_end(words, text, start, start + _PEEK)
    value = text[start:end]
    kept = value.rstrip(_CLOSERS)
    if not kept or kept.startswith(MARKER):
        return None
    place = _place(text, name, at, end)
    if place is ValueSyntax.LOOSE and _is_in_code(text, name, value, end):
        return None
    if _FILE_LINE.match(value) and _FILE_NAME.search(text[name.start : name.end]) and name.sign == ":":
        return None
    literal = place is ValueSyntax.GIVEN
    if not holds_secret(kept, name.rule, place, literal=literal):
        return None
    # Closers may belong to the value, as in expressions and placeholders: `f(x)`, `<key>`, `sk-...`.
    if len(value) > len(kept) and literal and look(value, literal=True) is Look.NOTHING:
        return None
    if len(value) > len(kept) and not literal:
        closed = value.rstrip(".,;!?*")
        if not holds_secret(closed, name.rule, place, literal=False):
            return None
    end = _end_of_pieces(words, text, start)
    return SecretText(at, at + len(text[at:end].rstrip(_CLOSERS)), name.rule)


def _place(text: str, name: _Name, at: int, end: int) -> ValueSyntax:
    """Return the kind of place of an unquoted word."""
    if name.sign == "flag" and text[at - 1] != "=" and _PROSE_AFTER.match(text, end):
        return ValueSyntax.LOOSE
    if name.sign in ("flag", "element"):
        return ValueSyntax.GIVEN
    before = text[max(0, name.start - 32) : name.start]
    own = text[name.start : name.end]
    bare = own.rsplit(" ", 1)[-1]
    if name.sign == "=" and not name.spaced and text[at - 1] == "=":
        first = text[name.end - len(bare) - 1 : name.end - len(bare)]
        given = text[max(0, name.end - len(bare) - 32) : name.end - len(bare)]
        if (
            (_ENV_NAME.match(bare) and not given.rstrip(" ").endswith((",", "(")))
            or _BEFORE_GIVEN.search(given)
            and given[-1:] not in ("", "\n", "n")
        ):
            return ValueSyntax.GIVEN
        if first not in ("(", ",", "[", "{"):
            return ValueSyntax.LINE
    if name.sign in (":", "=") and _CONFIG_NAME.match(own.strip()):
        line = before + own[: len(own) - len(own.lstrip())]
        if name.quote:
            return ValueSyntax.LOOSE
        if (
            _BEFORE_LINE.search(line)
            and _AFTER_LINE.match(text, end)
            and text[end - 1 : end] not in (",", ";", "{", "(")
        ):
            return ValueSyntax.LINE
    return ValueSyntax.LOOSE


def _is_in_code(text: str, name: _Name, value: str, end: int) -> bool:
    """Return whether an unquoted word is source code, in which secrets are quoted."""
    if name.sign in (":=", "==", "===", "=>"):
        return True
    if text[end : end + 1] in ("(", "[") or value[-1:] in ("(", "{", "["):
        return True
    # A piece of a string follows: `password = [`, `token=f"`.
    if text[end : end + 1] in ('"', "'", "`") and value[-1:] in ("(", "[", "=", "+", "f", "b", "r") and len(value) < 40:
        return True
    line = (
        text[text.rfind("\n", max(0, name.start - 120), name.start) + 1 : name.start]
        if name.sign == "=" or name.sign == ":"
        else ""
    )
    return bool(_DECLARES.search(f"{line[-120:]}{text[name.start : name.end].rsplit(' ', 1)[0]} ")) and name.spaced


def _header(text: str, name: _Name, at: int, in_json: bool) -> SecretText | None:
    """Return the credentials of a header: `Bearer x`, `a=b; c=d`."""
    length = credentials(text[at : _match_end(_LINE, text, at, at + _PEEK)].rstrip(), name.rule)
    if length == _PEEK or (length and name.rule.name == "cookie"):
        length = len(text[at : _end_of_pieces(_LINE, text, at)].rstrip())
    if length:
        return SecretText(at, at + length, name.rule)
    return None if name.rule.name == "cookie" else _word(text, name, at, in_json)


def _block(text: str, name: _Name, at: int) -> SecretText | None:
    """Return the value of a YAML name on the lines below it."""
    if following := _NEXT_LINE.match(text, at):
        value = following["value"]
        return (
            SecretText(*following.span("value"), name.rule)
            if holds_secret(value, name.rule, ValueSyntax.LOOSE, literal=False)
            else None
        )
    opening = _BLOCK.match(text, at)
    if opening is None:
        return None
    line = text.rfind("\n", 0, name.start) + 1
    indent = len(text[line : name.start]) - len(text[line : name.start].lstrip(" \t"))
    start = end = opening.end()
    while end < len(text) and end - start < 16_384:
        row = _BLOCK_LINE.match(text, end)
        if row is None or row.end() == end or (row["rest"] and row.start("rest") - end <= indent):
            break
        end = row.end()
    value = text[start:end]
    inside = value.strip()
    if not inside or inside.startswith(MARKER):
        return None
    first = start + len(value) - len(value.lstrip())
    return SecretText(first, first + len(inside), name.rule)


def _is_list(inside: str, rule: KeyRule) -> bool:
    """Return whether the brackets after an unquoted name contain a secret literal."""
    literals = _LITERAL.findall(inside)
    if not literals:
        return (
            bool(credentials(inside, rule))
            if rule.header
            else holds_secret(inside, rule, ValueSyntax.LOOSE, literal=False)
        )
    return any(holds_secret(value, rule, ValueSyntax.QUOTED, literal=True) for _quote, value in literals)


def _holds_values(inside: str, rule: KeyRule, bracket: str) -> bool:
    """Return whether an object or array under a secret name, in invalid JSON, must be redacted."""
    if bracket == "{":
        if _SCHEMA.match(inside):
            return False
        strings = [value for _quote, value in _LITERAL.findall(inside)]
        return not rule.weak or any(holds_secret(value, rule, ValueSyntax.MEMBER, literal=True) for value in strings)
    strings = [value for _quote, value in _LITERAL.findall(inside)]
    return not strings or any(holds_secret(value, rule, ValueSyntax.MEMBER, literal=True) for value in strings)


# --- Where values end -------------------------------------------------------------------------------------------


def _closing_quote(text: str, start: int, quote: str, run: int, in_json: bool) -> int:
    r"""Return the end of the string whose opening quote follows `run` backslashes; the end of the text if it has none.

    Each level of JSON in JSON escapes again: the quotes are " on the first level, \" on the second, then \\\". A quote
    therefore closes a string of its level if the number of its backslashes plus one is an odd multiple of that of the
    opening quote.
    """
    unit = run + 1
    for match in _QUOTE.finditer(text, start):
        count = len(match["run"]) + 1
        if match["quote"] == quote:
            if count % unit:
                # A quote of an outer level: the string was truncated.
                return match.end("run") if count > unit else match.start()
            if count // unit % 2:
                return match.end("run") - run
        elif in_json and match["quote"] == '"' and count == 1:
            return match.start()
    return len(text)


def _closing_bracket(text: str, start: int, name_quote: str, in_json: bool) -> int:
    """Return the end of the object or array that begins at `start`; the end of the text if it has none."""
    depth = 0
    read = start
    for match in _QUOTE_OR_BRACKET.finditer(text, start):
        if match.start() < read:
            continue
        quote = match["quote"]
        if quote is None:
            depth += 1 if match[0] in "{[" else -1
            if depth == 0:
                return match.end()
        elif not name_quote or quote == name_quote[-1]:
            run = len(match["run"])
            if name_quote and (run + 1) % len(name_quote):
                # A quote of an outer level: the object was truncated.
                return match.end("run")
            read = _closing_quote(text, match.end(), quote, run, in_json) + run + 1
    return len(text)


def _end_of_pieces(pattern: re.Pattern[str], text: str, at: int) -> int:
    while (end := _match_end(pattern, text, at)) > at:
        at = end
    return at


def _match_end(pattern: re.Pattern[str], text: str, at: int, limit: int | None = None) -> int:
    match = pattern.match(text, at) if limit is None else pattern.match(text, at, limit)
    assert match, "the patterns that are used here match the empty string, too"
    return match.end()
