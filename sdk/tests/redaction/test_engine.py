"""Secrets are taken out of plain values, wherever they stand, and nothing else is touched."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode

from sdk.tests.growth import grows_linearly
from sdk.tests.length import examples
from tracesite_sdk.redaction.engine import MAX_DEPTH, Receipt, may_hold_secrets, redact
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER, PathRule, Shape, key_named
from tracesite_sdk.redaction.text import lower, secrets_by_name
from tracesite_sdk.redaction.values import Unread

SECRET = "S3cret-hunter2"

# As producers write them; the words, not the spelling, decide.
WELL_KNOWN_KEYS = [
    "authorization", "Authorization", "proxy-authorization", "Proxy-Authorization",
    "api_key", "apikey", "apiKey", "APIKey", "APIkey", "x-api-key", "X-API-Key", "xApiKey", "OPENAI_API_KEY", "api key", "api_keys",
    "password", "passwd", "pwd", "Password2", "db_password", "dbPassword", "DB_PASSWORD", "dbpassword", "passphrase", "passcode",
    "secret", "client_secret", "clientSecret", "aws.secret", "secrets",
    "token", "access_token", "accessToken", "refresh_token", "id_token", "auth_token", "authtoken", "access_tokens", "csrfToken", "bearer",
    "cookie", "Cookie", "set-cookie", "Set-Cookie", "session_cookie", "cookies",
    "credential", "credentials", "user_credentials", "creds",
    "private_key", "privateKey", "access_key", "aws_secret_access_key", "SharedAccessKey", "signing_key", "pin",
]  # fmt: skip

HARMLESS_KEYS = [
    "tokens", "input_tokens", "output_tokens", "max_tokens", "total_tokens", "maxTokens", "reasoning_tokens", "stop_tokens",
    "token_count", "token_limit", "token_usage", "token_type", "token_ids", "tokens_per_second", "max_token", "nextPageToken", "eos_token",
    "tokenizer", "tokenization", "key", "keys", "keyword", "monkey", "public_key", "primary_key", "idempotency_key", "sort_key",
    "secret_name", "secretary", "password_policy", "password_changed_at", "api_key_name", "authorization_url", "cookie_policy",
    "session_id", "author", "authority", "shopping", "mapping", "passenger", "compass", "bypass", "created_at", "credit", "screen", "description",
]  # fmt: skip


def receipts_of(value: Any, path: str = "") -> list[tuple[str, str]]:
    return [(receipt.path, receipt.rule) for receipt in redact(value, path=path)[1]]


# --- Under keys -----------------------------------------------------------------------------------------------


def test_value_that_cannot_be_read_is_secret_under_its_name() -> None:
    unread = Unread()
    value = {"password": unread, "city": unread, "headers": [["Cookie", unread], ["city", unread]], "tokens": [unread]}
    found = {"password": MARKER, "city": unread, "headers": [["Cookie", MARKER], ["city", unread]], "tokens": [unread]}
    assert redact(value)[0] == found
    assert redact({"name": "Authorization", "value": unread})[0]["value"] == MARKER


def test_rest_of_list_has_paths_of_the_whole() -> None:
    rules = replace(DEFAULT_RULES, paths=(PathRule("names", ("name",)),))
    value = [{"password": SECRET, "more": [{"name": "Ada"}]}, {}]
    found = [(receipt.path, receipt.rule) for receipt in redact(value, rules, "l", 7)[1]]
    assert found == [("l[7].password", "password"), ("l[7].more[0].name", "names")]


@pytest.mark.parametrize("value", ['{"a": {"b": 1}}', '[{"a": "{{b}}"}]', '{"a": "${b}"}'])
def test_json_under_a_name_of_users_is_replaced(value: str) -> None:
    rules = replace(DEFAULT_RULES, keys=(key_named("customer_note"), *DEFAULT_RULES.keys))
    assert redact({"customer_note": value}, rules)[0] == {"customer_note": MARKER}
    assert redact({"customer_note": "", "other": value}, rules)[1] == []


@pytest.mark.parametrize("key", WELL_KNOWN_KEYS)
def test_redact_value_of_secret_key_is_replaced(key: str) -> None:
    value, receipts = redact({"args": {key: SECRET, "city": "Oslo"}})

    assert value == {"args": {key: MARKER, "city": "Oslo"}}
    assert [receipt.path for receipt in receipts] == [f"args.{key}"]


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_redact_value_of_other_key_is_kept(key: str) -> None:
    value = {key: "cl100k", "nested": [{key: {"a": 5}}]}

    assert redact(value) == (value, [])


def test_receipt_has_path_and_rule_of_the_secret() -> None:
    steps = [{}, {"tool_calls": [{"args": {"headers": {"Authorization": "Bearer x", "Accept": "*/*"}}}]}]

    assert receipts_of({"agent_steps": steps}) == [
        ("agent_steps[1].tool_calls[0].args.headers.Authorization", "authorization")
    ]
    assert receipts_of({"password": "x"}, path="messages[3]") == [("messages[3].password", "password")]
    assert receipts_of(["a", "password=x"]) == [("[1]", "password")]
    assert receipts_of({"k" * 100: "password=x"}) == [("k" * 63 + "…", "password")]


def test_redact_container_under_secret_key_is_replaced_whole() -> None:
    value = {
        "authorization": {"type": "bearer", "value": "x"},
        "api_keys": ["a", "b"],
        "credentials": {},
        "cookies": [],
    }

    assert redact(value)[0] == {"authorization": MARKER, "api_keys": MARKER, "credentials": {}, "cookies": []}


def test_redact_null_and_booleans_are_kept() -> None:
    value = {"password": None, "token": "", "secret": True, "has_password": False, "api_key": MARKER}

    assert redact(value) == (value, [])


def test_redact_number_under_password_but_not_under_token() -> None:
    assert redact({"pin": 1234, "password": 12.5, "api_key": 7, "token": 12, "access_token": 3})[0] == {
        "pin": MARKER,
        "password": MARKER,
        "api_key": MARKER,
        "token": 12,
        "access_token": 3,
    }


def test_redact_named_value_uses_the_rule_of_its_name() -> None:
    headers = [{"name": "Authorization", "value": "Bearer x"}, {"name": "Accept", "value": "text/html"}]
    attributes = [{"key": "db.password", "value": {"stringValue": "x"}}]

    assert redact({"headers": headers, "attributes": attributes})[0] == {
        "headers": [{"name": "Authorization", "value": MARKER}, {"name": "Accept", "value": "text/html"}],
        "attributes": [{"key": "db.password", "value": MARKER}],
    }


def test_redact_does_not_modify_its_argument() -> None:
    value = {"a": [{"password": "x"}], "b": {"c": "password=x"}}
    before = json.dumps(value)

    clean, _receipts = redact(value)

    assert json.dumps(value) == before
    assert clean == {"a": [{"password": MARKER}], "b": {"c": f"password={MARKER}"}}
    assert clean["b"] is not value["b"]


def test_redact_returns_clean_values_as_the_same_objects() -> None:
    clean = {"a": [1, 2.5, None, True, {"b": "the weather in Oslo"}], "usage": {"input_tokens": 12}}
    mixed = {"clean": clean, "password": "x"}

    assert redact(clean)[0] is clean
    assert redact(mixed)[0]["clean"] is clean


def test_redact_searches_subclasses_and_keeps_other_types() -> None:
    class Args(dict[str, Any]):
        pass

    class Text(str):
        pass

    moment = object()

    assert redact((Args(password="x"), Text("pwd=x"), moment))[0] == ({"password": MARKER}, f"pwd={MARKER}", moment)


# --- In text --------------------------------------------------------------------------------------------------

TEXTS = [
    # JSON
    ('{"user": "ada", "password": "hunter2"}', '{"user": "ada", "password": "[redacted]"}'),
    (r'{\"api_key\": \"x\", \"n\": 1}', r'{\"api_key\": \"[redacted]\", \"n\": 1}'),
    (r'"{\\\"auth_token\\\":\\\"x\\\"}"', r'"{\\\"auth_token\\\":\\\"[redacted]\\\"}"'),
    (r'{"password": "a\"b\\", "c": "d"}', r'{"password": "[redacted]", "c": "d"}'),
    (r'{\"password\": \"a\\\"b\\\\\", \"c\": 1}', r'{\"password\": \"[redacted]\", \"c\": 1}'),
    ('{"pin": 1234, "token": 12}', '{"pin": "[redacted]", "token": 12}'),
    ('{"secret": {"a": ["}", "x"]}, "n": 1}', '{"secret": "[redacted]", "n": 1}'),
    (r'{\"secret\": [\"]\", 1], \"n\": 1}', r'{\"secret\": \"[redacted]\", \"n\": 1}'),
    ('{"api key": "x", "my secret for db": "y"}', '{"api key": "[redacted]", "my secret for db": "[redacted]"}'),
    ('[{"pin": -1.5e3, "api_key": NaN, "password": -Infinity}, 2]', '[{"pin": "[redacted]", "api_key": "[redacted]", "password": "[redacted]"}, 2]'),
    ('{"a": "密码 password=x", "b": "é\\/"}', '{"a": "密码 password=[redacted]", "b": "é\\/"}'),
    ('{"password": null, "token": "", "secret": false, "creds": []}', None),
    ('[{"name": "X-Api-Key", "value": "x"}]', '[{"name": "X-Api-Key", "value": "[redacted]"}]'),
    ('{"cmd": "login password=", "n": "x"}', None),
    (r'{"cmd": "curl -H \"Authorization: Bearer x\" -o f"}', r'{"cmd": "curl -H \"Authorization: [redacted]\" -o f"}'),
    (r'{"log": "a\npassword: x\nb", "n": 1}', r'{"log": "a\npassword: [redacted]\nb", "n": 1}'),
    (r'{"log": "a\nCookie: a=b; c=d\r\nHost: h"}', r'{"log": "a\nCookie: [redacted]\r\nHost: h"}'),
    ('{"user": "ada", "password": "hunt', '{"user": "ada", "password": "[redacted]'),
    ("{'password': 'hunter2', 'x': None}", "{'password': '[redacted]', 'x': None}"),
    # Headers
    ("Authorization: Bearer abc", "Authorization: [redacted]"),
    ("GET /\r\nAuthorization: Basic YTpi\r\nHost: h", "GET /\r\nAuthorization: [redacted]\r\nHost: h"),
    ("Set-Cookie: sid=1; Path=/; HttpOnly\nAge: 1", "Set-Cookie: [redacted]\nAge: 1"),
    ("curl -H 'X-API-Key: x' https://example.com", "curl -H 'X-API-Key: [redacted]' https://example.com"),
    # Names and values
    ("password=abc", "password=[redacted]"),
    ("api_key: abc123", "api_key: [redacted]"),
    ("export DB_PASSWORD='a b'; ls", "export DB_PASSWORD='[redacted]'; ls"),
    ("host=h user=u password=p,w port=1", "host=h user=u password=[redacted] port=1"),
    ("https://example.com/?token=abc&page=2", "https://example.com/?token=[redacted]&page=2"),
    ("Server=s;Password=p;Timeout=1", "Server=s;Password=[redacted];Timeout=1"),
    ("(password=abc123).", "(password=[redacted])."),
    ("password: token: abc123 rest", "password: [redacted] rest"),
    ("password = 'x' -- b'y'", "password = '[redacted]' -- b'y'"),
    ("api_keys = ['x', 'y'] # two", "api_keys = [redacted] # two"),
    ("password：abc123 是", "password：[redacted] 是"),
    ("mysql --password hunter2 -u root --token=x", "mysql --password [redacted] -u root --token=[redacted]"),
    # URLs
    ("postgresql://ada:pw@db/x", "postgresql://ada:[redacted]@db/x"),
    ("redis://:p@ss@h:6379/0 and https://h:80/a@b", "redis://:[redacted]@h:6379/0 and https://h:80/a@b"),
    # What only looks like it
    ("the password is wrong", None),
    ("tokens: 12, input tokens: 5, max_tokens=100", None),
    ('"max_tokens": 100, "total_tokens": 7', None),
    ("Key: value, keyword: x, monkey=1, sort_key: a", None),
    ("def login(password: str, token: str = None) -> bool:", None),
    ("auth::token::get and https://example.com:443/keys", None),
    ("Enter your password\n===================\nHere", None),
    ("the token bearer arrived, a bearer of news", None),
    ("Kind regards, the secretary: Ms. Key", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "clean"), TEXTS)
def test_redact_text_keeps_every_byte_outside_of_secrets(text: str, clean: str | None) -> None:
    assert redact(text)[0] == (clean or text)
    assert redact({"output": text})[0] == {"output": clean or text}


@pytest.mark.parametrize("shape", DEFAULT_RULES.shapes, ids=lambda shape: shape.name)
def test_redact_text_replaces_known_shapes(shape: Any) -> None:
    before, after = "see: ", "\nnext line"
    match = shape.pattern.search(shape.example)
    secret = match["secret"] if "secret" in shape.pattern.groupindex else match[0]

    value, receipts = redact(before + shape.example + after)

    assert value == before + shape.example.replace(secret, MARKER) + after
    assert receipts == [Receipt(path="", rule=shape.name)]


def test_shapes_have_unique_names_and_examples() -> None:
    names = [shape.name for shape in DEFAULT_RULES.shapes]
    examples = [shape.example for shape in DEFAULT_RULES.shapes]

    assert len(set(names)) == len(set(examples)) == len(names)
    for shape in DEFAULT_RULES.shapes:
        assert [other.name for other in DEFAULT_RULES.shapes if other.pattern.search(shape.example)] == [shape.name]


def test_redact_private_key_removes_all_its_lines() -> None:
    pem = next(shape.example for shape in DEFAULT_RULES.shapes if shape.name == "private_key")

    assert redact(f"private_key: {pem}\nrest")[0] == f"private_key: {MARKER}\nrest"
    assert redact(json.dumps({"file": pem, "n": 1}))[0] == json.dumps({"file": MARKER, "n": 1})
    # Cut off, it still goes to the end of its string.
    assert redact(json.dumps({"file": pem[:60], "n": 1}))[0] == json.dumps({"file": MARKER, "n": 1})
    # Also when it is cut off in the middle of an escape, or is full of dashes.
    assert redact(f"key file: {pem[:60]}\\")[0] == f"key file: {MARKER}"
    assert redact(f"{pem[:31]}\n--x---\n{pem[32:]}---- rest")[0] == f"{MARKER}---- rest"


def test_redact_unclosed_private_keys_take_linear_time() -> None:
    """From each beginning the search went on to the end of the text, found none there, and began again at the next."""
    begin = "-----BEGIN PRIVATE KEY-----"
    assert grows_linearly(redact, lambda size: (begin * size)[:size] + "\\", 160_000, spare=0.1)


def test_redact_many_secret_keys_of_one_object_take_linear_time() -> None:
    """The number of each was looked for from 2 on."""
    assert grows_linearly(redact, lambda size: {f"ghp_{i:036d}": i for i in range(size)}, 16_000, spare=0.1)


# --- What cannot be looked at -----------------------------------------------------------------------------------


def nested(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


def test_redact_value_nested_too_deeply_is_dropped() -> None:
    kept = nested(MAX_DEPTH, {"city": "Oslo"})
    deep = {"args": nested(50_000, {"city": "Oslo"}), "n": 1}

    value, receipts = redact(deep)

    assert redact(kept)[0] is kept
    assert value["n"] == 1
    assert [receipt.rule for receipt in receipts] == ["depth"]
    for _ in range(MAX_DEPTH + 1):
        value = value["args"] if isinstance(value, dict) else value[0]
    assert value == MARKER


def test_redact_on_exhausted_stack_drops_the_value() -> None:
    value = nested(MAX_DEPTH - 1, {"password": "x"})

    def redact_below(frames: int) -> Any:
        return redact(value, path="args") if frames == 0 else redact_below(frames - 1)

    depth = len(_frames())
    room = sys.getrecursionlimit() - depth - MAX_DEPTH
    assert redact_below(room) == (MARKER, [Receipt(path="args", rule="failure")])


def _frames() -> list[Any]:
    frames, frame = [], sys._getframe()
    while frame:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


ADVERSARIAL = [
    '"', "\\", "password", '"password":"', '\\"password\\":', "password:[", 'password={"', "eyJ", "sk-", "://a:", "a:b@",
    "-----BEGIN PRIVATE KEY-----", "--a", "-", "api key ", "cookie: ", "bearer ", "İ", "password='", "key\\\\", 'name","value":',
    '"password":{"a":"', "password: a: ", "password,", "token: \"\\",
]  # fmt: skip


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_redact_text_takes_linear_time(piece: str) -> None:
    def of(size: int) -> str:
        return '{"password": ' + (piece * size)[:size]

    # These two are passed over so quickly that a short text says little.
    size = 1_000_000 if piece in ('"', "\\") else 40_000
    assert grows_linearly(redact, of, size, spare=0.05)


# --- Properties -------------------------------------------------------------------------------------------------

TRICKY = [
    '"',
    "'",
    "\\",
    "\\\\",
    '\\"',
    ":",
    "=",
    " ",
    "\n",
    "\\n",
    ",",
    ";",
    "&",
    "{",
    "}",
    "[",
    "]",
    "<",
    "@",
    "://",
    "--",
    "x",
    "1",
    "é",
    "İ",
]
WORDS = [
    "password",
    "api_key",
    "token",
    "tokens",
    "key",
    "Cookie",
    "authorization",
    "secret",
    "value",
    "name",
    MARKER,
    "null",
    "Bearer a1b2c3d4e5",
]
tricky_text = st.lists(st.sampled_from(TRICKY + WORDS), max_size=14).map("".join)
texts = st.one_of(st.text(max_size=20), tricky_text)
keys = st.one_of(st.text(max_size=8), st.sampled_from(WELL_KNOWN_KEYS + HARMLESS_KEYS + ["name", "value"]))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@given(json_values)
def test_redact_is_idempotent(value: Any) -> None:
    once, _receipts = redact(value)

    assert redact(once) == (once, [])


@given(json_values)
def test_redact_without_receipt_changes_nothing(value: Any) -> None:
    clean, receipts = redact(value)

    assert (clean is value) == (not receipts)


@given(tricky_text)
def test_filter_matches_whenever_redact_does(text: str) -> None:
    found = [
        *secrets_by_name(text, DEFAULT_RULES),
        *(shape for shape in DEFAULT_RULES.shapes if shape.pattern.search(text)),
    ]

    if found and len(text) > 4:
        assert may_hold_secrets([text])


# Spaces, colons and letters that are several bytes in UTF-8, or are spaces to Python and not to a pattern for bytes, or
# become ASCII letters in lower case.
FOREIGN = [
    "：",
    "\u3000",
    "\u00a0",
    "\u2028",
    "\x1c",
    "\x85",
    "密码",
    "，",
    "é",
    "İ",
    "to\u212aen",
    "P\u0130N",
    "\ud800",
    "😀",
]


@given(st.lists(st.sampled_from(FOREIGN + TRICKY + WORDS + ["cred", "pin", "--", "://a:b"]), max_size=14).map("".join))
def test_filter_matches_names_in_every_script(text: str) -> None:
    found = [
        *secrets_by_name(text, DEFAULT_RULES),
        *(shape for shape in DEFAULT_RULES.shapes if shape.pattern.search(text)),
    ]

    if found and len(text) > 4:
        assert may_hold_secrets([text])


@pytest.mark.parametrize("name", ["password", "auth token", "API key", "db secret", "Bearer", "my creds"])
@pytest.mark.parametrize("word", ["mapping", "for shopping", "pinned", "opinion"])
def test_filter_matches_names_followed_by_more_words(name: str, word: str) -> None:
    text = f"{name} {word}: hunter2"

    assert redact(text)[1]
    assert may_hold_secrets([Raw(json.dumps({"note": text}).encode())])


@pytest.mark.parametrize("text", ["pin\u0130=1234", "pin\u212a: 1234", '{"pin\u212a": "1234"}'])
def test_unicode_letter_terminates_the_word_pin(text: str) -> None:
    assert redact(text)[1]
    assert may_hold_secrets([Raw(json.dumps([text], ensure_ascii=False).encode())])


def test_filter_matches_long_url_password_after_wide_colon() -> None:
    assert redact("x://a：" + "b" * 100 + ":" + "c" * 256 + "@h")[1]


@pytest.mark.parametrize(
    "text", [text for text, clean in TEXTS if clean] + [shape.example for shape in DEFAULT_RULES.shapes]
)
def test_filter_matches_every_redacted_value(text: str) -> None:
    for around in ("{}", "x\n{}\ny", "密码 {} 密码", "密码。{}，密码", "z_j " * 40 + "{}", "é{}é"):
        assert redact(around.format(text))[1], around
        assert may_hold_secrets([["clean"], {"a": [{"b": around.format(text)}]}]), around


# What JSON escapes, and what stands between the words of a name.
ESCAPED = [
    "\t",
    "\r",
    "\b",
    "\f",
    "/",
    "\x7f",
    "(",
    "~",
    "api",
    "auth",
    "pwd",
    "cred",
    "pin",
    "keys",
    "-----",
    "sk-",
    "://a:b@",
    "--",
]
names = st.lists(st.sampled_from(TRICKY + WORDS + FOREIGN[:-2] + ESCAPED), max_size=6).map("".join)
objects = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), names),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
).filter(lambda value: isinstance(value, (dict, list)))
WRITERS: list[Callable[[Any], str]] = [
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, ensure_ascii=False, indent=3, separators=(" ,", "\t:\r\n")),
    lambda value: json.dumps(value, ensure_ascii=False).replace("/", "\\/"),
    lambda value: json.dumps(value),
]


@settings(max_examples=examples(200))
@given(value=objects, write=st.sampled_from(WRITERS))
def test_filter_matches_undecoded_json_whenever_redact_does(value: Any, write: Callable[[Any], str]) -> None:
    written = write(value).encode()
    clean, receipts = redact(json.loads(written))

    if receipts:
        assert may_hold_secrets(["clean", Raw(b"[1]"), Raw(written), Raw(b'{"a": "b"}')])
        assert redact({"args": Raw(written)}, path="call")[0] == {"args": clean}


@pytest.mark.parametrize(
    "text", [text for text, clean in TEXTS if clean] + [shape.example for shape in DEFAULT_RULES.shapes]
)
def test_redact_raw_json_finds_secret_text(text: str) -> None:
    for around in ("{}", "x\n{}\ny", "密码。{}，密码", "z_j " * 40 + "{}", '"{}"', "\\{}\\"):
        value = {"rows": [{"note": around.format(text)}]}
        if redact(value)[1]:
            for write in WRITERS[:3]:
                assert may_hold_secrets([Raw(write(value).encode())]), (around, write)


@pytest.mark.parametrize("key", WELL_KNOWN_KEYS)
def test_redact_raw_json_finds_secret_field(key: str) -> None:
    for around in ("{}", "{} (x)", "my/{}", "密{}码", "a\n{}", '"{}"', "\t{}\\", "{}" + " x" * 100):
        value = {"a": [{around.format(key): [SECRET]}]}
        assert may_hold_secrets([Raw(json.dumps(value, ensure_ascii=False).encode())]) or not redact(value)[1], around


@pytest.mark.parametrize(
    "value",
    [
        {"APIİKey": SECRET},
        {"api\u212akey": SECRET},
        {"pwd (db)": SECRET},
        {"name": "Authorization", "value": SECRET},
        {"value": SECRET, "type": "header", "rank": 1, "key": "Set-Cookie"},
        {"key": "db.password", "enabled": True, "value": [SECRET]},
    ],
    ids=str,
)
@pytest.mark.parametrize("write", WRITERS)
def test_redact_raw_json_finds_oddly_spelled_names(value: Any, write: Callable[[Any], str]) -> None:
    assert redact(value)[1]
    assert may_hold_secrets([Raw(write({"rows": [value]}).encode())])


def test_redact_raw_json_allows_any_character_before_key() -> None:
    between = ["", *'_-. /([:="\\\n\t\r密é~1a']
    ends = cycle(["", "/x", " 2"])
    names = [
        kind + "".join(three) + key + next(ends)
        for kind, key in (("api", "key"), ("x-Access", "Keys"))
        for three in product(between, repeat=3)
    ]
    secret = [name for name in names if DEFAULT_RULES.rule_for(name)]
    missed = [
        name for name in secret if not may_hold_secrets([Raw(json.dumps({name: SECRET}, ensure_ascii=False).encode())])
    ]

    assert len(secret) > 1_500
    assert missed == []


def test_filter_searches_raw_json_at_any_depth() -> None:
    deep = b"[" * 2 * MAX_DEPTH + b'{"%s": 1, "b": "c"}' + b"]" * 2 * MAX_DEPTH

    assert may_hold_secrets([Raw(deep % b"password")])
    assert not may_hold_secrets([Raw(deep % b"note")])


def test_redact_clean_raw_json_stays_undecoded() -> None:
    value = {"rows": [{"id": 4, "customer": "C-09", "state": "已发货", "text": 'a "word"\n\tC:\\x'}], "count": 1.5}
    raw = Raw(json.dumps(value, ensure_ascii=False).encode())

    assert not may_hold_secrets(["plain", {"a": "text: token"}, raw, Raw(b"[]")])
    assert redact(raw) == (raw, [])
    assert redact(raw)[0] is raw


def test_redact_raw_json_with_secret_returns_decoded_value() -> None:
    raw = Raw(b'{"note": "x", "headers": {"Cookie": "a=b"}}')

    clean, receipts = redact({"args": raw, "other": Raw(b"{}")})

    assert clean["args"] == {"note": "x", "headers": {"Cookie": MARKER}}
    assert type(clean["other"]) is Raw
    assert receipts == [Receipt("args.headers.Cookie", "cookie")]


@pytest.mark.parametrize(
    "written",
    [
        b'{"a": "\\u0061"}',
        b'["\\/"]',
        b'["\\b"]',
    ],
)
def test_filter_matches_raw_json_with_hiding_escapes(written: bytes) -> None:
    assert may_hold_secrets([Raw(written)])


def test_name_at_either_end_of_endless_text_is_found() -> None:
    for run in ("secret" * 2_000, "x" * 5_000, "api_key" * 2_000, "密" * 2_000):
        for text in (
            f"password: hunter2hunter2 {run}",
            f"{run}password: hunter2hunter2",
            f"{run} password: hunter2hunter2 {run}",
        ):
            for value in (
                text,
                Raw(encode({"a": text, "b": run})),
                Raw(encode({run: 1, f"{run[:500]}_password": "hunter2hunter2"})),
            ):
                clean, receipts = redact(value)
                assert receipts, (run[:20], text[:40])
                assert b"hunter2" not in encode(clean)
        assert redact(run) == (run, [])


@pytest.mark.parametrize("piece", ["pin ", "key ", "api key", "cookie", "e123 ", "://a:b", "secret", '"\\', "é token "])
def test_filter_takes_linear_time_for_raw_json(piece: str) -> None:
    def of(times: int) -> list[Raw]:
        return [Raw(json.dumps({"a": piece * times}, ensure_ascii=False).encode())]

    assert grows_linearly(may_hold_secrets, of, 8_000, spare=0.001)


def wrapped(value: Any, wraps: list[str]) -> Any:
    """Puts a value at some depth of other values, some of them JSON text."""
    for wrap in wraps:
        value = {"list": [1, value, "b"], "dict": {"a": None, "result": value}, "json": value}[wrap]
        if wrap == "json":
            value = json.dumps(value, ensure_ascii=False)
    return value


@given(
    key=st.sampled_from(WELL_KNOWN_KEYS),
    form=st.sampled_from(["plain", "dict", "list", "beside"]),
    filler=st.dictionaries(
        st.sampled_from(["city", "note", "q"]), texts.filter(lambda text: MARKER not in text), max_size=2
    ),
    wraps=st.lists(st.sampled_from(["list", "dict", "json"]), max_size=6).filter(
        lambda wraps: wraps.count("json") <= 3
    ),
)
def test_redact_well_known_keys_at_any_depth_are_replaced(
    key: str, form: str, filler: dict[str, str], wraps: list[str]
) -> None:
    secrets: dict[str, Any] = {
        "plain": SECRET,
        "dict": {"type": "x", "v": SECRET},
        "list": ["a", {"b": SECRET}],
        "beside": SECRET,
    }
    holder = {"name": key, "value": SECRET} if form == "beside" else {**filler, key: secrets[form]}

    clean, receipts = redact(wrapped(holder, wraps))

    assert SECRET not in json.dumps(clean)
    assert receipts
    # What was JSON text still is.
    for wrap in reversed(wraps):
        if wrap == "json":
            clean = json.loads(clean)
        elif wrap == "list":
            assert (clean[0], clean[2]) == (1, "b")
            clean = clean[1]
        else:
            assert clean["a"] is None
            clean = clean["result"]
    assert set(clean) == set(holder)


LETTERS = st.text(alphabet="adefghijlmnoqrstuvy0123456789 .,;:=\"'{}[]\n", max_size=60)


@given(
    st.recursive(
        LETTERS, lambda inner: st.dictionaries(LETTERS, inner, max_size=5) | st.lists(inner, max_size=5), max_leaves=20
    )
)
def test_redact_values_without_secret_words_are_kept(value: Any) -> None:
    """Without b, c, k, p, w, x, z and - no telling word and no shape can be written."""
    assert redact(value) == (value, [])
    assert redact(value)[0] is value


@pytest.mark.parametrize("letters", ["plain words ", "plain 词 "])
def test_filter_of_large_text_allocates_two_copies_at_most(letters: str) -> None:
    text = letters * 200_000
    tracemalloc.start()
    try:
        redact({"output": text, "note": "short"})
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2.2 * sys.getsizeof(text)


def test_lower_keeps_the_length_of_the_text() -> None:
    """Lower case is longer for one character, which would shift all that follows it."""
    longer = [chr(code) for code in range(sys.maxunicode + 1) if len(lower(chr(code))) != 1]

    assert longer == []


def test_rules_cache_of_names_is_bounded() -> None:
    for number in range(11_000):
        redact({f"field_{number}": 1})

    assert len(DEFAULT_RULES.verdicts) <= 10_000
    assert len(DEFAULT_RULES.harmless) <= 10_000
    assert receipts_of({"password": "x"}) == [("password", "password")]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (r'{"note": "password\uff1ahunter2"}', r'{"note": "password\uff1a[redacted]"}'),
        (r'{"passwort\u4e2d": "hunter2"}', r'{"passwort\u4e2d": "[redacted]"}'),
        (r'{"api\u4e2dkey": "hunter2"}', r'{"api\u4e2dkey": "[redacted]"}'),
        (r'{"api中key": "hunter2"}', r'{"api中key": "[redacted]"}'),
        (r'{"\u5bc6码": "hunter2"}', r'{"\u5bc6码": "[redacted]"}'),
        (r'{"contrase\u00f1a": "hunter2"}', r'{"contrase\u00f1a": "[redacted]"}'),
        (r'{"url": "postgresql:\/\/ada:s3cret@db\/x"}', r'{"url": "postgresql://ada:[redacted]@db/x"}'),
    ],
)
def test_redact_json_text_with_escapes_finds_secrets(text: str, clean: str) -> None:
    found, receipts = redact(text)
    assert (found, len(receipts)) == (clean, 1)
    assert redact(Raw(text.encode()))[1]


def test_filter_passes_escapes_of_words_without_secrets() -> None:
    # 金 begins a word for "key" and means money in most others.
    assert not may_hold_secrets([r'{"note": "\u9000\u6b3e\u91d1\u989d, caf\u00e9"}'])
    assert not may_hold_secrets([Raw(rb'{"note": "\u9000\u6b3e\u91d1\u989d, caf\u00e9"}')])


@pytest.mark.parametrize("before", ['"x" ', "[1] ", '{"a": 1} ', '{"a": "\\"b\\\\"}\n'])
def test_redact_name_after_json_value_finds_quoted_secret(before: str) -> None:
    assert redact(f'{before}password: "hunter2"')[0] == f'{before}password: "[redacted]"'


def test_redact_name_inside_json_string_keeps_next_member() -> None:
    text = '{"note": "Enter password: ", "next": "hunter2", '
    assert redact(text) == (text, [])


BADGE = replace(
    DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, Shape("badge", re.compile(r"\AB[0-9]{6}\Z|上\n[0-9]{6}")))
)
"""Rules with a shape without anchors, which matches whole texts only, or over a line end."""


@pytest.mark.parametrize(
    "value",
    [
        {"a": "B123456"},
        {"of": [1, {"a": "see", "b": "B123456"}]},
        {"a": "x", "b": '上\n123456 and "more"'},
        {"a quite long name": "B12345"},
        {"a": "B1234567", "b": ["xB123456", ""], "c": '"B123456"'},
        {"a": "上\\n123456"},
        {},
    ],
    ids=str,
)
def test_shape_without_anchors_finds_the_same_in_raw_json(value: Any) -> None:
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        expected = bool(redact(value, BADGE)[1])
        assert may_hold_secrets([value], BADGE) is expected
        assert may_hold_secrets(["clean", Raw(written.encode()), Raw(b'{"b": 1}')], BADGE) is expected


@pytest.mark.parametrize("escape", ["\\n", "\\u0070", '\\"', "\\ud83d\\ude00"])
def test_search_of_escapes_takes_no_memory_for_each(escape: str) -> None:
    written = f'{{"a": "{escape * (3_000_000 // len(escape))}"}}'.encode()
    for shape in BADGE.shapes[-1], Shape("card", re.compile(r"\d{4}-\d{4}")):
        tracemalloc.start()
        may_hold_secrets([Raw(written)], replace(DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, shape)))
        _now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10 * len(written)


def test_halves_of_characters_stay_together_in_any_number_of_escapes() -> None:
    rules = replace(DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, Shape("smile", re.compile("\U0001f600x"))))
    for before in (*range(4), *range(998, 1_004)):
        written = rb'{"a": "%b\ud83d\ude00x"}' % (rb"\u0070" * before)
        assert may_hold_secrets([Raw(written)], rules), before


def test_secret_in_a_key_is_not_in_the_paths_of_receipts() -> None:
    token = "ghp_" + "16C7e42F292c" * 3
    clean, receipts = redact({"a": {token: [{"password": "correct-horse-1"}]}})
    assert clean == {"a": {MARKER: [{"password": MARKER}]}}
    assert [(receipt.path, receipt.rule) for receipt in receipts] == [
        ("a", "github_token"),
        ("a.[redacted][0].password", "password"),
    ]


def test_token_of_letters_is_found_in_a_key_each_time() -> None:
    token = "ghp_" + "AbCdefGhIjKlmnOp" * 2
    for _again in range(2):
        assert redact({token: 1})[0] == {MARKER: 1}


def test_patterns_of_users_are_found_in_short_keys_but_not_in_words() -> None:
    staff = Shape("staff", re.compile(r"EMP-\d{3}|error"), "EMP-471")
    rules = replace(DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, staff))
    for _again in range(2):
        clean, receipts = redact({"EMP-471": 1, "error": {"EMP-472": "x"}}, rules)
        assert clean == {MARKER: 1, "error": {MARKER: "x"}}
        assert [receipt.path for receipt in receipts] == ["", "error"]
    assert redact({"EMP-471": 1}) == ({"EMP-471": 1}, [])
