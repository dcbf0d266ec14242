"""Files of a session and of its sub-agents, imported in any order, and snapshots of a session that grows and shrinks."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from sdk.tests.formats.test_claude_code import (
    AFTER,
    AGENT,
    BEFORE,
    LINES,
    OF_AGENT,
    SCENES,
    done,
    line,
    of_agent,
    progress,
    use,
)
from traces_app.imports import sub_agents
from traces_app.imports.importer import import_paths
from traces_app.models import AgentStep, ToolCall

MAIN = [*BEFORE, *AFTER, *LINES[5:]]
OTHERS = [of_agent(item, agentId="b00", uuid=f"o{item['uuid']}") for item in OF_AGENT[:2]]


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="agents")


def imported(folder: Path, project: Project, *documents: list[Any]) -> dict[str, int]:
    """Import these files in turn; return the outcomes of their messages."""
    states: dict[str, int] = {}
    for number, lines in enumerate(documents):
        path = folder / f"{number}.jsonl"
        path.write_text("\n".join(map(json.dumps, [{"type": "summary", "summary": "-", "leafUuid": "-"}, *lines])))
        for report in import_paths(primary, [path], project.pk):
            assert report.status == "read"
            for state, count in report.stored.items():
                states[state] = states.get(state, 0) + count
    return states


def stored(project: Project) -> list[Any]:
    """Return all rows, without our ids and the order of import."""
    calls: dict[Any, list[Any]] = {}
    ids = dict(ToolCall.objects.filter(project=project).values_list("id", "call_id"))
    for call in ToolCall.objects.filter(project=project).select_related("tool", "result").order_by("position"):
        outcome = call.result.output if hasattr(call, "result") else None
        calls.setdefault(call.step_id, []).append(
            (call.call_id, call.tool.name, call.status, ids.get(call.parent_id), outcome, call.duration_ms)
        )
    messages = []
    for message in Message.objects.filter(project=project).order_by("id"):
        steps = sorted(
            (
                (
                    step.iteration,
                    step.timestamp,
                    step.thought,
                    step.agent_name,
                    step.model,
                    step.metadata,
                    calls.get(step.pk),
                )
                for step in AgentStep.objects.filter(message_id=message.pk)
            ),
            key=str,
        )
        messages.append(
            (message.external_id, message.role, message.content, message.content_parts, message.created_at, message.completed_at, message.usage, message.error, message.metadata, message.health, message.call_count, steps)
        )  # fmt: skip
    sessions = list(Session.objects.filter(project=project).values_list("external_id", "title", "status", "message_count", "call_count"))  # fmt: skip
    return [sessions, messages]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_files_of_a_session_may_be_imported_in_any_order(db: None, tmp_path: Path, order: tuple[int, ...]) -> None:
    files = [MAIN, OF_AGENT, OTHERS]
    projects = [Project.objects.create(slug=f"p{number}") for number in range(2)]
    imported(tmp_path, projects[0], *files)
    imported(tmp_path, projects[1], *(files[index] for index in order))
    first, second = map(stored, projects)
    assert first == second
    answers = [message for message in first[1] if message[1] == "assistant"]
    assert sorted(message[0] for message in answers) == ["a1", "agent-b00"]
    (nested,) = [message for message in answers if message[0] == "a1"]
    assert [(step[3], step[6]) for step in nested[-1] if step[3]] == [
        (AGENT, [("toolu_b", "Bash", "success", "toolu_t", "ok", 1000)]),
        (AGENT, None),
    ]


def test_placed_steps_are_recognised_by_a_second_import(project: Project, tmp_path: Path) -> None:
    imported(tmp_path, project, OF_AGENT, MAIN)
    before = stored(project)
    assert "created" not in imported(tmp_path, project, OF_AGENT, MAIN, OF_AGENT)
    assert stored(project) == before


def test_progress_lines_and_file_of_sub_agent_give_same_steps(project: Project, tmp_path: Path) -> None:
    other = Project.objects.create(slug="other")
    # They omit the text beside a call, and report the usage before its end.
    early = json.loads(json.dumps(OF_AGENT[2]))
    early["message"]["usage"] = {"output_tokens": 1}
    repeated = [OF_AGENT[0], early, OF_AGENT[3]]
    own = json.loads(json.dumps(OF_AGENT))
    own[2]["message"]["usage"] = {"output_tokens": 9}
    own[3]["toolUseResult"] = {"durationMs": 3}
    imported(tmp_path, project, [*BEFORE, *map(progress, repeated), *AFTER], own)
    imported(tmp_path, other, own, [*BEFORE, *map(progress, repeated), *AFTER])
    found = stored(project)
    assert found == stored(other)
    assert found[0][0][-1] == 2


def test_share_without_known_call_is_not_moved(project: Project, tmp_path: Path) -> None:
    imported(tmp_path, project, OF_AGENT, LINES)
    assert [message[0] for message in stored(project)[1]] == ["u1", "a1", f"agent-{AGENT}"]


def without_data(output: Any = "There.") -> list[Any]:
    return [*BEFORE, line("user", "u2", [done("toolu_t", output)], 7), *AFTER[1:]]


NAMED = f"There.\nagentId: {AGENT} (for resuming to continue this agent's work if needed)"


@pytest.mark.parametrize("output", ["There.", NAMED])
@pytest.mark.parametrize("is_main_first", [True, False])
def test_share_is_placed_without_data_of_result(
    project: Project, tmp_path: Path, output: str, is_main_first: bool
) -> None:
    agent = OF_AGENT if output == "There." else [of_agent(line("user", "b0", "Other", 2)), *OF_AGENT[1:]]
    files = [without_data(output), agent] if is_main_first else [agent, without_data(output)]
    imported(tmp_path, project, *files)
    found = stored(project)
    assert [message[:3] for message in found[1]] == [("u1", "user", "Go"), ("a1", "assistant", "Done.")]
    nested = [step for step in found[1][1][-1] if step[3]]
    assert [step[5]["parent_call"] for step in nested] == ["toolu_t", "toolu_t"]
    assert all("parent_call_guessed" not in step[5] for step in nested)
    imported(tmp_path, project, *files)
    assert stored(project) == found


def test_shares_with_one_prompt_are_placed_by_a_guess_once_each(project: Project, tmp_path: Path) -> None:
    started = [use("toolu_t", "Agent", prompt="Look"), use("toolu_s", "Agent", prompt="Look")]
    main = [BEFORE[0], line("assistant", "a1", started, 1, id="msg_a"), line("user", "u2", [done("toolu_t"), done("toolu_s")], 7), *AFTER[1:]]  # fmt: skip
    other = json.loads(json.dumps(OTHERS).replace('"msg_', '"msg_o'))
    for _again in range(2):
        imported(tmp_path, project, main, OF_AGENT, other)
        steps = stored(project)[1][1][-1]
        assert {(step[3], step[5]["parent_call"], step[5]["parent_call_guessed"]) for step in steps if step[3]} == {
            (AGENT, "toolu_t", True),
            ("b00", "toolu_s", True),
        }


@pytest.mark.parametrize("cut", range(1, len(SCENES)))
def test_session_that_grows_and_shrinks_loses_nothing(db: None, tmp_path: Path, cut: int) -> None:
    at_once, grown = (Project.objects.create(slug=f"p{number}") for number in range(2))
    imported(tmp_path, at_once, SCENES)
    imported(tmp_path, grown, SCENES[:cut], SCENES)
    whole = stored(at_once)
    assert stored(grown) == whole
    imported(tmp_path, grown, SCENES[:cut])
    assert stored(grown) == whole


def test_own_title_is_kept_if_a_part_has_none(project: Project, tmp_path: Path) -> None:
    titled = [*LINES, {"type": "summary", "summary": "Repairs", "leafUuid": "a5"}]
    for lines in (LINES[:3], titled, LINES, LINES[5:]):
        imported(tmp_path, project, lines)
    assert Session.objects.get().title == "Repairs"


def test_one_of_two_shares_with_a_prompt_is_placed_by_a_guess(project: Project, tmp_path: Path) -> None:
    other = json.loads(json.dumps(OTHERS).replace('"msg_', '"msg_o'))
    imported(tmp_path, project, OF_AGENT, other, without_data())
    (nested,) = [message[-1] for message in stored(project)[1] if message[0] == "a1"]
    placed = {(step[5]["parent_call"], step[5].get("parent_call_guessed")) for step in nested if step[3]}
    assert placed == {("toolu_t", True)}


# A sub-agent that starts another one, which uses a tool.
STARTER = [
    OF_AGENT[0],
    of_agent(line("assistant", "b2", [use("toolu_n", "Agent", prompt="Look closer")], 3, id="msg_b")),
    of_agent(line("user", "b3", [done("toolu_n", "Near.")], 6)),
]
STARTED = [
    of_agent(line("user", "c0", "Look closer", 3), agentId="c00"),
    of_agent(line("assistant", "c1", [use("toolu_c")], 4, id="msg_c"), agentId="c00"),
    of_agent(line("user", "c2", [done("toolu_c")], 5), agentId="c00"),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("are_in_one_file", [True, False])
def test_share_of_a_share_is_placed_below_both(
    project: Project, tmp_path: Path, order: tuple[int, ...], are_in_one_file: bool
) -> None:
    files = [(MAIN, STARTER, STARTED)[index] for index in order]
    if are_in_one_file and order[-1] == 0:
        files = [[*files[0], *files[1]], files[2]]
    imported(tmp_path, project, *files)
    (answer,) = [message for message in stored(project)[1] if message[1] == "assistant"]
    steps = [(step[3], step[5]["parent_call"], step[6]) for step in answer[-1] if step[3]]
    assert sorted(steps) == [
        (AGENT, "toolu_t", [("toolu_n", "Agent", "success", "toolu_t", "Near.", 3000)]),
        ("c00", "toolu_n", [("toolu_c", "Bash", "success", "toolu_n", "ok", 1000)]),
    ]


@pytest.mark.parametrize("count", [2, 5])
def test_calls_of_all_shares_are_looked_up_at_once(
    project: Project, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = [use(f"toolu_{at}", "Agent", prompt=f"Look {at}") for at in range(count)]
    results = line("user", "u2", [done(f"toolu_{at}") for at in range(count)], 7)
    main = [BEFORE[0], line("assistant", "a1", started, 1, id="msg_a"), results, AFTER[1]]
    shares = [
        of_agent(item, agentId=f"c{at}", uuid=f"{item['uuid']}-{at}")
        for at in range(count)
        for item in (line("user", "c0", f"Look {at}", 2), line("assistant", "c1", "Found.", 3, id=f"msg_{at}"))
    ]
    imported(tmp_path, project, shares)
    looked_up: list[int] = []
    original = sub_agents._starts

    def starts(db: Any, project_id: int, session: str, prompts: Any) -> Any:
        looked_up.append(len(prompts))
        return original(db, project_id, session, prompts)

    monkeypatch.setattr(sub_agents, "_starts", starts)
    imported(tmp_path, project, main)
    assert looked_up == [count]
    (answer,) = [message for message in stored(project)[1] if message[1] == "assistant"]
    assert {(step[3], step[5]["parent_call"]) for step in answer[-1] if step[3]} == {
        (f"c{at}", f"toolu_{at}") for at in range(count)
    }
