"""Fold events into records of the run, its steps and its calls. Pure functions.

The rows are a function of the set of events, so neither the order nor the number of deliveries matters:

* every event is about one subject (`subject_of`): a step, a call, or the run as a whole;
* each subject is folded from all of its events, in the order of the producer's numbers, else of times, else of arrival. A
  later value replaces an earlier one unless it is empty (`step_record`, `call_record`, `run_state`);
* positions follow from the first event of each subject (step_order.py).

Only the subjects of a batch are folded, so a run of a thousand events is not read again for each new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, assert_never, get_args

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import move_extra_fields_to_metadata
from tracesite_sdk.normalize.json_values import as_json, text
from tracesite_sdk.normalize.pricing import is_amount
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.tool_results import NO_REASON, normalize_result, received
from tracesite_sdk.records.event_types import EVENT_TYPES, EventType, Stage
from tracesite_sdk.records.health_flags import EMPTY_TOOL_NAME, ORPHAN_RESULT, STOPPED
from tracesite_sdk.records.losses import About, Cut, added, counts_of, cuts_at, documents, flags_of
from tracesite_sdk.records.request_parts import CONVERSATION
from tracesite_sdk.transcripts.parsing.requests import model_input

RUN = "run"
"""The subject of events about the run as a whole; also the external id of a message that events do not name."""
_STEP, _CALL, _DELTA = "step:", "call:", "delta:"
MADE_STEP = "step:of "
_LONGEST_SUBJECT = 400
_STATUSES = get_args(records.SessionStatus)
_STATUS_AT_END = {True: "completed", False: "error"}
_ENDS: tuple[Stage, ...] = ("end", "error")
_AGENT_STATUSES = {"start": "running", "end": "done", "error": "error"}
MOST_INT = 2**31 - 1
UNKNOWN = "unknown"
"""The tool of a call of which only a result without a name has arrived."""
# The names that producers use for a value, in order of precedence.
_CALL_ID = ("call_id", "callId", "tool_call_id", "toolCallId", "toolId")
_CALL_NAME = ("name", "tool_name", "toolName", "tool")
_ARGS = ("args", "params", "arguments", "input")
_THOUGHT = ("thought", "text", "content", "output")
_FIRST_TOKEN = ("time_to_first_token", "timeToFirstToken")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_PROMPT = ("prompt", "task_prompt", "taskPrompt")
_AGENT_NAME = ("agent_name", "agentName")
_RESULT = ("result", "tool_result", "toolResult")
_CALL_RESULT = (*_RESULT, "output")
_CALL_TEXTS = records.text_fields(records.ToolCall)
OF_A_MESSAGE = (*_PROMPT, *_RESULT, "content", "references", "usage", "metadata")
"""Fields of events about a run from which its session takes nothing."""
_LONGEST_NAME, _LONGEST_TAG = 512, 200
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
RUN_ANSWER = "run_answer"
"""Key of events about a step: the answer of the run, if the text of the step is that; "" if it is so no longer."""
RECORDER, CUTS = "recorder", "truncated"
"""Keys of metadata: the loss counters of the recorder (in messages), and the truncated values (in messages, steps, calls)."""


@dataclass(frozen=True, kw_only=True)
class EventFact:
    """The parts of an event that matter for rows."""

    order: int
    """The producer's number, or else the time in nanoseconds since 1970."""
    tie: int = 0
    """For events without a number: our number, which orders events of the same time."""
    external_id: str
    type: EventType
    agent: str
    subject: str
    timestamp: datetime
    data: Mapping[str, Any]
    is_stored: bool = False
    """Whether it is read back, without the messages of a request, which the row of its step has."""

    @property
    def stage(self) -> Stage:
        return EVENT_TYPES[self.type].stage

    def place(self) -> tuple[int, int, str]:
        return self.order, self.tie, self.external_id


