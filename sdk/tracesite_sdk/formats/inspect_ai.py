"""Read evaluation logs of Inspect AI: one session for each sample and epoch.

A log is a JSON object (`.json`) or an archive (`.eval`) with the same content in parts: `header.json` (only
`_journal/start.json` while the evaluation runs or after a crash) and a member `samples/<id>_epoch_<n>.json` for each
sample, which may also come alone. Fields of a sample (EvalSample in inspect_ai/log/_log.py):

* `messages`: system and user messages, `assistant` replies, `tool` results. A result with an `error` (or the older
  `tool_error`) has failed. Reasoning parts are the reasoning of their reply; a `tool_use` part, a tool run by the
  provider, is a call with its result. A sample that failed before its first message has its `input` instead.
* `attachment://` references in messages are resolved: images, and texts that messages and events share.
* `events` have the times, the token usage and the durations of replies and calls, and what the model was asked (`input`, or
  `input_refs` into `events_data.messages`, with `tools` and `config`). Events of replies are kept without these and without
  the fields that repeat the messages; all other events stay in the metadata, with the attachments they refer to.
* The fields of the log (`eval`, `plan`, `results` ...) are metadata of each session, without the list of all samples.

The external id of a session is the `uuid` of its sample, which is the same in the log of a retry; in older logs it is
made of run, task, sample and epoch. The id of a message is its own, or the index if it has none or a repeated one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import (
    as_json,
    between,
    content,
    fields,
    instant,
    items,
    milliseconds,
    rest,
    text,
)
from tracesite_sdk.normalize.records import MOST_PUT_IN_MESSAGE
from tracesite_sdk.transcripts.documents import Document, Files, Skip, Unreadable
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.requests import model_input
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "inspect_ai"

_HEADERS = ("header.json", "_journal/start.json")
_SAMPLES = "samples/"
_REFERENCE = "attachment://"
_OF_A_MESSAGE = 64
"""Bytes that each message counts besides its content, because a list of many empty ones takes memory, too."""

# Fields with a column of their own; all others are kept in metadata.
_MESSAGE_FIELDS = ("id", "role", "content")
_REPLY_FIELDS = (*_MESSAGE_FIELDS, "tool_calls", "model", "reasoning")
_RESULT_FIELDS = (*_MESSAGE_FIELDS, "tool_call_id", "function")
_CALL_FIELDS = ("id", "function", "arguments", "type")
_USE_FIELDS = ("type", "id", "name", "arguments", "result")
_SAMPLE_FIELDS = ("messages", "events", "events_data", "attachments", "uuid", "output", "input")
# Fields of a model event that a step has, or the messages.
_REPEATED_FIELDS = ("input", "input_refs", "call", "call_refs", "output", "tools", "tool_choice", "config")
_ROLES = ("system", "user", "assistant", "tool")


def recognises(document: Document) -> bool:
    if isinstance(document, Files):
        document = _header(document)
    return _is_sample(document) or (
        isinstance(document, dict)
        and isinstance(spec := document.get("eval"), dict)
        and "task" in spec
        and ("run_id" in spec or "model" in spec)
        and any(key in document for key in ("version", "samples", "plan"))
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the samples of a log that `recognises` accepts; report omissions to `skip`."""
    log: Any = document
    if isinstance(document, Files):
        document.taken.update(document.names)
        log = _header(document)
    if _is_sample(log):
        log, document = {}, {"samples": [log]}
    shared = _shared(log)
    size = len(as_json(shared))
    place = -1
    for place, (where, value) in enumerate(_samples(document, skip)):
        if isinstance(value, dict):
            transcript = _transcript(value, where, place, log, shared, skip)
            yield replace(transcript, put_in=transcript.put_in + size)
        else:
            skip(where, "not an object")
    if place == -1:
        skip("samples", "the log has no samples")


# --- Logs -----------------------------------------------------------------------------------------------------------


