"""Presets of personal data: numbers with a valid check digit are found, others are left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw, json

from tracesite_sdk.redaction.engine import Receipt, redact
from tracesite_sdk.redaction.presets import PRESETS
from tracesite_sdk.redaction.rules import DEFAULT_RULES, FunctionRule, PathRule, Rules

ALL = replace(
    DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, *(shape for shapes in PRESETS.values() for shape in shapes))
)
FOUND = {
    "email": ["ada@example.com", "ada.l+x@mail.example.co.uk", "李雷@例子.公司"],
    "phone": ["+49 30 901820", "+1 (415) 555-2671", "(415) 555-2671", "13812345678", "138 1234 5678", "+8613812345678"],
    "card": ["4111111111111111", "4111 1111 1111 1111", "5555-5555-5555-4444", "3782 822463 10005"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "NL91 ABNA 0417 1643 00"],
    "chinese_id": ["11010519491231002X", "440524188001010014"],
}
LEFT = [
    "4111111111111112",
    "1795535786789 ms, 1795535786789012345 ns",
    "2026-11-24 15:57:54+00:00",
    "DE88 3704 0044 0532 0130 00",
    "110105194912310021",
    "11010519491331002X",
    "0190f6a1-7c2b-7d3e-8f40-112233445566",
    "@decorator user@host 1.2.3.4 $12,345,678.90",
    "version 1.10.12345.67890",
]


@pytest.mark.parametrize(("preset", "text"), [(preset, text) for preset, texts in FOUND.items() for text in texts])
def test_preset_finds_value_in_every_form(preset: str, text: str) -> None:
    rules = replace(DEFAULT_RULES, shapes=(*DEFAULT_RULES.shapes, *PRESETS[preset]))
    for around in ("see {} EUR now.", "号码：{}。", "12/29 {}, 12/29"):
        sentence = around.format(text)
        clean = around.format("[redacted]")
        assert redact(sentence, rules) == (clean, [Receipt("", preset)])
        assert redact({"a": [sentence]}, rules)[0] == {"a": [clean]}
        assert redact(Raw(json.encode({"a": f"é\n{sentence}"})), rules)[0] == {"a": f"é\n{clean}"}
        inner = json.encode({"a": f"é\n{sentence}"}).decode()
        assert json.decode(redact(inner, rules)[0]) == {"a": f"é\n{clean}"}


@pytest.mark.parametrize("text", LEFT)
def test_other_numbers_are_left(text: str) -> None:
    assert redact(text, ALL) == (text, [])


def test_integer_with_check_digit_is_found() -> None:
    value = {"card": 4111111111111111, "ms": 1795535786789, "small": 7}
    clean = {"card": "[redacted]", "ms": 1795535786789, "small": 7}
    assert redact(value, ALL) == (clean, [Receipt("card", "card")])
    assert redact(Raw(json.encode(value)), ALL)[0] == clean


# --- Places and functions ----------------------------------------------------------------------------------------------


def at(*steps: str) -> Rules:
    return replace(DEFAULT_RULES, paths=(PathRule("rule", steps),))


@pytest.mark.parametrize(
    ("steps", "value", "clean"),
    [
        (("customer", "name"), {"customer": {"name": "A", "age": 3}}, {"customer": {"name": "[redacted]", "age": 3}}),
        (("args", "name"), {"name": {"first": "A"}, "x": {"name": "B"}}, {"name": "[redacted]", "x": {"name": "B"}}),
        (("rows", "[*]", "姓名"), {"rows": [{"姓名": "A"}, {"b": 1}]}, {"rows": [{"姓名": "[redacted]"}, {"b": 1}]}),
        (("a", "*", "b"), {"a": {"x": {"b": 5}, "b": 6}}, {"a": {"x": {"b": "[redacted]"}, "b": 6}}),
        (("b",), {"a": '{"b": 5}', "b": None}, {"a": '{"b":"[redacted]"}', "b": None}),
    ],
)
def test_path_rule_removes_what_is_in_its_place(steps: tuple[str, ...], value: Any, clean: Any) -> None:
    rules = at(*steps)
    assert redact(value, rules, "args")[0] == clean
    assert redact(Raw(json.encode(value)), rules, "args")[0] == clean
    again, receipts = redact(clean, rules, "args")
    assert (again, receipts) == (clean, [])


def test_escaped_key_is_found_by_path() -> None:
    raw = Raw(b'{"\\u59d3\\u540d": "A"}')
    assert redact(raw, at("姓名"))[0] == {"姓名": "[redacted]"}


def test_function_sees_values_and_its_failure_removes_them() -> None:
    def mask(path: str, value: Any) -> Any:
        if path.endswith("bad"):
            raise ValueError("no")
        return value.upper() if path.endswith("name") else None if path.endswith("other") else value

    rules = replace(DEFAULT_RULES, functions=(FunctionRule("mask", mask),))
    value = {"name": "ada", "bad": 3, "other": 7, "json": '{"name": "bob"}', "same": "x"}
    clean, receipts = redact(value, rules, "args")
    assert clean == {
        "name": "ADA",
        "bad": "[redacted]",
        "other": "[redacted]",
        "json": '{"name":"BOB"}',
        "same": "x",
    }
    assert [receipt.path for receipt in receipts] == ["args.name", "args.bad", "args.other", "args.json.name"]
