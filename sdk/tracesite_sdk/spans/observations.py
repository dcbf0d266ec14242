"""Turn the observations of a traced agent into entries: generations, tool executions, and all that is around them.

Tracing systems keep a tree of observations (spans, runs) for each trace. Every convention and export format maps its rows
to `Observation`; `Reader` does the rest, once for all of them:

* A generation is a reply; message_shapes.py parses its output. A generation that only wraps another one (the AI SDK's
  generateText around doGenerate) is dropped, unless only its own output has calls or text (agno). New messages in its
  input are user and system messages. In a session of several traces, earlier turns come from the other traces.
* A tool execution, or an observation with the name of an open call, is the result of that call: see open_calls.py. Without a
  matching call it is a call of its own. Generations below it belong to a sub-agent. A result that is only in the input of
  the next generation is taken from there.
* Other observations with tokens or a cost, of which no generation says more, are replies without content.
* A trace without generations, or with empty ones (BeeAI), becomes its input and its output.

Pure Python.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tracesite_sdk.normalize.call_ids import HANDOFF_PREFIX
from tracesite_sdk.normalize.json_values import as_json, between, fields, rest, text
from tracesite_sdk.normalize.pricing import tokens
from tracesite_sdk.normalize.trees import NearestAbove, cycles, walk
from tracesite_sdk.records.health_flags import GUESSED_RESULT
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result
from tracesite_sdk.transcripts.open_calls import OpenCall, OpenCalls, canonical, may_be_the_same
from tracesite_sdk.transcripts.parsing.message_shapes import ParsedMessage, joined, messages_in
from tracesite_sdk.transcripts.parsing.python_notation import json_or_python
from tracesite_sdk.transcripts.parsing.requests import model_input

Kind = Literal["generation", "tool", "agent", "other"]

EMPTY: tuple[Any, ...] = (None, "", {}, [])
EARLIEST = datetime.min.replace(tzinfo=UTC)
_TOOL_PREFIXES = ("running tool: ", "execute_tool ", "tool: ", "Tool: ", "tool.")
_PROMPT_KEYS = ("prompt", "query", "question", "input", "text", "message", "user_input", "content", "task")
_ANSWER_KEYS = ("output", "answer", "response", "text", "content", "result")
# Fields of a request or a response that become messages, usage or model; all others are metadata.
_MESSAGE_FIELDS = frozenset(
    {"messages", "contents", "prompt", "system", "system_instruction", "instructions", "output", "choices", "candidates",
     "generations", "message", "content", "text", "toolCalls", "usage", "usageMetadata", "model", "modelVersion"}
)  # fmt: skip
EXECUTION = "claude_code.tool.execution"
_PARTS = (EXECUTION, "claude_code.tool.blocked_on_user")
"""Spans below that of a tool which say whether it failed: that of the tool has no status of its own."""
_EMPTY_TEXTS = ("None", "null")
"""An empty output, as some instrumentations write it."""
_NO_ANSWERS = (*_EMPTY_TEXTS, "True", "False", "true", "false")
"""Return values of functions that answer no question."""
_MOST_AROUND = 8
"""Observations around a request or a tool that are compared to find which request is nearest."""
NO_REASON = ": error"
"""The end of the error of a span that says that it failed, and not why."""
OWN_CALL = ":call"
"""The end of the id of a step with the call of a tool that no generation requested."""
TOKENS_ONLY = ":tokens"
"""The end of the id of a reply without content, which has the tokens of an observation that is no generation."""
_HANDOFF = re.compile("[Hh]andoff to (.+)")
"""The span of a handoff to another agent, as OpenInference names it."""
_HANDOFF_TOOL = "handoff_to_"
"""The beginning of its tool's name in JavaScript, where its input has both agents."""
_AN_OBJECT = re.compile(r"""\{|\[\s*[\[{'"]|\[?[A-Za-z_][\w.]*\(\w+=|\[?<[\w.]+ object at """)
"""The beginning of a value that was written as text: JSON, or the `repr` of a Python object."""


