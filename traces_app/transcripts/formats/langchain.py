"""Transcripts in the messages of LangChain and the states of LangGraph, in every form in which they are dumped.

A message is an object with a `type` (human, ai, system, tool, function, chat, remove, or that of a chunk), as `model_dump`
writes it; the same under `data`, as `messages_to_dict` and chat histories write it; or a constructor with `lc: 1`, as
`dumpd` does. They come as

* a list of messages, a state that holds one (under `messages`, or another name), or rows of a chat history, which name
  their `session_id`;
* a snapshot of a state (`values` with `config` or `checkpoint`), a checkpoint (`channel_values`), a thread of the server;
* a list or JSON lines of those, such as the history of a thread, in which newer snapshots come first;
* a stream: whole states, updates by node (`{node: {messages}}`), or `[chunk, metadata]` pairs.

Snapshots of one thread are one session, of all messages that any of them holds, in the order in which they appeared: a
state that was trimmed loses nothing. A message has the time of the first snapshot with it. A snapshot that goes on from
an earlier one than the last (a fork) begins another session, unless it says nothing of its own. The id of the thread is
that of the session; messages have ids of their own, else their index. Chunks of one id are one message.

Calls that LangChain could not read (`invalid_tool_calls`) have failed, with their arguments as they came. A call is taken
from `tool_calls`, and from `additional_kwargs` or the content where it is only there. The artifact of a tool message is
the data of its result; its status "error" is the flag of the format ("success" is what stands there otherwise).

The forms are those of langchain-core 0.3 and 1.x and of langgraph 1.x, and of LangChain for JavaScript.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from messages_app import ids
from traces_app.normalize import json_values
from traces_app.normalize.records import text_of
from traces_app.schema import records
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
from traces_app.transcripts.files.documents import Document, Lines, Skip
from traces_app.transcripts.parsing.grouping import tell_nobody, together

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
"""How the ids of messages begin that a user interface made up and does not show."""

_MESSAGE_FIELDS = ("type", "role", "content", "id", "additional_kwargs", "response_metadata", "lc_kwargs")
_REPLY_FIELDS = (*_MESSAGE_FIELDS, "name", "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "chunk_position")  # fmt: skip
_RESULT_FIELDS = (*_MESSAGE_FIELDS, "name", "tool_call_id", "artifact", "status")
# Marks of a message beside a type that other formats have too.
_MARKS = ("additional_kwargs", "response_metadata", "tool_call_id", "usage_metadata", "invalid_tool_calls")

_THINKING = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = ("tool_use", "tool_call", "function_call", "server_tool_use", "server_tool_call")
_INVALID = "The arguments of the call could not be read."
_THREAD_IDS = ("thread_id", "session_id", "conversation_id", "SessionId")
# What the states of a snapshot lie under.
_HOLDERS = ("values", "checkpoint", "channel_values", "kwargs", "state", "output", "outputs", "input", "inputs", "data")
_DEEPEST = 4
"""How deep in a snapshot the messages lie at most."""


def recognises(document: Document) -> bool:
    """Whether the document holds messages as only LangChain writes them."""
    if isinstance(document, Lines):
        document = document.head()
    if isinstance(document, list):
        return any(map(_is_marked, document)) or any(_found_in(_named(item)) is not None for item in document)
    return _is_marked(document) or _found_in(document) is not None


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The conversations of a document that `recognises` accepts; what they leave out is told to `skip`."""
    for snapshots in together(partial(_snapshots, document), _groups, skip):
        for number, thread in enumerate(_threads(snapshots), start=1):
            if not says_something(_entries(thread, tell_nobody)):
                skip(thread.where or "(all)", NOTHING_SAID)
                continue
            yield Transcript(
                entries=partial(_entries, thread, skip),
                place=thread.place,
                external_id=thread.id if thread.id is None or number == 1 else f"{thread.id}#{number}",
                end_user=_user(thread),
                status=_status(thread.rest),
                metadata=thread.rest | _removed(thread),
            )


