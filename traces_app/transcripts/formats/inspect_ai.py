"""Evaluation logs of Inspect AI: one session for each sample and epoch.

A log is a JSON object (`.json`) or an archive (`.eval`), which holds the same in parts: `header.json` (or
`_journal/start.json` alone, while the evaluation runs or after it crashed) and a member `samples/<id>_epoch_<n>.json` for
each sample, which may also come by itself. Of a sample (EvalSample in inspect_ai/log/_log.py) is taken:

* `messages`: system and user as they are, `assistant` a reply, `tool` a result. A result has failed when it has an `error`
  (or the older `tool_error`). Reasoning parts are the reasoning of their reply, and a tool that the provider ran itself
  (a part `tool_use`) is a call with its result. A sample that failed before its first message has its `input`.
* `attachment://` references in them are resolved: images, and texts that Inspect keeps once for messages and events.
* `events` know the times, the token usage and the durations of replies and calls. Of those of replies, what
  repeats the messages is left out; everything else of them stays in the metadata, with the attachments they refer to.
* The log's own fields (`eval`, `plan`, `results` ...) are metadata of each session, without the list of all its samples.

A session is called by the `uuid` of its sample, which also finds it again in the log of a retry; before that existed, by
its run, task, sample and epoch. A message has its own id, and the index where it has none or one that repeats.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from traces_app.normalize.json_values import as_json, between, content, fields, instant, items, milliseconds, rest, text
from traces_app.normalize.records import text_of
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript, is_text
from traces_app.transcripts.files.documents import Document, Files, Skip, Unreadable

NAME = "inspect_ai"

_HEADERS = ("header.json", "_journal/start.json")
_SAMPLES = "samples/"
_REFERENCE = "attachment://"

# What becomes a field of a record; everything else is kept in metadata.
_SAID_FIELDS = ("id", "role", "content")
_REPLY_FIELDS = (*_SAID_FIELDS, "tool_calls", "model", "reasoning")
_RESULT_FIELDS = (*_SAID_FIELDS, "tool_call_id", "function")
_CALL_FIELDS = ("id", "function", "arguments", "type")
_USE_FIELDS = ("type", "id", "name", "arguments", "result")
_SAMPLE_FIELDS = ("messages", "events", "events_data", "attachments", "uuid", "output", "input")
# What an event of a reply repeats of the messages before it, and of the reply itself.
_REPEATED_FIELDS = ("input", "input_refs", "call", "call_refs", "output")
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
    """The samples of a log that `recognises` accepts; what they leave out is told to `skip`."""
    log: Any = _header(document) if isinstance(document, Files) else document
    if _is_sample(log):
        log, document = {}, {"samples": [log]}
    shared = _shared(log)
    place = -1
    for place, (where, value) in enumerate(_samples(document, skip)):
        if isinstance(value, dict):
            yield _transcript(value, where, place, log, shared, skip)
        else:
            skip(where, "not an object")
    if place == -1:
        skip("samples", "the log holds no samples")


# --- Logs -----------------------------------------------------------------------------------------------------------


def _is_sample(document: object) -> bool:
    """Whether this is a sample that somebody took out of its archive."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("epoch"), int)
        and {"id", "input", "target"} <= document.keys()
        and isinstance(document.get("messages"), list)
    )


def _header(files: Files) -> Any:
    """The log without its samples; the later of two that are there is the one of an evaluation that came to its end."""
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
    """What all sessions of a log say of it. Lists with an item for each sample would make it a square."""
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
    events = _Events(items(sample.get("events")), sample.get("output"))
    spec = fields(log.get("eval"))
    started = instant(sample.get("started_at")) or events.first or instant(spec.get("created"))
    messages, used = _resolved(_messages(sample), attachments)
    entries = list(_entries(messages, where, events, started, skip))
    kept = events.kept()
    metadata = {**shared, **rest(sample, _SAMPLE_FIELDS)}
    given, _used = _resolved(sample.get("input"), attachments)
    said = [fields(message).get("content") for message in messages]
    if not all((fields(one).get("content") if isinstance(given, list) else one) in said for one in _each(given)):
        metadata["input"] = given
    output = fields(sample.get("output"))
    metadata["output"] = rest(output, ("choices", "completion", "usage") if events.has_output else ())
    metadata["events"] = kept
    metadata["events_data"] = None if events.are_all_told else sample.get("events_data")
    metadata["attachments"] = _still_needed(attachments, used, kept)
    metadata["reductions"] = _reductions(log, sample.get("id"))
    error, limit = sample.get("error"), fields(sample.get("limit"))
    return Transcript(
        entries=partial(iter, entries),
        place=place,
        external_id=_own_id(sample, spec),
        status="error" if error else "aborted" if limit.get("type") == "operator" else None,
        created_at=started,
        metadata=rest(metadata, ()),
    )