class Observation(Struct, kw_only=True):
    """One row of a tracing system."""

    id: str
    parent: str | None
    place: int
    """Its index among the rows; orders observations that begin together."""
    kind: Kind
    name: str = ""
    input: Any = None
    """Decoded if it was JSON text."""
    output: Any = None
    start: datetime | None = None
    end: datetime | None = None
    """None while it runs."""
    error: str | None = None
    agent_name: str | None = None
    """The agent to which it belongs, if the row names it."""
    tool_name: str | None = None
    """Default: its name."""
    call_id: str | None = None
    is_embedding: bool | None = None
    is_guessed: bool = False
    """Whether it may be of another run: a request is then no answer, but a step, as one of a sub-agent."""
    is_paused: bool = False
    """Whether it is a tool that has paused, for example until a person answers: its call stays open."""
    model: str | None = None
    usage: dict[str, Any] | None = None
    system: Any = None
    """The system prompt, tools and parameters of a generation, as far as `input` does not hold them."""
    tools: Any = None
    parameters: dict[str, Any] | None = None
    time_to_first_token: float | None = None
    """Milliseconds."""
    metadata: dict[str, Any] = {}
    """All other fields of the row."""
    children: list[Observation] = []
    used: bool = False
    """True once it has become an entry."""
    depth: int = 0
    """The number of observations above it; this and the following are set by `_connect`."""
    number: int = 0
    """Its index in a walk through the trees, in which those below it follow it."""
    number_after: int = 0
    """The index that follows those below it."""
    is_below_tool: bool = False
    agent: str | None = None
    """The name of the agent to which it belongs, from the nearest observation that has one."""


@dataclass(kw_only=True)
class Trace:
    """One trace: a tree of observations, or several trees."""

    id: str
    has_session: bool
    """Whether it belongs to a session of several traces, which hold the earlier turns."""
    began: datetime
    """EARLIEST if unknown."""
    input: Any = None
    output: Any = None
    has_question: bool = False
    """Whether the input is the question of the run, whatever its requests were asked."""
    observations: dict[str, Observation] = field(default_factory=dict)


