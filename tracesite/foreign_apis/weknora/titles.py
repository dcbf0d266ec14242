"""Titles without a model: the first user message on one line, shortened at a word. Without Django."""

from __future__ import annotations

LONGEST = 60


def title_from(text: str) -> str:
    """Return the beginning of a text, at most LONGEST characters; "" for blank text."""
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    beginning = line[:LONGEST]
    # A word may end exactly at the limit, and text without spaces is cut anywhere.
    whole_words = beginning[: beginning.rfind(" ")] if " " in beginning[LONGEST // 2 :] else beginning[:-1]
    return f"{whole_words.rstrip(' ,;:-')}…"
