"""Read messages of LangChain and states of LangGraph in every form in which they are dumped.

A message is an object with a `type` (human, ai, system, tool, function, chat, remove, or a chunk class), as written by
`model_dump`; the same under `data`, as written by `messages_to_dict` and chat histories; or a constructor with `lc: 1`,
as written by `dumpd`. Documents are

* a list of messages, a state with such a list (under `messages` or another name), or rows of a chat history, which name
  their `session_id`;
* a snapshot of a state (`values` with `config` or `checkpoint`), a checkpoint (`channel_values`), a thread of the server;
* a list or JSON lines of these, such as the history of a thread, newest snapshot first;
* a stream: whole states, updates by node (`{node: {messages}}`), or `[chunk, metadata]` pairs.

The snapshots of one thread are one session with the messages of all of them in order of appearance, so a state that was
trimmed loses nothing. A message has the time of the first snapshot that holds it. A snapshot that continues an earlier
one than the last (a fork) begins another session, unless it adds no messages. The id of the thread is that of the
session; messages have their own ids, else their index. Chunks with one id are one message.

Calls that LangChain could not parse (`invalid_tool_calls`) have failed; their arguments are kept as they are, and the
result is the tool message that answers such a call, else the error. Calls come from `tool_calls`, and those missing there
from `additional_kwargs` or the content. The artifact of a tool message is the data of its result. Its status "error" means
failure; "success" is only the default value.

The forms are those of langchain-core 0.3 and 1.x, langgraph 1.x, and LangChain for JavaScript.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize import json_values
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.records import ids
from tracesite_sdk.transcripts.documents import (
    Document,
    NumberedLines,
    Skip,
    first_values,
    join_place,
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
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "langchain"

_TYPES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "chat",
    "generic": "chat",
    "remove": "remove",
}
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "system": "system", "developer": "system", "tool": "tool", "function": "function"}  # fmt: skip
_CHUNK = "MessageChunk"
_HIDDEN = "do-not-render-"
"""The prefix of ids of messages that a user interface inserts but does not display."""

_MESSAGE_FIELDS = ("type", "role", "content", "id", "additional_kwargs", "response_metadata", "lc_kwargs")
_REPLY_FIELDS = (*_MESSAGE_FIELDS, "name", "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "chunk_position")  # fmt: skip
_RESULT_FIELDS = (*_MESSAGE_FIELDS, "name", "tool_call_id", "artifact", "status")
# Fields that mark a message of LangChain, because other formats use the same types.
_MARKS = ("additional_kwargs", "response_metadata", "tool_call_id", "usage_metadata", "invalid_tool_calls")

_THINKING = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = ("tool_use", "tool_call", "function_call", "server_tool_use", "server_tool_call")
_INVALID = "The arguments of the call could not be read."
_INVALID_CALL = "invalid_tool_call"
"""Key in the metadata of a tool message's result: why LangChain could not parse the call."""
_THREAD_IDS = ("thread_id", "session_id", "conversation_id", "SessionId")
# Fields of a snapshot that may contain the state.
_HOLDERS = ("values", "checkpoint", "channel_values", "kwargs", "state", "output", "outputs", "input", "inputs", "data")
_MAX_DEPTH = 4
"""Levels of a snapshot that are searched for messages."""


