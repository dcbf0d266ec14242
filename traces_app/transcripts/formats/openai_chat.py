"""Transcripts in the messages of OpenAI's chat completions, in the wrappings that are found in the wild.

* a list of messages;
* an object that holds the list under `messages` (a request body) or `traj` (tau-bench), or as data sets call it (`conversations`,
  `trajectory` ...), the rest of it being metadata;
* a list of such objects or lists: one conversation each;
* a page of conversations (`data`), the runs of tau2-bench (`simulations`);
* lines of JSON, each such an object or list, or each one message of a single conversation;
* what an API answered: responses (`choices`), the chunks of streams, and both in logs of exchanges, the request under
  `request` or `body` or beside, the answer under `response`; lines of a batch; pairs of a preference (`input`,
  `preferred_output`).

A request body carries the whole conversation so far, so a log of requests repeats it again and again. Of such objects
(those with a `model` and no `title`) one whose messages begin with all messages of an earlier one is the same
conversation, grown: they become one session, of the longest, whose replies keep the usage, the model and the time of the
answers that were seen.

The format has no times but `created` of an answer (and those that others add to messages), and no ids of conversations;
`session_id`, `conversation_id` or `thread_id` beside the messages is taken as one, and `id` where it is not that of a
request or of its answer. A message's external id is its index. The format has no flag for a failed tool either:
normalise tells from the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from traces_app.normalize.json_values import fields, instant, time_flags
from traces_app.normalize.records import text_of
from traces_app.transcripts.entries import NOTHING_SAID, Call, Entry, Reply, Result, Said, Transcript, is_text
from traces_app.transcripts.files.documents import Document, Lines, Skip
from traces_app.transcripts.parsing.chat_completions import answer_in, is_chunk, is_finished, is_response

NAME = "openai_chat"

_CONTAINERS = ("messages", "traj")
_LOOSE_CONTAINERS = ("conversation", "conversations", "trajectory", "dialog", "dialogue", "chat", "chat_history")
"""Where data sets keep messages. Other things are called so, too: they are looked at."""
_LISTS = ("data", "simulations", "conversations")
_HEAD = 20
_REQUESTS = ("request", "body", "request_body", "params", "kwargs")
_ANSWERS = ("response", "response_body", "completion", "answer", "chunks")
_TIMES = ("created_at", "timestamp", "createdAt", "created", "create_time")
_OWN_IDS = ("session_id", "conversation_id", "thread_id")
# What only the bodies of the API have, and how their ids begin.
_BODY_FIELDS = ("model", "object", "choices")
_BODY_IDS = ("chatcmpl-", "cmpl-", "resp_", "req_", "req-")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = frozenset({"text", "image_url", "input_audio", "audio_url", "video_url", "file", "refusal"})

# What becomes a field of a record; everything else of a message is kept in metadata.
_SAID_FIELDS = frozenset({"role", "content", "tool_calls", "function_call"})
_REPLY_FIELDS = frozenset(
    {"role", "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "name", "agent", "usage"}
)
_RESULT_FIELDS = frozenset({"role", "content", "tool_call_id", "tool_call_ids", "name"})
# What later requests repeat of an answer.
_ANSWERED = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio"})
_CALL_FIELDS = frozenset({"id", "type", "index", "function", "custom"})
_SHOWN = 60
"""Characters of an unknown role that a report shows."""


def recognises(document: Document) -> bool:
    """Whether the document is of this format, judged by its first conversation that has messages."""
    if isinstance(document, Lines):
        document = document.head()
    if isinstance(document, list) and not _is_message_list(document):
        items = document
    else:
        items = _kept_in(document)[1] or [document]
    return any(is_response(item) or is_chunk(item) for item in items) or any(
        (isinstance(found.messages, list) and _looks_right(found.messages))
        or (found.answer is not None and "error" not in found.answer)
        for item in items
        if (found := _parted(item)) is not None
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The conversations of a document that `recognises` accepts; what they leave out is told to `skip`.

    It is gone through twice: which request bodies are one conversation is known only at its end.
    """
    log = _seen(_conversations(document, skip))
    for conversation in _conversations(document, _tell_nobody):
        if conversation.place in log.outgrown:
            continue
        place = log.first_places.get(conversation.place, conversation.place)
        rest = conversation.rest
        failed = _failed(rest)
        if not (_says_something(conversation) or failed):
            skip(conversation.where or "(all)", NOTHING_SAID)
            continue
        own_id = _own_id(conversation)
        if own_id is not None and place in log.numbers:
            own_id = f"{own_id}#{log.numbers[place]}"
        entries = partial(_entries, conversation, log.told.get(conversation.place, _Told()), skip)
        yield Transcript(
            entries=entries if isinstance(conversation.messages, Lines) else partial(iter, list(entries())),
            place=place,
            external_id=own_id,
            title=_own_title(conversation),
            end_user=_text(rest.get("user")),
            status="error" if failed else None,
            metadata=rest,
        )


