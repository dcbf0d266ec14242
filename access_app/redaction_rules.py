"""What counts as a secret: the names it is kept under, and the looks that tell it.

All of it is data. A project that wants more will have a `Rules` of its own.

No pattern of the redaction uses possessive quantifiers (`*+`) or atomic groups (`(?>...)`): Python 3.11.0 to 3.11.4,
Debian 12's among them, match them wrongly (python/cpython#106052), and a wrong match here stores a secret. What keeps
the patterns linear instead: what is repeated cannot begin what follows it, so that giving back is useless and ends at
once, and the number of repetitions of a group is bounded, for each of them costs memory until the match is done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

MARKER: Final = "[redacted]"
"""What stands in place of a secret."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Names under which secrets are kept, told by one of their words."""

    name: str
    words: frozenset[str]
    only_after: frozenset[str] | None = None
    """The word counts only right after one of these: `key` alone is no secret, `api key` is one."""
    unless_after: frozenset[str] = frozenset()
    """The word does not count right after one of these: `max token`."""
    only_last: bool = False
    """The word counts only at the end of the name."""
    numbers: bool = True
    """Whether numbers are taken out too: a password may be one, but what is called a token and is a number counts."""
    whole_line: bool = False
    """In text, the value goes on to the end of the line, as that of a header does."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Secrets that are known by their looks, wherever they stand."""

    name: str
    pattern: re.Pattern[str]
    """A group named `secret` narrows what is taken out."""
    example: str
    before_names: bool = False
    """Goes before names are looked for, because it has several lines, of which `name: value` would take out only one."""


@dataclass(frozen=True)
class Rules:
    """What counts as a secret. Immutable, but for the verdicts on names that it remembers."""

    keys: tuple[KeyRule, ...]
    harmless_endings: frozenset[str]
    """A name that ends with one of these describes a secret and holds none: `token_count`, `secret_name`."""
    shapes: tuple[Shape, ...]
    hints: tuple[re.Pattern[str], ...]
    """Find, in lower-case text, all that the key rules and shapes find in text: they may find too much, never too little."""
    glances: tuple[re.Pattern[bytes], ...]
    """Find all that the key rules and shapes find, and more than the hints, in what of a text is ASCII, in lower case."""
    rare_glances: tuple[tuple[bytes, re.Pattern[bytes]], ...]
    """More of them, with the letter that each begins with, of which most texts have few."""
    at_glance: re.Pattern[bytes]
    """One more, where there is an `@`."""
    written: tuple[re.Pattern[bytes], ...]
    """What `glances` look for, in JSON as it is written, in lower case. They find the shapes of secrets, telling words in the
    names of fields, and those behind which an escape may hide what they tell: then a group says so. Where they find other
    telling words `glances` must look, too."""

    def rule_for(self, name: str) -> KeyRule | None:
        """The rule by which values under this name are secret; None when they are not."""
        try:
            return self.verdicts[name]
        except KeyError:
            verdict = self._judge(name)
            if len(name) <= 64:
                if len(self.verdicts) >= 10_000:
                    # Names come from outside: memory is bounded, and the common ones are back at once.
                    self.verdicts.clear()
                    self.harmless.clear()
                self.verdicts[name] = verdict
                if verdict is None and name != "value":
                    self.harmless.add(name)
            return verdict

    @cached_property
    def verdicts(self) -> dict[str, KeyRule | None]:
        """The verdicts so far."""
        return {}

    @cached_property
    def harmless(self) -> set[str]:
        """The names that are known to say nothing of what stands under them or beside them: of a mapping all at once."""
        return set()

    @cached_property
    def words(self) -> re.Pattern[str]:
        """Finds the telling words of the key rules in lower-case text."""
        by_letter: dict[str, list[str]] = {}
        for word in sorted(self._by_word):
            by_letter.setdefault(word[0], []).append(re.escape(word[1:]))
        # Grouped by first letters, the search passes over all other letters at once.
        return re.compile("|".join(f"{letter}(?:{'|'.join(rests)})" for letter, rests in by_letter.items()))

    @cached_property
    def _by_word(self) -> dict[str, list[KeyRule]]:
        rules: dict[str, list[KeyRule]] = {}
        for rule in self.keys:
            for word in rule.words:
                rules.setdefault(word, []).append(rule)
        return rules

    def _judge(self, name: str) -> KeyRule | None:
        words = split_words(name)
        if not words or words[-1] in self.harmless_endings:
            return None
        for index, word in enumerate(words):
            before = words[index - 1] if index else ""
            for rule in self._by_word.get(word, ()):
                if (
                    (rule.only_after is None or before in rule.only_after)
                    and before not in rule.unless_after
                    and not (rule.only_last and index < len(words) - 1)
                ):
                    return rule
        return None