class Reader:
    """Turns the traces of one session, in their order, into entries; a repeated message becomes one entry."""

    def __init__(self, *, one_run: bool = False) -> None:
        """With `one_run` the trace is one run with one prompt: what later requests contain besides is left to their input,
        and every request is a step, also the one that gave the answer."""
        self._one_run = one_run
        self._seen: Counter[tuple[str, str]] = Counter()
        """Messages read so far: (role, content) and their number."""
        self._unread: list[Observation] = []
        """The generations of one run whose inputs were not read, because no call was open that a result in them could answer."""
        self._calls = OpenCalls()
        self._trace: Trace | None = None
        self._executed: NearestAbove[Call] = NearestAbove(0)
        """The calls that observations of the trace executed."""
        self._answered: dict[str, int] = {}
        """The number of ids in `_stated` at the beginning of those of an output whose calls were answered."""
        self._executing: dict[tuple[str, str], tuple[Observation, Call]] = {}
        """The last tool of each call id and name of the trace, with its call."""
        self._prompted = False
        self._replied = False

    def entries(self, trace: Trace) -> list[Entry]:
        """Return the entries of one trace."""
        self._executed = NearestAbove(len(trace.observations))
        self._executing.clear()
        self._answered.clear()
        self._trace = trace
        self.__dict__.pop("_stated", None)
        self._prompted = self._replied = False
        ordered = _ordered(trace.observations)
        generations = _replying([observation for observation in ordered if observation.kind == "generation"])
        reply_ids = {generation.id for generation in generations}
        self._calls.begin_trace(
            {id_ for observation in ordered if observation.kind == "tool" and (id_ := _own_call_id(observation))}
        )
        for generation, tools in _requested_tools(ordered, reply_ids):
            generation.output = {"role": "assistant", "tool_calls": [_request_of(tool) for tool in tools]}
        entries: list[Entry] = []
        if self._one_run:
            generations.sort(key=lambda generation: generation.is_below_tool)
        first_input = messages_in(generations[0].input) if generations else []
        if trace.has_question or not any(message.role == "user" and message.content for message in first_input):
            entries += self._trace_prompt(trace, ordered)
        elif self._one_run:
            first_input = self._without_earlier_turns(trace, first_input)
            entries += self._new_messages(trace, first_input, generations[0].id, trace.began)
        elif not any(message.role == "system" for message in first_input):
            entries += self._trace_instructions(trace, ordered)
        counted = counted_beside_requests(
            Spent.of(observation, observation.kind, observation.usage, is_embedding=observation.is_embedding)
            for observation in ordered
            if observation.usage and observation.kind != "tool"
        )
        for observation in ordered:
            if observation.number in counted:
                entries.append(self._tokens(observation))
            if observation.id in reply_ids:
                entries += self._generation(trace, observation)
            elif self._is_tool(observation):
                entries += self._tool(observation)
        replies = [entry for entry in entries if isinstance(entry, Reply) and entry.id in reply_ids]
        if not any(reply.content or reply.calls or reply.error for reply in replies):
            entries += self._trace_answer(trace, ordered)
        return entries

    # --- Messages ---

    def _trace_prompt(self, trace: Trace, ordered: list[Observation]) -> Iterator[Entry]:
        """Yield the prompt from the input of the trace or of a root, where the generations do not have it."""
        roots = _asked_roots(ordered)
        for value in map(_argument, (trace.input, *(root.input for root in roots))):
            if value in EMPTY:
                continue
            messages = messages_in(value)
            if self._one_run:
                messages = self._without_earlier_turns(trace, messages)
            if not any(message.role == "user" and message.content for message in messages):
                messages.append(ParsedMessage(role="user", content=_content(value, _PROMPT_KEYS)))
            yield from self._new_messages(trace, messages, trace.id, trace.began)
            return

    def _trace_instructions(self, trace: Trace, ordered: list[Observation]) -> Iterator[Entry]:
        """Yield the system messages from the input of the trace or of a root, where the generations do not have them."""
        roots = [observation for observation in ordered if observation.parent is None]
        for value in (trace.input, *(root.input for root in roots)):
            if messages := [message for message in messages_in(value) if message.role == "system" and message.content]:
                yield from self._new_messages(trace, messages, trace.id, trace.began)
                return

    def _trace_answer(self, trace: Trace, ordered: list[Observation]) -> Iterator[Entry]:
        """Yield the output of a trace without generations, or with empty ones."""
        roots = _asked_roots(ordered)
        error = next((root.error for root in roots if root.error), None)
        content: Any = None
        for output in (trace.output, *(root.output for root in roots)):
            if output not in EMPTY:
                value = _from_python(output)
                answer = joined(messages_in(value, "assistant")[-1:])
                content = answer.content if answer and answer.content else _content(value, _ANSWER_KEYS)
                break
        if content is not None or error:
            ends = (observation.end or observation.start for observation in trace.observations.values())
            ended_at = max(filter(None, ends), default=None)
            yield Reply(id=f"{trace.id}:output", content=content, error=error, created_at=ended_at)

    def _new_messages(
        self,
        trace: Trace,
        messages: list[ParsedMessage],
        id_: str,
        when: datetime | None,
        around: Sequence[str] = (),
    ) -> Iterator[Entry]:
        """Yield the messages of a model's input that no earlier input had."""
        time = when if when is not None and when > EARLIEST else None
        here: Counter[tuple[str, str]] = Counter()
        for index, message in enumerate(messages):
            own_id = f"{id_}:{index}"
            if message.role == "assistant":
                if not self._replied and self._is_new(("assistant", _reply_key(message)), here):
                    # A reply from before the trace, which no trace of the session has.
                    yield self._reply(message, Reply(id=own_id, content=None, created_at=time))
            elif self._one_run and message.role == "system":
                pass  # it is kept with the input of the request
            elif message.role in ("user", "system") and message.content:
                key = (message.role, as_json(message.content))
                if self._is_new(key, here):
                    self._seen[key] += 1
                    yield self._message(trace, message, own_id, time)
            for result in message.results:
                if self._is_news(result, here):
                    yield from self._result_in_input(result, own_id, time, around)

    def _is_news(self, result: Result, here: Counter[tuple[str, str]]) -> bool:
        """Return whether no earlier input had a result of an input. Those with an id are told apart by it."""
        if result.call_ids:
            return True
        key = _result_key(result.name, result.output)
        is_new = self._is_new(key, here)
        self._seen[key] += is_new
        return is_new

    def _new_results(self) -> list[Result]:
        """Count the results in the inputs that were not read yet, and return those in the last of them that are new."""
        results: list[Result] = []
        for generation in self._unread:
            here: Counter[tuple[str, str]] = Counter()
            stated = [result for message in messages_in(generation.input) for result in message.results]
            results = [result for result in stated if self._is_news(result, here)]
        self._unread.clear()
        return results

    def _is_new(self, key: tuple[str, str], here: Counter[tuple[str, str]]) -> bool:
        """Count a message of an input, and return whether the input has it more often than was read so far."""
        here[key] += 1
        return here[key] > self._seen[key]

    def _message(self, trace: Trace, message: ParsedMessage, id_: str, time: datetime | None) -> Prompt:
        if message.role == "system":
            # The id must not depend on the trace, because traces of a session may be imported one by one.
            id_ = f"system:{digest(message.content).hex()}"
        elif not self._prompted:
            self._prompted, id_ = True, f"{trace.id}:prompt"
        metadata = {**message.metadata, **({"name": message.name} if message.name else {})}
        role: Any = message.role
        return Prompt(id=id_, role=role, content=message.content, created_at=time, metadata=metadata)

    def _result_in_input(
        self, result: Result, id_: str, time: datetime | None, around: Sequence[str]
    ) -> Iterator[Entry]:
        """Yield a result that is in the input of a generation, and in no observation."""
        open_call, is_guessed = self._calls.find(next(iter(result.call_ids), None), result.name, None, around)
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
            call=call,
            is_guessed=is_guessed,
            name=call.name,
            created_at=time,
            metadata=result.metadata,
        )

    # --- Generations and tools ---

    def _generation(self, trace: Trace, generation: Observation) -> Iterator[Entry]:
        generation.used = True
        parent = self._executed.find(generation.number)
        around = self._around(generation)
        # In one run only the results in an input are read, and most inputs repeat all of those before.
        messages = [] if self._one_run else messages_in(generation.input)
        metadata = _metadata(generation)
        if self._one_run:
            self._unread.append(generation)
            if self._calls.are_open():
                for result in self._new_results():
                    yield from self._result_in_input(result, generation.id, generation.start, around)
        elif parent is None:
            # The first input has the time of the trace, which may begin before its first generation.
            when = generation.start if self._replied else trace.began
            yield from self._new_messages(
                trace, self._without_earlier_turns(trace, messages), generation.id, when, around
            )
        elif prompts := [
            message.content for message in messages if message.role in ("system", "user") and message.content
        ]:
            # The prompt of a sub-agent comes from an agent, not from the user.
            metadata["prompt"] = prompts
        if not self._one_run and (unknown := self._unknown(messages)):
            metadata["context"] = unknown
        if not self._one_run and not messages and generation.input not in EMPTY:
            metadata["input"] = generation.input
        answer = joined(messages_in(generation.output, "assistant"))
        for name, value, is_read in (("request", generation.input, messages), ("response", generation.output, answer)):
            if self._one_run:
                break
            if is_read and isinstance(value, dict) and "role" not in value and (others := rest(value, _MESSAGE_FIELDS)):
                metadata[name] = others
        if answer is None and generation.output not in EMPTY:
            answer = ParsedMessage(role="assistant", content=_content(generation.output, _ANSWER_KEYS))
        yield self._reply(
            answer or ParsedMessage(role="assistant"),
            Reply(
                id=generation.id,
                content=None,
                agent_name=generation.agent,
                model=generation.model,
                usage=generation.usage,
                created_at=generation.start,
                duration=between(generation.start, generation.end),
                step_id=generation.id,
                is_request=self._one_run,
                input=model_input(
                    generation.input,
                    system=generation.system,
                    tools=generation.tools,
                    parameters=generation.parameters,
                ),
                time_to_first_token=generation.time_to_first_token,
                parent_call=(parent.id or "") if parent is not None else "" if generation.is_guessed else None,
                parent=parent,
                error=generation.error,
                health=_health(generation),
                metadata=metadata,
            ),
            around,
        )

    def _tokens(self, observation: Observation) -> Reply:
        """Return the reply of an observation that is no generation, but has tokens or a cost."""
        parent = self._executed.find(observation.number)
        return Reply(
            id=f"{observation.id}{TOKENS_ONLY}",
            content=None,
            agent_name=observation.agent,
            model=observation.model,
            usage=observation.usage,
            created_at=observation.start,
            duration=between(observation.start, observation.end),
            step_id=f"{observation.id}{TOKENS_ONLY}",
            parent_call=(parent.id or "") if parent is not None else None,
            parent=parent,
            is_request=True,
            health=_health(observation),
            metadata=_metadata(observation),
        )

    def _around(self, observation: Observation) -> list[str]:
        """Return the ids of an observation and of those around it, the nearest first."""
        assert self._trace is not None, "entries() has set it"
        ids: list[str] = []
        nearest: Observation | None = observation
        while nearest is not None and len(ids) < _MOST_AROUND:
            ids.append(nearest.id)
            nearest = self._trace.observations.get(nearest.parent) if nearest.parent is not None else None
        return ids

    @cached_property
    def _stated(self) -> tuple[dict[str, list[str]], dict[str, list[Any]]]:
        """The pairs of calls and results in the inputs of the trace's generations: the ids by the output as a text, and the
        different outputs by the id. Most traces are read without it."""
        assert self._trace is not None, "entries() has set it"
        ids, outputs = defaultdict[str, list[str]](list), defaultdict[str, list[Any]](list)
        pairs: set[tuple[str, str]] = set()
        for generation in self._trace.observations.values():
            for message in messages_in(generation.input) if generation.kind == "generation" else ():
                for result in message.results:
                    for call_id in result.call_ids:
                        pair = call_id, canonical(result.output)
                        if pair not in pairs:
                            pairs.add(pair)
                            ids[pair[1]].append(call_id)
                            outputs[call_id].append(result.output)
        return ids, outputs

    def _ids_of(self, output: Any) -> Iterable[str]:
        """Return the ids of the calls to which a later request gives an output. Those at the beginning whose calls were answered
        are looked at once only, because many calls may have the same output."""
        key = canonical(output)
        ids, first = self._stated[0].get(key, []), self._answered.get(key, 0)
        while first < len(ids) and self._calls.was_answered(ids[first]):
            first += 1
        self._answered[key] = first
        return map(ids.__getitem__, range(first, len(ids)))

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
                if result.call_ids and not self._calls.knows(result.call_ids[0])
            ]
        return unknown

    def _without_earlier_turns(self, trace: Trace, messages: list[ParsedMessage]) -> list[ParsedMessage]:
        """Drop the turns up to the last answer from the first input of a trace: they belong to other traces."""
        if self._replied or not trace.has_session:
            return messages
        last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
        return [message for index, message in enumerate(messages) if index > last or message.role == "system"]

    def _reply(self, message: ParsedMessage, reply: Reply, around: Sequence[str] = ()) -> Reply:
        """Return the reply with the content of a message, and register its calls."""
        if reply.step_id is not None:
            self._replied = True
        if not (self._one_run and self._replied):
            # Within a run, only the replies before its first are compared.
            self._seen["assistant", _reply_key(message)] += 1
        if any(call.id is not None and self._calls.knows(call.id) for call in message.calls):
            # Such an id is open again.
            self._answered.clear()
        self._calls.add(message.calls, around)
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

    def _is_tool(self, observation: Observation) -> bool:
        if observation.kind == "tool":
            return True
        names = (observation.name, _tool_name(observation.name))
        return observation.kind != "generation" and any(map(self._calls.has_name, names))

    def _tool(self, observation: Observation) -> Iterator[Entry]:
        """Yield the result of a tool observation, after a call of its own if no generation requested it."""
        name = observation.tool_name or _tool_name(observation.name)
        output, answer = _tool_output(observation.output)
        call_id = _own_call_id(observation)
        open_call: OpenCall | None
        handoff: OpenCall | None = None
        if (agent := _handoff_target(observation, name)) is not None:
            # The OpenAI Agents SDK's own name for the tool, which may have another one.
            tool = HANDOFF_PREFIX + re.sub("[^a-z0-9]", "_", agent.lower())
            if self._calls.has_name(tool):
                name = tool
            elif call_id is None and not self._calls.has_name(name):
                handoff = self._requested_handoff(observation)
                name = handoff.call.name if handoff is not None else name
        has_output = output not in EMPTY
        if handoff is not None:
            open_call, is_guessed = handoff, False
        else:
            open_call, is_guessed = self._calls.find(
                call_id,
                name,
                observation.input if observation.input not in EMPTY else None,
                self._around(observation),
                lambda: self._ids_of(output) if has_output else (),
            )
        parent = self._executed.find(observation.number)
        if open_call is None:
            if (
                same := parent
                if parent is not None and parent.name == name
                else self._executed_beside(observation, call_id, name)
            ):
                # Two instrumentations observed the same call.
                self._executed.put(observation.number, observation.number_after, same)
                return
            call = Call(
                id=call_id or observation.id,
                name=name,
                args=observation.input,
                started_at=observation.start,
            )
            open_call = OpenCall(call)
            if observation.is_paused:
                self._calls.add([call], self._around(observation))
            yield Reply(
                id=f"{observation.id}{OWN_CALL}",
                content=None,
                calls=[call],
                agent_name=observation.agent,
                created_at=observation.start,
                step_id=f"{observation.id}{OWN_CALL}",
                parent_call=(parent.id or "") if parent is not None else None,
                parent=parent,
            )
        is_guessed = is_guessed or observation.is_guessed
        observation.used = True
        open_call.answered = not observation.is_paused
        self._executed.put(observation.number, observation.number_after, open_call.call)
        if call_id is not None and not observation.is_paused:
            self._executing[call_id, name] = observation, open_call.call
        error = observation.error or next((part.error for part in observation.children if part.name in _PARTS), None)
        if open_call.call.id and (is_guessed or not (has_output or error)):
            # The next request names the call: this is what the model was told.
            stated = self._stated[1].get(open_call.call.id, ())
            output = stated[0] if len(stated) == 1 else output
        if not open_call.call.id:
            self._new_results()
            self._seen[_result_key(name, output)] += 1
        if observation.is_paused or (output is None and error is None and observation.end is None):
            # The call is still running, or goes on later.
            return
        yield Result(
            id=observation.id,
            output=output if output is not None else error or "",
            # The output may say why.
            error=error if error and has_output and not error.endswith(NO_REASON) else None,
            failed=True if error else answer.failed if answer is not None else None,
            data=answer.data if answer is not None else None,
            created_at=observation.end or observation.start,
            started_at=observation.start,
            duration=between(observation.start, observation.end),
            call_ids=[open_call.call.id] if open_call.call.id else (),
            call=open_call.call,
            is_guessed=is_guessed,
            name=name,
            metadata=observation.metadata | ({"statusMessage": error} if error else {}),
        )

    def _requested_handoff(self, observation: Observation) -> OpenCall | None:
        """Return the call of a handoff, if it is the only one of its agent's last request that no tool has executed."""
        assert self._trace is not None, "entries() has set it"
        observations, above = self._trace.observations, self._executed.find(observation.number)

        def is_of_agent(id_: str) -> bool:
            # An agent that is used as a tool makes later requests within the same spans.
            return id_ in observations and self._executed.find(observations[id_].number) is above

        for span in self._around(observation)[1:]:
            calls = self._calls.of_last_request(span, is_of_agent)
            if calls is not None:
                return calls[0] if len(calls) == 1 else None
        return None

    def _executed_beside(self, observation: Observation, call_id: str | None, name: str) -> Call | None:
        """Return the call that another tool of this id, name, input and output was executing when this one began."""
        other, call = self._executing.get((call_id or "", name), (None, None))
        if other is None or observation.start is None or (other.end is not None and other.end <= observation.start):
            return None
        outputs = (_tool_output(one.output)[0] for one in (observation, other))
        return call if may_be_the_same(observation.input, other.input) and may_be_the_same(*outputs) else None


