"""Read messages of OpenAI's chat completions in the wrappings that are common in practice.

* a list of messages;
* an object with the list under `messages` (a request body), `traj` (tau-bench), or a name used by data sets
  (`conversations`, `trajectory` ...); its other fields are metadata;
* a list of such objects or lists, each one conversation;
* a page of conversations (`data`);
* JSON lines, each such an object or list, or each one message of a single conversation;
* output of the API: responses (`choices`), chunks of streams, and logs of exchanges with the request under `request` or
  `body` or beside, and the answer under `response`; batch lines; preference pairs (`input`, `preferred_output`).

A request body carries the whole conversation so far, so a log of requests repeats it. If the messages of a body (an
object with `model` and without `title`) begin with all messages of an earlier one, both are the same conversation. They
become one session with the messages of the longest; its replies keep the usage, model and time of the logged answers.

The format has no times except `created` of an answer (and fields that others add to messages), and no ids of
conversations. `session_id`, `conversation_id` or `thread_id` beside the messages is the id, and `id` if it is not that of
a request or an answer. The external id of a message is its index. The format has no flag for a failed tool; normalise
decides by the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk.normalize.json_values import content, fields, instant, items, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, numbered_values, skip_silently
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.chat_completions import answer_in, is_chunk, is_finished, is_response
from tracesite_sdk.transcripts.parsing.request_logs import prefix_digests
from tracesite_sdk.transcripts.parsing.requests import model_input
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "openai_chat"

_CONTAINERS = ("messages", "traj")
_LOOSE_CONTAINERS = ("conversation", "conversations", "trajectory", "dialog", "dialogue", "chat", "chat_history")
"""Names that data sets use for their messages. Other formats use them, too, so the items are tested."""
_LISTS = ("data", "conversations")
_HEAD = 20
_REQUESTS = ("request", "body", "request_body", "params", "kwargs")
# https://platform.openai.com/docs/api-reference/chat/create; of a log, only these are of the request.
_REQUEST_FIELDS = frozenset(
    [
        *("model", "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "response_format"),
        *("temperature", "top_p", "top_k", "n", "seed", "stop", "max_tokens", "max_completion_tokens"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "reasoning_effort"),
        *("stream", "stream_options", "service_tier", "store", "modalities", "audio", "prediction", "verbosity"),
        *("web_search_options", "prompt_cache_key", "safety_identifier", "user", "extra_body"),
    ]
)
_ANSWERS = ("response", "response_body", "completion", "answer", "chunks")
_TIMES = ("created_at", "timestamp", "createdAt", "created", "create_time")
_OWN_IDS = ("session_id", "conversation_id", "thread_id")
# Fields of API bodies only, and the prefixes of their ids.
_BODY_FIELDS = ("model", "object", "choices")
_BODY_IDS = ("chatcmpl-", "cmpl-", "resp_", "req_", "req-")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = frozenset({"text", "image_url", "input_audio", "audio_url", "video_url", "file", "refusal"})

# Fields with a column of their own; all others of a message are kept in metadata.
_MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "function_call"})
_REPLY_FIELDS = frozenset(
    {"role", "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "name", "agent", "usage"}
)
_RESULT_FIELDS = frozenset({"role", "content", "tool_call_id", "tool_call_ids", "name"})
# Fields of an answer that later requests repeat.
_ANSWERED = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio"})
_CALL_FIELDS = frozenset({"id", "type", "index", "function", "custom"})
_SHOWN = 60
"""Characters of an unknown role in a report."""


def recognises(document: Document) -> bool:
    """Return whether one of the items is a conversation with messages of this format, or an answer of the API."""
    if isinstance(document, Lines):
        document = document.head()
    if isinstance(document, list) and not _is_message_list(document):
        values = document
    else:
        values = _list_in(document)[1] or [document]
    return any(is_response(value) or is_chunk(value) for value in values) or any(
        (isinstance(conversation.messages, list) and _are_messages(conversation.messages))
        or (conversation.answer is not None and "error" not in conversation.answer)
        for value in values
        if (conversation := _conversation(value)) is not None
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`.

    The document is read twice, because only its end shows which request bodies are one conversation.
    """
    log = _survey(_conversations(document, skip))
    for conversation in _conversations(document, skip_silently):
        if conversation.place in log.outgrown:
            continue
        place = log.first_places.get(conversation.place, conversation.place)
        others = conversation.rest
        failed = _failed(others)
        if not (_has_content(conversation) or failed):
            skip(conversation.where or "(all)", EMPTY_CONVERSATION)
            continue
        own_id = _own_id(conversation)
        if own_id is not None and place in log.numbers:
            own_id = f"{own_id}#{log.numbers[place]}"
        entries = partial(_entries, conversation, log.facts.get(conversation.place, _Facts()), skip)
        yield Transcript(
            entries=entries if isinstance(conversation.messages, Lines) else partial(iter, list(entries())),
            place=place,
            external_id=own_id,
            title=_own_title(conversation),
            end_user=text(others.get("user")),
            status="error" if failed else None,
            metadata=others,
        )