def entries_of(message: dict[str, Any]) -> list[Entry]:
    """What one message says, as `model_dump` writes it: for those who hear a conversation message by message."""
    return list(_entries(_Thread(place=0, where="", id=None, seen=[_seen("", message)]), tell_nobody))


def _user(thread: _Thread) -> str | None:
    metadata = json_values.fields(thread.rest.get("metadata"))
    return json_values.text(metadata.get("user_id") or thread.rest.get("user_id") or thread.configurable.get("user_id"))


def _removed(thread: _Thread) -> dict[str, Any]:
    """The ids of messages that were taken out of the state; they were said all the same."""
    found = thread.seen if isinstance(thread.seen, list) else ()
    removed = [str(seen.message.get("id")) for seen in found if _role(seen.message) == "remove"]
    return {"removed_messages": removed} if removed else {}


# --- Snapshots ----------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Seen:
    """A message, and when it was seen first."""

    where: str
    message: dict[str, Any]
    """As `model_dump` writes it."""
    at: datetime | None = None
    odd: str = ""
    """Why it is none."""


@dataclass(frozen=True)
class _Streamed:
    """Lines each of which is a whole message; they are read again and again instead of being held."""

    lines: Lines

    def __iter__(self) -> Iterator[_Seen]:
        return (_seen(f"line {line.number}", line.value) for line in self.lines)


@dataclass(kw_only=True)
class _Snapshot:
    place: int
    where: str
    seen: list[_Seen] | _Streamed
    rest: dict[str, Any] = field(default_factory=dict)
    thread_id: str | None = None
    checkpoint_id: str | None = None
    parent_id: str | None = None
    at: datetime | None = None
    configurable: dict[str, Any] = field(default_factory=dict)
    adds: bool = False
    """Whether these messages come after those that were there, instead of being all."""


def _snapshots(document: Document, skip: Skip) -> Iterator[_Snapshot]:
    """The states of a document, in its order."""
    if isinstance(document, Lines):
        places: Iterable[tuple[str, Any]] = ((f"line {line.number}", line.value) for line in document)
        in_pieces = _is_in_pieces(document.head())
    elif isinstance(document, list):
        places = [(f"[{at}]", value) for at, value in enumerate(document)]
        in_pieces = _is_in_pieces(document)
    else:
        places, in_pieces = [("", document)], _is_marked(document)
    if in_pieces:
        if isinstance(document, Lines) and not any(map(_is_piece, document.head())):
            yield _Snapshot(place=0, where="", seen=_Streamed(document))
        else:
            yield _Snapshot(place=0, where="", seen=[_seen(where, value) for where, value in places])
        return
    for place, (where, value) in enumerate(places):
        snapshot = _snapshot(value, place, where)
        if snapshot is not None:
            yield snapshot
            continue
        # The first states of a thread have none.
        state = _named(value)
        if not isinstance(state, dict) or not any(key in state for key in ("values", "checkpoint", "messages")):
            skip(where, "no messages")


def _made_at(snapshot: _Snapshot) -> tuple[datetime, str]:
    assert snapshot.at is not None, "only snapshots with times are sorted"
    # Ids of checkpoints are made of their times.
    return snapshot.at, snapshot.checkpoint_id or ""


def _is_in_pieces(items: list[Any]) -> bool:
    """Whether the items are the messages themselves: then they are one conversation."""
    return any(map(_is_marked, items)) or any(map(_is_pair, items))


def _snapshot(value: Any, place: int, where: str) -> _Snapshot | None:
    if isinstance(value, list) and _is_in_pieces(value):
        seen = [_seen(f"{where}[{at}]", item) for at, item in enumerate(value)]
        return _Snapshot(place=place, where=where, seen=seen)
    value = _named(value)
    found = _found_in(value)
    if found is None:
        return None
    path, messages = found
    # Also where there is nothing to do next: a merge takes nothing away that an earlier snapshot said.
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
        where=_join(where, ".".join(path)),
        seen=[_seen(f"{_join(where, '.'.join(path))}[{at}]", message) for at, message in enumerate(messages)],
        rest=rest,
        # Graphs in the graph have states of their own, under the same thread.
        thread_id=f"{thread_id}:{space}" if thread_id and space else thread_id,
        checkpoint_id=json_values.text(configurable.get("checkpoint_id")) or json_values.text(checkpoint.get("id")),
        parent_id=json_values.text(parent.get("checkpoint_id")),
        at=json_values.instant(value.get("created_at")) or json_values.instant(checkpoint.get("ts")),
        configurable=configurable,
        adds=path[-1] == "message" or (len(path) > 1 and path[0] not in _HOLDERS),
    )


