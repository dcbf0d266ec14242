"""What events come to: the run, its steps and its calls, as records. Pure functions, without Django.

The rows are a function of the set of events, so neither the order in which these arrive nor how often matters:

* every event speaks of one subject (`subject_of`): a step, a call, or the run as a whole;
* what is known of a subject is folded anew from all that was said of it, in the order of the producer's numbers, else of
  times, else of arrival. A later value takes the place of an earlier one, an empty one of none (`step_record`,
  `call_record`, `run_state`);
* where things stand is computed from where each subject was first spoken of (layout.py).

Only the subjects that a batch speaks of are folded, so a run of a thousand events is not read again for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, assert_never, get_args

import msgspec

from traces_app.normalize.extra_fields import keep_unknown
from traces_app.normalize.json_values import as_json, text
from traces_app.normalize.records import text_of
from traces_app.normalize.tool_results import NO_REASON, normal, received
from traces_app.schema import records
from traces_app.schema.event_types import EVENT_TYPES, EventType
from traces_app.schema.health_flags import EMPTY_TOOL_NAME, ORPHAN_RESULT
from traces_app.schema.losses import About, Cut, added, counts_of, cuts_at, documents, flags_of

RUN = "run"
"""The subject of what is about the run as a whole; also the external id of a message that events do not name."""
_STEP, _CALL = "step:", "call:"
MADE_STEP = "step:of "
_LONGEST_SUBJECT = 400
_STATUSES = get_args(records.SessionStatus)
_ENDED = {True: "completed", False: "error"}
_AGENT_STATUSES = {"start": "running", "end": "done", "error": "error"}
MOST_INT = 2**31 - 1
UNKNOWN = "unknown"
"""The name of a call of which only a result was heard, without a name."""
# Of several names that producers give a value, in the order in which they are looked for.
_CALL_ID = ("call_id", "callId", "tool_call_id", "toolCallId", "toolId")
_CALL_NAME = ("name", "tool_name", "toolName", "tool")
_ARGS = ("args", "params", "arguments", "input")
_THOUGHT = ("thought", "text", "content", "output")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_PROMPT = ("prompt", "task_prompt", "taskPrompt")
_AGENT_NAME = ("agent_name", "agentName")
_RESULT = ("result", "tool_result", "toolResult")
_CALL_RESULT = (*_RESULT, "output")
_CALL_TEXTS = records.text_fields(records.ToolCall)
OF_A_MESSAGE = (*_PROMPT, *_RESULT, "content", "references", "usage", "metadata")
"""Fields of what is said of a run as a whole from which its session takes nothing."""
_LONGEST_NAME, _LONGEST_TAG = 512, 200
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
RECORDER, CUTS = "recorder", "truncated"
"""In the metadata of a message what its recorder says that is missing, in numbers; and in that of a message, step or call
what of it was cut."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """An event as far as it matters for the rows."""

    order: int
    """The producer's number; without one the nanoseconds since 1970 at which it happened, or else arrived."""
    tie: int = 0
    """Without a number the event's own, which says what came first of what happened at the same time."""
    external_id: str
    type: EventType
    agent: str
    subject: str
    timestamp: datetime
    data: Mapping[str, Any]

    def place(self) -> tuple[int, int, str]:
        return self.order, self.tie, self.external_id


class Subject(NamedTuple):
    """What is known of where a step or a call stands: the least of what its events say."""

    first: tuple[int, int]
    """Order and tie of what was said first."""
    agent: str
    step: str
    """Of a call, the subject of the step that it names."""
    iteration: int | None
    parent: str
    """Of a call, what it says started it."""

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
            if own := _name(data, ("uuid",)):
                return _short(f"{_CALL}{own}")
            return _short(f"{_CALL}{agent}:{_name(data, _CALL_ID) or external_id}")
        case "step":
            if step := step_named(agent, data):
                return step
            # The end of a request that names no step is a step of its own; its start cannot be matched with anything.
            return _short(f"{_STEP}{external_id}") if spec.stage == "end" else ""
        case "run":
            return RUN
        case "nothing":
            return ""
        case _:
            assert_never(spec.subject)


def step_named(agent: str, data: Mapping[str, Any]) -> str:
    """The subject of the step that an event names; "" where it names none."""
    if step := _name(data, ("step", "step_id", "stepId")):
        return _short(f"{_STEP}{step}")
    iteration = _iteration(data)
    return "" if iteration is None else _short(f"{_STEP}{agent}:{iteration}")


