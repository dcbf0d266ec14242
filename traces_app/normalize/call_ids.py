"""Ids and names of calls as a provider meant them.

Some providers repeat the id and the name of a call in every chunk of a stream, and clients join them: "call_7call_7",
"searchsearchsearch". Such a repetition is folded where it can be nothing else; what was received stays in the metadata.

Pure functions, without Django.
"""

from __future__ import annotations

import re
from collections.abc import Container

HANDOFF_PREFIX = "transfer_to_"
"""The names by which agent frameworks hand a conversation to another agent: such a call needs no result."""

_SHORTEST = 6
"""A unit of fewer characters may be there twice by chance: "11", "abab", "tartar"."""
_PREFIXES = ("call_", "call-", "toolu_", "tooluse_", "chatcmpl-tool-", "fc_", "ctc_", "mcp_", "functions.")
_HAS_LETTER = re.compile(r"[^\W\d_]")


def may_be_repeated(text: str) -> bool:
    """A quick look that leaves out nearly all ids and names: their first characters do not come again."""
    return text[:3] in text[3:] and text != ""


def folded(id_: str) -> str:
    """An id that is one unit, twice or more times, as that unit; any other id as it is.

    The unit is the shortest there is. It has a letter, and at least six characters or a prefix that providers give to
    ids: short ids and numbers repeat themselves without anything being wrong.
    """
    unit = _unit(id_) if may_be_repeated(id_) else id_
    return unit if _looks_like_an_id(unit) else id_


def folded_name(name: str, *, known: Container[str] = (), times: int = 1) -> str:
    """A tool's name likewise. A shorter unit is one where it is `known` as a tool's name, or where the name is repeated
    as many `times` as the id of its call was."""
    unit = _unit(name) if may_be_repeated(name) else name
    if unit in known or (len(unit) >= _SHORTEST and _HAS_LETTER.search(unit)):
        return unit
    part = name[: len(name) // times]
    return part if part * times == name else name


def handoff_target(name: str) -> str | None:
    """The agent that a call of this name hands over to ("" where it does not say); None where it is an ordinary tool."""
    return name[len(HANDOFF_PREFIX) :] if name.startswith(HANDOFF_PREFIX) else None


def _unit(text: str) -> str:
    """The shortest text that `text` is a repetition of, itself where it is none."""
    # Shifted by its own period, and by nothing less, a text lies on itself.
    return text[: (text + text).index(text, 1)]


def _looks_like_an_id(unit: str) -> bool:
    if _HAS_LETTER.search(unit) is None:
        return False
    return len(unit) >= _SHORTEST or any(unit.startswith(p) and len(unit) > len(p) for p in _PREFIXES)