def _named(value: Any) -> Any:
    """A StateSnapshot is a tuple, and a list when it was dumped."""
    names = ("values", "next", "config", "metadata", "created_at", "parent_config", "tasks", "interrupts")
    is_one = isinstance(value, list) and 4 <= len(value) <= len(names) and isinstance(value[0], dict)
    return dict(zip(names, value, strict=False)) if is_one and isinstance(value[1], list) else value


def _found_in(value: Any, depth: int = _DEEPEST) -> tuple[tuple[str, ...], list[Any]] | None:
    """Where in an object messages lie, and the messages."""
    if not isinstance(value, dict):
        return ((), value) if isinstance(value, list) and value and _is_in_pieces(value) and depth == _DEEPEST else None
    if _is_marked(value):
        return None
    row = _read(value.get("message"))
    if _is_marked(row):
        return ("message",), [row]
    history = _read(value.get("History"))
    if isinstance(history, list) and _is_in_pieces(history):
        return ("History",), history
    for key in ("messages", *value):
        held = value.get(key)
        if isinstance(held, list) and _is_in_pieces(held):
            return (key,), held
    if depth == 0:
        return None
    below = [
        ((key, *found[0]), found[1])
        for key, held in value.items()
        if (key in _HOLDERS or len(value) == 1) and isinstance(held, dict)
        if (found := _found_in(held, depth - 1)) is not None
    ]
    # Of what went into a graph and what came out of it, that is the one which says more.
    return max(below, key=lambda found: len(found[1]), default=None)


def _read(value: Any) -> Any:
    """What a chat history keeps in a column: JSON, or the text of it."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _without(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The object without what lies under the path, and without what is empty then."""
    key, *deeper = path
    kept = json_values.rest(value, (key, *_THREAD_IDS))
    if deeper and (inner := _without(json_values.fields(value[key]), tuple(deeper))):
        kept[key] = inner
    return kept


def _is_piece(value: Any) -> bool:
    """Whether this is less than a message."""
    return _is_pair(value) or (isinstance(value, dict) and _is_chunk(_plain(value)))


def _is_pair(value: Any) -> bool:
    """Whether this is a piece of a stream: a chunk, and what is known of it."""
    return isinstance(value, list) and len(value) == 2 and _is_marked(value[0]) and isinstance(value[1], dict)


def _status(rest: dict[str, Any]) -> records.SessionStatus | None:
    """What the last snapshot says of its thread."""
    tasks = [task for task in json_values.items(rest.get("tasks")) if isinstance(task, dict)]
    if rest.get("interrupts") or rest.get("status") == "interrupted" or any(task.get("interrupts") for task in tasks):
        return "paused"
    if rest.get("status") == "busy":
        return "running"
    return "error" if any(task.get("error") for task in tasks) or rest.get("status") == "error" else None


# --- Messages as they are dumped ----------------------------------------------------------------------------------


def _seen(where: str, value: Any) -> _Seen:
    if _is_pair(value):
        message, beside = value
        seen = _seen(where, message)
        node = json_values.text(beside.get("langgraph_node"))
        if node is not None and _role(seen.message) == "assistant":
            seen.message = {"langgraph_node": node, **seen.message}
        return seen
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        # The short form of a prompt: a role and a text.
        value = {"role": value[0], "content": value[1]}
    if not isinstance(value, dict):
        return _Seen(where=where, message={}, odd="not an object")
    message = _plain(value)
    if _role(message) is None:
        kind = message.get("type", message.get("role"))
        return _Seen(where=where, message={}, odd=f"unknown type {kind[:60]!r}" if isinstance(kind, str) else "no type")
    return _Seen(where=where, message=message, at=json_values.instant(message.get("created_at")))


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """A message as `model_dump` writes it, whatever wrote it."""
    if _is_constructor(value):
        kwargs = json_values.fields(value.get("kwargs"))
        name = value["id"][-1]
        return kwargs if isinstance(kwargs.get("type"), str) else {**kwargs, "type": _type_of(name)}
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