def _is_sample(document: object) -> bool:
    """Return whether this is a sample without its log."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("epoch"), int)
        and {"id", "input", "target"} <= document.keys()
        and isinstance(document.get("messages"), list)
    )


def _header(files: Files) -> Any:
    """Return the log without its samples; header.json comes first, because it exists only at the end of an evaluation."""
    for name in _HEADERS:
        if name in files.names:
            try:
                return files.read(name)
            except Unreadable:
                continue
    return None


def _samples(document: Any, skip: Skip) -> Iterator[tuple[str, Any]]:
    if not isinstance(document, Files):
        yield from ((f"samples[{index}]", sample) for index, sample in enumerate(items(document.get("samples"))))
        return
    for name in document.names:
        if name.startswith(_SAMPLES) and name.endswith(".json"):
            try:
                yield name, document.read(name)
            except Unreadable as error:
                skip(name, str(error))


def _shared(log: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the log, without lists of samples: each session has a copy, so they would grow as a square."""
    shared = rest(log, ("samples", "reductions", "eval", "location"))
    spec = dict(fields(log.get("eval")))
    if isinstance(spec.get("dataset"), dict):
        spec["dataset"] = rest(spec["dataset"], ("sample_ids",))
    return {"eval": spec, **shared}


# --- Samples --------------------------------------------------------------------------------------------------------


def _transcript(
    sample: dict[str, Any], where: str, place: int, log: dict[str, Any], shared: dict[str, Any], skip: Skip
) -> Transcript:
    attachments = fields(sample.get("attachments"))
    shared_values = _SharedValues(attachments, items(fields(sample.get("events_data")).get("messages")))
    events = _Events(items(sample.get("events")), sample.get("output"), shared=shared_values)
    spec = fields(log.get("eval"))
    started = instant(sample.get("started_at")) or events.first or instant(spec.get("created"))
    sample_input = sample.get("input")
    messages, used = shared_values.resolved(items(sample.get("messages")) or _input_messages(sample_input))
    entries = list(_entries(messages, where, events, started, skip))
    used |= events.used
    kept = events.kept()
    metadata = {**shared, **rest(sample, _SAMPLE_FIELDS)}
    sample_input, _used = shared_values.resolved(sample_input)
    contents = [fields(message).get("content") for message in messages]
    inputs = (
        [fields(item).get("content") for item in sample_input] if isinstance(sample_input, list) else [sample_input]
    )
    if not all(item in contents for item in inputs):
        metadata["input"] = sample_input
    output = fields(sample.get("output"))
    metadata["output"] = rest(output, ("choices", "completion", "usage") if events.has_output else ())
    metadata["events"] = kept
    metadata["events_data"] = sample.get("events_data") if events.need_pool else None
    metadata["attachments"] = _still_needed(attachments, used - shared_values.left_out, kept)
    if shared_values.has_left_out:
        skip(where, "some references, or requests with references, are left as they are: they stand for too much")
    metadata["reductions"] = [
        {**reduction, "samples": own}
        for reduction in items(log.get("reductions"))
        if isinstance(reduction, dict)
        and (
            own := [
                item for item in items(reduction.get("samples")) if fields(item).get("sample_id") == sample.get("id")
            ]
        )
    ]
    error, limit = sample.get("error"), fields(sample.get("limit"))
    return Transcript(
        entries=partial(iter, entries),
        place=place,
        external_id=_own_id(sample, spec),
        status="error" if error else "aborted" if limit.get("type") == "operator" else None,
        created_at=started,
        metadata=rest(metadata, ()),
        put_in=shared_values.put_in,
    )


def _own_id(sample: dict[str, Any], spec: dict[str, Any]) -> str | None:
    if own := text(sample.get("uuid")):
        return own
    run = [text(spec.get("eval_id")) or text(spec.get("run_id")), text(spec.get("task_id"))]
    sample_id, epoch = text(sample.get("id")), text(sample.get("epoch")) or "1"
    return "/".join(part or "" for part in (*run, sample_id, epoch)) if any(run) and sample_id else None


