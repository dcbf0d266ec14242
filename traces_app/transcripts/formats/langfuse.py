"""Exports of Langfuse: traces with their observations.

* {"trace": {...}, "observations": [...]}, as its web interface downloads them; a trace with its observations in it (GET
  /api/public/traces/{id}); traces or observations alone, in a list, in lines, or under `data` (its API) or `traces`.
  Names may be those of the API (startTime) or of its tables (start_time). Input, output and metadata are JSON, or JSON
  in a text once or twice.
* The traces of one `sessionId` are one session, in the order of their times; a trace without is one of its own.
* A GENERATION is a reply: its output in whatever shape its SDK has (message_shapes.py). One that only wraps another one
  (the AI SDK's generateText around its doGenerate) is left to that, unless its output has calls or words and that of the
  inner one has none (agno). What its input says that was not said before is
  what user and system said; within a session of several traces the turns before are those of the other traces.
* A TOOL, or another observation that is named as an open call, is the result of that call: told by the call's id, else
  by name and arguments, else by name. One that no generation asked for is a call of its own. Generations below it are
  those of a sub-agent. Results that only the next input tells are taken from there.
* level ERROR is an error, statusMessage its reason; usageDetails, model and times are those of the reply.

A trace without generations, or whose generations say nothing (BeeAI), is its input and its output. Every other observation is kept in the metadata, input and
output where no other has said the same. All ids are Langfuse's own. A document is held whole: the rows of a trace may lie
anywhere in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

from traces_app.normalize.json_values import as_json, between, fields, instant, items, rest, text
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript
from traces_app.transcripts.files.documents import Document, Lines, Skip
from traces_app.transcripts.parsing.message_shapes import Spoken, decoded, joined, messages_in
from traces_app.transcripts.parsing.python_notation import json_or_python

NAME = "langfuse"

_TYPES = frozenset(
    {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
)
_TRACE_MARKS = frozenset(
    {
        "projectId",
        "project_id",
        "sessionId",
        "session_id",
        "htmlPath",
        "observations",
        "bookmarked",
        "latency",
        "public",
    }
)
# What is read of an observation; the rest of it is metadata.
_TAKEN = frozenset(
    {"id", "traceId", "trace_id", "type", "startTime", "start_time", "endTime", "end_time", "parentObservationId",
     "parent_observation_id", "input", "output", "model", "usage", "usageDetails", "usage_details", "metadata",
     "statusMessage", "status_message", "projectId", "project_id"}
)  # fmt: skip
_CALL_ID_ATTRIBUTES = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call_id", "tool_call.id")
_TOOL_NAME_ATTRIBUTES = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
_TOOL_PREFIXES = ("running tool: ", "execute_tool ", "tool: ", "Tool: ", "tool.")
_AGENT_ATTRIBUTES = ("gen_ai.agent.name", "agent_name", "agent.name")
_PROMPT_KEYS = ("prompt", "query", "question", "input", "text", "message", "user_input", "content", "task")
_ANSWER_KEYS = ("output", "answer", "response", "text", "content", "result")
# What is read of the request and of the response of a generation; the rest of them is metadata.
_SPOKEN = frozenset(
    {"messages", "contents", "prompt", "system", "system_instruction", "instructions", "output", "choices", "candidates",
     "generations", "message", "content", "text", "toolCalls", "usage", "usageMetadata", "model", "modelVersion"}
)  # fmt: skip
_NOTHING = ("None", "null")
"""How some instrumentations write an output that was empty when they looked."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def recognises(document: Document) -> bool:
    """Whether there are traces or observations of Langfuse in it."""
    if isinstance(document, Lines):
        return any(map(_is_ours, document.head()))
    found = document[:50] if isinstance(document, list) else [document]
    return any(map(_is_ours, found))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The sessions of a document that `recognises` accepts; what they leave out is told to `skip`."""
    traces: dict[str, _Trace] = {}
    for where, value in _values(document):
        _collect(value, where, traces, skip)
    sessions: dict[str, list[_Trace]] = defaultdict(list)
    for trace in traces.values():
        sessions[trace.session_id or trace.id].append(trace)
    for place, (id_, found) in enumerate(sessions.items()):
        found.sort(key=lambda trace: trace.began)
        reading = _Reading()
        entries = [entry for trace in found for entry in reading.trace(trace)]
        if not entries:
            skip(found[0].where or "(all)", "a trace in which nothing was said")
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=id_ or None,
            has_own_ids=True,
            title=None if any(isinstance(entry, Said) for entry in entries) else text(found[0].row.get("name")),
            end_user=next((user for trace in found if (user := text(_get(trace.row, "userId", "user_id")))), None),
            tags=list(dict.fromkeys(str(tag) for trace in found for tag in items(trace.row.get("tags")) if tag)),
            created_at=found[0].began if found[0].began > _EARLIEST else None,
            metadata={"traces": [trace.metadata() for trace in found]},
        )


# --- Documents ----------------------------------------------------------------------------------------------------


@dataclass
class _Observation:
    id: str
    row: dict[str, Any]
    place: int
    parent: str | None
    input: Any
    output: Any
    metadata: Any
    start: datetime | None
    end: datetime | None
    children: list[_Observation] = field(default_factory=list)
    used: bool = False
    """Whether it is an entry."""

    @property
    def type(self) -> str:
        return text(self.row.get("type")) or ""

    @property
    def name(self) -> str:
        return text(self.row.get("name")) or ""

    @property
    def error(self) -> str | None:
        if self.row.get("level") != "ERROR":
            return None
        return text(_get(self.row, "statusMessage", "status_message")) or f"{self.name or self.type}: level ERROR"

    def attribute(self, names: tuple[str, ...]) -> str | None:
        """What its metadata, or the attributes of the span in it, say under one of these names."""
        for said in (fields(self.metadata), fields(fields(self.metadata).get("attributes"))):
            for name in names:
                if isinstance(said.get(name), str) and said[name]:
                    return str(said[name])
        return None

    def rest(self) -> dict[str, Any]:
        found = rest(self.row, _TAKEN)
        if found.get("level") == "DEFAULT":
            del found["level"]
        return found | ({"metadata": self.metadata} if self.metadata not in (None, "", {}, []) else {})


@dataclass
class _Trace:
    id: str
    where: str
    row: dict[str, Any] = field(default_factory=dict)
    observations: dict[str, _Observation] = field(default_factory=dict)

    @property
    def session_id(self) -> str | None:
        rows = (self.row, *(observation.row for observation in self.observations.values()))
        return next((found for row in rows if (found := text(_get(row, "sessionId", "session_id")))), None)

    @property
    def began(self) -> datetime:
        starts = (found.start for found in self.observations.values() if found.start)
        return instant(self.row.get("timestamp")) or min(starts, default=_EARLIEST)

    def metadata(self) -> dict[str, Any]:
        """What the trace says of itself, and the observations that are no entries."""
        seen = {
            _digest(value)
            for observation in self.observations.values()
            if observation.used
            for value in (observation.input, observation.output)
        }
        found = rest(self.row, ("observations", "input", "output", "metadata"))
        for name in ("input", "output", "metadata"):
            value = decoded(self.row.get(name))
            if value not in (None, "", {}, []):
                found[name] = value
                seen.add(_digest(value))
        others = []
        for observation in self.observations.values():
            if observation.used:
                continue
            other = {
                name: observation.row[name]
                for name in ("id", "type", "startTime", "start_time", "endTime", "end_time", "parentObservationId")
                if observation.row.get(name)
            } | observation.rest()
            if observation.error:
                other["statusMessage"] = observation.error
            for name, value in (("input", observation.input), ("output", observation.output)):
                if value not in (None, "", {}, []) and (digest := _digest(value)) not in seen:
                    seen.add(digest)
                    other[name] = value
            others.append(other)
        return found | ({"observations": others} if others else {})


def _digest(value: Any) -> bytes:
    return blake2b(as_json(value).encode(), digest_size=16).digest()


def _is_observation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and value["type"] in _TYPES
        and _get(value, "traceId", "trace_id") is not None
        and _get(value, "startTime", "start_time") is not None
    )


def _is_trace(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("id"), str)
        and "timestamp" in value
        and "role" not in value
        and not {"input", "output", "observations"}.isdisjoint(value)
        and len(_TRACE_MARKS & value.keys()) >= 2
    )


def _is_bundle(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("observations"), list)
        and isinstance(value.get("trace"), dict)
        and isinstance(value["trace"].get("id"), str)
    )


def _is_ours(value: Any, depth: int = 0) -> bool:
    if _is_observation(value) or _is_trace(value) or _is_bundle(value):
        return True
    return (
        depth == 0
        and isinstance(value, dict)
        and any(_is_ours(item, 1) for key in ("data", "traces", "observations") for item in items(value.get(key))[:20])
    )


def _values(document: Document) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Lines):
        yield from ((f"line {line.number}", line.value) for line in document)
    elif isinstance(document, list):
        yield from ((f"[{index}]", item) for index, item in enumerate(document))
    else:
        yield "", document


def _collect(value: Any, where: str, traces: dict[str, _Trace], skip: Skip) -> None:
    if _is_observation(value):
        trace_id = text(_get(value, "traceId", "trace_id")) or ""
        _observe(traces.setdefault(trace_id, _Trace(trace_id, where)), value, where, skip)
    elif _is_bundle(value):
        trace = _traced(value["trace"], _join(where, "trace"), traces, skip)
        for index, row in enumerate(value["observations"]):
            _observe(trace, row, _join(where, f"observations[{index}]"), skip)
    elif _is_trace(value):
        _traced(value, where, traces, skip)
    elif isinstance(value, dict) and _is_ours(value):
        for key in ("traces", "data", "observations"):
            for index, item in enumerate(items(value.get(key))):
                _collect(item, _join(where, f"{key}[{index}]"), traces, skip)
    else:
        skip(where or "(all)", "neither a trace nor an observation of Langfuse")


def _traced(row: dict[str, Any], where: str, traces: dict[str, _Trace], skip: Skip) -> _Trace:
    trace = traces.setdefault(row["id"], _Trace(row["id"], where))
    trace.row = trace.row | row
    for index, found in enumerate(items(row.get("observations"))):
        # A list of traces has the ids of their observations only.
        if not isinstance(found, str):
            _observe(trace, found, _join(where, f"observations[{index}]"), skip)
    return trace


def _observe(trace: _Trace, row: Any, where: str, skip: Skip) -> None:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        skip(where, "no observation: it has no id")
        return
    known = trace.observations.get(row["id"])
    if known is not None:
        row = known.row | row
    trace.observations[row["id"]] = _Observation(
        id=row["id"],
        row=row,
        place=known.place if known is not None else len(trace.observations),
        parent=text(_get(row, "parentObservationId", "parent_observation_id")),
        input=decoded(row.get("input")),
        output=decoded(row.get("output")),
        metadata=decoded(row.get("metadata")),
        start=instant(_get(row, "startTime", "start_time")),
        end=instant(_get(row, "endTime", "end_time")),
    )


def _get(row: dict[str, Any], *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


# --- Entries ------------------------------------------------------------------------------------------------------


@dataclass
class _OpenCall:
    call: Call
    args: str
    answered: bool = False


class _Reading:
    """The traces of one session in their order, turned into entries; what was said is said once."""

    def __init__(self) -> None:
        self._said: Counter[tuple[str, str]] = Counter()
        """How often something was said: (role, text)."""
        self._calls: list[_OpenCall] = []
        """Those that are open, and some that no longer are."""
        self._call_ids: set[str | None] = set()
        """Of all calls."""
        self._call_of: dict[str, Call] = {}
        """The call that an observation carried out."""
        self._own: dict[str, _Observation] = {}
        self._prompted = False
        self._replied = False

    def trace(self, trace: _Trace) -> list[Entry]:
        """The entries of one trace."""
        self._own = trace.observations
        self._prompted = self._replied = False
        ordered = _ordered(trace.observations)
        generations = _speaking([found for found in ordered if found.type == "GENERATION"])
        generating = {found.id for found in generations}
        entries: list[Entry] = []
        first = generations[0] if generations else None
        if not (first and any(one.role == "user" and one.content for one in messages_in(first.input))):
            entries += self._asked(trace, ordered)
        elif not any(one.role == "system" for one in messages_in(first.input)):
            entries += self._instructed(trace, ordered)
        for found in ordered:
            if found.id in generating:
                entries += self._generation(trace, found)
            elif self._is_tool(found):
                entries += self._tool(found)
        replies = [entry for entry in entries if isinstance(entry, Reply) and entry.id in generating]
        if not any(reply.content or reply.calls or reply.error for reply in replies):
            entries += self._answered(trace, ordered)
        return entries

    # What was said

    def _asked(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """What the user asked, of a trace whose generations do not say it: its input, else that of its root."""
        roots = [found for found in ordered if found.parent is None]
        for value in (decoded(trace.row.get("input")), *(root.input for root in roots)):
            if value in (None, "", {}, []):
                continue
            spoken = messages_in(value)
            if not any(one.role == "user" and one.content for one in spoken):
                spoken.append(Spoken(role="user", content=_words(value, _PROMPT_KEYS)))
            yield from self._heard(trace, spoken, trace.id, trace.began)
            return

    def _instructed(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """What the system said, of a trace whose generations do not say it."""
        for value in (decoded(trace.row.get("input")), *(found.input for found in ordered if found.parent is None)):
            if spoken := [one for one in messages_in(value) if one.role == "system" and one.content]:
                yield from self._heard(trace, spoken, trace.id, trace.began)
                return

    def _answered(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """The output of a trace that has no generations, or whose generations say nothing."""
        roots = [found for found in ordered if found.parent is None]
        error = next((root.error for root in roots if root.error), None)
        for output in (decoded(trace.row.get("output")), *(root.output for root in roots)):
            if output in (None, "", {}, []):
                continue
            value = _of_python(output)
            said = joined(messages_in(value, "assistant")[-1:])
            content = said.content if said and said.content else _words(value, _ANSWER_KEYS)
            yield Reply(id=f"{trace.id}:output", content=content, error=error, created_at=_ended(trace))
            return
        if error:
            yield Reply(id=f"{trace.id}:output", content=None, error=error, created_at=_ended(trace))

    def _heard(self, trace: _Trace, spoken: list[Spoken], id_: str, when: datetime | None) -> Iterator[Entry]:
        """What is new of the messages that a model was sent."""
        here: Counter[tuple[str, str]] = Counter()
        for index, one in enumerate(spoken):
            if one.role == "assistant":
                if not self._replied:
                    yield from self._earlier(one, f"{id_}:{index}", here, when)
            elif one.role in ("user", "system") and one.content:
                words = (one.role, as_json(one.content))
                here[words] += 1
                if here[words] > self._said[words]:
                    self._said[words] += 1
                    yield self._say(trace, one, f"{id_}:{index}", when)
            for result in one.results:
                yield from self._told(result, f"{id_}:{index}", when)

    def _say(self, trace: _Trace, one: Spoken, id_: str, when: datetime | None) -> Said:
        if one.role == "system":
            # The same wherever it is said first: traces of a session may come one by one.
            id_ = f"system:{_digest(one.content).hex()}"
        elif not self._prompted:
            self._prompted, id_ = True, f"{trace.id}:prompt"
        metadata = {**one.metadata, **({"name": one.name} if one.name else {})}
        role: Any = one.role
        time = when if when is not None and when > _EARLIEST else None
        return Said(id=id_, role=role, content=one.content, created_at=time, metadata=metadata)

    def _earlier(self, one: Spoken, id_: str, here: Counter[tuple[str, str]], when: datetime | None) -> Iterator[Entry]:
        """A reply that was made before the trace began and that no trace of the session has."""
        words = ("assistant", _words_of(one))
        here[words] += 1
        if here[words] > self._said[words]:
            time = when if when is not None and when > _EARLIEST else None
            yield self._reply(one, Reply(id=id_, content=None, created_at=time))

    def _told(self, result: Result, id_: str, when: datetime | None) -> Iterator[Entry]:
        """A result that no observation gave."""
        open_ = self._open(next(iter(result.call_ids), None), result.name, None)
        if open_ is None:
            return
        open_.answered = True
        yield Result(
            id=f"{id_}:{open_.call.id or open_.call.name}",
            output=result.output,
            failed=result.failed,
            data=result.data,
            call_ids=[open_.call.id] if open_.call.id else (),
            name=open_.call.name,
            created_at=when if when is not None and when > _EARLIEST else None,
            metadata=result.metadata,
        )

    # What was done

    def _generation(self, trace: _Trace, found: _Observation) -> Iterator[Entry]:
        found.used = True
        below = self._started_by(found)
        spoken = messages_in(found.input)
        metadata = found.rest()
        if below is None:
            # What was said first was said when the trace began, whatever came to light before a model was asked.
            when = found.start if self._replied else trace.began
            yield from self._heard(trace, self._of_this_trace(trace, spoken), found.id, when)
        elif prompts := [one.content for one in spoken if one.role in ("system", "user") and one.content]:
            # A sub-agent is asked by an agent, not by the user.
            metadata["prompt"] = prompts
        if unknown := self._unknown(spoken):
            metadata["context"] = unknown
        if not spoken and found.input not in (None, "", {}, []):
            metadata["input"] = found.input
        said = joined(messages_in(found.output, "assistant"))
        for name, value, is_read in (("request", found.input, spoken), ("response", found.output, said)):
            if is_read and isinstance(value, dict) and "role" not in value and (around := rest(value, _SPOKEN)):
                metadata[name] = around
        if said is None and found.output not in (None, "", {}, []):
            said = Spoken(role="assistant", content=_words(found.output, _ANSWER_KEYS))
        yield self._reply(
            said or Spoken(role="assistant"),
            Reply(
                id=found.id,
                content=None,
                agent_name=self._agent(found),
                model=text(_get(found.row, "model", "provided_model_name")),
                usage=_usage(found.row),
                created_at=found.start,
                duration=between(found.start, found.end),
                step_id=found.id,
                parent_call=below.id if below is not None else None,
                error=found.error,
                metadata=metadata,
            ),
        )

    def _unknown(self, spoken: list[Spoken]) -> list[Any]:
        """Of what a model was sent the replies and results that no entry is: those of another agent, examples."""
        answered = self._call_ids
        found: list[Any] = []
        for one in spoken:
            if one.role == "assistant" and not self._said["assistant", _words_of(one)]:
                calls = [{"id": call.id, "name": call.name, "args": call.args} for call in one.calls]
                found.append(rest({"role": "assistant", "content": one.content, "calls": calls}, ()))
            found += [
                {"role": "tool", "call_id": result.call_ids[0], "content": result.output}
                for result in one.results
                if result.call_ids and result.call_ids[0] not in answered
            ]
        return found

    def _of_this_trace(self, trace: _Trace, spoken: list[Spoken]) -> list[Spoken]:
        """Of the first input of a trace in a session: what came after the last answer, which is of another trace."""
        if self._replied or trace.session_id is None:
            return spoken
        last = max((index for index, one in enumerate(spoken) if one.role == "assistant"), default=-1)
        return [one for index, one in enumerate(spoken) if index > last or one.role == "system"]

    def _reply(self, said: Spoken, reply: Reply) -> Reply:
        if reply.step_id is not None:
            self._replied = True
        self._said["assistant", _words_of(said)] += 1
        self._calls += [_OpenCall(call, _canonical(call.args)) for call in said.calls]
        self._call_ids.update(call.id for call in said.calls)
        return Reply(
            id=reply.id,
            content=said.content,
            calls=said.calls,
            reasoning=said.reasoning,
            agent_name=reply.agent_name or said.name,
            model=reply.model or said.model,
            usage=reply.usage or said.usage,
            created_at=reply.created_at,
            duration=reply.duration,
            step_id=reply.step_id,
            parent_call=reply.parent_call,
            error=reply.error,
            metadata={**said.metadata, **reply.metadata},
        )

    def _is_tool(self, found: _Observation) -> bool:
        if found.type == "TOOL":
            return True
        names = (found.name, _tool_name(found.name))
        return found.type != "GENERATION" and any(
            not open_.answered and open_.call.name in names for open_ in self._calls
        )

    def _tool(self, found: _Observation) -> Iterator[Entry]:
        """The result that an observation is; before it its call, where no generation asked for it."""
        name = found.attribute(_TOOL_NAME_ATTRIBUTES) or _tool_name(found.name)
        output, answer = _tool_output(found.output)
        said_ids = [*(answer.call_ids if answer is not None else ()), _asked_as(found.input)]
        call_id = found.attribute(_CALL_ID_ATTRIBUTES) or next(filter(None, said_ids), None)
        open_ = self._open(call_id, name, found.input)
        below = self._started_by(found)
        if open_ is None:
            if below is not None and below.name == name:
                # The same call, seen by two instrumentations.
                self._call_of[found.id] = below
                return
            call = Call(id=call_id or found.id, name=name, args=found.input, started_at=found.start)
            open_ = _OpenCall(call, "")
            yield Reply(
                id=f"{found.id}:call",
                content=None,
                calls=[call],
                agent_name=self._agent(found),
                created_at=found.start,
                step_id=f"{found.id}:call",
                parent_call=below.id if below is not None else None,
            )
        found.used = open_.answered = True
        self._call_of[found.id] = open_.call
        failed = answer.failed if answer is not None else None
        if found.output is None and found.error is None and found.end is None:
            # It has not ended.
            return
        yield Result(
            id=found.id,
            output=output if output is not None else found.error or "",
            failed=True if found.error else failed,
            data=answer.data if answer is not None else None,
            created_at=found.end or found.start,
            started_at=found.start,
            duration=between(found.start, found.end),
            call_ids=[open_.call.id] if open_.call.id else (),
            name=name,
            metadata=found.rest() | ({"statusMessage": found.error} if found.error else {}),
        )

    def _open(self, call_id: str | None, name: str | None, args: Any) -> _OpenCall | None:
        """The open call that is meant: by its id, else by name and arguments, else by its name or, without one, the first."""
        open_ = self._calls = [one for one in self._calls if not one.answered]
        if call_id is not None:
            if found := next((one for one in open_ if one.call.id == call_id), None):
                return found
            if call_id in self._call_ids:
                # It was answered already.
                return None
        named = [one for one in open_ if (one.call.id is None or call_id is None) and one.call.name == name]
        wanted = {_canonical(args), _canonical(fields(args).get("input")), _canonical(fields(args).get("args"))}
        by_args = next((one for one in named if args is not None and one.args in wanted), None)
        return by_args or next(iter(named), None)

    def _started_by(self, found: _Observation) -> Call | None:
        """The call in the course of which it happened."""
        for above in _above(found, self._own):
            if above.id in self._call_of:
                return self._call_of[above.id]
        return None

    def _agent(self, found: _Observation) -> str | None:
        for above in (found, *_above(found, self._own)):
            if name := above.attribute(_AGENT_ATTRIBUTES):
                return name
            if above.type == "AGENT" and above.name:
                return above.name
        return None


# --- Observations -------------------------------------------------------------------------------------------------


def _ordered(observations: dict[str, _Observation]) -> list[_Observation]:
    """By their times; of those that begin together the outer one first."""
    for found in observations.values():
        found.children = []
    for found in observations.values():
        if found.parent in observations:
            observations[found.parent].children.append(found)
    depth = {found.id: sum(1 for _above_it in _above(found, observations)) for found in observations.values()}
    return sorted(observations.values(), key=lambda found: (found.start or _EARLIEST, depth[found.id], found.place))


def _above(found: _Observation, observations: dict[str, _Observation]) -> Iterator[_Observation]:
    """Its parents, from the nearest on; each once, though a hostile file may have them in a circle."""
    seen = {found.id}
    while found.parent is not None and found.parent in observations and found.parent not in seen:
        found = observations[found.parent]
        seen.add(found.id)
        yield found


def _speaking(generations: list[_Observation]) -> list[_Observation]:
    """The generations that are replies: of one around others the others, but where it wraps a single one that says nothing."""
    left_out: set[str] = set()
    for found in generations:
        wrapped = _wrapped(found)
        if len(wrapped) == 1 and _says_more(found, wrapped[0]):
            left_out.add(wrapped[0].id)
        elif wrapped:
            left_out.add(found.id)
    return [found for found in generations if found.id not in left_out]


def _wrapped(found: _Observation) -> list[_Observation]:
    """The generations that lie below one, other than those of a tool's: two at most, for more make no difference."""
    seen = {found.id}
    waiting = list(found.children)
    wrapped: list[_Observation] = []
    while waiting and len(wrapped) < 2:
        below = waiting.pop()
        if below.id in seen or below.type == "TOOL":
            continue
        if below.type == "GENERATION":
            wrapped.append(below)
        seen.add(below.id)
        waiting += below.children
    return wrapped


