"""Read items, requests and responses of OpenAI's Responses API.

Documents:

* a list of items, such as `to_input_list()` of the Agents SDK, or a page of items as the API lists them (`object: list`);
* the body of a request (`input`), a response (`object: response`, `output`), or both in one object;
* a list or JSON lines of such bodies, of alternating requests and responses, of `{request, response}` pairs, of batch
  lines (`body`, `response.body`), or of stream events, of which the last response counts.

Calls and results are items. Output items in a row are one reply, up to text that follows a call run by the provider (web
search, code interpreter, MCP ...); such a call contains its result. Items about tools only (`mcp_list_tools`, a tool
search by the provider) are metadata of the reply. `instructions` are a system message, repeated where they change.

Exchanges are one conversation if one names the response of the other (`previous_response_id`), if both name the same
`conversation`, or if the input of one begins with all items of the other. Then only the items after these are new;
replies keep the model, usage and time of their response. A later snapshot may not contain the first response, so only
`conversation` is an id of the session. The id of an entry is the index of its first item.

The format has no flag for a failed function; normalise decides by the output. Items are those of openai-python 3.52
(types/responses) and the camelCase ones of the Agents SDK for JavaScript.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize import json_values
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, join_place, numbered_values, skip_silently
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
    is_text,
)
from tracesite_sdk.transcripts.parsing.grouping import together
from tracesite_sdk.transcripts.parsing.requests import model_input
from tracesite_sdk.transcripts.parsing.response_items import (
    ARGUMENTS,
    CARRIED_OUT,
    MARKED_PARTS,
    call_id_of,
    call_of,
    content_of,
    is_call,
    is_client_search,
    is_result,
    joined,
    own_result,
    result_of,
)

NAME = "openai_responses"

_ROLES = ("user", "assistant", "system", "developer")
_INSTRUCTIONS = "instructions"
"""The type of an item made by this module for the `instructions` of a body."""
_FAILURE = "failure"
"""The type of an item made by this module for a failed response without output."""

# Marks of a body of this API beside `model` and `input`, which embeddings have too.
_REQUEST_MARKS = frozenset(
    {"instructions", "previous_response_id", "max_output_tokens", "conversation", "max_tool_calls", "truncation"}
)
_WRAPPERS = ("request", "response", "body")
_BODY_FIELDS = frozenset(
    {"input", "output", "instructions", "model", "user", "usage", "error", "created_at", "completed_at", "object", "id"}
)
# https://platform.openai.com/docs/api-reference/responses/create
_REQUEST_FIELDS = (
    *("model", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "temperature", "top_p", "top_logprobs"),
    *("max_output_tokens", "reasoning", "text", "truncation", "include", "stream", "store", "service_tier", "prompt"),
    *("background", "verbosity", "prompt_cache_key", "previous_response_id"),
)
_SHOWN = 60
"""Characters of an unknown role in a report."""


def recognises(document: Document) -> bool:
    """Return whether the document has items of this API only, or a body of its requests or responses."""
    if isinstance(document, Lines):
        document = document.head()
    document = _page(document)
    if isinstance(document, list):
        return any(_has_marks(item) or _is_exchange(item) for item in document) or any(
            isinstance(item, list) and any(map(_has_marks, item)) for item in document
        )
    return _is_exchange(document) or _has_marks(document)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for exchanges in together(partial(_exchanges, document), _groups, skip):
        for number, conversation in enumerate(_conversations(exchanges), start=1):
            if not has_conversation(_entries(conversation, skip_silently)):
                skip(conversation.where or "(all)", EMPTY_CONVERSATION)
                continue
            own_id, rest = conversation.own_id, conversation.rest
            yield Transcript(
                entries=partial(_entries, conversation, skip),
                place=conversation.place,
                external_id=own_id if own_id is None or number == 1 else f"{own_id}#{number}",
                end_user=json_values.text(rest.get("user")) or json_values.text(rest.get("safety_identifier")),
                status="error" if conversation.failed else None,
                metadata=json_values.rest(rest, ("user",)),
            )


# --- Exchanges ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answer:
    """The fields of a response that apply to all its items."""

    model: str | None = None
    usage: dict[str, Any] | None = None
    created_at: datetime | None = None
    error: str | None = None
    asked: records.ModelInput | None = None
    """The input of the request."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Item:
    where: str
    value: Any
    answer: _Answer | None = None
    """The response that contains the item; None for input."""
    sent_at: datetime | None = None


