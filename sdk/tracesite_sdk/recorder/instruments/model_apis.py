"""Requests and responses of the model providers' APIs, as their clients pass and return them.

An `Api` reads the arguments of a client's method, its response in plain dicts, and the events of a streamed response. It
knows nothing of the recorder. Values in arguments are dicts or the client's own objects; they are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content as content_of
from tracesite_sdk.normalize.json_values import fields, items, text
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.transcripts.entries import Call, Result
from tracesite_sdk.transcripts.parsing import chat_completions, response_items
from tracesite_sdk.transcripts.parsing.content_blocks import read_blocks

Json = dict[str, Any]
Arguments = Mapping[str, Any]
Asked = Callable[[str], bool]

_MOST_ITEMS = 1_000
"""Items that are searched at the end of a list of messages."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a response that are recorded. A Struct, because a frozen dataclass takes ten times as long to make."""

    text: str = ""
    reasoning: str | None = None
    calls: Sequence[Call] = ()
    results: Sequence[Result] = ()
    """Results of tools that the provider ran."""
    model: str | None = None
    usage: Json | None = None
    error: str | None = None
    is_finished: bool = True
    """False for a stream that was not read to its end."""
    metadata: Json = {}
    request: Json = {}
    """Parts of the request that the response repeats."""


@dataclass(frozen=True, kw_only=True)
class Api:
    """One way to ask a model."""

    question: Callable[[Arguments], Any]
    """Return the last question of the user in the arguments of a request."""
    results: Callable[[Arguments], Iterator[Result]]
    """Yield the results of tools in the arguments of a request, the newest first."""
    reply: Callable[[Json], ModelReply]
    """Read a response."""
    streamed: Callable[[list[Json]], ModelReply]
    """Read the events of a streamed response, of which the last may be missing."""
    previous: Callable[[Arguments], str | None] = lambda arguments: None
    """Return the id of an earlier response that the request continues."""


def get(value: Any, name: str) -> Any:
    """Return an item of a dict or a field of an object of the client."""
    if isinstance(value, Mapping):
        return value.get(name)
    return None if value is None or isinstance(value, str | list | tuple) else getattr(value, name, None)


def from_the_end(value: Any) -> Iterator[Any]:
    """Yield the items of a list from its end. Other iterables are not touched, because that would use them up."""
    if isinstance(value, list | tuple):
        yield from reversed(value[-_MOST_ITEMS:])


def _last_text(messages: Any) -> Any:
    """Return the content of the last message of the user that has some besides results."""
    if isinstance(messages, str):
        return messages
    for message in from_the_end(messages):
        if get(message, "role") != "user":
            continue
        content = get(message, "content")
        if isinstance(content, str):
            return content
        parts = [part for part in items(content) if get(part, "type") != "tool_result"]
        texts = [get(part, "text") for part in parts]
        if parts:
            return "\n\n".join(texts) if all(isinstance(text, str) for text in texts) else parts
    return None


def _arguments_of(call: Call) -> Any:
    """Return the arguments as an object, if they are its JSON text."""
    if not isinstance(call.args, str):
        return call.args
    try:
        arguments = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, RecursionError):
        return call.args
    return arguments if isinstance(arguments, dict) else call.args


def with_arguments(call: Call) -> Call:
    """Return the call with its arguments as an object, if they are its JSON text."""
    return Call(id=call.id, name=call.name, args=_arguments_of(call), metadata=call.metadata)


def _without_empty(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value}


def _error_in(events: Sequence[Json]) -> str | None:
    """Return the text of an error that came instead of the rest of a stream."""
    for event in events[-1:]:
        if event.get("error") and event.get("type") in (None, "error"):
            return chat_completions.reason(event["error"])
        if event.get("type") == "error":
            return text(event.get("message"))
    return None


# --- Chat completions (OpenAI and compatible servers) -------------------------------------------------------------------


def _chat_results(arguments: Arguments) -> Iterator[Result]:
    for message in from_the_end(arguments.get("messages")):
        call_id = get(message, "tool_call_id")
        if isinstance(call_id, str):
            yield Result(id="", output=content_of(get(message, "content")), failed=None, call_ids=[call_id])


def _chat_reply(response: Json) -> ModelReply:
    choices = response.get("choices")
    choice = fields(choices[0]) if isinstance(choices, list) and choices else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        # An error in place of a response, for example.
        answer = chat_completions.answer_in(response) or {}
        return _chat_message(answer, answer)
    return _chat_message(message, response, choice.get("finish_reason"))


def _chat_message(message: Json, about: Json, finish_reason: object = None, is_finished: bool = True) -> ModelReply:
    """Read the message of a response; `about` has its id, model and usage."""
    content = message.get("content")
    if not isinstance(content, str):
        content = text_of(content_of(content))[0] or text(message.get("refusal")) or ""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    calls = message.get("tool_calls")
    usage, error = about.get("usage"), about.get("error")
    return ModelReply(
        text=content,
        reasoning=reasoning if isinstance(reasoning, str) else None,
        calls=[_chat_call(fields(call)) for call in calls] if isinstance(calls, list) else (),
        model=text(about.get("model")),
        usage=usage if isinstance(usage, dict) and usage else None,
        error=text(error) if error else None,
        metadata=_without_empty(response_id=about.get("id"), finish_reason=finish_reason),
        is_finished=is_finished,
    )


def _chat_call(call: Json) -> Call:
    """Read a call of a function, with `arguments`, or of a custom tool, with free text as `input`."""
    custom = call.get("custom")
    function = custom if isinstance(custom, dict) else fields(call.get("function"))
    args = {"_raw": function.get("input")} if function is custom else function.get("arguments")
    return with_arguments(Call(id=text(call.get("id")), name=text(function.get("name")) or "", args=args))


