"""Read sessions of Goose: exports (`goose session export --format json`), its database `sessions.db`, session files of lines, and
`--output-format stream-json`.

* An export is the row of a session (`working_dir`, `name`, `model_config_json` ...) with `conversation`; of lines the first is the
  row, in a stream each is `{"type": "message", "message"}`.
* A message has `role`, `created` and blocks: `text`, `thinking`, `image`; `toolRequest` and `frontendToolRequest` are calls,
  `toolResponse` the result of one, under the role `user`. Of a result that is written for a person and for the model, the model's
  counts. A call that could not be parsed has the name `unknown`.
* What the user does not see (`metadata.userVisible`), such as the summary of a compaction, is a system message. Questions for
  approval and notifications are left out.

A reply has its tokens in newer versions only; those of the row are sums and stay in the metadata. Cached tokens are a part of the
input. Rows of the database are written again when a session is compacted, so their numbers are no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, Tables, first_values, join_place, numbered_values
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
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "goose"

_MAX_TRIED = 50
_UNKNOWN = "unknown"
_CALLS = ("toolRequest", "frontendToolRequest")
_RESULT = "toolResponse"
_LEFT_OUT = ("toolConfirmationRequest", "actionRequired", "systemNotification", "summarizationRequested", "conversationCompacted")  # fmt: skip
_ROW_FIELDS = ("id", "name", "description", "conversation", "created_at")
_TABLES = {
    "sessions": {"id", "working_dir", "created_at"},
    "messages": {"id", "session_id", "role", "content_json", "created_timestamp"},
}
_USAGE = {"cacheReadTokens": "cached_input_tokens", "cacheWriteTokens": "cache_write_tokens"}
_EXIT_CODES = ("exit_code", "exitCode")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is an export, or they are the lines of a session, or the tables are Goose's."""
    if isinstance(document, Tables):
        return document.have(_TABLES)
    values = first_values(document, _MAX_TRIED)
    if any(map(_is_export, values)):
        return True
    if isinstance(document, dict):
        return False
    messages = list(map(_message, values))
    return any(map(_has_marks, messages)) or (
        _is_row(values[0] if values else None) and any(map(_is_message, messages[1:]))
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, row, messages) in enumerate(_sessions(document, skip)):
        entries = list(_entries(row, messages, skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=text(row.get("id")),
            title=text(row.get("name")) or text(row.get("description")),
            created_at=instant(row.get("created_at")),
            metadata=rest(row, _ROW_FIELDS),
        )


def _sessions(document: Document, skip: Skip) -> Iterator[tuple[str, dict[str, Any], Iterator[tuple[str, Any]]]]:
    """Yield the place, the row and the messages of each session."""
    if isinstance(document, Tables):
        for session in document.rows("sessions", "id"):
            rows = document.rows("messages", "id", session_id=session["id"])
            yield f"session {session['id']}", session, ((f"message {row['id']}", _message_of(row)) for row in rows)
        return
    if not isinstance(document, dict) and not any(map(_is_export, first_values(document, _MAX_TRIED))):
        row: dict[str, Any] = next((value for _where, value in numbered_values(document) if _is_row(value)), {})
        yield "", row, ((where, value) for where, value in numbered_values(document) if not _is_row(value))
        return
    for where, value in numbered_values(document):
        if _is_export(value):
            path = join_place(where, "conversation")
            yield where, value, ((f"{path}[{index}]", message) for index, message in enumerate(value["conversation"]))
        else:
            skip(where or "(all)", "not an export of Goose")


def _message_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the message in a row of the database."""
    blocks, metadata = decoded(row.get("content_json")), decoded(row.get("metadata_json"))
    about = {"id": row.get("message_id"), "created": row.get("created_timestamp"), "metadata": metadata}
    return {**about, "role": row.get("role"), "content": blocks}


def _is_row(value: object) -> bool:
    row = fields(value)
    return isinstance(row.get("working_dir"), str) and bool({"description", "name"} & row.keys()) and "role" not in row


def _is_export(value: object) -> bool:
    return _is_row(value) and isinstance(fields(value).get("conversation"), list)


def _message(value: object) -> dict[str, Any]:
    """Return a message, which a stream wraps."""
    return fields(fields(value).get("message")) if fields(value).get("type") == "message" else fields(value)


def _is_message(message: dict[str, Any]) -> bool:
    return (
        message.get("role") in ("user", "assistant")
        and "created" in message
        and isinstance(message.get("content"), list)
    )


def _has_marks(message: dict[str, Any]) -> bool:
    """Return whether a message has blocks that only Goose writes."""
    blocks = map(fields, items(message.get("content")))
    return _is_message(message) and any("toolCall" in block or "toolResult" in block for block in blocks)


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(row: dict[str, Any], numbered: Iterator[tuple[str, Any]], skip: Skip) -> Iterator[Entry]:
    model = text(fields(decoded(row.get("model_config_json") or row.get("model_config"))).get("model_name"))
    seen: set[str] = set()
    for index, (where, value) in enumerate(numbered):
        message = _message(value)
        if not isinstance(message.get("content"), list) or message.get("role") not in ("user", "assistant"):
            if fields(value).get("type") not in ("complete", "notification"):
                skip(where, "not a message")
            continue
        own = text(message.get("id")) or str(index)
        own = own if own not in seen else str(index)
        seen.add(own)
        blocks = [fields(block) for block in message["content"]]
        yield from (
            _of_user(own, message, blocks) if message["role"] == "user" else [_reply(own, message, blocks, model)]
        )


def _visible(blocks: list[dict[str, Any]]) -> str | list[Any] | None:
    hidden = (*_CALLS, _RESULT, *_LEFT_OUT, "thinking", "redactedThinking", "reasoning")
    parts = [block for block in blocks if block and block.get("type") not in hidden]
    if len(parts) == 1 and parts[0].get("type") == "text":
        return text(parts[0].get("text"))
    return [rest(part, ("annotations", "_meta")) for part in parts] or None


def _of_user(own: str, message: dict[str, Any], blocks: list[dict[str, Any]]) -> Iterator[Entry]:
    at, about = instant(message.get("created")), fields(message.get("metadata"))
    responses = [block for block in blocks if block.get("type") == _RESULT]
    for number, block in enumerate(responses):
        yield _result(f"{own}#{number}", block, message)
    said = _visible(blocks)
    if said or not responses:
        is_typed = about.get("userVisible") is not False
        yield Prompt(
            id=own,
            role="user" if is_typed else "system",
            content=said,
            created_at=at,
            is_aside=not is_typed,
            metadata={**rest({"metadata": about}, ()), **({} if is_typed else {"role": "user"})},
        )


def _reply(own: str, message: dict[str, Any], blocks: list[dict[str, Any]], model: str | None) -> Reply:
    about = fields(message.get("metadata"))
    usage, resolved = fields(about.get("usage")), text(fields(about.get("inference")).get("resolvedModel"))
    thoughts = [
        block.get("thinking") or block.get("text") for block in blocks if block.get("type") in ("thinking", "reasoning")
    ]
    return Reply(
        id=own,
        content=_visible(blocks),
        calls=[_call(block) for block in blocks if block.get("type") in _CALLS],
        reasoning="\n\n".join(thought for thought in thoughts if isinstance(thought, str)) or None,
        model=resolved or model,
        usage={_USAGE.get(name, name): count for name, count in rest(usage, ()).items()} or None,
        created_at=instant(message.get("created")),
        metadata=rest({"metadata": rest(about, ("usage",))}, ()),
    )


def _call(block: dict[str, Any]) -> Call:
    called = fields(block.get("toolCall"))
    request = fields(called.get("value"))
    metadata = {
        **rest(block, ("type", "id", "toolCall", "thoughtSignature")),
        **rest({"error": called.get("error")}, ()),
    }
    return Call(
        id=text(block.get("id")),
        name=text(request.get("name")) or _UNKNOWN,
        args=request.get("arguments"),
        metadata=metadata,
    )


def _result(own: str, block: dict[str, Any], message: dict[str, Any]) -> Result:
    outcome = fields(block.get("toolResult"))
    value = outcome.get("value")
    returned = {"content": value} if isinstance(value, list) else fields(value)
    structured, is_error = returned.get("structuredContent"), returned.get("isError")
    error = text(outcome.get("error")) if outcome.get("status") == "error" else None
    output, attachments = text_and_attachments(_for_model(items(returned.get("content"))))
    code = next(
        (fields(structured)[name] for name in _EXIT_CODES if isinstance(fields(structured).get(name), int)), None
    )
    call_id = text(block.get("id"))
    return Result(
        id=own,
        output=error or output,
        failed=True if error or code not in (None, 0) else is_error if isinstance(is_error, bool) else None,
        created_at=instant(message.get("created")),
        data=structured,
        call_ids=[call_id] if call_id else [],
        attachments=attachments,
    )


def _for_model(blocks: list[Any]) -> list[Any]:
    """Return the blocks of a result that the model gets, without what says for whom they are."""
    audiences = [items(fields(fields(block).get("annotations")).get("audience")) for block in blocks]
    of_model = [
        block for block, audience in zip(blocks, audiences, strict=True) if not audience or "assistant" in audience
    ]
    return [rest(block, ("annotations", "_meta")) if isinstance(block, dict) else block for block in of_model or blocks]
