"""The session of a trace: a pure function of the set of its spans, whatever the order and the batches they came in.

    spans -> facts (conventions) -> observations -> entries -> messages (transcripts)

* The spans are a tree (nodes.py), and each of its runs (runs.py) is a question and an answer.
* The text that the root of a run returned is its answer, before that of the last request.
* A run is complete if its root has ended, or, where the root is not known, if its last request was answered in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.trees import walk
from tracesite_sdk.transcripts import conversation
from tracesite_sdk.transcripts.entries import Entry, Reply
from tracesite_sdk.transcripts.open_calls import may_be_the_same
from tracesite_sdk.transcripts.parsing.message_shapes import joined, messages_in
from tracesite_sdk.transcripts.turn_records import MOST_NAME_CHARACTERS

from .nodes import Node, above, nodes_of, of_the_uppermost
from .observations import EARLIEST, EMPTY, OWN_CALL, TOKENS_ONLY, Observation, Reader, Trace, returned_text
from .pauses import PARENT_COMMAND, asks_a_person
from .runs import LATEST, Run, runs_of, unrecovered_errors
from .span import Span

TRACE_ID = "trace_id"
"""Key in the metadata of a message: the trace under which its spans are stored. It is another one than its own, which is its
request id, if its trace shares a call with an earlier one."""
SOURCE = "spans"
"""The `source` in the metadata of a session that spans have made."""
SPAN_ID = "span_id"
"""Key in the metadata of a step and of a call."""
WAITING = "waiting"
"""Key in the metadata of a message that is not complete because a person has to answer first."""
_MOST_TITLE_CHARACTERS = 200
MOST_TAGS = 50
MOST_TAG_CHARACTERS = 200
"""The tags of a trace, which are in each of its messages and in its session."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def session_of_trace(spans: Iterable[Span]) -> records.Session:
    """Return the session of one trace, with its messages. `spans` are those of one trace id, in any order."""
    nodes = nodes_of(spans)
    # A span that only names the trace is no part of a run.
    roots = [node for node in nodes if node.parent is None and not node.facts.is_trace]
    runs = runs_of(roots)
    trace_id = nodes[0].span.trace_id
    session_id = of_the_uppermost(nodes, "session_id")
    messages: list[records.Message] = []
    for index, run in enumerate(runs):
        returning = _returning(run, is_only=len(runs) == 1)
        messages += _messages(run, returning, trace_id if not index else f"{trace_id}/{index}")
    messages = with_calls_joined(messages)
    about: dict[str, Any] = {TRACE_ID: trace_id}
    if title := of_the_uppermost(nodes, "title"):
        about["trace_name"] = title[:MOST_NAME_CHARACTERS]
    if tags := sorted({tag[:MOST_TAG_CHARACTERS] for node in nodes for tag in node.facts.tags}):
        about["tags"] = tags[:MOST_TAGS]
    return records.Session(
        external_id=(session_id or trace_id)[:512],
        # A conversation of several traces has no title: which of them arrives last must not decide.
        title=None if session_id else _title(title, messages),
        status=_status(messages),
        end_user=(of_the_uppermost(nodes, "end_user") or "")[:512] or None,
        created_at=_time(min((node.span.start for node in nodes if not node.facts.is_trace), default=0)),
        metadata={"source": SOURCE},
        messages=[
            replace(message, request_id=trace_id, metadata={**(message.metadata or {}), **about})
            for message in messages
        ],
    )


def sessions_of_traces(spans: Iterable[Span]) -> Iterator[records.Session]:
    """Yield the session of each trace, in the order of their first spans."""
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    yield from map(session_of_trace, traces.values())