def _type_of(class_name: str) -> str:
    """The type that a class of messages has: AIMessage is ai, RemoveMessage remove; chunks are called by their class."""
    return class_name if class_name.endswith(_CHUNK) else class_name.removesuffix("Message").lower()


def _is_marked(value: Any) -> bool:
    """Whether this is a message, as only LangChain writes it."""
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
    """user, assistant, system, tool, function or remove; None for what is no message."""
    kind = message.get("type")
    if isinstance(kind, str) and kind:
        kind = kind.removesuffix(_CHUNK).lower() if kind.endswith(_CHUNK) else kind
        role = _TYPES.get(kind) or _ROLES.get(kind)
        if role != "chat":
            return role
    said = message.get("role")
    return _ROLES.get(said.lower()) if isinstance(said, str) else None


# --- Threads ------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Thread:
    """The messages of a thread, as its snapshots showed them."""

    place: int
    where: str
    id: str | None
    seen: list[_Seen] | _Streamed = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    configurable: dict[str, Any] = field(default_factory=dict)
    tip: str | None = None
    """The last checkpoint."""
    known: dict[str, int] = field(default_factory=dict)
    """Index of a message, by its id, or what it says and how often that was said."""
    inherited: int = 0
    """How many messages it had when it forked."""

    def show(self, snapshot: _Snapshot) -> None:
        self.rest = snapshot.rest
        self.configurable = snapshot.configurable
        self.tip = snapshot.checkpoint_id
        if isinstance(snapshot.seen, _Streamed) or isinstance(self.seen, _Streamed):
            # Of these there is one in a document.
            self.seen = snapshot.seen
            return
        occurrences: Counter[str] = Counter()
        held = self.seen
        is_first = not held and not snapshot.adds
        for seen in snapshot.seen:
            # All messages of the first snapshot were there before it, but the last.
            at = seen.at or (snapshot.at if not is_first or seen is snapshot.seen[-1] else None)
            key = _key(seen.message)
            if key is None:
                held.append(seen)
                continue
            if snapshot.adds and not _has_id(seen.message):
                key = f"{key} {len(held)}"
            occurrences[key] += 1
            key = f"{key} {occurrences[key]}"
            if key in self.known and not (_is_chunk(seen.message) and len(snapshot.seen) == 1):
                # The same, perhaps changed: it keeps its place and its time.
                earlier = held[self.known[key]]
                held[self.known[key]] = _Seen(where=seen.where, message=seen.message, at=earlier.at)
                continue
            self.known[key] = len(held)
            held.append(_Seen(where=seen.where, message=seen.message, at=at, odd=seen.odd))

    def says_more(self) -> bool:
        """Than what it had when it forked."""
        return not isinstance(self.seen, list) or len(self.seen) > self.inherited

    def fork(self, snapshot: _Snapshot) -> _Thread:
        held = {_key(seen.message) for seen in snapshot.seen}
        forked = _Thread(place=snapshot.place, where=snapshot.where, id=self.id)
        start = [seen for seen in self.seen if _key(seen.message) in held]
        forked.show(_Snapshot(place=0, where="", seen=start))
        forked.inherited = len(start)
        return forked


def _groups(snapshots: Iterable[_Snapshot]) -> Iterator[object]:
    """For each snapshot its thread; where it names none, the index of the first of the stream that it continues."""
    group = -1
    last: list[Any] = []
    for at, snapshot in enumerate(snapshots):
        if snapshot.thread_id is not None or isinstance(snapshot.seen, _Streamed):
            yield snapshot.thread_id
            continue
        held = [seen.message.get("id") for seen in snapshot.seen]
        is_next = group >= 0 and (snapshot.adds or _begins_with(held, last))
        if not is_next:
            group, last = at, []
        if snapshot.adds:
            last += held
        else:
            last = held
        yield group


