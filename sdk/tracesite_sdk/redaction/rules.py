"""Table of redaction rules: names of secrets, and shapes of secrets.

A new rule is one line in `DEFAULT_RULES`. The prefilter is derived from the table (prefilter.py), so that every rule
applies to all forms of a value. For additional rules, make a `Rules` with `dataclasses.replace`.

No redaction pattern uses possessive quantifiers (`*+`) or atomic groups (`(?>...)`), because Python 3.11.0 to 3.11.4
(Debian 12 has 3.11.2) match them wrongly (python/cpython#106052), and a wrong match here stores a secret. Patterns are
linear because repetitions are bounded, or because the repeated part cannot match the start of the part after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

MARKER: Final = "[redacted]"
"""Replacement for a secret."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Names of secrets, recognised by one of their words."""

    name: str
    words: frozenset[str]
    """Words in lower case. A non-ASCII word (`密码`) counts at the end of a name, because such names have no spaces."""
    only_after: frozenset[str] | None = None
    """The word counts only right after one of these: `key` alone is no secret, `api key` is one."""
    unless_after: frozenset[str] = frozenset()
    """The word does not count right after one of these: `max token`."""
    only_last: bool = False
    """The word counts only at the end of the name."""
    numbers: bool = True
    """Whether numbers are secrets: a password may be a number, but a number named token is a count."""
    weak: bool = False
    """The name has other uses, so the value must look like a secret everywhere (values.py)."""
    any_value: bool = False
    """Every value counts except empty ones, in text also except placeholders and code, because the user chose the name."""
    phrases: bool = False
    """Several words may be the secret."""
    header: bool = False
    """The value is that of a header: a scheme with credentials, or name=value pairs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Secrets that are recognised by their form, whatever surrounds them."""

    name: str
    pattern: re.Pattern[str]
    """A group named `secret` limits the redaction to it."""
    example: str = ""
    anchors: tuple[str, ...] = ()
    """Literals of which each match contains one, so that most texts need not be searched with the pattern. Anchors with
    capitals are case-sensitive, others are not. Without anchors each text of every record is searched with the pattern, which
    makes the check of a clean record take three to six times as long (150 KB: 2.5 instead of 0.4 to 0.7 ms)."""
    after_anchor: str = ""
    """Pattern that matches after the anchor in each match; needed for anchors that are frequent in text."""
    also: str = ""
    """Another part of each match, rarer than the anchors."""
    before_names: bool = False
    """Applied before the search for names, because `name: value` would redact only one of its lines."""
    accept: Callable[[str], bool] | None = None
    """Checks a match, for example its check digit. A shape with it is also searched for in integers."""
    quick: Callable[[bytes], object] | None = None
    """Takes all texts of a value in UTF-8, one per line, and returns something false only if no text has a match. In place of
    anchors."""


@dataclass(frozen=True, slots=True)
class PathRule:
    """Values that are secret because of their place, whatever they are."""

    name: str
    steps: tuple[str, ...]
    """The last steps to the value: keys, `*` for any key and `[*]` for any index. The last is a key."""

    @property
    def key(self) -> str:
        return self.steps[-1]

    def matches(self, path: tuple[str, ...]) -> bool:
        """Return whether a path ends with the steps of the rule. An index in a path is `[*]`."""
        end = path[-len(self.steps) :]
        return len(end) == len(self.steps) and all(
            step == key or (step == "*" and key != "[*]") for step, key in zip(self.steps, end, strict=True)
        )


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """A function that is called with each text and number, and its path, and returns the value to keep."""

    name: str
    function: Callable[[str, Any], Any]


def prefixed(name: str, prefixes: str, rest: str, example: str) -> Shape:
    """Return the shape of tokens that begin with one of the prefixes, followed by `rest`."""
    anchors = tuple(prefixes.split())
    begin = "|".join(map(re.escape, anchors))
    return Shape(
        name,
        re.compile(rf"(?<![A-Za-z0-9])(?:{begin}){rest}", re.ASCII),
        example,
        anchors,
        rest,
    )


