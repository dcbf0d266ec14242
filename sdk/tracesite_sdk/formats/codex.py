"""Read rollouts of Codex CLI: the JSON lines of a session (`~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`).

Each line is `{"timestamp", "type", "payload"}`. One file interleaves two logs: `response_item` holds the items exchanged
with the model (see response_items.py), `event_msg` the events shown in the terminal. Most facts are in both. The items
are read first; an event is read only if no item of the file has its content:

* `session_meta` names the session (`id`). The file of a forked session or a sub-agent begins with its own
  `session_meta`, followed by those of its ancestors; any other `session_meta` with another id begins another session.
* A `user_message` event (in newer versions an `item_completed` of a `UserMessage`) repeats a typed prompt. If a file has
  such events, an item with the role `user` but no event was inserted by Codex (AGENTS.md, the environment, notices),
  unless `content_item_kinds` gives the origin of its parts. In a file without such events the tags at the start of the
  item decide. Inserted items, and items with the role `developer`, are system messages.
* A reply is one response of the model: reasoning, text and calls up to a result, a `token_count`, or a message. A call
  run by the provider (web search) ends a reply, too. The model of a reply is that of the last `turn_context`; its usage
  is the next `token_count` (`last_token_usage`) that repeats no other, else the `token_usage_record`.
* A result is the `*_call_output` item. `exec_command_end`, `patch_apply_end` and `mcp_tool_call_end` of the same call add
  exit code and duration. They are the result where the file has no output for the call, and call and result where it has
  no call. The exit code shows whether a command failed: that of the event, of the JSON `{"output", "metadata"}` of
  older versions, or of the lines before the output. Fixed texts mark calls that the user stopped or Codex could not run;
  of the tools for other agents, whose results are JSON, all other text does.
* `turn_aborted` and `error` are failed replies. Compactions, rollbacks and reviews are system messages.

Files until September 2025 have a header without `type` and items without an envelope. Events outside of the conversation
(`world_state`, ghost snapshots, approvals ...) and encrypted reasoning are left out and counted.

A file is read twice. The id of an entry is its line number, because items have no ids.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import fields, instant, items, milliseconds, rest, text
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.normalize.pricing import tokens
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.records.health_flags import STOPPED
from tracesite_sdk.transcripts.documents import Document, Files, Lines, Skip
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.response_items import (
    CARRIED_OUT,
    call_id_of,
    call_of,
    content_of,
    is_call,
    is_client_search,
    is_result,
    joined,
    own_result,
    result_of,
)

NAME = "codex"

_ENVELOPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_ITEMS = frozenset(
    {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
    | {"local_shell_call", "local_shell_call_output", "web_search_call"}
)
_SCAFFOLD = (
    *("<environment_context", "<user_instructions", "<permissions", "<INSTRUCTIONS", "# AGENTS.md instructions"),
    *("<turn_aborted", "<skill", "<collaboration_mode", "<subagent_notification", "<user_shell_command"),
    *("<apps_instructions", "<plugins_instructions", "<personality", "<model_switch", "<user_action"),
)
"""The start of messages that Codex inserts with the role `user`."""
_STARTED = ("task_started", "turn_started")
_COMPLETED = ("task_complete", "turn_complete")
_ENDS = ("exec_command_end", "patch_apply_end", "mcp_tool_call_end", "web_search_end", "image_generation_end")
_BEGINS = ("exec_command_begin", "mcp_tool_call_begin")
_REPEATED = frozenset(
    {"patch_apply_begin", "web_search_begin", "image_generation_begin", "exec_command_output_delta"}
    | {
        "context_compacted",
        "agent_reasoning_section_break",
        "agent_message_delta",
        "agent_reasoning_delta",
        "raw_response_item",
    }
    | {"item_started", "turn_diff", "plan_update", "view_image_tool_call", "session_configured", "stream_error"}
)
"""Events whose content other lines of the file repeat in full."""
_NOTICES = ("thread_rolled_back", "entered_review_mode", "exited_review_mode")
_ANSWERS = ("agent_message", "agent_reasoning", "agent_reasoning_raw_content")
_READ_EVENTS = _REPEATED | {*_ENDS, *_BEGINS, *_NOTICES, "error"}
_SESSION_FIELDS = ("id", "timestamp", "base_instructions", "instructions", "type", "record_type")
_MAX_HELD_LINES = 2_000
"""Lines of a session that are held in memory; a longer session is read twice from the file."""
_MAX_CONTEXTS = 20
_NEARBY = 8
"""Prompts that may come between an item and the event that repeats it."""
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)\s*$", re.MULTILINE)
_WALL_TIME = re.compile(r"^Wall time: ([0-9.]+) seconds\s*$", re.MULTILINE)

_BY_USER = "interrupted"
"""The reason of a turn that the user aborted; others are that another task replaced it, or its budget."""
_ABORTED = re.compile(r"(?:Wall time: [0-9.]+ seconds\n)?aborted(?: by user(?: after [0-9.]+s)?)?")
"""The output of a call that the user stopped."""
_FAILURES = (
    *("exec_command failed for ", "write_stdin failed", "apply_patch verification failed", "execution error: "),
    *("failed to parse function arguments", "unsupported call: ", "unsupported custom tool call", "err: "),
    *("exec command rejected by user", "patch rejected by user"),
    *("collab spawn failed: ", "collab tool failed: ", "collab manager unavailable"),
)
"""The start of the output of a call that Codex could not run or was not allowed to run."""
_OWN_NAMESPACE = r"(?:multi_agent_v1|collaboration)(?:\.|__)"
_AGENT_TOOL = re.compile(
    rf"(?:{_OWN_NAMESPACE})?"
    r"(?:spawn_agent|send_input|resume_agent|wait_agent|close_agent|followup_task|interrupt_agent)"
    rf"|{_OWN_NAMESPACE}(?:list_agents|send_message)"
)
"""The names of the tools for other agents. Each returns a JSON object, nothing, or in the first versions an id.

