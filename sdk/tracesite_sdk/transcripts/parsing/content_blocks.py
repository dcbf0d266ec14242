"""Map the content blocks of Anthropic's Messages API, which Claude Code and others store too.

* text, images, documents and other blocks that a person sees are content;
* thinking is reasoning; its signature, and thinking that was redacted, are metadata;
* tool_use, server_tool_use and mcp_tool_use are calls;
* tool_result, and web_search_tool_result and its like, are results; without a flag they succeeded, as the API defines.

A block of another kind is kept as a part of the content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tracesite_sdk.normalize.json_values import content, rest, text
from tracesite_sdk.transcripts.documents import Skip
from tracesite_sdk.transcripts.entries import Call, Result

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_RESULT = "tool_result"
_KNOWN = _CALLS | _THINKING | {"text", "image", "document", "search_result", "container_upload"}
_SHOWN = 60
"""Characters of an unknown type that a report shows."""
_MARKS = {
    "tool_use": "input",
    "server_tool_use": "input",
    "mcp_tool_use": "input",
    "tool_result": "tool_use_id",
    "thinking": "thinking",
    "redacted_thinking": "data",
    "image": "source",
    "document": "source",
}
"""The key that distinguishes a block from blocks of the same type in other formats."""


@dataclass(kw_only=True)
class Blocks:
    """The content of one message, sorted."""

    visible: list[Any] = field(default_factory=list)
    """Blocks that a person sees."""
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> str | list[Any] | None:
        """The text of a single visible text block, otherwise the visible blocks."""
        if len(self.visible) == 1:
            (only,) = self.visible
            if isinstance(only, str):
                return only
            if isinstance(only, dict) and only.keys() == {"type", "text"} and isinstance(only["text"], str):
                return only["text"]
        return self.visible or None

    @property
    def thought(self) -> str | None:
        return "\n\n".join(self.reasoning) or None


def has_marks(message_content: object) -> bool:
    """Return whether a content has blocks that occur only in this API."""
    return isinstance(message_content, list) and any(is_own(block) for block in message_content)


def is_own(block: object) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    if not isinstance(kind, str):
        return False
    return _MARKS.get(kind, "") in block or (kind.endswith("_" + _RESULT) and "tool_use_id" in block)


def blocks_of(message_content: object) -> list[Any]:
    """Return the blocks of a content; a text is one block."""
    if isinstance(message_content, list):
        return message_content
    value = [message_content] if isinstance(message_content, dict) else content(message_content)
    return value if isinstance(value, list) else [value] if value else []


def read_blocks(message_content: object, id_: str, where: str, skip: Skip) -> Blocks:
    """Sort the blocks of a message's content. The ids of results derive from `id_`, the id of the message's entry."""
    sorted_blocks = Blocks()
    for index, block in enumerate(blocks_of(message_content)):
        if isinstance(block, str):
            sorted_blocks.visible.append(block)
        elif isinstance(block, dict):
            _sort(sorted_blocks, block, f"{id_}#{index}")
        else:
            skip(f"{where}[{index}]", "not a content block")
    return sorted_blocks


def report_unknown(message_content: object, where: str, skip: Skip) -> None:
    """Report the blocks of unknown type, which are kept as parts of the content."""
    for index, block in enumerate(blocks_of(message_content)):
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind not in _KNOWN and not _is_result(block):
            skip(f"{where}[{index}]", f"a block of an unknown type, {kind[:_SHOWN]}: kept as a part of the content")


def turns_of(blocks: list[Any]) -> Iterator[list[Any]]:
    """Split the blocks of one response after results of tools that the provider ran: another reply follows them."""
    part: list[Any] = []
    for block in blocks:
        if part and _is_result(part[-1]) and not _is_result(block):
            yield part
            part = []
        part.append(block)
    yield part


def _is_result(block: object) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and (kind == _RESULT or kind.endswith("_" + _RESULT))


def _sort(blocks: Blocks, block: dict[str, Any], result_id: str) -> None:
    kind = text(block.get("type"))
    if kind in _CALLS:
        blocks.calls.append(_call(block))
    elif _is_result(block):
        blocks.results.append(_result(block, result_id))
    elif kind in _THINKING:
        _think(blocks, block)
    else:
        blocks.visible.append(block)


def _think(blocks: Blocks, block: dict[str, Any]) -> None:
    thinking = block.get("thinking")
    if isinstance(thinking, str) and thinking:
        blocks.reasoning.append(thinking)
    others = rest(block, ("type", "thinking") if isinstance(thinking, str) else ("type",))
    if others:
        blocks.metadata.setdefault("thinking", []).append({"type": block["type"], **others})


def _call(block: dict[str, Any]) -> Call:
    return Call(
        id=text(block.get("id")),
        name=text(block.get("name")) or "",
        args=block.get("input"),
        metadata=rest(block, {"id", "name", "input"} | ({"type"} if block["type"] == "tool_use" else set())),
    )


def _result(block: dict[str, Any], id_: str) -> Result:
    answered, output = text(block.get("tool_use_id")), block.get("content")
    failed = block.get("is_error")
    if not isinstance(failed, bool):
        kind = output.get("type") if isinstance(output, dict) else None
        failed = isinstance(kind, str) and kind.endswith("_error")
    return Result(
        id=id_,
        output="" if output is None else output,
        failed=failed,
        call_ids=[answered] if answered else [],
        metadata=rest(
            block, {"tool_use_id", "content", "is_error"} | ({"type"} if block["type"] == _RESULT else set())
        ),
    )