def is_call(subject: str) -> bool:
    return subject.startswith(_CALL)


def is_step(subject: str) -> bool:
    return subject.startswith(_STEP)


def about(subject: str) -> About:
    """What an event of this subject is about."""
    return "call" if is_call(subject) else "step" if is_step(subject) else "run"


def is_unnamed_call(type_: EventType, data: Mapping[str, Any]) -> bool:
    """Return whether an event is about a call without identifying it."""
    return EVENT_TYPES[type_].subject == "call" and not _name(data, ("uuid", *_CALL_ID))


def tool_name(data: Mapping[str, Any]) -> str:
    """The tool that an event of a call names; "" where it names none."""
    name = next((found for name in _CALL_NAME if (found := _name(data, (name,)))), "")[:_LONGEST_NAME]
    return "" if name.isspace() else name


def nanoseconds(moment: datetime) -> int:
    """The order of an event that happened then and has no number."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def subject_of_data(said: Said) -> Subject:
    """What one event says of where its subject stands."""
    step = step_named(said.agent, said.data) if is_call(said.subject) else ""
    first = said.order, said.tie
    return Subject(first, said.agent, step, _iteration(said.data), _name(said.data, ("parent", "parent_id")))


def subjects_from(events: Iterable[Said], known: Mapping[str, Subject]) -> dict[str, Subject]:
    """`known` with what `events` add to it."""
    found = dict(known)
    for said in events:
        if is_call(said.subject) or is_step(said.subject):
            one = subject_of_data(said)
            before = found.get(said.subject)
            found[said.subject] = one if before is None else before.with_more(one)
    return found


def made_step(agent: str) -> str:
    """The step of an agent's calls before it has begun one."""
    return _short(f"{MADE_STEP}{agent}")


def parents_meant(call: Subject) -> tuple[str, ...]:
    """The calls that a call may mean by what it says started it, the likelier first."""
    return (_short(f"{_CALL}{call.parent}"), _short(f"{_CALL}{call.agent}:{call.parent}")) if call.parent else ()


# --- Folds --------------------------------------------------------------------------------------------------------


def step_record(
    subject: str, events: Sequence[Said], iteration: int, calls: list[records.ToolCall]
) -> records.AgentStep:
    """A step as its events say it; without any, a place for its calls."""
    thoughts: dict[str, str] = {}
    reasoning: dict[str, str] = {}
    agent_name = model = ""
    usage: dict[str, Any] | None = None
    duration: float | None = None
    error = ""
    metadata: dict[str, Any] = {}
    for said in events:
        stream = _name(said.data, ("stream", "stream_id", "streamId"))
        is_answer = said.type == "llm_request_complete"
        # The content of a request is what the model was asked.
        _put(thoughts, stream, _text(said.data, _THOUGHT if is_answer else _THOUGHT[:1]))
        _put(reasoning, stream, _text(said.data, _REASONING))
        metadata |= _object(said.data, "metadata")
        agent_name = _name(said.data, _AGENT_NAME) or said.agent or agent_name
        model = _name(said.data, ("model",)) or model
        found = said.data.get("usage")
        usage = found if isinstance(found, dict) and found else usage
        duration = _duration(said.data, duration)
        error = _text(said.data, ("error",)) or error
    return records.AgentStep(
        id=subject,
        iteration=iteration,
        thought="\n\n".join(thoughts.values()) or None,
        reasoning_content="\n\n".join(reasoning.values()) or None,
        agent_name=agent_name or None,
        model=model or None,
        usage=usage,
        timestamp=min((said.timestamp for said in events), default=None),
        duration=duration,
        metadata={**metadata, **({"error": error} if error else {}), **_cuts(events, "step")} or None,
        tool_calls=calls,
    )


