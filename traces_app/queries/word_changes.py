"""Two texts word by word: which words are only in one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from time import monotonic

MOST_WORDS = 800
"""Longer texts are not compared word by word, because that takes up to the square of their length."""
LEAST_COMMON = 0.4
"""The least common part of the shorter text's words. Marks on almost every word would say nothing."""
_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without spaces between words: each character counts as one."""
_WORD = re.compile(rf"[{_WIDE}]|[^\W{_WIDE}]+|\s+|[^\w\s]")

Pieces = Sequence[tuple[str, bool]]
"""Parts of a text in order, and whether each is only in this text."""


class WordChanges:
    """Compare texts word by word until a time is used up; later texts are returned in one piece."""

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    def of(self, left: str, right: str) -> tuple[Pieces, Pieces]:
        """Return the pieces of both texts. Texts that have few words in common are in one piece, too."""
        whole = [(left, False)], [(right, False)]
        if left == right or monotonic() > self._until:
            return whole
        old, new = _WORD.findall(left), _WORD.findall(right)
        if max(len(old), len(new)) > MOST_WORDS:
            return whole
        codes = SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
        common = sum(_count(old[i:j]) for tag, i, j, _m, _n in codes if tag == "equal")
        if common < LEAST_COMMON * min(_count(old), _count(new)) or not common:
            return whole
        return (
            [("".join(old[i:j]), tag != "equal") for tag, i, j, _m, _n in codes if i < j],
            [("".join(new[m:n]), tag != "equal") for tag, _i, _j, m, n in codes if m < n],
        )


def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case, without spaces and signs."""
    return {word.casefold() for word in _WORD.findall(text) if word[0].isalnum()}


def _count(parts: Sequence[str]) -> int:
    """Return the number of words, without spaces and signs."""
    return sum(part[0].isalnum() for part in parts)
