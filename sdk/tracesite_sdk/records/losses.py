"""Loss reports from recorders: dropped, sampled, truncated and redacted data, by path.

Pure functions. An event holds them in its data: counters in `recorder`, paths in `truncated` and
`redactions`. The paths are those of the event's data; they are stored as paths of the row's fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from tracesite_sdk.redaction.engine import Receipt

from . import ToolCall, text_fields
from .health_flags import EVENTS_DROPPED, SAMPLED, TRUNCATED
from .request_parts import part_of

COUNTED = ("dropped", "failed", "sampled_out", "truncated", "redacted")
"""The counters in `recorder`."""
Owner = Literal["session", "question", "answer", "step", "call"]
About = Literal["run", "step", "call"]

_MOST = 10**15
"""A limit that no real trace reaches, so that sums fit into a bigint."""
_LONGEST_PATH = 1000
_HEAD = re.compile(r"([^.\[]*)(.*)", re.DOTALL)
# The names in the data of an event, and the fields that they become.
_OF_A_CALL = {
    **dict.fromkeys(("args", "params", "arguments", "input"), "args"),
    **dict.fromkeys(("result", "tool_result", "toolResult"), "result"),
    "error": "result.error",
    **{name: name for name in text_fields(ToolCall)},
    "metadata": "metadata",
}
_OF_A_STEP = {
    **dict.fromkeys(("thought", "text", "content", "output"), "thought"),
    **dict.fromkeys(("reasoning_content", "reasoning", "thinking"), "reasoning_content"),
    "error": "metadata.error",
    "usage": "usage",
    "metadata": "metadata",
    **dict.fromkeys(("conversation", "messages", "currentMessages"), "input.messages"),
    **{name: f"input.{name}" for name in ("system", "tools", "parameters")},
}
_OF_A_RUN: Mapping[str, tuple[Owner, str]] = {
    **dict.fromkeys(("prompt", "task_prompt", "taskPrompt"), ("question", "content")),
    **dict.fromkeys(("result", "tool_result", "toolResult", "content"), ("answer", "content")),
    **{name: ("answer", name) for name in ("error", "usage", "metadata")},
    "references": ("answer", "knowledge_references"),
    **{name: ("session", name) for name in ("title", "workflow")},
}


class LostField(NamedTuple):
    """The field of a row to which a path in an event's data leads."""

    owner: Owner
    path: str


class Cut(NamedTuple):
    """A value that the recorder truncated."""

    path: str
    bytes: int
    """Its length before."""

    def document(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.bytes}


def counts_of(data: Mapping[str, Any]) -> dict[str, int]:
    """Return the counters in one event."""
    said = data.get("recorder")
    if not isinstance(said, dict):
        return {}
    return {name: said[name] for name in COUNTED if _is_count(said.get(name)) and said[name]}


def added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    sums = {name: min(counts.get(name, 0) + more.get(name, 0), _MOST) for name in COUNTED}
    return {name: number for name, number in sums.items() if number}


def cuts_of(data: Mapping[str, Any]) -> list[Cut]:
    """Return the truncated values that one event lists; anything but such a list is ignored."""
    said = data.get("truncated")
    return [
        Cut(item["path"][:_LONGEST_PATH], item["bytes"])
        for item in (said if isinstance(said, list) else ())
        if isinstance(item, dict) and isinstance(item.get("path"), str) and _is_count(item.get("bytes"))
    ]


def receipts_of(data: Mapping[str, Any]) -> list[Receipt]:
    """Return the redactions that one event lists; anything but such a list is ignored."""
    said = data.get("redactions")
    return [
        Receipt(item["path"][:_LONGEST_PATH], item["rule"][:100], _count_of(item))
        for item in (said if isinstance(said, list) else ())
        if isinstance(item, dict) and isinstance(item.get("path"), str) and isinstance(item.get("rule"), str)
    ]


def _count_of(receipt: Mapping[str, Any]) -> int:
    count = receipt.get("count", 1)
    return count if isinstance(count, int) and not isinstance(count, bool) and 1 <= count < 2**31 else 1


def flags_of(counts: Mapping[str, int], cuts: Iterable[Any]) -> set[str]:
    """Return the health flags of a message with these losses."""
    flags = set()
    if counts.get("dropped") or counts.get("failed"):
        flags.add(EVENTS_DROPPED)
    if counts.get("sampled_out"):
        flags.add(SAMPLED)
    if counts.get("truncated") or any(True for _cut in cuts):
        flags.add(TRUNCATED)
    return flags


def place_of(path: str, about: About) -> LostField | None:
    """Return the field to which `path` in the data of an event leads, or None if no row has it."""
    path = path.removeprefix("data.")
    head, rest = _split(path)
    if about == "call":
        return LostField("call", f"{_OF_A_CALL[head]}{rest}") if head in _OF_A_CALL else None
    if about == "step":
        if head == "request":
            return LostField("step", f"input{_in_request(rest)}")
        return LostField("step", f"{_OF_A_STEP[head]}{rest}") if head in _OF_A_STEP else None
    if head == "session":
        return LostField("session", rest.removeprefix(".")) if rest else None
    if head not in _OF_A_RUN:
        return None
    owner, field = _OF_A_RUN[head]
    if field == "content" and rest.startswith("["):
        field = "content_parts"
    return LostField(owner, f"{field}{rest}")


def _in_request(path: str) -> str:
    """Return the path in an input of a path in a request, which may be a list of messages."""
    if not path.startswith("."):
        return f".messages{path}" if path else ""
    name, rest = _split(path[1:])
    return f".{part_of(name)}{rest}"


def cuts_at(data: Mapping[str, Any], about: About) -> list[tuple[Owner, Cut]]:
    """Return the truncated values of one event with their owners. A path that no row has belongs to the event's subject."""
    default: Owner = "answer" if about == "run" else about
    cuts_found = []
    for cut in cuts_of(data):
        place = place_of(cut.path, about)
        if place is None or place.owner == "session":
            # Not the session, because which of its messages was truncated matters more.
            place = LostField(default, cut.path.removeprefix("data."))
        cuts_found.append((place.owner, cut._replace(path=place.path)))
    return cuts_found


def documents(cuts: Iterable[Cut]) -> list[dict[str, Any]]:
    """Return them for the metadata, each once."""
    return [cut.document() for cut in dict.fromkeys(cuts)]


def _split(path: str) -> tuple[str, str]:
    match = _HEAD.match(path)
    assert match is not None, "it matches everything"
    return match[1], match[2]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
