"""Decoding of the bytes of a file: one JSON value, or lines that are read repeatedly."""

from __future__ import annotations

import json
from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.transcripts import documents
from tracesite_sdk.transcripts.documents import (
    Files,
    Line,
    Lines,
    Source,
    Text,
    Unreadable,
    beginning,
    decoded,
    first_values,
    join_place,
    numbered_values,
    read,
    read_text,
    text_in,
)


def source(data: bytes) -> Source:
    return Source("a.json", lambda: BytesIO(data))


def found(data: bytes) -> tuple[Any, list[tuple[str, str]]]:
    """Return the document, lines as a list, and the omissions."""
    left_out: list[tuple[str, str]] = []
    document = read(source(data), lambda where, why: left_out.append((where, why)))
    return (list(document) if isinstance(document, Lines) else document), left_out


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}\r\n\n', {"a": 1}),
        (b'{\n "a": [\n  1\n ]\n}', {"a": [1]}),
        (b'"text"', "text"),
        (b'{"a": NaN, "b": "\\ud83d"}', {"a": None, "b": "\\ud83d"}),
        ('{"a": "上海"}'.encode("utf-16"), {"a": "上海"}),
        (b'[\n{"a": 1},\n{"b": 2},\n{"c": 3}\n]\n', [{"a": 1}, {"b": 2}, {"c": 3}]),
        (b'[{"a": 1},\n{"b": 2}]', [{"a": 1}, {"b": 2}]),
        (b'{"list": [\n{"a": 1},\n{"b": 2},\n{"c": 3}\n]}', {"list": [{"a": 1}, {"b": 2}, {"c": 3}]}),
        (b'{"a": ' + b"9" * 5000 + b"}", {"a": "9" * 5000}),
    ],
)
def test_single_json_value_is_a_document(data: bytes, expected: Any) -> None:
    assert found(data) == (expected, [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}\n\n{"b": 2}\r\n', [Line(1, {"a": 1}), Line(3, {"b": 2})]),
        (b'\xef\xbb\xbf{"a": 1}\n{"b": 2}', [Line(1, {"a": 1}), Line(2, {"b": 2})]),
        (
            b'{"a": 1}{"b": 2} {"c": 3}\n{"d": 4}',
            [Line(1, {"a": 1}), Line(1, {"b": 2}), Line(1, {"c": 3}), Line(2, {"d": 4})],
        ),
        (b'{"a": 1}{"b": 2}', [Line(1, {"a": 1}), Line(1, {"b": 2})]),
        (b'{\n "a": 1\n}\n{\n "b": 2\n}\n', [Line(1, {"a": 1}), Line(2, {"b": 2})]),
    ],
)
def test_several_values_are_lines(data: bytes, expected: list[Line]) -> None:
    assert found(data) == (expected, [])


def test_broken_line_is_reported_and_its_whole_values_kept() -> None:
    document, left_out = found(b'{"a": 1}\n{"b": \n{"c": 3}{"d": \nnonsense\n{"e": 5}')
    assert document == [Line(1, {"a": 1}), Line(3, {"c": 3}), Line(5, {"e": 5})]
    assert [(where, why.split(":")[0]) for where, why in left_out] == [
        ("line 2", "not JSON"),
        ("line 3", "not JSON"),
        ("line 4", "not JSON"),
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'Exporting session: ses_1{"a": 1}', {"a": 1}),
        (b'Exporting session: ses_1{\n  "a": [\n    {"b": 1}\n  ]\n}\n', {"a": [{"b": 1}]}),
        (b'[info] {x}\r\nExporting session: ses_1\r\n{\r\n  "a": 1\r\n}', {"a": 1}),
        (b'2026-11-27 10:00:00 Exporting\x1b[0m[\n{"a": 1},\n{"b": 2}\n]', [{"a": 1}, {"b": 2}]),
        ('Exporting session: ses_1{\n  "a": "上海"\n}'.encode("utf-16"), {"a": "上海"}),
        (b'Exporting {\n  "a": NaN\n}', {"a": None}),
    ],
)
def test_notice_before_a_value_is_left_out_and_named(data: bytes, expected: Any) -> None:
    document, ((where, why),) = found(data)
    assert (document, where) == (expected, "(the start)")
    assert why.startswith("not JSON: ") and "Exporting" in why and why.isprintable()