# --- Conversations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Conversation:
    place: int
    where: str
    """The JSON path of its messages."""
    container: str
    """The key of the messages; "" for a bare list."""
    messages: list[Any] | Lines
    """A list, or a document with one message in each line."""
    rest: dict[str, Any]
    """The fields beside the messages."""
    answer: dict[str, Any] | None = None
    """The message in the response, which is not part of `messages`."""


def _conversations(document: Document, skip: Skip) -> Iterator[_Conversation]:
    if isinstance(document, Lines) and _is_message_list(document.head()):
        yield _Conversation(place=0, where="", container="", messages=document, rest={})
        return
    for place, (where, item) in enumerate(_items(document, skip)):
        conversation = _conversation(item)
        if conversation is None:
            skip(where, "no list of messages")
            continue
        yield replace(conversation, place=place, where=_join(where, conversation.where))


def _items(document: Document, skip: Skip) -> Iterator[tuple[str, Any]]:
    """Yield the values that may be conversations, with their places; the chunks of one answer are one value."""
    numbered: Iterable[tuple[str, Any]]
    if isinstance(document, Lines) or (isinstance(document, list) and not _is_message_list(document)):
        numbered = numbered_values(document)
    else:
        key, values = _list_in(document)
        if not key:
            yield "", document
            return
        others = _without(fields(document), key)
        if others and isinstance(values[0], dict):
            # The fields beside the list are kept once, with the first conversation.
            values = [{**values[0], "beside": others}, *values[1:]]
        numbered = ((f"{key}[{index}]", item) for index, item in enumerate(values))
    streams: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for where, item in numbered:
        if is_chunk(item):
            streams.setdefault(text(item.get("id")) or "", (where, []))[1].append(item)
        else:
            yield where, item
    for where, chunks in streams.values():
        if is_finished(chunks):
            yield where, chunks
        else:
            # In a longer log it may have more chunks and so become another answer.
            skip(where, "incomplete answer: its chunks end")


def _list_in(document: object) -> tuple[str, list[Any]]:
    """Return the key and the items of a list of conversations in an object, as an API page is."""
    if isinstance(document, dict) and _conversation(document) is None:
        for key in _LISTS:
            if any(_conversation(item) is not None for item in items(document.get(key))[:_HEAD]):
                return key, document[key]
    return "", []