def _begins_with(held: list[Any], last: list[Any]) -> bool:
    """Whether a state begins with all messages of an earlier one, by their ids."""
    return bool(last) and all(isinstance(id_, str) and id_ for id_ in last) and held[: len(last)] == last


def _threads(snapshots: list[_Snapshot]) -> list[_Thread]:
    """The thread of a group of snapshots, and its forks; newer snapshots may come first."""
    if all(snapshot.at for snapshot in snapshots):
        snapshots = sorted(snapshots, key=_made_at)
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
        thread.show(snapshot)
        if snapshot.thread_id is not None:
            by_id.setdefault(snapshot.thread_id, thread)
            if snapshot.checkpoint_id is not None:
                by_checkpoint[snapshot.thread_id, snapshot.checkpoint_id] = thread
    return [thread for thread in threads if not thread.inherited or thread.says_more()]


def _has_id(message: dict[str, Any]) -> bool:
    return isinstance(message.get("id"), str) and bool(message["id"])


def _key(message: dict[str, Any]) -> str | None:
    """What a message is known by in the snapshots of a thread."""
    if not message:
        return None
    if _has_id(message):
        return f"{_role(message)} {message['id']}"
    said = json_values.rest(message, ("response_metadata", "usage_metadata"))
    return ids.key(msgspec.json.encode(said, order="sorted").decode()).hex


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(thread: _Thread, skip: Skip) -> Iterator[Entry]:
    used: Counter[str] = Counter()
    for index, seen in enumerate(_joined(thread.seen)):
        message = seen.message
        if seen.odd:
            skip(seen.where, seen.odd)
            continue
        role = _role(message)
        id_ = json_values.text(message.get("id")) or str(index)
        used[id_] += 1
        id_ = id_ if used[id_] == 1 else f"{id_}#{used[id_]}"
        if role in ("user", "system"):
            yield _said(id_, role, message, seen.at)
        elif role == "assistant":
            yield from _replied(id_, message, seen, skip)
        elif role in ("tool", "function"):
            yield _result(id_, message, seen.at)


def _joined(found: list[_Seen] | _Streamed) -> Iterable[_Seen]:
    """The messages with the chunks of each put together, in the place of the first."""
    if not isinstance(found, list):
        return found
    joined: list[_Seen] = []
    open_chunks: dict[str, int] = {}
    for seen in found:
        message = seen.message
        id_ = json_values.text(message.get("id")) or ""
        at = open_chunks.get(id_)
        if at is None and id_ == "" and _is_chunk(message) and joined and _is_chunk(joined[-1].message):
            last = joined[-1].message
            at = (
                len(joined) - 1
                if last.get("type") == message.get("type") and last.get("chunk_position") != "last"
                else None
            )
        if at is not None and _is_chunk(message):
            earlier = joined[at]
            joined[at] = _Seen(where=earlier.where, message=_merged(earlier.message, message), at=earlier.at)
        elif at is not None and _role(message) == _role(joined[at].message):
            # The whole message, after its chunks.
            joined[at] = _Seen(where=seen.where, message=message, at=joined[at].at)
            del open_chunks[id_]
        else:
            if _is_chunk(message) and id_:
                open_chunks[id_] = len(joined)
            joined.append(seen)
    return joined


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two chunks of a message as one."""
    both = {**second, **json_values.rest(first, ())}
    both["content"] = _added(first.get("content"), second.get("content"))
    pieces = [*json_values.items(first.get("tool_call_chunks")), *json_values.items(second.get("tool_call_chunks"))]
    # What was read of each chunk for itself is no call.
    both |= {"tool_call_chunks": pieces, "tool_calls": [], "invalid_tool_calls": []}
    for key in ("additional_kwargs", "response_metadata"):
        both[key] = {**json_values.fields(second.get(key)), **json_values.rest(json_values.fields(first.get(key)), ())}
    thoughts = [json_values.fields(one.get("additional_kwargs")).get("reasoning_content") for one in (first, second)]
    texts = [thought for thought in thoughts if isinstance(thought, str)]
    if len(texts) == 2:
        both["additional_kwargs"]["reasoning_content"] = "".join(texts)
    both["usage_metadata"] = _sum(first.get("usage_metadata"), second.get("usage_metadata"))
    both["chunk_position"] = second.get("chunk_position")
    return both


def _added(first: Any, second: Any) -> Any:
    """The content of two chunks: texts are put together, of parts those with the same index."""
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


def _said(id_: str, role: str, message: dict[str, Any], at: datetime | None) -> Said:
    return Said(
        id=id_,
        role="user" if role == "user" else "system",
        content=json_values.content(message.get("content")),
        created_at=at,
        metadata=_about(message, _MESSAGE_FIELDS),
    )


def _result(id_: str, message: dict[str, Any], at: datetime | None) -> Result:
    output, attachments = _output(message.get("content"))
    call_id = json_values.text(message.get("tool_call_id"))
    return Result(
        id=id_,
        output=output,
        # "success" stands wherever nobody said otherwise: the content may still say that it failed.
        failed=True if message.get("status") == "error" else None,
        created_at=at,
        data=message.get("artifact"),
        call_ids=[call_id] if call_id else [],
        name=json_values.text(message.get("name")),
        attachments=attachments or None,
        metadata=_about(message, _RESULT_FIELDS),
    )


def _output(content: Any) -> tuple[Any, list[Any]]:
    """The text of a tool's content, and its parts that are none; what is neither text nor parts as it is."""
    if not isinstance(content, list) or not all(
        isinstance(p, str) or (isinstance(p, dict) and "type" in p) for p in content
    ):
        return content, []
    text, parts = text_of(content)
    return text, [part for part in parts or () if not is_text(part)]


