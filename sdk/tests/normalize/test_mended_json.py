"""JSON with halves of characters, and bytes that are not UTF-8."""

from __future__ import annotations

import msgspec
import pytest

from tracesite_sdk.normalize.mended_json import decode_json


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (rb'"a\ud83d"', r"a\ud83d"),
        (rb'"\uDE00a"', r"\uDE00a"),
        (rb'"\ude00\ud83d"', r"\ude00\ud83d"),
        (rb'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\\ud83d\N{GRINNING FACE}\\ude00"),
        (rb'"\\ud83d \\\ud83d \\\\ude00"', r"\ud83d \\ud83d \\ude00"),
        (rb'{"\udc00": ["\ud800\n"]}', {r"\udc00": ["\\ud800\n"]}),
        (b'"caf\xe9 \xc3\xa9"', "caf\ufffd \N{LATIN SMALL LETTER E WITH ACUTE}"),
        (b'"\xed\xa0\xbd"', "\ufffd" * 3),
        (b'["\xe9", "\\ud83d", "\xff\xff\\\\"]', ["\ufffd", r"\ud83d", "\ufffd\ufffd\\"]),
        ('"caf\N{LATIN SMALL LETTER E WITH ACUTE} \\ud83d"', "caf\N{LATIN SMALL LETTER E WITH ACUTE} \\ud83d"),
        ('"\ud83d"', r"\ud83d"),
        ('"\\\ud83d"', r"\ud83d"),
    ],
)
def test_half_of_a_character_costs_that_half(written: bytes | str, value: object) -> None:
    assert decode_json(written) == value


@pytest.mark.parametrize(
    "written", [b"", b'"', rb'{"a": "\ud83d"', b'{"a": \xe9}', rb'"\ud83"', "[\\ud83d]", "{'a': 1}"]
)
def test_text_that_is_no_json_stays_an_error(written: bytes | str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(written)


def test_text_without_halves_is_decoded_once() -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        decode_json("'\\u00e9'")
    assert raised.value.__cause__ is None