# --- Observations -------------------------------------------------------------------------------------------------


def _ordered(observations: dict[str, Observation]) -> list[Observation]:
    """Connect, and sort by time; of observations that begin together the outer one comes first."""
    _connect(observations)
    return sorted(
        observations.values(),
        key=lambda observation: (observation.start or EARLIEST, observation.depth, observation.place),
    )


def _asked_roots(ordered: Iterable[Observation]) -> list[Observation]:
    """Return the roots that have a question and an answer: the arguments and the result of a tool are those of its call."""
    return [observation for observation in ordered if observation.parent is None and observation.kind != "tool"]


def _connect(observations: dict[str, Observation]) -> None:
    """Set the fields of observations that depend on those above and below them. Those on a cycle become roots."""
    for cycle in cycles({id_: observation.parent for id_, observation in observations.items()}):
        for id_ in cycle:
            observations[id_].parent = None
    roots: list[Observation] = []
    for observation in observations.values():
        observation.children = []
    for observation in observations.values():
        parent = observations.get(observation.parent) if observation.parent is not None else None
        (parent.children if parent is not None else roots).append(observation)
    walked = walk(roots, attrgetter("children"))
    for number, observation in enumerate(walked):
        observation.number = number
        own_name = observation.name if observation.kind == "agent" else ""
        observation.agent = observation.agent_name or own_name or observation.agent
        for child in observation.children:
            child.depth = observation.depth + 1
            child.is_below_tool = observation.is_below_tool or observation.kind == "tool"
            child.agent = observation.agent
    for observation in reversed(walked):
        children = observation.children
        observation.number_after = children[-1].number_after if children else observation.number + 1


