"""The tree of an agent run: steps in order, and calls below their parents. Pure functions; run_page.py reads the rows.

1. Steps are in their order (iteration, ordinal), the calls of a step in the order of their positions.
2. A call with a parent is below it.
3. A step whose calls all have parents, the first of them in another step, is the step of a sub-agent: it is below the
   parent of its first call. A step without calls, such as the last of a sub-agent, has the same place as the previous step
   of its agent.
4. Every node is shown exactly once, whatever the parents: a cycle of parents is cut at its first call in reading order.
   Levels below MAX_DEPTH are not indented any further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from messages_app.safe_text import Excerpt
from traces_app.models import ToolCall

ROWS_PER_PAGE = 100
"""A page ends with the step in which its steps and calls reach this number."""
MOST_ROWS = 500
"""The maximum for one step with everything below it; further calls are only in the list of tool calls."""
MAX_DEPTH = 12

K = TypeVar("K")
Key = str
"""A UUID as text: to make and hash 100,000 UUID objects takes longer than to read them."""


@dataclass(kw_only=True)
class CallNode:
    """One call in the tree. `texts` is filled in for the calls of the page."""

    id: Key
    step_id: Key
    parent_id: Key | None
    status: str
    tool_id: int | None = None
    below: list[CallNode | StepNode] = field(default_factory=list)
    is_open: bool = False
    """Whether it is shown unfolded: it or a call below it has failed or was requested."""
    texts: CallTexts | None = None

    @property
    def failed(self) -> bool:
        return self.status == ToolCall.Status.ERROR


@dataclass(kw_only=True)
class StepNode:
    """One step in the tree."""

    id: Key
    iteration: int
    number: str
    """The displayed number, from 1: see `step_number`."""
    agent: str
    below: list[CallNode | StepNode] = field(default_factory=list)
    texts: StepTexts | None = None


@dataclass(frozen=True, kw_only=True)
class StepTexts:
    row: Any
    """An AgentStep; Any because of its annotations."""
    thought: Excerpt
    reasoning: Excerpt
    usage: Excerpt
    tokens: tuple[int, int] | None
    """Input and output tokens as `usage` counts them; None if it counts none."""
    metadata: Excerpt


@dataclass(frozen=True, kw_only=True)
class CallTexts:
    row: Any
    """A ToolCall with its tool; Any because of its annotations."""
    args: Excerpt
    fields: Sequence[tuple[str, Excerpt]]
    """The arguments, each by itself, if one of them has several lines; otherwise empty."""
    reflection: Excerpt
    metadata: Excerpt
    has_result: bool
    output: Excerpt
    data: Excerpt
    error: Excerpt
    raw: Excerpt
    result_metadata: Excerpt
    attachments: Excerpt


def steps_of(rows: Iterable[tuple[Key, int, str]]) -> list[StepNode]:
    """Return the nodes of steps (id, iteration, agent), which are in their order."""
    known = list(rows)
    numbers = step_numbers([(key, iteration) for key, iteration, _agent in known])
    return [StepNode(id=key, iteration=iteration, number=numbers[key], agent=agent) for key, iteration, agent in known]


def step_numbers(rows: Sequence[tuple[K, int]]) -> dict[K, str]:
    """Return the displayed numbers of steps (id, iteration) in their order."""
    first = 1 if any(iteration == 0 for _pk, iteration in rows) else 0
    seen: Counter[int] = Counter()
    numbers = {}
    for pk, iteration in rows:
        numbers[pk] = f"{iteration + first}.{seen[iteration]}" if seen[iteration] else str(iteration + first)
        seen[iteration] += 1
    return numbers


def build_tree(steps: Sequence[StepNode], calls: Sequence[CallNode]) -> list[StepNode]:
    """Attach `calls` and the steps of sub-agents to their nodes; return the other steps. Both are in reading order."""
    place_of_step = {step.id: place for place, step in enumerate(steps)}
    place_of_call = {call.id: place for place, call in enumerate(calls)}
    nodes: list[CallNode | StepNode] = [*steps, *calls]
    order, depths = reading_order(
        [step.agent for step in steps],
        [place_of_step[call.step_id] for call in calls],
        [-1 if call.parent_id is None else place_of_call.get(call.parent_id, -1) for call in calls],
    )
    tree: list[StepNode] = []
    path: list[CallNode | StepNode] = []
    for node, depth in zip(map(nodes.__getitem__, order), depths, strict=True):
        del path[depth:]
        if path:
            path[-1].below.append(node)
        else:
            assert isinstance(node, StepNode), "a call is below its step or its parent"
            tree.append(node)
        path.append(node)
    return tree


def reading_order(agents: Sequence[str], steps: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the nodes of a run in reading order, and the depth of each. Steps are nodes 0, 1, ..., and calls follow them.

    `agents` has the agent of each step; `steps` has the step of each call, in order; `parents` its parent among the calls, or -1.
    Numbers, because a run has up to 100,000 nodes, and the garbage collector looks at every other object.
    """
    above = [-1] * len(agents) + list(steps)
    if max(parents, default=-1) >= 0:
        parent_of = _without_cycles(parents)
        host_of = _hosts(agents, steps, parent_of)
        for call, (step, parent) in enumerate(zip(steps, parent_of, strict=True), len(agents)):
            if parent >= 0 and host_of[step] != parent:
                above[call] = len(agents) + parent
        # Every chain of hosts ends at a root call, whose step has no host, so every node is in the tree.
        for step, host in enumerate(host_of):
            above[step] = len(agents) + host if host >= 0 else -1
    # The calls below a node come before the steps of sub-agents there. The last place is that of the root, which is node -1.
    first_below, next_of = [-1] * (len(above) + 1), [-1] * len(above)
    for node in (*reversed(range(len(agents))), *reversed(range(len(agents), len(above)))):
        next_of[node] = first_below[above[node]]
        first_below[above[node]] = node
    return _walked(first_below, next_of)