@pytest.mark.parametrize(
    "data", [b'Read {"a": 1} first.', b'# Guide\n```json\n{\n "a": 1\n}\n```\n', b"x" * 5_000 + b'{"a": 1}', b"{x} [y]"]
)
def test_json_within_a_text_is_no_document(data: bytes) -> None:
    with pytest.raises(Unreadable):
        found(data)


def test_log_without_its_start_is_read() -> None:
    document, left_out = found(b'ent": "Hi"}\n{"a": 1}\n{"b": 2}\n')
    assert document == [Line(2, {"a": 1}), Line(3, {"b": 2})]
    assert [where for where, _why in left_out] == ["line 1"]


def test_truncated_list_with_an_item_a_line_is_read() -> None:
    document, left_out = found(b'[\n{"a": 1},\n{"b": 2},\n{"c": 3},\n{"d": ')
    assert document == [Line(2, {"a": 1}), Line(3, {"b": 2}), Line(4, {"c": 3})]
    assert [where for where, _why in left_out] == ["line 1", "line 2", "line 3", "line 4", "line 5"]


def test_number_in_a_broken_line_is_ignored() -> None:
    document, left_out = found(b'2026-03-01 started\n{"a": 1}\n{"b": 2}\n')
    assert document == [Line(2, {"a": 1}), Line(3, {"b": 2})]
    assert [where for where, _why in left_out] == ["line 1"]


@pytest.mark.parametrize("line", [b'{"a": "caf\xe9"}', b'\xef\xbb\xbf{"a":\n"caf\xe9"}\n'])
def test_invalid_bytes_are_replaced_and_reported(line: bytes) -> None:
    replaced = "invalid UTF-8 was replaced by �"
    assert found(line) == ({"a": "caf\ufffd"}, [("(all)", replaced)])


def test_bytes_that_are_no_text_cost_themselves_in_lines_too() -> None:
    replaced = "invalid UTF-8 was replaced by �"
    assert found(b'{"a": "caf\xe9"}\n{"b": 2}\n') == (
        [Line(1, {"a": "caf\ufffd"}), Line(2, {"b": 2})],
        [("line 1", replaced)],
    )


