"""Read sessions of Qwen Code in its own format: JSON lines (`~/.qwen/projects/<project>/chats/<id>.jsonl`).

A line is a record with `uuid`, `parentUuid`, `sessionId`, `timestamp`, `cwd` and a `message` in the form of the Gemini
API (`role`, `parts`; see gemini_parts.py):

* `user` is a prompt. The client inserts those with a `subtype` (notifications, scheduled prompts, goals), with a
  `provenance` other than `real_user`, and those of sub-agents, which are system messages; only a `mid_turn_user_message`
  was typed, while the agent worked. What the user typed is the `displayText`, in older versions all but the files that
  `@` names; the rest of a prompt is a system message.
* `assistant` is a reply with `model` and `usageMetadata`.
* `tool_result` is the result of a call. It has failed if `toolCallResult` has the status `error` or `cancelled`; the
  text for the user (`resultDisplay`) is the data.
* `system` is bookkeeping: the last `custom_title` is the title; `chat_compression`, `rewind` and `slash_command` are
  system messages. Others (telemetry, snapshots ...) are left out and counted.

Lines are read in file order, which is the order of time; the metadata of a line that does not follow the line before it
name the line where it branches off. Replies of sub-agents (`isSidechain`) are steps and never the answer. A line with the
`uuid` of an earlier line is ignored. Ids are globally unique, so a file may hold any part of a session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import fields, instant, items, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Files, Line, Lines, Skip
from tracesite_sdk.transcripts.entries import Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.gemini_parts import Parts, read_parts, split_prompt

NAME = "qwen_code"

_MESSAGE_TYPES = ("user", "assistant", "tool_result")
_MESSAGE_SUBTYPES = ("chat_compression", "rewind", "slash_command")
"""Subtypes of `system` that are part of the conversation."""
_CONTEXT = ("cwd", "version", "gitBranch")
_LINE_FIELDS = (
    *("uuid", "parentUuid", "sessionId", "timestamp", "type", "message", "usageMetadata", "model", "toolCallResult"),
    *("agentId", "agentName", "isSidechain", "systemPayload", *_CONTEXT),
)
_RESULT_FIELDS = ("callId", "name", "responseParts", "resultDisplay", "result", "args")
_ENDED = {"success": False, "error": True, "cancelled": True}
"""The final states of a call, and whether they mean failure."""
_USAGE = {
    "promptTokenCount": "input_tokens",
    "candidatesTokenCount": "output_tokens",
    "cachedContentTokenCount": "cached_tokens",
    "thoughtsTokenCount": "thoughts_tokens",
    "totalTokenCount": "total_tokens",
}
_MAX_HELD_LINES = 2_000
"""Lines of a session that are held in memory; a longer session is read again from the file."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a line with a message in parts."""
    if isinstance(document, Files):
        return False
    head = document.head() if isinstance(document, Lines) else items(document)[:50]
    return any(map(_is_line, head))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    session: _Session | None = None
    left_out: Counter[str] = Counter()
    place = -1
    for ordinal, line in enumerate(_lines(document)):
        if not isinstance(line.value, dict):
            skip(f"line {line.number}" if isinstance(document, Lines) else f"[{line.number}]", "not an object")
            continue
        own = text(line.value.get("sessionId"))
        if session is None or (own is not None and session.id is not None and own != session.id):
            if session is not None:
                yield session.transcript(document, place)
                left_out += session.left_out
            place += 1
            session = _Session(first=ordinal)
        session.add(ordinal, line)
    if session is not None:
        yield session.transcript(document, place)
        left_out += session.left_out
    for kind, count in left_out.items():
        skip("(all)", f"bookkeeping, {kind}: {count} line{'s' * (count > 1)}")


def _lines(document: Document) -> Iterable[Line]:
    return document if isinstance(document, Lines) else (Line(at, value) for at, value in enumerate(items(document)))


def _is_line(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("sessionId"), str):
        return False
    if value.get("type") not in _MESSAGE_TYPES:
        return False
    has_parts = isinstance(fields(value.get("message")).get("parts"), list)
    return has_parts or (value["type"] == "tool_result" and isinstance(value.get("toolCallResult"), dict))


@dataclass(eq=False)
class _Session:
    first: int
    last: int = -1
    id: str | None = None
    title: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    held: list[Line] | None = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, ordinal: int, line: Line) -> None:
        self.last = ordinal
        if self.held is not None:
            self.held.append(line)
            if len(self.held) > _MAX_HELD_LINES:
                self.held = None
        value = line.value
        self.id = self.id or text(value.get("sessionId"))
        self.context = {**rest(value, set(value) - set(_CONTEXT)), **self.context}
        kind, subtype = text(value.get("type")), text(value.get("subtype"))
        if kind == "system" and subtype == "custom_title":
            self.title = text(fields(value.get("systemPayload")).get("customTitle")) or self.title
        elif kind == "system" and subtype == "parent_session":
            self.context |= rest(fields(value.get("systemPayload")), ())
        elif kind not in _MESSAGE_TYPES and subtype not in _MESSAGE_SUBTYPES:
            self.left_out[" ".join(filter(None, (kind, subtype))) or "no type"] += 1

    def transcript(self, document: Document, place: int) -> Transcript:
        return Transcript(
            entries=partial(_entries, document, self),
            place=place,
            external_id=self.id,
            has_own_ids=self.id is not None,
            title=self.title,
            metadata=self.context,
        )