# --- Conversations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Conversation:
    place: int
    where: str
    """Its JSON path, and that of its list of messages."""
    container: str
    """The key under which the messages lie; "" where there is nothing but the list."""
    messages: list[Any] | Lines
    """Lines where each is a message."""
    rest: dict[str, Any]
    """What stands beside the messages."""
    answer: dict[str, Any] | None = None
    """The message that came back; it is none of the messages that were sent."""


def _conversations(document: Document, skip: Skip) -> Iterator[_Conversation]:
    if isinstance(document, Lines) and _is_message_list(document.head()):
        yield _Conversation(place=0, where="", container="", messages=document, rest={})
        return
    for place, (where, item) in enumerate(_items(document, skip)):
        found = _parted(item)
        if found is None:
            skip(where, "no list of messages")
            continue
        yield replace(found, place=place, where=_join(where, found.where))


def _items(document: Document, skip: Skip) -> Iterator[tuple[str, Any]]:
    """What may be a conversation each, and where it stands. The chunks of one answer are one."""
    if isinstance(document, Lines):
        numbered = ((f"line {line.number}", line.value) for line in document)
    elif isinstance(document, list) and not _is_message_list(document):
        numbered = ((f"[{place}]", item) for place, item in enumerate(document))
    elif key := (kept := _kept_in(document))[0]:
        beside = _without(fields(document), key)
        numbered = ((f"{key}[{place}]", _beside_first(item, beside, place)) for place, item in enumerate(kept[1]))
    else:
        yield "", document
        return
    streams: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for where, item in numbered:
        if is_chunk(item):
            streams.setdefault(_text(item.get("id")) or "", (where, []))[1].append(item)
        else:
            yield where, item
    for where, chunks in streams.values():
        if is_finished(chunks):
            yield where, chunks
        else:
            # It may go on in a longer log, and would not be the same then.
            skip(where, "the chunks of an answer end before it is finished")


def _kept_in(document: object) -> tuple[str, list[Any]]:
    """The list of conversations that an object holds, and its key: a page of the API, the runs of tau2-bench."""
    if isinstance(document, dict) and _parted(document) is None:
        for key in _LISTS:
            if any(_parted(item) is not None for item in _list(document.get(key))[:_HEAD]):
                return key, document[key]
    return "", []


def _beside_first(item: object, beside: dict[str, Any], place: int) -> object:
    """What stands beside a list of conversations is kept once, with the first."""
    return {**item, "beside": beside} if place == 0 and beside and isinstance(item, dict) else item


