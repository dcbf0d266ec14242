"""Transcripts in the messages of Anthropic's Messages API (platform.claude.com/docs/en/api/messages).

* a request body (`model`, `system`, `messages` ...), the list of its messages alone, or a list of those;
* an answer (`{"type": "message", "content": [...], "stop_reason", "usage"}`), a list of answers;
* a log of exchanges: objects with the request under `request`, `body` or `params`, or beside, and the answer under
  `response`, each perhaps the `body` of a message of HTTP; the invocation logs of Amazon Bedrock, which have them under `input.inputBodyJson` and
  `output.outputBodyJson`. The requests of one conversation are joined: see request_logs.py;
* the requests of a batch (`{"custom_id", "params"}`) and their results (`{"custom_id", "result": {"message"}}`).

What its content blocks become is said in content_blocks.py; blocks of unknown types are kept as parts of the content, and
named in the report. A reply keeps the model, the usage and the stop reason of
its answer where the log has it. `metadata.user_id` is the end user. The format has no times and no ids of conversations:
a log's own `timestamp` is the time of what was new then, `session_id` or `conversation_id` beside the messages its id.
A message's external id is its index; what follows results of the provider's own tools within one answer is a reply of
its own ("3.1").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from traces_app.normalize.json_values import fields, instant, items, rest, text, time_flags
from traces_app.transcripts.entries import NOTHING_SAID, Entry, Reply, Said, Transcript, says_something
from traces_app.transcripts.files.documents import Document, Files, Lines, Skip
from traces_app.transcripts.parsing.content_blocks import blocks_of, has_marks, read_blocks, tell_of_unknown, turns_of
from traces_app.transcripts.parsing.request_logs import Exchange, joined

NAME = "anthropic_messages"

_ROLES = ("user", "assistant", "system")
_OWN_IDS = ("session_id", "conversation_id", "thread_id")
_REQUESTS = ("request", "body", "params", "request_body")
_ANSWERS = ("response", "response_body", "answer")
_TIMES = ("timestamp", "created_at", "time")
_BODY_FIELDS = ("model", "max_tokens", "modelId", "anthropic_version")
# What becomes a field of a record; everything else of a message is kept in metadata.
_MESSAGE_FIELDS = frozenset({"role", "content", "model", "usage", "type", "id"})
_OF_OTHERS = frozenset({"tool_calls", "tool_call_id", "function_call", "parts"})
_REFUSAL = "refusal"


def recognises(document: Document) -> bool:
    """Whether the document is of this format: by blocks or fields that only this API has, in its first conversations."""
    if isinstance(document, Files):
        return False
    if isinstance(document, Lines):
        document = document.head()
    found = [document] if isinstance(document, dict) or _is_message_list(document) else items(document)[:50]
    return any(map(_has_marks, found))


def may_hold(document: Document) -> bool:
    """Whether messages with typed blocks may be of this format, though nothing marks it: for documents that no format
    recognises, because a block of them is of a type that is newer than all of them."""
    if isinstance(document, Files):
        return False
    if isinstance(document, Lines):
        document = document.head()
    found = [document] if isinstance(document, dict) or _is_message_list(document) else items(document)[:50]
    lists = [one if _is_message_list(one) else items(_parted(fields(one))[0].get("messages")) for one in found if one]
    return any(messages and all(map(_is_typed, messages)) for messages in lists)


def _is_typed(message: object) -> bool:
    """Whether a message has text or blocks that name their types, and is no call or result in the words of another API."""
    if not isinstance(message, dict) or not _is_message(message) or not _OF_OTHERS.isdisjoint(message):
        return False
    said = message["content"]
    return isinstance(said, str) or (
        isinstance(said, list) and all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in said)
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The conversations of a document that `recognises` accepts; what they leave out is told to `skip`."""
    for exchange in joined(_exchanges(document, skip), _said_in):
        entries = list(_entries(exchange, skip))
        if not says_something(entries):
            skip(exchange.where or "(all)", NOTHING_SAID)
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
    request, answer, _beside = _parted(item)
    messages = items(request.get("messages"))
    if not messages:
        return answer is not None
    if not all(_is_message(message) or not isinstance(message, dict) for message in messages):
        return False
    if answer is not None or any(_is_message(message) and has_marks(message.get("content")) for message in messages):
        return True
    return "anthropic_version" in request or _has_system(request) and all(map(_is_plain, messages))


def _has_system(request: dict[str, Any]) -> bool:
    """Whether the system prompt stands beside the messages, as no other API has it that has messages of text."""
    system = request.get("system")
    is_said = isinstance(system, str) or all(
        isinstance(block, dict) and block.get("type") == "text" for block in items(system)
    )
    return bool(system) and is_said


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _ROLES and "content" in message


