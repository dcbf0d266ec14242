"""Read messages of Amazon Bedrock's Converse API, which Strands uses, too
(docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html).

* a list of messages, an object with it under `messages` (a request; a Strands session), or a list of these;
* an answer (`{"output": {"message": ...}, "stopReason", "usage", "metrics"}`);
* exchanges: the request beside the answer (`output`) or under `request` with `response`, or invocation logs of Bedrock
  (`input.inputBodyJson`, `output.outputBodyJson`). The requests of one conversation are joined: see request_logs.py.

A block is an object with one key, its kind: text, toolUse, toolResult (`status`), reasoningContent (text and signature,
or redacted), image, document, video (bytes as base64, or a place in S3), cachePoint, guardContent (text for a guardrail),
citationsContent. They are converted to the equivalent blocks of Anthropic's API: see content_blocks.py. Strands has
`metadata` (usage, metrics) on a reply; its session files wrap messages (`{"message", "message_id", "created_at"}`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import fields, instant, items, rest, text, time_flags
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
from tracesite_sdk.transcripts.parsing.content_blocks import blocks_of, read_blocks, turns_of
from tracesite_sdk.transcripts.parsing.request_logs import Exchange, joined, with_input

NAME = "bedrock_converse"

_OWN_IDS = ("session_id", "sessionId", "conversation_id")
_TIMES = ("timestamp", "created_at")
_BODY_FIELDS = ("modelId", "inferenceConfig", "toolConfig", "output")
_MARKS = {
    "toolUse": ("toolUseId",),
    "toolResult": ("toolUseId",),
    "image": ("format",),
    "document": ("name",),
    "video": ("format",),
    "guardContent": ("text", "image"),
}
_KINDS = frozenset({*_MARKS, "text", "cachePoint", "reasoningContent", "citationsContent", "searchResult", "audio"})
# Fields with a column of their own; all others of a message are kept in metadata.
_MESSAGE_FIELDS = frozenset({"role", "content", "usage", "created_at", "stopReason", "modelId"})


def recognises(document: Document) -> bool:
    """Return whether one of the first values has blocks of this API, which have a kind as their only key and no type."""
    values = first_values(document)
    is_single = not isinstance(document, dict) and _is_message_list(values)
    return any(map(_has_marks, [values] if is_single else values[:50]))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for exchange in joined(_exchanges(document, skip), _identity):
        entries = list(_entries(exchange, skip))
        if not has_conversation(entries):
            skip(exchange.where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=exchange.place,
            external_id=next((own for key in _OWN_IDS if (own := _text(exchange.rest.get(key)))), None),
            metadata={name: value for name, value in exchange.rest.items() if name != "system"},
        )


# --- Recognising ------------------------------------------------------------------------------------------------------


def _has_marks(item: object) -> bool:
    if _is_message_list(item):
        messages = items(item)
    elif isinstance(item, dict):
        request, answer, _others = _split(item)
        messages = [*items(request.get("messages")), answer]
    else:
        return False
    contents = [items(fields(_unwrapped(message)).get("content")) for message in messages]
    blocks = [block for content in contents for block in content if isinstance(block, dict)]
    return any(map(_is_own, blocks)) and not any("type" in block for block in blocks)


def _is_own(block: dict[str, Any]) -> bool:
    kind = next((key for key in block if key in _KINDS), None)
    if kind is None or len(block) > 1:
        return False
    if kind in ("text", "reasoningContent"):
        return True
    return any(mark in fields(block[kind]) for mark in _MARKS.get(kind, ()))


def _is_message_list(item: object) -> bool:
    first = next((message for message in items(item) if isinstance(message, dict)), None)
    return first is not None and "role" in fields(_unwrapped(first)) and "messages" not in first


def _unwrapped(message: object) -> object:
    """Return a message without the wrapper of Strands' session files, which has its id and its times."""
    inner = fields(message).get("message")
    if not isinstance(inner, dict) or "role" not in inner or "message_id" not in fields(message):
        return message
    return {**inner, **{name: value for name, value in fields(message).items() if name not in ("message", *inner)}}