def with_calls_joined(messages: Sequence[records.Message]) -> list[records.Message]:
    """Return messages in which a call that no tool of its run executed has what a tool outside of it, or a later run, executed
    under its id: only if nothing else has the id, and if name, arguments and times fit. A message of which nothing is left is
    left out."""
    requested: dict[str, list[_Call]] = defaultdict(list)
    executed: dict[str, list[_Call]] = defaultdict(list)
    for found in _calls(messages):
        if not found.is_own:
            requested[found.id].append(found)
        elif found.call.status != "pending":
            executed[found.id].append(found)
    return _joined(messages, _pairs(requested, executed))


class JoinedTraces(NamedTuple):
    """The sessions of traces, of which some share calls."""

    sessions: dict[str, records.Session]
    homes: dict[str, str]
    """The first trace of each group that shares calls, by the ids of the others of the group."""


def with_traces_joined(sessions: Mapping[str, records.Session], *, kept: Collection[str | None] = ()) -> JoinedTraces:
    """Join the calls that one trace requested and another trace of the same session executed, as `with_calls_joined` does.

    `sessions` are those of traces by their ids. The messages with the external ids in `kept` keep what they executed. A call
    that a tool of its own trace executed counts for nothing, because agents that number their calls use an id again.
    """
    of_session: dict[str | None, list[str]] = defaultdict(list)
    for trace_id, session in sessions.items():
        if has_stated_id(session, trace_id):
            of_session[session.external_id].append(trace_id)
    joined = dict(sessions)
    homes: dict[str, str] = {}
    for trace_ids in of_session.values():
        messages = [message for trace_id in trace_ids for message in sessions[trace_id].messages or ()]
        requested: dict[str, list[_Call]] = defaultdict(list)
        executed: dict[str, list[_Call]] = defaultdict(list)
        for found in _unjoined_calls(messages):
            if not found.is_own:
                requested[found.id].append(found)
            elif found.message.external_id not in kept:
                executed[found.id].append(found)
        pairs = [
            (call, by) for call, by in _pairs(requested, executed) if call.message.request_id != by.message.request_id
        ]
        changed: dict[str | None, list[records.Message]] = {
            message.request_id: [] for pair in pairs for message in (pair[0].message, pair[1].message)
        }
        for message in _joined([message for message in messages if message.request_id in changed], pairs):
            changed[message.request_id].append(message)
        firsts = _firsts_of_groups(
            sessions, [(str(call.message.request_id), str(by.message.request_id)) for call, by in pairs]
        )
        homes |= {trace_id: first for trace_id, first in firsts.items() if trace_id != first}
        for trace_id in firsts:
            joined[trace_id] = _of_trace(sessions[trace_id], changed[trace_id], firsts[trace_id])
    return JoinedTraces(joined, homes)


def has_stated_id(session: records.Session, trace_id: str) -> bool:
    """Return whether a span of a trace names its session, so that other traces may be in it."""
    return session.external_id != trace_id[:512]


def unjoined_call_ids(session: records.Session) -> set[str]:
    """Return the ids of calls that only requests have, or that only tools have."""
    return {found.id for found in _unjoined_calls(session.messages or ())}


class _Call(NamedTuple):
    """A call that has an id, with its place."""

    id: str
    message: records.Message
    step: records.AgentStep
    call: records.ToolCall

    @property
    def is_own(self) -> bool:
        """Whether no request of its run asked for it."""
        return (self.step.id or "").endswith(OWN_CALL)


def _calls(messages: Iterable[records.Message]) -> Iterator[_Call]:
    for message in messages:
        for step in message.agent_steps or ():
            yield from (_Call(call.id, message, step, call) for call in step.tool_calls or () if call.id)


def _unjoined_calls(messages: Iterable[records.Message]) -> Iterator[_Call]:
    """Yield the requested calls that no tool has executed, and the executed ones that no request asked for."""
    for found in _calls(messages):
        if found.call.status != "pending" if found.is_own else not _is_executed(found.call):
            yield found