def _is_plain(message: object) -> bool:
    """Text and no more, by a user or an assistant."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        return False
    said = message.get("content")
    return "tool_calls" not in message and (
        isinstance(said, str) or all(isinstance(block, dict) and block.get("type") == "text" for block in items(said))
    )


def _is_message_list(item: object) -> bool:
    first = next((message for message in items(item) if isinstance(message, dict)), None)
    return first is not None and "role" in first and "messages" not in first and first.get("type") != "message"


def _is_answer(item: object) -> bool:
    """Whether this is what the API gave back."""
    return (
        isinstance(item, dict)
        and item.get("type") == "message"
        and item.get("role") == "assistant"
        and isinstance(item.get("content"), list)
        and ("stop_reason" in item or "usage" in item)
    )


# --- Conversations ----------------------------------------------------------------------------------------------------


def _exchanges(document: Document, skip: Skip) -> Iterator[Exchange]:
    if isinstance(document, Lines):
        numbered = [(f"line {line.number}: ", line.value) for line in document]
    elif isinstance(document, list):
        numbered = [(f"[{index}].", item) for index, item in enumerate(document)]
    else:
        numbered = [("", document)]
    values = [item for _where, item in numbered]
    if _is_message_list(values):
        yield Exchange(place=0, where="", messages=values, rest={}, can_grow=False)
        return
    for place, (where, item) in enumerate(numbered):
        if _is_message_list(item):
            yield Exchange(place=place, where=where.rstrip(".: "), messages=items(item), rest={}, can_grow=False)
            continue
        request, answer, beside = _parted(item) if isinstance(item, dict) else ({}, None, {})
        messages = request.get("messages")
        if not isinstance(messages, list) and answer is None:
            skip(where.rstrip(".: "), "no list of messages and no answer")
            continue
        said = {**request, **beside}
        yield Exchange(
            place=place,
            where=f"{where}messages",
            messages=items(messages),
            rest={name: value for name, value in said.items() if name != "messages"},
            answer=answer,
            sent_at=next((time for key in _TIMES if (time := instant(said.get(key)))), None),
            can_grow=any(key in request for key in _BODY_FIELDS) and not request.get("title"),
        )


def _parted(item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """The request, the answer, and what else an object says beside them."""
    if _is_answer(item):
        return {}, item, {}
    asked, answered = fields(item.get("input")), fields(item.get("output"))
    if "inputBodyJson" in asked:
        answer = fields(answered.get("outputBodyJson"))
        return fields(asked["inputBodyJson"]), answer if _is_answer(answer) else None, rest(item, ("input", "output"))
    succeeded = fields(item.get("result")).get("message")
    if _is_answer(succeeded):
        return {}, succeeded, rest(item, ("result",))
    answer_key = next((key for key in _ANSWERS if _is_answer(_body_of(item.get(key)))), "")
    request_key = next((key for key in _REQUESTS if isinstance(_body_of(item.get(key)).get("messages"), list)), "")
    beside = {name: value for name, value in item.items() if name not in (answer_key, request_key)}
    for key in filter(None, (request_key, answer_key)):
        if around := _around_body(item[key]):
            beside[key] = around
            beside = {**{name: around[name] for name in _TIMES if key == request_key and name in around}, **beside}
    came_back = _body_of(item[answer_key]) if answer_key else None
    if not request_key:
        return beside, came_back, {}
    return _body_of(item[request_key]), came_back, beside


def _body_of(value: object) -> dict[str, Any]:
    """What was sent or came back: of a message of HTTP its body."""
    body = fields(value).get("body")
    return body if isinstance(body, dict) else fields(value)


def _around_body(value: object) -> dict[str, Any]:
    """What a message of HTTP says around its body."""
    return rest(fields(value), ("body",)) if _body_of(value) is not value else {}


def _said_in(message: Any) -> Any:
    """What a message says: text is a block, and what is marked to be cached says the same."""
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
        found = read_blocks(system, "system", "system", skip)
        if found.content is not None:
            yield Said(id="system", role="system", content=found.content, created_at=exchange.times.get(0))
    model = request.get("model") or request.get("modelId")
    flags = time_flags(*(request.get(key) for key in _TIMES)) if exchange.times else []
    for index, message in enumerate(exchange.messages):
        where = f"{exchange.where}[{index}]"
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        message = exchange.answers.get(index, message)
        role, said_at = message.get("role"), exchange.times.get(index)
        if role == "assistant":
            entries = _replies(str(index), message, _text(model), where, skip)
        elif role in ("user", "system"):
            entries = _asked(str(index), message, where, skip)
        else:
            skip(where, f"the role is {text(role) or 'missing'}; a role is one of {', '.join(_ROLES)}")
            continue
        for entry in entries:
            yield replace(entry, created_at=said_at, health=flags) if said_at else entry


def _asked(id_: str, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    tell_of_unknown(message.get("content"), f"{where}.content", skip)
    found = read_blocks(message.get("content"), id_, f"{where}.content", skip)
    yield from found.results
    metadata = {**rest(message, _MESSAGE_FIELDS), **found.metadata}
    if found.content is not None or not found.results:
        yield Said(
            id=id_,
            role="system" if message["role"] == "system" else "user",
            content=found.content,
            metadata=metadata,
        )


def _replies(id_: str, message: dict[str, Any], model: str | None, where: str, skip: Skip) -> Iterator[Entry]:
    stop_reason = message.get("stop_reason")
    usage = message.get("usage")
    tell_of_unknown(message.get("content"), f"{where}.content", skip)
    for number, part in enumerate(turns_of(blocks_of(message.get("content")))):
        own_id = f"{id_}.{number}" if number else id_
        found = read_blocks(part, own_id, f"{where}.content", skip)
        metadata = found.metadata
        if not number:
            metadata |= rest(message, _MESSAGE_FIELDS)
            if message.get("id"):
                metadata["id"] = message["id"]
        yield Reply(
            id=own_id,
            content=found.content,
            calls=found.calls,
            reasoning=found.thought,
            model=_text(message.get("model")) or model,
            usage=usage if isinstance(usage, dict) and not number else None,
            error=_REFUSAL if stop_reason == _REFUSAL and not number else None,
            metadata=metadata,
        )
        yield from found.results


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