def _conversation(item: object) -> _Conversation | None:
    """Return the conversation in an item, without its place and with a path inside the item; None for other values."""
    if isinstance(item, list):
        if is_chunk(next(iter(item), None)):
            return _Conversation(place=0, where="", container="", messages=[], rest={}, answer=answer_in(item))
        return (
            _Conversation(place=0, where="", container="", messages=item, rest={}) if _is_message_list(item) else None
        )
    if not isinstance(item, dict):
        return None
    if is_response(item) or is_chunk(item):
        answer, others = answer_in(item), _without(item, "choices", "usage", "created", "messages")
        messages = items(item.get("messages"))
        return _Conversation(
            place=0, where="messages", container="choices", messages=messages, rest=others, answer=answer
        )
    answer_key = next((key for key in _ANSWERS if answer_in(item.get(key)) is not None), "")
    answer = answer_in(item.get(answer_key))
    for key in _CONTAINERS:
        if isinstance(item.get(key), list):
            others = _without(item, key, answer_key)
            return _Conversation(place=0, where=key, container=key, messages=item[key], rest=others, answer=answer)
    for key in _LOOSE_CONTAINERS:
        if _is_message_list(items(item.get(key))) and _are_messages(item[key]):
            others = _without(item, key, answer_key)
            return _Conversation(place=0, where=key, container=key, messages=item[key], rest=others, answer=answer)
    for key in (*_REQUESTS, "input"):
        request = fields(item.get(key))
        path = f"{key}.messages"
        if isinstance(request.get("body"), dict):
            request, path = request["body"], f"{key}.body.messages"
        if isinstance(request.get("messages"), list):
            messages = request["messages"] + items(item.get("preferred_output"))
            others = {**_without(item, key, answer_key, "preferred_output"), **_without(request, "messages")}
            return _Conversation(place=0, where=path, container=path, messages=messages, rest=others, answer=answer)
    if answer is None and "custom_id" in item:
        answer_key, answer = "error", answer_in({"error": item.get("error")})
    if answer is None:
        return None
    return _Conversation(
        place=0, where=answer_key, container="", messages=[], rest=_without(item, answer_key), answer=answer
    )


def _without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in keys}


def _has_content(conversation: _Conversation) -> bool:
    """Return whether there is a message that is not a system message."""
    return any(
        isinstance(message, dict) and message.get("role") in ("user", "assistant", "tool", "function")
        for _where, message in _messages(conversation)
    )


def _messages(conversation: _Conversation) -> Iterator[tuple[str, Any]]:
    """Yield the messages with their places."""
    if isinstance(conversation.messages, Lines):
        yield from ((f"line {line.number}", line.value) for line in conversation.messages)
    else:
        yield from ((f"{conversation.where}[{index}]", message) for index, message in enumerate(conversation.messages))
    if conversation.answer is not None:
        yield f"{conversation.where}: the answer", conversation.answer


def _own_id(conversation: _Conversation) -> str | None:
    """Return the id of the conversation; not a number, which is a row of a data set, and not the id of a request."""
    others = conversation.rest
    if own_id := next(filter(None, (text(others.get(key)) for key in _OWN_IDS)), None):
        return own_id
    id_ = others.get("id")
    if conversation.container != "messages" or not isinstance(id_, str) or not id_.strip() or id_.startswith(_BODY_IDS):
        return None
    return None if _is_body(conversation) else id_


def _own_title(conversation: _Conversation) -> str | None:
    title = conversation.rest.get("title")
    return title if conversation.container == "messages" and isinstance(title, str) and title.strip() else None


def _is_body(conversation: _Conversation) -> bool:
    """Return whether this is a request or a response; an exported chat may have a `model`, too, but has a title."""
    if conversation.answer is not None:
        return True
    return any(key in conversation.rest for key in _BODY_FIELDS) and _own_title(conversation) is None


def _is_message_list(values: list[Any]) -> bool:
    first = next((value for value in values if isinstance(value, dict)), None)
    return first is not None and isinstance(first.get("role"), str) and not any(key in first for key in _CONTAINERS)