class Subject(NamedTuple):
    """The fields that determine the position of a step or call: the least value over its events."""

    first: tuple[int, int]
    """Order and tie of its first event."""
    agent: str
    step: str
    """For a call, the subject of the step that it names."""
    iteration: int | None
    parent: str
    """For a call, the name of its parent."""

    def with_more(self, other: Subject) -> Subject:
        return Subject(
            min(self.first, other.first),
            _least(self.agent, other.agent),
            _least(self.step, other.step),
            min((i for i in (self.iteration, other.iteration) if i is not None), default=None),
            _least(self.parent, other.parent),
        )


# --- Subjects -----------------------------------------------------------------------------------------------------


def subject_of(type_: EventType, agent: str, external_id: str, data: Mapping[str, Any]) -> str:
    """Return the key of the run, step or call that an event is about; "" if it contributes to none."""
    spec = EVENT_TYPES[type_]
    match spec.subject:
        case "call":
            # A note starts no call, so one that names none cannot be matched with anything.
            unnamed = "" if spec.stage == "note" else _short(f"{_CALL}{agent}:{external_id}")
            return call_named(agent, data) or unnamed
        case "step":
            if step := step_named(agent, data):
                return step
            # The end of a request that names no step is a step of its own; its start cannot be matched with anything, and
            # its deltas belong to the next end: see deltas.py.
            if spec.stage == "end":
                return _short(f"{_STEP}{external_id}")
            return delta_subject(agent) if delta_of(data) else ""
        case "run":
            return RUN
        case "nothing":
            return ""
        case _:
            assert_never(spec.subject)


def call_named(agent: str, data: Mapping[str, Any]) -> str:
    """Return the subject of the call that an event names, or ""."""
    if own := _name(data, ("uuid",)):
        return _short(f"{_CALL}{own}")
    named = _name(data, _CALL_ID)
    return _short(f"{_CALL}{agent}:{named}") if named else ""


def step_named(agent: str, data: Mapping[str, Any]) -> str:
    """Return the subject of the step that an event names, or ""."""
    if step := _name(data, ("step", "step_id", "stepId")):
        return _short(f"{_STEP}{step}")
    iteration = _iteration(data)
    return "" if iteration is None else _short(f"{_STEP}{agent}:{iteration}")


def is_call(subject: str) -> bool:
    return subject.startswith(_CALL)


def is_step(subject: str) -> bool:
    return subject.startswith(_STEP)


def delta_subject(agent: str) -> str:
    """Return the subject of the deltas of an agent that name no step."""
    return _short(f"{_DELTA}{agent}")


def is_delta(subject: str) -> bool:
    """Return whether an event is a piece of the text of a step that it does not name."""
    return subject.startswith(_DELTA)


def delta_of(data: Mapping[str, Any]) -> str:
    """Return the piece of a model's text that an event brings, or ""."""
    token = data.get("token")
    return token if isinstance(token, str) else ""


def about(subject: str) -> About:
    """Return the kind of a subject."""
    return "call" if is_call(subject) else "step" if is_step(subject) else "run"


def is_unnamed_call(type_: EventType, data: Mapping[str, Any]) -> bool:
    """Return whether an event starts or ends a call without identifying it."""
    spec = EVENT_TYPES[type_]
    return spec.subject == "call" and spec.stage != "note" and not _name(data, ("uuid", *_CALL_ID))


def tool_name(data: Mapping[str, Any]) -> str:
    """Return the tool that an event of a call names, or ""."""
    name = next((named for name in _CALL_NAME if (named := _name(data, (name,)))), "")[:_LONGEST_NAME]
    return "" if name.isspace() else name


def nanoseconds(moment: datetime) -> int:
    """Return the order of an event of this time that has no number."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def subject_of_data(fact: EventFact) -> Subject:
    """Return the position fields of one event."""
    step = step_named(fact.agent, fact.data) if is_call(fact.subject) else ""
    first = fact.order, fact.tie
    return Subject(first, fact.agent, step, _iteration(fact.data), _name(fact.data, ("parent", "parent_id")))


def subjects_from(events: Iterable[EventFact], known: Mapping[str, Subject]) -> dict[str, Subject]:
    """Return `known` with the position fields of `events` merged in."""
    subjects = dict(known)
    for fact in events:
        if is_call(fact.subject) or is_step(fact.subject):
            subject = subject_of_data(fact)
            before = subjects.get(fact.subject)
            subjects[fact.subject] = subject if before is None else before.with_more(subject)
    return subjects


def made_step(agent: str) -> str:
    """Return the subject of the step that holds an agent's calls before its first step."""
    return _short(f"{MADE_STEP}{agent}")