def _input_messages(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [{"role": "user", "content": value}] if value else []


@dataclass(eq=False)
class _SharedValues:
    """The values that replace the references in messages and events of a sample, up to MOST_PUT_IN_MESSAGE."""

    attachments: dict[str, Any]
    pool: list[Any]
    """The messages to which `input_refs` of events refer, by ranges."""
    put_in: int = 0
    """Bytes that were put in so far."""
    left_out: set[str] = field(default_factory=set)
    """The keys of attachments that were not put in everywhere."""
    has_left_out: bool = False

    def resolved(self, value: Any) -> tuple[Any, set[str]]:
        """Replace references to attachments in a value, and return the keys of the attachments that were used."""
        used: set[str] = set()

        def replaced(value: Any) -> Any:
            if isinstance(value, str):
                key = value.removeprefix(_REFERENCE)
                attachment = self.attachments.get(key)
                if key == value or not isinstance(attachment, str):
                    return value
                if not self._takes(len(attachment)):
                    self.left_out.add(key)
                    return value
                used.add(key)
                return attachment
            if isinstance(value, list):
                return [replaced(item) for item in value]
            if isinstance(value, dict):
                return {name: replaced(item) for name, item in value.items()}
            return value

        try:
            return replaced(value), used
        except RecursionError:
            return value, set()

    def messages_of(self, input_refs: Any) -> list[Any]:
        """Return the messages of the pool in these ranges; none if they are too many."""
        ranges = [items(item) for item in items(input_refs)]
        numbers = [item for item in ranges if len(item) == 2 and all(type(number) is int for number in item)]
        messages: list[Any] = []
        for first, end in numbers:
            begin, end = max(first, 0), min(max(end, 0), len(self.pool))
            if end > begin and not self._takes(self._size_until[end] - self._size_until[begin]):
                return []
            messages += self.pool[begin:end]
        return messages

    @cached_property
    def _size_until(self) -> list[int]:
        """The size of the first messages of the pool, by their number."""
        return [0, *accumulate(_OF_A_MESSAGE + len(as_json(message)) for message in self.pool)]

    def _takes(self, size: int) -> bool:
        if self.put_in + size > MOST_PUT_IN_MESSAGE:
            self.has_left_out = True
            return False
        self.put_in += size
        return True


def _still_needed(attachments: dict[str, Any], used: set[str], kept: list[Any]) -> dict[str, Any]:
    """Return the attachments that the kept events refer to, and those without any reference."""
    events_json = as_json(kept) if kept and used else ""
    return {key: value for key, value in attachments.items() if key not in used or _REFERENCE + key in events_json}


# --- Events -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Event:
    event: dict[str, Any]
    is_used: bool = False
    """True once a reply has its output."""

    @property
    def started(self) -> datetime | None:
        return instant(self.event.get("timestamp"))

    @property
    def completed(self) -> datetime | None:
        return instant(self.event.get("completed"))

    @property
    def duration(self) -> float | None:
        elapsed = between(self.started, self.completed)
        return milliseconds(self.event.get("working_time")) if elapsed is None else elapsed


@dataclass(eq=False)
class _Events:
    """The events of a sample, indexed by their reply or call."""

    all: list[Any]
    output: Any
    shared: _SharedValues
    first: datetime | None = None
    """The time of the first event."""
    has_output: bool = False
    """True if a message is the output of the sample."""
    used: set[str] = field(default_factory=set)
    """The keys of the attachments in what the model was asked."""
    _events: list[_Event | Any] = field(default_factory=list)
    _replies: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))
    _calls: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))
    _results: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))

    def __post_init__(self) -> None:
        for event in self.all:
            if not isinstance(event, dict):
                self._events.append(event)
                continue
            item = _Event(event)
            self._events.append(item)
            self.first = self.first or item.started
            if event.get("event") == "model" and (message := _output_message(event.get("output"))):
                self._replies[_key(message)].append(item)
            elif event.get("event") == "tool" and isinstance(event.get("id"), str):
                self._calls[event["id"]].append(item)
                self._results[event["id"]].append(item)

    def of_reply(self, message: dict[str, Any]) -> tuple[_Event | None, dict[str, Any]]:
        """Return the event of an assistant message, and the model output that contains the message."""
        last = _output_message(self.output)
        is_output = bool(last) and _key(last) == _key(message)
        waiting = self._replies.get(_key(message))
        # Without an event, only the last reply has its usage.
        self.has_output = self.has_output or is_output
        if waiting:
            event = waiting.popleft()
            event.is_used = True
            return event, fields(event.event.get("output"))
        return None, fields(self.output) if is_output else {}

    def asked_in(self, event: dict[str, Any]) -> records.ModelInput | None:
        """Return what the model was asked in a model event."""
        messages, used = self.shared.resolved(
            items(event.get("input")) or self.shared.messages_of(event.get("input_refs"))
        )
        self.used |= used
        parameters = {name: value for name, value in fields(event.get("config")).items() if value is not None}
        if event.get("tool_choice") is not None:
            parameters["tool_choice"] = event["tool_choice"]
        return model_input(messages, tools=event.get("tools"), parameters=parameters)

    def of_call(self, call_id: str | None) -> _Event | None:
        """Return the event of a call; ids may repeat, so each event is returned once."""
        return self._next(self._calls, call_id)

    def of_result(self, call_id: str | None) -> _Event | None:
        return self._next(self._results, call_id)

    def _next(self, by_id: dict[str, deque[_Event]], call_id: str | None) -> _Event | None:
        waiting = by_id.get(call_id or "")
        return waiting.popleft() if waiting else None

    def kept(self) -> list[Any]:
        """Return the events; those of replies without their request and their response, which steps have."""
        kept: list[Any] = []
        for item in self._events:
            if not isinstance(item, _Event) or not item.is_used:
                kept.append(item.event if isinstance(item, _Event) else item)
                continue
            output = rest(fields(item.event.get("output")), ("choices", "completion", "usage", "model"))
            others = rest(item.event, _REPEATED_FIELDS)
            kept.append({**others, "output": output} if output else others)
        return kept

    @property
    def need_pool(self) -> bool:
        """Return whether a kept event refers to the message pool that events of later versions of Inspect share."""
        return any(
            isinstance(item, _Event) and not item.is_used and ("input_refs" in item.event or "call_refs" in item.event)
            for item in self._events
        )