def _are_messages(messages: list[Any]) -> bool:
    """Return whether messages have the marks of this format, or at least no field unknown to it."""
    objects = [message for message in messages if isinstance(message, dict)]
    roles = [message["role"] for message in objects if isinstance(message.get("role"), str) and "content" in message]
    if not any(_similar_role(message.get("role")) for message in objects):
        return False
    # Agents that name their roles themselves, and records of people, may have one of these roles, too.
    if roles and 2 * sum(_similar_role(role) is not None for role in roles) <= len(roles):
        return False
    if any(map(_has_marks, objects)):
        return True
    # Records of people have roles, too, but no content.
    has_content = any("content" in message for message in objects)
    return has_content and len(objects) == len(messages) and all(map(_is_plain, objects))


def _has_marks(message: dict[str, Any]) -> bool:
    calls = message.get("tool_calls")
    return (
        "tool_call_id" in message
        or "tool_call_ids" in message
        or (isinstance(calls, list) and any(isinstance(c, dict) and isinstance(c.get("function"), dict) for c in calls))
        # Images of the Responses API have an `image_url`, too, but another type, and the url is not an object.
        or any(
            isinstance(part, dict) and (part.get("type") == "image_url" or isinstance(part.get("image_url"), dict))
            for part in items(message.get("content"))
        )
    )


def _similar_role(role: object) -> str | None:
    """Return the role, or the known role with a similar name."""
    close = get_close_matches(role[:20].lower(), _ROLES, n=1, cutoff=0.75) if isinstance(role, str) else []
    return close[0] if close else None


def _is_plain(message: dict[str, Any]) -> bool:
    parts = message.get("content")
    if not isinstance(message.get("role"), str):
        # A message may lack its role; without a text, too, it is not a message.
        return isinstance(parts, str)
    if isinstance(parts, list):
        return all(
            isinstance(part, str) or (isinstance(part, dict) and text(part.get("type")) in _PARTS) for part in parts
        )
    return parts is None or isinstance(parts, str)


