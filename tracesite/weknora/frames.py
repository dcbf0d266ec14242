"""An answer as WeKnora streams it: frames made of its events, or of its rows where it has none. Pure, without Django.

A turn is `agent_query`, then `thinking`, `tool_call`, `tool_result` (of a failed call `error`, not done) and `reflection` as
they come, then `references` and `answer`, and at last one of `complete`, `stop` and `error` (done). Texts are deltas, put
together by `event_id`; a call is told again under its `tool_call_id` when more of it is known. Both ids are made of what
the frame is about, so a client that begins anew and puts things in their places doubles nothing.
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

from messages_app import ids
from traces_app.events import projection
from traces_app.events.projection import EventFact
from traces_app.normalize.records import normalise_steps
from traces_app.schema import records
from traces_app.schema.event_types import EVENT_TYPES

from .shapes import Message, SearchResult, Shape, ToolCall, call_of, result_of

MOST_BYTES = 60_000
"""Of a frame: the clients of WeKnora 0.2 read lines of 64 KiB, and lose the rest of a stream behind a longer one."""
_PIECE = 8_000
_CUT = 2_000
_OURS = ("event_id", "tool_call_id", "tool_name", "success", "error", "duration_ms", "arguments", "output")
_ENDED = "workflow_execute_complete"


class Frame(Shape, frozen=True, kw_only=True):
    """What stands behind `data:`."""

    id: str
    """That of the request that the answer is to."""
    response_type: str
    content: str = ""
    done: bool = False
    session_id: str | UnsetType = UNSET
    assistant_message_id: str | UnsetType = UNSET
    knowledge_references: Sequence[SearchResult] | UnsetType = UNSET
    data: Mapping[str, Any] | UnsetType = UNSET


def encoded(frame: Frame) -> bytes:
    """As it is sent: one line of data, and no space behind the colons, for one of the clients takes it for a part."""
    line = msgspec.json.encode(frame)
    if len(line) > MOST_BYTES:
        line = msgspec.json.encode(_shortened(frame))
    return b"event:message\ndata:" + line + b"\n\n"


@dataclass(kw_only=True)
class Telling:
    """What one client was told of an answer, so that it is told what is new."""

    request_id: str
    session_id: str
    message_id: str
    is_over: bool = False
    """An event said that the run has ended."""
    _status: str | None = None
    _error: str = ""
    _title: str = ""
    _texts: dict[str, str] = field(default_factory=dict)
    """What was told of each text, by its `event_id`."""
    _done: set[str] = field(default_factory=set)
    _open: dict[str, str] = field(default_factory=dict)
    """The text that an agent is at, where it does not name the step."""
    _begun: dict[str, list[EventFact]] = field(default_factory=dict)
    """What was said of the beginning of each call; outcomes may be large, and are forgotten when they were told."""
    _call_ids: dict[str, str] = field(default_factory=dict)
    _told: dict[str, bytes] = field(default_factory=dict)

    @property
    def has_begun(self) -> bool:
        """Whether anything of the answer was told."""
        return bool(self._texts or self._told)

    def beginning(self) -> list[Frame]:
        about = {"session_id": self.session_id, "assistant_message_id": self.message_id}
        return [self._frame("agent_query", done=True, data=about, **about)]

    def of_event(self, event: Mapping[str, Any]) -> list[Frame]:
        """The frames of an event, as every reader of events is given it."""
        type_, agent, data = event["type"], event.get("agent") or "", event["data"]
        elsewhere = data.get("contextRefs")
        if isinstance(elsewhere, dict):
            # What was too large for the event lies beside it; nobody waits for all of it here.
            data = {name: ref.get("beginning") for name, ref in elsewhere.items() if isinstance(ref, dict)} | data
        said = EventFact(
            order=event.get("number", event["seq"]),
            external_id=event["external_id"],
            type=type_,
            agent=agent,
            subject=projection.subject_of(type_, agent, event["external_id"], data),
            timestamp=datetime.fromisoformat(event["timestamp"]),
            data=data,
        )
        spec = EVENT_TYPES[said.type]
        match spec.subject:
            case "step":
                return self._of_model(said)
            case "call":
                return self._of_call(said)
            case "nothing":
                return []
            case "run" if spec.fold != "agent":
                return self._of_run(said)
            case "run":
                # Only of the run itself: the answer so far. The result of one agent of several is not the answer yet.
                is_answer = spec.stage == "end" and not agent
                content = projection.run_state([said]).content if is_answer else ""
                return self._text("answer", self._answer, content, is_done=False) if content else []
            case _:
                assert_never(spec.subject)

    def of_message(self, message: Message) -> list[Frame]:
        """What is new in the rows of an answer; the references, and whatever ends it, are for `ending`."""
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
        self, message: Message, *, error: str, was_stopped: bool, step_count: int, duration: int | None
    ) -> list[Frame]:
        """The answer itself and why there is no more, by its rows, and by what its events said besides."""
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
        """The end of a stream whose answer cannot be read any more."""
        return [self._frame("error", reason, done=True, data={"error": reason})]

    # --- Events ---------------------------------------------------------------------------------------------------

    def _of_model(self, said: EventFact) -> list[Frame]:
        key = projection.step_named(said.agent, said.data)
        if said.type == "llm_request_start":
            token = said.data.get("token")
            if not isinstance(token, str) or not token:
                return []
            key = key or self._open.setdefault(said.agent, f"delta:{said.external_id}")
            return self._text("thinking", key, self._texts.get(key, "") + token, is_done=False)
        step = projection.step_record(said.subject, [said], 0, [])
        key = key or self._open.pop(said.agent, said.subject)
        stream = said.data.get("stream") or said.data.get("stream_id") or said.data.get("streamId")
        key = f"{key}:{stream}" if stream else key
        duration = {"duration_ms": round(step.duration)} if step.duration is not None else {}
        more = {**duration, "completed_at": int(said.timestamp.timestamp())}
        frames = []
        if step.reasoning_content:
            frames += self._text("thinking", f"{key}:reasoning", step.reasoning_content, is_done=True, more=more)
        if step.thought or key in self._texts:
            frames += self._text("thinking", key, step.thought or self._texts[key], is_done=True, more=more)
        return frames

    def _of_call(self, said: EventFact) -> list[Frame]:
        events = self._begun.setdefault(said.subject, [])
        if said.type == "tool_call_start":
            events.append(said)
            events.sort(key=EventFact.place)
        heard = events if said.type == "tool_call_start" else [*events, said]
        record = projection.call_record(said.subject, heard, None)
        steps, _flags = normalise_steps([records.AgentStep(tool_calls=[record])])
        call = (steps[0].tool_calls or [])[0]
        found = call.result
        result = None
        if isinstance(found, records.ToolResult):
            result = result_of(call.status or "", str(found.output or ""), found.data, found.error, found.attachments)
        # As its row is called where the model gave no id.
        derived = ids.child_hex(UUID(self.message_id).int, "call", "uuid", said.subject, 0)
        named = call_of(
            call.id or f"call_{derived[-12:]}", call.name or "", call.args, result, call.duration, call.reflection
        )
        return self._call(said.subject, named)

    def _of_run(self, said: EventFact) -> list[Frame]:
        state = projection.run_state([said])
        if said.type == _ENDED:
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
        """What is new of a text. One that says something else now is told anew, as another one: nothing is taken back."""
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
        pieces = [new[start : start + _PIECE] for start in range(0, len(new), _PIECE)] or [""]
        frames = [self._frame(kind, piece, data={"event_id": name}) for piece in pieces]
        if is_done:
            frames[-1] = replace(frames[-1], done=True, data={"event_id": name, **(more or {})})
        return frames

    def _call(self, subject: str, call: ToolCall) -> list[Frame]:
        """What is new of a call: itself, its result, what was thought of it."""
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

    def _call_id(self, subject: str, said: str) -> str:
        """The id that the model gave; another one where it gave that to another call before."""
        if subject not in self._call_ids:
            is_taken = said in self._call_ids.values()
            digest = blake2b(subject.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
            self._call_ids[subject] = f"{said}-{digest}" if is_taken else said
        return self._call_ids[subject]

    def _is_new(self, name: str, value: Any) -> bool:
        digest = blake2b(msgspec.json.encode(value), digest_size=16).digest()
        if self._told.get(name) == digest:
            return False
        self._told[name] = digest
        return True

    def _frame(self, kind: str, content: str = "", **fields: Any) -> Frame:
        return Frame(id=self.request_id, response_type=kind, content=content, **fields)


def _shortened(frame: Frame) -> Frame:
    """A frame that fits: the beginnings of its texts. All of it is in the answer, once that is loaded."""
    data = frame.data
    if data is not UNSET:
        data = {name: _cut(data[name]) for name in _OURS if name in data} | (
            {"title": _cut(data["title"])} if "title" in data else {}
        )
    references = frame.knowledge_references
    if references is not UNSET:
        references = _cut_references(references)
    return replace(frame, content=_cut(frame.content), data=data, knowledge_references=references)


def _cut(value: Any) -> Any:
    if isinstance(value, Raw):
        text = bytes(value).decode()
        return value if len(text) <= _CUT else {"_raw": f"{text[:_CUT]}…"}
    return f"{value[:_CUT]}…" if isinstance(value, str) and len(value) > _CUT else value


def _cut_references(references: Sequence[SearchResult]) -> list[SearchResult]:
    kept: list[SearchResult] = []
    room = MOST_BYTES - 2 * _CUT
    for reference in references:
        short = replace(reference, content=_cut(reference.content), image_info="", metadata={})
        room -= len(msgspec.json.encode(short))
        if room < 0:
            break
        kept.append(short)
    return kept