def _parted(item: object) -> _Conversation | None:
    """The messages of one conversation, what came back, and what stands beside; None where it is none.

    Its place is not known here, and where it is only from the item on.
    """
    if isinstance(item, list):
        if is_chunk(next(iter(item), None)):
            return _Conversation(place=0, where="", container="", messages=[], rest={}, answer=answer_in(item))
        return (
            _Conversation(place=0, where="", container="", messages=item, rest={}) if _is_message_list(item) else None
        )
    if not isinstance(item, dict):
        return None
    if is_response(item) or is_chunk(item):
        answer, beside = answer_in(item), _without(item, "choices", "usage", "created", "messages")
        messages = _list(item.get("messages"))
        return _Conversation(
            place=0, where="messages", container="choices", messages=messages, rest=beside, answer=answer
        )
    answer_key = next((key for key in _ANSWERS if answer_in(item.get(key)) is not None), "")
    answer = answer_in(item.get(answer_key))
    for key in _CONTAINERS:
        if isinstance(item.get(key), list):
            rest = _without(item, key, answer_key)
            return _Conversation(place=0, where=key, container=key, messages=item[key], rest=rest, answer=answer)
    for key in _LOOSE_CONTAINERS:
        if _is_message_list(_list(item.get(key))) and _looks_right(item[key]):
            rest = _without(item, key, answer_key)
            return _Conversation(place=0, where=key, container=key, messages=item[key], rest=rest, answer=answer)
    for key in (*_REQUESTS, "input"):
        request = fields(item.get(key))
        path = f"{key}.messages"
        if isinstance(request.get("body"), dict):
            request, path = request["body"], f"{key}.body.messages"
        if isinstance(request.get("messages"), list):
            messages = request["messages"] + _list(item.get("preferred_output"))
            rest = {**_without(item, key, answer_key, "preferred_output"), **_without(request, "messages")}
            return _Conversation(place=0, where=path, container=path, messages=messages, rest=rest, answer=answer)
    if answer is None and "custom_id" in item:
        answer_key, answer = "error", answer_in({"error": item.get("error")})
    if answer is None:
        return None
    return _Conversation(
        place=0, where=answer_key, container="", messages=[], rest=_without(item, answer_key), answer=answer
    )


def _without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in keys}


def _says_something(conversation: _Conversation) -> bool:
    """Whether anything was said by somebody else than the system."""
    return any(
        isinstance(message, dict) and message.get("role") in ("user", "assistant", "tool", "function")
        for _where, message in _numbered(conversation)
    )


def _numbered(conversation: _Conversation) -> Iterator[tuple[str, Any]]:
    """The messages, and where they stand."""
    if isinstance(conversation.messages, Lines):
        yield from ((f"line {line.number}", line.value) for line in conversation.messages)
    else:
        yield from ((f"{conversation.where}[{index}]", message) for index, message in enumerate(conversation.messages))
    if conversation.answer is not None:
        yield f"{conversation.where}: the answer", conversation.answer


def _tell_nobody(_where: str, _why: str) -> None:
    """For what was told before."""


def _own_id(conversation: _Conversation) -> str | None:
    """What the conversation calls itself; no number, which is a row of a data set, and no id of one request of many."""
    rest = conversation.rest
    if own := next((text for key in _OWN_IDS if (text := _text(rest.get(key)))), None):
        return own
    id_ = rest.get("id")
    if conversation.container != "messages" or not isinstance(id_, str) or not id_.strip() or id_.startswith(_BODY_IDS):
        return None
    return None if _is_body(conversation) else id_


def _own_title(conversation: _Conversation) -> str | None:
    title = conversation.rest.get("title")
    return title if conversation.container == "messages" and isinstance(title, str) and title.strip() else None


def _is_body(conversation: _Conversation) -> bool:
    """Whether this is what was sent to the API or came back; a chat that was exported may name its model too."""
    if conversation.answer is not None:
        return True
    return any(key in conversation.rest for key in _BODY_FIELDS) and _own_title(conversation) is None


def _is_message_list(items: list[Any]) -> bool:
    first = next((item for item in items if isinstance(item, dict)), None)
    return first is not None and isinstance(first.get("role"), str) and not any(key in first for key in _CONTAINERS)


def _looks_right(messages: list[Any]) -> bool:
    """Whether messages have the marks of this format, or at least nothing that it does not know."""
    found = [message for message in messages if isinstance(message, dict)]
    if not any(_meant(message.get("role")) for message in found):
        return False
    if any(map(_has_marks, found)):
        return True
    # People have roles, too, but say nothing.
    says = any("content" in message for message in found)
    return says and len(found) == len(messages) and all(map(_is_plain, found))