def _health(observation: Observation) -> list[str]:
    return [GUESSED_RESULT] if observation.is_guessed else []


def _metadata(observation: Observation) -> dict[str, Any]:
    return {**observation.metadata, **dict.fromkeys(_health(observation), True)}


class Spent(NamedTuple):
    """An observation with tokens or a cost, which is no tool."""

    number: int
    number_after: int
    is_generation: bool
    is_part: bool
    """Whether it is a part of what the observations around it have spent: an agent's tokens do not include those of embeddings,
    and what has no output tokens is no request of the agent either."""

    @classmethod
    def of(cls, row: Any, kind: Kind | None, usage: dict[str, Any] | None, *, is_embedding: bool | None) -> Spent:
        """Return that of an observation or node."""
        given, output = tokens(usage)
        is_part = kind == "generation" or (not is_embedding and (output > 0 or not given))
        return cls(row.number, row.number_after, kind == "generation", is_part)


def counted_beside_requests(spending: Iterable[Spent]) -> set[int]:
    """Return the numbers of those observations with tokens or a cost that are no generations, but count: nothing below them is a
    part of what they have spent, and no generation with tokens is around them."""
    ordered = sorted(spending)
    ends = [*accumulate((one.number_after if one.is_generation else 0 for one in ordered), max)]
    counted: set[int] = set()
    following: Spent | None = None
    next_part: Spent | None = None
    for one, after_generation in zip(reversed(ordered), reversed(ends), strict=True):
        # An embedding may be seen twice, by the SDK and by the request below it.
        nearest = next_part if one.is_part else following
        has_no_parts = nearest is None or nearest.number >= one.number_after
        if not one.is_generation and one.number >= after_generation and has_no_parts:
            counted.add(one.number)
        following, next_part = one, one if one.is_part else next_part
    return counted