def _own_id(sample: dict[str, Any], spec: dict[str, Any]) -> str | None:
    if own := text(sample.get("uuid")):
        return own
    run = [text(spec.get("eval_id")) or text(spec.get("run_id")), text(spec.get("task_id"))]
    which = [text(sample.get("id")), text(sample.get("epoch")) or "1"]
    return "/".join(part or "" for part in (*run, *which)) if any(run) and which[0] else None


def _messages(sample: dict[str, Any]) -> list[Any]:
    messages = items(sample.get("messages"))
    given = sample.get("input")
    return messages or (given if isinstance(given, list) else [{"role": "user", "content": given}] if given else [])


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _reductions(log: dict[str, Any], sample_id: object) -> list[Any]:
    """How the scores of this sample were reduced over its epochs."""
    return [
        {**reduction, "samples": own}
        for reduction in items(log.get("reductions"))
        if isinstance(reduction, dict)
        and (own := [one for one in items(reduction.get("samples")) if fields(one).get("sample_id") == sample_id])
    ]


def _resolved(value: Any, attachments: dict[str, Any]) -> tuple[Any, set[str]]:
    """A value with its references to attachments replaced by them, and the attachments that were used."""
    used: set[str] = set()

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            key = value.removeprefix(_REFERENCE)
            if key == value or not isinstance(attachments.get(key), str):
                return value
            used.add(key)
            return attachments[key]
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if isinstance(value, dict):
            return {name: replaced(item) for name, item in value.items()}
        return value

    try:
        return replaced(value), used
    except RecursionError:
        return value, set()


def _still_needed(attachments: dict[str, Any], used: set[str], kept: list[Any]) -> dict[str, Any]:
    """The attachments that the kept events refer to, and those that nothing refers to."""
    told = as_json(kept) if kept and used else ""
    return {key: value for key, value in attachments.items() if key not in used or _REFERENCE + key in told}


# --- Events -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Event:
    event: dict[str, Any]
    carried: bool = False
    """Whether a message has taken over what it says."""

    @property
    def started(self) -> datetime | None:
        return instant(self.event.get("timestamp"))

    @property
    def completed(self) -> datetime | None:
        return instant(self.event.get("completed"))

    @property
    def duration(self) -> float | None:
        took = between(self.started, self.completed)
        return milliseconds(self.event.get("working_time")) if took is None else took


@dataclass(eq=False)
class _Events:
    """The events of a sample, found by the reply or call that they are about."""

    all: list[Any]
    output: Any
    first: datetime | None = None
    """When the first of them happened."""
    has_output: bool = False
    """Whether a message is the sample's output."""
    _found: list[_Event | Any] = field(default_factory=list)
    _replies: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))
    _calls: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))
    _results: defaultdict[str, deque[_Event]] = field(default_factory=lambda: defaultdict(deque))

    def __post_init__(self) -> None:
        for event in self.all:
            if not isinstance(event, dict):
                self._found.append(event)
                continue
            one = _Event(event)
            self._found.append(one)
            self.first = self.first or one.started
            if event.get("event") == "model" and (message := _answer(event.get("output"))):
                self._replies[_key(message)].append(one)
            elif event.get("event") == "tool" and isinstance(event.get("id"), str):
                self._calls[event["id"]].append(one)
                self._results[event["id"]].append(one)

    def of_reply(self, message: dict[str, Any]) -> tuple[_Event | None, dict[str, Any]]:
        """The event of an assistant message, and the output of the model that it is."""
        waiting = self._replies.get(_key(message))
        if waiting:
            one = waiting.popleft()
            one.carried = True
            found = fields(one.event.get("output"))
            self.has_output = self.has_output or _same(_answer(self.output), message)
            return one, found
        if _same(_answer(self.output), message):
            # No events were logged: the last reply has its usage still.
            self.has_output = True
            return None, fields(self.output)
        return None, {}

    def of_call(self, call_id: str | None) -> _Event | None:
        """The event of a call; the next one where ids repeat."""
        return self._next(self._calls, call_id)

    def of_result(self, call_id: str | None) -> _Event | None:
        return self._next(self._results, call_id)

    def _next(self, of: dict[str, deque[_Event]], call_id: str | None) -> _Event | None:
        waiting = of.get(call_id or "")
        return waiting.popleft() if waiting else None

    def kept(self) -> list[Any]:
        """The events, those of replies without what the messages say, and without the tools where they did not change."""
        kept: list[Any] = []
        tools: Any = None
        for one in self._found:
            if not isinstance(one, _Event) or not one.carried:
                kept.append(one.event if isinstance(one, _Event) else one)
                continue
            output = rest(fields(one.event.get("output")), ("choices", "completion", "usage", "model"))
            told = rest(one.event, (*_REPEATED_FIELDS, *(("tools",) if one.event.get("tools") == tools else ())))
            tools = one.event.get("tools")
            kept.append({**told, "output": output} if output else told)
        return kept

    @property
    def are_all_told(self) -> bool:
        """Whether no event needs the pool of messages that later versions of Inspect share between them."""
        return not any(
            isinstance(one, _Event) and not one.carried and ("input_refs" in one.event or "call_refs" in one.event)
            for one in self._found
        )


