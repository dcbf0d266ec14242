"""Read messages of Pydantic AI, as written by `all_messages_json` and its ModelMessagesTypeAdapter.

* a list or JSON lines of messages, each with the `kind` request or response and `parts`;
* an object with such a list (`messages`, `all_messages` ...); its other fields are metadata;
* a list or JSON lines of these: runs. Runs with one `conversation_id` are one session, whether each has all messages so
  far or only the new ones. Of runs without it, those that begin with all messages of an earlier one are one session.

The parts of a request are system messages, prompts and results. The `outcome` of a tool return decides failure: failed,
retried, denied and interrupted leave the call without its result. A `retry-prompt` with the name of a tool is the failed
result of its call. A `retry-prompt` without it, and `retry-feedback`, come from the framework and are system messages.
Instructions are a system message, repeated where they change. Data of a tool for the application (`metadata`) is the
data of its result. The parts of a response are one reply, up to text that follows a call run by the provider
(`builtin-tool-call`). The id of an entry is the index of its message and of its part.

The parts are those of pydantic-ai 2.68 and older versions, down to `args_json` and `request_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk.normalize import json_values
from tracesite_sdk.records import ids
from tracesite_sdk.transcripts.documents import (
    Document,
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

NAME = "pydantic_ai"

_MESSAGE_PARTS = ("system-prompt", "user-prompt", "retry-prompt", "retry-feedback", "instruction", "speech")
_CALLS = ("tool-call", "builtin-tool-call")
_RETURNS = ("tool-return", "builtin-tool-return")
_FILES = ("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file")
_OUTCOMES = {"success": False, "failed": True, "retried": True, "denied": True, "interrupted": True}
_OLD_USAGE = (("request_tokens", "input_tokens"), ("response_tokens", "output_tokens"))

_REPLY_FIELDS = ("kind", "parts", "timestamp", "model_name", "usage", "conversation_id")
_CALL_FIELDS = ("part_kind", "tool_name", "args", "tool_call_id")
_RETURN_FIELDS = ("part_kind", "tool_name", "content", "tool_call_id", "timestamp", "metadata")
_SHOWN = 60


def recognises(document: Document) -> bool:
    """Return whether the document holds requests and responses with parts of this format."""
    return any(_is_message(value) or _find_messages(value) is not None for value in first_values(document))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for runs in together(partial(_runs, document), _groups, skip):
        for number, run in enumerate(_conversations(runs), start=1):
            if not has_conversation(_entries(run, skip_silently)):
                skip(run.where or "(all)", EMPTY_CONVERSATION)
                continue
            own_id = run.id
            yield Transcript(
                entries=partial(_entries, run, skip),
                place=run.place,
                external_id=own_id if own_id is None or number == 1 else f"{own_id}#{number}",
                metadata=run.rest,
            )


# --- Runs ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Run:
    """The messages of a run: all messages of its conversation so far, or the new ones."""

    place: int
    where: str
    messages: list[tuple[str, Any]] | NumberedLines
    """Messages with their places."""
    rest: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        own_ids = (json_values.text(json_values.fields(m).get("conversation_id")) for _where, m in self.messages)
        return next(filter(None, own_ids), None)


def _runs(document: Document, skip: Skip) -> Iterator[_Run]:
    numbered = numbered_values(document)
    if any(map(_is_message, first_values(document))):
        yield _Run(place=0, where="", messages=numbered)
        return
    for place, (where, value) in enumerate(numbered):
        if (located := _find_messages(value)) is None:
            skip(where, "no messages")
            continue
        key, messages = located
        inner = f"{where}.{key}" if where and key else where + key
        rest = json_values.rest(value, (key,)) if isinstance(value, dict) else {}
        held = [(f"{inner}[{at}]", message) for at, message in enumerate(messages)]
        yield _Run(place=place, where=inner, messages=held, rest=rest)


def _find_messages(value: Any) -> tuple[str, list[Any]] | None:
    """Return the key and the messages of a run; the key of a bare list is ""."""
    if isinstance(value, list):
        return ("", value) if any(map(_is_message, value)) else None
    if isinstance(value, dict) and not _is_message(value):
        return next(((k, v) for k, v in value.items() if isinstance(v, list) and any(map(_is_message, v))), None)
    return None


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("kind") not in ("request", "response"):
        return False
    return any(
        isinstance(part, dict) and isinstance(part.get("part_kind"), str)
        for part in json_values.items(value.get("parts"))
    )


def _groups(runs: Iterable[_Run]) -> Iterator[object]:
    """Yield for each run its conversation: its id, or the index of the first run."""
    ends: dict[str, int] = {}
    for at, run in enumerate(runs):
        if not isinstance(run.messages, list) or run.id is not None:
            yield run.id
            continue
        keys = _keys(run)
        group = next((ends[key] for key in reversed(keys) if key in ends), at)
        if keys:
            ends[keys[-1]] = group
        yield group


def _conversations(runs: list[_Run]) -> list[_Run]:
    """Join the runs of one group to conversations."""
    if len(runs) == 1:
        return runs
    kept: list[_Run] = []
    keys: list[list[str]] = []
    by_id: dict[str, int] = {}
    ends: dict[str, int] = {}
    """The index of a conversation without an id, by its last key."""
    for run in runs:
        run_keys = _keys(run)
        if run.id is not None:
            at = by_id.get(run.id)
        else:
            at = next((ends[key] for key in reversed(run_keys) if key in ends), None)
        if at is None:
            at = len(kept)
            kept.append(run)
            keys.append(run_keys)
        elif run_keys[: len(keys[at])] == keys[at]:
            kept[at] = _Run(place=kept[at].place, where=run.where, messages=run.messages, rest=run.rest)
            keys[at] = run_keys
        elif keys[at][: len(run_keys)] != run_keys:
            # The run has new messages only.
            kept[at].messages = [*kept[at].messages, *run.messages]
            kept[at].rest |= run.rest
            keys[at] = _keys(kept[at])
        if run.id is not None:
            by_id[run.id] = at
        elif keys[at]:
            ends[keys[at][-1]] = at
    return kept


def _keys(run: _Run) -> list[str]:
    """Return for each message a key of the content up to and including it."""
    keys: list[str] = []
    for _where, message in run.messages:
        parts = json_values.fields(message).get("parts")
        keys.append(ids.key(keys[-1] if keys else "", msgspec.json.encode(parts, order="sorted").decode()).hex)
    return keys


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(run: _Run, skip: Skip) -> Iterator[Entry]:
    instructions = None
    request_parts: list[Any] = []
    """Parts of a request that become no entries; they are metadata of the reply."""
    for index, (where, message) in enumerate(run.messages):
        kind = json_values.fields(message).get("kind")
        if kind not in ("request", "response"):
            problem = f"unknown kind {kind[:_SHOWN]!r}" if isinstance(kind, str) else "no kind"
            problem = f"{problem}; a message is a request or a response"
            skip(where, problem if isinstance(message, dict) else "not an object")
            continue
        parts = list(_parts(message, where, skip))
        if kind == "response":
            yield from _replies(str(index), message, parts, request_parts)
            request_parts = []
            continue
        new = json_values.text(message.get("instructions"))
        if new is not None and new != instructions:
            instructions = new
            at = message.get("timestamp")
            yield Prompt(
                id=f"{index}.instructions",
                role="system",
                content=instructions,
                created_at=json_values.instant(at),
                health=json_values.time_flags(at),
            )
        for number, part in parts:
            entry = _request_entry(f"{index}.{number}", part)
            if entry is None:
                request_parts.append(part)
            else:
                yield entry


def _parts(message: dict[str, Any], where: str, skip: Skip) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, part in enumerate(json_values.items(message.get("parts"))):
        if isinstance(part, dict):
            yield number, part
        else:
            skip(f"{where}.parts[{number}]", "not an object")


def _request_entry(id_: str, part: dict[str, Any]) -> Prompt | Result | None:
    """Return the entry of a part of a request; None for a part about the request itself."""
    kind = part.get("part_kind")
    at = json_values.instant(part.get("timestamp"))
    if kind in _RETURNS:
        return _result(id_, part)
    if kind == "retry-prompt" and part.get("tool_name"):
        return replace(_result(id_, part), failed=True)
    if kind == "instruction-baseline":
        texts = [json_values.fields(item).get("content") for item in json_values.items(part.get("instructions"))]
        content: Any = "\n\n".join(text for text in texts if isinstance(text, str))
        return Prompt(id=id_, role="system", content=content, metadata=json_values.rest(part, ("instructions",)))
    if kind not in _MESSAGE_PARTS:
        return None
    content = _speech(part) if kind == "speech" else part.get("content")
    metadata = json_values.rest(part, ("part_kind", "content", "timestamp", "transcript", "audio", "scope"))
    if kind not in ("system-prompt", "user-prompt"):
        metadata["part_kind"] = kind
    return Prompt(
        id=id_,
        role="user" if kind in ("user-prompt", "speech") else "system",
        content=_content(content),
        created_at=at,
        health=json_values.time_flags(part.get("timestamp")),
        metadata=metadata,
    )


def _speech(part: dict[str, Any]) -> list[Any]:
    transcript = part.get("transcript")
    return [*([transcript] if isinstance(transcript, str) else []), *_files(part.get("audio"))]


@dataclass(kw_only=True)
class _Segment:
    """A part of a response, up to text that follows calls run by the provider."""

    texts: list[Any] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    metadata: dict[str, list[Any]] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> None:
        if value:
            self.metadata.setdefault(name, []).append(value)


def _replies(
    id_: str, message: dict[str, Any], parts: list[tuple[int, dict[str, Any]]], request_parts: list[Any]
) -> Iterator[Entry]:
    segments = [_Segment()]
    for number, part in parts:
        if segments[-1].results and part.get("part_kind") not in (*_CALLS, *_RETURNS):
            segments.append(_Segment())
        _add(segments[-1], f"{id_}.{number}", part)
    metadata = json_values.rest(message, (*_REPLY_FIELDS, *(("state",) if message.get("state") == "complete" else ())))
    if request_parts:
        metadata["request_parts"] = request_parts
    for number, segment in enumerate(segments):
        is_last = segment is segments[-1]
        yield Reply(
            id=f"{id_}.{number}" if number else id_,
            content=_content(segment.texts),
            calls=segment.calls,
            reasoning="\n\n".join(segment.thoughts) or None,
            model=json_values.text(message.get("model_name")) if is_last else None,
            usage=_usage(message.get("usage")) if is_last else None,
            created_at=json_values.instant(message.get("timestamp")),
            health=json_values.time_flags(message.get("timestamp")),
            metadata={**(metadata if is_last else {}), **segment.metadata},
        )
        yield from segment.results


def _add(segment: _Segment, id_: str, part: dict[str, Any]) -> None:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "text":
        segment.texts += [content] if isinstance(content, str) else [json_values.as_json(content)] if content else []
        segment.keep("texts", json_values.rest(part, ("part_kind", "content")))
    elif kind == "thinking":
        segment.thoughts += [content] if isinstance(content, str) and content else []
        segment.keep("thinking", json_values.rest(part, ("part_kind", "content")))
    elif kind in _CALLS:
        segment.calls.append(_call(part))
    elif kind in _RETURNS:
        segment.results.append(_result(id_, part))
    elif kind == "file":
        segment.texts += _files(content)
    elif kind == "speech":
        segment.texts += _speech(part)
    else:
        segment.keep("parts", part)


def _call(part: dict[str, Any]) -> Call:
    metadata = json_values.rest(part, _CALL_FIELDS)
    if part.get("part_kind") != "tool-call":
        metadata["part_kind"] = part["part_kind"]
    args = part.get("args")
    if isinstance(args, dict) and len(args) == 1 and (old := args.get("args_dict", args.get("args_json"))) is not None:
        args = old
    return Call(
        id=json_values.text(part.get("tool_call_id")),
        name=json_values.text(part.get("tool_name")) or "",
        args=args,
        metadata=metadata,
    )


def _result(id_: str, part: dict[str, Any]) -> Result:
    content = part.get("content")
    content_parts = content if isinstance(content, list) else [content]
    files = [item for item in content_parts if _is_file(item)]
    if files:
        others = [item for item in content_parts if not _is_file(item)]
        content = others[0] if len(others) == 1 else others or ""
    outcome, call_id = part.get("outcome"), json_values.text(part.get("tool_call_id"))
    metadata = json_values.rest(part, (*_RETURN_FIELDS, *(("outcome",) if outcome == "success" else ())))
    if part.get("part_kind") != "tool-return":
        metadata["part_kind"] = part["part_kind"]
    data = part.get("metadata")
    if data is not None and not isinstance(content, str):
        # The output itself is data.
        metadata["metadata"], data = data, None
    return Result(
        id=id_,
        output=content,
        failed=_OUTCOMES.get(outcome) if isinstance(outcome, str) else None,
        created_at=json_values.instant(part.get("timestamp")),
        health=json_values.time_flags(part.get("timestamp")),
        data=data,
        call_ids=[call_id] if call_id else [],
        name=json_values.text(part.get("tool_name")),
        attachments=[part for file in files for part in _files(file)] or None,
        metadata=metadata,
    )


# --- Values -------------------------------------------------------------------------------------------------------


def _content(value: Any) -> str | list[Any] | None:
    """Return a single text, else the parts."""
    if not isinstance(value, list):
        return json_values.content(value)
    parts = [part for item in value for part in _user_part(item)]
    if len(parts) == 1 and is_text(parts[0]) and isinstance(parts[0].get("text"), str):
        return str(parts[0]["text"])
    return parts or None


def _user_part(item: Any) -> list[Any]:
    if isinstance(item, str):
        return [{"type": "text", "text": item}]
    if isinstance(item, dict) and isinstance(item.get("content"), str) and item.get("kind") in ("text-content", "structured-content"):  # fmt: skip
        return [{"type": "text", "text": item["content"], **json_values.rest(item, ("kind", "content"))}]
    return _files(item)


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") in _FILES


def _files(value: Any) -> list[Any]:
    """Return a file as a content part: an image in OpenAI's form, any other file with its kind as type."""
    if not isinstance(value, dict):
        return [] if value is None else [value]
    kind, media_type = value.get("kind"), json_values.text(value.get("media_type")) or ""
    if kind == "image-url" and isinstance(value.get("url"), str):
        return [{"type": "image_url", "image_url": {"url": value["url"]}, **json_values.rest(value, ("kind", "url"))}]
    if (kind == "binary" or "media_type" in value) and isinstance(value.get("data"), str):
        # Pydantic encodes bytes as URL-safe base64.
        data = f"data:{media_type};base64,{value['data'].replace('-', '+').replace('_', '/')}"
        rest = json_values.rest(value, ("kind", "data"))
        if media_type.startswith("image/"):
            return [{"type": "image_url", "image_url": {"url": data}, **rest}]
        return [{"type": "file", "file": {"file_data": data}, **rest}]
    return [
        {**json_values.rest(value, ("kind",)), "type": kind} if isinstance(kind, str) and "type" not in value else value
    ]


def _usage(value: Any) -> dict[str, Any] | None:
    """Return the counts of a usage that are not 0, under their current names."""
    usage = {name: count for name, count in json_values.rest(json_values.fields(value), ()).items() if count}
    for old, new in _OLD_USAGE:
        if old in usage:
            usage.setdefault(new, usage[old])
    return usage or None
