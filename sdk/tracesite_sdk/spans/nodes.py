"""The tree of a trace: its spans with their meaning, each once and connected.

* Spans that only announce another one (Logfire) stand for it until it arrives.
* Two spans of one request, seen by two libraries, are one generation: the one that says more. They have the id of the response in
  common, or the answer and most of their time, and differ in nothing else that both state.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import as_json
from tracesite_sdk.normalize.pricing import names_of, tokens_of, with_counts
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.trees import cycles, walk
from tracesite_sdk.transcripts.open_calls import canonical
from tracesite_sdk.transcripts.parsing.message_shapes import joined, messages_in

from .conventions.registry import facts_of
from .deliveries import fullness, merged
from .facts import Facts
from .observations import EMPTY, Spent, counted_beside_requests, question_in
from .pauses import pause_of
from .span import Span

_MOST_AT_A_TIME = 32
"""Requests with one answer that are compared with a generation to find its own, the last that began before it."""
_MOST_LIBRARIES = 8
"""Libraries that may have seen one request."""


@dataclass(eq=False)
class Node:
    """A span with its meaning and its place in the tree."""

    span: Span
    facts: Facts
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    depth: int = 0
    number: int = 0
    """Its index in a walk through the tree, in which those below it follow it."""
    number_after: int = 0
    """The index that follows those below it."""
    is_open: bool = False
    """Whether the span or one around it has not ended."""
    is_duplicate: bool = False
    pause: str | None = None
    """The exception by which it has paused, if it has; it is not its error."""
    has_tokens: bool = False
    """Whether it is no request, but its tokens or its cost are those of no request either."""
    is_guessed: bool = False
    """Whether another run may have asked for it."""
    retriever: Node | None = None
    """The uppermost retriever of those that it and the spans around it are."""
    passages: list[records.Reference] = field(default_factory=list)
    """The passages that such a retriever found."""

    def is_around(self, other: Node) -> bool:
        """Return whether a node is this one or below it."""
        return self.number <= other.number < self.number_after

    @property
    def has_meaning(self) -> bool:
        is_part = self.facts.kind in ("generation", "tool", "agent") or bool(self.facts.is_root_of_run)
        return is_part or self.has_tokens


def nodes_of(spans: Iterable[Span]) -> list[Node]:
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
    nodes = {id_: Node(span, facts) for id_, (span, facts) in known.items()}
    for id_, announced in announcements.items():
        if id_ not in nodes:
            span, facts = _fullest(announced)
            open_span = replace(span, span_id=id_, parent_id=facts.parent_id or "", end=0)
            nodes[id_] = Node(open_span, facts)
    for node in nodes.values():
        node.pause = pause_of(node.span, node.facts.error)
        if node.pause is not None:
            node.facts = replace(node.facts, error=None)
    ordered = sorted(nodes.values(), key=lambda node: (node.span.start, -node.span.end, node.span.span_id))
    _connect(ordered)
    _mark_duplicates(ordered)
    return ordered


def _fullest(deliveries: Sequence[tuple[Span, Facts]]) -> tuple[Span, Facts]:
    return deliveries[0] if len(deliveries) == 1 else max(deliveries, key=lambda delivery: fullness(delivery[0]))


def _connect(nodes: Sequence[Node]) -> None:
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
        if node.facts.has_no_end:
            _ask_and_answer_as_child(node)
        node.is_open = not node.span.end or (node.parent is not None and node.parent.is_open)
    _find_passages(walked)
    counted = counted_beside_requests(
        Spent.of(node, node.facts.kind, node.facts.usage, is_embedding=node.facts.is_embedding)
        for node in walked
        if (node.facts.usage or node.facts.cost is not None) and node.facts.kind != "tool"
    )
    for number in counted:
        walked[number].has_tokens = True


def _end_with_children(walked: Sequence[Node]) -> None:
    """Let spans without an end of their own last from the first start to the last end of those below them; they are open
    while one of these is. Those without a start begin with the first of them."""
    lasting: dict[Node, tuple[int, int]] = {}
    """The first start and the last end of a span and those below it; 0 without a start, and while one of them is open."""
    for node in reversed(walked):
        below = [lasting[child] for child in node.children]
        start = min((start for start, _end in ((node.span.start, 0), *below) if start), default=0)
        ends = [end for _start, end in below]
        if node.facts.has_no_end:
            node.span = replace(node.span, start=start, end=0 if 0 in ends else max(ends, default=start))
        elif start and not node.span.start:
            node.span = replace(node.span, start=start)
        ends.append(node.span.end)
        lasting[node] = start, 0 if 0 in ends else max(ends)


def _ask_and_answer_as_child(trace: Node) -> None:
    """Give a trace that states no question or no answer those of its root observation, if it has one only."""
    root = trace.children[0] if len(trace.children) == 1 else None
    if root is None or root.facts.kind in ("generation", "tool") or root.facts.is_embedding or root.facts.passages:
        return
    facts = trace.facts
    trace.facts = replace(
        facts,
        input=root.facts.input if facts.input in EMPTY else facts.input,
        output=root.facts.output if facts.output in EMPTY and root.span.end else facts.output,
    )


def _find_passages(walked: Sequence[Node]) -> None:
    """Set what retrievers found. A retriever and the database below it report the same search: the one with more ids and
    scores says more."""
    same: dict[Node, list[list[records.Reference]]] = defaultdict(list)
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


def _mark_duplicates(nodes: Sequence[Node]) -> None:
    """Mark all but one of the generations of one request; those below each other are wrappers, see observations.py."""
    generations = [node for node in nodes if node.facts.kind == "generation"]
    by_response: dict[str, list[Node]] = defaultdict(list)
    by_answer: dict[str, list[Node]] = defaultdict(list)
    are_several = len({node.span.scope.name for node in generations}) > 1
    for node in generations:
        if node.facts.response_id:
            by_response[node.facts.response_id].append(node)
        if are_several and node.span.end and node.span.scope.name and (answer := _answer(node)):
            by_answer[answer].append(node)
    for same in by_response.values():
        _keep_one(same)
    for answered in by_answer.values():
        for seen in _requests(node for node in answered if not node.is_duplicate):
            _keep_one(seen)


def _requests(answered: Iterable[Node]) -> list[list[Node]]:
    """Return the generations with one answer, in the order of their start, divided into those of one request each. A library
    sees a request once."""
    requests: list[dict[str, Node]] = []
    """The generations of each request, by library."""
    running: list[dict[str, Node]] = []
    """Those that may have another one."""
    nodes = [*answered]
    libraries = min(len({node.span.scope.name for node in nodes}), _MOST_LIBRARIES)
    for node in nodes:
        library = node.span.scope.name
        running = [
            seen
            for seen in running
            if len(seen) < libraries and any(other.span.end >= node.span.start for other in seen.values())
        ][-_MOST_AT_A_TIME:]
        lacking = [seen for seen in running if library not in seen]
        # The one around it is surely its own, whatever else runs at the time.
        around = (seen for seen in lacking if any(other.is_around(node) for other in seen.values()))
        same = (seen for seen in chain(around, lacking) if all(_are_one_request(node, it) for it in seen.values()))
        own = next(same, None)
        if own is None:
            own = {}
            requests.append(own)
            running.append(own)
        own[library] = node
    return [[*seen.values()] for seen in requests]


def _keep_one(same: Sequence[Node]) -> None:
    best = max(same, key=_content_size)
    for node in same:
        if not node.is_around(best) and not best.is_around(node):
            node.is_duplicate = True
            if not best.facts.usage and best.facts.cost is None:
                best.facts = replace(best.facts, usage=node.facts.usage, cost=node.facts.cost)


def _answer(node: Node) -> str | None:
    """Return a text that identifies a generation by its question and its answer: text and calls. Without content only its tokens
    and the span around it are known."""
    answer = joined(messages_in(node.facts.output, "assistant"))
    asked = words_of(question_in(node.facts.input))
    if answer is not None and (answer.content or answer.calls):
        calls = [[call.id, call.name, canonical(call.args)] for call in answer.calls]
        return as_json([asked, words_of(answer.content), calls])
    if answer is None and node.facts.output not in EMPTY:
        return as_json([asked, node.facts.output])
    count = _tokens(node)
    return as_json([asked, *count, node.span.parent_id]) if all(count) and node.span.parent_id else None


def words_of(content: Any) -> str:
    """Return the text of a content, which may differ in its form or its spaces only; "" without one."""
    text = text_of(content)[0]
    return " ".join((text if isinstance(text, str) else as_json(text)).split()) if content else ""


def _tokens(node: Node) -> tuple[int, int]:
    """Return the input and output tokens of a generation, which libraries divide in different ways; 0 if unknown."""
    count = tokens_of(with_counts(node.facts.usage))
    return (count.input + count.cached_input + count.cache_write, count.output + count.reasoning) if count else (0, 0)


def _are_one_request(node: Node, other: Node) -> bool:
    """Return whether generations of two libraries with the same question and answer are one request: both took most of the same
    time, and nothing that both of them state differs."""
    shorter = min(node.span.end - node.span.start, other.span.end - other.span.start)
    together = min(node.span.end, other.span.end) - max(node.span.start, other.span.start)
    models = node.facts.model, other.facts.model
    # What costs least comes first, because most of those at one time are others.
    return (
        together >= 0.8 * shorter
        and _may_be_equal(node.facts.response_id, other.facts.response_id)
        and all(map(_may_be_equal, _tokens(node), _tokens(other)))
        and (not all(models) or any(_is_name_of(*names) for names in (models, models[::-1])))
        and _may_be_equal(_instructions(node), _instructions(other))
    )


def _may_be_equal(stated: object, other: object) -> bool:
    return stated == other or not (stated and other)


def _instructions(node: Node) -> str:
    """Return the system prompt of a generation; "" if it is unknown."""
    prompts = [message.content for message in messages_in(node.facts.input) if message.role == "system"]
    return words_of(prompts[0] if prompts else node.facts.system)


def _is_name_of(short: str | None, model: str | None) -> bool:
    """Return whether a model has this name, apart from its provider and a date at its end."""
    short, model = ((name or "").lower().rpartition("/")[2] for name in (short, model))
    return short in names_of(model) or bool(re.fullmatch(r"-\d{4}", model.removeprefix(short)))


def _content_size(node: Node) -> tuple[int, int, str]:
    return len(as_json(node.facts.output)), len(as_json(node.facts.input)), node.span.span_id


def above(node: Node) -> Iterator[Node]:
    """Yield the nodes around one, the nearest first."""
    while node.parent is not None:
        node = node.parent
        yield node


def of_the_uppermost(nodes: Sequence[Node], name: str) -> Any:
    """Return a fact of the span that is nearest to the root, of several the first."""
    having = (node for node in nodes if getattr(node.facts, name))
    nearest = min(having, key=attrgetter("depth"), default=None)
    return getattr(nearest.facts, name) if nearest is not None else None
