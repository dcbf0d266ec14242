"""Read messages of Anthropic's Messages API (platform.claude.com/docs/en/api/messages).

* a request body (`model`, `system`, `messages` ...), the list of its messages alone, or a list of these;
* an answer (`{"type": "message", "content": [...], "stop_reason", "usage"}`) or a list of answers;
* a log of exchanges: objects with the request under `request`, `body` or `params`, or beside, and the answer under
  `response`, each perhaps the `body` of an HTTP message; or invocation logs of Amazon Bedrock (`input.inputBodyJson`,
  `output.outputBodyJson`). The requests of one conversation are joined: see request_logs.py;
* the requests of a batch (`{"custom_id", "params"}`) and their results (`{"custom_id", "result": {"message"}}`).

content_blocks.py maps the content blocks; blocks of unknown types are kept as parts of the content and reported. A reply
keeps the model, the usage and the stop reason of its answer if the log has it. `metadata.user_id` is the end user. The
format has no times and no ids of conversations: the `timestamp` of a log record is the time of its new messages, and
`session_id` or `conversation_id` beside the messages is the id. The external id of a message is its index; text after
the results of the provider's tools in one answer is another reply ("3.1").
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
from tracesite_sdk.transcripts.parsing.content_blocks import blocks_of, has_marks, read_blocks, report_unknown, turns_of
from tracesite_sdk.transcripts.parsing.request_logs import Exchange, joined, with_input

NAME = "anthropic_messages"

_ROLES = ("user", "assistant", "system")
_OWN_IDS = ("session_id", "conversation_id", "thread_id")
_REQUESTS = ("request", "body", "params", "request_body")
_ANSWERS = ("response", "response_body", "answer")
_TIMES = ("timestamp", "created_at", "time")
_BODY_FIELDS = ("model", "max_tokens", "modelId", "anthropic_version")
# Fields with a column of their own; all others of a message are kept in metadata.
_MESSAGE_FIELDS = frozenset({"role", "content", "model", "usage", "type", "id"})
_FIELDS_OF_OTHER_FORMATS = frozenset({"tool_calls", "tool_call_id", "function_call", "parts"})
_REFUSAL = "refusal"


def recognises(document: Document) -> bool:
    """Return whether one of the first values has blocks or fields of this API only."""
    return any(map(_has_marks, _first_values(document)))


def may_hold(document: Document) -> bool:
    """Return whether the messages could be of this format although nothing marks them.

    This is for documents that no format recognises because they contain a newer type of block.
    """
    values = _first_values(document)
    lists = [
        value if _is_message_list(value) else items(_split(fields(value))[0].get("messages"))
        for value in values
        if value
    ]
    return any(messages and all(map(_is_typed, messages)) for messages in lists)


def _first_values(document: Document) -> list[Any]:
    values = first_values(document)
    return values[:50] if isinstance(document, dict) or not _is_message_list(values) else [values]


def _is_typed(message: object) -> bool:
    """Return whether a message has text or blocks with a type, and no fields of other APIs for calls and results."""
    if not isinstance(message, dict) or not _is_message(message) or not _FIELDS_OF_OTHER_FORMATS.isdisjoint(message):
        return False
    content = message["content"]
    return isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for exchange in joined(_exchanges(document, skip), _identity):
        entries = list(_entries(exchange, skip))
        if not has_conversation(entries):
            skip(exchange.where or "(all)", EMPTY_CONVERSATION)
            continue
        user = fields(exchange.rest.get("metadata")).get("user_id")
        title = exchange.rest.get("title")
        yield Transcript(
            entries=partial(iter, entries),
            place=exchange.place,
            external_id=next((own for key in _OWN_IDS if (own := _text(exchange.rest.get(key)))), None),
            title=title if isinstance(title, str) and title.strip() else None,
            end_user=_text(user),
            metadata={name: value for name, value in exchange.rest.items() if name != "system"},
        )


# --- Recognising ------------------------------------------------------------------------------------------------------


def _has_marks(item: object) -> bool:
    if _is_message_list(item):
        return any(has_marks(message.get("content")) for message in items(item) if _is_message(message))
    if not isinstance(item, dict):
        return False
    if _is_answer(item):
        return True
    request, answer, _others = _split(item)
    messages = items(request.get("messages"))
    if not messages:
        return answer is not None
    if not all(_is_message(message) or not isinstance(message, dict) for message in messages):
        return False
    if answer is not None or any(_is_message(message) and has_marks(message.get("content")) for message in messages):
        return True
    return "anthropic_version" in request or _has_system(request) and all(map(_is_plain, messages))


def _has_system(request: dict[str, Any]) -> bool:
    """Return whether a system prompt is beside the messages, as in no other API with plain text messages."""
    system = request.get("system")
    is_text = isinstance(system, str) or all(
        isinstance(block, dict) and block.get("type") == "text" for block in items(system)
    )
    return bool(system) and is_text


def _is_message(message: object) -> bool:
    # A message with `messageId` is Amp's, whose results have other fields.
    if not isinstance(message, dict) or "messageId" in message:
        return False
    return message.get("role") in _ROLES and "content" in message


def _is_plain(message: object) -> bool:
    """Return whether this is a message of a user or an assistant with text only."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        return False
    content = message.get("content")
    return "tool_calls" not in message and (
        isinstance(content, str)
        or all(isinstance(block, dict) and block.get("type") == "text" for block in items(content))
    )