def parents_meant(call: Subject) -> tuple[str, ...]:
    """Return the subjects that the parent name of a call may refer to, the likelier first."""
    return (_short(f"{_CALL}{call.parent}"), _short(f"{_CALL}{call.agent}:{call.parent}")) if call.parent else ()


# --- Folds --------------------------------------------------------------------------------------------------------


def step_record(
    subject: str, events: Sequence[EventFact], iteration: int, calls: list[records.ToolCall]
) -> records.AgentStep:
    """Fold the events of a step; without any, return an empty step for its calls."""
    thoughts: dict[str, str] = {}
    reasoning: dict[str, str] = {}
    agent_name = model = ""
    usage: dict[str, Any] | None = None
    cost: float | None = None
    duration: float | None = None
    first_token: float | None = None
    asked: records.ModelInput | None = None
    error = answer = ""
    metadata: dict[str, Any] = {}
    for fact in events:
        if RUN_ANSWER in fact.data:
            answer = _text(fact.data, (RUN_ANSWER,))
            continue
        stream = _name(fact.data, ("stream", "stream_id", "streamId"))
        is_answer = fact.stage == "end"
        # In the start of a request these fields hold the input of the model.
        _put(thoughts, stream, _text(fact.data, _THOUGHT if is_answer else _THOUGHT[:1]))
        _put(reasoning, stream, _text(fact.data, _REASONING))
        metadata |= _object(fact.data, "metadata")
        agent_name = _name(fact.data, _AGENT_NAME) or fact.agent or agent_name
        model = _name(fact.data, ("model",)) or model
        stated = fact.data.get("usage")
        usage = stated if isinstance(stated, dict) and stated else usage
        cost = stated if is_amount(stated := fact.data.get("cost")) else cost
        duration = _duration(fact.data, duration)
        first_token = _milliseconds(fact.data, _FIRST_TOKEN, first_token)
        if (request := _input(fact)) is not None:
            # None if it is stored: the row has it, and a merge empties nothing.
            asked = None if fact.is_stored else request
        error = _text(fact.data, ("error",)) or error
    thought = "\n\n".join(thoughts.values()) or deltas_in(events)
    return records.AgentStep(
        id=subject,
        iteration=iteration,
        # What the run answers is the content of its message, and no thought.
        thought=None if thought == answer else thought,
        reasoning_content="\n\n".join(reasoning.values()) or None,
        agent_name=agent_name or None,
        model=model or None,
        usage=usage,
        cost=cost,
        timestamp=min((fact.timestamp for fact in events), default=None),
        duration=duration,
        input=asked,
        time_to_first_token=first_token,
        metadata={**metadata, **({"error": error} if error else {}), **_cuts(events, "step")} or None,
        tool_calls=calls,
    )


def deltas_in(events: Iterable[EventFact]) -> str:
    """Return the text of a step of which only deltas tell."""
    return "".join(delta_of(fact.data) for fact in events)


def may_have_answered(events: Sequence[EventFact]) -> bool:
    """Return whether events of a step say that its text is the answer of the run."""
    return any(RUN_ANSWER in fact.data for fact in events)


def _input(fact: EventFact) -> records.ModelInput | None:
    """Return what the model was asked, if an event says it; of a stored event, what it still has of it."""
    data = fact.data
    is_start = fact.stage == "start"
    request = data.get("request")
    # The messages of a stored event are stored elsewhere.
    if fact.is_stored and "conversationLength" in data and (is_start or "request" in data):
        return records.ModelInput()
    if not is_start:
        return model_input(request)
    asked = next(
        (candidate for candidate in (request, *map(data.get, CONVERSATION)) if model_input(candidate) is not None), None
    )
    return model_input(
        asked, system=data.get("system"), tools=data.get("tools"), parameters=_object(data, "parameters") or None
    )


