"""Read sessions of GitHub Copilot CLI: `events.jsonl` of a session, and what `copilot -p ... --output-format json` prints.

A line is an event: `{"type", "data", "id", "parentId", "timestamp"}`. Lines are read in file order, which is the order of
time.

* `user.message` is a prompt as it was typed (`content`). One with a `source` (a skill, an agent), of the autopilot, or of a
  sub-agent is a system message; one that was typed while the agent works (`delivery` steering) does not end the turn.
* `assistant.message` is a reply with its `toolRequests`; an answer may be split in several (`chunkIndex`). Its tokens are those
  of the `assistant.usage` of a stream, which has all; on disk only those of the output are known. `assistant.reasoning` mostly
  repeats the reasoning of the reply.
* `tool.execution_complete` is the result. It has failed if `success` is false, or if a shell command ended with another exit
  code than 0. A start without a request is a call of a sub-agent; a command of the user (`tool.user_requested`) is a
  system message.
* Events of a sub-agent have an `agentId`, in older versions a `parentToolCallId`; its replies are steps below that call.
* `session.error` and `abort` are failed replies. Summaries of compactions, notifications and rewinds are system messages:
  what a rewind makes void stays.

All other events are left out and counted; totals of a run (`session.shutdown`, `result`) are metadata of the session. Ids are
globally unique, so a file may hold any part of a session. A file is read twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import duration, fields, instant, items, rest, text, time_flags
from tracesite_sdk.records.health_flags import STOPPED
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.times import after

NAME = "copilot_cli"

_EVENTS = (
    *("session.start", "session.resume", "user.message", "assistant.turn_start", "assistant.message"),
    *("tool.execution_start", "tool.execution_complete"),
)
"""Events by which the format is recognised."""
_TYPED = (None, "user", "cli", "command")
"""Values of `source` of a prompt that a person typed."""
_BY_USER = "user initiated"
"""The reason of a turn that the user aborted."""
_NOTICES = ("system.notification", "session.compaction_complete", "session.snapshot_rewind")
_READ = (
    *("user.message", "system.message", "assistant.message", "assistant.reasoning", "assistant.usage", "tool.user_requested"),
    *("tool.execution_start", "tool.execution_complete", "subagent.started", "session.error", "abort", *_NOTICES),
    *("session.start", "session.title_changed", "session.model_change", "session.shutdown", "result"),
)  # fmt: skip
_CONVERSATION = ("user.message", "assistant.message", "tool.execution_complete", "session.error")
_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cached_input_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}
"""Cached tokens are a part of the input."""
_PROMPT_FIELDS = ("content", "transformedContent", "attachments", "supportedNativeDocumentMimeTypes", "role")
_REPLY_FIELDS = (
    *("content", "toolRequests", "reasoningText", "reasoningOpaque", "encryptedContent", "model", "outputTokens"),
    *("parentToolCallId", "chunkIndex", "chunkCount"),
)
_CALL_FIELDS = ("toolCallId", "name", "toolName", "arguments", "parentToolCallId", "turnId", "model")
_RESULT_FIELDS = ("toolCallId", "success", "result", "error", "toolTelemetry", "parentToolCallId", "turnId", "model")
_EXIT_CODE = re.compile(r"<[^<>\n]*exit code (-?\d+)>\s*\Z")
_SHELLS = ("bash", "powershell", "shell")
"""The ends of the names of tools whose results state an exit code."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is an event of a session."""
    return any(map(_is_event, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    session: _Session | None = None
    left_out: Counter[str] = Counter()
    for ordinal, (where, event) in enumerate(numbered_values(document)):
        if not isinstance(event, dict):
            skip(where, "not an object")
            continue
        own = text(_data(event).get("sessionId")) if event.get("type") == "session.start" else None
        if session is None or (own is not None and session.id not in (None, own)):
            if session is not None:
                yield from session.transcripts(document, skip)
            session = _Session(place=0 if session is None else session.place + 1, first=ordinal)
        session.add(ordinal, event)
        for index, request in enumerate(items(_data(event).get("toolRequests"))):
            if not isinstance(request, dict):
                skip(join_place(where, f"data.toolRequests[{index}]"), "not an object")
        if (kind := text(event.get("type")) or "no type") not in _READ:
            left_out[kind] += 1
    if session is not None:
        yield from session.transcripts(document, skip)
    for kind, count in left_out.items():
        skip("(all)", f"not part of the conversation, {kind}: {count} line{'s' * (count > 1)}")


def _is_event(value: object) -> bool:
    if not isinstance(value, dict) or value.get("type") not in _EVENTS or not isinstance(value.get("data"), dict):
        return False
    is_start = value["type"] == "session.start" and value["data"].get("producer") == "copilot-agent"
    return is_start or (isinstance(value.get("id"), str) and {"parentId", "timestamp"} <= value.keys())


def _data(event: dict[str, Any]) -> dict[str, Any]:
    return fields(event.get("data"))


def _agent_of(event: dict[str, Any]) -> str | None:
    return text(event.get("agentId")) or text(_data(event).get("parentToolCallId"))


@dataclass(eq=False)
class _Session:
    """What the first reading finds out."""

    place: int
    first: int
    last: int = -1
    id: str | None = None
    title: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    runs: list[Any] = field(default_factory=list)
    """The totals of each run of the client."""
    usage: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The `assistant.usage` of streams by their API call, else by the event of their reply."""
    reasoning: dict[str, str] = field(default_factory=dict)
    """Reasoning of replies that do not repeat it, by the event of the reply."""
    is_aborted: bool = False
    is_empty: bool = True
    _replies: dict[str | None, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """The last reply of each agent: its event, and the data."""
    _thoughts: dict[str | None, str] = field(default_factory=dict)
    """Reasoning that no reply has yet, by agent."""

    def add(self, ordinal: int, event: dict[str, Any]) -> None:
        self.last = ordinal
        kind, data, agent = event.get("type"), _data(event), _agent_of(event)
        self.is_empty &= kind not in _CONVERSATION
        if kind == "session.start":
            self.id = self.id or text(data.get("sessionId"))
            self.about = rest(data, ("sessionId", "startTime")) | self.about
        elif kind == "session.title_changed":
            self.title = text(data.get("title")) or self.title
        elif kind == "session.shutdown":
            self.runs.append(data)
        elif kind == "result":
            # The last line of a stream, which may have no other line with the id of the session.
            self.id = self.id or text(event.get("sessionId"))
            self.result = rest(event, ("type", "sessionId", "id", "parentId", "timestamp"))
        elif kind == "assistant.turn_start":
            self._replies.pop(agent, None)
        elif kind == "assistant.message":
            own, thought = text(event.get("id")) or str(ordinal), self._thoughts.pop(agent, None)
            before, reply = self._replies.get(agent, ("", {}))
            # The parts of an answer that is split have the event of the first.
            own = before if before and data.get("messageId") and data["messageId"] == reply.get("messageId") else own
            self._replies[agent] = own, data
            if thought and not data.get("reasoningText"):
                self.reasoning[own] = thought
        elif kind == "assistant.reasoning" and (thought := text(data.get("content"))):
            own, reply = self._replies.get(agent, ("", {"reasoningText": ""}))
            if own and not reply.get("reasoningText"):
                self.reasoning.setdefault(own, thought)
            elif reply.get("reasoningText") != thought:
                self._thoughts[agent] = thought
        elif kind == "assistant.usage":
            of_reply, reply = self._replies.get(agent, ("", {}))
            name = text(data.get("apiCallId")) if "apiCallId" in reply or not of_reply else of_reply
            self.usage.setdefault(name or of_reply, data)
        if kind in ("abort", "user.message", "assistant.message") and agent is None:
            self.is_aborted = kind == "abort"

    def transcripts(self, document: Document, skip: Skip) -> Iterator[Transcript]:
        if self.is_empty:
            skip("(all)" if self.id is None else f"session {self.id}", EMPTY_CONVERSATION)
            return
        yield Transcript(
            entries=partial(_entries, document, self),
            place=self.place,
            external_id=self.id,
            has_own_ids=self.id is not None,
            title=self.title,
            status="aborted" if self.is_aborted else None,
            metadata={**self.about, **rest({"runs": self.runs, "result": self.result}, ())},
        )


def _entries(document: Document, session: _Session) -> Iterator[Entry]:
    reader = _Reader(session)
    for ordinal, event in _whole_answers(document, session):
        yield from reader.read(str(ordinal), event)


def _whole_answers(document: Document, session: _Session) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the events of a session with those of an answer that is split joined."""
    held: list[tuple[int, dict[str, Any]]] = []
    for ordinal, (_where, event) in enumerate(numbered_values(document)):
        if ordinal > session.last:
            break
        if ordinal < session.first or not isinstance(event, dict) or event.get("type") not in _READ:
            continue
        is_part = event.get("type") == "assistant.message" and bool(_data(event).get("chunkCount"))
        if held and not (is_part and _data(event).get("messageId") == _data(held[0][1]).get("messageId")):
            yield _joined(held)
            held = []
        if is_part:
            held.append((ordinal, event))
        else:
            yield ordinal, event
    if held:
        yield _joined(held)


def _joined(parts: list[tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
    """Return the first event of an answer with what all parts say."""
    ordinal, first = parts[0]
    whole: dict[str, Any] = {}
    for _ordinal, event in parts:
        whole |= rest(_data(event), ())
    whole["content"] = "".join(text(_data(event).get("content")) or "" for _ordinal, event in parts)
    whole["toolRequests"] = [it for _ordinal, event in parts for it in items(_data(event).get("toolRequests"))]
    return ordinal, {**first, "data": whole}


@dataclass(eq=False)
class _Reader:
    session: _Session
    _model: str | None = None
    """The model that the session has chosen, for versions whose replies do not name theirs."""
    _agents: dict[str, str] = field(default_factory=dict)
    """The call that started an agent, by its id."""
    _names: dict[str, str] = field(default_factory=dict)
    """The names of agents by that call."""
    _tools: dict[str, str] = field(default_factory=dict)
    """The names of the tools of all calls, by their id."""
    _started: dict[str | None, datetime] = field(default_factory=dict)
    _of_user: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    """Commands of the user, by their id."""
    _ids: set[str] = field(default_factory=set)
    """The ids of all events, and of the calls that are complete."""

    def read(self, number: str, event: dict[str, Any]) -> Iterator[Entry]:
        own = text(event.get("id")) or number
        kind, data, at = event.get("type"), _data(event), instant(event.get("timestamp"))
        call_id = text(data.get("toolCallId"))
        if own in self._ids:
            return
        self._ids.add(own)
        if kind in ("session.start", "session.model_change"):
            self._model = text(data.get("selectedModel")) or text(data.get("newModel")) or self._model
        elif kind == "subagent.started" and call_id:
            self._agents[text(event.get("agentId")) or call_id] = call_id
            self._names[call_id] = text(data.get("agentName")) or ""
        elif kind == "tool.user_requested" and call_id:
            self._of_user[call_id] = data
        elif kind in ("user.message", "system.message"):
            yield self._prompt(own, event, data, at)
        elif kind == "assistant.message":
            yield self._reply(own, event, data, at)
        elif kind == "tool.execution_start" and call_id:
            if at is not None:
                self._started[call_id] = at
            if call_id not in self._tools and call_id not in self._of_user:
                yield Reply(
                    id=own,
                    content=None,
                    calls=[self._call(call_id, text(data.get("toolName")), data)],
                    created_at=at,
                    **self._below(event),
                )
        elif kind == "tool.execution_complete" and call_id in self._of_user:
            yield _command(own, self._of_user.pop(call_id), data, at)
        elif kind == "tool.execution_complete" and call_id not in self._ids:
            self._ids.update(filter(None, [call_id]))
            yield self._result(own, call_id, data, at)
        elif kind in ("session.error", "abort"):
            said = text(data.get("message")) or text(data.get("reason")) or "no reason"
            error = said if kind == "session.error" else f"turn aborted: {said}"
            metadata = rest(data, ("message", "reason", "stack"))
            below = self._below(event)
            health = [STOPPED] if kind == "abort" and said == _BY_USER and not below else ()
            yield Reply(id=own, content=None, error=error, created_at=at, health=health, metadata=metadata, **below)
        elif kind in _NOTICES:
            said = data.get("content") or data.get("summaryContent") or data.get("error") or f"[{kind}]"
            metadata = {"type": kind, **rest(data, ("content", "summaryContent"))}
            yield Prompt(id=own, role="system", content=text(said), created_at=at, is_aside=True, metadata=metadata)

    def _below(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a reply that say to which agent it belongs."""
        agent, call = text(event.get("agentId")), text(_data(event).get("parentToolCallId"))
        if agent is None and call is None:
            return {}
        if agent is not None and call is None:
            call = self._agents.get(agent, agent if agent in self._tools else "")
        return {"parent_call": call, "agent_name": self._names.get(call or "") or agent}

    def _prompt(self, own: str, event: dict[str, Any], data: dict[str, Any], at: datetime | None) -> Prompt:
        said, attachments = text(data.get("content")), items(data.get("attachments"))
        is_user = event["type"] == "user.message"
        is_typed = (
            is_user
            and text(data.get("source")) in _TYPED
            and data.get("isAutopilotContinuation") is not True
            and _agent_of(event) is None
        )
        return Prompt(
            id=own,
            role="user" if is_typed else "system",
            content=[{"type": "text", "text": said or ""}, *attachments] if attachments else said,
            created_at=at,
            health=time_flags(event.get("timestamp")),
            is_aside=not is_typed or data.get("delivery") == "steering",
            metadata={
                **rest(data, _PROMPT_FIELDS),
                **({"type": "user.message"} if is_user and not is_typed else {}),
                **rest({"agentId": event.get("agentId")}, ()),
            },
        )

    def _reply(self, own: str, event: dict[str, Any], data: dict[str, Any], at: datetime | None) -> Reply:
        usage = self.session.usage.get(text(data.get("apiCallId")) or own) or self.session.usage.get(own) or {}
        took = duration(usage.get("duration"))
        counts = {name: usage.get(key, data.get(key)) for key, name in _USAGE.items()}
        below = self._below(event)
        return Reply(
            id=own,
            content=text(data.get("content")),
            calls=list(self._requested(data)),
            reasoning=text(data.get("reasoningText")) or self.session.reasoning.get(own),
            model=text(data.get("model")) or text(usage.get("model")) or (None if below else self._model),
            usage={name: count for name, count in counts.items() if count is not None} or None,
            created_at=after(at, -took) if at is not None and took else at,
            duration=took,
            time_to_first_token=duration(usage.get("timeToFirstTokenMs")),
            step_id=text(event.get("id")),
            is_request=True,
            health=time_flags(event.get("timestamp")),
            metadata={**rest(data, _REPLY_FIELDS), **rest(usage, (*_USAGE, *data, *_UNKEPT_OF_USAGE))},
            **below,
        )

    def _requested(self, data: dict[str, Any]) -> Iterator[Call]:
        for request in filter(None, map(fields, items(data.get("toolRequests")))):
            if (call_id := text(request.get("toolCallId"))) is None or call_id not in self._tools:
                yield self._call(call_id, text(request.get("name")), request)

    def _call(self, call_id: str | None, name: str | None, data: dict[str, Any]) -> Call:
        if call_id is not None:
            self._tools[call_id] = name or ""
        metadata = rest(data, (*_CALL_FIELDS, "type"))
        return Call(id=call_id, name=name or "", args=data.get("arguments", {}), metadata=metadata)

    def _result(self, own: str, call_id: str | None, data: dict[str, Any], at: datetime | None) -> Result:
        outcome = data.get("result")
        given = fields(outcome)
        output = given.get("content") if isinstance(outcome, dict) else outcome
        code = _exit_code(data, output) if self._tools.get(call_id or "", "").endswith(_SHELLS) else None
        success, detail = data.get("success"), given.get("detailedContent")
        details = {"detailedContent": detail} if detail not in (None, "", output) else {}
        others = [it for it in items(given.get("contents")) if fields(it).get("type") not in ("text", "terminal")]
        error = data.get("error")
        return Result(
            id=own,
            output=output,
            failed=success is False or code not in (None, 0) if isinstance(success, bool) else None,
            created_at=at,
            started_at=self._started.pop(call_id, None),
            error=text(error.get("message")) if isinstance(error, dict) else text(error),
            data=given.get("structuredContent") or details or None,
            call_ids=[call_id] if call_id else [],
            name=self._tools.get(call_id or "") or None,
            attachments=[*others, *items(given.get("binaryResultsForLlm"))] or None,
            metadata={**rest(data, _RESULT_FIELDS), **rest({"code": fields(error).get("code"), "exitCode": code}, ())},
        )


_UNKEPT_OF_USAGE = ("duration", "timeToFirstTokenMs", "quotaSnapshots", "interTokenLatencyMs", "parentToolCallId")


def _exit_code(data: dict[str, Any], output: Any) -> int | None:
    code = fields(data.get("shellExecution")).get("exitCode")
    if isinstance(code, int):
        return code
    found = _EXIT_CODE.search(output[-200:]) if isinstance(output, str) else None
    return int(found[1]) if found is not None else None


def _command(own: str, request: dict[str, Any], data: dict[str, Any], at: datetime | None) -> Prompt:
    """Return a command that the user ran, with its output."""
    command = fields(request.get("arguments")).get("command") or request.get("toolName")
    said = (f"$ {text(command) or ''}", text(fields(data.get("result")).get("content")), text(fields(data.get("error")).get("message")))  # fmt: skip
    return Prompt(
        id=own,
        role="system",
        content="\n".join(filter(None, said)),
        created_at=at,
        is_aside=True,
        metadata={"type": "tool.user_requested", **rest({"success": data.get("success")}, ())},
    )
