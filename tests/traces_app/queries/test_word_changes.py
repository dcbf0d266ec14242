"""Changed texts word by word."""

from __future__ import annotations

import pytest

from traces_app.queries.word_changes import MOST_WORDS, WordChanges


@pytest.mark.parametrize(
    ("left", "right", "changed_left", "changed_right"),
    [
        ("pay order 12 now", "pay order 57 now", ["12"], ["57"]),
        ("a refund", "a refund today", [], [" today"]),
        ("上海今天晴", "上海明天晴", ["今"], ["明"]),
        ("same", "same", [], []),
        ("one", "two", [], []),
        ("Your card ended, so ask the bank.", "Done: 129 euros are on the way.", [], []),
    ],
)
def test_words_of_one_side_are_marked(left: str, right: str, changed_left: list[str], changed_right: list[str]) -> None:
    pieces = WordChanges(seconds=60).of(left, right)
    assert ["".join(text for text, _changed in side) for side in pieces] == [left, right]
    assert [[text for text, changed in side if changed] for side in pieces] == [changed_left, changed_right]


def test_long_texts_and_late_texts_are_whole() -> None:
    long = "word " * MOST_WORDS
    assert WordChanges(seconds=60).of(long, "word") == ([(long, False)], [("word", False)])
    assert WordChanges(seconds=-1).of("a b", "a c") == ([("a b", False)], [("a c", False)])
