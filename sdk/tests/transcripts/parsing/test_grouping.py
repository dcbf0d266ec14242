"""Grouping of a log: each group is yielded as soon as it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracesite_sdk.transcripts.documents import Skip, skip_silently
from tracesite_sdk.transcripts.parsing.grouping import together


def by_first_letter(words: Iterable[str]) -> Iterator[str]:
    return (word[0] for word in words)


def test_groups_are_given_out_with_their_last_member() -> None:
    words = ["a1", "b1", "a2", "c1", "b2"]
    assert list(together(lambda _skip: words, by_first_letter, skip_silently)) == [["a1", "a2"], ["c1"], ["b1", "b2"]]


def test_only_open_groups_are_held_and_omissions_reported_once() -> None:
    read: list[str] = []
    told: list[str] = []

    def words(skip: Skip) -> Iterator[str]:
        skip("[0]", "no word")
        for word in ("a1", "b1", "a2", "c1"):
            read.append(word)
            yield word

    groups = together(words, by_first_letter, lambda where, _why: told.append(where))
    assert (next(groups), read, told) == (["b1"], ["a1", "b1", "a2", "c1", "a1", "b1"], ["[0]"])


def test_empty_log_has_no_groups() -> None:
    assert list(together(lambda _skip: [], by_first_letter, skip_silently)) == []