def call_record(subject: str, events: Sequence[EventFact], parent: str | None) -> records.ToolCall:
    """Fold the events of a call."""
    name = call_id = ""
    texts: dict[str, str] = {}
    args: Any = None
    duration: float | None = None
    started_at = completed_at = None
    metadata: dict[str, Any] = {}
    marks = 0
    results: list[records.ToolResult] = []
    ends = [fact for fact in events if fact.stage in _ENDS]
    # An event that only adds to an ended call, such as a reflection, has no outcome.
    fields = (*_CALL_RESULT, "error", "success")
    outcomes = [e for e in ends if e.stage == "error" or _first(e.data, fields) is not None] or ends
    for fact in events:
        name = tool_name(fact.data) or name
        call_id = _name(fact.data, _CALL_ID) or call_id
        args = _first(fact.data, _ARGS) or args
        texts |= {name: value for name in _CALL_TEXTS if (value := _text(fact.data, (name,)))}
        duration = _duration(fact.data, duration)
        metadata |= _object(fact.data, "metadata")
        marks |= _marks_of(fact)
        if fact.stage == "start" and (started_at is None or fact.data.get("runs") is True):
            # A call may be reported when the model requests it, and again when its tool runs.
            started_at = fact.timestamp
    for fact in outcomes:
        completed_at = fact.timestamp
        results.append(_result(fact))
    record = records.ToolCall(
        id=call_id[:512] or None,
        uuid=subject,
        name=name or ("" if _is_nameless(marks) else UNKNOWN),
        args=args,
        result=_merged(results),
        duration=duration,
        started_at=started_at,
        completed_at=completed_at,
        parent=parent,
        metadata={**metadata, **({ORPHAN_RESULT: True} if _is_orphan(marks) else {}), **_cuts(events, "call")} or None,
    )
    return msgspec.structs.replace(record, **texts) if texts else record


def is_cut(subject: str, events: Sequence[EventFact]) -> bool:
    """Return whether the recorder truncated values of this step or call."""
    return bool(_cuts(events, about(subject)))


def _cuts(events: Sequence[EventFact], about: About) -> dict[str, Any]:
    """Return the truncated values of a step or call as metadata."""
    cuts = documents(cut for fact in events for _owner, cut in cuts_at(fact.data, about))
    return {CUTS: cuts} if cuts else {}


def _result(fact: EventFact) -> records.ToolResult:
    """Return the result in an event, with the outcome stated next to it; tool_results.py decides the rest."""
    value = _first(fact.data, _CALL_RESULT)
    result = received("" if value is None else value)
    error = _text(fact.data, ("error",))
    if fact.stage == "error":
        return msgspec.structs.replace(result, status="error", error=result.error or error or None)
    stated = next((flag for name in ("success", "status") if (flag := _stated(fact.data.get(name))) is not None), None)
    if error and stated is not True:
        return msgspec.structs.replace(result, status="error", error=result.error or error)
    if stated is None or result.status is not None or result.success is not None:
        return result
    return msgspec.structs.replace(result, success=stated)


def _stated(flag: object) -> bool | None:
    """Return whether a flag next to a result states success; None if it states nothing."""
    return (
        flag
        if isinstance(flag, bool)
        else {"success": True, "error": False}.get(flag)
        if isinstance(flag, str)
        else None
    )


def _merged(results: Sequence[records.ToolResult]) -> records.ToolResult | None:
    """Return the last result, with its empty fields filled from earlier ones."""
    if len(results) < 2:
        return results[0] if results else None
    # Normalise each first, because the merged values no longer show which of them failed.
    *earlier, last = [normal for result in results if (normal := normalize_result(result, None)) is not None]
    filled = {
        name: next(
            (getattr(result, name) for result in reversed(earlier) if getattr(result, name)), getattr(last, name)
        )
        for name in ("output", "data", "attachments", "raw")
        if not getattr(last, name)
    }
    # A stated reason takes precedence over one derived from the output.
    errors = [result.error for result in (last, *reversed(earlier)) if result.error]
    made = {result.output for result in (*earlier, last)} | {NO_REASON}
    error = next((error for error in errors if error not in made), errors[0] if errors else "")
    metadata = {name: item for result in (*earlier, last) for name, item in (result.metadata or {}).items()}
    return msgspec.structs.replace(last, **filled, error=error, metadata=metadata or None)


