r"""Fast check for values without secrets, derived from the table of rules.

Nearly every value is clean, so applying the rules comes second. First, the lower-case bytes of all texts are searched for
the words and anchors of the rules, each by one of its rare characters (its pin): `k` for `token` and `sk-`, `_` for
`ghp_`. Python's `re` skips to a literal quickly; one alternation of all words takes ten times as long.

The filter may match too much but never too little: it accepts after a word or anchor at least everything that text.py and
the shapes accept. `sdk/tests/redaction/test_engine.py` compares both on generated texts.
"""

from __future__ import annotations

# Imported here, because the first encoding imports it: a child that is forked at that moment would wait for it for ever.
import encodings.utf_16_be  # noqa: F401
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from json import loads
from typing import Final, NamedTuple, TypeAlias

from msgspec import Raw, json

from .rules import Rules

Text: TypeAlias = str | int | Raw
"""What is searched: a text, an integer for its digits, or undecoded JSON."""

# Rare characters and fragments in lower-case traces, the rarest first. Literals without one are their own pin.
_PINS: Final = ("~", "_", "k", "-", "p", "b", "v", "cre", "auth", "://", "sig")
_CAPITALS: Final = ("~", "J", "K", "G", "A", "P")

_WIDE_COLON: Final = "：".encode()
# İ and the Kelvin sign end a word, but become ASCII letters in lower case.
_BETWEEN_LETTERS: Final = ("\u0130".encode(), "\u212a".encode())
_ASCII: Final = bytes(range(128))
# After the word of a name: the rest of the name, perhaps more words, and a separator before a value, in UTF-8. The rest of
# a name is matched as a whole (a lookahead repeated by its group), because backtracking into it cannot help.
_AHEAD: Final = re.compile(
    rb"""
    (?=(?P<rest>(?:[\w.\-\x80-\xff]|\\{1,64}u[0-9a-f]{4}){0,640}))(?P=rest)
    (?:
      (?P<sign>[*_`\])]{0,3}(?:\\{0,64}["'])?[*_`\])]{0,3}
        (?:[\s\x1c-\x1f]{0,200}[:=|>]|(?<=["'])[\s\x1c-\x1f\x80-\xff]{0,200}(?:,|value)|[ \t]\\{0,64}["'`]|[ ](?:is|to)[ ]|<))
      |[ \t][^<>\n]{0,400}>
      |(?=(?P<prose>[ ][\w .\-\x80-\xff]{0,256}))(?P=prose)
       [*_`\])]{0,3}(?:\\{0,64}["'])?[*_`\])]{0,3}(?:[ \t]{0,64}[\r\n]{0,2}[ \t]{0,64}[:=|]|["'`,]|(?<=["'])[\s\x80-\xff]{0,200}(?:,|value))
      |(?<=[ ]is|[ ]to)[ ]
    )
    """,
    re.VERBOSE,
)
_REST: Final = re.compile(rb"[\w.\-\x80-\xff]*")
_MOST_AHEAD: Final = 1_000
"""More than the bytes after a word of which _AHEAD looks at each, when it finds nothing but letters."""
# In undecoded JSON a name extends to its quote.
_QUOTE: Final = re.compile(rb"""["\\]""")
_FIELD: Final = re.compile(rb"""\\|"\s{0,200}:""")
_LONGEST_FIELD: Final = 1_300

# Some at a time, because a match remembers each step of a repeated group; the second half of a pair stays with the first.
_JSON_ESCAPE: Final = re.compile(
    rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4}){0,1000}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?)'
)
_SHORT_ESCAPES: Final = {
    rb"\"": b'"', rb"\\": b"\\", rb"\/": b"/", rb"\b": b"\b", rb"\f": b"\f", rb"\n": b"\n", rb"\r": b"\r", rb"\t": b"\t",
}  # fmt: skip
_RARE: Final = b"~JKG_\\"
# ASCII that is escaped without need, and may be part of a key.
_HIDDEN: Final = re.compile(rb"\\u00[2-7]")
_ESCAPED_KEY: Final = re.compile(r"[\x00-\x1f\"'\\/<>&=+]")
_FEW: Final = 4
"""Substrings that are searched for first, each of which takes about 1 us in 20 KB."""


class Kinds(NamedTuple):
    """Patterns of a `part` after one of the words that it requires."""

    in_text: re.Pattern[bytes]
    in_json: re.Pattern[bytes]
    """For names of fields, which may have any character between the two words."""