@dataclass(frozen=True)
class _Streamed:
    """A document with one item in each line, which is read again instead of being held."""

    lines: Lines

    def __iter__(self) -> Iterator[_Item]:
        return (_Item(where=f"line {line.number}", value=line.value) for line in self.lines)


@dataclass(kw_only=True)
class _Exchange:
    """A request, the response to it, or both."""

    place: int
    where: str
    input: list[_Item] = field(default_factory=list)
    streamed: _Streamed | None = None
    """The input, if it is the whole document."""
    output: list[_Item] | None = None
    """None without a response."""
    instructions: Any = None
    response_id: str | None = None
    previous_id: str | None = None
    conversation_id: str | None = None
    failed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    """The fields of the request besides its input and its instructions; a response repeats them."""
    rest: dict[str, Any] = field(default_factory=dict)


def _exchanges(document: Document, skip: Skip) -> Iterator[_Exchange]:
    """Yield the exchanges of a document in order; a response without a request answers the request before it."""
    waiting: _Exchange | None = None
    for exchange in _unpaired_exchanges(document, skip):
        if waiting is not None:
            if exchange.output is not None and not exchange.input:
                yield _with_asked(_merged(waiting, exchange))
                waiting = None
                continue
            yield waiting
            waiting = None
        if exchange.output is None and exchange.input:
            waiting = exchange
        else:
            yield _with_asked(exchange)
    if waiting is not None:
        yield waiting


def _with_asked(exchange: _Exchange) -> _Exchange:
    """Give the answer of an exchange what its request said."""
    answer = next((item.answer for item in exchange.output or () if item.answer is not None), None)
    if answer is not None and exchange.output is not None:
        asked = model_input(
            [item.value for item in exchange.input],
            system=exchange.instructions,
            parameters={name: value for name, value in exchange.parameters.items() if value not in (None, [], {})},
        )
        answered = replace(answer, asked=asked)
        exchange.output = [replace(item, answer=answered) for item in exchange.output]
    return exchange


def _unpaired_exchanges(document: Document, skip: Skip) -> Iterator[_Exchange]:
    if isinstance(document, Lines):
        if not any(_is_exchange(value) or isinstance(value, list) for value in document.head()):
            yield _Exchange(place=0, where="", streamed=_Streamed(document))
            return
    else:
        document = [document] if isinstance(document, dict) and _is_item(document) else _page(document)
        if isinstance(document, list) and not any(_is_exchange(item) or isinstance(item, list) for item in document):
            yield _Exchange(place=0, where="", input=_items(document, ""))
            return
    streamed: list[_Item] = []
    for place, (where, value) in enumerate(numbered_values(document)):
        if isinstance(value, list):
            yield _Exchange(place=place, where=where, input=_items(value, where))
        elif _is_event(value):
            # The last event has the whole response; a stream that was cut off has only its finished items.
            if value["type"] == "response.output_item.done":
                streamed.append(_Item(where=where, value=value.get("item"), answer=None))
            elif isinstance(value.get("response"), dict) and isinstance(value["response"].get("output"), list):
                has_ended = value["type"] in ("response.completed", "response.incomplete", "response.failed")
                if has_ended or value["type"] == "response.created":
                    streamed = []
                if has_ended:
                    yield _exchange(value["response"], value["response"], place, join_place(where, "response"))
        elif (bodies := _bodies(value)) is not None:
            yield _exchange(*bodies, place, where)
        else:
            skip(where, "neither a request nor a response")
    if streamed:
        yield _Exchange(place=0, where="", input=[], output=streamed)


