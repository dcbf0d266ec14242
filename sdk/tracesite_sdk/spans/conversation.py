"""The session of a trace: a pure function of the set of its spans, whatever the order and the batches they came in.

    spans -> facts (conventions) -> observations -> entries -> messages (transcripts)

* Spans that only announce another one (Logfire) stand for it until it arrives.
* Two spans of one request, seen by two libraries, are one generation: the one that says more.
* A run is the uppermost agent, or all spans outside of one. Runs of a trace that follow each other are messages of their
  own, overlapping ones are one message.
* The text that the root of a run returned is its answer, before that of the last request.
* A run is complete if its root has ended, or, where the root is not known, if its last request was answered in full.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import as_json
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.trees import cycles, walk
from tracesite_sdk.transcripts import conversation
from tracesite_sdk.transcripts.entries import Entry, Reply
from tracesite_sdk.transcripts.parsing.message_shapes import joined, messages_in
from tracesite_sdk.transcripts.turn_records import MOST_NAME_CHARACTERS

from .conventions.registry import facts_of
from .deliveries import fullness, merged
from .facts import Facts
from .observations import EARLIEST, EMPTY, Observation, Reader, Trace, returned_text
from .span import Span

TRACE_ID = "trace_id"
"""Key in the metadata of a message and of a session."""
SOURCE = "spans"
"""The `source` in the metadata of a session that spans have made."""
SPAN_ID = "span_id"
"""Key in the metadata of a step and of a call."""
_MOST_TITLE_CHARACTERS = 200
MOST_TAGS = 50
MOST_TAG_CHARACTERS = 200
"""The tags of a trace, which are in each of its messages and in its session."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 253_402_300_799 * 10**9
"""The end of the year 9999 in nanoseconds."""


@dataclass(eq=False)
class _Node:
    """A span with its meaning and its place in the tree."""

    span: Span
    facts: Facts
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    depth: int = 0
    number: int = 0
    """Its index in a walk through the tree, in which those below it follow it."""
    number_after: int = 0
    """The index that follows those below it."""
    is_open: bool = False
    """Whether the span or one around it has not ended."""
    is_duplicate: bool = False
    retriever: _Node | None = None
    """The uppermost retriever of those that it and the spans around it are."""
    passages: list[records.Reference] = field(default_factory=list)
    """The passages that such a retriever found."""

    def is_around(self, other: _Node) -> bool:
        """Return whether a node is this one or below it."""
        return self.number <= other.number < self.number_after

    @property
    def has_meaning(self) -> bool:
        return self.facts.kind in ("generation", "tool", "agent") or bool(self.facts.is_root_of_run)


@dataclass(eq=False)
class _Run:
    nodes: list[_Node]
    """The uppermost ones."""
    start: int
    end: int


def session_of_trace(spans: Iterable[Span]) -> records.Session:
    """Return the session of one trace, with its messages. `spans` are those of one trace id, in any order."""
    nodes = _nodes(spans)
    # A span that only names the trace is no part of a run.
    roots = [node for node in nodes if node.parent is None and not node.facts.is_trace]
    runs = _runs(roots)
    trace_id = nodes[0].span.trace_id
    session_id = _of_the_uppermost(nodes, "session_id")
    messages: list[records.Message] = []
    for index, run in enumerate(runs):
        returning = _returning(run, is_only=len(runs) == 1)
        messages += _messages(run, returning, trace_id if not index else f"{trace_id}/{index}")
    about: dict[str, Any] = {TRACE_ID: trace_id}
    if title := _of_the_uppermost(nodes, "title"):
        about["trace_name"] = title[:MOST_NAME_CHARACTERS]
    if tags := sorted({tag[:MOST_TAG_CHARACTERS] for node in nodes for tag in node.facts.tags}):
        about["tags"] = tags[:MOST_TAGS]
    return records.Session(
        external_id=(session_id or trace_id)[:512],
        # A conversation of several traces has no title: which of them arrives last must not decide.
        title=None if session_id else _title(title, messages),
        end_user=(_of_the_uppermost(nodes, "end_user") or "")[:512] or None,
        created_at=_time(min((node.span.start for node in nodes if not node.facts.is_trace), default=0)),
        metadata={"source": SOURCE},
        messages=[
            replace(message, request_id=trace_id, metadata={**(message.metadata or {}), **about})
            for message in messages
        ],
    )