class Search(NamedTuple):
    """Search for the literals that share a pin."""

    pin: bytes
    also: tuple[bytes, ...]
    """A text without any of these is not searched. Empty: every text is."""
    pattern: re.Pattern[bytes]
    kinds: Kinds | None = None
    """For the group `part`."""

    def first(self, text: bytes, at: int) -> re.Match[bytes] | None:
        """Return the first match from an offset on."""
        at = text.find(self.pin, at)
        if len(self.pin) == 1 and self.pin in _RARE:
            # `bytes.find` uses memchr for a single byte; `re` before 3.12 compares byte by byte.
            for _few in range(24):
                if at < 0:
                    return None
                if match := self.pattern.match(text, at):
                    return match
                at = text.find(self.pin, at + 1)
        return self.pattern.search(text, at) if at >= 0 else None


@dataclass(frozen=True)
class Filter:
    """Searches derived from one set of rules."""

    exact: tuple[Search, ...]
    """Case-sensitive searches for anchors with capitals, which are rare in text, and for JSON escapes that may be part of a name
    or secret."""
    searches: tuple[Search, ...]
    """Searches in lower-case text. Their groups: `name` for words, `part` for words that count only after others, `value` for
    the key of `{"name": "token", "value": "x"}`."""
    foreign: tuple[bytes, ...]
    """Non-ASCII words; of words with upper and lower case only one character, in both cases."""
    foreign_words: re.Pattern[str] | None
    shapes: tuple[re.Pattern[str], ...]
    """Patterns of shapes without anchors, which every text is searched with."""
    quick: tuple[Callable[[bytes], object], ...]
    """Checks of all texts together, by other shapes without anchors."""

    @property
    def of_users(self) -> bool:
        """Return whether there are shapes without anchors. They are the users', because Tracesite's own all have anchors."""
        return bool(self.shapes or self.quick)

    def hits(self, texts: Sequence[Text]) -> set[int]:
        """Return the indexes of all texts in which a rule may match, and of few others.

        One call for many texts is much cheaper than many calls.
        """
        # At most two copies of the texts exist at a time, because a text may have 50 MB.
        pieces = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else _encoded(text) for text in texts]
        look = _Look(texts, begins=[0, *accumulate(len(piece) + 1 for piece in pieces)])
        # In a text, this is no escape.
        look.found.update(i for i, text in enumerate(texts) if isinstance(text, Raw) and rb"\b" in pieces[i])
        if self.of_users:
            look.found.update(self._hits_of_users(texts, pieces))
        encoded = b"\n".join(pieces)
        del pieces
        if not encoded.isascii():
            look.found.update(self._foreign_hits(encoded, look.begins))
            # Replaced by as many bytes, so that offsets stay valid.
            encoded = encoded.replace(_WIDE_COLON, b":::")
        for search in self.exact:
            look.add(search, encoded)
        low = encoded.lower()
        del encoded
        for search in self.searches:
            look.add(search, low)
        # In `{"name": "token", "value": "x"}` the value does not follow the word.
        return look.found | (look.named & look.valued)

    def _hits_of_users(self, texts: Sequence[Text], pieces: Sequence[bytes]) -> Iterator[int]:
        if self.shapes:
            for index, text in enumerate(texts):
                strings = _strings_of(bytes(text)) if isinstance(text, Raw) else (str(text),)
                if any(pattern.search(string) for string in strings for pattern in self.shapes):
                    yield index
        if self.quick:
            plain = [_with_plain(piece) if b"\\" in piece else piece for piece in pieces]
            joined = b"\n".join(plain)
            for quick in self.quick:
                if quick(joined):
                    yield from (index for index, piece in enumerate(plain) if quick(piece))

    def _foreign_hits(self, encoded: bytes, begins: Sequence[int]) -> Iterator[int]:
        """Yield the texts with names, or ends of names, that are not ASCII."""
        rest = encoded.translate(None, _ASCII)
        parts = [part for part in (*_BETWEEN_LETTERS, *self.foreign) if part in rest]
        if not parts:
            return
        for index, (begin, after) in enumerate(pairwise(begins)):
            piece = encoded[begin : after - 1]
            if any(part in piece for part in parts) and (
                any(letter in piece for letter in _BETWEEN_LETTERS)
                or (self.foreign_words and self.foreign_words.search(piece.decode("utf-8", "surrogatepass").lower()))
            ):
                yield index


