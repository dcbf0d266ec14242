"""Read sessions of Gemini CLI, and of its fork Qwen Code before it had a format of its own (see qwen_code.py).

Older versions keep a session as one JSON object, newer ones as lines:

* `{"sessionId", "projectHash", "startTime", "lastUpdated", "messages": [...]}`, also a list or lines of such objects;
* lines: first the same without `messages`, then one message each. A changed message (tokens, results) is written again
  with its id, and the last version counts. `{"$set": {...}}` changes fields of the session. `{"$rewindTo": id}` takes
  back that message and all after it: they are left out and reported.

`$set` may hold `messages`: the history that the client sends from then on, with masked tool results and, after a
compression, a summary in place of messages. The trace keeps the original messages: `$set` fills empty fields of known
messages and adds new messages, but removes none.

Mapping of messages:

* `user` is a prompt; results in it belong to calls that have none. What the user typed is its `displayContent`, in older
  versions all but the files that `@` names; the rest of the content is a system message. So are a summary
  (`<state_snapshot>`) and other messages that the client inserts (`<session_context>`).
* `gemini` is a reply with `thoughts` as reasoning and `tokens` as usage. Each of its `toolCalls` holds its result: the
  status `error` or `cancelled` means failure, `success` success, and any other an open call. `resultDisplay` is the data.
* `error` is a failed reply; `info` and `warning` are system messages.

The file of a sub-agent (`"kind": "subagent"`) is a session of its own, because only the name of its folder names the
session that started it. The call that started it may name it (`agentId`, in the metadata of the call).

Ids of sessions and messages are globally unique, so a file may hold any state of a session. A session is held whole,
because the last version of a message counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Files, Lines, Skip
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.gemini_parts import Parts, read_parts, results, split_prompt

NAME = "gemini_cli"

_REPLIES = ("gemini", "qwen", "model", "assistant")
_NOTICES = ("info", "warning")
_TYPES = ("user", *_REPLIES, *_NOTICES, "error")
_INSERTED = (
    *("<state_snapshot>", "<session_context>", "<hook_context>"),
    *("This is the Gemini CLI. We are setting up the context", "This is the Qwen Code. We are setting up the context"),
)
"""The start of messages that the client inserts with the type `user`."""
_CONTINUES = "System: Please continue."
"""The whole of another one."""
_SESSION_FIELDS = ("sessionId", "startTime", "messages", "summary")
_MESSAGE_FIELDS = ("id", "timestamp", "type", "content", "displayContent", "thoughts", "tokens", "model", "toolCalls")
_CALL_FIELDS = ("id", "name", "args", "result", "status", "timestamp", "resultDisplay")
_USAGE = {"input": "input_tokens", "output": "output_tokens"}
_ENDED = {"success": False, "error": True, "cancelled": True}
"""The final states of a call, and whether they mean failure."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a session, or a line of one, of this format."""
    if isinstance(document, Files):
        return False
    if isinstance(document, Lines):
        return any(_is_session(value) or _is_line(value) for value in document.head())
    return any(map(_is_session, items(document)[:50])) if isinstance(document, list) else _is_session(document)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    for place, session in enumerate(_sessions(document, skip)):
        own_id = text(session.fields.get("sessionId"))
        yield Transcript(
            entries=partial(iter, list(_entries(session, skip))),
            place=place,
            external_id=own_id,
            has_own_ids=own_id is not None,
            title=text(session.fields.get("summary")),
            created_at=instant(session.fields.get("startTime")),
            metadata=rest(session.fields, _SESSION_FIELDS),
        )


# --- Sessions ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Session:
    fields: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """The place and the last version of each message by its id, in order of first appearance."""

    def add(self, where: str, message: dict[str, Any]) -> None:
        own = text(message.get("id")) or f"no id: {where}"
        self.messages[own] = (where, message)

    def synchronise(self, where: str, messages: list[Any], skip: Skip) -> None:
        """Merge the history with which the client continues, without losing messages."""
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                skip(f"{where}: $set.messages[{index}]", "not an object")
                continue
            known = self.messages.get(text(message.get("id")) or "", (where, {}))[1]
            self.add(f"{where}: $set.messages[{index}]", {**message, **rest(known, ())})

    def rewind(self, where: str, own: str, skip: Skip) -> None:
        if own not in self.messages:
            skip(where, "rewinds to an unknown message")
            return
        ids = list(self.messages)
        for taken_back in ids[ids.index(own) :]:
            skip(self.messages.pop(taken_back)[0], f"undone by the user ({where})")


