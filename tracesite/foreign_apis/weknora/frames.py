"""Frames of WeKnora's answer stream, built from an answer's events, or from its rows if it has no events. Without Django.

A turn is `agent_query`, then `thinking`, `tool_call`, `tool_result` (`error` for a failed call, with done unset) and
`reflection` as they happen, then `references` and `answer`, and finally one of `complete`, `stop` and `error` (done). Texts
are deltas that the client joins by `event_id`; a call is sent again under its `tool_call_id` when more of it is known. Both
ids are derived from the step or call, so a client that reconnects and replaces by id shows nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, assert_never
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.events import projection
from tracesite_sdk.events.projection import EventFact
from tracesite_sdk.normalize.records import normalise_steps
from tracesite_sdk.records import ids
from tracesite_sdk.records.event_types import EVENT_TYPES

from .shapes import SearchResult, Shape, WeknoraMessage, WeknoraToolCall, call_of, result_of

MAX_FRAME_BYTES = 60_000
"""WeKnora 0.2 clients read lines of at most 64 KiB and lose the rest of the stream after a longer one."""
_CHUNK_CHARACTERS = 8_000
_TRUNCATED_CHARACTERS = 2_000
_DATA_FIELDS = ("event_id", "tool_call_id", "tool_name", "success", "error", "duration_ms", "arguments", "output")
_RUN_END = "workflow_execute_complete"


class Frame(Shape, frozen=True, kw_only=True):
    """The JSON of one `data:` line."""

    id: str
    """The id of the request that the answer belongs to."""
    response_type: str
    content: str = ""
    done: bool = False
    session_id: str | UnsetType = UNSET
    assistant_message_id: str | UnsetType = UNSET
    knowledge_references: Sequence[SearchResult] | UnsetType = UNSET
    data: Mapping[str, Any] | UnsetType = UNSET


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame as a server-sent event: one data line, no space after the colons because one client keeps it."""
    line = msgspec.json.encode(frame)
    if len(line) > MAX_FRAME_BYTES:
        line = msgspec.json.encode(_truncate_frame(frame))
    return b"event:message\ndata:" + line + b"\n\n"


