"""The reading order of an agent run: steps in order, and calls below their parents. Pure functions.

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
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

MAX_DEPTH = 12

K = TypeVar("K")


def reading_order(
    steps: Sequence[UUID],
    agents: Sequence[str],
    calls: Sequence[UUID],
    steps_of_calls: Sequence[UUID],
    parents: Sequence[UUID | None],
) -> tuple[list[int], list[int]]:
    """Return the nodes of a run in reading order, and the depth of each. Steps are nodes 0, 1, ..., and calls follow them.

    `agents` has the agent of each step; `steps_of_calls` and `parents` the step and the parent of each call. Steps are in their
    order, calls in their order within a step. Inside it works with numbers, because a run has up to 200,000 nodes: Python takes
    longer to hash a UUID, and its garbage collector looks at every other object.
    """
    place_of_step = {key.int: place for place, key in enumerate(steps)}
    step_of = [place_of_step[key.int] for key in steps_of_calls]
    above = [-1] * len(steps) + step_of
    if any(key is not None for key in parents):
        place_of_call = {key.int: place for place, key in enumerate(calls)}
        parent_of = [-1 if key is None else place_of_call.get(key.int, -1) for key in parents]
        _cut_cycles(parent_of)
        host_of = _hosts(agents, step_of, parent_of)
        for call, (step, parent) in enumerate(zip(step_of, parent_of, strict=True), len(steps)):
            if parent >= 0 and host_of[step] != parent:
                above[call] = len(steps) + parent
        # Every chain of hosts ends at a root call, whose step has no host, so every node is in the tree.
        above[: len(steps)] = [len(steps) + host if host >= 0 else -1 for host in host_of]
    # The calls below a node come before the steps of sub-agents there. The last place is that of the root, which is node -1.
    first_below, next_of = [-1] * (len(above) + 1), [-1] * len(above)
    for node in (*reversed(range(len(steps))), *reversed(range(len(steps), len(above)))):
        next_of[node] = first_below[above[node]]
        first_below[above[node]] = node
    return _walked(first_below, next_of)


def step_numbers(rows: Sequence[tuple[K, int]]) -> dict[K, str]:
    """Return the displayed numbers of steps (id, iteration) in their order: the iteration, and for further steps of it, such
    as those of a sub-agent, 3.1, 3.2 ..."""
    seen: Counter[int] = Counter()
    numbers = {}
    for pk, iteration in rows:
        numbers[pk] = f"{iteration}.{seen[iteration]}" if seen[iteration] else str(iteration)
        seen[iteration] += 1
    return numbers


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


def _hosts(agents: Sequence[str], step_of: Sequence[int], parent_of: Sequence[int]) -> list[int]:
    """Return the call above each step of a sub-agent, and -1 for the other steps."""
    first_parent: list[int | None] = [None] * len(agents)
    """Of the first call of each step; -1 if one of its calls has none."""
    for step, parent in zip(step_of, parent_of, strict=True):
        first = first_parent[step]
        first_parent[step] = parent if first is None else -1 if parent < 0 else first
    host_of = [-1] * len(agents)
    last_of_agent: dict[str, int] = {}
    for step, (agent, first) in enumerate(zip(agents, first_parent, strict=True)):
        if first is None:
            host_of[step] = host_of[last_of_agent[agent]] if agent in last_of_agent else -1
        elif first >= 0 and step_of[first] != step:
            host_of[step] = first
        if agent:
            last_of_agent[agent] = step
    return host_of


def _cut_cycles(parent_of: list[int]) -> None:
    """Take its parent from the first call of each cycle."""
    seen_from = [-1] * len(parent_of)
    """The first call from which a call was reached."""
    for call in range(len(parent_of)):
        node = call
        while node >= 0 and seen_from[node] < 0:
            seen_from[node] = call
            node = parent_of[node]
        # A call that was reached from an earlier one leads to a root.
        if node >= 0 and seen_from[node] == call:
            first = last = node
            while (last := parent_of[last]) != node:
                first = min(first, last)
            parent_of[first] = -1