@dataclass
class _Look:
    """A look at texts that are joined, one per line, by one search after the other."""

    texts: Sequence[Text]
    begins: Sequence[int]
    """The offset of each text, and one more than that of the end."""
    found: set[int] = field(default_factory=set)
    """The indexes of texts in which a rule may match."""
    named: set[int] = field(default_factory=set)
    valued: set[int] = field(default_factory=set)
    """The indexes of texts with the name of a secret, and of those with the key `value`."""

    def add(self, search: Search, joined: bytes) -> None:
        """Add the texts that a search matches. The rest of a text that was found is passed over."""
        if search.also and not any(part in joined for part in search.also):
            return
        # Text without an end of a word, such as "secretsecret...", is not read again for each name in it.
        at, endless, quote, is_field = 0, 0, -1, False
        while match := search.first(joined, at):
            index = bisect_right(self.begins, match.start()) - 1
            begin, at, end = self.begins[index], match.end(), self.begins[index + 1] - 1
            group = match.lastgroup
            if index in self.found or group is None:
                self.found.add(index)
                at = end
                continue
            (self.valued if group == "value" else self.named).add(index)
            in_json = isinstance(self.texts[index], Raw)
            if group == "value" or (group == "part" and not _counts(begin, at, joined, search.kinds, in_json=in_json)):
                continue
            if in_json and quote < at:
                after = _QUOTE.search(joined, at, end)
                quote = end if after is None else after.start()
                is_field = _FIELD.match(joined, quote, end) is not None
            if (in_json and is_field and quote - at <= _LONGEST_FIELD) or (
                at >= endless and _AHEAD.match(joined, at, end)
            ):
                self.found.add(index)
                at = end
            elif at >= endless:
                letters = _REST.match(joined, at, end)
                endless = 0 if letters is None else letters.end() - _MOST_AHEAD


def _encoded(text: Text) -> bytes:
    return bytes(text) if isinstance(text, Raw) else str(text).encode("utf-8", "surrogatepass")


def _with_plain(piece: bytes) -> bytes:
    """Return a text, and behind it the same without the escapes of JSON, which may be part of a secret."""
    is_json = piece.lstrip()[:1] in (b"{", b"[", b'"')
    return piece + b"\n" + _JSON_ESCAPE.sub(_unescaped, piece) if is_json else piece


def _counts(begin: int, end: int, low: bytes, kinds: Kinds | None, *, in_json: bool) -> bool:
    """Return whether the word before a `part` makes it a name, in a text that begins at `begin`."""
    assert kinds, "searches with this group have them"
    return (kinds.in_json if in_json else kinds.in_text).search(low, max(begin, end - 40), end) is not None


def _kinds_of(kinds: Iterable[str], parts: Iterable[tuple[str, str, str]]) -> Kinds:
    before = "|".join(sorted(map(re.escape, kinds))) or "(?!)"
    word = "|".join(re.escape(part) for part, *_rest in parts) or "(?!)"
    after = rf"(?:{before}|\\u[0-9a-f]{{4}}|[\x80-\xff])[_\-. ]?(?:{word})\Z|[_\-. ]{{2}}(?:{word})\Z"
    odd = rf"""(?:[^a-z0-9_\-. "]|[^a-z0-9][_\-. ]|\\["nrtfb][_\-. ]?)(?:{word})\Z"""
    return Kinds(re.compile(after.encode()), re.compile(f"{after}|{odd}".encode()))


def _strings_of(document: bytes) -> Iterator[str]:
    """Yield the keys and texts of undecoded JSON one by one, because a pattern may depend on where a text begins and ends."""
    if b"\\" not in document:
        yield from document.decode("utf-8", "surrogatepass").split('"')[1::2]
        return
    # As long, but without the quotation marks that neither begin nor end a string.
    plain = document.replace(rb"\\", b"__").replace(rb"\"", b"__")
    end = -1
    while (begin := plain.find(b'"', end + 1)) >= 0 and (end := plain.find(b'"', begin + 1)) >= 0:
        string = document[begin : end + 1]
        yield json.decode(string) if b"\\" in string else string[1:-1].decode("utf-8", "surrogatepass")


