"""Heuristics for whether a value looks like a secret: its length, its characters and its words.

In text a name alone is not enough: `token = lexer.next()`, `password: required` and `secret: ${SECRET}` are no secrets.
Every pattern here matches one value of bounded length, so that the time does not depend on the surrounding text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, IntEnum
from itertools import islice
from typing import Any, Final

from msgspec import DecodeError, json

from .rules import MARKER, KeyRule

MOST: Final = 512
"""Number of characters of a value that are examined."""


class Unread:
    """Stands for a value that cannot be looked at, because it is stored elsewhere. Under the name of a secret it is one."""

    __slots__ = ()


class Look(IntEnum):
    """Appearance of a value, from surely harmless to surely random."""

    NOTHING = 0
    """Empty, a type, a placeholder, a template, or a word that describes a value: `None`, `<token>`, `required`."""
    CODE = 1
    """An expression, a path, a sentence, a date, a version."""
    WORD = 2
    """A plain word or short text: a weak password in a place that takes only values."""
    MIXED = 3
    """Letters with digits or signs, as in a password."""
    RANDOM = 4
    """At least twelve characters without the structure of words."""


class ValueSyntax(Enum):
    """Syntax around a value in text. The less a place is reserved for values, the more the value must look like a secret."""

    MEMBER = "member"
    """After a quoted name, or in a dict: `{"password": "x"}`."""
    QUOTED = "quoted"
    """A literal after a plain name: `password = "x"`."""
    GIVEN = "given"
    """A place that takes only values: an environment line, a flag, a URL query, an XML element."""
    LINE = "line"
    """A line of its own in YAML, INI or a header."""
    LOOSE = "loose"
    """Anywhere else, for example in source code."""


# Minimum look and length of a secret, behind unambiguous names (`db_password`) and behind weak names (`token`).
STRONG: Final = {
    ValueSyntax.MEMBER: (Look.WORD, 1),
    ValueSyntax.QUOTED: (Look.WORD, 1),
    ValueSyntax.GIVEN: (Look.WORD, 1),
    ValueSyntax.LINE: (Look.WORD, 1),
    ValueSyntax.LOOSE: (Look.MIXED, 5),
}
WEAK: Final = {
    ValueSyntax.MEMBER: (Look.MIXED, 12),
    ValueSyntax.QUOTED: (Look.MIXED, 8),
    ValueSyntax.GIVEN: (Look.WORD, 1),
    ValueSyntax.LINE: (Look.MIXED, 8),
    ValueSyntax.LOOSE: (Look.RANDOM, 12),
}

_JSON_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SCHEMA_WORDS: Final = frozenset(
    """
    $ref additionalProperties allOf anyOf description enum exclusiveMaximum exclusiveMinimum format items maxItems maxLength
    maximum minItems minLength minimum multipleOf nullable oneOf pattern properties required title type uniqueItems
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)
_DESCRIPTIONS: Final = frozenset(
    # Empty values, booleans, types, and words that documents and programs use in place of a value.
    """
    null none nil undefined true false yes no on off void any auto default empty unset blank n/a na tbd todo nan
    str string bytes int integer bool boolean number float object array text char varchar uuid char[] string[] byte[] type
    function self this optional required mandatory missing invalid valid expired revoked accepted rejected verified issued
    changed updated enabled disabled active inactive protected hidden masked redacted filtered encrypted hashed plain unknown
    present absent set given found denied failed wrong incorrect correct ok error success weak strong medium short long needed
    basic bearer digest oauth oauth2 jwt saml ldap kerberos negotiate apikey api-key api_key header cookie query body inherit include omit same-origin
    write read admin user username name value key id email login value1 see use enter describe description example sensitive
    is are was not must should will the a an and or for in of to from with by
    """.split()  # noqa: SIM905, a list of 200 strings would be harder to read and to add to
)  # fmt: skip
# `YOUR_API_KEY`, `<token>`, `${TOKEN}`, `{{ token }}`, `%(token)s`, `$1`, `***`, `xxxx`, `sk-...`, `[FILTERED]`, `:token`.
_PLACEHOLDER: Final = re.compile(
    r"""
    [<\[({*.…•·#%&?|/\\=!+>~^-]*\Z
    |(?:sk-|ghp_|pk-)?([x*.•#\-_0])\1{2,}[\w*.•-]{0,8}\Z
    |[\w-]{0,16}(?:\.{3}|…|\*{3})|\.[*+]|\[\^|<[^<>]{0,100}\Z
    |<[^<>]{0,100}>|\[[A-Z_ ]{3,40}\]|\$[A-Za-z_({]|\$\d|\$\$?\{|@\{|\#\{|\{\{|\{%|\{[\w.]*\}|%[(\w]|%[A-Z_]{1,40}%|:'?[a-z_]+'?\Z|<%
    |(?:your|my|our|the|some|any|insert|enter|replace|change|put|add|paste|example|dummy|fake|sample|placeholder)
     [_\- .]?(?:me|it|in|this|here|own|actual|real|super|secure|secret|personal|access|api|token|key|pass\w*|auth\w*|\w+[_-](?:here|token|key|secret|password))\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Substitutions within a text: `Bearer ${token}`, `%s`, `{name}`.
_TEMPLATE: Final = re.compile(
    r"\$\{[^{}]{0,100}\}|\{\{|\}\}|\$\([^()]{0,100}\)|#\{|\{[A-Za-z_][\w.\[\]]{0,60}(?:[:!][^{}]{0,20})?\}|%\([a-z]|%[sdvqr](?!\w)|<%|%>"
)
_TELLING: Final = re.compile(r"passw|passphr|secret|token|credential|api_?-?key|private_?-?key|auth", re.IGNORECASE)
_SNAKE: Final = re.compile(r"_{0,2}[a-z]+[0-9]?(?:_[a-z]*[0-9]?)+\Z|[A-Z]+(?:_[A-Z]*[0-9]?)+\Z")
_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)
_CODE: Final = re.compile(
    r"""
    (?:await|new|return|typeof|not|async|yield|if|else|in|is|lambda|func|function|throw|raise)\b(?!-)
    |[A-Za-z_$@&*!][\w$]*(?:(?:\??\.|->|::|!\.)[A-Za-z_$][\w$]*)*!?(?:\(|\[|\{)     # a call, an index
    |[A-Za-z_$@&*][\w$]*(?:(?:\??\.|->|::|!\.)\$?[A-Za-z_$][\w$]*)+[,;)!?\]}]*\Z       # an attribute
    |[A-Za-z_][\w.]*(?:<[\w ,.<>\[\]|]*>|\[\])?\s?[|?]                               # a type
    |[&*!][A-Za-z_(]|\(|[\w.]*\{$|[<>]=|==|=>|\.\w+\(
    """,
    re.VERBOSE | re.ASCII,
)
_PLAIN_FACT: Final = re.compile(
    r"""
    \d{4}-\d\d-\d\d.*|v?\d+(?:\.\d+){1,12}(?:-\w+)?|\d+(?:[.,]\d+)?[a-zA-Z%+]{0,3}(?:/\w+)?|\d+-\d+|0x0+
    |(?:sha|md|utf|base|aes|rsa|oauth|hmac|ed|hs|rs|es|ps|pbkdf|scram-sha|argon|ipv|http|latin|iso)[_-]?\d{1,5}(?:mb4|id|ctr|gcm|cbc)?(?:[_-][\w-]*)?
    |x509(?:[_-]\w+)?|x86(?:_64)?|p(?:224|256|384|521)|cl\d{1,3}k_\w+|bcrypt
    |[\w.-]+:\d+(?:\.\d+)+[\w.-]*
    |[\w.+-]+@[\w-]+(?:\.[A-Za-z]{2,})+
    |\w+://.*|(?:~|\.{1,2})?/[\w./@{}:-]*|[A-Za-z]:\\.*
    |[\w./-]*\.(?:py|pyi|js|jsx|ts|tsx|go|rs|rb|php|java|kt|c|h|cc|cpp|cs|ex|exs|sh|sql|md|rst|txt|json|ya?ml|toml|ini|cfg|conf|html?|xml|css|key|pem|crt|cer|p12|pub|env|log|lock|zip|gz|svg|png|jpe?g|com|org|net|io|dev|local|internal)(?::\d+)?(?::\d+)?
    """,
    re.VERBOSE,
)
_WORD_RUN: Final = re.compile(r"[A-Z]?[a-z]{3,}")
_VOWEL: Final = re.compile(r"[aeiouyAEIOUY]")
_CHANGES: Final = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]|(?<=[a-z])[A-Z](?=[A-Z0-9]|[a-z]{1,2}(?![a-z]))")
_LETTER: Final = re.compile(r"[A-Za-z]")
_DIGIT: Final = re.compile(r"[0-9]")
_SIGN: Final = re.compile(r"[!@#$%^&*~+=?]")


# Value of an Authorization header. The credentials of other schemes (_DIGEST) contain quotes and commas.
_SCHEME: Final = re.compile(
    r"(?:basic|bearer|token|apikey|api-key|bot|oauth|negotiate|ntlm|sharedkey|sso-key|key|genie?key)[ \t:=]{1,8}(?P<value>[^\s\"'`,;<>)\]}\\\u3000-\u9fff\uff00-\uffef]{1,8192}[>}\]]?)",
    re.IGNORECASE,
)
_DIGEST: Final = re.compile(r"(?:digest|aws4-hmac-sha256|hmac|oauth|hawk|signature)[ \t]+\S[\s\S]*", re.IGNORECASE)
_COOKIE: Final = re.compile(r"[^\s=;,\"'(){}<>:]{1,128}=(?P<value>[^;\s]{1,8192})")


def holds_secret(value: str, rule: KeyRule, place: ValueSyntax, *, literal: bool) -> bool:
    """Return whether a value behind a secret name looks enough like a secret for its place."""
    if rule.header and credentials(value, rule):
        return True
    if value.lower() in rule.words:
        # The value repeats the name: `pwd=pwd`.
        return False
    if rule.any_value and place is ValueSyntax.MEMBER and _is_json(value):
        return True
    least, length = (WEAK if rule.weak else STRONG)[place]
    if rule.header:
        least = Look.MIXED
    seen = look(value, literal=literal)
    if seen in (Look.WORD, Look.CODE) and not rule.weak and is_phrase(value, " " if rule.phrases else "-"):
        seen = Look.MIXED
    if rule.any_value and (
        seen >= Look.WORD or (seen is Look.CODE and (literal or _PLAIN_FACT.fullmatch(value.rstrip(".,;:!?)"))))
    ):
        return True
    if not rule.numbers and value.strip().isdigit():
        return False
    return seen >= least and len(value) >= length


def is_secret(value: Any, rule: KeyRule, depth: int = 0) -> bool:
    """Return whether the whole value of a secret key in a mapping must be redacted."""
    if value is None or value == MARKER:
        return False
    if rule.any_value:
        return value not in ("", [], (), {}) and not (isinstance(value, dict) and _is_plain_schema(value))
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return holds_secret(value, rule, ValueSyntax.MEMBER, literal=True)
    if isinstance(value, dict):
        if _is_schema(value):
            return False
        # Under a weak name, one of the inner values must look like a secret.
        return len(value) > 0 and (not rule.weak or _holds_any(value.values(), rule, depth))
    if isinstance(value, (list, tuple)):
        return _holds_any(value, rule, depth)
    return rule.numbers if isinstance(value, (int, float)) else True


def _holds_any(values: Iterable[Any], rule: KeyRule, depth: int) -> bool:
    return depth < 4 and any(is_secret(value, rule, depth + 1) for value in islice(values, 1000))


def is_secret_of_pair(value: Any, rule: KeyRule) -> bool:
    """Return whether the second item of a pair is secret. Headers are listed as pairs, but so are field names."""
    if isinstance(value, Unread):
        return True
    return isinstance(value, str) and value != MARKER and holds_secret(value, rule, ValueSyntax.LOOSE, literal=False)


def _is_json(value: str) -> bool:
    """Return whether a value is JSON with values in it, which may look like a template: `{"a": {"b": 1}}`."""
    if value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return bool(json.decode(value))
    except (DecodeError, RecursionError, UnicodeEncodeError):
        return False


def _is_schema(value: dict[Any, Any]) -> bool:
    kind = value.get("type")
    return (
        (isinstance(kind, str) and kind in _JSON_TYPES)
        or isinstance(kind, list)
        or any(key in value for key in ("$ref", "anyOf", "oneOf", "allOf"))
    )


def _is_plain_schema(value: dict[Any, Any]) -> bool:
    """Return whether a value only describes a parameter, as the schemas of tools do."""
    return _is_schema(value) and _SCHEMA_WORDS.issuperset(value)


def credentials(value: str, rule: KeyRule) -> int:
    """Return the length of the credentials at the start of a header value; 0 without any."""
    if rule.name == "cookie":
        match = _COOKIE.match(value)
        if match is None or look(match["value"], literal=True) < Look.WORD:
            return 0
        return len(value)
    if match := _SCHEME.match(value):
        inside = match["value"]
        return match.end() if look(inside, literal=True) >= Look.WORD else 0
    return len(value) if _DIGEST.match(value) else 0


def look(value: str, *, literal: bool) -> Look:
    """Return the appearance of a value. A literal (in quotes, or in a place for values) cannot be a variable name."""
    value = value[:MOST].strip()
    low = value.lower()
    if not value or low.rstrip(".,;:!?)]}>") in _DESCRIPTIONS or _PLACEHOLDER.match(value) or _TEMPLATE.search(value):
        return Look.NOTHING
    if not value.isascii():
        # Secrets are ASCII, so mostly non-ASCII text is prose.
        foreign = sum(not char.isascii() for char in value)
        if foreign > len(value) / 2:
            return Look.CODE
        return look(value.encode("ascii", "ignore").decode(), literal=literal)
    if any(char.isspace() for char in value):
        words = value.split()
        return Look.CODE if len(words) > 2 or value[-1] in ".!?:" or _CODE.match(value) else Look.WORD
    letters, digits = len(_LETTER.findall(value)), len(_DIGIT.findall(value))
    if _PLAIN_FACT.fullmatch(value) and not (digits == len(value) and letters == 0):
        return Look.CODE
    if digits == len(value.lstrip("+-")):
        return Look.MIXED if digits >= 4 else Look.WORD if literal else Look.CODE
    if not letters and not digits:
        return Look.NOTHING
    runs = _WORD_RUN.findall(low if value.isupper() and ("_" in value or "-" in value) else value)
    wordy = sum(len(run) for run in runs if _VOWEL.search(run)) / len(value)
    if _is_code(value, wordy, digits, literal):
        return Look.CODE
    if len(value) >= 12 and wordy < 0.6 and (len(_CHANGES.findall(value)) >= 3 or letters + digits < len(value) - 3):
        return Look.RANDOM
    if len(value) >= 16 and letters == len(value) and len(_VOWEL.findall(value)) < 0.3 * letters and len(runs) <= 1:
        # Longer than a word, with fewer vowels.
        return Look.RANDOM
    if _TELLING.search(value) and not (literal and digits):
        return Look.NOTHING
    if digits and (letters or _SIGN.search(value)) and len(value) >= 5:
        return Look.MIXED
    if literal and _SIGN.search(value) and letters:
        return Look.MIXED
    return Look.WORD


def _is_code(value: str, wordy: float, digits: int, literal: bool) -> bool:
    code = _CODE.match(value)
    if code and (wordy >= 0.5 or (not literal and not _DIGIT.search(code[0]))):
        return True
    if value.count("/") and wordy >= 0.6:
        return True
    if literal:
        return bool(_NAME.match(value)) and "_" in value and value.isupper() and not digits
    # A name of several words is a variable: db_pass, newValue, MAX_2.
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", value)
    return bool(_NAME.match(value)) and (
        (value.isupper() and not digits) or _SNAKE.match(value) is not None or (len(parts) > 1 and not digits)
    )


def is_phrase(value: str, joint: str) -> bool:
    """Return whether a value is a passphrase: at least three words of letters, joined by `joint` or hyphens."""
    return (
        len(value) <= MOST
        and re.fullmatch(rf"[A-Za-z]{{2,20}}(?:[-{joint}][A-Za-z]{{2,20}}){{2,11}}", value) is not None
    )
