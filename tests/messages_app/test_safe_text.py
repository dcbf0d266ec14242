"""Display of trace content: escaped, without hidden characters, long values folded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from html import unescape

import pytest
from django.utils import translation
from django.utils.formats import date_format, get_format
from hypothesis import given
from hypothesis import strategies as st

from messages_app.safe_text import (
    MOST_MARKS,
    Excerpt,
    age,
    duration,
    excerpt,
    json_excerpt,
    moment,
    one_line,
    tokens_in_words,
    visible,
)


def test_markup_is_shown_as_text() -> None:
    assert visible("<script>alert('x')</script> & \"q\"") == (
        "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;q&quot;"
    )


@pytest.mark.parametrize(
    ("character", "name", "code"),
    [
        ("\x1b", "ESC", "U+001B"),
        ("\x00", "NUL", "U+0000"),
        ("\r", "CR", "U+000D"),
        ("\x7f", "DEL", "U+007F"),
        ("\x9b", "U+009B", "U+009B"),
        ("\u202e", "U+202E", "U+202E"),
        ("\u2066", "U+2066", "U+2066"),
        ("\u200b", "U+200B", "U+200B"),
        ("\u2028", "U+2028", "U+2028"),
        ("\ufeff", "U+FEFF", "U+FEFF"),
        ("\U000e0041", "U+E0041", "U+E0041"),
    ],
)
def test_hidden_characters_are_shown_as_named_marks(character: str, name: str, code: str) -> None:
    assert visible(f"a{character}b") == f'a<span class="mark" title="{code}">{name}</span>b'


def test_characters_of_scripts_and_emoji_are_unchanged() -> None:
    text = "tab\tline\n上海之行 👩\u200d💻 می\u200cخواهم e\u0301"
    assert visible(text) == text
    assert visible("one\r\ntwo") == "one\ntwo"


def test_only_the_first_hidden_characters_are_named() -> None:
    shown = visible("\u200b" * (MOST_MARKS + 2) + "<")
    assert shown.count('<span class="mark"') == MOST_MARKS
    assert shown.endswith("</span>\ufffd\ufffd&lt;")


@given(st.text())
def test_any_text_is_escaped(text: str) -> None:
    without_marks = visible(text).replace('<span class="mark" title="', "").replace("</span>", "")
    assert "<" not in without_marks


def test_short_value_is_not_folded() -> None:
    assert excerpt("hello") == Excerpt(head="hello", shown_bytes=5, total_bytes=5)
    assert not excerpt("")
    assert not excerpt(None)


def test_many_lines_are_folded_after_twelve() -> None:
    lines = [f"line {number}\n" for number in range(40)]
    found = excerpt("".join(lines))
    assert (found.head, found.rest) == ("".join(lines[:12]), "".join(lines[12:]))


def test_long_line_is_folded_between_words() -> None:
    found = excerpt("word " * 1000)
    assert (len(found.head), len(found.rest)) == (500, 4500)
    found = excerpt("longer-word " * 1000)
    assert found.head.endswith("longer-word ")
    assert 440 < len(found.head) <= 500


def test_long_line_without_spaces_is_folded() -> None:
    found = excerpt("x" * 10_000)
    assert (len(found.head), len(found.rest)) == (500, 9_500)


def test_slightly_long_value_is_not_folded() -> None:
    assert excerpt("x" * 620).rest == ""
    assert excerpt("x\n" * 15).rest == ""


@given(st.text(alphabet=st.sampled_from("ab \n"), max_size=2_000))
def test_head_and_rest_of_excerpt_are_the_whole_text(text: str) -> None:
    found = excerpt(text)
    assert found.head + found.rest == text


def test_excerpt_of_cut_value_counts_all_its_bytes() -> None:
    found = excerpt("上海", total_bytes=1000)
    assert (found.shown_bytes, found.total_bytes, found.is_cut) == (6, 1000, True)
    assert not excerpt("a\r\nb", total_bytes=4).is_cut


def test_json_excerpt_of_empty_object_is_empty() -> None:
    assert not json_excerpt("{\n}", 3)
    assert not json_excerpt("[\n]", 3)
    assert not json_excerpt(None)
    assert json_excerpt('{\n    "a": 1\n}').head == '{\n    "a": 1\n}'


def test_one_line_is_bounded_and_without_hidden_characters() -> None:
    assert one_line("  two\n\n words ", 80) == "two words"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert one_line("cod\u202egnp.exe\x1b", 80) == "cod\ufffdgnp.exe\ufffd"
    assert one_line(None, 80) == ""


def test_one_line_with_direction_marks_leaves_them_out() -> None:
    # As in Arabic and Hebrew text; they are invisible and affect only their own position.
    assert one_line("\u200fשלום (1)\u200f!", 80) == "שלום (1)!"
    assert one_line("abc\u200e \u061c", 80) == "abc"
    # Overrides and isolates could disguise a name.
    assert one_line("\u202dabc\u2066", 80) == "\ufffdabc\ufffd"


@pytest.mark.parametrize(
    ("milliseconds", "english", "chinese"),
    [
        (None, "", ""),
        (0, "0 ms", "0 毫秒"),
        (999, "999 ms", "999 毫秒"),
        (1000, "1.0 s", "1.0 秒"),
        (59_949, "59.9 s", "59.9 秒"),
        (59_950, "1 min 0 s", "1 分 0 秒"),
        (61_499, "1 min 1 s", "1 分 1 秒"),
        (3_600_000, "1 h 0 min", "1 小时 0 分"),
        (90_061_000, "25 h 1 min", "25 小时 1 分"),
    ],
)
def test_durations_read_as_people_say_them(milliseconds: int | None, english: str, chinese: str) -> None:
    with translation.override("en"):
        assert duration(milliseconds) == english
    with translation.override("zh-hans"):
        assert duration(milliseconds) == chinese


def test_moment_is_in_utc_and_title_names_zone() -> None:
    instant = datetime(2026, 3, 1, 20, 0, 1, 999_999, tzinfo=timezone(timedelta(hours=8)))
    assert moment(instant) == (
        '<time datetime="2026-03-01T12:00:01.999999+00:00" title="2026-03-01 12:00:01 UTC">2026-03-01 12:00:01</time>'
    )
    assert moment(instant.astimezone(UTC)) == moment(instant)
    assert moment(None) == ""


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_django_formats_times_as_iso_with_zone(language: str) -> None:
    instant = datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
    with translation.override(language):
        assert date_format(instant, "DATETIME_FORMAT") == "2026-03-01 12:00:01 UTC"
        assert date_format(instant, "DATE_FORMAT") == "2026-03-01"
        assert get_format("DATE_INPUT_FORMATS")[0] == "%Y-%m-%d"
        assert get_format("TIME_INPUT_FORMATS")[0] == "%H:%M:%S"


def test_marks_can_be_read_back() -> None:
    assert unescape(visible("<\u202e>")) == '<<span class="mark" title="U+202E">U+202E</span>>'


@pytest.mark.parametrize(
    ("language", "since", "tokens"),
    [
        ("en", "7\xa0hours, 56\xa0minutes", "875 (711 in, 164 out)"),
        ("zh-hans", "7\xa0小时 56\xa0分钟", "875（输入 711，输出 164）"),
    ],
)
def test_age_and_tokens_have_the_punctuation_of_the_language(language: str, since: str, tokens: str) -> None:
    with translation.override(language):
        assert age(datetime.now(UTC) - timedelta(hours=7, minutes=56, seconds=10)) == since
        assert tokens_in_words(711, 164) == tokens
    assert age(None) == ""