@lru_cache(maxsize=256)
def filter_of(rules: Rules) -> Filter:
    """Return the filter of these rules, cached for each table."""
    keys, shapes = rules.keys, rules.shapes
    words = sorted({word for rule in keys for word in rule.words})
    ascii_words = [word for word in words if word.isascii()]
    foreign = [word for word in words if not word.isascii()]
    flag = rf"(?=[a-z])[\w.\-]{{0,64}}?(?:{'|'.join(map(re.escape, ascii_words))})"
    anchors = [(anchor, f"(?i:{shape.after_anchor})", shape.also) for shape in shapes for anchor in shape.anchors]
    exact = [(anchor, behind, also) for anchor, behind, also in anchors if anchor != anchor.lower()]
    lower = [(anchor, behind, also) for anchor, behind, also in anchors if anchor == anchor.lower()]
    lower.append(("--", flag, ""))

    names: list[tuple[str, str, str]] = []
    parts: list[tuple[str, str, str]] = []
    # Words that count after a few others only, so that most texts need not be searched for them.
    rare: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    for word in ascii_words:
        rules_of_word = [rule for rule in keys if word in rule.words]
        # No letter follows a word that counts only at the end of a name.
        behind = "(?![a-z])" if all(rule.only_last for rule in rules_of_word) else ""
        if any(rule.only_after is None for rule in rules_of_word):
            names.append((word, behind, ""))
            continue
        before = {kind for rule in rules_of_word for kind in rule.only_after or ()}
        few = len(before) <= _FEW and all(map(str.isascii, before))
        (rare.setdefault(tuple(sorted(before)), []) if few else parts).append((word, behind, ""))
    kinds = _kinds_of({kind for rule in keys for kind in rule.only_after or ()}, parts)
    common = _pinned(_PINS, {"": lower, "P<name>": names, "P<part>": parts, "P<value>": [('"value', "", "")]})
    return Filter(
        exact=(Search(b"\\", (), _escapes(foreign)), *_pinned(_CAPITALS, {"": exact})),
        searches=(
            *(search._replace(kinds=kinds) for search in common),
            *(
                search._replace(also=tuple(kind.encode() for kind in before), kinds=_kinds_of(before, few))
                for before, few in rare.items()
                for search in _pinned(_PINS, {"P<part>": few})
            ),
        ),
        foreign=tuple(sorted({part.encode() for word in foreign for part in _parts_of(word)})),
        foreign_words=re.compile("|".join(map(re.escape, foreign))) if foreign else None,
        shapes=tuple(shape.pattern for shape in shapes if not shape.anchors and shape.quick is None),
        quick=tuple(dict.fromkeys(shape.quick for shape in shapes if shape.quick is not None)),
    )


@dataclass(frozen=True)
class PlaceFilter:
    """Quick check of path rules: whether all keys of a rule occur."""

    rules: tuple[frozenset[str], ...]
    """The keys that each rule needs inside of a value."""
    ends: Mapping[str, tuple[bytes, ...]]
    """How JSON may write the end of each of these keys."""

    def finds(self, seen: Set[str], texts: Iterable[Text]) -> bool:
        """Return False only if no rule can match, given the decoded keys and the texts."""
        encoded = b"\n".join(
            [_encoded(text) for text in texts if isinstance(text, Raw) or (isinstance(text, str) and "{" in text)]
        )
        if _HIDDEN.search(encoded):
            return True
        keys_found = seen | {key for key in self.ends.keys() - seen if any(end in encoded for end in self.ends[key])}
        return any(keys <= keys_found for keys in self.rules)


@lru_cache(maxsize=4096)
def place_filter_of(rules: Rules, outside: frozenset[str] | None) -> PlaceFilter:
    """Return the check of the path rules for values whose own path consists of `outside`; None if that is unknown."""
    needed = tuple(
        frozenset(
            step
            for step in rule.steps
            if step == rule.key or (outside is not None and step not in outside and step not in ("*", "[*]"))
        )
        for rule in rules.paths
    )
    return PlaceFilter(needed, {key: _ends_of_key(key) for keys in needed for key in keys})


def _unescaped(match: re.Match[bytes]) -> bytes:
    """Return what an escape of JSON, or several in a row, stand for."""
    escape = match[0]
    # Python's own json takes half of a surrogate pair, too.
    return _SHORT_ESCAPES.get(escape) or str(loads(b'"%b"' % escape)).encode("utf-8", "surrogatepass")


