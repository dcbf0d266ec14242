"""The text of an answer without the JSON of tools that some agents let slip into it.

An agent that passes the output of a tool through its model may have it repeated in the answer: whole, between two
sentences, or in a fence of code. People are shown the text without it; what is stored stays as it was said. Ordinary
JSON, which somebody asked for, stays too: only shapes that nobody writes for a reader are taken out (`_is_of_a_tool`).

Pure Python, without Django.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MOST_TRIED = 200
"""Openings of an object or list that are tried: a text of nothing else must not take long."""
_OPENING = re.compile(r'\{\s*"|\[\s*\{\s*"')
# A fence of code that holds nothing but one value goes with it.
_FENCE_BEFORE = re.compile(r"```[a-z]*\s*\Z")
_FENCE_AFTER = re.compile(r"\s*```")
_BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_TELLING = (
    "needs_clarification",
    "success",
    "schema_context",
    "value_mappings",
    "query_intent",
    *("table_id", "column_id"),
)
_OF_AN_ANALYSIS = frozenset(
    ["schema_context", "value_mappings", "query_intent", "entities", "relationships", "analysis"]
)
_OF_AN_OUTCOME = frozenset(["error", "data", "message", "result", "analysis", "metadata"])
_OF_A_TABLE = frozenset(["table_id", "column_id", "schema_name", "relevance_score", "reasoning"])
_read_value = json.JSONDecoder().raw_decode


def without_tool_json(text: str) -> str:
    """`text` without the JSON of tools; itself where there is none."""
    if not any(word in text for word in _TELLING):
        return text
    kept, at, start = [], 0, 0
    for _opening in range(_MOST_TRIED):
        opening = _OPENING.search(text, start)
        if opening is None:
            break
        try:
            value, end = _read_value(text, opening.start())
        except (ValueError, RecursionError):
            start = opening.start() + 1
            continue
        start = end
        first, end = _with_fence(text, opening.start(), end)
        if _is_of_a_tool(value, is_all=not (text[:first].strip() or text[end:].strip())):
            kept.append(text[at:first])
            at = start = end
    if not kept:
        return text
    return _BLANK_LINES.sub("\n\n", "".join([*kept, text[at:]])).strip()


def _is_of_a_tool(value: Any, *, is_all: bool) -> bool:
    """Whether a value has one of the shapes in which tools answer; `is_all` where there is nothing else in the text."""
    if isinstance(value, list):
        first = value[0] if value else None
        # One of these words is anybody's, two are those of a search for tables and columns.
        return isinstance(first, dict) and len(first.keys() & _OF_A_TABLE) >= 2
    if isinstance(value.get("needs_clarification"), bool):
        return True
    if isinstance(value.get("success"), bool):
        # Who asked how an API answers gets an example of this, with words around it.
        return isinstance(value.get("questions"), list) or (is_all and not _OF_AN_OUTCOME.isdisjoint(value))
    return len(value.keys() & _OF_AN_ANALYSIS) >= 2


def _with_fence(text: str, start: int, end: int) -> tuple[int, int]:
    before, after = _FENCE_BEFORE.search(text, max(0, start - 40), start), _FENCE_AFTER.match(text, end)
    return (before.start(), after.end()) if before and after else (start, end)
