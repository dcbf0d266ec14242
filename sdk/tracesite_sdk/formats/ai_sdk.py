"""Read messages of Vercel's AI SDK: those of the user interface (UIMessage) and those of the model (ModelMessage).

* UIMessage of v5 and later is `{id, role, parts}`; a tool is a part `tool-NAME` or `dynamic-tool` with state, input and
  output. In v4 tools are parts `tool-invocation`, or `toolInvocations` beside the `content`.
* ModelMessage (v5 and later) and CoreMessage (v4) have content with `tool-call` parts (`input`, or `args`). Messages with
  the role tool hold the results as `tool-result` (typed `output`, or `result` with `isError`).

A document is a list or JSON lines of messages, an object with a list (`messages` beside the `id` of the chat, or the
`response.messages` of a result), rows with a `chatId`, or a list of these. The messages of one chat are one session; a
repeated message replaces the earlier version.

An assistant message holds a whole run: each `step-start`, and any content after the output of a tool, begins another
reply. A tool has failed with the states output-error and output-denied, with the output types error-text, error-json and
execution-denied, and with `isError`; for any other output normalise decides. A chat that ends with the request
for an approval is paused. Model, usage and times come from `createdAt` and from the `metadata` of messages, if the
application uses these names.

The forms are those of `ai` 3.4 to 7.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from tracesite_sdk.normalize import json_values
from tracesite_sdk.records import SessionStatus
from tracesite_sdk.transcripts.documents import (
    Document,
    Lines,
    NumberedLines,
    Skip,
    first_values,
    numbered_values,
    skip_silently,
)
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

NAME = "ai_sdk"

_ROLES = ("user", "assistant", "system", "tool", "data")
_CHAT_IDS = ("chatId", "chat_id", "threadId", "thread_id", "conversationId", "sessionId")
# The field that distinguishes a part from parts with the same type in other formats.
_MARKS = {
    "text": "text",
    "reasoning": "text",
    "tool-call": "toolCallId",
    "tool-result": "toolCallId",
    "tool-invocation": "toolInvocation",
    "dynamic-tool": "toolCallId",
    "source-url": "sourceId",
    "source-document": "sourceId",
    "file": "mediaType",
}
_MODEL_PARTS = ("tool-call", "tool-result", "tool-error", "tool-invocation")
_IMAGES = ("image", "image-url", "image-data")
_FILES = ("file", "file-url", "file-data", *_IMAGES)
_ASKED = "approval-requested"
_PENDING = ("input-streaming", "input-available", _ASKED, "approval-responded", "partial-call", "call")
_ERRORS = ("error-text", "error-json", "execution-denied")
_DENIED = "The call was denied."

_MESSAGE_FIELDS = (
    "id",
    "role",
    "content",
    "parts",
    "createdAt",
    "created_at",
    "toolInvocations",
    "reasoning",
    *_CHAT_IDS,
)
_TOOL_FIELDS = ("type", "toolCallId", "toolName", "state", "input", "args", "output", "result", "errorText", "isError", "rawInput")  # fmt: skip
_SHOWN = 60


def recognises(document: Document) -> bool:
    """Return whether the document has messages with parts of this format only."""
    return any(_has_marks(value) or _find_messages(value) is not None for value in first_values(document))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for chats in together(partial(_chats, document), _groups, skip):
        for number, chat in enumerate(_merged(chats), start=1):
            if not has_conversation(_entries(chat, skip_silently)):
                skip(chat.where or "(all)", EMPTY_CONVERSATION)
                continue
            title = chat.rest.get("title")
            yield Transcript(
                entries=partial(_entries, chat, skip),
                place=chat.place,
                external_id=chat.id if chat.id is None or number == 1 else f"{chat.id}#{number}",
                title=title if isinstance(title, str) else None,
                end_user=json_values.text(chat.rest.get("userId")),
                status=_status(chat),
                metadata=chat.rest,
            )


# --- Chats --------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Chat:
    place: int
    where: str
    messages: list[tuple[str, Any]] | NumberedLines
    """Messages with their places."""
    adds: bool = False
    """True if these messages are added to those before, False if they are the whole chat."""
    id: str | None = None
    rest: dict[str, Any] = field(default_factory=dict)


def _chats(document: Document, skip: Skip) -> Iterator[_Chat]:
    numbered, first = numbered_values(document), first_values(document)
    if any(map(_has_marks, first)):
        if isinstance(document, Lines | list) and any(map(_chat_id, first)):
            for place, (where, message) in enumerate(numbered):
                yield _Chat(place=place, where="", messages=[(where, message)], id=_chat_id(message), adds=True)
        else:
            yield _Chat(place=0, where="", messages=numbered)
        return
    for place, (where, value) in enumerate(numbered):
        if (located := _find_messages(value)) is None:
            skip(where, "no messages")
            continue
        path, messages = located
        inner = f"{where}.{path}" if where and path else where + path
        rest = _without(value, path.split(".")) if isinstance(value, dict) else {}
        own = next((id_ for key in (*_CHAT_IDS, "id") if (id_ := json_values.text(rest.get(key)))), None)
        held = [(f"{inner}[{at}]", message) for at, message in enumerate(messages)]
        chat_id = own if path == "messages" else None
        yield _Chat(place=place, where=inner, messages=held, id=chat_id, rest=rest)


def _chat_id(message: Any) -> str | None:
    return next((id_ for key in _CHAT_IDS if (id_ := json_values.text(json_values.fields(message).get(key)))), None)


def _groups(chats: Iterable[_Chat]) -> Iterator[object]:
    """Yield the group of each part: its chat, one group for rows without a chat, and a group of its own for others."""
    return (chat.id if chat.id is not None or chat.adds else at for at, chat in enumerate(chats))


def _merged(chats: list[_Chat]) -> list[_Chat]:
    """Merge the parts of one chat; a repeated message replaces the earlier version."""
    first, *others = chats
    if not others:
        return chats
    held = list(first.messages)
    places = {own: at for at, (_where, message) in enumerate(held) if (own := _own_id(message))}
    kept = [first]
    for chat in others:
        messages = list(chat.messages)
        if not chat.adds and not (len(places) == len(held) and all(_own_id(message) for _where, message in messages)):
            kept.append(chat)
            continue
        for where, message in messages:
            own = _own_id(message) or ""
            if own in places:
                held[places[own]] = (where, message)
                continue
            if own:
                places[own] = len(held)
            held.append((where, message))
        first.rest = chat.rest
    first.messages = held
    return kept


def _own_id(message: Any) -> str | None:
    return json_values.text(json_values.fields(message).get("id"))


def _status(chat: _Chat) -> SessionStatus | None:
    """Return "paused" for a chat that ends with a call which a person has to approve. "completed" ends an earlier pause."""
    was_asked, parts = False, []
    for _where, message in chat.messages:
        parts = [json_values.fields(part) for part in _parts(json_values.fields(message))]
        was_asked = was_asked or any("approval" in part or "approvalId" in part for part in parts)
    if any(part.get("state") == _ASKED or part.get("type") == "tool-approval-request" for part in parts):
        return "paused"
    is_open = any(part.get("state") in _PENDING or part.get("type") == "tool-approval-response" for part in parts)
    return "completed" if was_asked and not is_open else None


def _find_messages(value: Any) -> tuple[str, list[Any]] | None:
    """Return the path and the messages of a chat; the path of a bare list is ""."""
    if isinstance(value, list):
        return ("", value) if any(map(_has_marks, value)) else None
    if not isinstance(value, dict) or _has_marks(value):
        return None
    held = (
        ("messages", value.get("messages")),
        ("response.messages", json_values.fields(value.get("response")).get("messages")),
    )
    return next(
        ((path, items) for path, items in held if isinstance(items, list) and any(map(_has_marks, items))), None
    )


def _without(value: dict[str, Any], path: list[str]) -> dict[str, Any]:
    kept = json_values.rest(value, path[:1])
    if len(path) > 1 and (inner := _without(json_values.fields(value[path[0]]), path[1:])):
        kept[path[0]] = inner
    return kept


def _has_marks(value: Any) -> bool:
    """Return whether this is a message in a form of this format only."""
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        return False
    if any(_is_own(part) for part in json_values.items(value.get("parts"))):
        return True
    if any("toolCallId" in json_values.fields(tool) for tool in json_values.items(value.get("toolInvocations"))):
        return True
    parts = [part for part in json_values.items(value.get("content")) if isinstance(part, dict)]
    return any(part.get("type") in ("tool-call", "tool-result") and "toolCallId" in part for part in parts)


def _is_own(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return False
    return kind == "step-start" or ("toolCallId" if _is_tool(part) else _MARKS.get(kind, "")) in part


def _is_tool(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    if kind in (*_MODEL_PARTS, "tool-approval-request", "tool-approval-response"):
        return False
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(chat: _Chat, skip: Skip) -> Iterator[Entry]:
    used: Counter[str] = Counter()
    model = json_values.text(json_values.fields(chat.rest.get("response")).get("modelId"))
    approvals: list[Any] = []
    """Parts of tool messages other than results; they are metadata of the next reply."""
    for index, (where, message) in enumerate(chat.messages):
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        role = message.get("role")
        id_ = json_values.text(message.get("id")) or str(index)
        used[id_] += 1
        id_ = id_ if used[id_] == 1 else f"{id_}#{used[id_]}"
        if role == "assistant":
            yield from _replies(id_, message, model, approvals)
            approvals = []
        elif role == "tool":
            for number, part in enumerate(_parts(message)):
                if isinstance(part, dict) and part.get("type") == "tool-result":
                    yield _result(f"{id_}.{number}", part)
                else:
                    approvals.append(part)
        elif role in ("user", "system", "data"):
            yield _message(id_, message)
        else:
            problem = f"unknown role {role[:_SHOWN]!r}" if isinstance(role, str) else "no role"
            skip(where, f"{problem}; a role is one of {', '.join(_ROLES)}")


def _parts(message: dict[str, Any]) -> list[Any]:
    """Return the parts of a message of any version; in v4 the parts repeat the content."""
    parts = json_values.items(message.get("parts"))
    if parts:
        return parts
    content = json_values.content(message.get("content"))
    texts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    thought = message.get("reasoning")
    thoughts = [{"type": "reasoning", "text": thought}] if isinstance(thought, str) and thought else []
    tools = [
        {"type": "tool-invocation", "toolInvocation": tool}
        for tool in json_values.items(message.get("toolInvocations"))
    ]
    # Without parts the order is unknown; the text usually follows the tools.
    return [*thoughts, *tools, *texts]


def _message(id_: str, message: dict[str, Any]) -> Prompt:
    metadata = json_values.rest(message, _MESSAGE_FIELDS)
    if message["role"] == "data":
        metadata["role"] = "data"
    parts = [_content_part(part) for part in _parts(message)]
    return Prompt(
        id=id_,
        role="user" if message["role"] == "user" else "system",
        content=_content(parts),
        created_at=_created_at(message),
        health=json_values.time_flags(*_times(message)),
        metadata=metadata,
    )


@dataclass(kw_only=True)
class _Step:
    """A part of an assistant message: one reply of the model with the results of its calls."""

    texts: list[Any] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.texts or self.thoughts or self.calls or self.results or self.metadata)

    def keep(self, name: str, value: Any) -> None:
        if value:
            self.metadata.setdefault(name, []).append(value)


def _replies(id_: str, message: dict[str, Any], model: str | None, approvals: list[Any]) -> Iterator[Entry]:
    items: list[Prompt | _Step] = []
    for number, part in enumerate(_parts(message)):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "steering-message":
            # The user wrote it while the run continued.
            content = _content([_content_part(item) for item in json_values.items(part.get("parts"))])
            items.append(Prompt(id=json_values.text(part.get("id")) or f"{id_}.{number}", role="user", content=content))
            continue
        step = items[-1] if items and isinstance(items[-1], _Step) else None
        is_call = kind in _MODEL_PARTS or (isinstance(part, dict) and _is_tool(part))
        if step is None or (kind == "step-start" and not step.is_empty()) or (step.results and not is_call):
            step = _Step()
            items.append(step)
        _add(step, f"{id_}.{number}", part)
    items = [item for item in items if isinstance(item, Prompt) or not item.is_empty()] or [_Step()]
    own = json_values.fields(message.get("metadata"))
    metadata = json_values.rest(message, _MESSAGE_FIELDS)
    usage = next((own[key] for key in ("usage", "totalUsage") if isinstance(own.get(key), dict)), None)
    model = next((name for key in ("model", "modelId") if (name := json_values.text(own.get(key)))), model)
    steps = [item for item in items if isinstance(item, _Step)]
    if approvals and steps:
        steps[0].metadata["approvals"] = approvals
    replies = 0
    for item in items:
        if isinstance(item, Prompt):
            yield item
            continue
        is_last = item is steps[-1]
        yield Reply(
            id=f"{id_}.step{replies}" if replies else id_,
            content=_content(item.texts),
            calls=item.calls,
            reasoning="\n\n".join(item.thoughts) or None,
            # The usage is that of all steps together.
            model=model if is_last or usage is None else None,
            usage=usage if is_last else None,
            created_at=_created_at(message) if replies == 0 else None,
            health=json_values.time_flags(*_times(message)),
            metadata={**(metadata if is_last else {}), **item.metadata},
        )
        replies += 1
        yield from item.results


def _add(step: _Step, id_: str, part: Any) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind in ("text", *_FILES):
        step.texts.append(_content_part(part))
        if kind == "text":
            step.keep("texts", json_values.rest(part, ("type", "text", "state")))
    elif kind in ("reasoning", "redacted-reasoning"):
        text = next((part[key] for key in ("text", "reasoning") if isinstance(part.get(key), str)), "")
        step.thoughts += [text] if text else []
        step.keep("reasoning", json_values.rest(part, ("type", "text", "reasoning", "state")))
    elif kind == "tool-call":
        step.calls.append(_call(part))
    elif kind == "tool-result":
        step.results.append(_result(id_, part))
    elif kind == "tool-error":
        # It is in the content of steps; messages have a result with the type error-text instead.
        step.results.append(
            _make_result(id_, part, part.get("error"), True, json_values.rest(part, (*_TOOL_FIELDS, "error")))
        )
    elif kind == "tool-invocation" or _is_tool(part):
        tool = json_values.fields(part.get("toolInvocation")) if kind == "tool-invocation" else part
        step.calls.append(_call(tool))
        if (result := _own_result(id_, tool)) is not None:
            step.results.append(result)
    elif kind != "step-start":
        # This is a source, data of the application, or a request for approval.
        step.keep("parts", part)


def _name(tool: dict[str, Any]) -> str:
    kind = tool.get("type")
    if isinstance(kind, str) and _is_tool(tool) and kind != "dynamic-tool":
        return kind.removeprefix("tool-")
    return json_values.text(tool.get("toolName")) or ""


def _call(tool: dict[str, Any]) -> Call:
    args = next((tool[key] for key in ("input", "args", "rawInput") if tool.get(key) is not None), None)
    metadata = json_values.rest(tool, _TOOL_FIELDS)
    if tool.get("state") in _PENDING:
        metadata["state"] = tool["state"]
    return Call(id=json_values.text(tool.get("toolCallId")), name=_name(tool), args=args, metadata=metadata)


def _own_result(id_: str, tool: dict[str, Any]) -> Result | None:
    """Return the result in a tool part; None while it has none."""
    state = tool.get("state")
    if state in _PENDING or tool.get("preliminary") is True:
        return None
    if state == "output-error":
        return _make_result(id_, tool, tool.get("errorText"), True)
    if state == "output-denied":
        reason = json_values.fields(tool.get("approval")).get("reason")
        return _make_result(id_, tool, json_values.text(reason) or _DENIED, True)
    key = next((key for key in ("output", "result") if key in tool), None)
    if key is None and state not in ("output-available", "result"):
        return None
    return _make_result(id_, tool, tool[key] if key else None, True if tool.get("isError") is True else None)


def _result(id_: str, part: dict[str, Any]) -> Result:
    """Return the result in a `tool-result` part: its output has a type (v5 and later) or is the bare output."""
    failed = True if part.get("isError") is True else None
    metadata = json_values.rest(part, _TOOL_FIELDS)
    output = json_values.fields(part.get("output"))
    kind = output.get("type")
    if not isinstance(kind, str) or ("value" not in output and kind != "execution-denied"):
        return _make_result(id_, part, part.get("output", part.get("result")), failed, metadata)
    metadata |= json_values.rest(output, ("type", "value", "reason"))
    if kind == "execution-denied":
        return _make_result(id_, part, json_values.text(output.get("reason")) or _DENIED, True, metadata)
    return _make_result(
        id_, part, output["value"], True if kind in _ERRORS else failed, metadata, is_content=kind == "content"
    )


def _make_result(
    id_: str,
    tool: dict[str, Any],
    output: Any,
    failed: bool | None,
    metadata: dict[str, Any] | None = None,
    *,
    is_content: bool = False,
) -> Result:
    call_id = json_values.text(tool.get("toolCallId"))
    attachments: list[Any] = []
    if is_content and isinstance(output, list):
        parts = [_content_part(part) for part in output]
        attachments = [part for part in parts if not is_text(part)]
        texts = [part if isinstance(part, str) else part.get("text") for part in parts if is_text(part)]
        output = " ".join(text for text in texts if isinstance(text, str))
    return Result(
        id=id_,
        output=output,
        failed=failed,
        call_ids=[call_id] if call_id else [],
        name=_name(tool) or None,
        attachments=attachments or None,
        metadata=metadata or {},
    )


# --- Values -------------------------------------------------------------------------------------------------------


def _content(parts: list[Any]) -> str | list[Any] | None:
    """Return the text of a single text part, else the parts."""
    parts = [part for part in parts if part not in (None, "")]
    if len(parts) == 1 and is_text(parts[0]):
        text = parts[0] if isinstance(parts[0], str) else parts[0].get("text")
        return text if isinstance(text, str) else parts
    return parts or None


def _content_part(part: Any) -> Any:
    """Return text without its state, an image in OpenAI's form, and any other part unchanged."""
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("text")}
    if kind not in _FILES:
        return part
    media_type = json_values.text(part.get("mediaType")) or json_values.text(part.get("mimeType")) or ""
    data = next((part[key] for key in ("url", "data", "image") if isinstance(part.get(key), str)), None)
    key = next((key for key in ("url", "data", "image") if part.get(key) is data), "")
    if data is None:
        held = json_values.fields(part.get("data"))
        data, key = next((held[name] for name in ("url", "data") if isinstance(held.get(name), str)), None), "data"
    is_image = media_type.startswith("image/") or kind in _IMAGES
    if data is None or not is_image:
        return part
    if not data.startswith(("data:", "http:", "https:")) and key != "url":
        data = f"data:{media_type or 'image/png'};base64,{data}"
    return {"type": "image_url", "image_url": {"url": data}, **json_values.rest(part, ("type", key))}


def _created_at(message: dict[str, Any]) -> datetime | None:
    return next((at for value in _times(message) if (at := json_values.instant(value))), None)


def _times(message: dict[str, Any]) -> list[Any]:
    """Return the possible times of a message: its own, and those in the metadata of the application."""
    holders = (message, json_values.fields(message.get("metadata")))
    return [holder.get(key) for holder in holders for key in ("createdAt", "created_at", "timestamp")]