def _entries(document: Document, session: _Session) -> Iterator[Entry]:
    lines: Iterable[Line] = session.held if session.held is not None else _lines_of(document, session)
    seen: set[str] = set()
    previous: str | None = None
    for line in lines:
        value = line.value
        if not isinstance(value, dict):
            continue
        own = text(value.get("uuid")) or f"line {line.number}"
        if own in seen:
            continue
        seen.add(own)
        metadata = rest(value, _LINE_FIELDS)
        if previous is not None and text(value.get("parentUuid")) not in (previous, None):
            metadata["branched_from"] = value["parentUuid"]
        previous = own
        yield from _read(own, value, metadata)


def _lines_of(document: Document, session: _Session) -> Iterator[Line]:
    for ordinal, line in enumerate(_lines(document)):
        if ordinal > session.last:
            return
        if ordinal >= session.first:
            yield line


def _read(own: str, value: dict[str, Any], metadata: dict[str, Any]) -> Iterator[Entry]:
    kind, subtype = text(value.get("type")), text(value.get("subtype"))
    at, flags = instant(value.get("timestamp")), time_flags(value.get("timestamp"))
    parts = read_parts(fields(value.get("message")).get("parts"))
    prompt = partial(Prompt, created_at=at, health=flags)
    if kind == "user":
        payload, agent = fields(value.get("systemPayload")), text(value.get("agentId"))
        typed, added = split_prompt(parts, payload.get("displayText"))
        if (
            subtype not in (None, "mid_turn_user_message")
            or value.get("provenance", "real_user") != "real_user"
            or value.get("isSidechain") is True
            or agent
        ):
            typed, added = Parts(), parts
        metadata |= rest({**payload, "agentId": agent}, ("displayText",) if typed.visible else ())
        if typed.visible or not added.visible:
            is_aside = subtype is not None
            yield prompt(id=own, role="user", content=typed.content, is_aside=is_aside, metadata=metadata)
        if added.visible:
            metadata = {"type": kind, **({} if typed.visible else metadata)}
            own = f"{own}#added" if typed.visible else own
            yield prompt(id=own, role="system", content=added.content, is_aside=True, metadata=metadata)
    elif kind == "assistant":
        counts = fields(value.get("usageMetadata"))
        yield Reply(
            id=own,
            content=parts.content,
            calls=parts.calls,
            reasoning=parts.thought,
            agent_name=text(value.get("agentName")) or text(value.get("agentId")),
            model=text(value.get("model")),
            usage={_USAGE.get(name, name): count for name, count in counts.items()} or None,
            created_at=at,
            step_id=own,
            parent_call="" if value.get("isSidechain") is True else None,
            health=flags,
            metadata=metadata,
        )
    elif kind == "tool_result":
        yield from _results(own, value, metadata)
    elif kind == "system" and subtype in _MESSAGE_SUBTYPES:
        payload = fields(value.get("systemPayload"))
        dropped = len(items(payload.get("compressedHistory")))
        command = text(payload.get("rawCommand")) or f"[{subtype}]"
        metadata = {**metadata, **rest(payload, ("compressedHistory", "promptIds", "rawCommand")), "type": subtype}
        if dropped:
            metadata["compressedHistory"] = dropped
        yield prompt(id=own, role="system", content=command, is_aside=True, metadata=metadata)


def _results(own: str, value: dict[str, Any], metadata: dict[str, Any]) -> Iterator[Result]:
    outcome = fields(value.get("toolCallResult"))
    parts = read_parts(fields(value.get("message")).get("parts"))
    display, call_id, name = outcome.get("resultDisplay"), text(outcome.get("callId")), text(outcome.get("name"))
    failed = _ENDED.get(text(outcome.get("status")) or "")
    if failed is None and outcome.get("error"):
        failed = True
    responses = parts.responses
    for number in range(max(len(responses), 1)):
        response = responses[number] if responses else None
        answered = (response.call_id if response is not None else None) or (call_id if number == 0 else None)
        output = response.output if response is not None else parts.text or outcome.get("result", display)
        yield Result(
            id=f"{own}#{number}" if number else own,
            output=output,
            failed=failed if failed is not None or response is None else response.failed,
            created_at=instant(value.get("timestamp")),
            data=display if isinstance(display, dict | list) else None,
            call_ids=[answered] if answered else [],
            name=(response.name if response is not None else None) or name,
            attachments=parts.others or None,
            health=time_flags(value.get("timestamp")),
            metadata={**metadata, **rest(outcome, _RESULT_FIELDS)},
        )