@dataclass(kw_only=True)
class _Facts:
    """Facts from the answers and requests of a conversation about its messages, by their indexes."""

    answers: dict[int, tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    """The digest of an answer, and the fields that later requests omit."""
    requests: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The fields of the request that each answer came from, without its messages."""
    times: dict[int, object] = field(default_factory=dict)
    """The time of the first request with the message."""


@dataclass(kw_only=True)
class _Log:
    """The conversations of a document, by their places: which continue others, and which share an id."""

    outgrown: set[int] = field(default_factory=set)
    """Conversations that a longer one contains."""
    first_places: dict[int, int] = field(default_factory=dict)
    """The place of the first, shortest part of a conversation."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of a conversation among those with the same id. Other messages with one id, such as those of a
    sub-agent, are another transcript."""
    facts: dict[int, _Facts] = field(default_factory=dict)


def _survey(conversations: Iterator[_Conversation]) -> _Log:
    """Find the request bodies that are one conversation; a repeated request is the same one, too."""
    log = _Log()
    own_ids: Counter[str] = Counter()
    last_places: dict[bytes, int] = {}
    """The place of the last request body with these messages, by their digest."""
    for conversation in conversations:
        place = first = conversation.place
        is_request = conversation.answer is not None or "model" in conversation.rest
        if not isinstance(conversation.messages, Lines) and is_request and _is_body(conversation):
            digests = prefix_digests(conversation.messages, _without_nulls)
            earlier = next((last_places.pop(digest) for digest in reversed(digests) if digest in last_places), None)
            if digests:
                last_places[digests[-1]] = place
            if earlier is not None:
                log.outgrown.add(earlier)
                first = log.first_places[place] = log.first_places.pop(earlier, earlier)
            _add_facts(conversation, log, earlier)
        own_id = _own_id(conversation)
        if first == place and own_id is not None and (_has_content(conversation) or _failed(conversation.rest)):
            own_ids[own_id] += 1
            if own_ids[own_id] > 1:
                log.numbers[place] = own_ids[own_id]
    return log


def _add_facts(conversation: _Conversation, log: _Log, earlier: int | None) -> None:
    """Add the facts of this exchange to those of the earlier exchanges of the conversation."""
    facts = log.facts.pop(earlier, _Facts()) if earlier is not None else _Facts()
    count = len(conversation.messages) if isinstance(conversation.messages, list) else 0
    if conversation.answer is not None:
        others = {name: value for name, value in conversation.answer.items() if name not in _ANSWERED}
        facts.answers[count] = _reply_digest(conversation.answer), others
        if count:
            facts.requests[count] = {
                name: value for name, value in conversation.rest.items() if name in _REQUEST_FIELDS
            }
    sent_at = next((conversation.rest[key] for key in _TIMES if instant(conversation.rest.get(key))), None)
    if sent_at is not None:
        facts.times = {**dict.fromkeys(range(count + 1), sent_at), **facts.times}
    if facts.answers or facts.times:
        log.facts[conversation.place] = facts


def _reply_digest(message: dict[str, Any]) -> bytes:
    """Return a digest that identifies a reply in later requests, which may omit empty fields."""
    calls = [
        (fields(call).get("id"), fields(fields(call).get("function")).get("name"))
        for call in items(message.get("tool_calls"))
    ]
    reply = [message.get("content") or "", calls, fields(message.get("function_call")).get("name")]
    return blake2b(msgspec.json.encode(reply), digest_size=8).digest()


def _without_nulls(message: Any) -> Any:
    """Return a message without null fields, because clients send either null or nothing."""
    return (
        {name: value for name, value in message.items() if value is not None} if isinstance(message, dict) else message
    )


def _failed(others: dict[str, Any]) -> bool:
    """Return whether the run itself failed: tau-bench keeps a crashed run with its error and without messages."""
    info = others.get("info")
    return isinstance(info, dict) and bool(info.get("error"))


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(conversation: _Conversation, facts: _Facts, skip: Skip) -> Iterator[Entry]:
    model = conversation.rest.get("model")
    for index, (where, message) in enumerate(_messages(conversation)):
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        role = message.get("role")
        entry: Entry
        if role in ("user", "system", "developer"):
            entry = _message(str(index), message)
        elif role == "assistant":
            digest, others = facts.answers.get(index, (b"", {}))
            if others and digest == _reply_digest(message):
                message = {**others, **message}
            reply = _reply(str(index), message, model if isinstance(model, str) else None, where, skip)
            asked = facts.requests.get(index) if digest == _reply_digest(message) else None
            if asked is not None and isinstance(conversation.messages, list):
                asked = {**asked, "messages": conversation.messages[:index]}
                reply = msgspec.structs.replace(reply, input=model_input(asked), is_request=True)
            entry = reply
        elif role in ("tool", "function"):
            *first, last = _tool_messages(message)
            for number, tool_message in enumerate(first):
                yield _with_time(_result(f"{index}.{number}", tool_message), facts.times.get(index))
            entry = _result(str(index), last)
        else:
            skip(where, _role_problem(message))
            continue
        yield _with_time(entry, facts.times.get(index))


def _with_time(entry: Entry, sent_at: object) -> Entry:
    """Set the time of an entry: its own, else that of the first request with it."""
    own = next((key for key in _TIMES if instant(entry.metadata.get(key))), None)
    value = entry.metadata[own] if own is not None else sent_at
    time = instant(value)
    if time is None:
        return entry
    metadata = {name: item for name, item in entry.metadata.items() if name != own}
    return msgspec.structs.replace(entry, created_at=time, health=time_flags(value), metadata=metadata)


def _role_problem(message: dict[str, Any]) -> str:
    role = message.get("role")
    if isinstance(role, str):
        similar = _similar_role(role)
        problem = f"unknown role {role[:_SHOWN]!r}" + (f", perhaps {similar!r}" if similar else "")
    else:
        problem = "the role is not text" if "role" in message else "no role"
    return f"{problem}; a role is one of {', '.join(_ROLES)}"


def _message(id_: str, message: dict[str, Any]) -> Prompt:
    metadata = rest(message, _MESSAGE_FIELDS)
    if message["role"] == "developer":
        metadata["role"] = "developer"
    return Prompt(
        id=id_,
        role="user" if message["role"] == "user" else "system",
        content=content(message.get("content")),
        metadata=metadata,
    )


def _reply(id_: str, message: dict[str, Any], model: str | None, where: str, skip: Skip) -> Reply:
    metadata = rest(message, _REPLY_FIELDS)
    answer = content(message.get("content"))
    if not answer and isinstance(message.get("refusal"), str):
        answer = message["refusal"]
    if not answer and isinstance(transcript := fields(message.get("audio")).get("transcript"), str):
        answer = transcript
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and not isinstance(reasoning, str):
        metadata["reasoning"], reasoning = reasoning, None
    if not reasoning:
        # OpenRouter has `reasoning_details`, and encrypts some of them.
        details = [
            fields(part).get("text") or fields(part).get("summary") for part in items(message.get("reasoning_details"))
        ]
        reasoning = "\n\n".join(detail for detail in details if isinstance(detail, str)) or None
    usage = message.get("usage")
    if usage and not isinstance(usage, dict):
        metadata["usage"] = usage
    error = metadata.pop("error", None)
    return Reply(
        id=id_,
        content=answer,
        calls=list(_calls(message, where, skip)),
        reasoning=reasoning,
        agent_name=text(message.get("name") or message.get("agent")),
        model=text(metadata.pop("model", None)) or model,
        usage=usage if isinstance(usage, dict) and usage else None,
        error=text(error),
        metadata=metadata,
    )


def _calls(message: dict[str, Any], where: str, skip: Skip) -> Iterator[Call]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        skip(f"{where}.tool_calls", "not a list")
    for index, call in enumerate(items(calls)):
        if isinstance(call, dict):
            yield _call(call)
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield _call({"function": legacy})
    elif legacy:
        skip(f"{where}.function_call", "not an object")


def _call(call: dict[str, Any]) -> Call:
    metadata = rest(call, _CALL_FIELDS)
    if call.get("type") not in (None, "function"):
        metadata["type"] = call["type"]
    for kind, argument in (("function", "arguments"), ("custom", "input")):
        inner = call.get(kind)
        if isinstance(inner, dict):
            metadata |= rest(inner, frozenset({"name", argument}))
            args = inner.get(argument)
            if kind == "custom" and isinstance(args, str):
                # The input is free text, not broken JSON, but it is stored with the same key.
                args = {"_raw": args}
            return Call(id=text(call.get("id")), name=text(inner.get("name")) or "", args=args, metadata=metadata)
    # Some servers omit the inner object, or put the name in its place.
    name = text(call.get("function")) or text(metadata.pop("name", None)) or ""
    return Call(id=text(call.get("id")), name=name, args=metadata.pop("arguments", None), metadata=metadata)


def _tool_messages(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a message of AutoGen, which has the results of all calls of a reply, and the name of the agent, not the tool."""
    responses = [response for response in items(message.get("tool_responses")) if isinstance(response, dict)]
    if not responses:
        return [message]
    others = _without(message, "tool_responses", "content", "name")
    return [*({"role": message["role"], **response} for response in responses[:-1]), {**others, **responses[-1]}]


def _result(id_: str, message: dict[str, Any]) -> Result:
    output, attachments = text_and_attachments(content(message.get("content")))
    values = (message.get("tool_call_id"), *items(message.get("tool_call_ids")))
    ids = [call_id for value in values if (call_id := text(value))]
    return Result(
        id=id_,
        output=output,
        failed=None,
        call_ids=list(dict.fromkeys(ids)),
        name=text(message.get("name")),
        attachments=attachments,
        metadata=rest(message, _RESULT_FIELDS),
    )


# --- Values -------------------------------------------------------------------------------------------------------


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where + key
