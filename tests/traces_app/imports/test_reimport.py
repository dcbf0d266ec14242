"""Repeated import: a folder with several states of one session of Claude Code changes nothing the second time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.formats.test_claude_code import FILES, QUEUED, SHARED, again, done, line, text, use
from traces_app.imports.importer import import_paths

from .test_importer import stored

PARTS = [
    line("user", "u1", "Go"),
    line("assistant", "a1", [text("Let me look.")], 1),
    line("assistant", "a2", [use("toolu_1")], 2),
    line("user", "u2", [done("toolu_1")], 3),
    line("assistant", "a3", [text("Done.")], 4, id="msg_3"),
    line("assistant", "a4", [text(" Really.")], 5, id="msg_3"),
    again(line("assistant", "a4", [text(" Really.")], 5, id="msg_3")),
]
AT_ONCE = [*PARTS[:4], *({**one, "timestamp": PARTS[4]["timestamp"]} for one in PARTS[4:])]
"""The lines of one answer may have the same time."""
LARGEST = 300_000
"""Size of the real files that are imported state by state, in characters."""


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="again")


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def imported(path: Path, project: Project) -> None:
    for report in import_paths(primary, [path], project.pk):
        assert report.status == "read", report.reason


def state(project: Project) -> tuple[list[Any], list[Any]]:
    """Return the stored rows, and the number of writes of each message."""
    return stored(project), list(Message.objects.filter(project=project).values_list("id", "version").order_by("id"))


def real_files() -> list[Any]:
    found = [name for name in FILES if (SHARED / name).stat().st_size < LARGEST]
    return found or [pytest.param("", marks=pytest.mark.skip("the shared data are not on this machine"))]


@pytest.mark.parametrize("lines", [PARTS, AT_ONCE, QUEUED], ids=["parts", "at once", "queued"])
def test_earlier_state_of_a_session_removes_nothing(lines: list[Any], project: Project, tmp_path: Path) -> None:
    imported(write(tmp_path / "whole.jsonl", lines), project)
    before = state(project)
    for length in range(1, len(lines) + 1):
        imported(write(tmp_path / "start.jsonl", lines[:length]), project)
        assert state(project) == before, length


@pytest.mark.parametrize("name", real_files())
def test_earlier_state_of_a_real_session_removes_nothing(name: str, project: Project, tmp_path: Path) -> None:
    rows = [
        json.loads(row) for row in (SHARED / name).read_text().splitlines() if row.startswith("{") and _is_json(row)
    ]
    imported(write(tmp_path / "whole.jsonl", rows), project)
    before = state(project)
    for length in range(1, len(rows), max(1, len(rows) // 6)):
        imported(write(tmp_path / "start.jsonl", rows[:length]), project)
        assert state(project) == before, length


def test_folder_of_several_states_is_stable_when_imported_again(project: Project, tmp_path: Path) -> None:
    for length in (2, 5, 6, 7):
        write(tmp_path / f"state-{length}.jsonl", PARTS[:length])
    imported(tmp_path, project)
    before = state(project)
    imported(tmp_path, project)
    assert state(project) == before
    ((*_session, messages),) = before[0]
    assert [message[2] for message in messages] == ["Go", "Done.  Really."]


def _is_json(row: str) -> bool:
    try:
        json.loads(row)
    except ValueError:
        return False
    return True


# --- Tails ------------------------------------------------------------------------------------------------------------

TURNS = [
    line("user", "u1", "First"),
    line("assistant", "a1", [use("toolu_1")], 1, id="msg_1"),
    line("user", "u2", [done("toolu_1")], 2),
    line("assistant", "a2", [text("One.")], 3, id="msg_2"),
    line("user", "u3", "Second", 4),
    line("assistant", "a3", [use("toolu_2")], 5, id="msg_3"),
    line("user", "u4", [done("toolu_2")], 6),
    line("assistant", "a4", [use("toolu_3")], 7, id="msg_4"),
    line("user", "m1", "A skill.", 8, isMeta=True),
    line("user", "u5", [done("toolu_3")], 9),
    line("assistant", "a5", [text("Two.")], 10, id="msg_5"),
    line("assistant", "a6", [text(" Done.")], 11, id="msg_5"),
]


def figures(project: Project) -> list[Any]:
    """Return the counters of the sessions, and the messages as (role, content, steps as (thought, calls))."""
    return [
        (
            counters,
            [(m[1], m[2], [(step[1], [(call[1], call[4]) for call in step[-1]]) for step in m[-1]]) for m in messages],
        )
        for *_session, counters, messages in stored(project)
    ]


@pytest.mark.parametrize("begin", range(1, len(TURNS)))
@pytest.mark.parametrize("is_first", [True, False], ids=["tail first", "whole first"])
def test_tail_of_a_session_and_the_whole_are_the_whole(
    begin: int, is_first: bool, project: Project, tmp_path: Path
) -> None:
    tail, whole = write(tmp_path / "tail.jsonl", TURNS[begin:]), write(tmp_path / "whole.jsonl", TURNS)
    for path in (tail, whole) if is_first else (whole, tail):
        imported(path, project)
    other = Project.objects.create(slug="whole")
    imported(whole, other)
    assert figures(project) == figures(other)
    before = state(project)
    imported(tail, project)
    imported(whole, project)
    assert state(project) == before


@pytest.mark.parametrize("name", real_files())
def test_tail_of_a_real_session_and_the_whole_are_the_whole(name: str, project: Project, tmp_path: Path) -> None:
    rows = [
        json.loads(row) for row in (SHARED / name).read_text().splitlines() if row.startswith("{") and _is_json(row)
    ]
    whole = write(tmp_path / "whole.jsonl", rows)
    other = Project.objects.create(slug="whole")
    imported(whole, other)
    tail = write(tmp_path / "tail.jsonl", rows[len(rows) // 2 :])
    for report in import_paths(primary, [tail], project.pk):
        if report.status != "read":
            pytest.skip("the second half of this file is no transcript")
    imported(whole, project)
    assert calls(project) == calls(other)


def calls(project: Project) -> Counter[tuple[str, str]]:
    """Return how often each call is stored, with its status."""
    return Counter(
        call
        for _counters, messages in figures(project)
        for *_said, steps in messages
        for _thought, found in steps
        for call in found
    )


def test_tails_of_several_lengths_are_one_turn(project: Project, tmp_path: Path) -> None:
    for begin in (7, 6, 5, 0):
        imported(write(tmp_path / "part.jsonl", TURNS[begin:]), project)
    other = Project.objects.create(slug="whole")
    imported(tmp_path / "part.jsonl", other)
    assert figures(project) == figures(other)


def test_turn_that_a_damaged_file_joins_to_the_one_before_stays(project: Project, tmp_path: Path) -> None:
    imported(write(tmp_path / "whole.jsonl", TURNS), project)
    ((_counters, before),) = figures(project)
    imported(write(tmp_path / "damaged.jsonl", TURNS[:4] + TURNS[5:]), project)
    ((_counters, after),) = figures(project)
    assert [message for message in before if message not in after] == [before[1]]
