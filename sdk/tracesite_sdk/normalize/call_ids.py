"""Repair ids and names of calls that a provider repeated.

Some providers repeat the id and the name of a call in every chunk of a stream, and clients join them: "call_7call_7",
"searchsearchsearch". An unmistakable repetition is folded; the received text is kept in the metadata.

Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Container

HANDOFF_PREFIX = "transfer_to_"
"""Prefixes of tools with which agent frameworks hand a conversation to another agent. Such a call needs no result."""

_SHORTEST = 6
"""A shorter unit may be repeated by chance: "11", "abab", "tartar"."""
_PREFIXES = ("call_", "call-", "toolu_", "tooluse_", "chatcmpl-tool-", "fc_", "ctc_", "mcp_", "functions.")
_HAS_LETTER = re.compile(r"[^\W\d_]")


def may_be_repeated(text: str) -> bool:
    """Return False quickly for nearly all ids and names, whose first characters do not occur again."""
    return text[:3] in text[3:] and text != ""


def folded(id_: str) -> str:
    """Return the unit of an id that repeats one unit, and any other id unchanged.

    The unit is the shortest possible. It has a letter, and at least six characters or a common prefix of ids, because
    short ids and numbers may legitimately repeat.
    """
    unit = _unit(id_) if may_be_repeated(id_) else id_
    return unit if _looks_like_an_id(unit) else id_


def folded_name(name: str, *, known: Container[str] = (), times: int = 1) -> str:
    """Do the same for the name of a tool. A shorter unit is accepted if it is `known` as the name of a tool, or if the name
    is repeated as many `times` as the id of its call."""
    unit = _unit(name) if may_be_repeated(name) else name
    if unit in known or (len(unit) >= _SHORTEST and _HAS_LETTER.search(unit)):
        return unit
    part = name[: len(name) // times]
    return part if part * times == name else name


def handoff_target(name: str) -> str | None:
    """Return the agent to which a call of this name hands over ("" if unnamed), or None for an ordinary tool."""
    return name[len(HANDOFF_PREFIX) :] if name.startswith(HANDOFF_PREFIX) else None


def _unit(text: str) -> str:
    """Return the shortest unit that `text` repeats, or `text` itself."""
    # A text occurs again in its own double at an offset equal to its period.
    return text[: (text + text).index(text, 1)]


def _looks_like_an_id(unit: str) -> bool:
    if _HAS_LETTER.search(unit) is None:
        return False
    return len(unit) >= _SHORTEST or any(unit.startswith(p) and len(unit) > len(p) for p in _PREFIXES)
