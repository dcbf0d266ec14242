"""Texts of traces on a terminal: nothing in them controls it, and long lines are folded at its width."""

from __future__ import annotations

import re
import unicodedata

NARROWEST = 40
# C0 and C1 controls except tab and line feed; what changes the reading direction; line and paragraph separators.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[^`]*")
_BULLET = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)]|#{1,6}) )?")
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff"
# A command stays whole, because people copy it; scripts without spaces break between any two characters.
_PIECE = re.compile(rf"\s+|[{_WIDE}]|(?:`tracesite [^`]*`|[^\s{_WIDE}])+")


def harmless(text: str) -> str:
    """Return a text in which control characters are replaced."""
    return _CONTROLS.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the same as one line."""
    return " ".join(harmless(text).split())


def harmless_json(text: str) -> str:
    """Return the same JSON, with control characters written as escapes."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def folded(markdown: str, width: int) -> str:
    """Return Markdown with lines of at most `width` columns, 40 at least, as far as words allow; further lines of an item are
    indented like its text. Code blocks stay as they are."""
    width = max(width, NARROWEST)
    lines = []
    fence = ""
    for line in markdown.split("\n"):
        if fence:
            closing = line.strip()
            fence = "" if len(closing) >= len(fence) and set(closing) == {fence[0]} else fence
            lines.append(line)
        elif found := _FENCE.fullmatch(line):
            fence = found[1]
            lines.append(line)
        else:
            lines += _fold(line, width)
    return "\n".join(lines)


def _fold(line: str, width: int) -> list[str]:
    bullet = _BULLET.match(line)
    assert bullet is not None, "it matches the empty text"
    indent = " " * min(_columns(bullet[0]), width // 2)
    lines, current, used = [], bullet[0], _columns(bullet[0])
    is_empty = True
    for piece in _PIECE.findall(line[bullet.end() :]):
        size = _columns(piece)
        if used + size > width and not is_empty:
            lines.append(current.rstrip())
            current, used, is_empty = indent, len(indent), True
        if is_empty and piece.isspace():
            continue
        current, used, is_empty = current + piece, used + size, False
    return [*lines, current.rstrip() if is_empty and lines else current]


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