def _walked(first_below: Sequence[int], next_of: Sequence[int]) -> tuple[list[int], list[int]]:
    order: list[int] = []
    depths: list[int] = []
    path: list[int] = []
    node = first_below[-1]
    while node >= 0:
        order.append(node)
        depths.append(min(len(path), MAX_DEPTH + 1))
        if first_below[node] >= 0:
            path.append(node)
            node = first_below[node]
            continue
        while next_of[node] < 0 and path:
            node = path.pop()
        node = next_of[node]
    return order, depths


def _hosts(agents: Sequence[str], steps: Sequence[int], parent_of: Sequence[int]) -> list[int]:
    """Return the call above each step of a sub-agent, and -1 for the other steps."""
    first_parent: list[int | None] = [None] * len(agents)
    """Of the first call of each step; -1 if one of its calls has none."""
    for step, parent in zip(steps, parent_of, strict=True):
        first = first_parent[step]
        first_parent[step] = parent if first is None else -1 if parent < 0 else first
    host_of = [-1] * len(agents)
    last_of_agent: dict[str, int] = {}
    for step, (agent, first) in enumerate(zip(agents, first_parent, strict=True)):
        if first is None:
            host_of[step] = host_of[last_of_agent[agent]] if agent in last_of_agent else -1
        elif first >= 0 and steps[first] != step:
            host_of[step] = first
        if agent:
            last_of_agent[agent] = step
    return host_of


def _without_cycles(parents: Sequence[int]) -> list[int]:
    """Return the parents, without that of the first call of each cycle."""
    parent_of = list(parents)
    seen_from = [-1] * len(parents)
    """The first call from which a call was reached."""
    for call in range(len(parents)):
        node = call
        while node >= 0 and seen_from[node] < 0:
            seen_from[node] = call
            node = parent_of[node]
        # Calls that were reached before lead to a root, so this is a cycle of calls that were not.
        if node >= 0 and seen_from[node] == call:
            first = last = node
            while (last := parent_of[last]) != node:
                first = min(first, last)
            parent_of[first] = -1
    return parent_of


def walk(nodes: Iterable[CallNode | StepNode]) -> Iterator[CallNode | StepNode]:
    """Yield all nodes of the tree in reading order, parents first."""
    waiting: list[CallNode | StepNode] = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.below))


def walk_with_depths(tree: Iterable[CallNode | StepNode]) -> Iterator[tuple[int, CallNode | StepNode]]:
    """Yield all nodes of the tree in reading order, each with its depth from 0."""
    waiting: list[tuple[int, CallNode | StepNode]] = [(0, node) for node in tree][::-1]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting.extend([(depth + 1, child) for child in reversed(node.below)])


def pages_of(tree: Sequence[StepNode]) -> list[list[StepNode]]:
    """Split the top steps into pages by the number of rows; return at least one page."""
    pages: list[list[StepNode]] = [[]]
    rows = 0
    for step in tree:
        if rows >= ROWS_PER_PAGE:
            pages.append([])
            rows = 0
        pages[-1].append(step)
        rows += _prune(step, MOST_ROWS)
    return pages


def _prune(step: StepNode, most: int) -> int:
    """Cut a step to its first `most` rows; return the number of rows left."""
    kept = {node.id for _index, node in zip(range(most), walk([step]), strict=False)}
    if len(kept) == most:
        for node in walk([step]):
            node.below = [child for child in node.below if child.id in kept]
    return len(kept)


def unfold(nodes: Iterable[CallNode | StepNode], wanted: Key | None, *, open_all: bool) -> bool:
    """Open failed calls, the wanted call and the calls above them; return whether there was any."""
    found = False
    for node in nodes:
        below = unfold(node.below, wanted, open_all=open_all)
        if isinstance(node, CallNode):
            node.is_open = open_all or below or node.failed or node.id == wanted
            below = below or node.failed or node.id == wanted
        found = found or below
    return found
