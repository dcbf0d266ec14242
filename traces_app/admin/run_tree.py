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

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    step_of = {step.id: step for step in steps}
    parent_of = _parents(calls)
    calls_of = defaultdict(list)
    for call in calls:
        calls_of[call.step_id].append(call)
    host_of = _hosts(steps, calls_of, parent_of)
    for call in calls:
        parent = parent_of.get(call.id)
        if parent is None or host_of.get(call.step_id) is parent:
            step_of[call.step_id].below.append(call)
        else:
            parent.below.append(call)
    # Every chain of hosts ends at a root call, whose step has no host, so every node is in the tree.
    for step in steps:
        if step.id in host_of:
            host_of[step.id].below.append(step)
    tree = [step for step in steps if step.id not in host_of]
    _flatten_below(tree)
    return tree


def _hosts(
    steps: Sequence[StepNode], calls_of: Mapping[Key, Sequence[CallNode]], parent_of: Mapping[Key, CallNode]
) -> dict[Key, CallNode]:
    """Return the call above each step of a sub-agent."""
    host_of: dict[Key, CallNode] = {}
    last_of_agent: dict[str, StepNode] = {}
    for step in steps:
        own = calls_of.get(step.id, ())
        parents = [parent_of[call.id] for call in own if call.id in parent_of]
        if own and len(parents) == len(own) and parents[0].step_id != step.id:
            host_of[step.id] = parents[0]
        elif not own and step.agent in last_of_agent and last_of_agent[step.agent].id in host_of:
            host_of[step.id] = host_of[last_of_agent[step.agent].id]
        if step.agent:
            last_of_agent[step.agent] = step
    return host_of


def _parents(calls: Sequence[CallNode]) -> dict[Key, CallNode]:
    """Return the parent of each call that has one among `calls`, without cycles."""
    by_id = {call.id: call for call in calls}
    parent_of = {call.id: by_id[call.parent_id] for call in calls if call.parent_id in by_id}
    place = {call.id: number for number, call in enumerate(calls)}
    settled: set[Key] = set()
    for call in calls:
        # Earlier calls lead to a root, so a cycle that is found here is on the path of this call only.
        path: set[Key] = set()
        node: CallNode | None = call
        while node is not None and node.id not in settled:
            if node.id in path:
                del parent_of[min(_cycle(node, parent_of), key=place.__getitem__)]
                break
            path.add(node.id)
            node = parent_of.get(node.id)
        settled |= path
    return parent_of


def _cycle(node: CallNode, parent_of: dict[Key, CallNode]) -> set[Key]:
    """Return the calls in the cycle of parents that contains `node`."""
    cycle = {node.id}
    while (node := parent_of[node.id]).id not in cycle:
        cycle.add(node.id)
    return cycle


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


def _flatten_below(tree: Sequence[StepNode]) -> None:
    level: list[CallNode | StepNode] = list(tree)
    for _depth in range(MAX_DEPTH):
        level = [child for node in level for child in node.below]
    for node in level:
        deeper = list(walk(node.below))
        for one in deeper:
            one.below = []
        node.below = deeper


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