def _output_message(output: object) -> dict[str, Any]:
    """Return the message in the output of a model."""
    choices = items(fields(output).get("choices"))
    return fields(fields(choices[0]).get("message")) if choices else {}


def _key(message: dict[str, Any]) -> str:
    """Return the identity of a reply: its id, or its content in older logs."""
    own = message.get("id")
    if isinstance(own, str) and own:
        return own
    calls = [fields(call).get("id") for call in items(message.get("tool_calls"))]
    return as_json(["said", message.get("content"), calls])


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(messages: list[Any], where: str, events: _Events, started: datetime | None, skip: Skip) -> Iterator[Entry]:
    ids: set[str] = set()
    # Messages before the first reply have the time of the sample; the log has no times of later ones.
    first = started
    for index, message in enumerate(messages):
        path = f"{where}.messages[{index}]"
        if not isinstance(message, dict):
            skip(path, "not an object")
            continue
        id_ = text(message.get("id"))
        id_ = id_ if id_ is not None and id_ not in ids else str(index)
        ids.add(id_)
        role = message.get("role")
        if role in ("system", "user"):
            yield Prompt(
                id=id_,
                role="user" if role == "user" else "system",
                content=content(message.get("content")),
                created_at=first,
                metadata=rest(message, _MESSAGE_FIELDS),
            )
        elif role == "assistant":
            first = None
            yield from _reply(id_, message, events, path, skip)
        elif role == "tool":
            first = None
            yield _result(id_, message, events)
        else:
            skip(path, f"the role is {text(role) or 'missing'!r:.60}; a role is one of {', '.join(_ROLES)}")