def _replying(generations: list[Observation]) -> list[Observation]:
    """Return the generations that are replies: the inner ones, unless the only inner one of an outer one is empty."""
    left_out: set[str] = set()
    for generation in generations:
        wrapped = _wrapped(generation)
        if len(wrapped) == 1 and _has_more_output(generation, wrapped[0]):
            left_out.add(wrapped[0].id)
        elif wrapped:
            left_out.add(generation.id)
    return [generation for generation in generations if generation.id not in left_out]


def _wrapped(generation: Observation) -> list[Observation]:
    """Return up to two generations below this one and not below a tool; the caller needs to know none, one or more."""
    waiting = list(generation.children)
    wrapped: list[Observation] = []
    while waiting and len(wrapped) < 2:
        below = waiting.pop()
        if below.kind == "tool":
            continue
        if below.kind == "generation":
            wrapped.append(below)
        waiting += below.children
    return wrapped


def _has_more_output(outer: Observation, inner: Observation) -> bool:
    """Return whether the outer generation has calls or text that the inner one lacks."""
    (calls, has_text), (inner_calls, inner_has_text) = _output_size(outer), _output_size(inner)
    return calls > inner_calls or (has_text and not inner_has_text and not inner_calls)


def _output_size(generation: Observation) -> tuple[int, bool]:
    """Return the number of calls in the output of a generation, and whether it has text."""
    answer = joined(messages_in(generation.output, "assistant"))
    if answer is not None:
        return len(answer.calls), bool(answer.content)
    return 0, generation.output not in (*EMPTY, *_EMPTY_TEXTS)