def _chat_streamed(events: list[Json]) -> ModelReply:
    error = _error_in(events)
    is_finished = error is None and chat_completions.is_finished(events)
    message = chat_completions.merged(events) if events else {}
    reply = _chat_message(message, message, message.get("finish_reason"), is_finished=is_finished)
    return replace(reply, error=error) if error else reply


CHAT = Api(
    question=lambda arguments: _last_text(arguments.get("messages")),
    results=_chat_results,
    reply=_chat_reply,
    streamed=_chat_streamed,
)


# --- Responses (OpenAI) -------------------------------------------------------------------------------------------------

_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _response_results(arguments: Arguments) -> Iterator[Result]:
    for item in from_the_end(arguments.get("input")):
        kind = get(item, "type")
        if isinstance(item, Mapping) and response_items.is_result(kind):
            yield response_items.result_of("", kind, dict(item))


def _response_reply(response: Json, is_finished: bool = True, error: str | None = None) -> ModelReply:
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[Call] = []
    results: list[Result] = []
    for item in items(response.get("output")):
        kind = fields(item).get("type")
        if kind == "message":
            said, _parts = text_of(response_items.content_of(item.get("content")))
            texts += [said] if said else []
        elif kind == "reasoning":
            parts = [*items(item.get("summary")), *items(item.get("content"))]
            reasoning += [thought for part in parts if (thought := text(fields(part).get("text")))]
        elif isinstance(kind, str) and response_items.is_call(kind):
            call = response_items.call_of(kind, item)
            calls.append(with_arguments(call))
            own = kind in response_items.CARRIED_OUT and response_items.own_result("", kind, item, call.id)
            results += [own] if own else []
    failure = chat_completions.reason(response.get("error"))
    status = response.get("status")
    details = response.get("incomplete_details")
    return ModelReply(
        text="\n\n".join(texts),
        reasoning="\n\n".join(reasoning) or None,
        calls=calls,
        results=results,
        model=text(response.get("model")),
        usage=fields(response.get("usage")) or None,
        error=error or failure or ("The response failed." if status == "failed" else None),
        is_finished=is_finished,
        metadata=_without_empty(
            response_id=response.get("id"),
            status=None if status == "completed" else status,
            incomplete_details=details,
        ),
    )


def _response_streamed(events: list[Json]) -> ModelReply:
    error = _error_in(events)
    last = next((event for event in reversed(events) if isinstance(event.get("response"), dict)), None)
    if last is not None and last.get("type") in _ENDS:
        return _response_reply(last["response"], error=error)
    output = [event.get("item") for event in events if event.get("type") == "response.output_item.done"]
    known = {**last["response"], "status": None, "output": output} if last is not None else {"output": output}
    return _response_reply(known, is_finished=False, error=error)


RESPONSES = Api(
    question=lambda arguments: _last_text(arguments.get("input")),
    results=_response_results,
    reply=_response_reply,
    streamed=_response_streamed,
    previous=lambda arguments: text(arguments.get("previous_response_id")),
)


# --- Messages (Anthropic) -----------------------------------------------------------------------------------------------


def _anthropic_results(arguments: Arguments) -> Iterator[Result]:
    for message in from_the_end(arguments.get("messages")):
        content = get(message, "content")
        if get(message, "role") != "user" or not isinstance(content, list | tuple):
            continue
        for block in reversed(content):
            if isinstance(block, Mapping) and block.get("type") == "tool_result":
                yield from read_blocks([dict(block)], "", "", lambda _where, _reason: None).results


def _anthropic_reply(response: Json, is_finished: bool = True, error: str | None = None) -> ModelReply:
    blocks = read_blocks(response.get("content"), "", "", lambda _where, _reason: None)
    texts = [part for block in blocks.visible if (part := block if isinstance(block, str) else text(block.get("text")))]
    return ModelReply(
        # The pieces of one text, which citations divide.
        text="".join(texts),
        reasoning=blocks.thought,
        calls=[with_arguments(call) for call in blocks.calls],
        results=blocks.results,
        model=text(response.get("model")),
        usage={name: value for name, value in fields(response.get("usage")).items() if value is not None} or None,
        error=error,
        is_finished=is_finished,
        metadata=_without_empty(response_id=response.get("id"), stop_reason=response.get("stop_reason")),
    )


def _anthropic_streamed(events: list[Json]) -> ModelReply:
    message: Json = {}
    blocks: dict[str | None, Json] = {}
    is_finished = False
    for event in events:
        kind, index, delta = event.get("type"), text(event.get("index")), fields(event.get("delta"))
        if kind == "message_start":
            message = dict(fields(event.get("message")))
        elif kind == "content_block_start":
            blocks[index] = {**fields(event.get("content_block"))}
        elif kind == "content_block_delta" and index in blocks:
            _add_delta(blocks[index], delta)
        elif kind == "message_delta":
            message |= {name: value for name, value in delta.items() if value is not None}
            counts = {name: value for name, value in fields(event.get("usage")).items() if value is not None}
            message["usage"] = {**fields(message.get("usage")), **counts}
        elif kind == "message_stop":
            is_finished = True
    for block in blocks.values():
        pieces = block.pop("partial_json", "")
        if pieces:
            block["input"] = pieces
    return _anthropic_reply({**message, "content": list(blocks.values())}, is_finished, _error_in(events))


def _add_delta(block: Json, delta: Json) -> None:
    for name in ("text", "thinking", "signature", "partial_json"):
        if isinstance(delta.get(name), str):
            known = block.get(name)
            block[name] = (known if isinstance(known, str) else "") + delta[name]


MESSAGES = Api(
    question=lambda arguments: _last_text(arguments.get("messages")),
    results=_anthropic_results,
    reply=_anthropic_reply,
    streamed=_anthropic_streamed,
)
