"""Transcripts in the messages of Pydantic AI, as `all_messages_json` and its ModelMessagesTypeAdapter write them.

* a list or JSON lines of messages, each of `kind` request or response with `parts`;
* an object that holds such a list (`messages`, `all_messages` ...), the rest of it being metadata;
* a list or JSON lines of those: runs. Runs of one `conversation_id` are one session, whether each brings all messages so
  far or only its new ones; of runs without one, those that begin with all of an earlier one.

The parts of a request are what the system, the user and tools said. A tool's return has failed by its `outcome`: failed,
retried, denied and interrupted all leave the call without the result that was asked for. A `retry-prompt` with a tool's
name is the failed result of that call. One without (and `retry-feedback`) is said by the framework, hence as the system.
Instructions are the system's, and are said where they change. What a tool keeps for the application (`metadata`) is the
data of its result. The parts of a response are one reply, until the model goes on after a call that its provider carried
out itself (`builtin-tool-call`). A part's id is the index of its message and its own.

The parts are those of pydantic-ai 2.68 and older ones, down to `args_json` and `request_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from messages_app import ids
from traces_app.normalize import json_values
from traces_app.transcripts.entries import (
    NOTHING_SAID,
    Call,
    Entry,
    Reply,
    Result,
    Said,
    Transcript,
    is_text,
    says_something,
)
from traces_app.transcripts.files.documents import Document, Lines, NumberedLines, Skip
from traces_app.transcripts.parsing.grouping import tell_nobody, together

NAME = "pydantic_ai"

_SAID = ("system-prompt", "user-prompt", "retry-prompt", "retry-feedback", "instruction", "speech")
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
    """Whether the document holds requests and responses with the parts that only this format has."""
    if isinstance(document, Lines):
        document = document.head()
    if isinstance(document, list):
        return any(map(_is_message, document)) or any(_messages_of(item) is not None for item in document)
    return _is_message(document) or _messages_of(document) is not None


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The conversations of a document that `recognises` accepts; what they leave out is told to `skip`."""
    for runs in together(partial(_runs, document), _groups, skip):
        for number, run in enumerate(_conversations(runs), start=1):
            if not says_something(_entries(run, tell_nobody)):
                skip(run.where or "(all)", NOTHING_SAID)
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
    """Messages that lie together; of a conversation they are all, or those that are new."""

    place: int
    where: str
    messages: list[tuple[str, Any]] | NumberedLines
    """With their places."""
    rest: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        found = (json_values.text(m.get("conversation_id")) for _where, m in self.messages if isinstance(m, dict))
        return next(filter(None, found), None)


def _runs(document: Document, skip: Skip) -> Iterator[_Run]:
    if isinstance(document, Lines):
        places: Iterable[tuple[str, Any]] = ((f"line {line.number}", line.value) for line in document)
        in_pieces = any(map(_is_message, document.head()))
    elif isinstance(document, list):
        places = [(f"[{at}]", value) for at, value in enumerate(document)]
        in_pieces = any(map(_is_message, document))
    else:
        places, in_pieces = [("", document)], _is_message(document)
    if in_pieces:
        yield _Run(place=0, where="", messages=NumberedLines(document) if isinstance(document, Lines) else list(places))
        return
    for place, (where, value) in enumerate(places):
        found = _messages_of(value)
        if found is None:
            skip(where, "no messages")
            continue
        key, messages = found
        inner = f"{where}.{key}" if where and key else where + key
        rest = json_values.rest(value, (key,)) if isinstance(value, dict) else {}
        held = [(f"{inner}[{at}]", message) for at, message in enumerate(messages)]
        yield _Run(place=place, where=inner, messages=held, rest=rest)


