"""Parse the plan of a task: its agents, their tasks, and their order.

A session's `workflow` may be any JSON. Two forms are parsed, both Eko's: a workflow with `agents`, each with the ids that
it `dependsOn`, and an `agentTree`, a chain of agents and of groups that work in parallel. For any other form the page shows
only the JSON. Pure Python, without Django.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_AGENTS = 200
_STATES = {"init": "planned", "running": "running", "done": "done", "error": "error"}


@dataclass(frozen=True, kw_only=True)
class PlannedAgent:
    """An agent of a plan."""

    id: str
    name: str
    task: str
    state: str
    """planned, running, done or error; "" if unknown."""
    after: tuple[str, ...]
    """The ids of the agents that it waits for."""


def layers_of(workflow: Any, states: Mapping[str, Any]) -> list[list[PlannedAgent]]:
    """Return the agents of a workflow in layers of agents that may work in parallel; no layers without a plan.

    `states` has the states of agents by id, such as `{"status": "done"}`, from a run; they replace those of the plan.
    Cycles are broken, unknown dependencies ignored, and only the first MOST_AGENTS agents are read.
    """
    if not isinstance(workflow, dict):
        return []
    listed = workflow.get("agents")
    parsed = list(_listed(listed) if isinstance(listed, list) else _of_tree(workflow.get("agentTree")))[:MOST_AGENTS]
    agents = {agent.id: agent for agent in (_with_state(agent, states) for agent in parsed)}
    layers: list[list[PlannedAgent]] = []
    placed: set[str] = set()
    while len(placed) < len(agents):
        left = [agent for agent in agents.values() if agent.id not in placed]
        ready = [agent for agent in left if not (set(agent.after) & agents.keys()) - placed - {agent.id}]
        # In a cycle all agents wait, so the first one of the plan is taken.
        layer = ready or left[:1]
        layers.append(layer)
        placed.update(agent.id for agent in layer)
    return layers


def _listed(agents: Sequence[Any]) -> Iterator[PlannedAgent]:
    for agent in agents:
        if isinstance(agent, dict):
            after = agent.get("dependsOn")
            yield _agent(agent, tuple(map(str, after)) if isinstance(after, list) else ())


def _of_tree(node: Any) -> Iterator[PlannedAgent]:
    before: tuple[str, ...] = ()
    for _layer in range(MOST_AGENTS):
        if not isinstance(node, dict):
            return
        parallel = node.get("agents")
        members = parallel if isinstance(parallel, list) else [node]
        layer = [_agent(inner, before) for member in members if isinstance(member, dict) and (inner := _inner(member))]
        yield from layer
        before = tuple(agent.id for agent in layer)
        node = node.get("nextAgent")


def _inner(node: Mapping[str, Any]) -> Mapping[str, Any]:
    agent = node.get("agent")
    return agent if isinstance(agent, dict) else node


def _agent(fields: Mapping[str, Any], after: tuple[str, ...]) -> PlannedAgent:
    name = _text(fields.get("name"))
    return PlannedAgent(
        id=_text(fields.get("id")) or name,
        name=name,
        task=_text(fields.get("task")),
        state=_STATES.get(_text(fields.get("status")), ""),
        after=after,
    )


def _with_state(agent: PlannedAgent, states: Mapping[str, Any]) -> PlannedAgent:
    known = states.get(agent.id)
    state = _STATES.get(_text(known.get("status")), "") if isinstance(known, dict) else ""
    return replace(agent, state=state) if state else agent


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