# --- Problems with calls --------------------------------------------------------------------------------------

_ANNOUNCED, _NAMED, _NAMES_NONE, _ENDED = 1, 2, 4, 8
"""Bits for the events of a call: it was announced; it was named; a field that should hold its name is empty; it ended."""


def _marks_of(fact: EventFact) -> int:
    is_start = fact.stage == "start"
    marks = _ANNOUNCED if is_start or _first(fact.data, _ARGS) is not None else 0
    if tool_name(fact.data):
        marks |= _NAMED
    elif is_start or not fact.data.keys().isdisjoint(_CALL_NAME):
        marks |= _NAMES_NONE
    return marks | (_ENDED if fact.stage in _ENDS else 0)


def _is_orphan(marks: int) -> bool:
    return bool(marks & _ENDED) and not marks & _ANNOUNCED


def _is_nameless(marks: int) -> bool:
    return bool(marks & _NAMES_NONE) and not marks & _NAMED


@dataclass(frozen=True, kw_only=True)
class CallFlags:
    """The problems with the calls of a run, and the bits from which they follow."""

    marks: Mapping[str, int] = field(default_factory=dict)
    """Marks by subject."""
    orphans: frozenset[str] = frozenset()
    """Results without a call: no event announced it or gave its arguments."""
    nameless: frozenset[str] = frozenset()

    def with_events(self, events: Iterable[EventFact]) -> CallFlags:
        added: dict[str, int] = {}
        for fact in events:
            if is_call(fact.subject):
                added[fact.subject] = added.get(fact.subject, self.marks.get(fact.subject, 0)) | _marks_of(fact)
        if not added:
            return self
        return CallFlags(
            marks={**self.marks, **added},
            orphans=self.orphans.difference(added) | {call for call, marks in added.items() if _is_orphan(marks)},
            nameless=self.nameless.difference(added) | {call for call, marks in added.items() if _is_nameless(marks)},
        )

    @property
    def flags(self) -> set[str]:
        """Health flags of the message."""
        odd = {ORPHAN_RESULT: self.orphans, EMPTY_TOOL_NAME: self.nameless}
        return {flag for flag, calls in odd.items() if calls}


class Interruption(NamedTuple):
    """A report that the process of a run is gone: see messages_app.interruptions."""

    reason: str
    at: datetime
    event: str
    """The external id of the event that reports it."""


def interruption_of(fact: EventFact) -> Interruption | None:
    """Return the interruption that an event reports, if any."""
    if fact.type != "workflow_execute_complete":
        return None
    reason = _name(fact.data, ("interrupted",))
    return Interruption(reason, fact.timestamp, fact.external_id) if reason else None