def _says_more(outer: _Observation, inner: _Observation) -> bool:
    """Whether the output of a generation has calls or words that the one in it has not."""
    (calls, words), (inner_calls, inner_words) = _said_by(outer), _said_by(inner)
    return calls > inner_calls or (words and not inner_words and not inner_calls)


def _said_by(found: _Observation) -> tuple[int, bool]:
    """How many calls the output of a generation has, and whether it has words."""
    said = joined(messages_in(found.output, "assistant"))
    if said is not None:
        return len(said.calls), bool(said.content)
    return 0, found.output not in (None, "", {}, [], *_NOTHING)


def _of_python(value: Any) -> Any:
    """The object that a text is the Python notation of, as BeeAI writes its answers; anything else as it is."""
    found = json_or_python(value) if isinstance(value, str) else None
    return found if isinstance(found, dict) else value


def _tool_name(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _TOOL_PREFIXES if name.startswith(prefix)), name)


def _asked_as(value: Any) -> str | None:
    """The id of the call, where the tool was given the call as it was asked for (LangChain)."""
    return text(value.get("id")) if isinstance(value, dict) and value.get("type") == "tool_call" else None


def _tool_output(output: Any) -> tuple[Any, Result | None]:
    """What a tool said, out of the message or the result of MCP that some frameworks make of it."""
    found = messages_in(output, "tool")
    results = [result for one in found for result in one.results]
    if len(results) == 1:
        return results[0].output, results[0]
    if isinstance(output, dict) and isinstance(output.get("content"), list) and "role" not in output:
        failed = output.get("isError", output.get("is_error"))
        data = output.get("structuredContent")
        said = Result(id="", output=output["content"], failed=failed if isinstance(failed, bool) else None, data=data)
        return said.output, said
    return output, None


