"""Sessions of the coding agent pi: JSON lines, the first of which is the header `{"type": "session", "id", "cwd", ...}`.

Every other line is an entry (SessionEntry in pi's session-manager.ts). A `message` is of the user, of the assistant (parts
`text`, `thinking` and `toolCall`, with the model, the tokens, and why it stopped) or a `toolResult`. What stands in the
context but nobody asked for is a message of the system: commands that the user ran (`bashExecution`), messages of
extensions (`custom`, `custom_message`) and summaries (`compaction`, `branch_summary`). The other entries (changes of the model or of
the thinking level, labels, data of extensions) are kept in the metadata; the last name in a `session_info` is the title.

Since version 2 entries have an `id` and a `parentId`: a session is a tree, to any point of which the user may return. It is
read in the order of its lines, which is that of time; an entry that does not follow the one before it says in its metadata
where it branches off. Before version 2 the id of an entry is its index.

An assistant message begins with its own `timestamp` and is complete with that of its line, when its calls begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from traces_app.normalize.json_values import between, content, fields, instant, items, rest, text
from traces_app.normalize.records import text_of
from traces_app.schema.records import SessionStatus
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript, is_text
from traces_app.transcripts.files.documents import Document, Lines, Skip

NAME = "pi"

_ENTRIES = frozenset(
    {"message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message"}
    | {"label", "session_info", "context_transform", "ephemeral"}
)
_ROLES = frozenset(
    {"user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage", "compactionSummary", "branchSummary"}
)
# What becomes a field of a record; everything else is kept in metadata.
_ENTRY_FIELDS = ("id", "parentId", "timestamp", "type", "message")
_SAID_FIELDS = ("role", "content", "timestamp", "summary", "command", "output")
_REPLY_FIELDS = ("role", "content", "model", "usage", "timestamp", "errorMessage")
_RESULT_FIELDS = ("role", "toolCallId", "toolName", "content", "details", "isError", "timestamp")
_CALL_FIELDS = ("type", "id", "name", "arguments")
_MOST_HELD = 5_000
"""Entries of a session; one that has more is read again."""
# How a reply ended that is none.
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
    """The sessions of a document that `recognises` accepts; what they leave out is told to `skip`."""
    reading: _Session | None = None
    place = 0
    for where, value in _lines(document):
        if isinstance(value, dict) and value.get("type") == "session":
            # Several files one behind the other are several sessions.
            if reading is not None:
                yield reading.transcript(document, place)
                place += 1
            reading = _Session(value)
        elif reading is not None:
            reading.read(where, value, skip)
    if reading is not None:
        yield reading.transcript(document, place)


def _lines(document: Document) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Lines):
        return ((f"line {line.number}", line.value) for line in document)
    values: Any = document
    return ((f"[{index}]", value) for index, value in enumerate(values))


def _read_again(document: Document, place: int) -> Iterator[Entry]:
    """The entries of one session of a document, which were too many to be held."""
    seen = -1
    reading = _Session({})
    for where, value in _lines(document):
        if isinstance(value, dict) and value.get("type") == "session":
            seen += 1
        elif seen == place:
            reading.read(where, value, _tell_nobody)
            yield from reading.entries
            reading.entries.clear()
        if seen > place:
            return


def _tell_nobody(_where: str, _why: str) -> None:
    """What is left out was told when the session was read first."""


def _is_entry(value: dict[str, Any]) -> bool:
    if value.get("type") == "message":
        return text(fields(value.get("message")).get("role")) in _ROLES
    return text(value.get("type")) in _ENTRIES or "parentId" in value


@dataclass(eq=False)
class _Session:
    header: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """Entries that are no part of the conversation."""
    title: str | None = None
    status: SessionStatus | None = None
    _ids: set[str] = field(default_factory=set)
    _previous: str | None = None
    _count: int = 0
    _is_held: bool = True
    """Whether the entries are there still."""

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
        if len(self.entries) >= _MOST_HELD:
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
            self.entries.append(_said(id_, message, metadata, at))
        elif kind in ("compaction", "branch_summary", "custom_message"):
            words = content(value.get("summary") if kind != "custom_message" else value.get("content"))
            self.entries.append(
                Said(id=id_, role="system", content=words, created_at=at, metadata={"type": kind, **metadata})
            )
        elif isinstance(kind, str) and kind != "message":
            self.others.append(value)
            if kind == "session_info":
                self.title = text(value.get("name")) or self.title
        else:
            skip(where, "no entry: it has no type, or a message without a role")


def _said(id_: str, message: dict[str, Any], metadata: dict[str, Any], at: datetime | None) -> Said:
    metadata = {**metadata, **rest(message, _SAID_FIELDS)}
    if message["role"] == "user":
        return Said(id=id_, role="user", content=content(message.get("content")), created_at=at, metadata=metadata)
    words = content(message.get("content", message.get("summary")))
    if message["role"] == "bashExecution":
        words = "\n".join(
            part for part in (f"$ {text(message.get('command')) or ''}", text(message.get("output"))) if part
        )
    return Said(id=id_, role="system", content=words, created_at=at, metadata={"role": message["role"], **metadata})


def _reply(
    id_: str,
    message: dict[str, Any],
    metadata: dict[str, Any],
    at: datetime | None,
    ended: datetime | None,
    where: str,
    skip: Skip,
) -> Reply:
    said: list[Any] = []
    thoughts: list[str] = []
    signed: list[Any] = []
    calls: list[Call] = []
    parts = message.get("content")
    for index, part in enumerate(items(parts)):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking":
            thoughts.extend([part["thinking"]] if isinstance(part.get("thinking"), str) and part["thinking"] else [])
            signed.extend(filter(None, [rest(part, ("type", "thinking"))]))
        elif kind == "toolCall":
            calls.append(_call(part, ended))
        elif isinstance(part, dict):
            said.append(part)
        else:
            skip(f"{where}: message.content[{index}]", "not an object")
    stopped = text(message.get("stopReason"))
    return Reply(
        id=id_,
        content=said if isinstance(parts, list) else content(parts),
        calls=calls,
        reasoning="\n\n".join(thoughts) or None,
        model=text(message.get("model")),
        usage=_usage(message.get("usage")),
        created_at=at,
        duration=between(at, ended),
        error=(text(message.get("errorMessage")) or stopped) if stopped in _FAILED else None,
        metadata={**metadata, **rest(message, _REPLY_FIELDS), **rest({"thinking": signed}, ())},
    )


def _call(part: dict[str, Any], asked: datetime | None) -> Call:
    return Call(
        id=text(part.get("id")),
        name=text(part.get("name")) or "",
        args=part.get("arguments"),
        started_at=asked,
        metadata=rest(part, _CALL_FIELDS),
    )


def _result(id_: str, message: dict[str, Any], metadata: dict[str, Any], at: datetime | None) -> Result:
    output, parts = text_of(content(message.get("content")))
    call_id, failed = text(message.get("toolCallId")), message.get("isError")
    return Result(
        id=id_,
        output=output,
        failed=failed if isinstance(failed, bool) else None,
        created_at=at,
        data=message.get("details"),
        call_ids=[call_id] if call_id else [],
        name=text(message.get("toolName")),
        attachments=[part for part in parts or () if not is_text(part)] or None,
        metadata={**metadata, **rest(message, _RESULT_FIELDS)},
    )


def _usage(usage: object) -> dict[str, Any] | None:
    """The tokens, under the names that are counted."""
    names = {"input": "input_tokens", "output": "output_tokens"}
    return {names.get(name, name): value for name, value in fields(usage).items()} or None