@dataclass(kw_only=True)
class RunState:
    """A run as a whole, with the fields that its session takes from it."""

    status: records.SessionStatus | None = None
    """As stated by an event, or implied by its type."""
    is_status_given: bool = False
    phase: str = ""
    workflow: Any = None
    title: str = ""
    description: str = ""
    end_user: str = ""
    tags: list[str] = field(default_factory=list)
    session_metadata: dict[str, Any] = field(default_factory=dict)
    request_id: str = ""
    """The id shared by the user's message and the answer."""
    prompt: str = ""
    prompt_parts: list[Any] | None = None
    content: str = ""
    content_parts: list[Any] | None = None
    references: list[records.Reference] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: str = ""
    completed_at: datetime | None = None
    interruption: Interruption | None = None
    """The last one reported; the run may have continued since."""
    open_attempts: set[str] = field(default_factory=set)
    """For a run that several processes work on: attempts that have started and not ended."""
    duration: float | None = None
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    own_metadata: dict[str, Any] = field(default_factory=dict)
    root_tool: str = ""
    """For a chain of calls, the root that its tracker named."""
    losses: dict[str, int] = field(default_factory=dict)
    """The loss counters of the recorder: see losses.py."""
    prompt_cuts: list[Cut] = field(default_factory=list)
    answer_cuts: list[Cut] = field(default_factory=list)

    @property
    def status_of_session(self) -> records.SessionStatus | None:
        """The status to store. "running" lets it follow the messages, which is right for every implied status except a
        failure without an error text, because that does not show in them."""
        if self.is_status_given or self.status in (None, "planning") or (self.status == "error" and not self.error):
            return self.status
        return "running"

    @property
    def has_prompt(self) -> bool:
        return bool(self.prompt or self.prompt_parts)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Metadata of the answer."""
        own: dict[str, Any] = {"agents": self.agents, RECORDER: self.losses, CUTS: documents(self.answer_cuts)}
        own[records.ROOT_TOOL] = self.root_tool
        return {**self.own_metadata, **{name: value for name, value in own.items() if value}} or None

    @property
    def prompt_metadata(self) -> dict[str, Any] | None:
        return {CUTS: documents(self.prompt_cuts)} if self.prompt_cuts else None

    @property
    def flags(self) -> list[str]:
        """Health flags of the answer."""
        is_stopped = self.status == "aborted" and self.completed_at is not None
        return sorted({*flags_of(self.losses, self.answer_cuts), *([STOPPED] if is_stopped else [])})

    @property
    def prompt_flags(self) -> list[str]:
        return sorted(flags_of({}, self.prompt_cuts))


def run_state(events: Sequence[EventFact]) -> RunState:
    """Fold all events about a run as a whole."""
    state = RunState()
    answer = ""
    for fact in events:
        data = fact.data
        if interruption := interruption_of(fact):
            state.interruption = interruption
            state.open_attempts.discard(_name(data, ("attempt",)))
            continue
        prompt, parts = _content(data, _PROMPT)
        state.prompt = state.prompt or prompt
        state.prompt_parts = state.prompt_parts or parts
        spec = EVENT_TYPES[fact.type]
        match spec.fold:
            case "agent":
                _take_agent(state, fact, spec.stage)
                if spec.stage == "end":
                    answer = _content(data, _RESULT)[0] or answer
            case "plan":
                _take_workflow(state, fact)
            case "run":
                _take_workflow(state, fact)
                _take_run(state, fact)
                _take_attempt(state, fact)
                if spec.stage == "end":
                    content, parts = _content(data, (*_RESULT, "content"))
                    state.content = content or state.content
                    state.content_parts = parts or state.content_parts
                    state.error = _text(data, ("error",)) or state.error
                    state.completed_at = fact.timestamp
            case None:
                pass  # not about the run as a whole
            case _:
                assert_never(spec.fold)
    # The result of the last agent is the answer until the run has its own.
    state.content = state.content or answer
    return state


def _take_run(state: RunState, fact: EventFact) -> None:
    data = fact.data
    state.request_id = _name(data, ("request_id", "requestId"))[:_LONGEST_NAME] or state.request_id
    state.root_tool = _name(data, ("root_tool", "rootTool"))[:_LONGEST_NAME] or state.root_tool
    state.usage = _object(data, "usage") or state.usage
    state.own_metadata |= _object(data, "metadata")
    state.duration = _duration(data, state.duration)
    state.references = [_reference(reference) for reference in references_in(data)] or state.references
    state.losses = added(state.losses, counts_of(data))
    for owner, cut in cuts_at(data, "run"):
        (state.prompt_cuts if owner == "question" else state.answer_cuts).append(cut)
    session = _object(data, "session")
    state.title = _text(session, ("title",)) or state.title
    state.description = _text(session, ("description",)) or state.description
    state.end_user = _name(session, ("end_user",))[:_LONGEST_NAME] or state.end_user
    state.session_metadata |= _object(session, "metadata")
    tags = session.get("tags")
    if isinstance(tags, list):
        state.tags = [tag[:_LONGEST_TAG] for tag in tags if isinstance(tag, str) and tag] or state.tags


def _take_attempt(state: RunState, fact: EventFact) -> None:
    attempt = _name(fact.data, ("attempt",))
    if attempt and fact.type == "workflow_execute_start":
        state.open_attempts.add(attempt)
    else:
        state.open_attempts.discard(attempt)


def references_in(data: Mapping[str, Any]) -> list[Any]:
    """Return the references in an event; truncated ones are a text."""
    references = data.get("references")
    return (
        [references]
        if references and isinstance(references, str)
        else references
        if isinstance(references, list)
        else []
    )


def _reference(value: Any) -> records.Reference:
    """Return a reference; for anything that is not one, its text, with the whole value in its metadata."""
    if not isinstance(value, dict):
        return records.Reference(content=text(value))
    document = msgspec.json.decode(as_json(value))
    move_extra_fields_to_metadata(document, records.Reference)
    try:
        return msgspec.convert(document, records.Reference)
    except msgspec.ValidationError:
        return records.Reference(content=text(value.get("content")), metadata={"reference": value})


def _take_workflow(state: RunState, fact: EventFact) -> None:
    data = fact.data
    workflow = data.get("workflow")
    if workflow:
        state.workflow = workflow
        if isinstance(workflow, dict):
            state.title = text(workflow.get("name")) or state.title
            state.prompt = state.prompt or _text(workflow, _PROMPT)
    state.title = _name(data, ("title",)) or state.title
    default: str | None = None
    match fact.type:
        case "workflow_plan_start":
            state.phase, default = "plan", "planning"
        case "workflow_plan_complete":
            state.phase = "plan"
        case "workflow_execute_start":
            state.phase, default = "execute", "running"
        case "workflow_execute_complete":
            failed = bool(data.get("error")) or data.get("success") is False
            state.phase, default = "complete", _STATUS_AT_END[not failed]
    status = data.get("status")
    is_given = status in _STATUSES
    if status := status if is_given else default:
        state.status = status  # type: ignore[assignment]  # one of the words, which mypy cannot see
        state.is_status_given = is_given
    state.phase = _name(data, ("phase", "current_phase", "currentPhase")) or state.phase


def _take_agent(state: RunState, fact: EventFact, stage: str) -> None:
    if not fact.agent:
        return
    agent = state.agents.setdefault(fact.agent, {})
    if name := _name(fact.data, _AGENT_NAME):
        agent["name"] = name
    agent["status"] = _AGENT_STATUSES[stage]
    if error := _text(fact.data, ("error",)):
        agent["error"] = error


# --- Values -------------------------------------------------------------------------------------------------------


def _put(texts: dict[str, str], stream: str, value: str) -> None:
    if value:
        texts[stream] = value


def _first(data: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _name(data: Mapping[str, Any], names: Iterable[str]) -> str:
    value = _first(data, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _content(data: Mapping[str, Any], names: Iterable[str]) -> tuple[str, list[Any] | None]:
    """Return a text, and its content parts if it is given in parts."""
    value = _first(data, names)
    if isinstance(value, list) and value and all(map(_is_part, value)):
        return text_of(value)
    return _text(data, names), None


def _is_part(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and not value.keys().isdisjoint(("type", "text")))


def _text(data: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return a text; for an object its `message`, or its JSON."""
    value = _first(data, names)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        return str(value["message"])
    return as_json(value) if value else ""


def _iteration(data: Mapping[str, Any]) -> int | None:
    value = data.get("iteration")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_INT else None


def _duration(data: Mapping[str, Any], before: float | None) -> float | None:
    return _milliseconds(data, ("duration", "duration_ms"), before)


def _milliseconds(data: Mapping[str, Any], names: Iterable[str], before: float | None) -> float | None:
    value = _first(data, names)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 10**12
    return value if fits else before


def _least(left: str, right: str) -> str:
    return min(filter(None, (left, right)), default="")


def _short(name: str) -> str:
    """Return the name, or if it is too long for an index, its beginning and a digest."""
    raw = name.encode("utf-8", "backslashreplace").replace(b"\x00", b"\\u0000")
    if len(raw) > _LONGEST_SUBJECT:
        raw = raw[:300].decode("utf-8", "ignore").encode() + b"#" + blake2b(raw, digest_size=16).hexdigest().encode()
    return raw.decode()