# --- Conversations ----------------------------------------------------------------------------------------------------


def _exchanges(document: Document, skip: Skip) -> Iterator[Exchange]:
    numbered = list(numbered_values(document))
    values = [item for _where, item in numbered]
    if _is_message_list(values):
        yield Exchange(place=0, where="", messages=list(map(_unwrapped, values)), rest={}, can_grow=False)
        return
    for place, (where, item) in enumerate(numbered):
        if _is_message_list(item):
            messages = list(map(_unwrapped, items(item)))
            yield Exchange(place=place, where=where, messages=messages, rest={}, can_grow=False)
            continue
        request, answer, others = _split(item) if isinstance(item, dict) else ({}, None, {})
        if not isinstance(request.get("messages"), list) and answer is None:
            skip(where, "neither a list of messages nor a response")
            continue
        merged = {**request, **others}
        yield Exchange(
            place=place,
            where=join_place(where, "messages"),
            messages=list(map(_unwrapped, items(request.get("messages")))),
            rest={name: value for name, value in merged.items() if name not in ("messages", "output")},
            answer=answer and {**answer, **rest({"modelId": merged.get("modelId")}, ())},
            request=_request(request),
            sent_at=next((time for key in _TIMES if (time := instant(merged.get(key)))), None),
            can_grow=any(key in item for key in _BODY_FIELDS),
        )