Names that tools of others have, too, count only in a namespace of Codex.
"""
_ID = re.compile(r"(?:agent_id: )?\S*")


class _Line(NamedTuple):
    id: str
    """The line number, from 1."""
    where: str
    value: Any


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a rollout line, or the first one is the header of early versions."""
    if isinstance(document, Files):
        return False
    head = document.head() if isinstance(document, Lines) else items(document)[:50]
    if any(map(_is_line, head)):
        return True
    return bool(head) and _is_old_header(head[0]) and any(_is_bare(value) for value in head[1:])


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    survey: _Survey | None = None
    left_out: Counter[str] = Counter()
    place = -1
    for ordinal, line in enumerate(_lines(document)):
        if not isinstance(line.value, dict):
            skip(line.where, "not an object")
            continue
        if survey is None or survey.ends_before(line.value):
            if survey is not None:
                yield survey.transcript(document, place)
                left_out += survey.left_out
            place += 1
            survey = _Survey(first=ordinal)
        survey.add_line(ordinal, line, skip)
    if survey is not None:
        yield survey.transcript(document, place)
        left_out += survey.left_out
    for kind, count in left_out.items():
        skip("(all)", f"not part of the conversation, {kind}: {count} line{'s' * (count > 1)}")


# --- Lines ------------------------------------------------------------------------------------------------------------


def _lines(document: Document) -> Iterator[_Line]:
    if not isinstance(document, Lines):
        for index, value in enumerate(items(document)):
            yield _Line(str(index + 1), f"[{index}]", value)
        return
    previous, repeated = 0, 0
    for line in document:
        # A writer may have put two records on one line.
        repeated = repeated + 1 if line.number == previous else 0
        previous = line.number
        yield _Line(f"{line.number}.{repeated}" if repeated else str(line.number), f"line {line.number}", line.value)


def _is_line(value: object) -> bool:
    if not isinstance(value, dict) or value.get("type") not in _ENVELOPES:
        return False
    payload = value.get("payload")
    if not isinstance(payload, dict):
        return False
    if value["type"] == "session_meta":
        return isinstance(payload.get("id") or payload.get("session_id"), str)
    if value["type"] == "turn_context":
        return "model" in payload and "timestamp" in value
    if value["type"] == "compacted":
        return "message" in payload and "timestamp" in value
    return isinstance(payload.get("type"), str) and ("timestamp" in value or value["type"] == "response_item")


def _is_old_header(value: object) -> bool:
    return (
        isinstance(value, dict)
        and "type" not in value
        and isinstance(value.get("id"), str)
        and isinstance(value.get("timestamp"), str)
        and ("instructions" in value or "git" in value)
    )


def _is_bare(value: object) -> bool:
    """Return whether this is an item, or a state, of a file without envelopes."""
    if not isinstance(value, dict) or "payload" in value:
        return False
    return value.get("record_type") == "state" or text(value.get("type")) in _ITEMS