@dataclass(kw_only=True)
class FrameStream:
    """The frames of one answer for one client; remembers everything sent, so that each call returns only new frames."""

    request_id: str
    session_id: str
    message_id: str
    is_over: bool = False
    """Whether an event has ended the run."""
    _status: str | None = None
    _error: str = ""
    _title: str = ""
    _texts: dict[str, str] = field(default_factory=dict)
    """The part of each text that was sent, by `event_id`."""
    _done: set[str] = field(default_factory=set)
    _open: dict[str, str] = field(default_factory=dict)
    """The current text of each agent that does not name its steps."""
    _begun: dict[str, list[EventFact]] = field(default_factory=dict)
    """The start events of each call. End events can be large, so they are not kept after sending."""
    _call_ids: dict[str, str] = field(default_factory=dict)
    _digests: dict[str, bytes] = field(default_factory=dict)
    """Digests of the calls, results and reflections that were sent."""

    @property
    def has_begun(self) -> bool:
        """Return whether any part of the answer was sent."""
        return bool(self._texts or self._digests)

    def beginning(self) -> list[Frame]:
        about = {"session_id": self.session_id, "assistant_message_id": self.message_id}
        return [self._frame("agent_query", done=True, data=about, **about)]

    def of_event(self, event: Mapping[str, Any]) -> list[Frame]:
        """Return the frames of an event in the form in which the feed delivers it."""
        type_, agent, data = event["type"], event.get("agent") or "", event["data"]
        refs = data.get("contextRefs")
        if isinstance(refs, dict):
            # Large values are stored as contexts; a stream shows their beginnings instead of loading them.
            data = {name: ref.get("beginning") for name, ref in refs.items() if isinstance(ref, dict)} | data
        fact = EventFact(
            order=event.get("number", event["seq"]),
            external_id=event["external_id"],
            type=type_,
            agent=agent,
            subject=projection.subject_of(type_, agent, event["external_id"], data),
            timestamp=datetime.fromisoformat(event["timestamp"]),
            data=data,
        )
        spec = EVENT_TYPES[fact.type]
        match spec.subject:
            case "step":
                return self._of_model(fact)
            case "call":
                return self._of_call(fact)
            case "nothing":
                return []
            case "run" if spec.fold != "agent":
                return self._of_run(fact)
            case "run":
                # The end of the whole run carries the answer so far; the result of one agent among several does not.
                is_answer = spec.stage == "end" and not agent
                content = projection.run_state([fact]).content if is_answer else ""
                return self._text("answer", self._answer, content, is_done=False) if content else []
            case _:
                assert_never(spec.subject)

    def of_message(self, message: WeknoraMessage) -> list[Frame]:
        """Return the new frames of an answer's rows; `ending` adds the references and the final frames."""
        frames: list[Frame] = []
        steps = message.agent_steps or []
        for number, step in enumerate(steps):
            is_done = message.is_completed or number < len(steps) - 1 or bool(step.tool_calls)
            if step.reasoning_content:
                frames += self._text("thinking", f"reasoning-{number}", step.reasoning_content, is_done=is_done)
            if step.thought:
                frames += self._text("thinking", f"thought-{number}", step.thought, is_done=is_done)
            for place, call in enumerate(step.tool_calls):
                frames += self._call(f"{number}.{place}", call)
        if message.content and not message.is_completed:
            frames += self._text("answer", self._answer, message.content, is_done=False)
        return frames

    def ending(
        self, message: WeknoraMessage, *, error: str, was_stopped: bool, step_count: int, duration: int | None
    ) -> list[Frame]:
        """Return the final frames: references, answer, and the reason for the end from the rows or the events."""
        frames: list[Frame] = []
        has_failed = bool(error or self._error) or self._status == "error"
        was_stopped = was_stopped or self._status == "aborted"
        if message.knowledge_references:
            references = message.knowledge_references
            frames.append(self._frame("references", knowledge_references=references))
        if message.content or self._answer in self._texts or not (has_failed or was_stopped):
            frames += self._text("answer", self._answer, message.content, is_done=True)
        if has_failed:
            error = error or self._error or "The run has failed."
            frames.append(self._frame("error", error, done=True, data={"error": error}))
        elif was_stopped:
            about = {"session_id": self.session_id, "message_id": self.message_id, "reason": "user_requested"}
            frames.append(self._frame("stop", "Generation stopped by user", done=True, data=about))
        else:
            counts = {"total_steps": step_count, "total_duration_ms": duration or 0}
            frames.append(self._frame("complete", done=True, data=counts))
        return frames

    def broken_off(self, reason: str) -> list[Frame]:
        """Return the final frame of a stream whose answer cannot be read any more."""
        return [self._frame("error", reason, done=True, data={"error": reason})]

    # --- Events ---------------------------------------------------------------------------------------------------

    def _of_model(self, fact: EventFact) -> list[Frame]:
        key = projection.step_named(fact.agent, fact.data)
        if fact.stage == "note":
            return []
        if fact.stage == "start":
            token = fact.data.get("token")
            if not isinstance(token, str) or not token:
                return []
            key = key or self._open.setdefault(fact.agent, f"delta:{fact.external_id}")
            return self._text("thinking", key, self._texts.get(key, "") + token, is_done=False)
        step = projection.step_record(fact.subject, [fact], 0, [])
        key = key or self._open.pop(fact.agent, fact.subject)
        stream = fact.data.get("stream") or fact.data.get("stream_id") or fact.data.get("streamId")
        key = f"{key}:{stream}" if stream else key
        duration = {"duration_ms": round(step.duration)} if step.duration is not None else {}
        more = {**duration, "completed_at": int(fact.timestamp.timestamp())}
        frames = []
        if step.reasoning_content:
            frames += self._text("thinking", f"{key}:reasoning", step.reasoning_content, is_done=True, more=more)
        if step.thought or key in self._texts:
            frames += self._text("thinking", key, step.thought or self._texts[key], is_done=True, more=more)
        return frames

    def _of_call(self, fact: EventFact) -> list[Frame]:
        if fact.stage == "note" and fact.subject not in self._begun:
            return []
        events = self._begun.setdefault(fact.subject, [])
        if fact.stage == "start":
            events.append(fact)
            events.sort(key=EventFact.place)
        facts = events if fact.stage == "start" else [*events, fact]
        record = projection.call_record(fact.subject, facts, None)
        steps, _flags = normalise_steps([records.AgentStep(tool_calls=[record])])
        call = (steps[0].tool_calls or [])[0]
        stored = call.result
        result = None
        if isinstance(stored, records.ToolResult):
            result = result_of(
                call.status or "", str(stored.output or ""), stored.data, stored.error, stored.attachments
            )
        # The same id that the stored row gets if the model gave none.
        derived = ids.child_hex(UUID(self.message_id).int, "call", "uuid", fact.subject, 0)
        named = call_of(
            call.id or f"call_{derived[-12:]}", call.name or "", call.args, result, call.duration, call.reflection
        )
        return self._call(fact.subject, named)

    def _of_run(self, fact: EventFact) -> list[Frame]:
        state = projection.run_state([fact])
        if fact.type == _RUN_END:
            self.is_over, self._status = True, state.status
            self._error = state.error or self._error
        if not state.title or state.title == self._title:
            return []
        self._title = state.title
        about = {"session_id": self.session_id, "title": state.title}
        return [self._frame("session_title", state.title, done=True, data=about)]

    # --- Texts and calls --------------------------------------------------------------------------------------------

    @property
    def _answer(self) -> str:
        return f"answer:{self.message_id}"

    def _text(
        self, kind: str, key: str, text: str, *, is_done: bool, more: Mapping[str, Any] | None = None
    ) -> list[Frame]:
        """Return the new part of a text. A text that no longer extends what was sent restarts under a new event id."""
        name, again = key, 1
        while not text.startswith(self._texts.get(name, "")):
            again += 1
            name = f"{key}#{again}"
        new = text[len(self._texts.get(name, "")) :]
        if not new and (name in self._done or not is_done):
            return []
        self._texts[name] = text
        if is_done:
            self._done.add(name)
        starts = range(0, len(new), _CHUNK_CHARACTERS)
        chunks = [new[start : start + _CHUNK_CHARACTERS] for start in starts] or [""]
        frames = [self._frame(kind, chunk, data={"event_id": name}) for chunk in chunks]
        if is_done:
            frames[-1] = replace(frames[-1], done=True, data={"event_id": name, **(more or {})})
        return frames

    def _call(self, subject: str, call: WeknoraToolCall) -> list[Frame]:
        """Return the new frames of a call: the call, its result and its reflection."""
        call_id = self._call_id(subject, call.id)
        frames = []
        if self._is_new(f"{subject} call", [call.name, call.args]):
            about: dict[str, Any] = {"tool_name": call.name, "arguments": call.args, "tool_call_id": call_id}
            frames.append(self._frame("tool_call", f"Calling tool: {call.name}", data=about))
        result = call.result
        if result is not None and self._is_new(f"{subject} result", [result, call.duration]):
            data: Mapping[str, Any] = (
                {} if result.data is UNSET else msgspec.json.decode(result.data, type=dict[str, Raw])
            )
            about = {
                **data,
                "tool_name": call.name,
                "success": result.success,
                "error": result.error or "",
                "output": result.output,
                "duration_ms": call.duration,
                "tool_call_id": call_id,
            }
            content = result.output if result.success else result.error or ""
            frames.append(self._frame("tool_result" if result.success else "error", content, data=about))
        if call.reflection and self._is_new(f"{subject} reflection", call.reflection):
            about = {"tool_call_id": call_id, "event_id": f"reflection:{call_id}"}
            frames.append(self._frame("reflection", call.reflection, done=True, data=about))
        return frames

    def _call_id(self, subject: str, given_id: str) -> str:
        """Return the id that the model gave, with a suffix if another call of the answer already has it."""
        if subject not in self._call_ids:
            is_taken = given_id in self._call_ids.values()
            digest = blake2b(subject.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
            self._call_ids[subject] = f"{given_id}-{digest}" if is_taken else given_id
        return self._call_ids[subject]

    def _is_new(self, name: str, value: Any) -> bool:
        digest = blake2b(msgspec.json.encode(value), digest_size=16).digest()
        if self._digests.get(name) == digest:
            return False
        self._digests[name] = digest
        return True

    def _frame(self, kind: str, content: str = "", **fields: Any) -> Frame:
        return Frame(id=self.request_id, response_type=kind, content=content, **fields)


def _truncate_frame(frame: Frame) -> Frame:
    """Truncate the texts of a frame so that it fits; the client gets them whole when it loads the answer."""
    data = frame.data
    if data is not UNSET:
        data = {name: _truncate(data[name]) for name in _DATA_FIELDS if name in data} | (
            {"title": _truncate(data["title"])} if "title" in data else {}
        )
    references = frame.knowledge_references
    if references is not UNSET:
        references = _truncate_references(references)
    return replace(frame, content=_truncate(frame.content), data=data, knowledge_references=references)


def _truncate(value: Any) -> Any:
    if isinstance(value, Raw):
        text = bytes(value).decode()
        return value if len(text) <= _TRUNCATED_CHARACTERS else {"_raw": f"{text[:_TRUNCATED_CHARACTERS]}…"}
    return (
        f"{value[:_TRUNCATED_CHARACTERS]}…" if isinstance(value, str) and len(value) > _TRUNCATED_CHARACTERS else value
    )


def _truncate_references(references: Sequence[SearchResult]) -> list[SearchResult]:
    kept: list[SearchResult] = []
    room = MAX_FRAME_BYTES - 2 * _TRUNCATED_CHARACTERS
    for reference in references:
        short = replace(reference, content=_truncate(reference.content), image_info="", metadata={})
        room -= len(msgspec.json.encode(short))
        if room < 0:
            break
        kept.append(short)
    return kept