def _usage(row: dict[str, Any]) -> dict[str, Any] | None:
    """Tokens, under names that are counted."""
    used = fields(_get(row, "usageDetails", "usage_details")) or fields(row.get("usage"))
    names = {"input": "input_tokens", "output": "output_tokens", "total": "total_tokens"}
    found = {names.get(name, name): value for name, value in used.items() if value is not None}
    return found if any(isinstance(value, int | float) and value for value in found.values()) else None


def _ended(trace: _Trace) -> datetime | None:
    return max(filter(None, (found.end or found.start for found in trace.observations.values())), default=None)


def _words(value: Any, keys: tuple[str, ...]) -> str | list[Any]:
    """A value as what somebody said: its text, or that under a usual key, else its JSON."""
    if isinstance(value, str):
        return value
    said = [value[key] for key in keys if isinstance(value.get(key), str)] if isinstance(value, dict) else []
    return said[0] if said and said[0] else as_json(value)


def _canonical(args: Any) -> str:
    value = decoded(args)
    return as_json(dict(sorted(value.items()))) if isinstance(value, dict) else as_json(value)


def _words_of(said: Spoken) -> str:
    return as_json([said.content, [_known_by(call) for call in said.calls]])


def _known_by(call: Call) -> str:
    return call.id or f"{call.name} {_canonical(call.args)}"