def _from_python(value: Any) -> Any:
    """Parse a text with an object in Python notation, as BeeAI writes its answers; return other values unchanged."""
    parsed = json_or_python(value) if isinstance(value, str) else None
    return parsed if isinstance(parsed, dict) else value


def _own_call_id(observation: Observation) -> str | None:
    """Return the call id that a tool observation names itself, or its input or output."""
    if observation.call_id:
        return observation.call_id
    _output, answer = _tool_output(observation.output)
    value = fields(observation.input)
    # LangChain passes the call itself to the tool.
    input_id = text(value.get("id")) if value.get("type") == "tool_call" else None
    return next(filter(None, [*(answer.call_ids if answer is not None else ()), input_id]), None)


def _requested_tools(
    ordered: list[Observation], reply_ids: set[str]
) -> Iterator[tuple[Observation, list[Observation]]]:
    """Yield each generation whose output was not recorded, with the tools that ran after it on the same level."""
    latest: dict[str | None, Observation] = {}
    tools: dict[str, list[Observation]] = {}
    for observation in ordered:
        if observation.id in reply_ids:
            latest[observation.parent] = observation
        elif (
            observation.kind == "tool" and (generation := latest.get(observation.parent)) and generation.output in EMPTY
        ):
            tools.setdefault(generation.id, []).append(observation)
    yield from ((observation, tools[observation.id]) for observation in ordered if observation.id in tools)


