"""Read sessions of the coding agent pi: JSON lines with the header `{"type": "session", "id", "cwd", ...}`.

Every other line is an entry (SessionEntry in pi's session-manager.ts). A `message` comes from the user, or from the
assistant (parts `text`, `thinking` and `toolCall`, with model, tokens and stop reason), or is a `toolResult`. Other
content of the context is a system message: the text of a skill that the user called (`/skill:name`), which stands in the
prompt before what else was typed, commands run by the user (`bashExecution`), messages of extensions
(`custom`, `custom_message`) and summaries (`compaction`, `branch_summary`). All other entries (changes of the model or
the thinking level, labels, data of extensions) are kept in the metadata; the last name in a `session_info` is the title.

Since version 2 entries have an `id` and a `parentId`: a session is a tree, and the user may return to any point of it.
Lines are read in file order, which is the order of time; the metadata of an entry that does not follow the line before
it name the entry where it branches off. Before version 2 the id of an entry is its index.

An assistant message begins with its own `timestamp` and ends with that of its line, when its calls begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import between, content, fields, instant, items, rest, text
from tracesite_sdk.records import SessionStatus
from tracesite_sdk.records.health_flags import STOPPED
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, numbered_values, skip_silently
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "pi"

_SKILL = re.compile(r'<skill name="([^"\n]+)" location="[^"\n]*">\n')
_SKILL_END = "\n</skill>"

_ENTRIES = frozenset(
    {"message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message"}
    | {"label", "session_info", "context_transform", "ephemeral"}
)
_ROLES = frozenset(
    {"user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage", "compactionSummary", "branchSummary"}
)
# Fields with a column of their own; all others are kept in metadata.
_ENTRY_FIELDS = ("id", "parentId", "timestamp", "type", "message")
_MESSAGE_FIELDS = ("role", "content", "timestamp", "summary", "command", "output")
_REPLY_FIELDS = ("role", "content", "model", "usage", "timestamp", "errorMessage")
_RESULT_FIELDS = ("role", "toolCallId", "toolName", "content", "details", "isError", "timestamp")
_CALL_FIELDS = ("type", "id", "name", "arguments")
_USAGE = {"input": "input_tokens", "output": "output_tokens"}
_MAX_HELD_ENTRIES = 5_000
"""Entries of a session that are held in memory; a longer session is read again from the file."""
# The stop reasons of failed replies.
_FAILED: dict[object, SessionStatus] = {"aborted": "aborted", "error": "error"}


def recognises(document: Document) -> bool:
    values = document.head() if isinstance(document, Lines) else document if isinstance(document, list) else []
    header = fields(values[0]) if values else {}
    return (
        header.get("type") == "session"
        and isinstance(header.get("id"), str)
        and any(key in header for key in ("cwd", "version", "timestamp"))
        and all(_is_entry(value) for value in values[1:8] if isinstance(value, dict))
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    session: _Session | None = None
    place = 0
    for where, value in numbered_values(document):
        if isinstance(value, dict) and value.get("type") == "session":
            # Concatenated files are several sessions.
            if session is not None:
                yield session.transcript(document, place)
                place += 1
            session = _Session(value)
        elif session is not None:
            session.read(where, value, skip)
    if session is not None:
        yield session.transcript(document, place)


def _read_again(document: Document, place: int) -> Iterator[Entry]:
    """Yield the entries of a session that has too many to hold."""
    index = -1
    session = _Session({})
    for where, value in numbered_values(document):
        if isinstance(value, dict) and value.get("type") == "session":
            index += 1
        elif index == place:
            session.read(where, value, skip_silently)
            yield from session.entries
            session.entries.clear()
        if index > place:
            return


def _is_entry(value: dict[str, Any]) -> bool:
    if value.get("type") == "message":
        return text(fields(value.get("message")).get("role")) in _ROLES
    return text(value.get("type")) in _ENTRIES or "parentId" in value


@dataclass(eq=False)
class _Session:
    header: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """Entries that are not part of the conversation."""
    title: str | None = None
    status: SessionStatus | None = None
    _ids: set[str] = field(default_factory=set)
    _previous: str | None = None
    _count: int = 0
    _is_held: bool = True
    """False once there were too many entries to hold."""

    def transcript(self, document: Document, place: int) -> Transcript:
        return Transcript(
            entries=partial(iter, self.entries) if self._is_held else partial(_read_again, document, place),
            place=place,
            external_id=text(self.header.get("id")),
            title=self.title,
            status=self.status,
            created_at=None if self.entries or not self._is_held else instant(self.header.get("timestamp")),
            metadata={**rest(self.header, ("id", "type")), **rest({"entries": self.others}, ())},
        )

    def read(self, where: str, value: Any, skip: Skip) -> None:
        index, self._count = self._count, self._count + 1
        if len(self.entries) >= _MAX_HELD_ENTRIES:
            self._is_held = False
            self.entries.clear()
        if not isinstance(value, dict):
            skip(where, "not an object")
            return
        own = text(value.get("id"))
        id_ = own if own is not None and own not in self._ids else str(index)
        self._ids.add(id_)
        metadata = rest(value, (*_ENTRY_FIELDS, "summary", "content"))
        if own is not None and self._previous is not None and value.get("parentId") != self._previous:
            metadata["branched_from"] = value.get("parentId")
        self._previous = own if own is not None else self._previous
        kind, message = value.get("type"), fields(value.get("message"))
        at = instant(message.get("timestamp")) or instant(value.get("timestamp"))
        if kind == "message" and message.get("role") == "assistant":
            self.entries.append(_reply(id_, message, metadata, at, instant(value.get("timestamp")), where, skip))
            self.status = _FAILED.get(text(message.get("stopReason")))
        elif kind == "message" and message.get("role") == "toolResult":
            self.entries.append(_result(id_, message, metadata, at))
        elif kind == "message" and isinstance(message.get("role"), str):
            self.entries += _messages(id_, message, metadata, at)
        elif kind in ("compaction", "branch_summary", "custom_message"):
            summary = content(value.get("summary") if kind != "custom_message" else value.get("content"))
            self.entries.append(
                Prompt(id=id_, role="system", content=summary, created_at=at, metadata={"type": kind, **metadata})
            )
        elif isinstance(kind, str) and kind != "message":
            self.others.append(value)
            if kind == "session_info":
                self.title = text(value.get("name")) or self.title
        else:
            skip(where, "not an entry: no type, or a message without a role")


def _messages(id_: str, message: dict[str, Any], metadata: dict[str, Any], at: datetime | None) -> Iterator[Prompt]:
    metadata = {**metadata, **rest(message, _MESSAGE_FIELDS)}
    if message["role"] == "user":
        said = content(message.get("content"))
        typed, skill = _split(said)
        yield Prompt(id=id_, role="user", content=typed, created_at=at, metadata=metadata)
        if skill is not None:
            yield Prompt(
                id=f"{id_}#added", role="system", content=skill, created_at=at, is_aside=True, metadata={"role": "user"}
            )
        return
    value = content(message.get("content", message.get("summary")))
    if message["role"] == "bashExecution":
        lines = (f"$ {text(message.get('command')) or ''}", text(message.get("output")))
        value = "\n".join(line for line in lines if line)
    yield Prompt(id=id_, role="system", content=value, created_at=at, metadata={"role": message["role"], **metadata})


def _split(said: Any) -> tuple[Any, str | None]:
    """Return what the user typed, and the text of the skill that pi put in its place: it begins the first text."""
    parts = said if isinstance(said, list) else [{"type": "text", "text": said}]
    first = fields(next(iter(parts), None))
    value = first.get("text")
    if not isinstance(value, str) or (named := _SKILL.match(value)) is None:
        return said, None
    end = value.find(_SKILL_END)
    if end < 0:
        return said, None
    end += len(_SKILL_END)
    typed = f"/skill:{named[1]} {value[end:].strip()}".strip()
    return (typed if said is value else [{**first, "text": typed}, *parts[1:]]), value[:end]


def _reply(
    id_: str,
    message: dict[str, Any],
    metadata: dict[str, Any],
    at: datetime | None,
    ended: datetime | None,
    where: str,
    skip: Skip,
) -> Reply:
    visible: list[Any] = []
    thoughts: list[str] = []
    signatures: list[Any] = []
    calls: list[Call] = []
    parts = message.get("content")
    for index, part in enumerate(items(parts)):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking":
            thoughts.extend([part["thinking"]] if isinstance(part.get("thinking"), str) and part["thinking"] else [])
            signatures.extend(filter(None, [rest(part, ("type", "thinking"))]))
        elif kind == "toolCall":
            calls.append(
                Call(
                    id=text(part.get("id")),
                    name=text(part.get("name")) or "",
                    args=part.get("arguments"),
                    started_at=ended,
                    metadata=rest(part, _CALL_FIELDS),
                )
            )
        elif isinstance(part, dict):
            visible.append(part)
        else:
            skip(f"{where}: message.content[{index}]", "not an object")
    stop_reason = text(message.get("stopReason"))
    return Reply(
        id=id_,
        content=visible if isinstance(parts, list) else content(parts),
        calls=calls,
        reasoning="\n\n".join(thoughts) or None,
        model=text(message.get("model")),
        usage={_USAGE.get(name, name): count for name, count in fields(message.get("usage")).items()} or None,
        created_at=at,
        duration=between(at, ended),
        error=(text(message.get("errorMessage")) or stop_reason) if stop_reason in _FAILED else None,
        health=[STOPPED] if stop_reason == "aborted" else (),
        metadata={**metadata, **rest(message, _REPLY_FIELDS), **rest({"thinking": signatures}, ())},
    )


def _result(id_: str, message: dict[str, Any], metadata: dict[str, Any], at: datetime | None) -> Result:
    output, attachments = text_and_attachments(content(message.get("content")))
    call_id, failed = text(message.get("toolCallId")), message.get("isError")
    return Result(
        id=id_,
        output=output,
        failed=failed if isinstance(failed, bool) else None,
        created_at=at,
        data=message.get("details"),
        call_ids=[call_id] if call_id else [],
        name=text(message.get("toolName")),
        attachments=attachments,
        metadata={**metadata, **rest(message, _RESULT_FIELDS)},
    )