def _messages_of(value: Any) -> tuple[str, list[Any]] | None:
    """The messages of one run, and the key under which they lie ("" where there is nothing else)."""
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
    """For each run the conversation that it is a part of: its name, or the index of the first run."""
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
    """Runs of one group put together to the conversations that they are parts of."""
    if len(runs) == 1:
        return runs
    kept: list[_Run] = []
    keys: list[list[str]] = []
    by_id: dict[str, int] = {}
    ends: dict[str, int] = {}
    """The last key of a conversation without an id -> which one it is."""
    for run in runs:
        found = _keys(run)
        at = (
            by_id.get(run.id)
            if run.id is not None
            else next((ends[key] for key in reversed(found) if key in ends), None)
        )
        if at is None:
            at = len(kept)
            kept.append(run)
            keys.append(found)
        elif found[: len(keys[at])] == keys[at]:
            kept[at] = _Run(place=kept[at].place, where=run.where, messages=run.messages, rest=run.rest)
            keys[at] = found
        elif keys[at][: len(found)] != found:
            # New messages only.
            kept[at].messages = [*kept[at].messages, *run.messages]
            kept[at].rest |= run.rest
            keys[at] = _keys(kept[at])
        if run.id is not None:
            by_id[run.id] = at
        elif keys[at]:
            ends[keys[at][-1]] = at
    return kept


def _keys(run: _Run) -> list[str]:
    """For each message what was said up to it."""
    found: list[str] = []
    for _where, message in run.messages:
        said = json_values.fields(message).get("parts")
        found.append(ids.key(found[-1] if found else "", msgspec.json.encode(said, order="sorted").decode()).hex)
    return found


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(run: _Run, skip: Skip) -> Iterator[Entry]:
    instructions = None
    beside: list[Any] = []
    """Parts of a request that nobody said: the reply to it keeps them."""
    for index, (where, message) in enumerate(run.messages):
        kind = json_values.fields(message).get("kind")
        if kind not in ("request", "response"):
            odd = f"unknown kind {kind[:_SHOWN]!r}" if isinstance(kind, str) else "no kind"
            skip(
                where, f"{odd}; a message is a request or a response" if isinstance(message, dict) else "not an object"
            )
            continue
        parts = list(_parts(message, where, skip))
        if kind == "response":
            yield from _replied(str(index), message, parts, beside)
            beside = []
            continue
        said = json_values.text(message.get("instructions"))
        if said is not None and said != instructions:
            instructions = said
            at = message.get("timestamp")
            yield Said(
                id=f"{index}.instructions",
                role="system",
                content=said,
                created_at=json_values.instant(at),
                health=json_values.time_flags(at),
            )
        for number, part in parts:
            entry = _sent(f"{index}.{number}", part)
            if entry is None:
                beside.append(part)
            else:
                yield entry


def _parts(message: dict[str, Any], where: str, skip: Skip) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, part in enumerate(json_values.items(message.get("parts"))):
        if isinstance(part, dict):
            yield number, part
        else:
            skip(f"{where}.parts[{number}]", "not an object")


def _sent(id_: str, part: dict[str, Any]) -> Said | Result | None:
    """What a part of a request says; None where that is about the request."""
    kind = part.get("part_kind")
    at = json_values.instant(part.get("timestamp"))
    if kind in _RETURNS:
        return _returned(id_, part)
    if kind == "retry-prompt" and part.get("tool_name"):
        return replace(_returned(id_, part), failed=True)
    if kind == "instruction-baseline":
        texts = [json_values.fields(one).get("content") for one in json_values.items(part.get("instructions"))]
        content: Any = "\n\n".join(text for text in texts if isinstance(text, str))
        return Said(id=id_, role="system", content=content, metadata=json_values.rest(part, ("instructions",)))
    if kind not in _SAID:
        return None
    if kind == "speech":
        content = [
            *([part["transcript"]] if isinstance(part.get("transcript"), str) else []),
            *_files(part.get("audio")),
        ]
    else:
        content = part.get("content")
    is_user = kind in ("user-prompt", "speech")
    about = json_values.rest(part, ("part_kind", "content", "timestamp", "transcript", "audio", "scope"))
    if kind not in ("system-prompt", "user-prompt"):
        about["part_kind"] = kind
    return Said(
        id=id_,
        role="user" if is_user else "system",
        content=_content(content),
        created_at=at,
        health=json_values.time_flags(part.get("timestamp")),
        metadata=about,
    )


