"""The runs of a trace.

A run is the uppermost agent, or all spans outside of one. Runs of a trace that follow each other are messages of their own,
overlapping ones are one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .nodes import Node

LATEST = 253_402_300_799 * 10**9
"""The end of the year 9999 in nanoseconds."""


@dataclass(eq=False)
class Run:
    nodes: list[Node]
    """The uppermost ones."""
    start: int
    end: int


def runs_of(roots: Sequence[Node]) -> list[Run]:
    """Return the runs of a trace in their order: of the uppermost spans with a meaning, those that overlap are one."""
    uppermost = [node for root in roots for node in _uppermost(root)] or list(roots)
    uppermost.sort(key=lambda node: node.span.start)
    # Requests and tools without an agent around them belong together, whatever their times: a loop of plain code.
    loose = [node for node in uppermost if not _may_be_run(node)]
    first = Run(loose, loose[0].span.start, max(map(_end, loose))) if loose else None
    runs = [first] if first is not None else []
    # The agents come in the order of their start, so of their runs only the one that ends last can overlap a further one.
    last: Run | None = None
    for node in filter(_may_be_run, uppermost):
        run = next((run for run in (first, last) if run is not None and _overlaps(node, run)), None)
        if run is None:
            run = Run([node], node.span.start, _end(node))
            runs.append(run)
        else:
            run.nodes.append(node)
            run.start = min(run.start, node.span.start)
            run.end = max(run.end, _end(node))
        if run is not first and (last is None or run.end > last.end):
            last = run
    return sorted(runs, key=lambda run: (run.start, run.nodes[0].span.span_id))


def _overlaps(node: Node, run: Run) -> bool:
    return node.span.start < run.end and _end(node) > run.start


def _uppermost(node: Node) -> list[Node]:
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


def _may_be_run(node: Node) -> bool:
    """Return whether a span is an agent, or a request that wraps others (the AI SDK's generateText)."""
    return node.facts.kind == "agent" or bool(node.facts.is_root_of_run) or _wraps_requests(node)


def _wraps_requests(node: Node) -> bool:
    return node.facts.kind == "generation" and any(child.facts.kind == "generation" for child in node.children)


def _end(node: Node) -> int:
    return node.span.end or LATEST
