"""Read conversations of claude.ai: `conversations.json` of the data export, or one conversation as loaded by the site.

A conversation has a `uuid`, a `name`, and `chat_messages` whose `content` are blocks of Anthropic's API (see
content_blocks.py); older exports have only their `text`.

* The `human` is the user; `attachments` (with their extracted text) and `files` are parts of the prompt.
* A message of the `assistant` is one reply up to the results of its tools, and another reply after them. All tools run
  on the provider's servers or through its connectors. Calls and results without ids are matched by name and order. A
  reply begins with its first block (`start_timestamp`), because `created_at` of a message may be its end.
* Messages with a `parent_message_uuid` are a tree. The branch that ends with `current_leaf_message_uuid`, else with the
  last message, is read; messages of other branches are left out and counted.

An export has no tokens, and the model only of the conversation, if at all. If a conversation continued in another branch
since the last import, the branches are two sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import between, fields, instant, items, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.parsing.content_blocks import blocks_of, read_blocks, turns_of

NAME = "claude_ai"

_SENDERS = ("human", "user", "assistant")
_TIMES = ("start_timestamp", "stop_timestamp")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_ROOT = "00000000-0000-4000-8000-000000000000"
"""The parent of the first message."""
_METADATA_BLOCKS = ("token_budget", "flag")
"""Types of blocks that are not part of the conversation."""
_SESSION_FIELDS = ("uuid", "name", "created_at", "chat_messages", "account", "model")
_MESSAGE_FIELDS = ("uuid", "text", "content", "sender", "created_at", "attachments", "files", "files_v2", "model")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a conversation."""
    return any(map(_is_conversation, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, value) in enumerate(numbered_values(document)):
        if not _is_conversation(value):
            skip(where or "(all)", "not a conversation: no chat_messages")
            continue
        entries = list(_entries(value, where, skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=text(value.get("uuid")),
            title=text(value.get("name")),
            end_user=text(fields(value.get("account")).get("uuid")),
            created_at=instant(value.get("created_at")),
            metadata=rest(value, _SESSION_FIELDS),
        )


def _is_conversation(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("chat_messages"), list):
        return False
    messages = [message for message in value["chat_messages"][:50] if isinstance(message, dict)]
    return any("sender" in message for message in messages) if messages else isinstance(value.get("uuid"), str)


# --- Tree -------------------------------------------------------------------------------------------------------------


def _branch(value: dict[str, Any], where: str, skip: Skip) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the messages of the visible branch with their places."""
    messages: list[tuple[str, dict[str, Any]]] = []
    path = join_place(where, "chat_messages")
    for index, message in enumerate(value["chat_messages"]):
        if isinstance(message, dict):
            messages.append((f"{path}[{index}]", message))
        else:
            skip(f"{path}[{index}]", "not an object")
    at_of = {own: at for at, (_where, message) in enumerate(messages) if (own := text(message.get("uuid")))}
    parents = [text(message.get("parent_message_uuid")) for _where, message in messages]
    if not any(parent in at_of for parent in parents):
        yield from messages
        return
    at: int | None = at_of.get(text(value.get("current_leaf_message_uuid")) or "", len(messages) - 1)
    branch: dict[int, None] = {}
    while at is not None and at not in branch:
        branch[at] = None
        parent = parents[at]
        if parent is not None and (parent in at_of or parent == _ROOT):
            at = at_of.get(parent)
        else:
            if parent is not None:
                skip(messages[at][0], "its parent message is missing")
            at = at - 1 if at else None
    others = len(messages) - len(branch)
    if others:
        skip(path, f"other branches: {others} message{'s' * (others > 1)}")
    yield from (messages[at] for at in reversed(branch))


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(value: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    seen: set[str] = set()
    for place, message in _branch(value, where, skip):
        own = text(message.get("uuid")) or place
        own = own if own not in seen else place
        seen.add(own)
        sender = text(message.get("sender"))
        if sender == "assistant":
            yield from _replies(own, message, text(value.get("model")), place, skip)
        elif sender in _SENDERS:
            yield from _prompt(own, message, place, skip)
        else:
            skip(place, f"the sender is {sender or 'missing'}; a sender is one of human, assistant")


def _blocks(message: dict[str, Any]) -> list[Any]:
    return blocks_of(message.get("content")) or blocks_of(message.get("text"))


def _without_times(block: Any) -> Any:
    """Return a block without its times and its empty fields, except arguments and text."""
    if not isinstance(block, dict):
        return block
    kept = ("input", "text", "content", "thinking", "is_error")
    return {
        name: item
        for name, item in block.items()
        if name not in _TIMES and item is not None and (name in kept or item not in ("", [], {}))
    }


def _prompt(own: str, message: dict[str, Any], place: str, skip: Skip) -> Iterator[Entry]:
    blocks = read_blocks(list(map(_without_times, _blocks(message))), own, f"{place}.content", skip)
    yield from blocks.results
    for kind, files in (("attachment", message.get("attachments")), ("file", message.get("files_v2") or message.get("files"))):  # fmt: skip
        blocks.visible += [{"type": kind, **rest(file, ("type",))} for file in items(files) if isinstance(file, dict)]
    if blocks.visible or not blocks.results:
        yield Prompt(
            id=own,
            role="user",
            content=blocks.content,
            created_at=instant(message.get("created_at")),
            health=time_flags(message.get("created_at")),
            metadata={**rest(message, _MESSAGE_FIELDS), **blocks.metadata},
        )


def _replies(own: str, message: dict[str, Any], model: str | None, place: str, skip: Skip) -> Iterator[Entry]:
    model = text(message.get("model")) or model
    visible: list[Any] = []
    others: list[Any] = []
    for block in _blocks(message):
        (others if fields(block).get("type") in _METADATA_BLOCKS else visible).append(block)
    files = [file for key in ("attachments", "files") for file in items(message.get(key)) if isinstance(file, dict)]
    metadata = {**rest(message, _MESSAGE_FIELDS), **rest({"blocks": others, "files": files}, ())}
    for number, part in enumerate(turns_of(visible)):
        id_ = f"{own}.{number}" if number else own
        blocks = read_blocks(list(map(_without_times, part)), id_, f"{place}.content", skip)
        output = [block for block in part if isinstance(block, dict) and not _is_result(block)]
        began = next((at for block in output if (at := instant(block.get("start_timestamp")))), None)
        ended = next((at for block in reversed(output) if (at := instant(block.get("stop_timestamp")))), None)
        yield Reply(
            id=id_,
            content=blocks.content,
            calls=_calls_with_times(blocks.calls, output),
            reasoning=blocks.thought,
            model=None if number else model,
            created_at=began or instant(message.get("created_at")),
            duration=between(began, ended),
            health=time_flags(message.get("created_at")),
            metadata={**(rest({"model": model}, ()) if number else metadata), **blocks.metadata},
        )
        yield from _results_with_names(blocks.results, [block for block in part if _is_result(block)])


def _is_result(block: Any) -> bool:
    kind = fields(block).get("type")
    return isinstance(kind, str) and (kind == "tool_result" or kind.endswith("_tool_result"))


def _calls_with_times(calls: list[Call], blocks: list[dict[str, Any]]) -> list[Call]:
    """Return the calls with the times of their blocks, which are in the same order."""
    call_blocks = [block for block in blocks if block.get("type") in _CALLS]
    return [
        replace(call, started_at=instant(block.get("stop_timestamp")) or instant(block.get("start_timestamp")))
        for call, block in zip(calls, call_blocks, strict=True)
    ]


def _results_with_names(results: list[Result], blocks: list[Any]) -> Iterator[Result]:
    """Yield the results with the names of their tools, which match them with calls without ids."""
    for result, block in zip(results, blocks, strict=True):
        data = block.get("structured_content")
        yield replace(
            result,
            name=text(block.get("name")),
            created_at=instant(block.get("stop_timestamp")) or instant(block.get("start_timestamp")),
            data=data if data not in (None, "", [], {}) else None,
            metadata=rest(result.metadata, ("name", "structured_content")),
        )