def call_record(subject: str, events: Sequence[Said], parent: str | None) -> records.ToolCall:
    """A call as its events say it."""
    name = call_id = ""
    texts: dict[str, str] = {}
    args: Any = None
    duration: float | None = None
    started_at = completed_at = None
    metadata: dict[str, Any] = {}
    marks = 0
    results: list[records.ToolResult] = []
    ends = [said for said in events if said.type != "tool_call_start"]
    # What only adds to a call that has ended, a reflection for example, is no outcome.
    telling = [said for said in ends if _tells_outcome(said)] or ends
    for said in events:
        name = tool_name(said.data) or name
        call_id = _name(said.data, _CALL_ID) or call_id
        args = _first(said.data, _ARGS) or args
        texts |= {name: value for name in _CALL_TEXTS if (value := _text(said.data, (name,)))}
        duration = _duration(said.data, duration)
        metadata |= _object(said.data, "metadata")
        marks |= _marks_of(said)
        if said.type == "tool_call_start" and (started_at is None or said.data.get("runs") is True):
            # A call may be told when the model asks for it, and again when its tool runs.
            started_at = said.timestamp
    for said in telling:
        completed_at = said.timestamp
        results.append(_result(said))
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
        metadata={**metadata, **({} if marks & _ANNOUNCED else {ORPHAN_RESULT: True}), **_cuts(events, "call")} or None,
    )
    return msgspec.structs.replace(record, **texts) if texts else record


def is_cut(subject: str, events: Sequence[Said]) -> bool:
    """Whether a recorder cut values of this step or call."""
    return bool(_cuts(events, about(subject)))


def _cuts(events: Sequence[Said], about: About) -> dict[str, Any]:
    """What was cut of a step or a call, as its metadata says it."""
    cuts = documents(cut for said in events for _owner, cut in cuts_at(said.data, about))
    return {CUTS: cuts} if cuts else {}


def _tells_outcome(said: Said) -> bool:
    return said.type == "tool_call_error" or _first(said.data, (*_CALL_RESULT, "error", "success")) is not None


def _result(said: Said) -> records.ToolResult:
    """The result that an event brings, with what it states of the outcome beside it; results.py decides about the rest."""
    value = _first(said.data, _CALL_RESULT)
    result = received("" if value is None else value)
    error = _text(said.data, ("error",))
    if said.type == "tool_call_error":
        return msgspec.structs.replace(result, status="error", error=result.error or error or None)
    stated = next((flag for name in ("success", "status") if (flag := _stated(said.data.get(name))) is not None), None)
    if error and stated is not True:
        return msgspec.structs.replace(result, status="error", error=result.error or error)
    if stated is None or result.status is not None or result.success is not None:
        return result
    return msgspec.structs.replace(result, success=stated)


def _stated(flag: object) -> bool | None:
    """Whether a flag beside a result says that the call succeeded; None where it does not say."""
    return (
        flag
        if isinstance(flag, bool)
        else {"success": True, "error": False}.get(flag)
        if isinstance(flag, str)
        else None
    )


def _merged(results: Sequence[records.ToolResult]) -> records.ToolResult | None:
    """The last one, with what only earlier ones said."""
    if len(results) < 2:
        return results[0] if results else None
    # Which of them failed has to be read before they are one.
    *earlier, last = [one for result in results if (one := normal(result, None)) is not None]
    said = {
        name: next((getattr(one, name) for one in reversed(earlier) if getattr(one, name)), getattr(last, name))
        for name in ("output", "data", "attachments", "raw")
        if not getattr(last, name)
    }
    # A reason that was given goes before one that was made of the output.
    errors = [one.error for one in (last, *reversed(earlier)) if one.error]
    made = {one.output for one in (*earlier, last)} | {NO_REASON}
    error = next((error for error in errors if error not in made), errors[0] if errors else "")
    metadata = {name: item for one in (*earlier, last) for name, item in (one.metadata or {}).items()}
    return msgspec.structs.replace(last, **said, error=error, metadata=metadata or None)


# --- What is odd about calls --------------------------------------------------------------------------------------

_ANNOUNCED, _NAMED, _NAMES_NONE = 1, 2, 4
"""What was heard of a call: that it was made; its name; something that should name it and does not."""


def _marks_of(said: Said) -> int:
    is_start = said.type == "tool_call_start"
    marks = _ANNOUNCED if is_start or _first(said.data, _ARGS) is not None else 0
    if tool_name(said.data):
        marks |= _NAMED
    elif is_start or not said.data.keys().isdisjoint(_CALL_NAME):
        marks |= _NAMES_NONE
    return marks