def recognises(document: Document) -> bool:
    """Return whether the document holds messages in a form that only LangChain writes."""
    values = first_values(document)
    return any(_is_marked(value) or _find_messages(_as_snapshot_dict(value)) is not None for value in values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for snapshots in together(partial(_snapshots, document), _groups, skip):
        for number, thread in enumerate(_threads(snapshots), start=1):
            if not has_conversation(_entries(thread, skip_silently)):
                skip(thread.where or "(all)", EMPTY_CONVERSATION)
                continue
            rest, metadata = thread.rest, json_values.fields(thread.rest.get("metadata"))
            user = metadata.get("user_id") or rest.get("user_id") or thread.configurable.get("user_id")
            # Messages that were removed from the state stay in the session.
            sightings = thread.sightings if isinstance(thread.sightings, list) else ()
            removed = [str(item.message.get("id")) for item in sightings if _role(item.message) == "remove"]
            yield Transcript(
                entries=partial(_entries, thread, skip),
                place=thread.place,
                external_id=thread.id if thread.id is None or number == 1 else f"{thread.id}#{number}",
                end_user=json_values.text(user),
                status=_status(rest),
                metadata=rest | ({"removed_messages": removed} if removed else {}),
            )


def entries_of(message: dict[str, Any]) -> list[Entry]:
    """Return the entries of one message in the form of `model_dump`, for callers that receive messages one by one."""
    return list(_entries(_Thread(place=0, where="", id=None, sightings=[_sighting_of("", message)]), skip_silently))


# --- Snapshots ----------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Sighting:
    """A message in a snapshot, with the time of the first snapshot that holds it."""

    where: str
    message: dict[str, Any]
    """The message in the form of `model_dump`."""
    at: datetime | None = None
    problem: str = ""
    """The reason why the value is not a message."""


@dataclass(frozen=True)
class _Streamed:
    """A document with one whole message in each line, which is read again instead of being held."""

    lines: NumberedLines

    def __iter__(self) -> Iterator[_Sighting]:
        return (_sighting_of(where, value) for where, value in self.lines)


@dataclass(kw_only=True)
class _Snapshot:
    place: int
    where: str
    sightings: list[_Sighting] | _Streamed
    rest: dict[str, Any] = field(default_factory=dict)
    thread_id: str | None = None
    checkpoint_id: str | None = None
    parent_id: str | None = None
    at: datetime | None = None
    configurable: dict[str, Any] = field(default_factory=dict)
    adds: bool = False
    """True if these messages are added to those before, False if they are the whole state."""


def _snapshots(document: Document, skip: Skip) -> Iterator[_Snapshot]:
    """Yield the states of a document in their order."""
    numbered = numbered_values(document)
    if _are_messages(first_values(document)):
        if isinstance(numbered, NumberedLines) and not any(map(_is_piece, first_values(document))):
            yield _Snapshot(place=0, where="", sightings=_Streamed(numbered))
        else:
            yield _Snapshot(place=0, where="", sightings=[_sighting_of(where, value) for where, value in numbered])
        return
    for place, (where, value) in enumerate(numbered):
        snapshot = _snapshot(value, place, where)
        if snapshot is not None:
            yield snapshot
            continue
        # The first states of a thread have no messages.
        state = _as_snapshot_dict(value)
        if not isinstance(state, dict) or not any(key in state for key in ("values", "checkpoint", "messages")):
            skip(where, "no messages")


def _are_messages(items: list[Any]) -> bool:
    """Return whether the items are messages, and so one conversation."""
    return any(map(_is_marked, items)) or any(map(_is_pair, items))


def _snapshot(value: Any, place: int, where: str) -> _Snapshot | None:
    if isinstance(value, list) and _are_messages(value):
        sightings = [_sighting_of(f"{where}[{at}]", item) for at, item in enumerate(value)]
        return _Snapshot(place=place, where=where, sightings=sightings)
    value = _as_snapshot_dict(value)
    if (located := _find_messages(value)) is None:
        return None
    path, messages = located
    # Empty values of these fields count, too, because they replace those of earlier snapshots.
    rest = _without(value, path) | {key: value[key] for key in ("next", "tasks", "interrupts") if key in value}
    config = json_values.fields(value.get("config")) or json_values.fields(value.get("checkpoint"))
    configurable = json_values.fields(config.get("configurable")) or json_values.fields(value.get("checkpoint"))
    parent = json_values.fields(value.get("parent_config")) or json_values.fields(value.get("parent_checkpoint"))
    parent = json_values.fields(parent.get("configurable")) or parent
    thread_id = next(
        (
            id_
            for holder in (value, configurable, json_values.fields(value.get("metadata")))
            for key in _THREAD_IDS
            if (id_ := json_values.text(holder.get(key)))
        ),
        None,
    )
    space = json_values.text(configurable.get("checkpoint_ns"))
    checkpoint = json_values.fields(value.get("checkpoint"))
    return _Snapshot(
        place=place,
        where=join_place(where, ".".join(path)),
        sightings=[
            _sighting_of(f"{join_place(where, '.'.join(path))}[{at}]", message) for at, message in enumerate(messages)
        ],
        rest=rest,
        # Subgraphs have states of their own in the same thread.
        thread_id=f"{thread_id}:{space}" if thread_id and space else thread_id,
        checkpoint_id=json_values.text(configurable.get("checkpoint_id")) or json_values.text(checkpoint.get("id")),
        parent_id=json_values.text(parent.get("checkpoint_id")),
        at=json_values.instant(value.get("created_at")) or json_values.instant(checkpoint.get("ts")),
        configurable=configurable,
        adds=path[-1] == "message" or (len(path) > 1 and path[0] not in _HOLDERS),
    )


def _as_snapshot_dict(value: Any) -> Any:
    """Return a StateSnapshot, which is a tuple and so dumped as a list, as an object; other values unchanged."""
    names = ("values", "next", "config", "metadata", "created_at", "parent_config", "tasks", "interrupts")
    is_tuple = isinstance(value, list) and 4 <= len(value) <= len(names) and isinstance(value[0], dict)
    return dict(zip(names, value, strict=False)) if is_tuple and isinstance(value[1], list) else value


def _find_messages(value: Any, depth: int = _MAX_DEPTH) -> tuple[tuple[str, ...], list[Any]] | None:
    """Return the path of the messages in an object, and the messages."""
    if not isinstance(value, dict):
        return (
            ((), value) if isinstance(value, list) and value and _are_messages(value) and depth == _MAX_DEPTH else None
        )
    if _is_marked(value):
        return None
    row = _decoded(value.get("message"))
    if _is_marked(row):
        return ("message",), [row]
    history = _decoded(value.get("History"))
    if isinstance(history, list) and _are_messages(history):
        return ("History",), history
    for key in ("messages", *value):
        held = value.get(key)
        if isinstance(held, list) and _are_messages(held):
            return (key,), held
    if depth == 0:
        return None
    below = [
        ((key, *located[0]), located[1])
        for key, held in value.items()
        if (key in _HOLDERS or len(value) == 1) and isinstance(held, dict)
        if (located := _find_messages(held, depth - 1)) is not None
    ]
    # Of the input and the output of a graph, take the one with more messages.
    return max(below, key=lambda located: len(located[1]), default=None)


def _decoded(value: Any) -> Any:
    """Decode a column of a chat history, which may be JSON text."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return decode_json(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _without(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the object without the value at the path and without empty values."""
    key, *deeper = path
    kept = json_values.rest(value, (key, *_THREAD_IDS))
    if deeper and (inner := _without(json_values.fields(value[key]), tuple(deeper))):
        kept[key] = inner
    return kept


def _is_piece(value: Any) -> bool:
    """Return whether this is a chunk of a message."""
    return _is_pair(value) or (isinstance(value, dict) and _is_chunk(_as_dumped(value)))


def _is_pair(value: Any) -> bool:
    """Return whether this is an item of a stream: a chunk and its metadata."""
    return isinstance(value, list) and len(value) == 2 and _is_marked(value[0]) and isinstance(value[1], dict)


def _status(rest: dict[str, Any]) -> records.SessionStatus | None:
    """Return the status of a thread by its last snapshot."""
    tasks = [task for task in json_values.items(rest.get("tasks")) if isinstance(task, dict)]
    if rest.get("interrupts") or rest.get("status") == "interrupted" or any(task.get("interrupts") for task in tasks):
        return "paused"
    if rest.get("status") == "busy":
        return "running"
    if any(task.get("error") for task in tasks) or rest.get("status") == "error":
        return "error"
    # Stated, because an earlier snapshot may have stated the pause that is over now.
    return "completed" if rest.get("status") == "idle" or rest.get("next") == [] else None


# --- Forms of messages --------------------------------------------------------------------------------------------


def _sighting_of(where: str, value: Any) -> _Sighting:
    if _is_pair(value):
        chunk, metadata = value
        sighting = _sighting_of(where, chunk)
        node = json_values.text(metadata.get("langgraph_node"))
        if node is not None and _role(sighting.message) == "assistant":
            sighting.message = {"langgraph_node": node, **sighting.message}
        return sighting
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        # The short form of a message: a role and a text.
        value = {"role": value[0], "content": value[1]}
    if not isinstance(value, dict):
        return _Sighting(where=where, message={}, problem="not an object")
    message = _as_dumped(value)
    if _role(message) is None:
        kind = message.get("type", message.get("role"))
        return _Sighting(
            where=where, message={}, problem=f"unknown type {kind[:60]!r}" if isinstance(kind, str) else "no type"
        )
    return _Sighting(where=where, message=message, at=json_values.instant(message.get("created_at")))


def _as_dumped(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message of any form in that of `model_dump`."""
    if _is_constructor(value):
        kwargs, name = json_values.fields(value.get("kwargs")), value["id"][-1]
        # The type of AIMessage is ai, that of RemoveMessage remove; the type of a chunk is the name of its class.
        kind = name if name.endswith(_CHUNK) else name.removesuffix("Message").lower()
        return kwargs if isinstance(kwargs.get("type"), str) else {**kwargs, "type": kind}
    if isinstance(value.get("data"), dict) and "content" not in value:
        return {**value["data"], "type": value.get("type")}
    return value


def _is_constructor(value: dict[str, Any]) -> bool:
    id_ = value.get("id")
    return (
        value.get("lc") == 1
        and isinstance(id_, list)
        and bool(id_)
        and isinstance(id_[-1], str)
        and id_[-1].endswith(("Message", _CHUNK))
    )


def _is_marked(value: Any) -> bool:
    """Return whether this is a message in a form that only LangChain writes."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if _is_constructor(value):
        return True
    if not isinstance(kind, str) or (kind not in _TYPES and not kind.endswith(_CHUNK)):
        return False
    data = value.get("data")
    if isinstance(data, dict) and "content" not in value:
        return "content" in data
    if kind == "remove":
        return "content" in value and any(mark in value for mark in _MARKS)
    return "content" in value and (kind in ("human", "ai") or any(mark in value for mark in _MARKS))


def _is_chunk(message: dict[str, Any]) -> bool:
    kind = message.get("type")
    return isinstance(kind, str) and kind.endswith(_CHUNK)


def _role(message: dict[str, Any]) -> str | None:
    """Return user, assistant, system, tool, function or remove; None for any other value."""
    kind = message.get("type")
    if isinstance(kind, str) and kind:
        kind = kind.removesuffix(_CHUNK).lower() if kind.endswith(_CHUNK) else kind
        role = _TYPES.get(kind) or _ROLES.get(kind)
        if role != "chat":
            return role
    name = message.get("role")
    return _ROLES.get(name.lower()) if isinstance(name, str) else None


# --- Threads ------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Thread:
    """The messages of all snapshots of a thread."""

    place: int
    where: str
    id: str | None
    sightings: list[_Sighting] | _Streamed = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    configurable: dict[str, Any] = field(default_factory=dict)
    tip: str | None = None
    """The last checkpoint."""
    known: dict[str, int] = field(default_factory=dict)
    """The index of a message, by its id, or by its content and the number of its occurrence."""
    inherited: int = 0
    """The number of messages from before the fork."""

    def add(self, snapshot: _Snapshot) -> None:
        self.rest = snapshot.rest
        self.configurable = snapshot.configurable
        self.tip = snapshot.checkpoint_id
        if isinstance(snapshot.sightings, _Streamed) or isinstance(self.sightings, _Streamed):
            # A document has only one such snapshot.
            self.sightings = snapshot.sightings
            return
        occurrences: Counter[str] = Counter()
        held = self.sightings
        is_first = not held and not snapshot.adds
        for sighting in snapshot.sightings:
            # The messages of the first snapshot are older than it, except the last one.
            at = sighting.at or (snapshot.at if not is_first or sighting is snapshot.sightings[-1] else None)
            key = _key(sighting.message)
            if key is None:
                held.append(sighting)
                continue
            if snapshot.adds and not _has_id(sighting.message):
                key = f"{key} {len(held)}"
            occurrences[key] += 1
            key = f"{key} {occurrences[key]}"
            if key in self.known and not (_is_chunk(sighting.message) and len(snapshot.sightings) == 1):
                # A known message may have changed; it keeps its place and its time.
                earlier = held[self.known[key]]
                held[self.known[key]] = _Sighting(where=sighting.where, message=sighting.message, at=earlier.at)
                continue
            self.known[key] = len(held)
            held.append(_Sighting(where=sighting.where, message=sighting.message, at=at, problem=sighting.problem))

    def has_own_messages(self) -> bool:
        """Return whether it has messages from after the fork."""
        return not isinstance(self.sightings, list) or len(self.sightings) > self.inherited

    def fork(self, snapshot: _Snapshot) -> _Thread:
        held = {_key(sighting.message) for sighting in snapshot.sightings}
        forked = _Thread(place=snapshot.place, where=snapshot.where, id=self.id)
        start = [sighting for sighting in self.sightings if _key(sighting.message) in held]
        forked.add(_Snapshot(place=0, where="", sightings=start))
        forked.inherited = len(start)
        return forked


def _groups(snapshots: Iterable[_Snapshot]) -> Iterator[object]:
    """Yield for each snapshot the id of its thread; without one, the index of the first snapshot of its stream."""
    group = -1
    last: list[Any] = []
    for at, snapshot in enumerate(snapshots):
        if snapshot.thread_id is not None or isinstance(snapshot.sightings, _Streamed):
            yield snapshot.thread_id
            continue
        held = [sighting.message.get("id") for sighting in snapshot.sightings]
        has_ids = bool(last) and all(isinstance(id_, str) and id_ for id_ in last)
        is_grown = has_ids and held[: len(last)] == last
        if group < 0 or not (snapshot.adds or is_grown):
            group, last = at, []
        if snapshot.adds:
            last += held
        else:
            last = held
        yield group


def _threads(snapshots: list[_Snapshot]) -> list[_Thread]:
    """Return the thread of a group of snapshots, and its forks; newer snapshots may come first."""
    timed = [(snapshot.at, snapshot.checkpoint_id or "", snapshot) for snapshot in snapshots if snapshot.at]
    if len(timed) == len(snapshots):
        # Ids of checkpoints sort by time, too.
        snapshots = [snapshot for _at, _id, snapshot in sorted(timed, key=itemgetter(0, 1))]
    threads: list[_Thread] = []
    by_checkpoint: dict[tuple[str, str], _Thread] = {}
    by_id: dict[str, _Thread] = {}
    for snapshot in snapshots:
        thread = None
        if snapshot.thread_id is not None:
            thread = by_id.get(snapshot.thread_id)
            parent = by_checkpoint.get((snapshot.thread_id, snapshot.parent_id or ""), thread)
            if thread is not None and parent is not None and snapshot.parent_id is not None:
                thread = parent if parent.tip in (snapshot.parent_id, None) else parent.fork(snapshot)
                if thread not in threads:
                    threads.append(thread)
        elif threads:
            thread = threads[-1]
        if thread is None:
            thread = _Thread(place=snapshot.place, where=snapshot.where, id=snapshot.thread_id)
            threads.append(thread)
        thread.add(snapshot)
        if snapshot.thread_id is not None:
            by_id.setdefault(snapshot.thread_id, thread)
            if snapshot.checkpoint_id is not None:
                by_checkpoint[snapshot.thread_id, snapshot.checkpoint_id] = thread
    return [thread for thread in threads if not thread.inherited or thread.has_own_messages()]


def _has_id(message: dict[str, Any]) -> bool:
    return isinstance(message.get("id"), str) and bool(message["id"])


def _key(message: dict[str, Any]) -> str | None:
    """Return the identity of a message in the snapshots of a thread: its id, else its content."""
    if not message:
        return None
    if _has_id(message):
        return f"{_role(message)} {message['id']}"
    content = json_values.rest(message, ("response_metadata", "usage_metadata"))
    return ids.key(msgspec.json.encode(content, order="sorted").decode()).hex


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(thread: _Thread, skip: Skip) -> Iterator[Entry]:
    used: Counter[str] = Counter()
    failures: dict[str, Result] = {}
    """The results of calls that could not be parsed, by their ids, until a message other than a tool's follows."""
    for index, sighting in enumerate(_with_joined_chunks(thread.sightings)):
        message = sighting.message
        if sighting.problem:
            skip(sighting.where, sighting.problem)
            continue
        role = _role(message)
        id_ = json_values.text(message.get("id")) or str(index)
        used[id_] += 1
        id_ = id_ if used[id_] == 1 else f"{id_}#{used[id_]}"
        if role not in ("tool", "function"):
            failures = {}
        if role in ("user", "system"):
            yield _message(id_, role, message, sighting.at)
        elif role == "assistant":
            for entry in _replies(id_, message, sighting, skip):
                if isinstance(entry, Result) and entry.call is not None:
                    failures |= dict.fromkeys(entry.call_ids, entry)
                yield entry
        elif role in ("tool", "function"):
            result = _result(id_, message, sighting.at)
            if (failure := failures.pop(next(iter(result.call_ids), ""), None)) is not None:
                metadata = {**result.metadata, _INVALID_CALL: failure.output}
                result = replace(result, failed=True, call=failure.call, replaces=failure.id, metadata=metadata)
            yield result


def _with_joined_chunks(sightings: list[_Sighting] | _Streamed) -> Iterable[_Sighting]:
    """Join the chunks of each message, in the place of the first."""
    if not isinstance(sightings, list):
        return sightings
    joined: list[_Sighting] = []
    open_chunks: dict[str, int] = {}
    for sighting in sightings:
        message = sighting.message
        id_ = json_values.text(message.get("id")) or ""
        at = open_chunks.get(id_)
        if at is None and id_ == "" and _is_chunk(message) and joined and _is_chunk(joined[-1].message):
            last = joined[-1].message
            if last.get("type") == message.get("type") and last.get("chunk_position") != "last":
                at = len(joined) - 1
        if at is not None and _is_chunk(message):
            earlier = joined[at]
            joined[at] = _Sighting(where=earlier.where, message=_merged(earlier.message, message), at=earlier.at)
        elif at is not None and _role(message) == _role(joined[at].message):
            # The whole message follows its chunks.
            joined[at] = _Sighting(where=sighting.where, message=message, at=joined[at].at)
            del open_chunks[id_]
        else:
            if _is_chunk(message) and id_:
                open_chunks[id_] = len(joined)
            joined.append(sighting)
    return joined


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two chunks of a message."""
    both = {**second, **json_values.rest(first, ())}
    both["content"] = _joined_content(first.get("content"), second.get("content"))
    pieces = [*json_values.items(first.get("tool_call_chunks")), *json_values.items(second.get("tool_call_chunks"))]
    # A single chunk has no complete call, so calls parsed from one are wrong.
    both |= {"tool_call_chunks": pieces, "tool_calls": [], "invalid_tool_calls": []}
    for key in ("additional_kwargs", "response_metadata"):
        both[key] = {**json_values.fields(second.get(key)), **json_values.rest(json_values.fields(first.get(key)), ())}
    thoughts = [
        json_values.fields(chunk.get("additional_kwargs")).get("reasoning_content") for chunk in (first, second)
    ]
    texts = [thought for thought in thoughts if isinstance(thought, str)]
    if len(texts) == 2:
        both["additional_kwargs"]["reasoning_content"] = "".join(texts)
    both["usage_metadata"] = _sum(first.get("usage_metadata"), second.get("usage_metadata"))
    both["chunk_position"] = second.get("chunk_position")
    return both


def _joined_content(first: Any, second: Any) -> Any:
    """Join the content of two chunks: texts, and the parts with the same index."""
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    if not second:
        return first
    if not first:
        return second
    parts = [{"type": "text", "text": first}] if isinstance(first, str) else list(json_values.items(first))
    for part in [{"type": "text", "text": second}] if isinstance(second, str) else json_values.items(second):
        index = part.get("index") if isinstance(part, dict) else None
        at = next((n for n, p in enumerate(parts) if index is not None and isinstance(p, dict) and p.get("index") == index), None)  # fmt: skip
        if at is None:
            parts.append(part)
            continue
        parts[at] = {**part, **parts[at]} | {
            key: parts[at][key] + part[key]
            for key in ("text", "thinking", "reasoning", "partial_json", "input", "args")
            if isinstance(parts[at].get(key), str) and isinstance(part.get(key), str)
        }
    return parts


def _sum(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: _sum(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return second if first is None else first


def _message(id_: str, role: str, message: dict[str, Any], at: datetime | None) -> Prompt:
    return Prompt(
        id=id_,
        role="user" if role == "user" else "system",
        content=json_values.content(message.get("content")),
        created_at=at,
        metadata=_metadata(message, _MESSAGE_FIELDS),
    )


def _result(id_: str, message: dict[str, Any], at: datetime | None) -> Result:
    output, attachments = _output(message.get("content"))
    call_id = json_values.text(message.get("tool_call_id"))
    return Result(
        id=id_,
        output=output,
        # "success" is only the default value: the content may still show a failure.
        failed=True if message.get("status") == "error" else None,
        created_at=at,
        data=message.get("artifact"),
        call_ids=[call_id] if call_id else [],
        name=json_values.text(message.get("name")),
        attachments=attachments,
        metadata=_metadata(message, _RESULT_FIELDS),
    )


def _output(content: Any) -> tuple[Any, list[Any] | None]:
    """Return the text of a tool's content and its attachments; content that is not a list of parts unchanged."""
    if not isinstance(content, list) or not all(
        isinstance(p, str) or (isinstance(p, dict) and "type" in p) for p in content
    ):
        return content, None
    return text_and_attachments(content)


@dataclass(kw_only=True)
class _Segment:
    """A part of a model message, up to the text that follows calls run by the provider."""

    parts: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


def _replies(id_: str, message: dict[str, Any], sighting: _Sighting, skip: Skip) -> Iterator[Entry]:
    response = json_values.fields(message.get("response_metadata"))
    extra = json_values.fields(message.get("additional_kwargs"))
    segments, thoughts, metadata = _segments(id_, message)
    last = segments[-1]
    last.calls += _calls(message, sighting.where, {call.id for segment in segments for call in segment.calls}, skip)
    reasoning = [text for text in (_reasoning(extra), *thoughts) if text]
    failures = list(_failures(id_, message, last))
    usage = message.get("usage_metadata") or response.get("token_usage") or response.get("usage")
    model = next(
        (response[key] for key in ("model_name", "model", "model_id") if json_values.text(response.get(key))), None
    )
    for number, segment in enumerate(segments):
        parts = segment.parts
        is_plain = len(parts) == 1 and isinstance(
            text := parts[0] if isinstance(parts[0], str) else _text_in(parts[0]), str
        )
        yield Reply(
            id=f"{id_}.{number}" if number else id_,
            content=text if is_plain else parts or None,
            calls=segment.calls,
            reasoning="\n\n".join(reasoning) or None if number == 0 else None,
            agent_name=json_values.text(message.get("name")),
            model=json_values.text(model) if segment is last else None,
            usage=usage if isinstance(usage, dict) and segment is last else None,
            created_at=sighting.at or json_values.instant(response.get("created_at")),
            metadata={**_metadata(message, _REPLY_FIELDS), **metadata} if segment is last else {},
        )
        yield from segment.results
    yield from failures


def _text_in(part: Any) -> str | None:
    return part["text"] if is_text(part) and isinstance(part.get("text"), str) and set(part) <= {"type", "text", "index", "id"} else None  # fmt: skip


def _segments(id_: str, message: dict[str, Any]) -> tuple[list[_Segment], list[str], dict[str, Any]]:
    """Return the segments of the content with texts, calls and results, the thoughts, and the metadata."""
    content = json_values.content(message.get("content"))
    segments, thoughts = [_Segment()], []
    metadata: dict[str, Any] = {}
    listed = _ids(message.get("tool_calls")) | _ids(message.get("invalid_tool_calls"))
    for at, part in enumerate(content if isinstance(content, list) else [content] if content else []):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _THINKING:
            thought = _thought(part)
            thoughts.append(thought)
            if kept := json_values.rest(
                part, ("type", "index", "thinking", "summary", *(["reasoning"] if thought else []))
            ):
                metadata.setdefault("reasoning", []).append(kept)
        elif kind in _CALLS:
            call_id = json_values.text(part.get("call_id")) or json_values.text(part.get("id"))
            if kind in ("server_tool_use", "server_tool_call") or (call_id and call_id not in listed):
                args = next((part[key] for key in ("input", "args", "arguments") if part.get(key) is not None), None)
                name = json_values.text(part.get("name")) or ""
                segments[-1].calls.append(Call(id=call_id, name=name, args=args, metadata={} if kind == "tool_use" else {"type": kind}))  # fmt: skip
        elif isinstance(kind, str) and (kind.endswith("_tool_result") or kind == "server_tool_result"):
            segments[-1].results.append(_own_result(f"{id_}.{at}", part))
        elif kind != "invalid_tool_call":
            if segments[-1].results:
                segments.append(_Segment())
            segments[-1].parts.append(part)
    return segments, [thought for thought in thoughts if thought], metadata


def _ids(calls: object) -> set[str | None]:
    return {json_values.text(call.get("id")) for call in json_values.items(calls) if isinstance(call, dict)}


def _own_result(id_: str, part: dict[str, Any]) -> Result:
    """Return the result of a call that the provider ran."""
    call_id = json_values.text(part.get("tool_use_id")) or json_values.text(part.get("tool_call_id"))
    output = part.get("content", part.get("output"))
    inner = json_values.fields(output).get("type")
    failed = part.get("status") == "error" or (isinstance(inner, str) and inner.endswith("_error"))
    return Result(
        id=id_,
        output=output,
        failed=failed,
        call_ids=[call_id] if call_id else [],
        metadata=json_values.rest(part, ("content", "output", "tool_use_id", "tool_call_id", "index")),
    )


def _thought(part: dict[str, Any]) -> str:
    """Return the text of a thought: Anthropic's, OpenAI's summary, or LangChain's own."""
    for key in ("thinking", "reasoning", "text"):
        if isinstance(part.get(key), str):
            return str(part[key])
    inner = part.get("reasoning_content")
    if isinstance(inner, dict):
        return str(inner["text"]) if isinstance(inner.get("text"), str) else ""
    return _summary(part.get("summary"))


def _reasoning(extra: dict[str, Any]) -> str:
    thought = extra.get("reasoning_content")
    return thought if isinstance(thought, str) else _summary(json_values.fields(extra.get("reasoning")).get("summary"))


def _summary(value: object) -> str:
    texts = [json_values.fields(part).get("text") for part in json_values.items(value)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _calls(message: dict[str, Any], where: str, known: set[str | None], skip: Skip) -> Iterator[Call]:
    listed = json_values.items(message.get("tool_calls"))
    if not listed and not message.get("invalid_tool_calls"):
        listed = _calls_from_chunks(json_values.items(message.get("tool_call_chunks")))
    for index, item in enumerate(listed):
        if isinstance(item, dict):
            yield _call(item)
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    if known or any(isinstance(item, dict) for item in listed):
        return
    invalid = _ids(message.get("invalid_tool_calls"))
    extra = json_values.fields(message.get("additional_kwargs"))
    legacy = extra.get("function_call")
    for item in (*json_values.items(extra.get("tool_calls")), {"function": legacy}):
        if isinstance(item, dict) and isinstance(item.get("function"), dict):
            call = _call(item)
            if not invalid or (call.id is not None and call.id not in invalid):
                yield call


def _call(call: dict[str, Any]) -> Call:
    """Return a call in the form of LangChain or of OpenAI's API."""
    function = json_values.fields(call.get("function")) or call
    return Call(
        id=json_values.text(call.get("id")),
        name=json_values.text(function.get("name")) or "",
        args=function.get("arguments") if function is not call else call.get("args"),
        metadata=json_values.rest(call, ("id", "name", "args", "type", "index", "function")),
    )


def _calls_from_chunks(chunks: list[Any]) -> list[dict[str, Any]]:
    """Join the chunks of calls by their index. Some providers repeat the name and the id in each chunk."""
    calls: dict[Any, dict[str, Any]] = {}
    for position, chunk in enumerate(chunks):
        if not isinstance(chunk, dict):
            continue
        index = chunk.get("index")
        key = f"index {index}" if isinstance(index, int | str) else f"place {position}"
        call = calls.setdefault(key, {"id": None, "name": "", "args": ""})
        call["id"] = call["id"] or chunk.get("id")
        name = chunk.get("name")
        if isinstance(name, str) and name != call["name"]:
            call["name"] += name
        if isinstance(chunk.get("args"), str):
            call["args"] += chunk["args"]
        elif chunk.get("args") is not None:
            call["args"] = chunk["args"]
    return list(calls.values())


def _failures(id_: str, message: dict[str, Any], segment: _Segment) -> Iterator[Result]:
    """Add the calls that LangChain could not parse to the segment, and yield their results."""
    for at, call in enumerate(json_values.items(message.get("invalid_tool_calls"))):
        if not isinstance(call, dict):
            continue
        call_id, name = json_values.text(call.get("id")), json_values.text(call.get("name")) or ""
        metadata = json_values.rest(call, ("id", "name", "args", "index", "error"))
        invalid = Call(id=call_id, name=name, args=call.get("args"), metadata=metadata)
        segment.calls.append(invalid)
        yield Result(
            id=f"{id_}.invalid{at}",
            output=json_values.text(call.get("error")) or _INVALID,
            failed=True,
            call_ids=[call_id] if call_id else [],
            call=invalid,
            name=name or None,
        )


# --- Values -------------------------------------------------------------------------------------------------------


def _metadata(message: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a message that have no column."""
    metadata = json_values.rest(message, (*fields, "example", "created_at"))
    extra = json_values.rest(
        json_values.fields(message.get("additional_kwargs")), ("tool_calls", "function_call", "reasoning_content")
    )
    response = json_values.rest(
        json_values.fields(message.get("response_metadata")), ("token_usage", "usage", "model_name")
    )
    if json_values.text(message.get("type")) in ("chat", "generic") or "role" in message:
        metadata |= json_values.rest({"role": message.get("role")}, ())
    if extra:
        metadata["additional_kwargs"] = extra
    if response:
        metadata["response_metadata"] = response
    if (json_values.text(message.get("id")) or "").startswith(_HIDDEN):
        metadata["do_not_render"] = True
    return metadata