def _exchange(request: dict[str, Any], response: dict[str, Any], place: int, where: str) -> _Exchange:
    both = {**request, **{name: value for name, value in response.items() if value is not None}}
    answer = _answer(both)
    sent = request.get("input")
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    exchange = _Exchange(
        place=place,
        where=where,
        input=_items(sent, join_place(where, "input")) if isinstance(sent, list) else [],
        instructions=both.get("instructions"),
        response_id=_own_response_id(response),
        previous_id=json_values.text(both.get("previous_response_id")),
        conversation_id=_conversation_id(both.get("conversation")),
        failed=answer.error is not None,
        parameters={name: both[name] for name in _REQUEST_FIELDS if name in both},
        rest=json_values.rest(both, _BODY_FIELDS - {"user"}),
    )
    output = response.get("output")
    if isinstance(output, list):
        exchange.output = _items(output, join_place(where, "output"), answer)
    elif answer.error is not None:
        exchange.output = []
    if exchange.failed and not exchange.output:
        exchange.output = [_Item(where=where, value={"type": _FAILURE}, answer=answer)]
    exchange.input = _with_time(exchange.input, answer.created_at)
    return exchange


def _with_time(items: list[_Item], sent_at: datetime | None) -> list[_Item]:
    """Set the time of the messages since the last reply: they were sent with this request."""
    last = max((at for at, item in enumerate(items) if not _is_prompt(item.value)), default=-1)
    return [replace(item, sent_at=sent_at if at > last else None) for at, item in enumerate(items)]


def _merged(request: _Exchange, response: _Exchange) -> _Exchange:
    """Merge a request and a response that were logged one after the other."""
    created_at = next((item.answer.created_at for item in response.output or () if item.answer), None)
    return _Exchange(
        place=request.place,
        where=request.where,
        input=_with_time(request.input, created_at),
        output=response.output,
        instructions=response.instructions if response.instructions is not None else request.instructions,
        response_id=response.response_id,
        previous_id=response.previous_id or request.previous_id,
        conversation_id=response.conversation_id or request.conversation_id,
        failed=response.failed,
        parameters={**request.parameters, **response.parameters},
        rest={**request.rest, **response.rest},
    )


def _answer(body: dict[str, Any]) -> _Answer:
    error = body.get("error")
    reason = error.get("message") or error.get("code") if isinstance(error, dict) else error
    failed = body.get("status") == "failed"
    metadata = json_values.rest(body, frozenset(body) - {"incomplete_details", "service_tier", "completed_at"})
    if body.get("status") not in (None, "completed"):
        metadata["status"] = body["status"]
    if (response_id := _own_response_id(body)) is not None:
        metadata["response_id"] = response_id
    if isinstance(error, dict):
        metadata["error"] = error
    model, usage = body.get("model"), body.get("usage")
    return _Answer(
        model=model if isinstance(model, str) else None,
        usage=usage if isinstance(usage, dict) else None,
        created_at=json_values.instant(body.get("created_at")),
        error=json_values.text(reason) or ("the response failed" if failed or error else None),
        metadata=metadata,
    )