def test_broken_line_is_reported_once_for_several_readings() -> None:
    left_out: list[str] = []
    lines = read(source(b'{"a": 1}\n{\n{"b": 2}\n{\n'), lambda where, _why: left_out.append(where))
    assert lines.head(1) == [{"a": 1}]
    assert left_out == []
    assert lines.head() == [{"a": 1}, {"b": 2}]
    assert [line.value for _time in range(2) for line in lines] == [{"a": 1}, {"b": 2}] * 2
    assert left_out == ["line 2", "line 4"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b'{"messages": [', "not JSON: no value begins at line 1, column 15"),
        (b'{"a" 1}', "not JSON: a colon is missing at line 1, column 6"),
        (b'{"a": 1\n"b": 2}', "not JSON: a comma is missing at line 2, column 1"),
        (b'{"a": "b', "not JSON: a text without an end begins at line 1, column 7"),
        (b"{a: 1}", "not JSON: no name in double quotes begins at line 1, column 2"),
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b"\xff\xfe\x00", "not JSON: "),
        (b'{"a": 1,}\n', "not JSON: "),
        (b"# A title\n\nand some text", "not JSON: "),
    ],
)
def test_text_other_than_json_reports_the_position(data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as error:
        found(data)
    assert str(error.value).startswith(reason)


def test_too_large_value_is_refused_but_any_number_of_lines_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_BYTES", 20)
    assert found(b'{"a": 1}\n' * 20) == ([Line(number, {"a": 1}) for number in range(1, 21)], [])
    with pytest.raises(Unreadable, match="one JSON value larger than 20 bytes; only JSON Lines files may be larger"):
        found(b'{\n"a": "01234567890123456789"\n}')
    assert found(b'{"a": 1}\n{"b": "01234567890123456789"}\n{"c": 3}\n') == (
        [Line(1, {"a": 1}), Line(3, {"c": 3})],
        [("line 2", "not JSON: more than 20 bytes")],
    )


def test_decoded_returns_the_value_or_the_position_of_the_error() -> None:
    assert decoded(b' {"a": 1} ') == {"a": 1}
    with pytest.raises(ValueError, match="several JSON values"):
        decoded(b"1 2")
    with pytest.raises(ValueError, match="no value"):
        decoded(b" ")


@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), min_size=1), min_size=2, max_size=8
    ),
    st.data(),
)
def test_any_broken_bytes_raise_only_unreadable(values: list[Any], data: st.DataObject) -> None:
    text = b"\n".join(json.dumps(value).encode() for value in values)
    cut, more = data.draw(st.integers(0, len(text))), data.draw(st.binary(max_size=4))
    with suppress(Unreadable):
        found(text[:cut] + more + text[cut:])


# --- Values of a document ---------------------------------------------------------------------------------------------

LINES = Lines(lambda: iter([Line(1, "a"), Line(3, "b")]))


@pytest.mark.parametrize(
    ("document", "first", "numbered"),
    [
        (LINES, ["a", "b"], [("line 1", "a"), ("line 3", "b")]),
        (["a", "b", "c"], ["a", "b"], [("[0]", "a"), ("[1]", "b"), ("[2]", "c")]),
        ({"a": 1}, [{"a": 1}], [("", {"a": 1})]),
    ],
)
def test_document_values_have_their_places(document: Any, first: list[Any], numbered: list[tuple[str, Any]]) -> None:
    assert first_values(document, 2) == first
    assert list(numbered_values(document)) == list(numbered_values(document)) == numbered


def test_archive_has_no_first_values() -> None:
    assert first_values(Files(("a.json",), lambda _name: {})) == []


@pytest.mark.parametrize(
    ("where", "place"),
    [("", "messages[0]"), ("line 12", "line 12: messages[0]"), ("[3]", "[3].messages[0]")],
)
def test_place_of_key_is_joined_to_place_of_value(where: str, place: str) -> None:
    assert join_place(where, "messages[0]") == place
    assert join_place(where, "") == where


# --- Texts --------------------------------------------------------------------------------------------------------------


def test_text_has_line_feeds_and_no_byte_order_mark() -> None:
    assert read_text(source("\ufeff# 上海\r\n\rb\n".encode()), skip_nothing) == Text("# 上海\n\rb\n")
    assert text_in("上海".encode()[:-1]) == Text("上\ufffd")


def test_text_that_is_not_utf8_is_replaced_and_reported() -> None:
    left_out: list[tuple[str, str]] = []
    text = read_text(source(b"# \xff"), lambda where, why: left_out.append((where, why)))
    assert (text, left_out) == (Text("# \ufffd"), [("(all)", "invalid UTF-8 was replaced by \ufffd")])


def test_text_larger_than_the_limit_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_BYTES", 10)
    with pytest.raises(Unreadable, match="a text larger than 10 bytes"):
        read_text(source(b"# " + b"a" * 9), skip_nothing)


def test_text_has_no_values_and_is_its_own_beginning() -> None:
    assert first_values(Text("# a")) == []
    assert beginning(Text("# a")) == Text("# a")


def skip_nothing(where: str, why: str) -> None:
    raise AssertionError(f"{where}: {why}")