def split_words(name: str) -> list[str]:
    """The words of a name in lower case, however they are joined: `dbPassword`, `DB_PASSWORD`, `db password`, `dbpassword`.

    Digits at the end are left out (`password2`). Of a name of more than 1,000 characters only the end is read.
    """
    words: list[str] = []
    for piece in _PIECE.findall(name[-1000:]):
        # `APIkey` shows no border where one is, so the known endings are tried on the piece before its capitals are.
        glued = _GLUED.fullmatch(piece)
        if glued is None:
            parts = _CAMEL.findall(piece)
        else:
            parts = [*_CAMEL.findall(glued["rest"]), glued["before"], glued["word"]]
        words += [part.lower() for part in parts if part]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    return words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- What is a secret by default ------------------------------------------------------------------------------

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# What a key must be for, to be a secret one.
_KEY_KINDS = _words(
    "access account admin api app application auth client consumer deploy encryption hmac license master private"
    " secret service shared signing ssh storage subscription webhook"
)
# Tokens are counted more often than kept; only these kinds are meant to be kept when there are several.
_TOKEN_KINDS = _words("access api auth bearer csrf oauth personal refresh secret security session xsrf")
# One token of these kinds is a unit of text, a count or a place in a list.
_TOKENS_OF_TEXT = _words(
    "bos cached cls completion continuation eos first input last mask max min new next output pad page pagination per"
    " prompt reasoning sep special stop text thinking total unk"
)
_GLUED = re.compile(
    rf"""
    (?P<rest>[A-Za-z]*?)
    (?P<before>{"|".join(sorted((_KEY_KINDS | _TOKEN_KINDS) - {"app"}, key=len, reverse=True))})?
    (?P<word>passwords?|passwd|pwd|passphrase|passcode|secrets?|credentials?|creds|authorization|cookies?|tokens?|keys?)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def _ahead(*, in_ascii: bool = False) -> str:
    """In lower-case text: the rest of a name, then what separates it from its value. Satisfied where it may read no further.

    Prose goes on over spaces for long, so those words are read as a whole (a lookahead that is repeated by its group) and
    not given back one by one. The `(?!` before them is so anyway, but is quick to say so.
    """
    # What is a space in text and not in bytes; the wide colon is a plain one where only ASCII is left.
    space, colon = (r"[\s\x1c-\x1f]", "") if in_ascii else (r"\s", "：")
    return rf"""
    (?:[\w.\-]{{64}}
      |[\w.\-]{{0,63}}(?![\w.\-])
       (?:(?=(?P<prose>\ [\w\ .\-]{{0,64}}))(?P=prose)(?=\\{{0,64}}["']))?
       (?:\\{{0,64}}["'])?
       (?:{space}{{64}}|{space}{{0,63}}(?:[:={colon}]|,(?:{space}{{64}}|{space}{{0,63}}\\{{0,64}}["']value))))
    """


# Right after `key` in lower-case text: it followed one of its kinds, glued or over a separator. Without this every "key"
# in the JSON of a tool would be looked at closely.
_KEY_OF_A_KIND = "|".join(
    [
        *(
            rf"(?<=(?:{'|'.join(kind for kind in sorted(_KEY_KINDS) if len(kind) == length)}){separator}key)"
            for length in sorted({len(kind) for kind in _KEY_KINDS})
            for separator in ("", r"[_\-.\ ]")
        ),
        r"(?<=[_\-.\ ]{2}key)",
    ]
)


# In the name of a field anything may stand between the two. Then what stands before `key` is odd, or what stands before a
# separator there: no letter, no number, or a letter that belongs to an escape.
_KEY_OF_A_KIND_IN_FIELD = (
    _KEY_OF_A_KIND
    + r"""|(?<=[^a-z0-9_\-.\ "]key)|(?<=[^a-z0-9][_\-.\ ]key)|(?<=\\["nrtf]key)|(?<=\\[nrtf][_\-.\ ]key)"""
)


def _tellers(behind: str, *, kinds: str = _KEY_OF_A_KIND, behind_pin: str = "") -> dict[str, str]:
    """What stands at the beginning or in the middle of what is secret, by the letters that it is searched by: shapes, and
    telling words with what must be `behind` them. `behind_pin` leaves out words in which a pin is none; in text they may end
    a name of several words, `password mapping: x`."""
    return {
        # tokens and keys, sk- sk_live_ rk_live_, AKIA and the last word of PRIVATE KEY-----: all have a k
        "k": rf"k(?:(?P<shape>ey-----|-(?<=sk-)[\w-]{{16}}|_(?<=[rs]k_)(?:live|test)_|ia(?<=akia)[0-9a-z]{{16}})"
        rf"|(?:ey(?:{kinds})|en(?<=token)|ie(?<=cookie)){behind})",
        "p": rf"p(?:(?P<shape>at-(?<=glpat-))|(?:ass(?:w(?:or)?d|phrase|code)|wd|in{behind_pin}){behind})",
        "cre": rf"cre(?:t(?<=secret)|d){behind}",
        "z": rf"z(?:(?P<shape>a(?<=aiza)[\w-]{{35}})|ation(?<=authorization){behind})",
        "bearer": rf"bearer(?:(?P<shape>\s{{1,8}}[\w.~+/=-]{{8}})|{behind})",
        "_": r"_(?P<shape>(?<=gh[opsur]_)[0-9a-z]{20}|(?<=_pat_)\w{20}|(?<=hf_)[0-9a-z]{30}|(?<=ts_)[\w-]{43})",
        "j": r"j(?P<shape>(?<=eyj)[\w-]{8})",
    }


# Behind the hyphens of a flag with its value: --password x
_FLAG_NAME = r"(?=[a-z])[\w.\-]{0,64}?(?:passw|passp|passc|pwd|pin|secret|token|key|authoriz|cookie|cred|bearer)"
_SLACK_OR_FLAG = rf"-(?P<shape>(?<=xox[abeprs]-)|(?<=--){_FLAG_NAME})"
_IN_TEXT, _IN_ASCII = _tellers(_ahead()), _tellers(_ahead(in_ascii=True))
# Each match takes in the rest of its string, so that all of it is read once.
_IN_JSON = _tellers(r"""[^"\\]*(?P<field>\\|"\s*:)?""", kinds=_KEY_OF_A_KIND_IN_FIELD, behind_pin="(?![a-z])")

DEFAULT_RULES: Final = Rules(
    keys=(
        KeyRule("password", _words("password passwords passwd pwd passcode")),
        KeyRule("passphrase", _words("passphrase"), whole_line=True),
        KeyRule("pin", _words("pin"), only_last=True),
        KeyRule("secret", _words("secret secrets")),
        KeyRule("credentials", _words("credential credentials cred creds")),
        KeyRule("authorization", _words("authorization"), numbers=False, whole_line=True),
        KeyRule("cookie", _words("cookie cookies"), numbers=False, whole_line=True),
        KeyRule("token", _words("token bearer"), unless_after=_TOKENS_OF_TEXT, numbers=False),
        KeyRule("token", _words("tokens"), only_after=_TOKEN_KINDS, numbers=False),
        KeyRule("key", _words("key keys"), only_after=_KEY_KINDS),
    ),
    harmless_endings=_words(
        "age algorithm at budget cost count counts description details enabled endpoint expired expires expiration expiry"
        " field file format hint ids in index label length lifetime limit limits name names path policy position price"
        " rate reached required rotation size status strength threshold total ttl type types uri url usage used valid"
        " version window"
    ),
    shapes=(
        Shape(
            "private_key",
            re.compile(
                # Up to its last line, or else to the end of its string. It cannot fail once it has begun, so that
                # many beginnings without an end are read once, and it is longer than any key.
                r"""-----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY-----
                (?:[^"'\\-]+|-(?!----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY-----)|\\+(?:[^"'\\]|\Z)){0,50000}
                (?:-----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY-----)?""",
                re.VERBOSE,
            ),
            "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\n"
            "-----END RSA PRIVATE KEY-----",
            before_names=True,
        ),
        Shape(
            "bearer",
            re.compile(
                r"\bbearer\s{1,8}(?P<secret>(?=[\w.~+/=-]{0,60}?[0-9])[\w.~+/=-]{8,})", re.ASCII | re.IGNORECASE
            ),
            "Bearer mF_9.B5f-4.1JqM",
        ),
        Shape(
            "openai_or_anthropic_key",
            re.compile(r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,60}?[0-9])[\w-]{16,}", re.ASCII),
            "sk-proj-4f9a7c21b0e84d6fa3",
        ),
        Shape(
            "stripe_key",
            re.compile(r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
            "sk_test_" + "4eC39HqLyjWD",
        ),
        Shape(
            "github_token",
            re.compile(r"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,})", re.ASCII),
            "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
        ),
        Shape(
            "gitlab_token", re.compile(r"(?<![A-Za-z0-9])glpat-[\w-]{20,}", re.ASCII), "glpat-" + "zsxdcfvgb1234567890x"
        ),
        Shape(
            "slack_token", re.compile(r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}"), "xoxb-" + "123456789012-abcdef"
        ),
        Shape("aws_access_key", re.compile(r"(?<![A-Za-z0-9])AKIA[0-9A-Z]{16}(?![A-Za-z0-9])"), "AKIAIOSFODNN7EXAMPLE"),
        Shape(
            "google_key",
            re.compile(r"(?<![A-Za-z0-9])AIza[\w-]{35}", re.ASCII),
            "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
        ),
        Shape(
            "huggingface_token",
            re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
            "hf_" + "abcdefghijklmnopqrstuvwxyz012345",
        ),
        Shape(
            "tracesite_key",
            re.compile(r"(?<![A-Za-z0-9])ts_[\w-]{43}", re.ASCII),
            "ts_" + "x0IuIxh9VnCrGb7yYvQmE2fPq4sT6wZ8aB1cD3eF5gH",
        ),
        Shape(
            "jwt",
            re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?", re.ASCII),
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        ),
        Shape(
            "url_password",
            re.compile(r"""://[^\s/?#"'\\@:]{0,128}:(?P<secret>[^\s/?#"'\\]{1,256})@"""),
            "postgresql://ada:s3cret@db.example.com/x",
        ),
    ),
    hints=tuple(
        re.compile(pattern, re.VERBOSE)
        for pattern in (
            *(_IN_TEXT[letters] for letters in ("k", "p", "cre", "z", "bearer", "_")),
            r"xox[abeprs]-",
            _IN_TEXT["j"],
            r"://[^\s/?\#\"'\\@:]{0,128}:[^\s/?\#\"'\\]{1,256}@",
            rf"--(?<!---){_FLAG_NAME}",
        )
    ),
    # Each begins with one letter that is not frequent, or with a word. What is not ASCII has been left out before, so nothing
    # here may need such a letter, or be refused for what stands beside it. Of 14,000 characters with some Chinese they take
    # 0.7 of the time of the hints, of Chinese alone 0.16, of base64 1.1: Python keeps text with Chinese in two bytes a
    # character, where it searches for one at a time.
    glances=tuple(
        re.compile(pattern.encode(), re.VERBOSE)
        for pattern in (
            *(_IN_ASCII[letters] for letters in ("k", "p", "cre", "bearer")),
            _SLACK_OR_FLAG,
        )
    ),
    rare_glances=tuple(
        (letter.encode(), re.compile(_IN_ASCII[letter].encode(), re.VERBOSE)) for letter in ("z", "j", "_")
    ),
    written=tuple(re.compile(pattern.encode(), re.VERBOSE) for pattern in (*_IN_JSON.values(), _SLACK_OR_FLAG)),
    # The first colon may be one that was wide, and a part of the name.
    at_glance=re.compile(rb"""://[^\s/?#"'\\@:]{0,128}:[^\s/?#"'\\]{0,385}@"""),
)