def _split(item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Return the request, the message of the answer, and the other fields of an object."""
    logged_input = fields(item.get("input"))
    if "inputBodyJson" in logged_input:
        return (
            fields(logged_input["inputBodyJson"]),
            _answer(fields(fields(item.get("output")).get("outputBodyJson"))),
            rest(item, ("input", "output")),
        )
    if isinstance(fields(item.get("request")).get("messages"), list):
        return item["request"], _answer(fields(item.get("response"))), rest(item, ("request", "response"))
    return item, _answer(item), {}


def _answer(response: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message of an answer, with the fields of the answer."""
    message = fields(response.get("output")).get("message")
    if not isinstance(message, dict) or "role" not in message:
        return None
    return {**message, **rest(response, ("output", "messages", "system", "modelId", "toolConfig", "inferenceConfig"))}


def _request(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its tools beside the other fields."""
    config = fields(body.get("toolConfig"))
    others = {"toolConfig": others} if (others := rest(config, ("tools",))) else {}
    return {
        **rest(body, ("toolConfig", "output", "stopReason", "usage", "metrics")),
        "tools": config.get("tools"),
        **others,
    }


def _identity(message: Any) -> Any:
    """Return the content of a message by which requests are joined, without marks for the cache."""
    blocks = fields(message).get("content")
    return [fields(message).get("role"), [block for block in items(blocks) if "cachePoint" not in fields(block)]]


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(exchange: Exchange, skip: Skip) -> Iterator[Entry]:
    request = exchange.rest
    if system := request.get("system"):
        converted = [system] if isinstance(system, str) else [_anthropic_block(block) for block in items(system)]
        system_blocks = read_blocks(converted, "system", "system", skip)
        if system_blocks.content is not None:
            yield Prompt(id="system", role="system", content=system_blocks.content, created_at=exchange.times.get(0))
    of_last = _text(request.get("modelId"))
    for index, message in enumerate(exchange.messages):
        where = f"{exchange.where}[{index}]"
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        message = exchange.answers.get(index, message)
        # Requests of one conversation may be to several models.
        model = _text(message.get("modelId")) or of_last
        content = message.get("content")
        if isinstance(content, list):
            content = [_anthropic_block(block) for block in content]
        time = instant(message.get("created_at")) or exchange.times.get(index)
        flags = time_flags(message.get("created_at"), *(request.get(key) for key in _TIMES))
        metadata = rest(message, _MESSAGE_FIELDS)
        if stop_reason := message.get("stopReason"):
            metadata["stopReason"] = stop_reason
        if message.get("role") == "assistant":
            replies = _replies(str(index), message, content, f"{where}.content", skip)
            for entry in with_input(replies, exchange, index):
                if isinstance(entry, Result):
                    yield replace(entry, created_at=time, health=flags)
                else:
                    is_first = entry.id == str(index)
                    own = {**(metadata if is_first else rest({"model": model}, ())), **entry.metadata}
                    of_model = model if is_first else None
                    yield replace(entry, created_at=time, health=flags, model=of_model, metadata=own)
            continue
        if message.get("role") not in ("user", "system"):
            skip(where, f"the role is {text(message.get('role')) or 'missing'}; a role is user or assistant")
            continue
        blocks = read_blocks(content, str(index), f"{where}.content", skip)
        for result in blocks.results:
            yield replace(result, created_at=time, health=flags)
        if blocks.content is not None or not blocks.results:
            yield Prompt(
                id=str(index),
                role="system" if message["role"] == "system" else "user",
                content=blocks.content,
                created_at=time,
                health=flags,
                metadata={**metadata, **blocks.metadata},
            )


def _replies(id_: str, message: dict[str, Any], content: object, where: str, skip: Skip) -> Iterator[Reply | Result]:
    """Yield the replies in an assistant message; text after results of the provider's tools is another reply."""
    stop_reason = message.get("stopReason")
    usage = message.get("usage") or fields(message.get("metadata")).get("usage")
    for number, part in enumerate(turns_of(blocks_of(content))):
        own_id = f"{id_}.{number}" if number else id_
        blocks = read_blocks(part, own_id, where, skip)
        yield Reply(
            id=own_id,
            content=blocks.content,
            calls=blocks.calls,
            reasoning=blocks.thought,
            usage=usage if isinstance(usage, dict) and not number else None,
            error=stop_reason if stop_reason in ("guardrail_intervened", "content_filtered") and not number else None,
            metadata=blocks.metadata,
        )
        yield from blocks.results


def _anthropic_block(block: object) -> object:
    """Convert a block to the form of Anthropic's API."""
    if not isinstance(block, dict):
        return block
    kind = next((key for key in block if key in _KINDS), None)
    value = block.get(kind) if kind else None
    if kind is None or (kind != "text" and not isinstance(value, dict)):
        return block
    if kind == "text":
        return {"type": "text", **block}
    value = fields(value)
    if kind == "toolUse":
        # The `type` of a call marks a tool run by the provider.
        is_server_tool = value.get("type") == "server_tool_use"
        names = {"toolUseId": "id"} if is_server_tool else {"toolUseId": "id", "type": "call_type"}
        return {"type": "tool_use", **_renamed(value, names)}
    if kind == "toolResult":
        result = {**_renamed(value, {"toolUseId": "tool_use_id", "type": "result_type"}), "type": "tool_result"}
        status = result.pop("status", None)
        result["content"] = _output(value.get("content"))
        return {**result, "is_error": status == "error"} if status in ("success", "error") else result
    if kind == "guardContent" and isinstance(guarded := fields(value.get("text")).get("text"), str):
        return {"type": "text", "text": guarded, **rest(fields(value["text"]), ("text",)), **rest(value, ("text",))}
    if kind == "reasoningContent":
        reasoning = fields(value.get("reasoningText"))
        if isinstance(reasoning.get("text"), str):
            return {"type": "thinking", "thinking": reasoning["text"], **rest(reasoning, ("text",))}
        return {"type": "redacted_thinking", **value}
    return {**value, "type": kind}


def _output(content: object) -> object:
    """Return the output of a tool: a JSON value if it is the only block, else blocks of Anthropic's API."""
    if not isinstance(content, list):
        return content
    if len(content) == 1 and isinstance(content[0], dict) and content[0].keys() == {"json"}:
        return content[0]["json"]
    return [_output_block(block) for block in content]


def _output_block(block: object) -> object:
    if isinstance(block, dict) and "json" in block:
        return {"type": "json", **block}
    if isinstance(found := fields(block).get("searchResult"), dict):
        return {"type": "search_result", **found}
    return _anthropic_block(block)


def _renamed(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): item for name, item in value.items()}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