def _bodies(value: object) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the bodies of a request and its response, which may be one object; {} for a missing one."""
    if not isinstance(value, dict) or _is_item(value):
        return None
    if _is_body(value) and not isinstance(value.get("response"), dict):
        return (value, value if "output" in value or value.get("object") == "response" else {})
    rest = {name: item for name, item in value.items() if name not in _WRAPPERS}
    request = _unwrapped(value.get("request")) or _unwrapped(value.get("body"))
    response = _unwrapped(value.get("response"))
    request = rest if not request and "input" in rest else {**json_values.rest(rest, ("id", "error")), **request}
    if not _is_body(request) and not _is_body(response):
        return None
    return (request, response or (request if "output" in request else {}))


def _unwrapped(value: object) -> dict[str, Any]:
    """Return the body inside a log record; some logs keep it as JSON text."""
    for _layer in range(3):
        if isinstance(value, str):
            try:
                value = decode_json(value)
            except (msgspec.DecodeError, RecursionError):
                return {}
        if not isinstance(value, dict):
            return {}
        if "body" not in value:
            return value
        value = value["body"]
    return {}


def _own_response_id(body: dict[str, Any]) -> str | None:
    id_ = body.get("id")
    is_response_id = isinstance(id_, str) and id_ and (body.get("object") == "response" or id_.startswith("resp"))
    return id_ if is_response_id else None


def _conversation_id(value: object) -> str | None:
    return json_values.text(value.get("id") if isinstance(value, dict) else value)


def _items(values: list[Any], where: str, answer: _Answer | None = None) -> list[_Item]:
    return [_Item(where=f"{where}[{at}]", value=value, answer=answer) for at, value in enumerate(values)]


def _page(document: Any) -> Any:
    """Return the items of a page, oldest first: the API lists the newest first by default."""
    if not isinstance(document, dict) or document.get("object") != "list" or not isinstance(document.get("data"), list):
        return document
    items = document["data"]
    if not any(map(_has_marks, items)):
        return document
    calls = [at for at, item in enumerate(items) if isinstance(item, dict) and item.get("type") == "function_call"]
    results = [at for at, item in enumerate(items) if isinstance(item, dict) and is_result(item.get("type"))]
    ends_with_prompt = _is_prompt(items[-1]) and not _is_prompt(items[0])
    is_newest_first = min(results) < min(calls) if calls and results else ends_with_prompt
    return items[::-1] if is_newest_first else items


# --- Recognising --------------------------------------------------------------------------------------------------


def _is_exchange(value: object) -> bool:
    return _is_event(value) or (not isinstance(value, str) and _bodies(value) is not None)


def _is_event(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"].startswith("response.") and ("sequence_number" in value or "response" in value)


def _is_body(body: dict[str, Any]) -> bool:
    """Return whether this is the body of a request or of a response."""
    sent, output = body.get("input"), body.get("output")
    if isinstance(output, list) and (body.get("object") == "response" or any(map(_has_marks, output))):
        return True
    if isinstance(sent, list) and any(map(_has_marks, sent)):
        return True
    if body.get("object") == "response" and body.get("error"):
        return True
    url = body.get("url")
    has_marks = "model" in body and not _REQUEST_MARKS.isdisjoint(body)
    has_marks = has_marks or (isinstance(url, str) and url.rstrip("/").endswith("/responses"))
    has_messages = isinstance(sent, list) and any(
        isinstance(item, dict) and item.get("role") in _ROLES for item in sent
    )
    return has_marks and "messages" not in body and (isinstance(sent, str) or has_messages)


def _has_marks(item: object) -> bool:
    """Return whether this is an item of this format only."""
    if not isinstance(item, dict):
        return False
    kind, content = item.get("type"), item.get("content")
    if kind in (None, "message"):
        parts = content if item.get("role") in _ROLES and isinstance(content, list) else []
        return any(isinstance(part, dict) and part.get("type") in MARKED_PARTS for part in parts)
    return _is_item(item)


def _is_item(item: dict[str, Any]) -> bool:
    kind = item.get("type")
    if not isinstance(kind, str):
        return False
    if kind in ("function_call", "custom_tool_call", "program"):
        return call_id_of(item) is not None and isinstance(item.get("name") or item.get("code"), str)
    if kind in ("local_shell_call", "shell_call", "apply_patch_call"):
        return call_id_of(item) is not None
    if kind == "reasoning":
        return isinstance(item.get("summary"), list) or "encrypted_content" in item
    if kind in CARRIED_OUT or kind in ("mcp_approval_request", "mcp_list_tools", "tool_search_call", "computer_call"):
        return True
    return is_result(kind) and (call_id_of(item) is not None or kind == "tool_search_output")


def _is_prompt(item: object) -> bool:
    return isinstance(item, dict) and item.get("role") in _ROLES and item.get("role") != "assistant"


# --- Conversations ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Conversation:
    place: int
    where: str
    group: int
    """The index of the first exchange, shared with the conversations that it branched off."""
    own_id: str | None = None
    items: list[_Item] = field(default_factory=list)
    streamed: _Streamed | None = None
    length: int = 0
    """The number of items, held or not."""
    end: bytes = b""
    """The digest of all items so far."""
    instructions: Any = None
    rest: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


class _Log:
    """Joins exchanges to conversations, one after the other."""

    def __init__(self, *, holds: bool) -> None:
        self.kept: list[_Conversation] = []
        self._holds = holds
        """True to keep the items of the conversations, False to only assign exchanges to them."""
        self._count = 0
        self._by_id: dict[str, _Conversation] = {}
        self._by_response: dict[str, tuple[_Conversation, int, bytes]] = {}
        """The conversation of a response, with its length and its digest after that response."""
        self._ends: dict[bytes, _Conversation] = {}

    def add(self, exchange: _Exchange) -> _Conversation:
        """Add an exchange and return its conversation; a repeated exchange adds nothing."""
        at, self._count = self._count, self._count + 1
        if exchange.response_id is not None and exchange.response_id in self._by_response:
            return self._by_response[exchange.response_id][0]
        conversation, known = self._earlier(exchange, at)
        if conversation is None:
            own_id = exchange.conversation_id
            conversation = _Conversation(place=exchange.place, where=exchange.where, group=at, own_id=own_id)
            if self._holds:
                self.kept.append(conversation)
        self._ends.pop(conversation.end, None)
        self._add_items(conversation, exchange, known)
        if conversation.end:
            self._ends[conversation.end] = conversation
        if exchange.conversation_id is not None:
            self._by_id[exchange.conversation_id] = conversation
        if exchange.response_id is not None:
            self._by_response[exchange.response_id] = (conversation, conversation.length, conversation.end)
        return conversation

    def _earlier(self, exchange: _Exchange, at: int) -> tuple[_Conversation | None, int]:
        """Return the conversation that the exchange continues, and the number of input items it already has."""
        if exchange.conversation_id is not None and exchange.conversation_id in self._by_id:
            return self._by_id[exchange.conversation_id], 0
        if exchange.previous_id is not None:
            if exchange.previous_id not in self._by_response:
                return None, 0
            conversation, length, end = self._by_response[exchange.previous_id]
            if length == conversation.length:
                return conversation, 0
            return self._branch(exchange, conversation, length, end), 0
        if exchange.conversation_id is not None:
            return None, 0
        digests = _digests(exchange.input)
        for known in range(len(digests), 0, -1):
            earlier = self._ends.get(digests[known - 1])
            # An input without new items is the same conversation only if its instructions are the same.
            if earlier is not None and (known < len(digests) or earlier.instructions == exchange.instructions):
                return earlier, known
        return None, 0

    def _branch(self, exchange: _Exchange, conversation: _Conversation, length: int, end: bytes) -> _Conversation:
        """Return a new conversation with the first `length` items of one that has more by now."""
        branch = replace(
            conversation,
            place=exchange.place,
            where=exchange.where,
            items=conversation.items[:length],
            length=length,
            end=end,
        )
        if self._holds:
            self.kept.append(branch)
        return branch

    def _add_items(self, conversation: _Conversation, exchange: _Exchange, known: int) -> None:
        """Add the items of an exchange behind its first `known` input items."""
        items = [*exchange.input[known:], *(exchange.output or ())]
        conversation.end = next(reversed(_digests(items, conversation.end)), conversation.end)
        if exchange.instructions not in (None, "") and exchange.instructions != conversation.instructions:
            conversation.instructions = exchange.instructions
            value = {"type": _INSTRUCTIONS, "content": exchange.instructions}
            items.insert(0, _Item(where=join_place(exchange.where, "instructions"), value=value))
        conversation.length += len(items)
        conversation.failed = exchange.failed
        if self._holds:
            conversation.items += items
            conversation.streamed = exchange.streamed
            conversation.rest = exchange.rest or conversation.rest


def _groups(exchanges: Iterable[_Exchange]) -> Iterator[int]:
    log = _Log(holds=False)
    return (log.add(exchange).group for exchange in exchanges)


def _conversations(exchanges: Iterable[_Exchange]) -> list[_Conversation]:
    log = _Log(holds=True)
    for exchange in exchanges:
        log.add(exchange)
    return log.kept


def _digests(items: Iterable[_Item], end: bytes = b"") -> list[bytes]:
    """Return a digest of the items up to each one, without reasoning and ids, which some clients omit."""
    digests: list[bytes] = []
    for item in items:
        essence = _essence(item.value)
        if essence:
            end = blake2b(end + msgspec.json.encode(essence, order="sorted"), digest_size=16).digest()
        digests.append(end)
    return digests


def _essence(item: object) -> list[Any]:
    if not isinstance(item, dict):
        return [item]
    kind = item.get("type")
    if kind in ("reasoning", "item_reference", "compaction_trigger", _INSTRUCTIONS, _FAILURE):
        return []
    if kind in (None, "message"):
        text, parts = text_of(content_of(item.get("content")))
        return [item.get("role"), text, [part for part in parts or () if not is_text(part)]]
    payload = next((item[key] for key in (*ARGUMENTS, "output", "result") if item.get(key) is not None), None)
    return [kind, call_id_of(item) or item.get("id"), item.get("name"), payload]


# --- Entries ------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Open:
    """A reply to which further items may belong."""

    id: str
    last: int
    """The index of the last item."""
    answer: _Answer | None
    texts: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    """Results of calls that the provider ran."""
    metadata: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, value: object) -> None:
        if value:
            self.metadata.setdefault(name, []).append(value)

    def entries(self, is_last: bool) -> Iterator[Entry]:
        """Yield the reply and the results in its calls; `is_last` if it is the last reply of its response."""
        answer = self.answer or _Answer()
        yield Reply(
            id=self.id,
            content=joined(self.texts),
            calls=self.calls,
            reasoning="\n\n".join(self.reasoning) or None,
            model=answer.model if is_last else None,
            usage=answer.usage if is_last else None,
            created_at=answer.created_at,
            error=answer.error if is_last else None,
            input=answer.asked if is_last else None,
            is_request=is_last and answer.asked is not None,
            metadata={**answer.metadata, **self.metadata},
        )
        yield from self.results


def _entries(conversation: _Conversation, skip: Skip) -> Iterator[Entry]:
    last_of = {
        item.answer: at
        for at, item in enumerate(conversation.items)
        if item.answer is not None and _is_output(item.value)
    }

    def closed(reply: _Open) -> Iterator[Entry]:
        return reply.entries(last_of.get(reply.answer) == reply.last if reply.answer else True)

    reply: _Open | None = None
    index = -1
    seen: set[str] = set()
    for at, item in enumerate(conversation.streamed or conversation.items):
        value = item.value
        # Instructions are not items of the document, so they do not count.
        index += not (isinstance(value, dict) and value.get("type") == _INSTRUCTIONS)
        if not isinstance(value, dict):
            skip(item.where, "not an object")
            continue
        kind = _kind(value)
        if kind == "item_reference":
            if json_values.text(value.get("id")) not in seen:
                skip(item.where, "a reference to an unknown item")
            continue
        seen.add(json_values.text(value.get("id")) or "")
        if kind == "message" and value.get("role") not in _ROLES:
            role = value.get("role")
            reason = f"unknown role {role[:_SHOWN]!r}" if isinstance(role, str) else "no role"
            skip(item.where, f"{reason}; a role is one of {', '.join(_ROLES)}")
            continue
        if not _is_output(value):
            if reply is not None:
                yield from closed(reply)
                reply = None
            yield _input_entry(str(index), kind, item)
            continue
        if reply is not None and (reply.answer is not item.answer or (reply.results and not is_call(kind))):
            yield from closed(reply)
            reply = None
        if reply is None:
            reply = _Open(id=str(index), last=at, answer=item.answer)
        reply.last = at
        _add(reply, kind, value, f"{index}.result")
    if reply is not None:
        yield from closed(reply)


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    return "item_reference" if "role" not in item and "content" not in item and "id" in item else "message"


def _is_output(item: object) -> bool:
    """Return whether an item comes from the model or its provider."""
    if not isinstance(item, dict):
        return False
    kind = _kind(item)
    if kind == "message":
        return item.get("role") == "assistant"
    if kind == "tool_search_output":
        return not is_client_search(item)
    is_input = kind in (_INSTRUCTIONS, "additional_tools", "compaction_trigger", "item_reference") or is_result(kind)
    return not is_input


def _input_entry(id_: str, kind: str, item: _Item) -> Prompt | Result:
    value = item.value
    if is_result(kind):
        return result_of(id_, kind, value)
    if kind == _INSTRUCTIONS:
        content = content_of(
            [value["content"]] if isinstance(value["content"], str) else _instructions(value["content"])
        )
        return Prompt(id="instructions" if id_ == "-1" else f"instructions-{id_}", role="system", content=content)
    metadata = json_values.rest(value, frozenset({"type", "role", "content"}))
    if kind != "message":
        metadata["type"] = kind
    if value.get("role") == "developer":
        metadata["role"] = "developer"
    return Prompt(
        id=id_,
        role="user" if kind == "message" and value.get("role") == "user" else "system",
        content=content_of(value.get("content")),
        created_at=item.sent_at,
        metadata=metadata,
    )


def _instructions(value: object) -> Any:
    """Return the parts of instructions that are a list of messages, and other instructions unchanged."""
    if not isinstance(value, list):
        return value
    parts: list[Any] = []
    for item in value:
        content = content_of(item.get("content")) if isinstance(item, dict) and "content" in item else [item]
        parts += content if isinstance(content, list) else [content or ""]
    return parts


def _add(reply: _Open, kind: str, item: dict[str, Any], result_id: str) -> None:
    if kind == "message":
        content = content_of(item.get("content"))
        reply.texts += content if isinstance(content, list) else [content] if content else []
        others = json_values.rest(item, frozenset({"type", "role", "content", "status"}))
        if item.get("status") not in (None, "completed"):
            others["status"] = item["status"]
        parts = [part for part in json_values.items(item.get("content")) if isinstance(part, dict)]
        for name in ("refusal", "annotations", "logprobs"):
            if values := [value for part in parts for value in _as_list(part.get(name))]:
                others[name] = values
        reply.keep("messages", others)
    elif kind == "reasoning":
        parts = [*json_values.items(item.get("summary")), *json_values.items(item.get("content"))]
        reply.reasoning += [
            p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str) and p["text"]
        ]
        reply.keep("reasoning", json_values.rest(item, frozenset({"type", "summary", "content", "status"})))
    elif kind == _FAILURE:
        pass
    elif not is_call(kind) or (kind == "tool_search_call" and not is_client_search(item)):
        reply.keep("items", item)
    else:
        call = call_of(kind, item)
        reply.calls.append(call)
        if kind in CARRIED_OUT and (result := own_result(result_id, kind, item, call.id)) is not None:
            reply.results.append(result)


# --- Values -------------------------------------------------------------------------------------------------------


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, "") else [value]