def _has_marks(message: dict[str, Any]) -> bool:
    calls = message.get("tool_calls")
    return (
        "tool_call_id" in message
        or "tool_call_ids" in message
        or (isinstance(calls, list) and any(isinstance(c, dict) and isinstance(c.get("function"), dict) for c in calls))
        or any(_is_image(part) for part in _list(message.get("content")))
    )


def _is_image(part: object) -> bool:
    """Of the API of responses, too, images have an `image_url`, but are called otherwise and do not hold it in an object."""
    return isinstance(part, dict) and (part.get("type") == "image_url" or isinstance(part.get("image_url"), dict))


def _meant(role: object) -> str | None:
    """The role that this is, or that it was perhaps meant to be."""
    close = get_close_matches(role[:20].lower(), _ROLES, n=1, cutoff=0.75) if isinstance(role, str) else []
    return close[0] if close else None


def _is_plain(message: dict[str, Any]) -> bool:
    content = message.get("content")
    if not isinstance(message.get("role"), str):
        # Somebody forgot it; what has no text either is no message.
        return isinstance(content, str)
    if isinstance(content, list):
        return all(
            isinstance(part, str) or (isinstance(part, dict) and _text(part.get("type")) in _PARTS) for part in content
        )
    return content is None or isinstance(content, str)