@dataclass(kw_only=True)
class _Segment:
    """A part of a response, up to where the model goes on after calls that its provider carried out."""

    texts: list[Any] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    metadata: dict[str, list[Any]] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> None:
        if value:
            self.metadata.setdefault(name, []).append(value)


def _replied(
    id_: str, message: dict[str, Any], parts: list[tuple[int, dict[str, Any]]], beside: list[Any]
) -> Iterator[Entry]:
    segments = [_Segment()]
    for number, part in parts:
        if segments[-1].results and part.get("part_kind") not in (*_CALLS, *_RETURNS):
            segments.append(_Segment())
        _add(segments[-1], f"{id_}.{number}", part)
    metadata = json_values.rest(message, (*_REPLY_FIELDS, *(("state",) if message.get("state") == "complete" else ())))
    if beside:
        metadata["request_parts"] = beside
    for number, segment in enumerate(segments):
        is_last = segment is segments[-1]
        yield Reply(
            id=f"{id_}.{number}" if number else id_,
            content=_content(segment.texts),
            calls=segment.calls,
            reasoning="\n\n".join(segment.thoughts) or None,
            model=json_values.text(message.get("model_name")),
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
        segment.results.append(_returned(id_, part))
    elif kind == "file":
        segment.texts += _files(content)
    elif kind == "speech":
        segment.texts += [part["transcript"]] if isinstance(part.get("transcript"), str) else []
        segment.texts += _files(part.get("audio"))
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


def _returned(id_: str, part: dict[str, Any]) -> Result:
    content = part.get("content")
    found = [one for one in (content if isinstance(content, list) else [content]) if _is_file(one)]
    if found:
        others = [one for one in content if not _is_file(one)] if isinstance(content, list) else []
        content = others[0] if len(others) == 1 else others or ""
    outcome, call_id = part.get("outcome"), json_values.text(part.get("tool_call_id"))
    metadata = json_values.rest(part, (*_RETURN_FIELDS, *(("outcome",) if outcome == "success" else ())))
    if part.get("part_kind") != "tool-return":
        metadata["part_kind"] = part["part_kind"]
    data = part.get("metadata")
    if data is not None and not isinstance(content, str):
        # What the tool answered is data itself.
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
        attachments=[file for one in found for file in _files(one)] or None,
        metadata=metadata,
    )


# --- Values -------------------------------------------------------------------------------------------------------


def _content(value: Any) -> str | list[Any] | None:
    """Text, or parts where there is more than one text."""
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
    """A file as a part of content: images as everybody has them, anything else with its kind as its type."""
    if not isinstance(value, dict):
        return [] if value is None else [value]
    kind, media_type = value.get("kind"), json_values.text(value.get("media_type")) or ""
    if kind == "image-url" and isinstance(value.get("url"), str):
        return [{"type": "image_url", "image_url": {"url": value["url"]}, **json_values.rest(value, ("kind", "url"))}]
    if (kind == "binary" or "media_type" in value) and isinstance(value.get("data"), str):
        # The base64 of pydantic is that of URLs.
        data = f"data:{media_type};base64,{value['data'].replace('-', '+').replace('_', '/')}"
        rest = json_values.rest(value, ("kind", "data"))
        if media_type.startswith("image/"):
            return [{"type": "image_url", "image_url": {"url": data}, **rest}]
        return [{"type": "file", "file": {"file_data": data}, **rest}]
    return [
        {**json_values.rest(value, ("kind",)), "type": kind} if isinstance(kind, str) and "type" not in value else value
    ]


def _usage(value: Any) -> dict[str, Any] | None:
    """What was used, where anything was counted, with the names of today."""
    used = {name: count for name, count in json_values.rest(json_values.fields(value), ()).items() if count}
    for old, new in _OLD_USAGE:
        if old in used:
            used.setdefault(new, used[old])
    return used or None
