"""The plan of a task as people read it: which agents there are, what each is to do, and after which others.

A session's `workflow` may be any JSON. Read are the two forms that agents send: a workflow with its `agents`, each with the
ids that it `dependsOn`, and an `agentTree`, a chain of agents and of groups that work side by side (both are Eko's). Of any
other there is no plan to show, and the page shows the JSON as always. Pure, without Django.
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
    """planned, running, done or error; "" where nobody says it."""
    after: tuple[str, ...]
    """The ids of the agents that it waits for."""


def layers_of(workflow: Any, states: Mapping[str, Any]) -> list[list[PlannedAgent]]:
    """The agents of a workflow, those side by side that may work at the same time; no layers where there is no plan.

    `states` says what became of agents, by id: `{"status": "done"}`, as a run keeps it; it goes before what the plan says.
    Cycles are broken, dependencies that are not there left out, and of more than 200 agents the first are read.
    """
    if not isinstance(workflow, dict):
        return []
    listed = workflow.get("agents")
    said = list(_listed(listed) if isinstance(listed, list) else _of_tree(workflow.get("agentTree")))[:MOST_AGENTS]
    agents = {agent.id: agent for agent in (_with_state(agent, states) for agent in said)}
    layers: list[list[PlannedAgent]] = []
    placed: set[str] = set()
    while len(placed) < len(agents):
        left = [agent for agent in agents.values() if agent.id not in placed]
        ready = [agent for agent in left if not (set(agent.after) & agents.keys()) - placed - {agent.id}]
        # In a cycle everybody waits: the first one of the plan goes on.
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
        side_by_side = node.get("agents")
        members = side_by_side if isinstance(side_by_side, list) else [node]
        layer = [_agent(inner, before) for one in members if isinstance(one, dict) and (inner := _inner(one))]
        yield from layer
        before = tuple(agent.id for agent in layer)
        node = node.get("nextAgent")


def _inner(node: Mapping[str, Any]) -> Mapping[str, Any]:
    agent = node.get("agent")
    return agent if isinstance(agent, dict) else node


def _agent(said: Mapping[str, Any], after: tuple[str, ...]) -> PlannedAgent:
    name = _text(said.get("name"))
    return PlannedAgent(
        id=_text(said.get("id")) or name,
        name=name,
        task=_text(said.get("task")),
        state=_STATES.get(_text(said.get("status")), ""),
        after=after,
    )


def _with_state(agent: PlannedAgent, states: Mapping[str, Any]) -> PlannedAgent:
    known = states.get(agent.id)
    state = _STATES.get(_text(known.get("status")), "") if isinstance(known, dict) else ""
    return replace(agent, state=state) if state else agent


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
