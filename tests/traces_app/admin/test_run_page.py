"""The tree of steps and calls of a run, and its pages."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import NOON, answer, answered, store
from traces_app.admin import run_page, run_tree
from traces_app.admin.run_page import read_call, read_deciding_failure, read_run, read_tool_time
from traces_app.admin.run_tree import CallNode, StepNode
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.runs.outline import step_number
from traces_app.queries.runs.reading_order import MAX_DEPTH, reading_order

Drawn = Any


def tree_of(steps: list[tuple[int, list[tuple[int, int | None]]]], agents: str = "") -> list[Drawn]:
    """The tree of steps, given as (number, [(call, parent)]) and one letter each for their agents, as nested lists:
    ["step 1", ["call 2", ...], ...]."""
    keys = [UUID(int=1000 + number) for number, _calls in steps]
    calls = [(call, key, parent) for key, (_number, below) in zip(keys, steps, strict=True) for call, parent in below]
    order, depths = reading_order(
        keys,
        [agents[place : place + 1] for place in range(len(steps))],
        [UUID(int=call) for call, _step, _parent in calls],
        [step for _call, step, _parent in calls],
        [None if parent is None else UUID(int=parent) for _call, _step, parent in calls],
    )
    labels = [*(f"step {number}" for number, _calls in steps), *(f"call {call}" for call, _step, _parent in calls)]
    tree: Drawn = []
    path = [tree]
    for node, depth in zip(order, depths, strict=True):
        del path[depth + 1 :]
        path[-1].append([labels[node]])
        path.append(path[-1][-1])
    return tree


def names(tree: list[Drawn]) -> list[str]:
    return [name for node in tree for name in [node[0], *names(node[1:])]]


def test_calls_are_in_their_steps_in_order() -> None:
    assert tree_of([(0, [(1, None), (2, None)]), (1, [(3, None)])]) == [
        ["step 0", ["call 1"], ["call 2"]],
        ["step 1", ["call 3"]],
    ]


def test_call_is_below_its_parent() -> None:
    assert tree_of([(0, [(1, None), (2, 1), (3, 2), (4, 1)])]) == [
        ["step 0", ["call 1", ["call 2", ["call 3"]], ["call 4"]]]
    ]


def test_steps_of_sub_agent_are_below_its_parent_call() -> None:
    assert tree_of([(0, [(1, None)]), (1, [(2, 1), (3, 1)]), (2, [(4, 1)]), (3, [(5, None)])]) == [
        ["step 0", ["call 1", ["step 1", ["call 2"], ["call 3"]], ["step 2", ["call 4"]]]],
        ["step 3", ["call 5"]],
    ]


def test_sub_agent_of_sub_agent_is_nested_twice() -> None:
    assert tree_of([(0, [(1, None)]), (1, [(2, 1), (3, 2)]), (2, [(4, 3)])]) == [
        ["step 0", ["call 1", ["step 1", ["call 2", ["call 3", ["step 2", ["call 4"]]]]]]]
    ]


def test_last_step_of_sub_agent_is_with_its_other_steps() -> None:
    steps: list[tuple[int, list[tuple[int, int | None]]]] = [(0, [(1, None)]), (1, [(2, 1)]), (2, []), (3, [])]
    assert tree_of(steps, "abba") == [["step 0", ["call 1", ["step 1", ["call 2"]], ["step 2"]]], ["step 3"]]
    assert tree_of(steps) == [["step 0", ["call 1", ["step 1", ["call 2"]]]], ["step 2"], ["step 3"]]


def test_step_with_a_root_call_is_not_moved() -> None:
    assert tree_of([(0, [(1, None)]), (1, [(2, 1), (3, None)])]) == [
        ["step 0", ["call 1", ["call 2"]]],
        ["step 1", ["call 3"]],
    ]


def test_step_without_calls_is_in_the_tree() -> None:
    assert tree_of([(0, []), (1, [])]) == [["step 0"], ["step 1"]]


def test_cycle_of_parents_is_cut_at_its_first_call() -> None:
    assert tree_of([(0, [(1, 3), (2, 1), (3, 2)])]) == [["step 0", ["call 1", ["call 2", ["call 3"]]]]]
    assert tree_of([(0, [(1, 1)])]) == [["step 0", ["call 1"]]]
    assert tree_of([(0, [(1, 2), (2, 3)]), (1, [(3, 2)])]) == [
        ["step 0", ["call 2", ["call 1"], ["step 1", ["call 3"]]]]
    ]


def test_missing_parent_is_ignored() -> None:
    assert tree_of([(0, [(1, 99)])]) == [["step 0", ["call 1"]]]


def test_levels_below_twelve_are_not_indented() -> None:
    chain = [(1, None), *((call, call - 1) for call in range(2, 31))]
    tree = tree_of([(0, chain)])
    assert names(tree) == ["step 0", *(f"call {call}" for call in range(1, 31))]
    node = tree[0]
    for _level in range(MAX_DEPTH):
        (_name, node) = node
    assert list(node[1:]) == [[f"call {call}"] for call in range(13, 31)]


@given(st.data())
def test_any_parents_show_each_node_exactly_once(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    steps: list[tuple[int, list[tuple[int, int | None]]]] = [
        (number, []) for number in range(data.draw(st.integers(1, 6)))
    ]
    for call in range(1, count + 1):
        parent = data.draw(st.none() | st.integers(1, count + 1))
        steps[data.draw(st.integers(0, len(steps) - 1))][1].append((call, parent))
    shown = names(tree_of(steps, data.draw(st.text("ab", max_size=6))))
    expected = [f"step {number}" for number, _calls in steps] + [f"call {call}" for call in range(1, count + 1)]
    assert sorted(shown) == sorted(expected)


# --- From the tables --------------------------------------------------------------------------------------------------


def texts_of(node: CallNode | StepNode) -> Any:
    assert node.texts is not None
    return node.texts


def test_read_run_returns_steps_and_calls_with_texts(project: Project) -> None:
    run = read_run(primary, answered(project))
    assert [(step.iteration, texts_of(step).thought.head) for step in run.steps] == [
        (0, "Ask for both cities at once."),
        (1, "Ask the researcher."),
    ]
    found, missing = run.steps[0].below
    assert isinstance(found, CallNode) and isinstance(missing, CallNode)
    assert texts_of(found).args.head == '{\n    "city": "上海"\n}'
    assert texts_of(found).output.head == "31 °C"
    assert texts_of(found).data.head == '{\n    "temp_c": 31\n}'
    assert (texts_of(missing).error.head, texts_of(missing).reflection.head) == (
        "unknown city",
        "The city does not exist.",
    )
    assert (found.is_open, missing.is_open) == (False, True)
    (outer,) = run.steps[1].below
    (inner,) = outer.below
    assert [texts_of(node).row.tool.name for node in (outer, inner)] == ["ask_researcher", "search"]
    assert [(failure.call_id, failure.tool, failure.error, failure.page) for failure in run.failures] == [
        (missing.id, "get_weather", "unknown city", 1)
    ]
    assert (run.number, run.pages, run.more_failures, run.is_cut) == (1, 1, 0, False)


def test_run_without_steps_and_call_without_result_are_read(project: Project) -> None:
    assert read_run(primary, answered(project, agent_steps=[])).steps == []
    pending = store(
        project, answer(agent_steps=[{"tool_calls": [{"id": "c", "name": "t"}]}], is_completed=False), external_id="p"
    )
    assert pending.messages[0].id is not None
    (step,) = read_run(primary, pending.messages[0].id).steps
    (call,) = step.below
    assert isinstance(call, CallNode)
    assert (call.status, texts_of(call).has_result, texts_of(call).output.head) == ("pending", False, "")


def many_steps(count: int, calls: int = 3, **result: Any) -> list[dict[str, Any]]:
    return [
        {
            "iteration": step,
            "thought": f"thought {step}",
            "tool_calls": [
                {"id": f"{step}-{call}", "name": "tool", "args": {"n": call}, "result": {"output": "ok", **result}}
                for call in range(calls)
            ],
        }
        for step in range(count)
    ]


def test_steps_of_very_long_run_are_each_on_one_page(project: Project) -> None:
    message_id = answered(project, agent_steps=many_steps(2_000, 1))
    pages = [read_run(primary, message_id, page=number) for number in range(1, 41)]
    assert {page.pages for page in pages} == {40}
    assert [step.iteration for page in pages for step in page.steps] == list(range(2_000))
    assert not any(page.is_cut for page in pages)


def test_long_run_has_pages_and_call_selects_its_page(project: Project) -> None:
    steps = many_steps(60)
    steps[50]["tool_calls"][1]["result"] = {"success": False, "error": "boom"}
    message_id = answered(project, agent_steps=steps)
    pages = [read_run(primary, message_id, page=number) for number in (1, 2, 3)]
    assert [page.pages for page in pages] == [3, 3, 3]
    assert [step.iteration for page in pages for step in page.steps] == list(range(60))
    (failure,) = pages[0].failures
    assert (failure.error, failure.page) == ("boom", 3)
    by_call = read_run(primary, message_id, call=UUID(failure.call_id))
    assert by_call.number == 3
    assert [
        node.id for step in by_call.steps for node in step.below if isinstance(node, CallNode) and node.is_open
    ] == [failure.call_id]
    assert read_run(primary, message_id, page=99).number == 3
    assert read_run(primary, message_id, call=UUID(int=1)).number == 1


def test_run_beyond_its_limit_has_its_first_steps_and_all_failures(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = many_steps(6)
    steps[5]["tool_calls"][1]["result"] = {"success": False, "error": "late"}
    message_id = answered(project, agent_steps=steps)
    monkeypatch.setattr(run_page, "SKELETON_ROWS", 7)
    run = read_run(primary, message_id)
    assert run.is_cut
    assert [len(step.below) for step in run.steps] == [3, 3, 2, 0, 0, 1]
    assert [(failure.step, failure.error) for failure in run.failures] == [("5", "late")]
    assert [depth for depth, _node in run.first_rows][:5] == [0, 1, 1, 1, 0]


def test_failures_are_numbered_across_pages(project: Project) -> None:
    steps = many_steps(60)
    for step, call in ((3, 0), (30, 2), (50, 1)):
        steps[step]["tool_calls"][call]["result"] = {"success": False, "error": f"boom {step}"}
    message_id = answered(project, agent_steps=steps)
    run = read_run(primary, message_id)
    assert (run.place.total, run.place.number, run.place.current, run.place.previous) == (3, None, None, None)
    # From failure to failure, forwards and back.
    seen = []
    following = run.place.next
    while following is not None:
        run = read_run(primary, message_id, call=UUID(following.call_id))
        assert run.place.current == following
        seen.append((run.place.number, run.number, following.step, following.error))
        following = run.place.next
    assert seen == [(1, 1, "3", "boom 3"), (2, 2, "30", "boom 30"), (3, 3, "50", "boom 50")]
    assert run.place.previous is not None
    assert read_run(primary, message_id, call=UUID(run.place.previous.call_id)).place.number == 2


def test_page_without_chosen_call_is_between_failures(project: Project) -> None:
    steps = many_steps(60)
    for step in (3, 50):
        steps[step]["tool_calls"][0]["result"] = {"success": False, "error": f"boom {step}"}
    message_id = answered(project, agent_steps=steps)
    place = read_run(primary, message_id, page=2).place
    assert place.previous is not None and place.next is not None
    assert (place.number, place.previous.error, place.next.error) == (None, "boom 3", "boom 50")
    # A successful call also has a place between failures.
    good = ToolCall.objects.filter(message_id=message_id, step__iteration=50).order_by("position")[1]
    place = read_run(primary, message_id, call=good.pk).place
    assert place.previous is not None
    assert (place.number, place.previous.error, place.next) == (None, "boom 50", None)


def test_failures_of_sub_agents_are_in_reading_order(project: Project) -> None:
    failed = {"success": False, "error": "x"}
    outer = {"uuid": "outer", "id": "outer", "name": "ask", "result": failed}
    inner = {"id": "inner", "name": "look", "parent": "outer", "result": failed}
    later = {"id": "later", "name": "send", "result": failed}
    steps = [
        {"iteration": 0, "tool_calls": [outer]},
        {"iteration": 1, "tool_calls": [later]},
        {"iteration": 2, "tool_calls": [inner]},
    ]
    message_id = answered(project, agent_steps=steps)
    assert [failure.tool for failure in read_run(primary, message_id).failures] == ["ask", "look", "send"]
    assert read_deciding_failure(primary, message_id) == ToolCall.objects.get(tool__name="send").pk
    assert read_deciding_failure(primary, answered(project, agent_steps=many_steps(1), external_id="good")) is None


@pytest.mark.parametrize(
    ("iterations", "numbers"), [([0, 1, 2], "0 1 2"), ([1, 2], "1 2"), ([3, 4], "3 4"), ([0, 0, 0, 5], "0 0.1 0.2 5")]
)
def test_steps_have_the_numbers_of_their_iterations(project: Project, iterations: list[int], numbers: str) -> None:
    steps = [
        {**step, "iteration": number} for step, number in zip(many_steps(len(iterations), 1), iterations, strict=True)
    ]
    run = read_run(primary, answered(project, agent_steps=steps))
    assert [step.iteration for step in run.steps] == iterations
    assert " ".join(step.number for step in run.steps) == numbers
    stored = AgentStep.objects.order_by("iteration", "ordinal")
    assert " ".join(step_number(primary, step) for step in stored) == numbers


def called(second: float | None = None, **fields: Any) -> dict[str, Any]:
    start = {} if second is None else {"started_at": NOON + timedelta(seconds=second)}
    return {"id": f"c{second}", "name": "look", "result": {"output": ""}, **start, **fields}


def test_time_in_tools_counts_no_call_twice(project: Project) -> None:
    outer = called(0, uuid="outer", duration=5_000)
    inner = called(1, parent="outer", duration=3_000)
    parallel = called(2, duration=4_000)
    run = answered(project, agent_steps=[{"tool_calls": [outer, inner, parallel]}])
    assert read_tool_time(primary, run) == 9_000
    assert read_tool_time(primary, answered(project, agent_steps=[{"thought": "none"}], external_id="plain")) is None


def test_read_run_takes_constant_queries(project: Project) -> None:
    small = answered(project, agent_steps=many_steps(2, success=False, error="x"))
    large = store(project, answer(agent_steps=many_steps(90, 5, success=False, error="x")), external_id="large")
    assert large.messages[0].id is not None
    counts = []
    for message_id in (small, large.messages[0].id):
        with CaptureQueriesContext(connection) as queries:
            read_run(primary, message_id)
        counts.append(len(queries))
    assert counts == [8, 8]


def test_step_with_very_many_calls_is_cut_and_marked(project: Project) -> None:
    run = read_run(primary, answered(project, agent_steps=many_steps(1, 700)))
    (step,) = run.steps
    assert len(step.below) == run_tree.MOST_ROWS - 1
    assert run.is_cut
    assert all(node.texts is not None for node in step.below)


def test_long_values_share_the_room_of_a_page(project: Project) -> None:
    long = "0123456789" * 100_000
    run = read_run(primary, answered(project, agent_steps=many_steps(1, 2, output=long)))
    first, second = (texts_of(node).output for node in run.steps[0].below)
    assert (first.shown_bytes, first.total_bytes) == (run_page.VALUE_CHARACTERS, 1_000_000)
    assert first.head + first.rest == long[: run_page.VALUE_CHARACTERS]
    crowded = store(project, answer(agent_steps=many_steps(1, 400, output=long[:100_000])), external_id="crowded")
    assert crowded.messages[0].id is not None
    (step,) = read_run(primary, crowded.messages[0].id).steps
    shown = sum(texts_of(node).output.shown_bytes for node in step.below)
    assert shown <= run_page.TOTAL_CHARACTERS


def test_arguments_of_several_lines_are_shown_one_by_one(project: Project) -> None:
    args = {"code": "a = 1\nprint(a)\n", "timeout": 1.50, "big": 2**70, "env": ["A", None], "on": True}
    steps = [{"tool_calls": [{"id": "c", "name": "run", "args": args, "result": {"output": ""}}]}]
    (step,) = read_run(primary, answered(project, agent_steps=steps)).steps
    fields = {name: value.head for name, value in texts_of(step.below[0]).fields}
    assert fields == {
        "code": "a = 1\nprint(a)\n",
        "timeout": "1.5",
        "big": "1180591620717411303424",
        "env": '[\n    "A",\n    null\n]',
        "on": "true",
    }


def test_read_call_returns_longer_texts(project: Project) -> None:
    message_id = answered(project, agent_steps=many_steps(30, 3, output="y" * 300_000))
    call = ToolCall.objects.filter(message_id=message_id)[random.randrange(90)]
    with CaptureQueriesContext(connection) as queries:
        node = read_call(primary, call.pk)
    assert node is not None
    assert texts_of(node).output.shown_bytes == run_page.VALUE_CHARACTERS
    assert len(queries) == 2
    assert read_call(primary, UUID(int=5)) is None
