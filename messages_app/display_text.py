"""Remove the JSON of tools from the text of answers before it is shown.

A model may repeat the output of a tool in its answer: alone, between two sentences, or in a fenced code block. People see
the text without it; the stored text is unchanged. Other JSON, such as a requested example, stays: only shapes that are not
written for readers are removed (`_is_of_a_tool`).

Pure Python, without Django.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MOST_TRIED = 200
"""Maximum number of opening brackets that are tried, because a text may consist of them."""
_OPENING = re.compile(r'\{\s*"|\[\s*\{\s*"')
# The fence of a code block with nothing but one value is removed with it.
_FENCE_BEFORE = re.compile(r"```[a-z]*\s*\Z")
_FENCE_AFTER = re.compile(r"\s*```")
_BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_MARKERS = (
    "needs_clarification",
    "success",
    "schema_context",
    "value_mappings",
    "query_intent",
    *("table_id", "column_id"),
)
_ANALYSIS_KEYS = frozenset(
    ["schema_context", "value_mappings", "query_intent", "entities", "relationships", "analysis"]
)
_OUTCOME_KEYS = frozenset(["error", "data", "message", "result", "analysis", "metadata"])
_TABLE_KEYS = frozenset(["table_id", "column_id", "schema_name", "relevance_score", "reasoning"])
_read_value = json.JSONDecoder().raw_decode


def without_tool_json(text: str) -> str:
    """Return `text` without the JSON of tools; the same object if it has none."""
    if "{" not in text or not any(word in text for word in _MARKERS):
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
    """Return whether a value has the shape of a tool's output; `is_all` if the text has nothing else."""
    if isinstance(value, list):
        first = value[0] if value else None
        # A single key may be a coincidence; two are from a search for tables and columns.
        return isinstance(first, dict) and len(first.keys() & _TABLE_KEYS) >= 2
    if isinstance(value.get("needs_clarification"), bool):
        return True
    if isinstance(value.get("success"), bool):
        # With text around it, it may be a requested example of an API's response.
        return isinstance(value.get("questions"), list) or (is_all and not _OUTCOME_KEYS.isdisjoint(value))
    return len(value.keys() & _ANALYSIS_KEYS) >= 2


def _with_fence(text: str, start: int, end: int) -> tuple[int, int]:
    before, after = _FENCE_BEFORE.search(text, max(0, start - 40), start), _FENCE_AFTER.match(text, end)
    return (before.start(), after.end()) if before and after else (start, end)