def _reply(id_: str, message: dict[str, Any], events: _Events, where: str, skip: Skip) -> Iterator[Entry]:
    event, output = events.of_reply(message)
    parts, reasoning, uses, details = _parts(message.get("content"))
    metadata = rest(message, _REPLY_FIELDS)
    if details:
        metadata["reasoning"] = details
    if isinstance(message.get("reasoning"), str):
        reasoning.append(message["reasoning"])
    if stopped := fields((items(output.get("choices")) or [None])[0]).get("stop_reason"):
        metadata["stop_reason"] = stopped
    calls = [
        Call(
            id=text(use.get("id")),
            name=text(use.get("name")) or "",
            args=use.get("arguments"),
            metadata={"type": "tool_use", **rest(use, _USE_FIELDS)},
        )
        for use in uses
    ]
    for index, call in enumerate(items(message.get("tool_calls"))):
        if isinstance(call, dict):
            calls.append(_call(call, events))
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    yield Reply(
        id=id_,
        content=parts,
        calls=calls,
        reasoning="\n\n".join(reasoning) or None,
        model=text(message.get("model")) or text(output.get("model")),
        usage=fields(output.get("usage")) or None,
        created_at=event.started if event is not None else None,
        duration=event.duration if event is not None else None,
        error=text(output.get("error")),
        input=events.asked_in(event.event) if event is not None else None,
        is_request=event is not None,
        metadata=metadata,
    )
    for number, use in enumerate(uses):
        failed = bool(use.get("error"))
        yield Result(
            id=f"{id_}/{number}",
            output=use.get("result") or (use.get("error") if failed else ""),
            failed=failed,
            call_ids=[own] if (own := text(use.get("id"))) else [],
            name=text(use.get("name")),
            created_at=event.completed if event is not None else None,
            metadata={"error": use["error"]} if failed else {},
        )


def _parts(value: object) -> tuple[str | list[Any] | None, list[str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the visible content of a reply, its reasoning, the tools run by the provider, and details of the reasoning."""
    if not isinstance(value, list):
        return content(value), [], [], []
    parts, reasoning, uses, details = [], [], [], []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "reasoning":
            # Redacted reasoning is for the provider only, but its summary can be read.
            thought = part.get("summary") if part.get("redacted") else part.get("reasoning") or part.get("summary")
            if isinstance(thought, str) and thought:
                reasoning.append(thought)
            if other := rest(part, ("type",) if part.get("redacted") else ("type", "reasoning", "redacted")):
                details.append(other)
        elif kind == "tool_use":
            uses.append(part)
        else:
            parts.append(part)
    return parts, reasoning, uses, details


def _call(call: dict[str, Any], events: _Events) -> Call:
    metadata = rest(call, _CALL_FIELDS)
    if call.get("type") not in (None, "function"):
        metadata["type"] = call["type"]
    call_id = text(call.get("id"))
    event = events.of_call(call_id)
    if event is not None:
        metadata |= rest({name: event.event.get(name) for name in ("agent", "truncated")}, ())
    return Call(
        id=call_id,
        name=text(call.get("function")) or "",
        args=call.get("arguments"),
        started_at=event.started if event is not None else None,
        duration=event.duration if event is not None else None,
        metadata=metadata,
    )


def _result(id_: str, message: dict[str, Any], events: _Events) -> Result:
    output, attachments = text_and_attachments(content(message.get("content")))
    call_id = text(message.get("tool_call_id"))
    event = events.of_result(call_id)
    error = message.get("error") or message.get("tool_error")
    reason = fields(error).get("message") if isinstance(error, dict) else error
    return Result(
        id=id_,
        output=output or (text(reason) if error else None) or "",
        failed=bool(error),
        call_ids=[call_id] if call_id else [],
        name=text(message.get("function")),
        created_at=event.completed if event is not None else None,
        attachments=attachments,
        metadata=rest(message, _RESULT_FIELDS),
    )