@dataclass(kw_only=True)
class _Segment:
    """A part of a message of the model, up to where it goes on after calls that its provider carried out."""

    parts: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


def _replied(id_: str, message: dict[str, Any], seen: _Seen, skip: Skip) -> Iterator[Entry]:
    about = json_values.fields(message.get("response_metadata"))
    extra = json_values.fields(message.get("additional_kwargs"))
    segments, thoughts, metadata = _segments(id_, message)
    last = segments[-1]
    last.calls += _calls(message, seen.where, {call.id for segment in segments for call in segment.calls}, skip)
    reasoning = [text for text in (_reasoning(extra), *thoughts) if text]
    failures = list(_failures(id_, message, last))
    usage = message.get("usage_metadata") or about.get("token_usage") or about.get("usage")
    model = next((about[key] for key in ("model_name", "model", "model_id") if json_values.text(about.get(key))), None)
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
            model=json_values.text(model),
            usage=usage if isinstance(usage, dict) and segment is last else None,
            created_at=seen.at or json_values.instant(about.get("created_at")),
            metadata={**_about(message, _REPLY_FIELDS), **metadata} if segment is last else {},
        )
        yield from segment.results
    yield from failures


def _text_in(part: Any) -> str | None:
    return part["text"] if is_text(part) and isinstance(part.get("text"), str) and set(part) <= {"type", "text", "index", "id"} else None  # fmt: skip


def _segments(id_: str, message: dict[str, Any]) -> tuple[list[_Segment], list[str], dict[str, Any]]:
    """The content in the parts that it has: texts, thoughts, calls with the results that came with them."""
    content = json_values.content(message.get("content"))
    segments, thoughts = [_Segment()], []
    metadata: dict[str, Any] = {}
    listed = {
        json_values.text(call.get("id"))
        for call in json_values.items(message.get("tool_calls"))
        if isinstance(call, dict)
    }
    listed |= {
        json_values.text(call.get("id"))
        for call in json_values.items(message.get("invalid_tool_calls"))
        if isinstance(call, dict)
    }
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


def _own_result(id_: str, part: dict[str, Any]) -> Result:
    """The result of a call that the provider carried out."""
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
    """The text of a part that is a thought: Anthropic's, OpenAI's summary, or LangChain's own."""
    for key in ("thinking", "reasoning", "text"):
        if isinstance(part.get(key), str):
            return str(part[key])
    inner = part.get("reasoning_content")
    if isinstance(inner, dict):
        return str(inner["text"]) if isinstance(inner.get("text"), str) else ""
    return _summary(part.get("summary"))


