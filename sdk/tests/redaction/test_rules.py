"""Every rule of the table applies to every form of a value, what is no secret stays, and hostile texts take linear time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from sdk.tests.growth import grows_linearly
from sdk.tests.length import examples
from tracesite_sdk.redaction import prefilter
from tracesite_sdk.redaction.engine import Receipt, may_hold_secrets, redact
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER, KeyRule, Rules, Shape

from .corpus import innocents, trials

RANDOM = "q7Zr2LmX9vKc4TbN8wPd"

CUSTOM = replace(
    DEFAULT_RULES,
    keys=(*DEFAULT_RULES.keys, KeyRule("iban", frozenset({"iban"})), KeyRule("plan", frozenset({"暗号"}))),
    shapes=(*DEFAULT_RULES.shapes, Shape("card", re.compile(r"\b\d{4}-\d{4}-\d{4}\b"))),
)


def names() -> list[str]:
    found = []
    for rule in CUSTOM.keys:
        for word in sorted(rule.words):
            before = sorted(rule.only_after)[0] if rule.only_after else ""
            found.append(f"{before}_{word}" if before else word)
    return found


def forms_of_name(name: str) -> dict[str, Any]:
    value = f"sid={RANDOM}" if name.startswith("cookie") else RANDOM
    document = {"rows": [{name: value, "n": 1}]}
    return {
        "dict": document,
        "text": f"{name}: {value}\nnext",
        "assignment": f"x=1\n{name}={value}",
        "quoted": f'connect({name}="{value}")',
        "json text": json.dumps(document, ensure_ascii=False),
        "json in json": json.dumps({"output": json.dumps(document)}),
        "raw json": Raw(json.dumps(document, ensure_ascii=False).encode()),
        "text in raw json": Raw(json.dumps({"note": f"a\n{name}: {value}\nb"}, ensure_ascii=False).encode()),
    }


def left(value: Any, rules: Rules) -> str:
    clean = redact(value, rules)[0]
    assert may_hold_secrets((value,), rules)
    return (
        bytes(clean).decode() if isinstance(clean, Raw) else json.dumps(clean, default=lambda raw: bytes(raw).decode())
    )


@pytest.mark.parametrize("name", names())
def test_every_name_is_redacted_in_every_form(name: str) -> None:
    assert [form for form, value in forms_of_name(name).items() if RANDOM in left(value, CUSTOM)] == []


@pytest.mark.parametrize("shape", CUSTOM.shapes, ids=lambda shape: shape.name)
@pytest.mark.parametrize("form", ["dict", "key", "list", "text", "json text", "json in json", "raw json"])
def test_every_shape_is_redacted_in_every_form(shape: Shape, form: str) -> None:
    example = shape.example or "1234-5678-9012"
    found = shape.pattern.search(example)
    assert found, "an example is one"
    secret = found["secret"] if "secret" in shape.pattern.groupindex else found[0]
    document = {"note": f"see {example} there"}
    value: Any = {
        "dict": document,
        "key": {f"see {example} there": 1},
        "list": ["a", example],
        "text": document["note"],
        "json text": json.dumps(document),
        "json in json": json.dumps({"output": json.dumps(document)}),
        "raw json": Raw(json.dumps({"rows": [document]}).encode()),
    }[form]
    assert json.dumps(secret)[1:-1] not in left(value, CUSTOM)


def test_every_shape_is_passed_over_quickly() -> None:
    slow = [shape.name for shape in DEFAULT_RULES.shapes if not shape.anchors and shape.quick is None]
    assert slow == [], "Give them anchors: otherwise each text of every record is searched."


@pytest.mark.parametrize("shape", [shape for shape in DEFAULT_RULES.shapes if shape.anchors], ids=lambda one: one.name)
def test_shape_matches_hold_an_anchor(shape: Shape) -> None:
    @settings(max_examples=examples(30), database=None)
    @given(st.from_regex(shape.pattern))
    def matches(text: str) -> None:
        found = shape.pattern.search(text)
        assert found
        assert any(anchor in (text if anchor != anchor.lower() else text.lower()) for anchor in shape.anchors)
        assert shape.also in text

    matches()


@pytest.mark.parametrize("raw", [False, True])
def test_filter_misses_nothing_in_the_corpus(raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [trial.value for trial in trials()] + [snippet.value for snippet in innocents()]
    written = [Raw(json.dumps([value], ensure_ascii=False).encode()) if raw else value for value in values]
    quick = [redact(value)[1] for value in written]
    monkeypatch.setattr(prefilter.Filter, "hits", lambda _self, texts: set(range(len(texts))))
    assert [
        value
        for value, receipts in zip(values, quick, strict=True)
        if redact([value] if raw else value)[1] and not receipts
    ] == []


# --- Secrets that were left ---------------------------------------------------------------------------------------

LEFT = [
    ("<password>l0velace</password>", "l0velace"),
    ("<server>\n  <username>ada</username>\n  <password>l0velace</password>\n</server>", "l0velace"),
    ('<input name="password" value="l0velace">', "l0velace"),
    ("curl -u ada:l0velace https://example.com", "l0velace"),
    ("curl --user ada:l0velace https://example.com", "l0velace"),
    ("mysql -uroot -pl0velace shop", "l0velace"),
    ("sshpass -p l0velace ssh ada@example.com", "l0velace"),
    ("docker login -u ada -p l0velace", "l0velace"),
    ("machine example.com login ada password l0velace", "l0velace"),
    ("数据库密码：l0velace", "l0velace"),
    ("口令是l0velace，请保密", "l0velace"),
    ("访问密钥: " + RANDOM, RANDOM),
    ("令牌 = " + RANDOM, RANDOM),
    ("Passwort: l0velace", "l0velace"),
    ("contraseña: l0velace", "l0velace"),
    ("Пароль: l0velace", "l0velace"),
    ("パスワード：l0velace", "l0velace"),
    ("DB_PASS=l0velace", "l0velace"),
    ("OPENAI_KEY=" + RANDOM, RANDOM),
    ("**Password:** l0velace", "l0velace"),
    ("| password | l0velace |", "l0velace"),
    ("password: |\n  l0velace\n  and more\nnext: 1", "l0velace"),
    ("password:\n  l0velace\nnext: 1", "l0velace"),
    ("ALTER USER ada WITH PASSWORD 'l0velace'", "l0velace"),
    ("CREATE USER ada IDENTIFIED BY 'l0velace'", "l0velace"),
    ('proxy_set_header Authorization "Basic YWRhOmwwdmVsYWNl";', "YWRhOmwwdmVsYWNl"),
    ('{"headers": [["Cookie", "sid=l0velace"]]}', "l0velace"),
    ('{"value": "l0velace", "name": "password"}', "l0velace"),
    ('{"\\u0070assword": "l0velace"}', "l0velace"),
    ("body {\\u0022password\\u0022:\\u0022l0velace\\u0022}", "l0velace"),
    ("password key: x", "key: x"),
    ("bearer key=x", "key=x"),
    ("password monkey: x", "monkey: x"),
    ("https://acme.blob.core.windows.net/c?sv=2022&sig=a1B2c3D4e5F6g7H8i9J0k1L2%3D", "a1B2c3D4e5F6"),
]


@pytest.mark.parametrize(("text", "secret"), LEFT)
@pytest.mark.parametrize("raw", [False, True])
def test_redact_removes_the_secret(text: str, secret: str, raw: bool) -> None:
    value: Any = Raw(json.dumps([text], ensure_ascii=False).encode()) if raw else text
    clean, receipts = redact(value)
    assert secret not in (bytes(clean).decode() if isinstance(clean, Raw) else json.dumps(clean, ensure_ascii=False))
    assert receipts


@pytest.mark.parametrize(
    "text",
    [
        "const csrfToken = document.querySelector('meta[name=csrf]').content",
        'tokenErr := errors.New("x")',
        "tokens, tokenErr := splitTokens(text, startMessageIndex)",
        "lib/phoenix/token.ex:12",
        'fmt.Errorf("failed to redact secrets: %w", err)',
        "password = os.environ['X']",
        "WHERE token = $1",
        "Cookies: 200 g flour",
        "Authorization: the manager decides",
        "api key: a string that is sent with each request",
        "password: This field is required.",
        "password: {{ .Values.password }}",
        "sk-learn-2024-edition-notes",
        '{"properties": {"password": {"type": "string"}}}',
        '{"type": "llm", "payload": {"phase": "delta", "token": "Hel"}}',
        '{"logprobs": {"content": [{"token": "Hello", "logprob": -0.1}]}}',
    ],
)
def test_redact_text_without_secret_is_kept(text: str) -> None:
    assert redact(text) == (text, [])
    assert redact([text, json.loads(text) if text.startswith("{") else ""])[1] == []


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("**Password:** l0velace rest", f"**Password:** {MARKER} rest"),
        ("password: |\n  l0velace\nnext: 1", f"password: |\n  {MARKER}\nnext: 1"),
        ("a\n  db_password: l0velace # comment\nb", f"a\n  db_password: {MARKER} # comment\nb"),
    ],
)
def test_marker_replaces_the_whole_secret(text: str, clean: str) -> None:
    assert redact(text)[0] == clean


def test_receipts_of_one_path_and_rule_are_counted_together() -> None:
    assert redact({"log": "password=a1b2c3 " * 5000})[1] == [Receipt("log", "password", 5000)]
    assert Receipt("log", "password", 3).as_json() == {"path": "log", "rule": "password", "count": 3}
    assert Receipt("log", "password").as_json() == {"path": "log", "rule": "password"}


def test_names_that_hold_secrets_are_replaced_and_stay_apart() -> None:
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    value = {token: 1, f"x {token}": 2, f"y {token}": [3], "plain": 4}
    clean, _receipts = redact({"a": value})
    assert clean == {"a": {MARKER: 1, f"x {MARKER}": 2, f"y {MARKER}": [3], "plain": 4}}
    assert redact({token: 1, token.replace("B4a", "B4b"): 2})[0] == {MARKER: 1, f"{MARKER} 2": 2}


# --- Time -----------------------------------------------------------------------------------------------------------

PIECES = [
    "password: []", "token:{}", "secret=[]", "api_key: {}x", "cookie:[]", "password", "password: ", 'password="', "token='", "token: a.", "api key ", "bearer ", "--", "--a-",
    "cookie: ", "cookie:a=", "authorization: Bearer ", "<password>", "<password ", "password is ", "eyJ", "-eyJ", "sk-", "://", "://a:",
    "hooks.slack.com/", "-u a:", " -p", "密码", "密码：", "password: |\n", "secret: [", '"secret": {', '"token": ["', "**password**: *",
    "\\u0070", "-----BEGIN PRIVATE KEY-----", "PuTTY-User-Key-File-2", "password 'x", "| token |", 'name="password" ', "token,",
    "password: a: ", "key\\\\", "token=a(", "pwd:#", '["cookie", "', "sig=%", ":AA", "ghp_", "SG.", "AIza",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("form", ["text", "json"])
def test_redact_takes_linear_time(piece: str, form: str) -> None:
    def of(size: int) -> Any:
        text = (piece * size)[:size]
        return Raw(json.dumps([text]).encode()) if form == "json" else text

    assert grows_linearly(redact, of, 40_000, spare=0.03)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.sampled_from([*PIECES, " ", "\n", "x", '"', "'", "\\", "{", "}", "[", "]", "=", ":"]), min_size=1, max_size=5
    )
)
def test_redact_takes_linear_time_for_any_repetition(pieces: list[str]) -> None:
    unit = "".join(pieces)
    assert grows_linearly(redact, lambda size: (unit * size)[:size], 40_000, spare=0.15)


def test_quoted_value_after_another_quoted_value_is_redacted() -> None:
    """The quote before a name may end another value: it begins no string that the name would be in."""
    text = 'password: "hunter2" password: "hunter3" user: "ada" secret: "Zq7Xw9Lk"'

    assert redact(text)[0] == 'password: "[redacted]" password: "[redacted]" user: "ada" secret: "[redacted]"'