def _sessions(document: Document, skip: Skip) -> Iterator[_Session]:
    if not isinstance(document, Lines):
        for index, value in enumerate(document if isinstance(document, list) else [document]):
            where = f"[{index}]." if isinstance(document, list) else ""
            if _is_session(value):
                yield _session_of_object(value, where, skip)
            else:
                skip(where.rstrip(".") or "(all)", "not a Gemini CLI session")
        return
    session: _Session | None = None
    for line in document:
        value, where = line.value, f"line {line.number}"
        if not isinstance(value, dict):
            skip(where, "not an object")
        elif _is_session(value):
            if session is not None:
                yield session
            session = None
            yield _session_of_object(value, f"{where}: ", skip)
        else:
            if session is not None and _is_header(value) and value["sessionId"] != session.fields.get("sessionId") is not None:  # fmt: skip
                # Concatenated files are several sessions.
                yield session
                session = None
            session = session or _Session()
            _add_line(session, where, value, skip)
    if session is not None:
        yield session


def _session_of_object(value: dict[str, Any], where: str, skip: Skip) -> _Session:
    session = _Session(value)
    for index, message in enumerate(value["messages"]):
        if isinstance(message, dict):
            session.add(f"{where}messages[{index}]", message)
        else:
            skip(f"{where}messages[{index}]", "not an object")
    return session


def _add_line(session: _Session, where: str, value: dict[str, Any], skip: Skip) -> None:
    changes = value.get("$set")
    if isinstance(value.get("$rewindTo"), str):
        session.rewind(where, value["$rewindTo"], skip)
    elif isinstance(changes, dict):
        session.fields |= rest(changes, ("messages",))
        session.synchronise(where, items(changes.get("messages")), skip)
    elif _is_header(value):
        session.fields |= value
    elif text(value.get("id")) and isinstance(value.get("type"), str):
        session.add(where, value)
    else:
        skip(where, "neither a message nor a session update")


def _is_session(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    if not isinstance(value.get("sessionId"), str) or not ({"projectHash", "startTime"} & value.keys()):
        return False
    messages = [message for message in value["messages"][:50] if isinstance(message, dict)]
    return any(text(message.get("type")) in _TYPES for message in messages) if messages else "projectHash" in value


def _is_header(value: dict[str, Any]) -> bool:
    return isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)