def _envelope(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type and the payload of a line; "" where it has none."""
    payload = value.get("payload")
    if isinstance(payload, dict):
        return text(value.get("type")) or "", payload
    if _is_old_header(value):
        return "session_meta", value
    if _is_bare(value):
        return ("state" if "record_type" in value else "response_item"), value
    return "", {}


def _own_id(payload: dict[str, Any]) -> str | None:
    return text(payload.get("id")) or text(payload.get("session_id"))


def _text_in(content: Any) -> str:
    return text_of(content_of(content))[0].strip()


def _content_kinds(item: dict[str, Any]) -> Any:
    return fields(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")


def _split(item: dict[str, Any]) -> tuple[Any, Any]:
    """Return the typed and the inserted content of an item with the role `user`.

    Newer versions give the origin of each part (`content_item_kinds`); otherwise the start of the text decides.
    """
    content = item.get("content")
    kinds = items(_content_kinds(item))
    if kinds and isinstance(content, list) and len(kinds) == len(content):
        is_typed = [isinstance(kind, str) and kind.startswith("user.") for kind in kinds]
        typed = [part for part, own in zip(content, is_typed, strict=True) if own]
        return typed, [part for part, own in zip(content, is_typed, strict=True) if not own]
    return ([], content) if _text_in(content).startswith(_SCAFFOLD) else (content, [])


def _event(payload: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the kind of an event, its fields, and its form: newer versions write items in place of some events."""
    kind, item = text(payload.get("type")) or "", fields(payload.get("item"))
    if kind != "item_completed":
        return kind, payload, "event"
    parts = [part for part in items(item.get("content")) if isinstance(part, dict)]
    message = "\n".join(part_text for part in parts if (part_text := text(part.get("text"))))
    if item.get("type") == "UserMessage":
        images = [url for part in parts if (url := text(part.get("image_url")))]
        return "user_message", {"message": message, "images": images}, "item"
    if item.get("type") == "AgentMessage":
        return "agent_message", {"message": message}, "item"
    if item.get("type") == "Reasoning":
        summary = [part_text for part in items(item.get("summary_text")) if (part_text := text(part))]
        return "agent_reasoning", {"text": "\n\n".join(summary)}, "item"
    return f"item_completed {text(item.get('type')) or ''}".strip(), payload, "item"


def _is_inserted(event: dict[str, Any]) -> bool:
    """Return whether Codex, not the user, wrote the message of an event, as in older versions."""
    return event.get("kind") not in (None, "plain") or (text(event.get("message")) or "").strip().startswith(_SCAFFOLD)


# --- First reading ----------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _End:
    """The outcome of a call, from an event; the output is in another line."""

    failed: bool | None
    duration: float | None
    metadata: dict[str, Any]


@dataclass(eq=False)
class _Survey:
    """The first reading of a session: facts that are needed before its lines can become entries."""

    first: int
    last: int = -1
    """The indexes of the first and the last line."""
    held: list[_Line] | None = field(default_factory=list)
    """The lines; None if there are more than _MAX_HELD_LINES."""
    meta: dict[str, Any] | None = None
    ancestors: list[str] = field(default_factory=list)
    contexts: list[dict[str, Any]] = field(default_factory=list)
    title: str | None = None
    has_items: bool = False
    has_token_counts: bool = False
    prompts: int = 0
    """The number of events that repeat a prompt."""
    typed: set[str] = field(default_factory=set)
    """Items with the role `user` that an event repeats."""
    repeated: set[str] = field(default_factory=set)
    """Lines that repeat an earlier line."""
    calls: dict[str, str] = field(default_factory=dict)
    """The names of the calls with their namespaces, by id."""
    outputs: set[str] = field(default_factory=set)
    ends: dict[str, _End] = field(default_factory=dict)
    last_prompt: str | None = None
    """An unanswered item with the role `user`: its event may still come."""
    is_aborted: bool = False
    total: dict[str, Any] | None = None
    """The tokens of the whole session by Codex's own count."""
    left_out: Counter[str] = field(default_factory=Counter)
    forms: set[tuple[str, str]] = field(default_factory=set)
    """The kinds and forms of the answer events."""
    _prompts: _Prompts = field(default_factory=lambda: _Prompts())
    _search_items: deque[tuple[str, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=_NEARBY))
    _search_ends: deque[tuple[str, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=_NEARBY))

    def ends_before(self, value: dict[str, Any]) -> bool:
        """Return whether a line begins another session."""
        kind, payload = _envelope(value)
        if kind != "session_meta" or self.meta is None:
            return False
        own = _own_id(payload)
        is_ancestor = own in self._parents(self.meta) or own in self.ancestors
        return not (own == _own_id(self.meta) or is_ancestor or not self.has_items)

    def _parents(self, payload: dict[str, Any]) -> set[str]:
        spawned = fields(fields(fields(payload.get("source")).get("subagent")).get("thread_spawn"))
        ids = (payload.get("forked_from_id"), payload.get("parent_thread_id"), spawned.get("parent_thread_id"))
        return {id_ for value in ids if (id_ := text(value))}

    def add_line(self, ordinal: int, line: _Line, skip: Skip) -> None:
        self.last = ordinal
        if self.held is not None:
            self.held.append(line)
            if len(self.held) > _MAX_HELD_LINES:
                self.held = None
        kind, payload = _envelope(line.value)
        if kind == "session_meta":
            if self.meta is None:
                self.meta = payload
                self.ancestors += sorted(self._parents(payload))
            elif (own := _own_id(payload)) and own != _own_id(self.meta):
                self.ancestors += sorted({own, *self._parents(payload)} - set(self.ancestors))
        elif kind == "turn_context":
            self.last_prompt = None
            context = {name: item for name, item in payload.items() if name != "turn_id"}
            if context not in self.contexts and len(self.contexts) < _MAX_CONTEXTS:
                self.contexts.append(context)
        elif kind == "response_item":
            self._add_item(line, payload)
        elif kind == "event_msg":
            self._add_event(line, payload)
        elif kind in ("compacted", "state", "token_usage_record", "inter_agent_communication"):
            pass
        elif text(line.value.get("type")):
            self.left_out[line.value["type"] if isinstance(line.value["type"], str) else "unknown"] += 1
        else:
            skip(line.where, "not a rollout line: no type or no payload")

    def _add_item(self, line: _Line, payload: dict[str, Any]) -> None:
        self.has_items = True
        kind, call_id = text(payload.get("type")) or "message", call_id_of(payload)
        self.last_prompt = None
        is_answer = payload.get("role") == "assistant" or kind == "reasoning" or is_call(kind)
        self._prompts.answers += is_answer
        if kind == "message" and payload.get("role") == "user":
            typed, _inserted = _split(payload)
            if typed and self._prompts.is_repeated_by_item(line.id, _text_in(typed)):
                self.repeated.add(line.id)
            elif typed:
                self.last_prompt = line.id
        elif is_result(kind):
            self.outputs |= {call_id} if call_id else set()
        elif is_call(kind):
            name = ".".join(filter(None, (text(payload.get("namespace")), text(payload.get("name")) or kind)))
            self.calls |= {id_: name for id_ in (call_id, text(payload.get("id"))) if id_}
            if kind == "web_search_call":
                self._add_search(line, payload, self._search_items, self._search_ends)
        elif kind == "reasoning":
            self.left_out["encrypted reasoning"] += bool(payload.get("encrypted_content"))
        elif kind not in ("message", "agent_message"):
            self.left_out[f"response_item {kind}"] += 1

    def _add_event(self, line: _Line, payload: dict[str, Any]) -> None:
        kind, event, form = _event(payload)
        if kind == "user_message":
            if _is_inserted(event):
                return
            self.prompts += 1
            item, is_repeated = self._prompts.match_event(line.id, (text(event.get("message")) or "").strip(), form)
            self.typed |= {item} if item is not None else set()
            self.repeated |= {line.id} if is_repeated else set()
        elif kind in _ANSWERS:
            self._prompts.answers += 1
            self.forms.add((kind, form))
        elif kind == "web_search_end":
            self._add_search(line, payload, self._search_ends, self._search_items)
        elif kind in _ENDS and (call_id := text(payload.get("call_id"))):
            self.ends[call_id] = _end(kind, payload)
        elif kind == "token_count":
            self.has_token_counts = self.has_token_counts or bool(fields(payload.get("info")).get("last_token_usage"))
            self.total = fields(fields(payload.get("info")).get("total_token_usage")) or self.total
        elif kind == "turn_aborted":
            self.is_aborted = True
        elif kind in (*_STARTED, *_COMPLETED):
            self.is_aborted = False
        elif kind == "thread_name_updated":
            self.title = text(payload.get("thread_name")) or self.title
        elif kind not in _READ_EVENTS:
            self.left_out[f"event_msg {kind}"] += 1

    def _add_search(
        self,
        line: _Line,
        payload: dict[str, Any],
        mine: deque[tuple[str, dict[str, Any]]],
        others: deque[tuple[str, dict[str, Any]]],
    ) -> None:
        """Note a web search, which is both an item and an event: the second of the two lines repeats the first."""
        for other in others:
            if _is_same_search(payload, other[1]):
                others.remove(other)
                self.repeated.add(line.id)
                return
        mine.append((line.id, payload))

    def transcript(self, document: Document, place: int) -> Transcript:
        meta = self.meta or {}
        contexts = {"turn_contexts": self.contexts, "total_token_usage": self.total, "ancestors": self.ancestors}
        return Transcript(
            entries=partial(_entries, document, self),
            place=place,
            external_id=_own_id(meta),
            title=self.title,
            status="aborted" if self.is_aborted else None,
            created_at=instant(meta.get("timestamp")),
            metadata={**rest(meta, _SESSION_FIELDS), **rest(contexts, ())},
        )


@dataclass(frozen=True)
class _Waiting:
    """A prompt that no other line has repeated yet."""

    id: str
    prompt: str
    form: str
    answers: int
    """The number of answer lines before it."""


class _Prompts:
    """Finds the lines that repeat a prompt: an item and an event of either form, in any order, near each other."""

    def __init__(self) -> None:
        self.answers = 0
        """The number of answer lines so far: a prompt is not compared with prompts before the last answer."""
        self._items: deque[_Waiting] = deque(maxlen=_NEARBY)
        self._events: deque[_Waiting] = deque(maxlen=_NEARBY)
        self._matched: deque[tuple[str, str]] = deque(maxlen=_NEARBY)

    def is_repeated_by_item(self, own: str, prompt: str) -> bool:
        """Return whether an earlier event has the prompt of an item; else the item waits for one."""
        item = _Waiting(own, prompt, "item", self.answers)
        event = _nearest(self._events, item)
        if event is None:
            self._items.append(item)
            return False
        self._events.remove(event)
        self._matched.append((event.prompt, event.form))
        return True

    def match_event(self, own: str, prompt: str, form: str) -> tuple[str | None, bool]:
        """Return the earlier item that an event repeats, and whether it repeats any line; else it waits for an item."""
        event = _Waiting(own, prompt, form, self.answers)
        item = _nearest(self._items, event)
        if item is not None:
            self._items.remove(item)
            self._matched.append((prompt, form))
            return item.id, True
        for matched in self._matched:
            if matched[0] == prompt and matched[1] != form:
                self._matched.remove(matched)
                return None, True
        if any(waiting.prompt == prompt and waiting.form != form for waiting in self._events):
            return None, True
        self._events.append(event)
        return None, False


def _nearest(candidates: Iterable[_Waiting], line: _Waiting) -> _Waiting | None:
    """Return the last candidate with the same prompt, else one that contains it or is contained, with no answer between."""
    waiting = list(candidates)
    same = [other for other in waiting if other.prompt == line.prompt]
    close = [other for other in waiting if other.answers == line.answers]
    within = [other for other in close if line.prompt in other.prompt or other.prompt in line.prompt]
    return next(reversed(same or within), None)


def _is_same_search(search: dict[str, Any], other: dict[str, Any]) -> bool:
    ids = [{id_ for key in ("call_id", "id") if (id_ := text(payload.get(key)))} for payload in (search, other)]
    if ids[0] and ids[1]:
        return bool(ids[0] & ids[1])
    return search.get("action") == other.get("action") or _query(search) == _query(other) is not None


def _query(payload: dict[str, Any]) -> str | None:
    return text(payload.get("query")) or text(fields(payload.get("action")).get("query"))


def _end(kind: str, payload: dict[str, Any]) -> _End:
    """Return the outcome in the event that ends a call."""
    failed: bool | None = None
    if isinstance(payload.get("success"), bool):
        failed = not payload["success"]
    elif isinstance(payload.get("exit_code"), int):
        failed = payload["exit_code"] != 0
    elif kind == "mcp_tool_call_end":
        result = fields(payload.get("result"))
        answer = fields(result.get("Ok", result))
        failed = "Err" in result or answer.get("isError") is True or answer.get("is_error") is True
    kept = ("exit_code", "status", "cwd", "process_id", "source")
    return _End(
        failed=failed,
        duration=_duration(payload.get("duration")),
        metadata={name: payload[name] for name in kept if payload.get(name) not in (None, "")},
    )


def _duration(value: object) -> float | None:
    """Return the milliseconds of a duration in seconds and nanoseconds."""
    seconds, nanoseconds = milliseconds(fields(value).get("secs")), milliseconds(fields(value).get("nanos"))
    return None if seconds is None else seconds + (nanoseconds or 0) / 1e9


# --- Second reading ---------------------------------------------------------------------------------------------------


def _entries(document: Document, survey: _Survey) -> Iterator[Entry]:
    """Yield the entries of one session.

    A usage that no reply follows is added to the last reply with a usage, so that the sum is right. If the file grows, that
    reply gets its own one again.
    """
    reader = _Reader(survey)
    held: list[Entry] = []
    """That reply, and the entries after it."""
    for entry in _read_entries(document, survey, reader):
        has_usage = isinstance(entry, Reply) and bool(entry.usage)
        if has_usage or len(held) > _MAX_HELD_LINES:
            yield from held
            held = []
        if held or has_usage:
            held.append(entry)
        else:
            yield entry
    if held and isinstance(last := held[0], Reply) and last.usage and reader.usage:
        held[0] = replace(last, usage=total_usage([last.usage, reader.usage]))
    yield from held


def _read_entries(document: Document, survey: _Survey, reader: _Reader) -> Iterator[Entry]:
    if survey.meta is not None:
        instructions = survey.meta.get("base_instructions") or survey.meta.get("instructions")
        prompt = text(fields(instructions).get("text")) if isinstance(instructions, dict) else text(instructions)
        if prompt:
            at = instant(survey.meta.get("timestamp"))
            yield Prompt(id="instructions", role="system", content=prompt, created_at=at)
    if survey.held is not None:
        lines: Iterator[_Line] = iter(survey.held)
    else:
        numbered = enumerate(_lines(document))
        lines = (line for ordinal, line in numbered if survey.first <= ordinal <= survey.last)
    for line in lines:
        if isinstance(line.value, dict):
            reader.read(line)
            yield from reader.released()
    reader.close(is_over=True)
    yield from reader.released()


@dataclass(kw_only=True)
class _Open:
    """A reply to which further items may belong."""

    id: str
    model: str | None
    created_at: datetime | None
    texts: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    """Results of calls that the provider ran."""
    metadata: dict[str, Any] = field(default_factory=dict)


class _Reader:
    """The second reading: turns the lines of one session into entries."""

    def __init__(self, survey: _Survey) -> None:
        self._survey = survey
        self._model: str | None = None
        self._open: _Open | None = None
        self._waiting: list[Entry] = []
        """A reply without usage, and the entries after it."""
        self._own_results = 0
        """The entries after it that are results of its calls which the provider ran."""
        self._released: list[Entry] = []
        self.usage: dict[str, Any] | None = None
        """The usage of the next reply; at the end of the file it is left over."""
        self._counts_first: bool | None = None
        """True if this version writes the usage of a reply before the reply."""
        self._total: Any = None
        self._begun: set[str] = set()
        self._ended: list[Result] = []
        """Results from events; they are used if the turn ends before the file gives the output of the call."""

    def released(self) -> Iterator[Entry]:
        """Yield the entries that no later line can change."""
        entries, self._released = self._released, []
        yield from entries

    def close(self, *, is_over: bool = False) -> None:
        """End the open reply; `is_over` means that no usage can follow."""
        if self._open is not None:
            self._release()
            reply, self._open = self._open, None
            self._waiting.append(
                Reply(
                    id=reply.id,
                    content=joined(reply.texts),
                    calls=reply.calls,
                    reasoning="\n\n".join(reply.reasoning) or None,
                    # After calls that the provider ran, the response goes on, and its usage follows.
                    model=None if reply.results and not self.usage else reply.model,
                    usage=self.usage,
                    created_at=reply.created_at,
                    metadata=reply.metadata,
                )
            )
            self._waiting += reply.results
            self._own_results = len(reply.results)
            self.usage = None
        if is_over:
            self._release()

    def _release(self) -> None:
        self._released += self._waiting
        self._waiting = []

    def read(self, line: _Line) -> None:
        kind, payload = _envelope(line.value)
        at = instant(line.value.get("timestamp")) if payload is not line.value else None
        if kind == "turn_context":
            self.close()
            self._model = text(payload.get("model")) or self._model
        elif kind == "response_item":
            self._read_item(line, payload, at)
        elif kind == "event_msg":
            self._read_event(line, payload, at)
        elif kind == "compacted":
            dropped = len(items(payload.get("replacement_history")))
            metadata = rest(payload, ("message", "replacement_history", "guardian_history", "retained_context"))
            counted = {"type": "compacted", **({"replacement_history": dropped} if dropped else {})}
            self._add_message(line.id, "system", content_of(payload.get("message")), at, {**counted, **metadata})
        elif kind == "inter_agent_communication":
            self._add_message(line.id, "system", content_of(payload.get("content")), at, {"type": kind, **rest(payload, ("content",))})  # fmt: skip
        elif kind == "token_usage_record" and not self._survey.has_token_counts:
            self._count(fields(payload.get("usage")))

    # --- Items ---

    def _read_item(self, line: _Line, item: dict[str, Any], at: datetime | None) -> None:
        kind = text(item.get("type")) or "message"
        if kind == "message" and item.get("role") == "assistant":
            self._read_text(line, item, at)
        elif kind == "message":
            self._read_message(line, item, at)
        elif kind == "agent_message":
            metadata = {"type": kind, **rest(item, ("type", "content"))}
            self._add_message(line.id, "system", content_of(item.get("content")), at, metadata)
        elif kind == "reasoning":
            parts = [*items(item.get("summary")), *items(item.get("content"))]
            reply = self._reply(line, at)
            reply.reasoning += [part_text for part in parts if (part_text := text(fields(part).get("text")))]
        elif is_result(kind):
            self._add_result(line, item, kind, at)
        elif (
            is_call(kind)
            and line.id not in self._survey.repeated
            and (kind != "tool_search_call" or is_client_search(item))
        ):
            self._call(line, kind, item, at)

    def _read_text(self, line: _Line, item: dict[str, Any], at: datetime | None) -> None:
        content = content_of(item.get("content"))
        reply = self._reply(line, at)
        reply.texts += content if isinstance(content, list) else [content] if content else []
        extra = rest(item, ("type", "role", "content"))
        if extra:
            reply.metadata.setdefault("messages", []).append(extra)

    def _read_message(self, line: _Line, item: dict[str, Any], at: datetime | None) -> None:
        role, metadata = text(item.get("role")), rest(item, ("type", "role", "content"))
        if role != "user":
            self._add_message(line.id, "system", content_of(item.get("content")), at, {"role": role, **metadata})
            return
        typed, inserted = _split(item)
        if typed and not self._is_typed(line, item):
            typed, inserted = [], item.get("content")
        if inserted:
            own = f"{line.id}.added" if typed else line.id
            self._add_message(own, "system", content_of(inserted), at, {"role": "user", **({} if typed else metadata)})
        if line.id in self._survey.repeated:
            self.close()
        elif typed or not inserted:
            self._add_message(line.id, "user", content_of(typed), at, metadata)

    def _is_typed(self, line: _Line, item: dict[str, Any]) -> bool:
        """Return whether an item that may be a prompt was typed: a file with prompt events has one for each prompt."""
        survey = self._survey
        if not survey.prompts or _content_kinds(item):
            return True
        return line.id in survey.typed or line.id in survey.repeated or line.id == survey.last_prompt

    def _call(self, line: _Line, kind: str, item: dict[str, Any], at: datetime | None) -> None:
        reply = self._reply(line, at, is_call=True)
        call = replace(call_of(kind, item), started_at=at)
        reply.calls.append(call)
        if kind in CARRIED_OUT and (result := own_result(f"{line.id}.result", kind, item, call.id)) is not None:
            reply.results.append(replace(result, created_at=at))

    def _add_result(self, line: _Line, item: dict[str, Any], kind: str, at: datetime | None) -> None:
        self.close()
        result = _with_failure_of_agent_tool(replace(result_of(line.id, kind, item), created_at=at), self._survey.calls)
        end = self._survey.ends.get(next(iter(result.call_ids), ""))
        self._waiting.append(_with_outcome(result, end))

    def _reply(self, line: _Line, at: datetime | None, *, is_call: bool = False) -> _Open:
        """Return the open reply, or a new one, also where the model continues after a call run by the provider."""
        if self._open is not None and self._open.results and not is_call:
            self.close()
        if self._open is None:
            self._open = _Open(id=line.id, model=self._model, created_at=at)
            begun = self._waiting[0] if self._own_results and len(self._waiting) == 1 + self._own_results else None
            if isinstance(begun, Reply) and begun.usage:
                self._open.model = None  # the rest of that response
        return self._open

    def _add_message(self, id_: str, role: str, content: Any, at: datetime | None, metadata: dict[str, Any]) -> None:
        is_typed = role == "user"
        if is_typed:
            self._end_turn()
        self.close()
        self._waiting.append(
            Prompt(
                id=id_,
                role="user" if is_typed else "system",
                content=content,
                created_at=at,
                is_aside=not is_typed,
                metadata=rest(metadata, ()),
            )
        )

    # --- Events ---

    def _read_event(self, line: _Line, event: dict[str, Any], at: datetime | None) -> None:
        kind, event, form = _event(event)
        survey = self._survey
        if line.id in survey.repeated:
            self.close()
        elif kind == "user_message" and _is_inserted(event):
            if not survey.has_items:
                self._add_message(line.id, "system", text(event.get("message")), at, {"role": "user"})
        elif kind == "user_message":
            images = [{"type": "input_image", "image_url": url} for url in items(event.get("images"))]
            prompt = text(event.get("message"))
            content = [{"type": "text", "text": prompt}, *images] if images and prompt else images or prompt
            self._add_message(line.id, "user", content, at, rest(event, ("type", "message", "images", "kind")))
        elif kind in _ANSWERS and (survey.has_items or (form == "item" and (kind, "event") in survey.forms)):
            # The answer is also in the items, or in events of the other form.
            return
        elif kind == "agent_message":
            self._reply(line, at).texts.append({"type": "text", "text": text(event.get("message")) or ""})
        elif kind in _ANSWERS:
            self._reply(line, at).reasoning += [thought] if (thought := text(event.get("text"))) else []
        elif kind == "token_count":
            info = fields(event.get("info"))
            if info.get("last_token_usage") and (info.get("total_token_usage") is None or info.get("total_token_usage") != self._total):  # fmt: skip
                self._total = info.get("total_token_usage")
                self._count(fields(info["last_token_usage"]))
        elif kind in (*_STARTED, *_COMPLETED):
            self._end_turn()
        elif kind in ("turn_aborted", "error"):
            reason = text(event.get("message")) or text(event.get("reason"))
            error = f"turn aborted: {reason or 'no reason'}" if kind == "turn_aborted" else reason or kind
            self._end_turn()
            metadata = {"type": kind, **rest(event, ("type", "message", "reason"))}
            health = [STOPPED] if kind == "turn_aborted" and reason == _BY_USER else ()
            self._waiting.append(
                Reply(id=line.id, content=None, error=error, created_at=at, health=health, metadata=metadata)
            )
        elif kind in _NOTICES:
            self._add_message(line.id, "system", f"[{kind}]", at, {"type": kind, **rest(event, ("type",))})
        elif kind in _BEGINS or kind in _ENDS:
            self._read_call_event(line, kind, event, at)

    def _read_call_event(self, line: _Line, kind: str, event: dict[str, Any], at: datetime | None) -> None:
        """Read the begin or end event of a call, unless the items have it."""
        survey, call_id = self._survey, text(event.get("call_id"))
        known = call_id in survey.calls
        if (known and call_id in survey.outputs) or (kind in _BEGINS and known) or event.get("source") == "user_shell":
            return
        if not known and call_id not in self._begun:
            self._reply(line, at, is_call=True).calls.append(_event_call(kind, event, call_id, at))
        if kind in _BEGINS:
            self._begun.add(call_id or "")
            return
        output, data, attachments = _event_output(kind, event)
        result = Result(
            id=f"{line.id}.result",
            output=output,
            failed=None,
            created_at=at,
            data=data,
            call_ids=[call_id] if call_id else [],
            attachments=attachments,
        )
        result = _with_outcome(result, _end(kind, event))
        if known:
            self._ended.append(result)
        else:
            self.close()
            self._waiting.append(result)

    def _end_turn(self) -> None:
        self.close()
        self._waiting += self._ended
        self._ended = []

    def _count(self, usage: dict[str, Any]) -> None:
        """Attach a usage to the reply before it.

        A usage without a reply (that of a compaction) is added to the next one, so that the sum is right.
        """
        self.close()
        if not any(usage.values()):
            return
        replies = [at for at, entry in enumerate(self._waiting) if isinstance(entry, Reply) and entry.error is None]
        if self._counts_first is None:
            self._counts_first = not replies
        entry = self._waiting[replies[-1]] if replies else None
        if isinstance(entry, Reply) and not self._counts_first:
            usages = [entry.usage, usage] if entry.usage else [usage]
            self._waiting[replies[-1]] = replace(entry, usage=total_usage(usages), model=entry.model or self._model)
            self._release()
        else:
            self.usage = usage if self.usage is None else total_usage([self.usage, usage])


def total_usage(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the usage of several replies: numbers are added up, of other values the last is taken."""
    total: dict[str, Any] = {}
    for usage in usages:
        _add_usage(usage, total)
    counts = [tokens(usage) for usage in usages]
    counted = sum(count[0] for count in counts), sum(count[1] for count in counts)
    if tokens(total) != counted:
        # The replies come from several providers, which name their tokens differently.
        total |= dict(zip(("input_tokens", "output_tokens"), counted, strict=True))
    return total


def _add_usage(usage: Mapping[str, Any], total: dict[str, Any]) -> None:
    for name, value in usage.items():
        known = total.get(name)
        if isinstance(value, dict):
            total[name] = known if isinstance(known, dict) else {}
            _add_usage(value, total[name])
        elif _is_number(value) and _is_number(known):
            total[name] = known + value
        elif value is not None:
            total[name] = value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_outcome(result: Result, end: _End | None) -> Result:
    """Add exit code, duration and failure to a result: from its end event, else from the output itself."""
    output, outcome = _unwrapped(result.output)
    code, seconds = outcome.get("exit_code"), outcome.get("duration_seconds")
    failed = end.failed if end is not None and end.failed is not None else None
    if failed is None and isinstance(code, int):
        failed = code != 0
    if failed is None and isinstance(outcome.get("success"), bool):
        failed = not outcome["success"]
    if failed is None and isinstance(output, str) and (_ABORTED.fullmatch(output) or output.startswith(_FAILURES)):
        failed = True
    return replace(
        result,
        output=output,
        failed=True if result.failed or failed else failed,
        duration=end.duration if end is not None and end.duration is not None else milliseconds(seconds),
        metadata={**result.metadata, **outcome, **(end.metadata if end is not None else {})},
    )


def _with_failure_of_agent_tool(result: Result, names: dict[str, str]) -> Result:
    """Mark the result of a tool for other agents as failed if it is a sentence."""
    is_agent_tool = any(_AGENT_TOOL.fullmatch(names.get(call_id, "")) for call_id in result.call_ids)
    output = result.output.strip() if is_agent_tool and isinstance(result.output, str) else ""
    return result if output.startswith("{") or _ID.fullmatch(output) else replace(result, failed=True)


def _unwrapped(output: Any) -> tuple[Any, dict[str, Any]]:
    """Return an output without the JSON wrapper of older versions, and the facts in it about the command."""
    if isinstance(output, dict) and "content" in output and output.keys() <= {"content", "content_items", "success"}:
        return output["content"], rest({"success": output.get("success")}, ())
    if not isinstance(output, str):
        return output, {}
    if output.startswith("{") and '"metadata"' in output:
        try:
            wrapper = decode_json(output)
        except (msgspec.DecodeError, RecursionError):
            return output, {}
        if (
            isinstance(wrapper, dict)
            and wrapper.keys() == {"output", "metadata"}
            and isinstance(wrapper["metadata"], dict)
        ):
            return wrapper["output"], wrapper["metadata"]
        return output, {}
    head = output[:1_000].partition("Output:\n")[0]
    code, wall = _EXIT_CODE.search(head), _WALL_TIME.search(head)
    return output, {
        **({"exit_code": int(code[1])} if code else {}),
        **({"duration_seconds": float(wall[1])} if wall and wall[1].count(".") < 2 and wall[1] != "." else {}),
    }


def _event_call(kind: str, event: dict[str, Any], call_id: str | None, at: datetime | None) -> Call:
    invocation = fields(event.get("invocation"))
    if kind.startswith("mcp_tool_call"):
        name = f"mcp__{text(invocation.get('server')) or ''}__{text(invocation.get('tool')) or ''}"
        args = invocation.get("arguments")
    elif kind == "web_search_end":
        name, args = "web_search", fields(event.get("action")) or rest(event, ("type", "call_id", "results", "status"))
    elif kind == "patch_apply_end":
        name, args = "apply_patch", rest({"changes": event.get("changes")}, ())
    elif kind == "image_generation_end":
        name, args = "image_generation", rest({"prompt": event.get("revised_prompt")}, ())
    else:
        name, args = "exec_command", rest({"command": event.get("command"), "cwd": event.get("cwd")}, ())
    return Call(id=call_id, name=name, args=args, started_at=at, duration=_duration(event.get("duration")))


def _event_output(kind: str, event: dict[str, Any]) -> tuple[Any, Any, list[Any] | None]:
    """Return output, data and attachments of the event that ends a call."""
    if kind == "mcp_tool_call_end":
        result = fields(event.get("result"))
        answer = result.get("Ok", result.get("Err", event.get("result")))
        return fields(answer).get("content", answer), fields(answer).get("structuredContent"), None
    if kind == "web_search_end":
        return event.get("results"), None, None
    if kind == "image_generation_end":
        encoded = text(event.get("result"))
        image = [{"type": "input_image", "image_url": f"data:image/png;base64,{encoded}"}] if encoded else None
        return text(event.get("saved_path")), None, image
    output = event.get("aggregated_output") or event.get("formatted_output")
    streams = [stream for key in ("stdout", "stderr") if (stream := text(event.get(key)))]
    return output or "\n".join(streams), event.get("changes") if kind == "patch_apply_end" else None, None
