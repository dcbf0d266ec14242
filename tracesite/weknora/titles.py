"""A title without a model: what the user said first, on one line, shortened at a word. Pure, without Django."""

from __future__ import annotations

LONGEST = 60


def title_from(text: str) -> str:
    """The beginning of a text, at most LONGEST characters; "" of a text that says nothing."""
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    beginning = line[:LONGEST]
    # A word may end exactly there, and text without spaces has no words to be cut at.
    whole_words = beginning[: beginning.rfind(" ")] if " " in beginning[LONGEST // 2 :] else beginning[:-1]
    return f"{whole_words.rstrip(' ,;:-')}…"