def _title(name: str | None, messages: Sequence[records.Message]) -> str | None:
    """Return the name of a trace, or the first thing that its user asked."""
    asked = next((message.content for message in messages if message.role == "user"), None)
    return (name or (asked if isinstance(asked, str) else None) or "")[:_MOST_TITLE_CHARACTERS] or None


# --- The tree ---------------------------------------------------------------------------------------------------------


def _nodes(spans: Iterable[Span]) -> list[_Node]:
    """Return the nodes of the trace, in their order of start, connected."""
    deliveries: dict[str, list[tuple[Span, Facts]]] = defaultdict(list)
    announcements: dict[str, list[tuple[Span, Facts]]] = defaultdict(list)
    pieces: list[Span] = []
    for span in spans:
        if span.revision is not None:
            pieces.append(span)
            continue
        facts = facts_of(span)
        if facts.is_pending:
            announcements[span.parent_id].append((span, facts))
        else:
            deliveries[span.span_id].append((span, facts))
    known = {id_: _fullest(delivered) for id_, delivered in deliveries.items()}
    for span in merged([*pieces, *(known[id_][0] for id_ in {piece.span_id for piece in pieces} & known.keys())]):
        known[span.span_id] = (span, facts_of(span))
    nodes = {id_: _Node(span, facts) for id_, (span, facts) in known.items()}
    for id_, announced in announcements.items():
        if id_ not in nodes:
            span, facts = _fullest(announced)
            open_span = replace(span, span_id=id_, parent_id=facts.parent_id or "", end=0)
            nodes[id_] = _Node(open_span, facts)
    ordered = sorted(nodes.values(), key=lambda node: (node.span.start, -node.span.end, node.span.span_id))
    _connect(ordered)
    _mark_duplicates(ordered)
    return ordered


def _fullest(deliveries: Sequence[tuple[Span, Facts]]) -> tuple[Span, Facts]:
    return deliveries[0] if len(deliveries) == 1 else max(deliveries, key=lambda delivery: fullness(delivery[0]))


def _connect(nodes: Sequence[_Node]) -> None:
    """Set the fields of nodes that depend on those above and below them. Those on a cycle become roots."""
    by_id = {node.span.span_id: node for node in nodes}
    on_cycles = set(chain.from_iterable(cycles({id_: node.span.parent_id for id_, node in by_id.items()})))
    for node in nodes:
        parent = by_id.get(node.span.parent_id)
        if parent is not None and node.span.span_id not in on_cycles:
            node.parent = parent
            parent.children.append(node)
    walked = walk((node for node in nodes if node.parent is None), attrgetter("children"))
    for number, node in enumerate(walked):
        node.number = number
        node.depth = node.parent.depth + 1 if node.parent is not None else 0
    for node in reversed(walked):
        node.number_after = node.children[-1].number_after if node.children else node.number + 1
    _end_with_children(walked)
    for node in walked:
        node.is_open = not node.span.end or (node.parent is not None and node.parent.is_open)
    _find_passages(walked)


def _end_with_children(walked: Sequence[_Node]) -> None:
    """Let spans without an end of their own last from the first start to the last end of those below them; they are open
    while one of these is."""
    lasting: dict[_Node, tuple[int, int]] = {}
    """The first start and the last end of a span and those below it; 0 without a start, and while one of them is open."""
    for node in reversed(walked):
        below = [lasting[child] for child in node.children]
        start = min((start for start, _end in ((node.span.start, 0), *below) if start), default=0)
        ends = [end for _start, end in below]
        if node.facts.has_no_end:
            node.span = replace(node.span, start=start, end=0 if 0 in ends else max(ends, default=start))
        ends.append(node.span.end)
        lasting[node] = start, 0 if 0 in ends else max(ends)


def _find_passages(walked: Sequence[_Node]) -> None:
    """Set what retrievers found. A retriever and the database below it report the same search: the one with more ids and
    scores says more."""
    same: dict[_Node, list[list[records.Reference]]] = defaultdict(list)
    for node in walked:
        node.retriever = node.parent.retriever if node.parent is not None else None
        if node.facts.passages:
            node.retriever = node.retriever or node
            same[node.retriever].append(node.facts.passages)
    for retriever, passages in same.items():
        retriever.passages = max(
            passages,
            key=lambda passages: sum((passage.id is not None) + (passage.score is not None) for passage in passages),
        )