def _answer(output: object) -> dict[str, Any]:
    """The message of a model's output."""
    choices = items(fields(output).get("choices"))
    return fields(fields(choices[0]).get("message")) if choices else {}


def _key(message: dict[str, Any]) -> str:
    """What tells a reply: its id, or, before they had one, what it says."""
    own = message.get("id")
    if isinstance(own, str) and own:
        return own
    calls = [fields(call).get("id") for call in items(message.get("tool_calls"))]
    return as_json(["said", message.get("content"), calls])


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one) and _key(one) == _key(other)


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(messages: list[Any], where: str, events: _Events, started: datetime | None, skip: Skip) -> Iterator[Entry]:
    ids: set[str] = set()
    # What stands before the first reply was there when the sample began; of later messages nobody says when.
    first = started
    for index, message in enumerate(messages):
        place = f"{where}.messages[{index}]"
        if not isinstance(message, dict):
            skip(place, "not an object")
            continue
        id_ = text(message.get("id"))
        id_ = id_ if id_ is not None and id_ not in ids else str(index)
        ids.add(id_)
        role = message.get("role")
        if role in ("system", "user"):
            yield Said(
                id=id_,
                role="user" if role == "user" else "system",
                content=content(message.get("content")),
                created_at=first,
                metadata=rest(message, _SAID_FIELDS),
            )
        elif role == "assistant":
            first = None
            yield from _reply(id_, message, events, place, skip)
        elif role == "tool":
            first = None
            yield _result(id_, message, events)
        else:
            skip(place, f"the role is {text(role) or 'missing'!r:.60}; a role is one of {', '.join(_ROLES)}")


def _reply(id_: str, message: dict[str, Any], events: _Events, where: str, skip: Skip) -> Iterator[Entry]:
    event, output = events.of_reply(message)
    said, reasoning, used, details = _parts(message.get("content"))
    metadata = rest(message, _REPLY_FIELDS)
    if details:
        metadata["reasoning"] = details
    if isinstance(message.get("reasoning"), str):
        reasoning.append(message["reasoning"])
    if stopped := fields((items(output.get("choices")) or [None])[0]).get("stop_reason"):
        metadata["stop_reason"] = stopped
    calls = [
        _call(call, events)
        for index, call in enumerate(items(message.get("tool_calls")))
        if _is_object(call, f"{where}.tool_calls[{index}]", skip)
    ]
    yield Reply(
        id=id_,
        content=said,
        calls=[*(Call(id=text(use.get("id")), name=text(use.get("name")) or "", args=use.get("arguments"), metadata=_use(use)) for use in used), *calls],
        reasoning="\n\n".join(reasoning) or None,
        model=text(message.get("model")) or text(output.get("model")),
        usage=fields(output.get("usage")) or None,
        created_at=event.started if event is not None else None,
        duration=event.duration if event is not None else None,
        error=text(output.get("error")),
        metadata=metadata,
    )  # fmt: skip
    for number, use in enumerate(used):
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
    """What a reply says, the reasoning apart from it, tools that the provider ran, and what else its reasoning has."""
    if not isinstance(value, list):
        return content(value), [], [], []
    said, reasoning, used, details = [], [], [], []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "reasoning":
            # What is redacted is for the provider only; its summary can be read.
            shown = part.get("summary") if part.get("redacted") else part.get("reasoning") or part.get("summary")
            if isinstance(shown, str) and shown:
                reasoning.append(shown)
            if other := rest(part, ("type",) if part.get("redacted") else ("type", "reasoning", "redacted")):
                details.append(other)
        elif kind == "tool_use":
            used.append(part)
        else:
            said.append(part)
    return said, reasoning, used, details


def _use(use: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", **rest(use, _USE_FIELDS)}


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
    output, parts = text_of(content(message.get("content")))
    call_id = text(message.get("tool_call_id"))
    event = events.of_result(call_id)
    error = message.get("error") or message.get("tool_error")
    why = fields(error).get("message") if isinstance(error, dict) else error
    return Result(
        id=id_,
        output=output or (text(why) if error else None) or "",
        failed=bool(error),
        call_ids=[call_id] if call_id else [],
        name=text(message.get("function")),
        created_at=event.completed if event is not None else None,
        attachments=[part for part in parts or () if not is_text(part)] or None,
        metadata=rest(message, _RESULT_FIELDS),
    )


def _is_object(value: object, where: str, skip: Skip) -> bool:
    if isinstance(value, dict):
        return True
    skip(where, "not an object")
    return False