def _is_message_list(item: object) -> bool:
    first = next((message for message in items(item) if isinstance(message, dict)), None)
    return first is not None and "role" in first and "messages" not in first and first.get("type") != "message"


def _is_answer(item: object) -> bool:
    """Return whether this is an answer of the API."""
    return (
        isinstance(item, dict)
        and item.get("type") == "message"
        and item.get("role") == "assistant"
        and isinstance(item.get("content"), list)
        and ("stop_reason" in item or "usage" in item)
    )


# --- Conversations ----------------------------------------------------------------------------------------------------


def _exchanges(document: Document, skip: Skip) -> Iterator[Exchange]:
    numbered = list(numbered_values(document))
    values = [item for _where, item in numbered]
    if _is_message_list(values):
        yield Exchange(place=0, where="", messages=values, rest={}, can_grow=False)
        return
    for place, (where, item) in enumerate(numbered):
        if _is_message_list(item):
            yield Exchange(place=place, where=where, messages=items(item), rest={}, can_grow=False)
            continue
        request, answer, others = _split(item) if isinstance(item, dict) else ({}, None, {})
        messages = request.get("messages")
        if not isinstance(messages, list) and answer is None:
            skip(where, "neither a list of messages nor a response")
            continue
        merged = {**request, **others}
        yield Exchange(
            place=place,
            where=join_place(where, "messages"),
            messages=items(messages),
            rest={name: value for name, value in merged.items() if name != "messages"},
            answer=answer,
            request=request,
            sent_at=next((time for key in _TIMES if (time := instant(merged.get(key)))), None),
            can_grow=any(key in request for key in _BODY_FIELDS) and not request.get("title"),
        )