def _mark_duplicates(nodes: Sequence[_Node]) -> None:
    """Mark all but one of the generations with one response id; those below each other are wrappers, see observations.py."""
    by_response: dict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        if node.facts.kind == "generation" and node.facts.response_id:
            by_response[node.facts.response_id].append(node)
    for same in by_response.values():
        best = max(same, key=_content_size)
        for node in same:
            node.is_duplicate = not node.is_around(best) and not best.is_around(node)


def _content_size(node: _Node) -> tuple[int, int, str]:
    return len(as_json(node.facts.output)), len(as_json(node.facts.input)), node.span.span_id


def _above(node: _Node) -> list[_Node]:
    """Return the nodes around one, the nearest first."""
    nodes = []
    while node.parent is not None:
        node = node.parent
        nodes.append(node)
    return nodes


def _of_the_uppermost(nodes: Sequence[_Node], name: str) -> Any:
    """Return a fact of the span that is nearest to the root, of several the first."""
    having = (node for node in nodes if getattr(node.facts, name))
    nearest = min(having, key=attrgetter("depth"), default=None)
    return getattr(nearest.facts, name) if nearest is not None else None


# --- Runs -------------------------------------------------------------------------------------------------------------


def _runs(roots: Sequence[_Node]) -> list[_Run]:
    """Return the runs of a trace in their order: of the uppermost spans with a meaning, those that overlap are one."""
    uppermost = [node for root in roots for node in _uppermost(root)] or list(roots)
    uppermost.sort(key=lambda node: node.span.start)
    # Requests and tools without an agent around them belong together, whatever their times: a loop of plain code.
    loose = [node for node in uppermost if not _may_be_run(node)]
    first = _Run(loose, loose[0].span.start, max(map(_end, loose))) if loose else None
    runs = [first] if first is not None else []
    # The agents come in the order of their start, so of their runs only the one that ends last can overlap a further one.
    last: _Run | None = None
    for node in filter(_may_be_run, uppermost):
        run = next((run for run in (first, last) if run is not None and _overlaps(node, run)), None)
        if run is None:
            run = _Run([node], node.span.start, _end(node))
            runs.append(run)
        else:
            run.nodes.append(node)
            run.start = min(run.start, node.span.start)
            run.end = max(run.end, _end(node))
        if run is not first and (last is None or run.end > last.end):
            last = run
    return sorted(runs, key=lambda run: (run.start, run.nodes[0].span.span_id))


def _overlaps(node: _Node, run: _Run) -> bool:
    return node.span.start < run.end and _end(node) > run.start


def _uppermost(node: _Node) -> list[_Node]:
    if node.has_meaning:
        return [node]
    nodes = []
    waiting = deque(node.children)
    while waiting:
        below = waiting.popleft()
        if below.has_meaning:
            nodes.append(below)
        else:
            waiting += below.children
    return nodes or ([node] if node.parent is None else [])


def _may_be_run(node: _Node) -> bool:
    """Return whether a span is an agent, or a request that wraps others (the AI SDK's generateText)."""
    return node.facts.kind == "agent" or bool(node.facts.is_root_of_run) or _wraps_requests(node)


def _wraps_requests(node: _Node) -> bool:
    return node.facts.kind == "generation" and any(child.facts.kind == "generation" for child in node.children)


def _end(node: _Node) -> int:
    return node.span.end or _LATEST


# --- Messages ---------------------------------------------------------------------------------------------------------


def _messages(run: _Run, returning: _Node | None, name: str) -> list[records.Message]:
    nodes = walk(run.nodes, attrgetter("children"))
    observations = {node.span.span_id: _observation(node, place) for place, node in enumerate(nodes)}
    tops = {node.span.span_id for node in run.nodes}
    for id_ in tops:
        observations[id_].parent = None
    first = run.nodes[0]
    trace = Trace(
        id=name,
        has_session=True,
        began=_time(run.start) or EARLIEST,
        input=first.facts.input,
        output=first.facts.output,
        observations=observations,
    )
    entries = Reader(one_run=True).entries(trace)
    messages = conversation.messages(_with_returned_text(entries, returning, name))
    return [
        _finished(message, run, entries, name) if is_last else message
        for message, is_last in zip(messages, _is_last_answer(messages), strict=True)
    ]


