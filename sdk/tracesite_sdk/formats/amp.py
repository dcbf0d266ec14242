"""Read threads of Amp: one JSON object (`T-<uuid>.json`, or `amp threads export`), a list, or lines of them.

Messages have blocks like Anthropic's (see content_blocks.py), with `messageId`, and results as `{"toolUseID", "run"}`:

* `run.status` is `done`, `error`, `cancelled` or `rejected-by-user`, which is no failure of the tool; a call with any other status
  is open. The output is `run.result`, or its `output`, and an `exitCode` in it other than 0 is a failure.
* A message of the user with nothing but results is no prompt. One with another role is a system message.
* The tokens and the time of a reply are in its `usage`; cached tokens are beside `inputTokens`. The `usageLedger` repeats them.
* A reply that is still being written is left out, because its text would make another thread of the finished one.

The id of a thread is its own. Those of messages are used again after an edit, which makes another session of the thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.parsing.content_blocks import blocks_of, read_blocks

NAME = "amp"

_MAX_TRIED = 50
_PREFIX = "T-"
_UNFINISHED = ("streaming", "running")
_FAILED = {"done": None, "error": True, "cancelled": False, "rejected-by-user": False}
"""The states of a call that is over, and whether the tool failed."""
_USAGE = {"cacheCreationInputTokens": "cache_creation_input_tokens"}
_THREAD_FIELDS = ("id", "title", "created", "messages", "usageLedger")
_MESSAGE_FIELDS = ("role", "messageId", "content", "usage", "createdAt")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a thread."""
    return any(map(_is_thread, first_values(document, _MAX_TRIED)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the threads of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, thread) in enumerate(numbered_values(document)):
        if not _is_thread(thread):
            skip(where or "(all)", "not a thread of Amp")
            continue
        entries = list(_entries(thread["messages"], join_place(where, "messages"), skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=thread["id"],
            title=text(thread.get("title")),
            created_at=instant(thread.get("created")),
            metadata=rest(thread, _THREAD_FIELDS),
        )


def _is_thread(value: object) -> bool:
    thread = fields(value)
    id_, messages = thread.get("id"), thread.get("messages")
    if not (isinstance(id_, str) and id_.startswith(_PREFIX) and isinstance(messages, list)):
        return False
    return "created" in thread or "v" in thread or any("messageId" in fields(message) for message in messages)


def _entries(messages: list[Any], path: str, skip: Skip) -> Iterator[Entry]:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        where = f"{path}[{index}]"
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        own = text(message.get("messageId"))
        own = own if own is not None and own not in seen else f"#{index}"
        seen.add(own)
        # Their results have other fields than Anthropic's.
        blocks = blocks_of(message.get("content"))
        answered = [block for block in blocks if fields(block).get("type") == "tool_result"]
        others = [block for block in blocks if fields(block).get("type") != "tool_result"]
        if message.get("role") != "assistant":
            yield from _results(own, answered, message)
            if others or not answered:
                yield _prompt(own, message, others, where, skip)
        elif text(fields(message.get("state")).get("type")) in _UNFINISHED:
            skip(where, "a reply that is still being written")
        else:
            yield _reply(own, message, others, where, skip)


def _prompt(own: str, message: dict[str, Any], blocks: list[Any], where: str, skip: Skip) -> Prompt:
    is_typed = message.get("role") == "user"
    sent_at = fields(message.get("meta")).get("sentAt")
    return Prompt(
        id=own,
        role="user" if is_typed else "system",
        content=read_blocks(blocks, own, f"{where}.content", skip).content,
        created_at=instant(sent_at) or instant(message.get("createdAt")),
        is_aside=not is_typed,
        metadata={**rest(message, _MESSAGE_FIELDS), **({} if is_typed else rest({"role": message.get("role")}, ()))},
    )


def _reply(own: str, message: dict[str, Any], blocks: list[Any], where: str, skip: Skip) -> Reply:
    read = read_blocks(blocks, own, f"{where}.content", skip)
    usage, state = fields(message.get("usage")), fields(message.get("state"))
    reason = text(fields(state.get("error")).get("message")) or text(state.get("error"))
    counts = rest(usage, ("model", "timestamp", "maxInputTokens"))
    return Reply(
        id=own,
        content=read.content,
        calls=read.calls,
        reasoning=read.thought,
        model=text(usage.get("model")),
        usage={_USAGE.get(name, name): count for name, count in counts.items()} or None,
        created_at=instant(usage.get("timestamp")) or instant(message.get("createdAt")),
        error=reason or "error" if state.get("type") == "error" else None,
        metadata={**rest(message, _MESSAGE_FIELDS), **read.metadata},
    )


def _results(own: str, blocks: list[Any], message: dict[str, Any]) -> Iterator[Result]:
    for number, block in enumerate(blocks):
        run = fields(block.get("run"))
        status, result = text(run.get("status")) or "", run.get("result")
        if status not in _FAILED:
            continue
        failed, returned = _FAILED[status], fields(result)
        output = returned["output"] if isinstance(returned.get("output"), str) else result
        if returned.get("exitCode") not in (None, 0):
            failed = True
        call_id = text(block.get("toolUseID")) or text(block.get("tool_use_id"))
        reason = text(fields(run.get("error")).get("message")) or text(run.get("error"))
        yield Result(
            id=f"{own}#{number}",
            output=output if output is not None else reason or ("" if status == "done" else status),
            failed=failed,
            created_at=instant(message.get("createdAt")),
            data=returned if output is not result else None,
            call_ids=[call_id] if call_id else [],
            metadata={"status": status} if status != "done" else {},
        )