def _is_word(name: str) -> bool:
    return name.replace("_", "").isalpha()


@dataclass(frozen=True, eq=False)
class Rules:
    """Table of rules. Immutable except for its cache of verdicts on names; compared by identity, so that it is a fast key of
    caches."""

    keys: tuple[KeyRule, ...]
    harmless_endings: frozenset[str]
    """A name that ends with one of these describes a secret and holds none: `token_count`, `secret_name`."""
    shapes: tuple[Shape, ...]
    paths: tuple[PathRule, ...] = ()
    functions: tuple[FunctionRule, ...] = ()

    def rule_for(self, name: str) -> KeyRule | None:
        """Return the rule for values under this name, or None if they are not secret."""
        try:
            return self.verdicts[name]
        except KeyError:
            verdict = self._judge(name)
            if len(name) <= 64:
                if len(self.verdicts) >= 10_000:
                    # Clients choose the names, so the cache is bounded; a full cache is cleared.
                    self.verdicts.clear()
                    self.harmless.clear()
                self.verdicts[name] = verdict
                if verdict is None and name != "value" and not self._may_be_secret(name):
                    self.harmless.add(name)
            return verdict

    def _may_be_secret(self, name: str) -> bool:
        """Return whether a key must be searched each time. A word has no `name=value` in it, but may be a token of letters."""
        return self.searches(name) and (not _is_word(name) or any(shape.pattern.search(name) for shape in self.shapes))

    def searches(self, name: str) -> bool:
        """Return whether secrets are looked for in a key: in long ones, and with the patterns of users in all that are no words,
        so that no pattern changes the structure of what it is applied to."""
        return len(name) >= LONG_NAME or (self._of_users and not _is_word(name))

    @cached_property
    def _of_users(self) -> bool:
        return len(self.shapes) > len(DEFAULT_RULES.shapes)

    @cached_property
    def verdicts(self) -> dict[str, KeyRule | None]:
        """Cached results of rule_for."""
        return {}

    @cached_property
    def harmless(self) -> set[str]:
        """Cached names without a rule, so that all keys of a mapping are compared at once."""
        return set()

    @cached_property
    def path_keys(self) -> frozenset[str]:
        """The keys of all path rules."""
        return frozenset(step for rule in self.paths for step in rule.steps)

    @cached_property
    def anywhere(self) -> Rules:
        """The same rules for values whose own path is unknown: of path rules, any of the first steps may be part of it."""
        paths = (PathRule(rule.name, rule.steps[first:]) for rule in self.paths for first in range(len(rule.steps)))
        # A step alone would be a rule for all values of this name, but for rules that have no other.
        some = tuple(path for path in paths if len(path.steps) > 1 or path.steps in {rule.steps for rule in self.paths})
        return replace(self, paths=some)

    @cached_property
    def without_functions(self) -> Rules:
        """The same rules without functions, for what is no value."""
        return replace(self, functions=()) if self.functions else self

    @cached_property
    def integers(self) -> bool:
        """Return whether integers may be secrets by their form."""
        return any(shape.accept is not None for shape in self.shapes)

    @cached_property
    def shapes_by_anchors(self) -> tuple[tuple[Shape, tuple[str, ...]], ...]:
        """The shapes, each with its anchors in lower case."""
        return tuple((shape, tuple(anchor.lower() for anchor in shape.anchors)) for shape in self.shapes)

    @cached_property
    def words(self) -> re.Pattern[str]:
        """Pattern of the words of all key rules, for lower-case text."""
        by_letter: dict[str, list[str]] = {}
        # Longest first: `passwort` before `pass`.
        for word in sorted({*self._by_word, *self.foreign}, key=lambda word: (-len(word), word)):
            by_letter.setdefault(word[0], []).append(re.escape(word[1:]))
        # Grouped by first letter, because `re` then skips all other letters quickly.
        return re.compile("|".join(f"{letter}(?:{'|'.join(rests)})" for letter, rests in by_letter.items()))

    @cached_property
    def foreign(self) -> dict[str, KeyRule]:
        """Non-ASCII words and their rules."""
        return {word: rule for rule in self.keys for word in rule.words if not word.isascii()}

    @cached_property
    def _by_word(self) -> dict[str, list[KeyRule]]:
        rules: dict[str, list[KeyRule]] = {}
        for rule in self.keys:
            for word in rule.words:
                if word.isascii():
                    rules.setdefault(word, []).append(rule)
        return rules

    @cached_property
    def _glued(self) -> re.Pattern[str]:
        """Pattern that splits names whose words are not separated: `dbpassword`, `APIkey`."""
        kinds = {kind for rule in self.keys for kind in rule.only_after or () if len(kind) > 3 or kind in _SHORT_KINDS}
        words = {word for word in self._by_word if len(word) > 4 or word in _GLUED_SHORT}

        def one_of(parts: set[str]) -> str:
            return "|".join(sorted(map(re.escape, parts), key=lambda part: (-len(part), part)))

        return re.compile(
            rf"(?P<rest>[A-Za-z]*?)(?P<before>{one_of(kinds - {'app'})})?(?P<word>{one_of(words)})", re.IGNORECASE
        )

    def _judge(self, name: str) -> KeyRule | None:
        if not name.isascii():
            low = name.rstrip(" 0123456789:：*").lower()
            for word, rule in self.foreign.items():
                if low.endswith(word):
                    return rule
        words = self.split(name)
        last = len(words) - 1
        is_harmless = bool(words) and words[last] in self.harmless_endings
        for index, word in enumerate(words):
            before = words[index - 1] if index else ""
            for rule in self._by_word.get(word, ()):
                # A user may have chosen the very name: `customerName`, `patientAge`.
                if is_harmless and not (rule.any_value and index == last):
                    continue
                if (
                    (rule.only_after is None or before in rule.only_after)
                    and before not in rule.unless_after
                    and not (rule.only_last and index < last)
                ):
                    return rule
        return None

    def split(self, name: str) -> list[str]:
        """Return the words of a name in lower case, however they are joined: `dbPassword`, `DB_PASSWORD`, `dbpassword`.

        Digits at the end are dropped (`password2`). Only the last LONGEST_NAME characters are read.
        """
        words: list[str] = []
        for piece in _PIECE.findall(name[-LONGEST_NAME:]):
            # `APIkey` has no visible border between its words, so known endings are tried before capitals.
            glued = self._glued.fullmatch(piece)
            if glued is None:
                parts = _CAMEL.findall(piece)
            else:
                parts = [*_CAMEL.findall(glued["rest"]), glued["before"], glued["word"]]
            words += [part.lower() for part in parts if part]
        while len(words) > 1 and words[-1].isdigit():
            words.pop()
        return words


