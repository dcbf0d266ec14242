"""Parsing of the plan of a task."""

from __future__ import annotations

from typing import Any

import pytest

from traces_app.admin.workflow_plan import MOST_AGENTS, PlannedAgent, layers_of


def agent(id_: str, *after: str, status: str = "init") -> dict[str, Any]:
    return {"id": id_, "name": id_.upper(), "task": f"do {id_}", "dependsOn": list(after), "status": status}


def names(workflow: Any) -> list[list[str]]:
    return [[one.id for one in layer] for layer in layers_of(workflow, {})]


def test_agents_are_layered_by_their_dependencies() -> None:
    workflow = {"agents": [agent("d", "b", "c"), agent("a"), agent("b", "a"), agent("c", "a")]}
    assert names(workflow) == [["a"], ["b", "c"], ["d"]]


def test_state_of_run_replaces_state_of_plan() -> None:
    [[found]] = layers_of({"agents": [agent("a")]}, {"a": {"status": "error", "error": "no"}})
    assert found == PlannedAgent(id="a", name="A", task="do a", state="error", after=())


def test_agent_tree_is_a_chain_of_layers() -> None:
    tree = {
        "type": "normal",
        "agent": agent("a"),
        "nextAgent": {
            "type": "parallel",
            "agents": [{"type": "normal", "agent": agent("b")}, {"type": "normal", "agent": agent("c")}],
            "nextAgent": {"type": "normal", "agent": agent("d")},
        },
    }
    assert names({"agentTree": tree}) == [["a"], ["b", "c"], ["d"]]


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        (None, []),
        ("a plan in words", []),
        ({"steps": ["a"]}, []),
        ({"agents": "a"}, []),
        ({"agents": [None, "a", {}]}, [[""]]),
        ({"agents": [agent("a", "gone")]}, [["a"]]),
        ({"agents": [agent("a", "a")]}, [["a"]]),
        ({"agents": [agent("a", "b"), agent("b", "a"), agent("c")]}, [["c"], ["a"], ["b"]]),
        ({"agentTree": {"agents": [1], "nextAgent": 2}}, []),
    ],
)
def test_any_workflow_is_parsed_without_errors(workflow: Any, expected: list[list[str]]) -> None:
    assert names(workflow) == expected


def test_endless_plan_is_read_up_to_the_limit() -> None:
    tree: dict[str, Any] = {}
    for number in range(MOST_AGENTS + 50):
        tree = {"agent": agent(f"a{number}"), "nextAgent": tree}
    assert len(layers_of({"agentTree": tree}, {})) == MOST_AGENTS
