"""Lines of Markdown that say whether they are code, and texts in tags. For formats; everything takes linear time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from operator import methodcaller
from typing import NamedTuple

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_MAY_BE_A_FENCE = methodcaller("startswith", (" ", "`", "~"))
_FENCE_LINE = re.compile(rf"^{_FENCE.pattern}", re.MULTILINE)


class MarkdownLine(NamedTuple):
    number: int
    """Counted from 1, beginning with the first that is asked for."""
    start: int
    """Its place in the text."""
    text: str
    code: str | None
    """In a fenced block, its fences included, what the first fence says (a language, or ""); None elsewhere."""
    is_fence: bool

    @property
    def is_code(self) -> bool:
        return self.code is not None


def markdown_lines(text: str, start: int = 0, end: int | None = None) -> Iterator[MarkdownLine]:
    """Yield the lines between two places of a text, the first of which begins a line.

    A fence that is not closed is none, and neither is one after it.
    """
    end = len(text) if end is None else end
    last_fence = _unclosed(text, start, end)
    number, opened = 1, None
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        line = text[start:stop]
        found = _FENCE.fullmatch(line) if start < last_fence and _MAY_BE_A_FENCE(line) else None
        if opened is None and found is not None and _opens(found):
            opened = found
            yield MarkdownLine(number, start, line, found["info"].strip(), True)
        elif opened is not None and found is not None and _closes(found, opened):
            yield MarkdownLine(number, start, line, opened["info"].strip(), True)
            opened = None
        else:
            yield MarkdownLine(number, start, line, None if opened is None else opened["info"].strip(), False)
        number, start = number + 1, stop + 1


def _unclosed(text: str, start: int, end: int) -> int:
    """Return the place of the fence that is not closed; `end` if there is none."""
    opened: re.Match[str] | None = None
    for found in _FENCE_LINE.finditer(text, start, end):
        if opened is None:
            opened = found if _opens(found) else None
        elif _closes(found, opened):
            opened = None
    return end if opened is None else opened.start()


def _opens(found: re.Match[str]) -> bool:
    return found["fence"][0] == "~" or "`" not in found["info"]


def _closes(found: re.Match[str], opened: re.Match[str]) -> bool:
    return found["fence"].startswith(opened["fence"]) and not found["info"].strip()


def split_tags(said: str, typed: Collection[str], added: Collection[str]) -> tuple[str, str]:
    """Return what a user typed in the text of a prompt, and the rest, which the client added.

    Typed is what stands in the tags `typed`, as in `<task>...</task>`; without any of them all but the tags `added`.
    """
    found = list(tagged(said, typed))
    inside = [said[begin:stop] for _start, begin, stop, _end in found]
    found = found or list(tagged(said, added))
    around = [said[start:end] for start, _begin, _stop, end in found]
    places = [0, *(place for start, _begin, _stop, end in found for place in (start, end)), len(said)]
    outside = [said[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]
    return (_joined(inside), _joined(outside)) if inside else (_joined(outside), _joined(around))


def _joined(pieces: list[str]) -> str:
    return "\n\n".join(stripped for piece in pieces if (stripped := piece.strip()))


def tagged(said: str, tags: Collection[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the places of texts in tags: of the tag, of the text, of its end, and of the end of the tag."""
    if not tags:
        return
    opening = re.compile(f"<({'|'.join(map(re.escape, tags))})>")
    unclosed: set[str] = set()
    at = 0
    while (found := opening.search(said, at)) is not None:
        at = found.end()
        stop = -1 if found[1] in unclosed else said.find(f"</{found[1]}>", at)
        if stop < 0:
            unclosed.add(found[1])
            continue
        end = stop + len(found[1]) + 3
        yield found.start(), at, stop, end
        at = end
