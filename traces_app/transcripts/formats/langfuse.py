"""Read exports of Langfuse: traces with their observations.

* Documents: `{"trace": {...}, "observations": [...]}` as downloaded from the web interface; a trace that contains its
  observations (GET /api/public/traces/{id}); traces or observations alone, in a list, in lines, or under `data` (the
  API) or `traces`. Field names are those of the API (startTime) or of the tables (start_time). Input, output and
  metadata are JSON, or JSON encoded as text once or twice.
* The traces with one `sessionId` are one session, ordered by time; a trace without it is a session of its own.
* A GENERATION is a reply; message_shapes.py reads the output of each SDK. A generation that only wraps another one (the
  AI SDK's generateText around doGenerate) is dropped, unless only its own output has calls or text (agno). New messages
  in its input are user and system messages. In a session of several traces, earlier turns come from the other traces.
* A TOOL, or an observation with the name of an open call, is the result of that call. It is matched by call id, else by
  name and arguments, else by name. Without a matching call it is a call of its own. Generations below it belong to a
  sub-agent. A result that is only in the input of the next generation is read from there.
* `level` ERROR is an error with the reason `statusMessage`; the reply has `usageDetails`, model and times.

A trace without generations, or with empty ones (BeeAI), becomes its input and its output. All other observations are
kept in the metadata; their input and output are omitted where another observation has the same value. All ids are
Langfuse's own. A document is held whole, because the rows of a trace may be anywhere in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

from traces_app.normalize.json_values import as_json, between, fields, instant, items, rest, text
from traces_app.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from traces_app.transcripts.files.documents import Document, Skip, first_values, numbered_values
from traces_app.transcripts.parsing.message_shapes import ParsedMessage, decoded, joined, messages_in
from traces_app.transcripts.parsing.python_notation import json_or_python

NAME = "langfuse"

_TYPES = frozenset(
    {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
)
_TRACE_MARKS = frozenset(
    {"projectId", "project_id", "sessionId", "session_id", "htmlPath", "observations", "bookmarked", "latency"}
    | {"public"}
)
_EMPTY: tuple[Any, ...] = (None, "", {}, [])
# Fields of an observation with a use of their own; all others are metadata.
_OBSERVATION_FIELDS = frozenset(
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
# Fields of a request or a response that become messages, usage or model; all others are metadata.
_MESSAGE_FIELDS = frozenset(
    {"messages", "contents", "prompt", "system", "system_instruction", "instructions", "output", "choices", "candidates",
     "generations", "message", "content", "text", "toolCalls", "usage", "usageMetadata", "model", "modelVersion"}
)  # fmt: skip
_EMPTY_TEXTS = ("None", "null")
"""An empty output, as some instrumentations write it."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def recognises(document: Document) -> bool:
    """Return whether one of the first values is, or contains, a trace or an observation of Langfuse."""
    return any(map(_is_langfuse, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    traces: dict[str, _Trace] = {}
    for where, value in numbered_values(document):
        _add_value(value, where, traces, skip)
    sessions: dict[str, list[_Trace]] = defaultdict(list)
    for trace in traces.values():
        sessions[trace.session_id or trace.id].append(trace)
    for place, (id_, session_traces) in enumerate(sessions.items()):
        session_traces.sort(key=lambda trace: trace.began)
        reader = _Reader()
        entries = [entry for trace in session_traces for entry in reader.entries(trace)]
        if not entries:
            skip(session_traces[0].where or "(all)", "a trace in which nothing was said")
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=id_ or None,
            has_own_ids=True,
            title=None
            if any(isinstance(entry, Prompt) for entry in entries)
            else text(session_traces[0].row.get("name")),
            end_user=next(
                (user for trace in session_traces if (user := text(_get(trace.row, "userId", "user_id")))), None
            ),
            tags=list(
                dict.fromkeys(str(tag) for trace in session_traces for tag in items(trace.row.get("tags")) if tag)
            ),
            created_at=session_traces[0].began if session_traces[0].began > _EARLIEST else None,
            metadata={"traces": [trace.metadata() for trace in session_traces]},
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
    """True once it has become an entry."""

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
        """Return the first of these attributes in the metadata, or in the span attributes in it."""
        for attributes in (fields(self.metadata), fields(fields(self.metadata).get("attributes"))):
            for name in names:
                if isinstance(attributes.get(name), str) and attributes[name]:
                    return str(attributes[name])
        return None

    def rest(self) -> dict[str, Any]:
        others = rest(self.row, _OBSERVATION_FIELDS)
        if others.get("level") == "DEFAULT":
            del others["level"]
        return others | ({"metadata": self.metadata} if self.metadata not in _EMPTY else {})


@dataclass
class _Trace:
    id: str
    where: str
    row: dict[str, Any] = field(default_factory=dict)
    observations: dict[str, _Observation] = field(default_factory=dict)

    @property
    def session_id(self) -> str | None:
        rows = (self.row, *(observation.row for observation in self.observations.values()))
        return next((id_ for row in rows if (id_ := text(_get(row, "sessionId", "session_id")))), None)

    @property
    def began(self) -> datetime:
        starts = (observation.start for observation in self.observations.values() if observation.start)
        return instant(self.row.get("timestamp")) or min(starts, default=_EARLIEST)

    def metadata(self) -> dict[str, Any]:
        """Return the fields of the trace, and the observations that became no entries."""
        seen = {
            _digest(value)
            for observation in self.observations.values()
            if observation.used
            for value in (observation.input, observation.output)
        }
        metadata = rest(self.row, ("observations", "input", "output", "metadata"))
        for name in ("input", "output", "metadata"):
            value = decoded(self.row.get(name))
            if value not in _EMPTY:
                metadata[name] = value
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
                if value not in _EMPTY and (digest := _digest(value)) not in seen:
                    seen.add(digest)
                    other[name] = value
            others.append(other)
        return metadata | ({"observations": others} if others else {})


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


def _is_langfuse(value: Any, depth: int = 0) -> bool:
    if _is_observation(value) or _is_trace(value) or _is_bundle(value):
        return True
    return (
        depth == 0
        and isinstance(value, dict)
        and any(
            _is_langfuse(item, 1) for key in ("data", "traces", "observations") for item in items(value.get(key))[:20]
        )
    )


def _add_value(value: Any, where: str, traces: dict[str, _Trace], skip: Skip) -> None:
    if _is_observation(value):
        trace_id = text(_get(value, "traceId", "trace_id")) or ""
        _add_observation(traces.setdefault(trace_id, _Trace(trace_id, where)), value, where, skip)
    elif _is_bundle(value):
        trace = _add_trace(value["trace"], _join(where, "trace"), traces, skip)
        for index, row in enumerate(value["observations"]):
            _add_observation(trace, row, _join(where, f"observations[{index}]"), skip)
    elif _is_trace(value):
        _add_trace(value, where, traces, skip)
    elif isinstance(value, dict) and _is_langfuse(value):
        for key in ("traces", "data", "observations"):
            for index, item in enumerate(items(value.get(key))):
                _add_value(item, _join(where, f"{key}[{index}]"), traces, skip)
    else:
        skip(where or "(all)", "neither a trace nor an observation of Langfuse")


def _add_trace(row: dict[str, Any], where: str, traces: dict[str, _Trace], skip: Skip) -> _Trace:
    trace = traces.setdefault(row["id"], _Trace(row["id"], where))
    trace.row = trace.row | row
    for index, observation in enumerate(items(row.get("observations"))):
        # In a list of traces these are ids only.
        if not isinstance(observation, str):
            _add_observation(trace, observation, _join(where, f"observations[{index}]"), skip)
    return trace


def _add_observation(trace: _Trace, row: Any, where: str, skip: Skip) -> None:
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


class _Reader:
    """Turns the traces of one session, in their order, into entries; a repeated message becomes one entry."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()
        """Messages read so far: (role, content) and their number."""
        self._calls: list[_OpenCall] = []
        """The open calls, and some that were answered."""
        self._call_ids: set[str | None] = set()
        """The ids of all calls."""
        self._call_of: dict[str, Call] = {}
        """The call that an observation executed, by the id of the observation."""
        self._observations: dict[str, _Observation] = {}
        self._prompted = False
        self._replied = False

    def entries(self, trace: _Trace) -> list[Entry]:
        """Return the entries of one trace."""
        self._observations = trace.observations
        self._prompted = self._replied = False
        ordered = _ordered(trace.observations)
        generations = _replying([observation for observation in ordered if observation.type == "GENERATION"])
        reply_ids = {generation.id for generation in generations}
        entries: list[Entry] = []
        first_input = messages_in(generations[0].input) if generations else []
        if not any(message.role == "user" and message.content for message in first_input):
            entries += self._trace_prompt(trace, ordered)
        elif not any(message.role == "system" for message in first_input):
            entries += self._trace_instructions(trace, ordered)
        for observation in ordered:
            if observation.id in reply_ids:
                entries += self._generation(trace, observation)
            elif self._is_tool(observation):
                entries += self._tool(observation)
        replies = [entry for entry in entries if isinstance(entry, Reply) and entry.id in reply_ids]
        if not any(reply.content or reply.calls or reply.error for reply in replies):
            entries += self._trace_answer(trace, ordered)
        return entries

    # --- Messages ---

    def _trace_prompt(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """Yield the prompt from the input of the trace or of a root, where the generations do not have it."""
        roots = [observation for observation in ordered if observation.parent is None]
        for value in (decoded(trace.row.get("input")), *(root.input for root in roots)):
            if value in _EMPTY:
                continue
            messages = messages_in(value)
            if not any(message.role == "user" and message.content for message in messages):
                messages.append(ParsedMessage(role="user", content=_content(value, _PROMPT_KEYS)))
            yield from self._new_messages(trace, messages, trace.id, trace.began)
            return

    def _trace_instructions(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """Yield the system messages from the input of the trace or of a root, where the generations do not have them."""
        roots = [observation for observation in ordered if observation.parent is None]
        for value in (decoded(trace.row.get("input")), *(root.input for root in roots)):
            if messages := [message for message in messages_in(value) if message.role == "system" and message.content]:
                yield from self._new_messages(trace, messages, trace.id, trace.began)
                return

    def _trace_answer(self, trace: _Trace, ordered: list[_Observation]) -> Iterator[Entry]:
        """Yield the output of a trace without generations, or with empty ones."""
        roots = [observation for observation in ordered if observation.parent is None]
        error = next((root.error for root in roots if root.error), None)
        content: Any = None
        for output in (decoded(trace.row.get("output")), *(root.output for root in roots)):
            if output not in _EMPTY:
                value = _from_python(output)
                answer = joined(messages_in(value, "assistant")[-1:])
                content = answer.content if answer and answer.content else _content(value, _ANSWER_KEYS)
                break
        if content is not None or error:
            ends = (observation.end or observation.start for observation in trace.observations.values())
            ended_at = max(filter(None, ends), default=None)
            yield Reply(id=f"{trace.id}:output", content=content, error=error, created_at=ended_at)

    def _new_messages(
        self, trace: _Trace, messages: list[ParsedMessage], id_: str, when: datetime | None
    ) -> Iterator[Entry]:
        """Yield the messages of a model's input that no earlier input had."""
        time = when if when is not None and when > _EARLIEST else None
        here: Counter[tuple[str, str]] = Counter()
        for index, message in enumerate(messages):
            own_id = f"{id_}:{index}"
            if message.role == "assistant":
                if not self._replied and self._is_new(("assistant", _reply_key(message)), here):
                    # A reply from before the trace, which no trace of the session has.
                    yield self._reply(message, Reply(id=own_id, content=None, created_at=time))
            elif message.role in ("user", "system") and message.content:
                key = (message.role, as_json(message.content))
                if self._is_new(key, here):
                    self._seen[key] += 1
                    yield self._message(trace, message, own_id, time)
            for result in message.results:
                yield from self._result_in_input(result, own_id, time)

    def _is_new(self, key: tuple[str, str], here: Counter[tuple[str, str]]) -> bool:
        """Count a message of an input, and return whether the input has it more often than was read so far."""
        here[key] += 1
        return here[key] > self._seen[key]

    def _message(self, trace: _Trace, message: ParsedMessage, id_: str, time: datetime | None) -> Prompt:
        if message.role == "system":
            # The id must not depend on the trace, because traces of a session may be imported one by one.
            id_ = f"system:{_digest(message.content).hex()}"
        elif not self._prompted:
            self._prompted, id_ = True, f"{trace.id}:prompt"
        metadata = {**message.metadata, **({"name": message.name} if message.name else {})}
        role: Any = message.role
        return Prompt(id=id_, role=role, content=message.content, created_at=time, metadata=metadata)

    def _result_in_input(self, result: Result, id_: str, time: datetime | None) -> Iterator[Entry]:
        """Yield a result that is in the input of a generation, and in no observation."""
        open_call = self._find_open_call(next(iter(result.call_ids), None), result.name, None)
        if open_call is None:
            return
        open_call.answered = True
        call = open_call.call
        yield Result(
            id=f"{id_}:{call.id or call.name}",
            output=result.output,
            failed=result.failed,
            data=result.data,
            call_ids=[call.id] if call.id else (),
            name=call.name,
            created_at=time,
            metadata=result.metadata,
        )

    # --- Generations and tools ---

    def _generation(self, trace: _Trace, generation: _Observation) -> Iterator[Entry]:
        generation.used = True
        parent = self._call_above(generation)
        messages = messages_in(generation.input)
        metadata = generation.rest()
        if parent is None:
            # The first input has the time of the trace, which may begin before its first generation.
            when = generation.start if self._replied else trace.began
            yield from self._new_messages(trace, self._without_earlier_turns(trace, messages), generation.id, when)
        elif prompts := [
            message.content for message in messages if message.role in ("system", "user") and message.content
        ]:
            # The prompt of a sub-agent comes from an agent, not from the user.
            metadata["prompt"] = prompts
        if unknown := self._unknown(messages):
            metadata["context"] = unknown
        if not messages and generation.input not in _EMPTY:
            metadata["input"] = generation.input
        answer = joined(messages_in(generation.output, "assistant"))
        for name, value, is_read in (("request", generation.input, messages), ("response", generation.output, answer)):
            if is_read and isinstance(value, dict) and "role" not in value and (others := rest(value, _MESSAGE_FIELDS)):
                metadata[name] = others
        if answer is None and generation.output not in _EMPTY:
            answer = ParsedMessage(role="assistant", content=_content(generation.output, _ANSWER_KEYS))
        yield self._reply(
            answer or ParsedMessage(role="assistant"),
            Reply(
                id=generation.id,
                content=None,
                agent_name=self._agent(generation),
                model=text(_get(generation.row, "model", "provided_model_name")),
                usage=_usage(generation.row),
                created_at=generation.start,
                duration=between(generation.start, generation.end),
                step_id=generation.id,
                parent_call=parent.id if parent is not None else None,
                error=generation.error,
                metadata=metadata,
            ),
        )

    def _unknown(self, messages: list[ParsedMessage]) -> list[Any]:
        """Return the replies and results of an input that are no entries: those of another agent, or examples."""
        unknown: list[Any] = []
        for message in messages:
            if message.role == "assistant" and not self._seen["assistant", _reply_key(message)]:
                calls = [{"id": call.id, "name": call.name, "args": call.args} for call in message.calls]
                unknown.append(rest({"role": "assistant", "content": message.content, "calls": calls}, ()))
            unknown += [
                {"role": "tool", "call_id": result.call_ids[0], "content": result.output}
                for result in message.results
                if result.call_ids and result.call_ids[0] not in self._call_ids
            ]
        return unknown

    def _without_earlier_turns(self, trace: _Trace, messages: list[ParsedMessage]) -> list[ParsedMessage]:
        """Drop the turns up to the last answer from the first input of a trace: they belong to other traces."""
        if self._replied or trace.session_id is None:
            return messages
        last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
        return [message for index, message in enumerate(messages) if index > last or message.role == "system"]

    def _reply(self, message: ParsedMessage, reply: Reply) -> Reply:
        """Return the reply with the content of a message, and register its calls."""
        if reply.step_id is not None:
            self._replied = True
        self._seen["assistant", _reply_key(message)] += 1
        self._calls += [_OpenCall(call, _canonical(call.args)) for call in message.calls]
        self._call_ids.update(call.id for call in message.calls)
        return replace(
            reply,
            content=message.content,
            calls=message.calls,
            reasoning=message.reasoning,
            agent_name=reply.agent_name or message.name,
            model=reply.model or message.model,
            usage=reply.usage or message.usage,
            metadata={**message.metadata, **reply.metadata},
        )

    def _is_tool(self, observation: _Observation) -> bool:
        if observation.type == "TOOL":
            return True
        names = (observation.name, _tool_name(observation.name))
        return observation.type != "GENERATION" and any(
            not open_call.answered and open_call.call.name in names for open_call in self._calls
        )

    def _tool(self, observation: _Observation) -> Iterator[Entry]:
        """Yield the result of a tool observation, after a call of its own if no generation requested it."""
        name = observation.attribute(_TOOL_NAME_ATTRIBUTES) or _tool_name(observation.name)
        output, answer = _tool_output(observation.output)
        value = fields(observation.input)
        # LangChain passes the call itself to the tool.
        input_id = text(value.get("id")) if value.get("type") == "tool_call" else None
        ids = [*(answer.call_ids if answer is not None else ()), input_id]
        call_id = observation.attribute(_CALL_ID_ATTRIBUTES) or next(filter(None, ids), None)
        open_call = self._find_open_call(call_id, name, observation.input)
        parent = self._call_above(observation)
        if open_call is None:
            if parent is not None and parent.name == name:
                # Two instrumentations observed the same call.
                self._call_of[observation.id] = parent
                return
            call = Call(id=call_id or observation.id, name=name, args=observation.input, started_at=observation.start)
            open_call = _OpenCall(call, "")
            yield Reply(
                id=f"{observation.id}:call",
                content=None,
                calls=[call],
                agent_name=self._agent(observation),
                created_at=observation.start,
                step_id=f"{observation.id}:call",
                parent_call=parent.id if parent is not None else None,
            )
        observation.used = open_call.answered = True
        self._call_of[observation.id] = open_call.call
        error = observation.error
        if observation.output is None and error is None and observation.end is None:
            # The call is still running.
            return
        yield Result(
            id=observation.id,
            output=output if output is not None else error or "",
            failed=True if error else answer.failed if answer is not None else None,
            data=answer.data if answer is not None else None,
            created_at=observation.end or observation.start,
            started_at=observation.start,
            duration=between(observation.start, observation.end),
            call_ids=[open_call.call.id] if open_call.call.id else (),
            name=name,
            metadata=observation.rest() | ({"statusMessage": error} if error else {}),
        )

    def _find_open_call(self, call_id: str | None, name: str | None, args: Any) -> _OpenCall | None:
        """Return the open call with this id, else the one with this name and arguments, else the first with this name."""
        self._calls = [item for item in self._calls if not item.answered]
        if call_id is not None:
            if by_id := next((item for item in self._calls if item.call.id == call_id), None):
                return by_id
            if call_id in self._call_ids:
                # The call was answered before.
                return None
        named = [item for item in self._calls if (item.call.id is None or call_id is None) and item.call.name == name]
        wanted = {_canonical(args), _canonical(fields(args).get("input")), _canonical(fields(args).get("args"))}
        by_args = next((item for item in named if args is not None and item.args in wanted), None)
        return by_args or next(iter(named), None)

    def _call_above(self, observation: _Observation) -> Call | None:
        """Return the call whose tool observation contains this one."""
        ancestors = _ancestors(observation, self._observations)
        return next((self._call_of[above.id] for above in ancestors if above.id in self._call_of), None)

    def _agent(self, observation: _Observation) -> str | None:
        for above in (observation, *_ancestors(observation, self._observations)):
            if name := above.attribute(_AGENT_ATTRIBUTES):
                return name
            if above.type == "AGENT" and above.name:
                return above.name
        return None


# --- Observations -------------------------------------------------------------------------------------------------


def _ordered(observations: dict[str, _Observation]) -> list[_Observation]:
    """Set the children, and sort by time; of observations that begin together the outer one comes first."""
    for observation in observations.values():
        observation.children = []
    for observation in observations.values():
        if observation.parent in observations:
            observations[observation.parent].children.append(observation)
    depth = {id_: len(list(_ancestors(observation, observations))) for id_, observation in observations.items()}
    return sorted(
        observations.values(),
        key=lambda observation: (observation.start or _EARLIEST, depth[observation.id], observation.place),
    )


def _ancestors(observation: _Observation, observations: dict[str, _Observation]) -> Iterator[_Observation]:
    """Yield the ancestors, nearest first, each once: in a hostile file they may form a circle."""
    seen = {observation.id}
    while observation.parent is not None and observation.parent in observations and observation.parent not in seen:
        observation = observations[observation.parent]
        seen.add(observation.id)
        yield observation


def _replying(generations: list[_Observation]) -> list[_Observation]:
    """Return the generations that are replies: the inner ones, unless the only inner one of an outer one is empty."""
    left_out: set[str] = set()
    for generation in generations:
        wrapped = _wrapped(generation)
        if len(wrapped) == 1 and _has_more_output(generation, wrapped[0]):
            left_out.add(wrapped[0].id)
        elif wrapped:
            left_out.add(generation.id)
    return [generation for generation in generations if generation.id not in left_out]


def _wrapped(generation: _Observation) -> list[_Observation]:
    """Return up to two generations below this one and not below a tool; the caller needs to know none, one or more."""
    seen = {generation.id}
    waiting = list(generation.children)
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


def _has_more_output(outer: _Observation, inner: _Observation) -> bool:
    """Return whether the outer generation has calls or text that the inner one lacks."""
    (calls, has_text), (inner_calls, inner_has_text) = _output_size(outer), _output_size(inner)
    return calls > inner_calls or (has_text and not inner_has_text and not inner_calls)


def _output_size(generation: _Observation) -> tuple[int, bool]:
    """Return the number of calls in the output of a generation, and whether it has text."""
    answer = joined(messages_in(generation.output, "assistant"))
    if answer is not None:
        return len(answer.calls), bool(answer.content)
    return 0, generation.output not in (*_EMPTY, *_EMPTY_TEXTS)


def _from_python(value: Any) -> Any:
    """Parse a text with an object in Python notation, as BeeAI writes its answers; return other values unchanged."""
    parsed = json_or_python(value) if isinstance(value, str) else None
    return parsed if isinstance(parsed, dict) else value


def _tool_name(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _TOOL_PREFIXES if name.startswith(prefix)), name)


def _tool_output(output: Any) -> tuple[Any, Result | None]:
    """Unwrap the output of a tool from the message or the MCP result that some frameworks put around it."""
    results = [result for message in messages_in(output, "tool") for result in message.results]
    if len(results) == 1:
        return results[0].output, results[0]
    if isinstance(output, dict) and isinstance(output.get("content"), list) and "role" not in output:
        failed = output.get("isError", output.get("is_error"))
        data = output.get("structuredContent")
        result = Result(id="", output=output["content"], failed=failed if isinstance(failed, bool) else None, data=data)
        return result.output, result
    return output, None


def _usage(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tokens under the names that `tokens` counts."""
    details = fields(_get(row, "usageDetails", "usage_details")) or fields(row.get("usage"))
    names = {"input": "input_tokens", "output": "output_tokens", "total": "total_tokens"}
    usage = {names.get(name, name): value for name, value in details.items() if value is not None}
    return usage if any(isinstance(value, int | float) and value for value in usage.values()) else None


def _content(value: Any, keys: tuple[str, ...]) -> str | list[Any]:
    """Return a value as content of a message: its text, or that under a usual key, else its JSON."""
    if isinstance(value, str):
        return value
    texts = [value[key] for key in keys if isinstance(value.get(key), str)] if isinstance(value, dict) else []
    return texts[0] if texts and texts[0] else as_json(value)


def _canonical(args: Any) -> str:
    value = decoded(args)
    return as_json(dict(sorted(value.items()))) if isinstance(value, dict) else as_json(value)


def _reply_key(message: ParsedMessage) -> str:
    """Return a text that identifies a reply by its content and its calls."""
    return as_json([message.content, [call.id or f"{call.name} {_canonical(call.args)}" for call in message.calls]])