def _request_of(tool: Observation) -> dict[str, Any]:
    name = tool.tool_name or _tool_name(tool.name)
    return {"type": "tool_call", "id": _own_call_id(tool), "name": name, "arguments": tool.input}


def _tool_name(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _TOOL_PREFIXES if name.startswith(prefix)), name)


def _handoff_target(observation: Observation, name: str) -> str | None:
    """Return the agent to which an observation with the name of this tool hands over; None if it is no handoff."""
    if handoff := _HANDOFF.fullmatch(name):
        return handoff[1]
    agent = text(fields(observation.input).get("to_agent"))
    return agent if agent is not None and name == f"{_HANDOFF_TOOL}{agent}" else None


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


def _argument(value: Any) -> Any:
    """Return the only argument of a function, or its named ones, from the form in which decorators record them."""
    if not isinstance(value, dict) or value.keys() != {"args", "kwargs"}:
        return value
    args, kwargs = value["args"], value["kwargs"]
    if args in EMPTY and kwargs not in EMPTY:
        return kwargs
    return args[0] if isinstance(args, list) and len(args) == 1 and kwargs in EMPTY else value


def question_in(value: Any) -> str | list[Any] | None:
    """Return what an input asks: its last user message, a text, or that under a usual key. None for all others."""
    value = _argument(value)
    asked = [message.content for message in messages_in(value) if message.role == "user" and message.content]
    if asked:
        return asked[-1]
    if isinstance(value, dict):
        value = next((value[key] for key in _PROMPT_KEYS if isinstance(value.get(key), str)), None)
    return value if isinstance(value, str) and value.strip() and not _AN_OBJECT.match(value.lstrip()) else None


def returned_text(output: Any) -> str | None:
    """Return the text of an output that is nothing else: a text, or an object with an answer only. None for all others,
    such as the state of a graph, also if it was written in Python notation."""
    value = _from_python(output)
    if isinstance(value, dict) and len(value) == 1:
        key, value = next(iter(value.items()))
        value = value if key in _ANSWER_KEYS else None
    is_text = isinstance(value, str) and value.strip() and value not in _NO_ANSWERS
    return value if is_text and not _AN_OBJECT.match(value.lstrip()) else None


def _content(value: Any, keys: tuple[str, ...]) -> str | list[Any]:
    """Return a value as content of a message: its text, or that under a usual key, else its JSON."""
    if isinstance(value, str):
        return value
    texts = [value[key] for key in keys if isinstance(value.get(key), str)] if isinstance(value, dict) else []
    return texts[0] if texts and texts[0] else as_json(value)


def _reply_key(message: ParsedMessage) -> str:
    """Return a text that identifies a reply by its content and its calls."""
    return as_json([message.content, [call.id or f"{call.name} {canonical(call.args)}" for call in message.calls]])


def _result_key(name: str | None, output: Any) -> tuple[str, str]:
    """Return a text that identifies a result without an id."""
    return "tool", f"{name} {canonical(output)}"


def digest(value: Any) -> bytes:
    return blake2b(as_json(value).encode(), digest_size=16).digest()