def _is_line(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    if _is_header(value) or isinstance(value.get("$rewindTo"), str):
        return True
    is_message = isinstance(value.get("id"), str) and value.get("type") in ("gemini", "qwen")
    return is_message and "timestamp" in value and "content" in value


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(session: _Session, skip: Skip) -> Iterator[Entry]:
    answered: set[str] = set()
    """Ids of calls with a result."""
    for own, (where, message) in session.messages.items():
        kind = text(message.get("type"))
        if kind == "user":
            yield from _user(own, message, answered)
        elif kind in _REPLIES:
            yield from _reply(own, message, answered)
        elif kind == "error":
            error = read_parts(message.get("content")).text or "error"
            at = instant(message.get("timestamp"))
            metadata = {"type": "error", **rest(message, _MESSAGE_FIELDS)}
            yield Reply(id=own, content=None, error=error, created_at=at, step_id=own, metadata=metadata)
        elif kind in _NOTICES:
            yield _message(own, message, "system", read_parts(message.get("content")).content, {"type": kind})
        else:
            skip(where, f"the type is {kind or 'missing'}; a type is one of {', '.join(_TYPES)}")


def _message(own: str, message: dict[str, Any], role: str, content: Any, metadata: dict[str, Any]) -> Prompt:
    return Prompt(
        id=own,
        role="user" if role == "user" else "system",
        content=content,
        created_at=instant(message.get("timestamp")),
        health=time_flags(message.get("timestamp")),
        is_aside=role != "user",
        metadata={**rest(message, _MESSAGE_FIELDS), **metadata},
    )


def _user(own: str, message: dict[str, Any], answered: set[str]) -> Iterator[Entry]:
    parts = read_parts(message.get("content"))
    for result in results(own, parts, instant(message.get("timestamp"))):
        if answered.isdisjoint(result.call_ids):
            answered.update(result.call_ids)
            yield result
    if parts.visible or not parts.responses:
        typed, added = split_prompt(parts, message.get("displayContent"))
        if parts.text.lstrip().startswith(_INSERTED) or parts.text.strip() == _CONTINUES:
            typed, added = Parts(), parts
        if typed.visible or not added.visible:
            yield _message(own, message, "user", typed.content, {})
        if added.visible:
            yield _message(f"{own}#added" if typed.visible else own, message, "system", added.content, {"type": "user"})


def _reply(own: str, message: dict[str, Any], answered: set[str]) -> Iterator[Entry]:
    parts = read_parts(message.get("content"))
    recorded = [call for call in items(message.get("toolCalls")) if isinstance(call, dict)]
    calls = [_call(call) for call in recorded]
    calls += _unrecorded(parts.calls, calls, answered)
    thoughts = [_thought(fields(thought)) for thought in items(message.get("thoughts"))]
    yield Reply(
        id=own,
        content=parts.content,
        calls=calls,
        reasoning="\n\n".join(filter(None, thoughts)) or parts.thought,
        model=text(message.get("model")),
        usage={_USAGE.get(name, name): count for name, count in fields(message.get("tokens")).items()} or None,
        created_at=instant(message.get("timestamp")),
        step_id=own,
        health=time_flags(message.get("timestamp")),
        metadata=rest(message, _MESSAGE_FIELDS),
    )
    for number, call in enumerate(recorded):
        if (result := _recorded_result(f"{own}#{number}", call)) is not None:
            answered |= set(result.call_ids)
            yield result


def _unrecorded(part_calls: list[Call], recorded: list[Call], answered: set[str]) -> list[Call]:
    """Return the calls in the parts of a content that are not in `toolCalls`.

    The history that the client sends repeats the recorded calls in the parts, sometimes with other ids. Results with
    these ids are ignored.
    """
    ids = {call.id for call in recorded}
    named = Counter(call.name for call in recorded)
    named.subtract(call.name for call in part_calls if call.id in ids)
    others: list[Call] = []
    for call in part_calls:
        if call.id is not None and call.id in ids:
            continue
        if named[call.name] > 0:
            named[call.name] -= 1
            answered |= {call.id} if call.id else set()
        else:
            others.append(call)
    return others


def _thought(thought: dict[str, Any]) -> str:
    subject, description = text(thought.get("subject")), text(thought.get("description"))
    return "\n".join(filter(None, (f"**{subject}**" if subject else None, description and description.strip())))


def _call(call: dict[str, Any]) -> Call:
    status = text(call.get("status"))
    metadata = rest(call, _CALL_FIELDS)
    if status is not None and status not in ("success", "error"):
        metadata["status"] = status
    return Call(
        id=text(call.get("id")),
        name=text(call.get("name")) or "",
        args=call.get("args"),
        metadata=metadata,
    )


def _recorded_result(id_: str, call: dict[str, Any]) -> Result | None:
    """Return the result in a recorded call; None while it has none."""
    status, display = text(call.get("status")) or "", call.get("resultDisplay")
    parts = read_parts(call.get("result"))
    if status not in _ENDED and not (parts.responses or parts.visible):
        return None
    response = parts.responses[0] if parts.responses else None
    output = response.output if response is not None else parts.text or display
    failed = _ENDED.get(status)
    if failed is None and response is not None:
        failed = response.failed
    own, name = text(call.get("id")), text(call.get("name"))
    return Result(
        id=id_,
        output=output,
        failed=failed,
        created_at=instant(call.get("timestamp")),
        data=display if isinstance(display, dict | list) else None,
        call_ids=[own] if own else [],
        name=name,
        attachments=parts.others or None,
        metadata={"resultDisplay": display} if isinstance(display, str) and display and display != output else {},
    )