def _reasoning(extra: dict[str, Any]) -> str:
    said = extra.get("reasoning_content")
    return said if isinstance(said, str) else _summary(json_values.fields(extra.get("reasoning")).get("summary"))


def _summary(value: object) -> str:
    found = [
        part["text"]
        for part in json_values.items(value)
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    return "\n\n".join(found)


def _calls(message: dict[str, Any], where: str, known: set[str | None], skip: Skip) -> Iterator[Call]:
    asked = json_values.items(message.get("tool_calls"))
    if not asked and not message.get("invalid_tool_calls"):
        asked = _from_chunks(json_values.items(message.get("tool_call_chunks")))
    found = False
    for index, call in enumerate(asked):
        if isinstance(call, dict):
            found = True
            yield _call(call)
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    if found or known:
        return
    invalid = {
        json_values.text(call.get("id"))
        for call in json_values.items(message.get("invalid_tool_calls"))
        if isinstance(call, dict)
    }
    extra = json_values.fields(message.get("additional_kwargs"))
    legacy = extra.get("function_call")
    for call in (*json_values.items(extra.get("tool_calls")), {"function": legacy}):
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            found_call = _call(call)
            if not invalid or (found_call.id is not None and found_call.id not in invalid):
                yield found_call


def _call(call: dict[str, Any]) -> Call:
    """A call as LangChain has it, or as OpenAI's API does."""
    said = json_values.fields(call.get("function")) or call
    return Call(
        id=json_values.text(call.get("id")),
        name=json_values.text(said.get("name")) or "",
        args=said.get("arguments") if said is not call else call.get("args"),
        metadata=json_values.rest(call, ("id", "name", "args", "type", "index", "function")),
    )


def _from_chunks(chunks: list[Any]) -> list[dict[str, Any]]:
    """Calls of a stream: pieces of one index are one call. A provider may say its name and its id in each of them."""
    calls: dict[Any, dict[str, Any]] = {}
    for place, chunk in enumerate(chunks):
        if not isinstance(chunk, dict):
            continue
        index = chunk.get("index")
        key = f"index {index}" if isinstance(index, int | str) else f"place {place}"
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
    """The results of calls that could not be read; the calls are added to the segment."""
    for at, call in enumerate(json_values.items(message.get("invalid_tool_calls"))):
        if not isinstance(call, dict):
            continue
        call_id, name = json_values.text(call.get("id")), json_values.text(call.get("name")) or ""
        metadata = json_values.rest(call, ("id", "name", "args", "index", "error"))
        segment.calls.append(Call(id=call_id, name=name, args=call.get("args"), metadata=metadata))
        yield Result(
            id=f"{id_}.invalid{at}",
            output=json_values.text(call.get("error")) or _INVALID,
            failed=True,
            call_ids=[call_id] if call_id else [],
            name=name or None,
        )


# --- Values -------------------------------------------------------------------------------------------------------


def _about(message: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """What a message says beside what has a field of its own."""
    metadata = json_values.rest(message, (*fields, "example", "created_at"))
    extra = json_values.rest(
        json_values.fields(message.get("additional_kwargs")), ("tool_calls", "function_call", "reasoning_content")
    )
    about = json_values.rest(
        json_values.fields(message.get("response_metadata")), ("token_usage", "usage", "model_name")
    )
    if json_values.text(message.get("type")) in ("chat", "generic") or "role" in message:
        metadata |= json_values.rest({"role": message.get("role")}, ())
    if extra:
        metadata["additional_kwargs"] = extra
    if about:
        metadata["response_metadata"] = about
    if (json_values.text(message.get("id")) or "").startswith(_HIDDEN):
        metadata["do_not_render"] = True
    return metadata


def _join(where: str, key: str) -> str:
    if where.startswith("line ") and key:
        return f"{where}: {key}"
    return f"{where}.{key}" if where and key else where + key