def _is_nameless(marks: int) -> bool:
    return bool(marks & _NAMES_NONE) and not marks & _NAMED


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What was heard of the calls of a run, as far as it says what is odd about them."""

    marks: Mapping[str, int] = field(default_factory=dict)
    """By subject."""
    orphans: frozenset[str] = frozenset()
    """Results that found no call: nobody said that it was made, nor with what arguments."""
    nameless: frozenset[str] = frozenset()

    def with_events(self, events: Iterable[Said]) -> Heard:
        added: dict[str, int] = {}
        for said in events:
            if is_call(said.subject):
                added[said.subject] = added.get(said.subject, self.marks.get(said.subject, 0)) | _marks_of(said)
        if not added:
            return self
        return Heard(
            marks={**self.marks, **added},
            orphans=self.orphans.difference(added) | {call for call, marks in added.items() if not marks & _ANNOUNCED},
            nameless=self.nameless.difference(added) | {call for call, marks in added.items() if _is_nameless(marks)},
        )

    @property
    def flags(self) -> set[str]:
        """For the health of the message."""
        odd = {ORPHAN_RESULT: self.orphans, EMPTY_TOOL_NAME: self.nameless}
        return {flag for flag, calls in odd.items() if calls}


class Interruption(NamedTuple):
    """That nobody is left to end a run: see messages_app.interruptions."""

    reason: str
    at: datetime
    event: str
    """The external id of the event that says so."""


def interruption_of(said: Said) -> Interruption | None:
    """What an event says of an interruption, if it is about one."""
    if said.type != "workflow_execute_complete":
        return None
    reason = _name(said.data, ("interrupted",))
    return Interruption(reason, said.timestamp, said.external_id) if reason else None


@dataclass(kw_only=True)
class RunState:
    """A run as a whole, and what its session takes from it."""

    status: records.SessionStatus | None = None
    """As an event says it, or implies it by its type."""
    is_status_said: bool = False
    phase: str = ""
    workflow: Any = None
    title: str = ""
    description: str = ""
    end_user: str = ""
    tags: list[str] = field(default_factory=list)
    session_metadata: dict[str, Any] = field(default_factory=dict)
    request_id: str = ""
    """Of what the user asked, and of the answer."""
    prompt: str = ""
    prompt_parts: list[Any] | None = None
    content: str = ""
    content_parts: list[Any] | None = None
    references: list[records.Reference] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: str = ""
    completed_at: datetime | None = None
    interruption: Interruption | None = None
    """The last that was told; not whether the run has gone on since."""
    open_attempts: set[str] = field(default_factory=set)
    """Of a run that several processes work on, those that have begun and not ended."""
    duration: float | None = None
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    said_metadata: dict[str, Any] = field(default_factory=dict)
    root_tool: str = ""
    """Of a chain of calls, what its tracker calls its root."""
    losses: dict[str, int] = field(default_factory=dict)
    """What the recorder says that is missing: see losses.py."""
    prompt_cuts: list[Cut] = field(default_factory=list)
    answer_cuts: list[Cut] = field(default_factory=list)

    @property
    def status_of_session(self) -> records.SessionStatus | None:
        """What is written to the session. "running" has its status follow its messages, which an end needs no word for:
        only a failure without an error text would not show in them."""
        if self.is_status_said or self.status in (None, "planning") or (self.status == "error" and not self.error):
            return self.status
        return "running"

    @property
    def is_asked(self) -> bool:
        return bool(self.prompt or self.prompt_parts)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Of the answer."""
        own: dict[str, Any] = {"agents": self.agents, RECORDER: self.losses, CUTS: documents(self.answer_cuts)}
        own[records.ROOT_TOOL] = self.root_tool
        return {**self.said_metadata, **{name: value for name, value in own.items() if value}} or None

    @property
    def prompt_metadata(self) -> dict[str, Any] | None:
        return {CUTS: documents(self.prompt_cuts)} if self.prompt_cuts else None

    @property
    def flags(self) -> list[str]:
        """The health of the answer."""
        return sorted(flags_of(self.losses, self.answer_cuts))

    @property
    def prompt_flags(self) -> list[str]:
        return sorted(flags_of({}, self.prompt_cuts))


def run_state(events: Sequence[Said]) -> RunState:
    """What all events about a run as a whole say of it."""
    state = RunState()
    answer = ""
    for said in events:
        data = said.data
        if found := interruption_of(said):
            state.interruption = found
            state.open_attempts.discard(_name(data, ("attempt",)))
            continue
        prompt, parts = _content(data, _PROMPT)
        state.prompt = state.prompt or prompt
        state.prompt_parts = state.prompt_parts or parts
        spec = EVENT_TYPES[said.type]
        match spec.fold:
            case "agent":
                _take_agent(state, said, spec.stage)
                if spec.stage == "end":
                    answer = _content(data, _RESULT)[0] or answer
            case "plan":
                _take_workflow(state, said)
            case "run":
                _take_workflow(state, said)
                _take_run(state, said)
                _take_attempt(state, said)
                if spec.stage == "end":
                    content, parts = _content(data, (*_RESULT, "content"))
                    state.content = content or state.content
                    state.content_parts = parts or state.content_parts
                    state.error = _text(data, ("error",)) or state.error
                    state.completed_at = said.timestamp
            case None:
                pass  # not about the run as a whole
            case _:
                assert_never(spec.fold)
    # What the last agent came to is the answer, until the run says what its own is.
    state.content = state.content or answer
    return state