def _split(item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Return the request, the answer, and the other fields of an object."""
    if _is_answer(item):
        return {}, item, {}
    logged_input, logged_output = fields(item.get("input")), fields(item.get("output"))
    if "inputBodyJson" in logged_input:
        body = fields(logged_output.get("outputBodyJson"))
        request = fields(logged_input["inputBodyJson"])
        return request, body if _is_answer(body) else None, rest(item, ("input", "output"))
    batch_answer = fields(item.get("result")).get("message")
    if _is_answer(batch_answer):
        return {}, batch_answer, rest(item, ("result",))
    answer_key = next((key for key in _ANSWERS if _is_answer(_body_of(item.get(key)))), "")
    request_key = next((key for key in _REQUESTS if isinstance(_body_of(item.get(key)).get("messages"), list)), "")
    others = {name: value for name, value in item.items() if name not in (answer_key, request_key)}
    for key in filter(None, (request_key, answer_key)):
        if _body_of(item[key]) is not item[key] and (headers := rest(fields(item[key]), ("body",))):
            others[key] = headers
            others = {**{name: headers[name] for name in _TIMES if key == request_key and name in headers}, **others}
    answer = _body_of(item[answer_key]) if answer_key else None
    if not request_key:
        return others, answer, {}
    return _body_of(item[request_key]), answer, others


def _body_of(value: object) -> dict[str, Any]:
    """Return the body of an HTTP message, or a bare body."""
    body = fields(value).get("body")
    return body if isinstance(body, dict) else fields(value)


def _identity(message: Any) -> Any:
    """Return the content of a message by which requests are joined: text as a block, without marks for the cache."""
    if not isinstance(message, dict):
        return message
    return [
        message.get("role"),
        [
            {"type": "text", "text": block}
            if isinstance(block, str)
            else {name: item for name, item in block.items() if name != "cache_control" and item is not None}
            if isinstance(block, dict)
            else block
            for block in blocks_of(message.get("content"))
        ],
    ]


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(exchange: Exchange, skip: Skip) -> Iterator[Entry]:
    request = exchange.rest
    if system := request.get("system"):
        blocks = read_blocks(system, "system", "system", skip)
        if blocks.content is not None:
            yield Prompt(id="system", role="system", content=blocks.content, created_at=exchange.times.get(0))
    model = request.get("model") or request.get("modelId")
    flags = time_flags(*(request.get(key) for key in _TIMES)) if exchange.times else []
    for index, message in enumerate(exchange.messages):
        where = f"{exchange.where}[{index}]"
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        message = exchange.answers.get(index, message)
        role, sent_at = message.get("role"), exchange.times.get(index)
        if role == "assistant":
            entries: Iterator[Entry] = with_input(
                _replies(str(index), message, _text(model), where, skip), exchange, index
            )
        elif role in ("user", "system"):
            entries = _prompt(str(index), message, where, skip)
        else:
            skip(where, f"the role is {text(role) or 'missing'}; a role is one of {', '.join(_ROLES)}")
            continue
        for entry in entries:
            yield replace(entry, created_at=sent_at, health=flags) if sent_at else entry


def _prompt(id_: str, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    report_unknown(message.get("content"), f"{where}.content", skip)
    blocks = read_blocks(message.get("content"), id_, f"{where}.content", skip)
    yield from blocks.results
    metadata = {**rest(message, _MESSAGE_FIELDS), **blocks.metadata}
    if blocks.content is not None or not blocks.results:
        yield Prompt(
            id=id_,
            role="system" if message["role"] == "system" else "user",
            content=blocks.content,
            metadata=metadata,
        )


def _replies(id_: str, message: dict[str, Any], model: str | None, where: str, skip: Skip) -> Iterator[Reply | Result]:
    stop_reason = message.get("stop_reason")
    usage = message.get("usage")
    model = _text(message.get("model")) or model
    report_unknown(message.get("content"), f"{where}.content", skip)
    for number, part in enumerate(turns_of(blocks_of(message.get("content")))):
        own_id = f"{id_}.{number}" if number else id_
        blocks = read_blocks(part, own_id, f"{where}.content", skip)
        metadata = blocks.metadata
        if number:
            metadata |= {"model": model} if model else {}
        else:
            metadata |= rest(message, _MESSAGE_FIELDS)
            if message.get("id"):
                metadata["id"] = message["id"]
        yield Reply(
            id=own_id,
            content=blocks.content,
            calls=blocks.calls,
            reasoning=blocks.thought,
            model=None if number else model,
            usage=usage if isinstance(usage, dict) and not number else None,
            error=_REFUSAL if stop_reason == _REFUSAL and not number else None,
            metadata=metadata,
        )
        yield from blocks.results


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