@dataclass(kw_only=True)
class _Told:
    """What the answers of a conversation, and the times of its requests, say of its messages; by their indexes."""

    answers: dict[int, tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    """What was said, to be known again by, and what the response says beside it."""
    times: dict[int, object] = field(default_factory=dict)
    """When a message was first sent."""


@dataclass(kw_only=True)
class _Log:
    """Which conversations of a document are the same one, grown, and which others have one name. By their places."""

    outgrown: set[int] = field(default_factory=set)
    """Those of which there is a longer one."""
    first_places: dict[int, int] = field(default_factory=dict)
    """Of those that are longer than earlier ones: the place of the first."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Of those whose id is that of others before them: how many they are. Other messages under one id, such as a
    sub-agent's, are another transcript."""
    told: dict[int, _Told] = field(default_factory=dict)


def _seen(conversations: Iterator[_Conversation]) -> _Log:
    """Request bodies of one conversation are one; a repeated request is that same request."""
    log = _Log()
    own_ids: Counter[str] = Counter()
    last_places: dict[bytes, int] = {}
    """Digest of all messages of a request body -> the place of the last that has them."""
    for conversation in conversations:
        place = first = conversation.place
        is_request = conversation.answer is not None or "model" in conversation.rest
        if not isinstance(conversation.messages, Lines) and is_request and _is_body(conversation):
            digests = _prefix_digests(conversation.messages)
            earlier = next((last_places.pop(digest) for digest in reversed(digests) if digest in last_places), None)
            if digests:
                last_places[digests[-1]] = place
            if earlier is not None:
                log.outgrown.add(earlier)
                first = log.first_places[place] = log.first_places.pop(earlier, earlier)
            _note(conversation, log, earlier)
        own_id = _own_id(conversation)
        if first == place and own_id is not None and (_says_something(conversation) or _failed(conversation.rest)):
            own_ids[own_id] += 1
            if own_ids[own_id] > 1:
                log.numbers[place] = own_ids[own_id]
    return log


def _note(conversation: _Conversation, log: _Log, earlier: int | None) -> None:
    """Keeps what this exchange says of its messages, and what earlier ones of the conversation did."""
    told = log.told.pop(earlier, _Told()) if earlier is not None else _Told()
    count = len(conversation.messages) if isinstance(conversation.messages, list) else 0
    if conversation.answer is not None:
        beside = {name: value for name, value in conversation.answer.items() if name not in _ANSWERED}
        told.answers[count] = _gist(conversation.answer), beside
    sent_at = next((conversation.rest[key] for key in _TIMES if instant(conversation.rest.get(key))), None)
    if sent_at is not None:
        told.times = {**dict.fromkeys(range(count + 1), sent_at), **told.times}
    if told.answers or told.times:
        log.told[conversation.place] = told


def _gist(message: dict[str, Any]) -> bytes:
    """What a reply says, to know it again when a later request sends it, which may leave out what is empty."""
    calls = [
        (fields(call).get("id"), fields(fields(call).get("function")).get("name"))
        for call in _list(message.get("tool_calls"))
    ]
    said = [message.get("content") or "", calls, fields(message.get("function_call")).get("name")]
    return blake2b(msgspec.json.encode(said), digest_size=8).digest()


def _prefix_digests(messages: list[Any]) -> list[bytes]:
    """One digest for every start of the list."""
    running = blake2b(digest_size=16)
    digests = []
    for message in messages:
        if isinstance(message, dict):
            # Null and absent are the same to the API, and clients send now one, now the other.
            message = {name: value for name, value in message.items() if value is not None}
        encoded = msgspec.json.encode(message, order="sorted")
        running.update(b"%d:%b" % (len(encoded), encoded))
        digests.append(running.digest())
    return digests


def _failed(rest: dict[str, Any]) -> bool:
    """Whether the run itself failed: tau-bench keeps the error of a run that crashed, without messages."""
    info = rest.get("info")
    return isinstance(info, dict) and bool(info.get("error"))


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(conversation: _Conversation, told: _Told, skip: Skip) -> Iterator[Entry]:
    model = conversation.rest.get("model")
    asked: set[str | None] = set()
    for index, (where, message) in enumerate(_numbered(conversation)):
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        role = message.get("role")
        entry: Entry
        if role in ("user", "system", "developer"):
            entry = _said(str(index), message)
            if role == "user" and (calls := list(_calls(message, where, skip))):
                # The simulated users of tau2-bench have tools of their own.
                yield _timed(entry, told.times.get(index))
                times = {key: message[key] for key in _TIMES if key in message}
                entry = Reply(id=f"{index}.calls", content=None, calls=calls, agent_name="user", metadata=times)
                asked.update(call.id for call in calls)
        elif role == "assistant":
            gist, beside = told.answers.get(index, (b"", {}))
            if beside and gist == _gist(message):
                message = {**beside, **message}
            entry = reply = _reply(str(index), message, model if isinstance(model, str) else None, where, skip)
            asked.update(call.id for call in reply.calls)
        elif role in ("tool", "function"):
            *others, last = _answers(message)
            for number, other in enumerate(others):
                yield _timed(_result(f"{index}.{number}", other, asked), told.times.get(index))
            entry = _result(str(index), last, asked)
        else:
            skip(where, _odd_role(message))
            continue
        yield _timed(entry, told.times.get(index))


def _timed(entry: Entry, sent_at: object) -> Entry:
    """The entry with the time that it says itself, else that of the request in which it was first sent."""
    own = next((key for key in _TIMES if instant(entry.metadata.get(key))), None)
    said = entry.metadata[own] if own is not None else sent_at
    time = instant(said)
    if time is None:
        return entry
    metadata = {name: value for name, value in entry.metadata.items() if name != own}
    return replace(entry, created_at=time, health=time_flags(said), metadata=metadata)


def _odd_role(message: dict[str, Any]) -> str:
    role = message.get("role")
    if isinstance(role, str):
        meant = _meant(role)
        odd = f"unknown role {role[:_SHOWN]!r}" + (f", perhaps {meant!r}" if meant else "")
    else:
        odd = "a role that is no text" if "role" in message else "no role"
    return f"{odd}; a role is one of {', '.join(_ROLES)}"


def _said(id_: str, message: dict[str, Any]) -> Said:
    metadata = _rest(message, _SAID_FIELDS)
    if message["role"] == "developer":
        metadata["role"] = "developer"
    return Said(
        id=id_,
        role="user" if message["role"] == "user" else "system",
        content=_content(message.get("content")),
        metadata=metadata,
    )


def _reply(id_: str, message: dict[str, Any], model: str | None, where: str, skip: Skip) -> Reply:
    metadata = _rest(message, _REPLY_FIELDS)
    content = _content(message.get("content"))
    if not content and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    if not content and isinstance(spoken := fields(message.get("audio")).get("transcript"), str):
        content = spoken
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and not isinstance(reasoning, str):
        metadata["reasoning"], reasoning = reasoning, None
    if not reasoning:
        reasoning = _reasoned(message.get("reasoning_details"))
    usage = message.get("usage")
    if usage and not isinstance(usage, dict):
        metadata["usage"] = usage
    error = metadata.pop("error", None)
    return Reply(
        id=id_,
        content=content,
        calls=list(_calls(message, where, skip)),
        reasoning=reasoning,
        agent_name=_text(message.get("name") or message.get("agent")),
        model=_text(metadata.pop("model", None)) or model,
        usage=usage if isinstance(usage, dict) and usage else None,
        error=_text(error),
        metadata=metadata,
    )


def _reasoned(details: object) -> str | None:
    """The texts of OpenRouter's `reasoning_details`, of which some are encrypted."""
    said = [fields(part).get("text") or fields(part).get("summary") for part in _list(details)]
    return "\n\n".join(part for part in said if isinstance(part, str)) or None


def _calls(message: dict[str, Any], where: str, skip: Skip) -> Iterator[Call]:
    asked = message.get("tool_calls")
    if asked is not None and not isinstance(asked, list):
        skip(f"{where}.tool_calls", "not a list")
    for index, call in enumerate(_list(asked)):
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
    metadata = _rest(call, _CALL_FIELDS)
    if call.get("type") not in (None, "function"):
        metadata["type"] = call["type"]
    for kind, argument in (("function", "arguments"), ("custom", "input")):
        said = call.get(kind)
        if isinstance(said, dict):
            metadata |= _rest(said, frozenset({"name", argument}))
            args = said.get(argument)
            if kind == "custom" and isinstance(args, str):
                # Free text by design, not JSON that is broken; it is stored under the same key as that.
                args = {"_raw": args}
            return Call(id=_text(call.get("id")), name=_text(said.get("name")) or "", args=args, metadata=metadata)
    # Some servers leave out the inner object, or put the name in its place.
    name = _text(call.get("function")) or _text(metadata.pop("name", None)) or ""
    return Call(id=_text(call.get("id")), name=name, args=metadata.pop("arguments", None), metadata=metadata)


def _answers(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a tool in one: AutoGen answers all calls of a reply in one, and names itself instead of the tool."""
    told = [answer for answer in _list(message.get("tool_responses")) if isinstance(answer, dict)]
    beside = _without(message, "tool_responses", "content", "name")
    return (
        [*({"role": message["role"], **answer} for answer in told[:-1]), {**beside, **told[-1]}] if told else [message]
    )


def _result(id_: str, message: dict[str, Any], asked: set[str | None]) -> Result:
    content = _content(message.get("content"))
    output, parts = text_of(content)
    ids = [
        text for value in (message.get("tool_call_id"), *_list(message.get("tool_call_ids"))) if (text := _text(value))
    ]
    metadata = _rest(message, _RESULT_FIELDS)
    if not ids and (own := _text(message.get("id"))) in asked and own:
        # tau2-bench calls a result by the id of its call, and says whether it is an error.
        ids = [own]
        metadata.pop("id", None)
    failed = metadata.pop("error") if isinstance(metadata.get("error"), bool) else None
    return Result(
        id=id_,
        output=output,
        failed=failed,
        call_ids=list(dict.fromkeys(ids)),
        name=_text(message.get("name")),
        attachments=[part for part in parts or () if not is_text(part)] or None,
        metadata=metadata,
    )


# --- Values -------------------------------------------------------------------------------------------------------


def _content(value: object) -> str | list[Any] | None:
    """Text, a list of parts, or nothing; anything else as its JSON text."""
    if value is None or isinstance(value, str | list):
        return value
    return msgspec.json.encode(value).decode()


def _rest(value: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """What no field takes over and is not empty."""
    return {name: item for name, item in value.items() if name not in fields and item not in (None, "", [], {})}


def _text(value: object) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where + key