def _pairs(
    requested: Mapping[str, Sequence[_Call]], executed: Mapping[str, Sequence[_Call]]
) -> list[tuple[_Call, _Call]]:
    """Return requested calls with what has executed them. Each id must be that of one of both."""
    pairs = []
    for id_ in sorted(requested.keys() & executed.keys()):
        if len(requested[id_]) == len(executed[id_]) == 1:
            (asked,), (by,) = requested[id_], executed[id_]
            # Within a run, a tool that begins before its request has another clock.
            since = None if asked.message is by.message else asked.step.timestamp
            if not _is_executed(asked.call) and _may_have_executed(by.call, asked.call, since):
                pairs.append((asked, by))
    return pairs


def _joined(messages: Iterable[records.Message], pairs: Iterable[tuple[_Call, _Call]]) -> list[records.Message]:
    there = {id(asked.call): by.call for asked, by in pairs}
    gone = {id(by) for by in there.values()}
    return [changed for message in messages if (changed := _with_calls(message, there, gone)) is not None]


def _firsts_of_groups(sessions: Mapping[str, records.Session], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the first trace of the group of each trace in `pairs`, which are two of one group."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        neighbours[one].add(other)
        neighbours[other].add(one)
    firsts: dict[str, str] = {}
    for trace_id in neighbours:
        if trace_id in firsts:
            continue
        group, waiting = {trace_id}, [trace_id]
        while waiting:
            found = neighbours[waiting.pop()] - group
            group |= found
            waiting += found
        first = min(group, key=lambda one: (sessions[one].created_at or _EPOCH, one))
        firsts |= dict.fromkeys(group, first)
    return firsts


def _of_trace(session: records.Session, messages: Sequence[records.Message], home: str) -> records.Session:
    """Return the session of a trace with other messages, whose spans are stored under the trace `home`."""
    return replace(
        session,
        status=_status(messages),
        messages=[replace(message, metadata={**(message.metadata or {}), TRACE_ID: home}) for message in messages],
    )


def _status(messages: Sequence[records.Message]) -> Literal["paused"] | None:
    # The store takes it back once a later run goes on.
    return "paused" if messages and WAITING in (messages[-1].metadata or {}) else None


def _may_have_executed(by: records.ToolCall, call: records.ToolCall, since: datetime | None) -> bool:
    is_earlier = since is not None and by.started_at is not None and by.started_at < since
    return by.name == call.name and may_be_the_same(by.args, call.args) and not is_earlier


def _is_executed(call: records.ToolCall) -> bool:
    """Return whether a tool has the result of a call, rather than the input of a later request."""
    return isinstance(call.result, records.ToolResult) and SPAN_ID in (call.result.metadata or {})


def _with_calls(
    message: records.Message, there: Mapping[int, records.ToolCall], gone: Collection[int]
) -> records.Message | None:
    """Return a message with the results of calls, and without those that are `gone`."""
    if not there and WAITING not in (message.metadata or {}):
        return message
    steps: list[records.AgentStep] = []
    for step in message.agent_steps or ():
        calls = [_with_result_of(call, there.get(id(call))) for call in step.tool_calls or () if id(call) not in gone]
        if calls or len(calls) == len(step.tool_calls or ()):
            steps.append(replace(step, tool_calls=calls))
    if message.agent_steps and not steps and not message.content:
        return None
    message = replace(message, agent_steps=steps) if message.agent_steps else message
    if WAITING in (message.metadata or {}) and not any(
        call.status == "pending" for step in steps for call in step.tool_calls or ()
    ):
        metadata = {name: value for name, value in (message.metadata or {}).items() if name != WAITING}
        return replace(message, is_completed=True, metadata=metadata)
    return message


def _with_result_of(call: records.ToolCall, by: records.ToolCall | None) -> records.ToolCall:
    if by is None:
        return call
    return replace(
        by, id=call.id, uuid=call.uuid, name=call.name, args=call.args, parent=call.parent, metadata=call.metadata
    )


def _title(name: str | None, messages: Sequence[records.Message]) -> str | None:
    """Return the name of a trace, or the first thing that its user asked."""
    asked = next((message.content for message in messages if message.role == "user"), None)
    return (name or (asked if isinstance(asked, str) else None) or "")[:_MOST_TITLE_CHARACTERS] or None


def _messages(run: Run, returning: Node | None, name: str) -> list[records.Message]:
    nodes = walk(run.nodes, attrgetter("children"))
    observations = {node.span.span_id: _observation(node, place) for place, node in enumerate(nodes)}
    tops = {node.span.span_id for node in run.nodes}
    for id_ in tops:
        observations[id_].parent = None
    trace = Trace(
        id=name,
        has_session=True,
        began=_time(run.start) or EARLIEST,
        input=run.asked_by.facts.input if run.asked_by is not None else None,
        has_question=run.asked_by is not None,
        observations=observations,
    )
    entries = Reader(one_run=True).entries(trace)
    messages = conversation.messages(_with_returned_text(entries, returning, name))
    return [
        _finished(message, run, entries, name) if is_last else message
        for message, is_last in zip(messages, _is_last_answer(messages), strict=True)
    ]


def _returning(run: Run, *, is_only: bool) -> Node | None:
    """Return the span whose output is that of the run: its root, or else the uppermost span around the only run."""
    nodes = [node for node in run.nodes if node.facts.kind != "tool" and not node.facts.is_embedding] or run.nodes
    first = nodes[0]
    candidates = [first] if len(nodes) == 1 and first.facts.kind not in ("generation", "tool") else []
    if is_only:
        leftmost, rightmost = min(run.nodes, key=attrgetter("number")), max(run.nodes, key=attrgetter("number"))
        around = [node for node in above(first) if node.is_around(leftmost) and node.is_around(rightmost)]
        candidates += around[::-1]
    return next((node for node in candidates if node.facts.output not in EMPTY), None)


def _with_returned_text(entries: Sequence[Entry], returning: Node | None, name: str) -> list[Entry]:
    """Add the text that the root of a run returned as its last reply, unless that reply says the same."""
    returned = returned_text(returning.facts.output) if returning is not None else None
    if returning is None or returned is None:
        return [*entries]
    plain = (
        text_of(entry.content)[0]
        for entry in reversed(entries)
        if isinstance(entry, Reply) and entry.parent_call is None and not entry.calls
    )
    last = next(filter(None, plain), "")
    if last.split() == returned.split():
        return [*entries]
    reply = Reply(
        id=f"{name}:output",
        content=returned,
        agent_name=returning.facts.agent_name or (returning.span.name if returning.facts.kind == "agent" else None),
        created_at=_time(returning.span.end),
        metadata={SPAN_ID: returning.span.span_id},
    )
    return [*(entry for entry in entries if entry.id != reply.id), reply]


def _is_last_answer(messages: Sequence[records.Message]) -> list[bool]:
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [index == last for index in range(len(messages))]


def _observation(node: Node, place: int) -> Observation:
    span, facts = node.span, node.facts
    kind = "other" if node.is_duplicate or facts.kind is None else facts.kind
    metadata = {**facts.metadata, SPAN_ID: span.span_id}
    usage = facts.usage if facts.cost is None else {**(facts.usage or {}), "cost": facts.cost}
    tool_name = None if facts.is_requested_call else facts.tool_name
    return Observation(
        id=span.span_id,
        parent=node.parent.span.span_id if node.parent else None,
        place=place,
        kind=kind,
        name=tool_name or span.name,
        input=facts.input,
        output=_with_requested_calls(node) if kind == "generation" else facts.output,
        start=_time(span.start),
        end=_time(span.end),
        error=facts.error,
        agent_name=facts.agent_name or (_agent_name(span.name) if kind == "agent" else None),
        tool_name=tool_name,
        call_id=facts.call_id,
        is_embedding=facts.is_embedding,
        is_guessed=node.is_guessed,
        is_paused=node.pause is not None and kind == "tool",
        model=facts.model,
        usage=None if node.is_duplicate else usage,
        system=facts.system,
        tools=facts.tools,
        parameters=facts.parameters,
        time_to_first_token=facts.time_to_first_token,
        metadata=metadata,
    )


def _with_requested_calls(node: Node) -> Any:
    """Return the output of a generation, with the calls that only spans of their own name."""
    requested = [child.facts for child in node.children if child.facts.is_requested_call]
    if not requested:
        return node.facts.output
    answer = joined(messages_in(node.facts.output, "assistant"))
    if answer is not None and answer.calls:
        return node.facts.output
    calls = [
        {"type": "tool_call", "id": facts.call_id, "name": facts.tool_name, "arguments": facts.input}
        for facts in requested
    ]
    return {"role": "assistant", "content": answer.content if answer is not None else None, "tool_calls": calls}


def _agent_name(name: str) -> str:
    return name.removeprefix("invoke_agent ").removesuffix(".agent")


def _finished(message: records.Message, run: Run, entries: Collection[Entry], name: str) -> records.Message:
    """Return the answer of a run with its identity, state and error."""
    replies = [
        entry
        for entry in entries
        if isinstance(entry, Reply) and entry.parent_call is None and not entry.id.endswith(TOKENS_ONLY)
    ]
    nodes = walk(run.nodes, attrgetter("children"))
    is_waiting = _is_waiting(nodes)
    is_completed = not (is_waiting or any(node.is_open for node in nodes)) and (
        not any(_has_unknown_end(node) for node in run.nodes)
        or any(node.facts.kind == "agent" and not node.span.parent_id for node in run.nodes)
        or _is_answered(replies)
    )
    return replace(
        message,
        external_id=name,
        knowledge_references=_references(nodes) or None,
        created_at=_time(run.start),
        is_completed=is_completed,
        completed_at=_time(max(node.span.end for node in run.nodes)) if is_completed else None,
        error=_error(run, replies),
        metadata={**(message.metadata or {}), WAITING: True} if is_waiting else message.metadata,
    )


def _is_waiting(nodes: Sequence[Node]) -> bool:
    """Return whether a run has paused for a person, and no request was made since."""
    requests = [node for node in nodes if node.facts.kind == "generation"]
    last = max(requests, key=_place, default=None)
    if last is not None and asks_a_person(last.facts.output):
        return True
    paused = [node for node in nodes if node.pause not in (None, PARENT_COMMAND)]
    return any(last is None or (node.span.end or LATEST) > last.span.start for node in paused)


def _error(run: Run, replies: Sequence[Reply]) -> str | None:
    """Return the error with which a run ended, unless it recovered."""
    errors = unrecovered_errors(run)
    # A request below an agent that failed and was made again is an error of its step only.
    return (errors[-1] if errors else replies[-1].error if replies else None) or None


def _references(nodes: Iterable[Node]) -> list[records.Reference]:
    """Return what the retrievers of a run found, in the order of their start."""
    retrievers = {node.retriever for node in nodes if node.retriever is not None}
    passages = [passage for retriever in sorted(retrievers, key=_place) for passage in retriever.passages]
    return [replace(passage, seq=index) for index, passage in enumerate(passages)]


def _place(node: Node) -> tuple[int, str]:
    return node.span.start, node.span.span_id


def _has_unknown_end(node: Node) -> bool:
    """Return whether the run may go on although its spans have ended."""
    if node.facts.has_no_end:
        return node.facts.output is None
    return node.parent is None and bool(node.span.parent_id) and node.facts.kind != "agent"


def _is_answered(replies: Sequence[Reply]) -> bool:
    return bool(replies) and not replies[-1].calls and bool(replies[-1].content or replies[-1].error)


def _time(nanoseconds: int) -> datetime | None:
    """Return an aware time; None for 0 and for times that no calendar has."""
    if not 0 < nanoseconds < LATEST:
        return None
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