def _ends_of_key(key: str) -> tuple[bytes, ...]:
    """Return what JSON has at the end of a key in text, however often it is encoded: the key and a quote or a backslash, or a dot
    if it is a step in a longer name."""
    if _ESCAPED_KEY.search(key):
        return (b"",)
    forms = [key.encode()]
    if not key.isascii():
        # Encoders may escape each character, with one backslash or several, so that only the last one is known.
        index, last = next((at, char) for at, char in reversed([*enumerate(key)]) if not char.isascii())
        unit = last.encode("utf-16-be", "surrogatepass").hex()[-4:]
        forms += [f"u{digits}{key[index + 1 :]}".encode() for digits in (unit, unit.upper())]
    return tuple(form + end for form in forms for end in (b'"', b"\\", b"."))


def _escapes(foreign: Iterable[str]) -> re.Pattern[bytes]:
    """Return a pattern of the JSON escapes that may be part of a name or secret.

    These are escaped slashes, ASCII and white space, the letters that become ASCII in lower case, the wide colon, and
    the non-ASCII words. Other escaped letters are frequent in text that is not English, and hide nothing.
    """

    def either_case(char: str, form: Callable[[str], str]) -> str:
        return "|".join(sorted({form(char), form(char.upper())}))

    def digits(text: str) -> str:
        units = text.encode("utf-16-be").hex()
        return r"\\{1,64}u".join(units[at : at + 4] for at in range(0, len(units), 4))

    words = []
    for word in foreign:
        # Only what follows the first escape may be written plainly.
        end = word[next(at for at, char in enumerate(word) if not char.isascii()) :]
        first, rest = end[0], end[1:]
        following = (rf"(?:{either_case(char, re.escape)}|\\{{1,64}}u(?:{either_case(char, digits)}))" for char in rest)
        words.append(f"(?:{either_case(first, digits)}){''.join(following)}")
    letters = map(digits, ("\u0130", "\u212a", "："))
    return re.compile(rf"\\(?i:/|u(?:00[0-9ab]|{'|'.join([*letters, *words])}))".encode())


def _parts_of(word: str) -> Iterable[str]:
    """Return the parts of a non-ASCII word to search for."""
    if word == word.upper():
        return [word]
    char = next(char for char in word if not char.isascii())
    return [char, char.upper()]


def _pinned(common: Sequence[str], groups: Mapping[str, Sequence[tuple[str, str, str]]]) -> Iterable[Search]:
    """Yield a search for each pin, from groups of literals with the pattern after them and their `also`."""
    literals = [literal for searches in groups.values() for literal, _behind, _also in searches]
    # A literal without a common pin is a pin itself, also for longer literals that contain it.
    pins = (*common, *sorted((literal for literal in literals if not any(pin in literal for pin in common)), key=len))
    for pin in dict.fromkeys(pins):
        parts = []
        others = set()
        for group, searches in groups.items():
            of_pin: dict[str, list[str]] = {}
            for literal, behind, also in searches:
                if pin == next(pin for pin in pins if pin in literal):
                    of_pin.setdefault(literal, []).append(behind)
                    others.add(also)
            if of_pin:
                parts.append(f"(?{group or ':'}{_alternatives(pin, of_pin)})")
        if parts:
            also = others.pop() if len(others) == 1 else ""
            pattern = re.compile(f"{re.escape(pin)}(?:{'|'.join(parts)})".encode())
            yield Search(pin.encode(), (also.encode(),) if also else (), pattern)


def _alternatives(pin: str, literals: dict[str, list[str]]) -> str:
    """Return the pattern around a pin. Alternatives begin with different letters if possible, which `re` tries quickly."""
    by_letter: dict[str, list[str]] = {}
    at_end: dict[str, list[str]] = {}
    for literal, behinds in literals.items():
        before, after = literal.split(pin, 1)
        for behind in [""] if "" in behinds or "(?i:)" in behinds else dict.fromkeys(behinds):
            if after:
                condition = f"(?<={re.escape(literal)})" if before else ""
                by_letter.setdefault(after[0], []).append(re.escape(after[1:]) + condition + behind)
            else:
                at_end.setdefault(behind, []).append(before)
    parts = [f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items()]
    for behind, befores in at_end.items():
        if "" in befores:
            parts.append(behind)
            continue
        # A check of the character before the pin rejects most candidates.
        ends = "".join(sorted({re.escape(before[-1]) for before in befores}))
        same = [
            f"(?<=(?:{'|'.join(re.escape(before) for before in befores if len(before) == length)}){re.escape(pin)})"
            for length in sorted({len(before) for before in befores})
        ]
        parts.append(f"(?<=[{ends}]{re.escape(pin)})(?:{'|'.join(same)}){behind}")
    return "|".join(parts)