def _take_run(state: RunState, said: Said) -> None:
    data = said.data
    state.request_id = _name(data, ("request_id", "requestId"))[:_LONGEST_NAME] or state.request_id
    state.root_tool = _name(data, ("root_tool", "rootTool"))[:_LONGEST_NAME] or state.root_tool
    state.usage = _object(data, "usage") or state.usage
    state.said_metadata |= _object(data, "metadata")
    state.duration = _duration(data, state.duration)
    state.references = [_reference(one) for one in references_in(data)] or state.references
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


def _take_attempt(state: RunState, said: Said) -> None:
    attempt = _name(said.data, ("attempt",))
    if attempt and said.type == "workflow_execute_start":
        state.open_attempts.add(attempt)
    else:
        state.open_attempts.discard(attempt)


def references_in(data: Mapping[str, Any]) -> list[Any]:
    """The references that an event says; those that were cut are a text."""
    said = data.get("references")
    return [said] if said and isinstance(said, str) else said if isinstance(said, list) else []


def _reference(value: Any) -> records.Reference:
    """A reference as it is said; of what is none the text, and the whole in its metadata."""
    if not isinstance(value, dict):
        return records.Reference(content=text(value))
    document = msgspec.json.decode(as_json(value))
    keep_unknown(document, records.Reference)
    try:
        return msgspec.convert(document, records.Reference)
    except msgspec.ValidationError:
        return records.Reference(content=text(value.get("content")), metadata={"reference": value})


def _take_workflow(state: RunState, said: Said) -> None:
    data = said.data
    workflow = data.get("workflow")
    if workflow:
        state.workflow = workflow
        if isinstance(workflow, dict):
            state.title = text(workflow.get("name")) or state.title
            state.prompt = state.prompt or _text(workflow, _PROMPT)
    state.title = _name(data, ("title",)) or state.title
    default: str | None = None
    match said.type:
        case "workflow_plan_start":
            state.phase, default = "plan", "planning"
        case "workflow_plan_complete":
            state.phase = "plan"
        case "workflow_execute_start":
            state.phase, default = "execute", "running"
        case "workflow_execute_complete":
            failed = bool(data.get("error")) or data.get("success") is False
            state.phase, default = "complete", _ENDED[not failed]
    status = data.get("status")
    is_said = status in _STATUSES
    if status := status if is_said else default:
        state.status = status  # type: ignore[assignment]  # one of the words, which mypy cannot see
        state.is_status_said = is_said
    state.phase = _name(data, ("phase", "current_phase", "currentPhase")) or state.phase


def _take_agent(state: RunState, said: Said, stage: str) -> None:
    if not said.agent:
        return
    agent = state.agents.setdefault(said.agent, {})
    if name := _name(said.data, _AGENT_NAME):
        agent["name"] = name
    agent["status"] = _AGENT_STATUSES[stage]
    if error := _text(said.data, ("error",)):
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
    """A text, with its parts where it is said in content parts."""
    value = _first(data, names)
    if isinstance(value, list) and value and all(map(_is_part, value)):
        return text_of(value)
    return _text(data, names), None


def _is_part(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and not value.keys().isdisjoint(("type", "text")))


def _text(data: Mapping[str, Any], names: Iterable[str]) -> str:
    """A text; of an object its message, or all of it as JSON."""
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
    value = _first(data, ("duration", "duration_ms"))
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 10**12
    return value if fits else before


def _least(one: str, other: str) -> str:
    return min(filter(None, (one, other)), default="")


def _short(name: str) -> str:
    """The name, or where an index could not hold it, its beginning and a digest."""
    raw = name.encode("utf-8", "backslashreplace").replace(b"\x00", b"\\u0000")
    if len(raw) > _LONGEST_SUBJECT:
        raw = raw[:300].decode("utf-8", "ignore").encode() + b"#" + blake2b(raw, digest_size=16).hexdigest().encode()
    return raw.decode()