def _returning(run: _Run, *, is_only: bool) -> _Node | None:
    """Return the span whose output is that of the run: its root, or else the uppermost span around the only run."""
    first = run.nodes[0]
    candidates = [first] if len(run.nodes) == 1 and first.facts.kind not in ("generation", "tool") else []
    if is_only:
        leftmost, rightmost = min(run.nodes, key=attrgetter("number")), max(run.nodes, key=attrgetter("number"))
        around = [node for node in _above(first) if node.is_around(leftmost) and node.is_around(rightmost)]
        candidates += reversed(around)
    return next((node for node in candidates if node.facts.output not in EMPTY), None)


def _with_returned_text(entries: Sequence[Entry], returning: _Node | None, name: str) -> list[Entry]:
    """Add the text that the root of a run returned as its last reply, unless that reply says the same."""
    returned = returned_text(returning.facts.output) if returning is not None else None
    if returning is None or returned is None:
        return [*entries]
    plain = [
        text_of(entry.content)[0]
        for entry in entries
        if isinstance(entry, Reply) and entry.parent_call is None and not entry.calls
    ]
    last = next((text for text in reversed(plain) if text), "")
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


def _observation(node: _Node, place: int) -> Observation:
    span, facts = node.span, node.facts
    kind = "other" if node.is_duplicate or facts.kind is None else facts.kind
    metadata = {**facts.metadata, SPAN_ID: span.span_id}
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
        model=facts.model,
        usage=facts.usage if facts.cost is None else {**(facts.usage or {}), "cost": facts.cost},
        system=facts.system,
        tools=facts.tools,
        parameters=facts.parameters,
        time_to_first_token=facts.time_to_first_token,
        metadata=metadata,
    )


def _with_requested_calls(node: _Node) -> Any:
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


def _finished(message: records.Message, run: _Run, entries: Collection[Entry], name: str) -> records.Message:
    """Return the answer of a run with its identity, state and error."""
    errors = [node.facts.error for node in run.nodes if node.facts.error]
    replies = [entry for entry in entries if isinstance(entry, Reply) and entry.parent_call is None]
    nodes = walk(run.nodes, attrgetter("children"))
    is_completed = not any(node.is_open for node in nodes) and (
        not any(_has_unknown_end(node) for node in run.nodes)
        or any(node.facts.kind == "agent" and not node.span.parent_id for node in run.nodes)
        or _is_answered(replies)
    )
    # A request that failed and was made again is an error of its step only.
    last_error = replies[-1].error if replies else None
    return replace(
        message,
        external_id=name,
        knowledge_references=_references(nodes) or None,
        created_at=_time(run.start),
        is_completed=is_completed,
        completed_at=_time(max(node.span.end for node in run.nodes)) if is_completed else None,
        error=(errors[-1] if errors else last_error) or None,
    )


def _references(nodes: Iterable[_Node]) -> list[records.Reference]:
    """Return what the retrievers of a run found, in the order of their start."""
    retrievers = {node.retriever for node in nodes if node.retriever is not None}
    passages = [passage for retriever in sorted(retrievers, key=_place) for passage in retriever.passages]
    return [replace(passage, seq=index) for index, passage in enumerate(passages)]


def _place(node: _Node) -> tuple[int, str]:
    return node.span.start, node.span.span_id


def _has_unknown_end(node: _Node) -> bool:
    """Return whether the run may go on although its spans have ended."""
    if node.facts.has_no_end:
        return node.facts.output is None
    return node.parent is None and bool(node.span.parent_id) and node.facts.kind != "agent"


def _is_answered(replies: Sequence[Reply]) -> bool:
    return bool(replies) and not replies[-1].calls and bool(replies[-1].content or replies[-1].error)


def _time(nanoseconds: int) -> datetime | None:
    """Return an aware time; None for 0 and for times that no calendar has."""
    if not 0 < nanoseconds < _LATEST:
        return None
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