LONGEST_NAME: Final = 300
"""Number of characters of a name that are read, from its end."""
LONG_NAME: Final = 16
"""Keys of at least this length are searched for secrets in them."""
_SHORT_KINDS: Final = frozenset({"api", "app", "ssh", "aws", "gcp"})
_GLUED_SHORT: Final = frozenset({"pwd", "key", "keys", "creds", "token"})
_PIECE = re.compile(r"[A-Za-z]+|[0-9]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Vendors whose names precede `key` and `token`: OPENAI_KEY, github_token.
_VENDORS = words_of(
    """
    openai anthropic claude gemini google gcp azure aws bedrock mistral cohere deepseek dashscope qwen zhipu moonshot baidu
    volcengine hunyuan minimax groq xai perplexity replicate huggingface hf together openrouter stripe paypal github gh gitlab
    bitbucket slack discord telegram twilio sendgrid mailgun mailchimp postmark datadog dd newrelic sentry grafana cloudflare
    heroku vercel netlify digitalocean supabase firebase pinecone weaviate qdrant algolia tavily serper serpapi brave langsmith
    langfuse linear notion jira atlassian airtable figma npm pypi docker vault aliyun tencent wechat feishu dingtalk tracesite
    """
)
# Kinds of keys that are secret.
_KEY_KINDS = _VENDORS | words_of(
    "access account admin api apim app application auth client consumer deploy encryption fernet hmac jwt license master"
    " private secret service session shared signing ssh storage subscription webhook"
)
# Kinds of tokens that are secret even in the plural. The plural of other kinds is usually a count.
_TOKEN_KINDS = (_VENDORS - words_of("together linear brave")) | words_of(
    "access api auth bearer bot csrf csrfmiddleware id jwt oauth personal private refresh secret security session user xsrf"
)
# Kinds of tokens that are a unit of text, a count or a position in a list.
_TOKENS_OF_TEXT = words_of(
    "bos cached cancel cancellation cls completion continuation eos first generated input key last lexer mask max min new next"
    " output pad page pagination per prompt reasoning sep special stop text thinking total unk"
)
_PASSWORDS = words_of("password passwords passwd pwd passcode passwort kennwort")

DEFAULT_RULES: Final = Rules(
    keys=(
        KeyRule("password", _PASSWORDS),
        KeyRule("passphrase", words_of("passphrase passphrases"), phrases=True),
        KeyRule("password", words_of("passe"), only_after=words_of("de")),
        KeyRule("password", words_of("密码 密碼 口令 パスワード 비밀번호 пароль contraseña hasło")),
        KeyRule("password", words_of("pass pw"), weak=True, only_last=True, numbers=False),
        KeyRule("pin", words_of("pin otp"), only_last=True),
        KeyRule("secret", words_of("secret secrets")),
        KeyRule("credentials", words_of("credential credentials cred creds")),
        KeyRule("authorization", words_of("authorization"), numbers=False, header=True),
        KeyRule("authorization", words_of("auth"), numbers=False, weak=True, only_last=True),
        KeyRule("cookie", words_of("cookie cookies"), numbers=False, header=True),
        KeyRule("token", words_of("token tokens"), only_after=_TOKEN_KINDS, numbers=False),
        KeyRule("token", words_of("bearer"), numbers=False),
        KeyRule("token", words_of("token"), unless_after=_TOKENS_OF_TEXT, numbers=False, weak=True),
        KeyRule("token", words_of("令牌"), numbers=False),
        KeyRule("token", words_of("phpsessid"), only_last=True, numbers=False, weak=True),
        KeyRule("key", words_of("key keys"), only_after=_KEY_KINDS),
        KeyRule("key", words_of("apikey apikeys accesskey secretkey privatekey")),
        KeyRule("key", words_of("密钥 私钥 金鑰")),
    ),
    harmless_endings=words_of(
        "age algorithm at attempts bucket budget bytes changed characters class column component confirmation config cost count counts"
        " description details dir direction enabled encoder encoding encryption endpoint env err error errors exists expired"
        " expires expiration expiry field fields file format form generator handler hash hasher hashers header help hint ids in"
        " index input invalid kind label length lifetime limit limits list logprob logprobs manager map message method min minimum missing mode"
        " msg name names node param params path paths pattern placeholder policy position prefix price prompt provider rate"
        " reached realm ref refs regex required requirements reset resets rotation rule rules scheme scopes set size source status"
        " stdin store stream strategy strength suffix test tests threshold title total ttl type types uri url usage used"
        " validation validator validators valid var version view window"
    ),
    shapes=(
        Shape(
            "private_key",
            re.compile(
                # To the last line, or else to the end of the string, up to more than the length of any key. The
                # pattern cannot fail after its first line, so that many first lines without a last one take linear time.
                r"""-----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
                (?:[^"'\\-]+|-(?!----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY)|\\+(?:[^"'\\]|\Z)){0,50000}
                (?:-----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----)?""",
                re.VERBOSE,
            ),
            "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\n"
            "-----END RSA PRIVATE KEY-----",
            anchors=("PRIVATE KEY",),
            after_anchor="(?:-----| BLOCK-----)",
            before_names=True,
        ),
        Shape(
            "putty_key",
            re.compile(
                r"PuTTY-User-Key-File-\d(?:[^P]+|P(?!rivate-MAC)){0,2000}(?:Private-MAC:\s{0,4}[0-9a-f]{0,200})?"
            ),
            "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\nAAAAgQCy\nPrivate-MAC: 7b1ad1f0c2b4a5d6e7f8a9b0c1d2e3f4a5b6c7d8",
            anchors=("PuTTY-User-Key-File",),
            before_names=True,
        ),
        Shape(
            "bearer",
            re.compile(
                r"\bbearer\s{1,8}(?P<secret>(?=[\w.~+/=-]{0,60}?[0-9])[\w.~+/=-]{8,})", re.ASCII | re.IGNORECASE
            ),
            "Bearer mF_9.B5f-4.1JqM",
            anchors=("bearer",),
            after_anchor=r"\s{1,8}[\w.~+/=-]{8}",
        ),
        Shape(
            "basic_credentials",
            re.compile(
                r"(?<![A-Za-z0-9])Basic\ (?P<secret>(?=[A-Za-z+/]{0,60}?[0-9])[A-Za-z0-9+/]{12,}={0,2})(?![A-Za-z0-9+/=])"
            ),
            "Basic " + "YWRhOmxvdmVsYWNlMTg0Mw==",
            anchors=("basic ",),
            after_anchor=r"[\w+/]{12}",
        ),
        prefixed(
            "openai_or_anthropic_key",
            "sk-",
            r"(?=[\w-]{0,80}?[0-9])(?=[\w-]{0,80}?[A-Z]|[\w-]{0,40}?[a-z0-9]{16})[\w-]{16,}",
            "sk-proj-4f9A7c21b0e84d6fa3",
        ),
        prefixed(
            "stripe_key",
            "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
            r"[A-Za-z0-9+/=]{10,}",
            "sk_test_" + "4eC39HqLyjWD",
        ),
        prefixed(
            "github_token",
            "ghp_ gho_ ghs_ ghu_ ghr_ github_pat_",
            r"[A-Za-z0-9_]{20,}",
            "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
        ),
        prefixed("gitlab_token", "glpat- glrt- gldt- glptt- glcbt-", r"[\w-]{20,}", "glpat-" + "zsxdcfvgb1234567890x"),
        prefixed(
            "slack_token",
            "xoxa- xoxb- xoxe- xoxe.xoxp- xoxp- xoxr- xoxs- xapp-",
            r"[A-Za-z0-9-]{10,}",
            "xoxb-" + "123456789012-abcdef",
        ),
        Shape(
            "slack_webhook",
            re.compile(
                r"(?:https?(?:://|%3[Aa]%2[Ff]%2[Ff]))?hooks\.slack\.com(?:/|%2[Ff])(?:services|workflows)(?:/|%2[Ff])[\w/+%-]{20,}",
                re.ASCII,
            ),
            "hooks.slack" + ".com/services/T0A1B2C3D/B0A1B2C3D/x1y2z3x1y2z3x1y2z3",
            anchors=("hooks.slack.com",),
        ),
        prefixed("aws_access_key", "AKIA ASIA", r"[0-9A-Z]{16}(?![A-Za-z0-9])", "AKIAIOSFODNN7EXAMPLE"),
        prefixed("google_key", "AIza", r"[\w-]{35}", "AIza" + "SyA1234567890abcdefghijklmnopqrstuv"),
        prefixed("google_oauth", "GOCSPX-", r"[\w-]{20,}", "GOCSPX-" + "a1b2c3d4e5f6g7h8i9j0k1l2m3n4"),
        prefixed("huggingface_token", "hf_", r"[A-Za-z0-9]{30,}", "hf_" + "abcdefghijklmnopqrstuvwxyz012345"),
        prefixed("tracesite_key", "ts_", r"[\w-]{43}", "ts_" + "x0IuIxh9VnCrGb7yYvQmE2fPq4sT6wZ8aB1cD3eF5gH"),
        Shape(
            "jwt",
            # No hyphen before it, because each of many beginnings would restart the search.
            re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?", re.ASCII),
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
            anchors=("eyJ",),
            after_anchor=r"[\w-]{8}",
        ),
        # Vendors whose tokens have a prefix and a long rest.
        prefixed(
            "vendor_token",
            "npm_ lin_api_ ntn_ shpat_ shpca_ shppa_ shpss_ gsk_ r8_ glsa_ glc_ figd_ sbp_ dop_v1_ doo_v1_ dor_v1_ dckr_pat_ dckr_oat_"
            " sntrys_ sntryu_ pscale_tkn_ pscale_pw_ hvs. dp.pt. dp.st. pplx- xai- nrak- NRAK- PMAK- sq0atp- sq0csp- rubygems_"
            " ATATT3 ATCTT3 pypi-AgE lsv2_pt_ lsv2_sk_ tvly- nvapi- sk-lf- phc_ fo1_ key-live- EAAA",
            r"(?=[A-Za-z_.=-]{0,60}?[0-9])[\w.=-]{20,}",
            "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        ),
        prefixed("databricks_token", "dapi", r"[0-9a-f]{32}(?:-\d)?", "dapi" + "0123456789abcdef0123456789abcdef"),
        prefixed("mailgun_key", "key-", r"[0-9a-f]{32}", "key-" + "0123456789abcdef0123456789abcdef"),
        prefixed(
            "sendgrid_key",
            "SG.",
            r"[\w-]{16,32}\.[\w-]{16,64}",
            "SG." + "abcdefghijklmnopqrstuv.0123456789abcdefghijklmnopqrstuvwxyz0123456",
        ),
        prefixed(
            "cloud_access_key",
            "LTAI AKID",
            r"(?=[A-Za-z]{0,30}?[0-9])[A-Za-z0-9]{12,40}(?![A-Za-z0-9])",
            "LTAI" + "5tAbCdEf1234567890Gh",
        ),
        prefixed("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}", "AGE-SECRET-KEY-1" + "Q" * 58),
        prefixed(
            "airtable_token",
            "pat",
            r"[A-Za-z0-9]{14}\.[0-9a-f]{64}",
            "pat" + "AbCdEfGh123456." + "0123456789abcdef" * 4,
        ),
        Shape(
            "telegram_token",
            re.compile(r"(?<![\w:])\d{8,10}:AA[\w-]{32,34}(?![\w-])", re.ASCII),
            "1234567890:AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
            anchors=(":AA",),
            after_anchor=r"[\w-]{32}",
        ),
        Shape(
            "terraform_token",
            re.compile(r"(?<![\w.])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{50,}", re.ASCII),
            "AbCdEfGh123456.atlasv1." + "a1B2c3D4e5" * 6,
            anchors=(".atlasv1.",),
        ),
        Shape(
            "mailchimp_key",
            re.compile(r"(?<![\w-])[0-9a-f]{32}-us\d{1,2}(?![\w-])", re.ASCII),
            "0123456789abcdef0123456789abcdef" + "-us12",
            anchors=("-us",),
            after_anchor=r"\d",
        ),
        # What encryption at rest stores: whoever has it could otherwise let this server decrypt it.
        prefixed("encrypted_value", "tsenc1:", "[A-Za-z0-9+/=]{72,}", "tsenc1:" + "Ab3+" * 24),
        Shape(
            "azure_client_secret",
            re.compile(r"(?<![\w~.-])[A-Za-z0-9_~.-]{3}8Q~[\w~.-]{30,40}", re.ASCII),
            "abc8Q~" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7",
            anchors=("8Q~",),
        ),
        Shape(
            "azure_account_key",
            re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{40,90}={0,2})"),
            "AccountKey=" + "a1B2c3D4e5" * 8 + "==",
            anchors=("AccountKey=", "SharedAccessKey="),
            before_names=True,
        ),
        Shape(
            "url_signature",
            re.compile(r"(?<=[?&;])sig=(?P<secret>(?=[\w+/=~-]{0,80}%)[\w%+/=~-]{20,})", re.ASCII),
            "https://acme.blob.core.windows.net/x?sp=r&sig=" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4%3D",
            anchors=("sig=",),
            also="%",
        ),
        Shape(
            "presigned_url",
            re.compile(r"(?<=[?&;])X-(?:Amz|Goog)-Signature=(?P<secret>[0-9a-fA-F]{20,})", re.ASCII),
            "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=" + "0123456789abcdef" * 4,
            anchors=("X-Amz-Signature", "X-Goog-Signature"),
        ),
        Shape(
            "url_password",
            re.compile(r"""://[^\s/?#"'\\@:]{0,128}:(?P<secret>(?![$<{%]|\*{2}|x{3})[^\s/?#"'\\]{1,256})@"""),
            "postgresql://ada:s3cret@db.example.com/x",
            anchors=("://",),
            also="@",
            after_anchor=r"""[^\s/?#"'\\@:]{0,128}:[^\s/?#"'\\]{0,385}@""",
        ),
        Shape(
            "url_user_token",
            re.compile(r"""://(?P<secret>(?=[A-Za-z_-]{0,60}?[0-9])[\w-]{20,128})(?::x-oauth-basic)?@""", re.ASCII),
            "https://" + "a1b2c3d4e5f6a7b8c9d0e1f2@git.example.com/x",
            anchors=("://",),
            also="@",
            after_anchor=r"[\w-]{20,128}[:@]",
        ),
        # Options of commands: -u user:password, -ppassword, -p password.
        Shape(
            "curl_user",
            re.compile(
                r"""(?<![A-Za-z0-9])(?:curl|http|https|wget|xh)\b[^\n|;&]{0,400}?\ (?:-u|--user|--proxy-user|-a|--auth)[ =]?["']?(?![$"'])[^\s:"'$]{1,128}:(?P<secret>(?![$<{"'\s])[^\s"'\\]{1,256})"""
            ),
            "curl -u ada:l0velace https://example.com",
            anchors=(" -u", "--user", "--proxy-user", " -a", "--auth"),
            after_anchor=r"""[ =]?["']?[^\s:"']{1,128}:""",
        ),
        Shape(
            "command_password",
            re.compile(
                r"""(?<![A-Za-z0-9])(?:mysql(?:dump|admin)?|mariadb)\b[^\n|;&]{0,200}?\ -p(?P<secret>(?![$<{"'\s])[^\s"'\\;|&]{1,128})"""
            ),
            "mysql -u root -ps3cret shop",
            anchors=(" -p",),
            after_anchor=r"[^\s-]",
        ),
        Shape(
            "command_login",
            re.compile(
                r"""(?<![A-Za-z0-9])(?:sshpass|(?:docker|podman|helm\ registry|az|oc)\ login)\b[^\n|;&]{0,200}?\ -p[ =]?["']?(?P<secret>(?![$<{"'\s-])[^\s"'\\;|&]{1,256})"""
            ),
            "sshpass -p s3cret ssh ada@example.com",
            anchors=(" -p",),
            after_anchor=r"[ =]?[^\s-]",
        ),
        Shape(
            "netrc_password",
            re.compile(
                r"""(?<![A-Za-z0-9])login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<secret>(?=[^\s]{0,255}?[^a-zA-Z.,;:\s])\S{1,256})"""
            ),
            "machine example.com login ada password l0velace",
            anchors=("password",),
            after_anchor=r"\s{1,8}(?=\S{0,256}?[^a-z.,;:\s])",
        ),
        Shape(
            "sql_password",
            re.compile(
                r"""(?i)(?<![A-Za-z0-9])(?:identified(?:\s{1,4}with\s{1,4}\w{1,40})?\s{0,4}\ by|password)\s{1,4}'(?P<secret>(?![$%:<{])[^'\s]{1,128})'"""
            ),
            "CREATE USER ada IDENTIFIED BY 'l0velace'",
            anchors=(" by", "password"),
            after_anchor=r"\s{1,4}'",
        ),
    ),
)


def key_named(name: str) -> KeyRule:
    """Return the rule for values under a name that a user chose, in all spellings (`nationalId`, `NATIONAL-ID`)."""
    if not name.isascii():
        return KeyRule(name, frozenset({name.lower()}))
    *before, last = DEFAULT_RULES.split(name)
    return KeyRule(name, frozenset({last}), frozenset(before[-1:]) or None, any_value=True)
